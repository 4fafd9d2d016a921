"""A real browser for tests of pages, and what it finds wrong with one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = "pip install -e '.[browser]', and a Chromium: apt-get install chromium, or playwright install chromium"
WIDTHS = (390, 800, 1280)
SMALLEST = 10.5
"""Pixels of a letter in a figure on a telephone; 11 of the page's own, as far as rounding goes."""

_WRONG = """() => {
  const found = [], wide = document.documentElement.clientWidth;
  const whole = document.documentElement.scrollWidth;
  if (whole > wide) found.push(`the page is ${whole} wide`);
  for (const caption of document.querySelectorAll('caption span, figcaption, .legend li, h1, h2, h3, .verdict p')) {
    const box = caption.getBoundingClientRect();
    if (box.width && (box.left < -1 || box.right > wide + 1)) found.push(`cut at the edge: ${caption.textContent}`);
  }
  for (const svg of document.querySelectorAll('figure svg')) {
    const room = svg.getBoundingClientRect();
    if (!room.width) continue;
    const texts = [...svg.querySelectorAll('text')];
    for (const text of texts) {
      const box = text.getBoundingClientRect(), scale = room.width / svg.viewBox.baseVal.width;
      const size = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (wide < 400 && size < SMALLEST) found.push(`${size.toFixed(1)} px: ${text.textContent}`);
      const across = box.left < room.left - 2 || box.right > room.right + 2;
      if (across || box.top < room.top - 2 || box.bottom > room.bottom + 2)
        found.push(`outside its figure: ${text.textContent}`);
    }
    const lying = texts.filter((text) => !text.hasAttribute('transform'));
    for (let i = 1; i < lying.length; i++) {
      const one = lying[i - 1], other = lying[i];
      const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1 && y > 0.4 * a.height) found.push(`one over the other: ${one.textContent}, ${other.textContent}`);
    }
  }
  return [...new Set(found)];
}""".replace("SMALLEST", str(SMALLEST))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window; the test is skipped, and says how to get one, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"there is no playwright: {HOW}")
    pytest.importorskip("axe_playwright_python", reason=f"there is no axe: {HOW}")
    with playwright.sync_playwright() as driver:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        try:
            started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"there is no browser that starts ({str(error).splitlines()[0]}): {HOW}")
        yield started
        started.close()


SCREENS = {390: 844, 1280: 800}
"""The first screen of a telephone and of a laptop: width and height in pixels."""


def below_the_fold(browser: Any, page: Path, width: int, scheme: str, wanted: Mapping[str, int]) -> list[str]:
    """What of a page is not on its first screen.

    Args:
        browser: see the fixture.
        page: the file.
        width: of the window, a key of `SCREENS`.
        scheme: `light` or `dark`.
        wanted: by CSS selector, how many of these, from the first one on, must be seen whole.
    """
    high = SCREENS[width]
    context = browser.new_context(viewport={"width": width, "height": high}, color_scheme=scheme)
    try:
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        said = []
        for selector, count in wanted.items():
            found = tab.locator(selector).all()[:count]
            said += [f"there are {len(found)} {selector}, not {count}"] if len(found) < count else []
            for place, each in enumerate(found):
                box = each.bounding_box()
                if box is None or box["y"] < 0 or box["y"] + box["height"] > high:
                    said.append(f"{selector} {place} ends at {box and round(box['y'] + box['height'])} of {high}")
        return [f"{page.parent.name}/{page.name} at {width} px, {scheme}: {one}" for one in said]
    finally:
        context.close()


def faults(browser: Any, page: Path, width: int, scheme: str, unfold: bool = True) -> list[str]:
    """What is wrong with a page at a width, in light or dark: what is cut, too small or overlaps, and what axe finds.

    Args:
        browser: see the fixture.
        page: the file.
        width: of the window, in pixels.
        scheme: `light` or `dark`.
        unfold: whether what is folded away is looked at too.
    """
    import axe_playwright_python

    script = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text("utf-8")
    # The page's policy forbids all scripts, also those of the test.
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    try:
        tab = context.new_page()
        said: list[str] = []
        tab.on("console", lambda message: said.append(f"console: {message.text}") if message.type == "error" else None)
        tab.on("request", lambda asked: said.append(f"loads {asked.url}")
               if not asked.url.startswith(("file:", "data:")) else None)  # fmt: skip
        tab.goto(page.resolve().as_uri())
        if unfold:
            tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        found = list(tab.evaluate(_WRONG))
        tab.evaluate(script)
        rules = tab.evaluate("axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)")
        for rule in rules:
            if rule["impact"] in ("serious", "critical"):
                where = "; ".join(str(node["target"]) for node in rule["nodes"][:3])
                found.append(f"axe {rule['id']}: {rule['help']} ({len(rule['nodes'])} times: {where})")
        return [f"{page.name} at {width} px, {scheme}: {fault}" for fault in [*found, *said]]
    finally:
        context.close()
