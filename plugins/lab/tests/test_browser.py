"""The pages in a real browser: on a telephone, a tablet and a desk, in light and dark, and read by axe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from browsing import SCREENS, WIDTHS, below_the_fold, browser, faults

__all__ = ["browser"]

RECIPES = Path(__file__).parents[3] / "recipes"
RUNS = {
    "classification": ("leakage.yaml", ["rounds=1", "attack.targets=[0]", "attack.adversaries=[server]"]),
    "noise": ("dp-fedavg.yaml", ["rounds=2"]),
    "segmentation": ("fedre.yaml", ["rounds=1", "data.clients=3", "train.epochs=1"]),
    "groups": ("sensecrypt.yaml", ["rounds=2", "train.epochs=1"]),
}
"""A short run of each kind: attacks and own models, an epsilon, figures of a task, groups and two clocks."""


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by name; made only where a browser can look at them."""
    import fedplug
    from fedplug_attacks.workshop.command import attack
    from fedplug_lab import compare, sweep
    from fedplug_runs.settings import Settings

    folder = tmp_path_factory.mktemp("pages")
    found, runs = {}, []
    for name, (recipe, sets) in RUNS.items():
        run = fedplug.run(RECIPES / recipe, sets, output=folder / "runs", quiet=True)
        found[name] = run.folder / "report.html"
        runs.append(run.folder)
    # As it is after `fedplug attack`: single batches, several adversaries, pictures next to the originals.
    attacked = Path(shutil.copytree(runs[0], folder / "attacked"))
    scope = {"probe": {"batch_size": 3}, "adversaries": ["server", "client"], "targets": [0, 1]}
    assert attack(attacked, Settings(quiet=True), ["ilrg", "linear_leak", "labels"], scope=scope) == 0
    found["attacked"] = attacked / "report.html"
    settings = Settings(output=folder / "made", quiet=True)
    compare.compare(runs, settings, compare.Asked("", (), (), 1, False, ""))
    grid = folder / "grid.yaml"
    grid.write_text("cases:\n  - {name: noise}\n  - {name: none, set: {protect.noised: []}}\n")
    sweep.sweep(RECIPES / "dp-fedavg.yaml", grid, Settings(output=folder / "sweep", quiet=True), ["rounds=1"], [1, 2])
    (found["comparison"],) = (folder / "made").glob("*/compare.html")
    return {**found, "sweep": folder / "sweep" / "sweep.html"}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_can_be_read_everywhere(browser: Any, pages: dict[str, Path], width: int, scheme: str) -> None:
    found = [fault for page in pages.values() for fault in faults(browser, page, width, scheme)]
    assert not found, "\n".join(found)


REPORT = {".verdict .status": 1, ".glance li": 5, ".numbers.lead dt": 2, ".numbers.lead dd": 2}
COMPARISON = {".protocols tbody th": 1, ".protocols .badges": 1, ".protocols td:nth-of-type(2)": 1,
              ".protocols td:nth-of-type(3)": 1, ".protocols td:nth-of-type(4)": 1}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SCREENS)
def test_the_first_screen_answers(browser: Any, pages: dict[str, Path], width: int, scheme: str) -> None:
    """A report: the verdict, all locks, accuracy and epsilon. A comparison: all of one protocol's row, or of two."""
    found = []
    for name in RUNS:
        found += below_the_fold(browser, pages[name], width, scheme, REPORT)
    rows = 1 if width < 800 else 2
    wanted = {selector: rows * count for selector, count in COMPARISON.items()}
    found += below_the_fold(browser, pages["comparison"], width, scheme, wanted)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_what_is_below_the_fold_is_noticed(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<!doctype html><title>t</title><p class="a">a</p><p style="margin-top:900px" class="a">b</p>')
    (said,) = below_the_fold(browser, page, 390, "light", {".a": 2})
    assert said.split(": ")[1].startswith(".a 1 ends at ")
    assert "there are 2 .a, not 3" in " ".join(below_the_fold(browser, page, 390, "light", {".a": 3}))


@pytest.mark.slow
def test_a_page_that_is_too_wide_or_too_pale_is_noticed(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    words = '<text x="990" y="50" style="font-size:9px">outside</text>'
    svg = f'<svg viewBox="0 0 1000 100" style="width:100%">{words}</svg>'
    page.write_text(
        '<!doctype html><html lang="en"><head><title>bad</title></head><body><main><h1>bad</h1>'
        '<p style="color:#ccc;background:#fff">pale</p><div style="width:2000px">wide</div>'
        f"<figure>{svg}<figcaption>x</figcaption></figure></main></body></html>"
    )
    found = "\n".join(faults(browser, page, 390, "light"))
    for fault in ("the page is", "px: outside", "outside its figure", "axe color-contrast"):
        assert fault in found, found


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_numbers_of_a_comparison_need_no_inner_scroll(browser: Any, pages: dict[str, Path], width: int) -> None:
    script = """() => [...document.querySelectorAll('#numbers, #numbers *')]
        .filter((part) => part.scrollWidth > part.clientWidth + 1 && part.clientWidth && !part.closest('details'))
        .map((part) => `${part.tagName} ${part.textContent.slice(0, 40)}`)"""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(pages["comparison"].as_uri())
    assert page.locator("#numbers table").first.is_visible()
    assert page.evaluate(script) == []
    page.emulate_media(media="print")
    assert page.evaluate(script) == [], "on paper neither"
    context.close()
