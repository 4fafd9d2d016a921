"""Takes the pictures of pages and programs that the documentation shows: report, comparison, evidence, and a party.

    python docs/screens.py
    python docs/screens.py report party

Needs Chromium. Each picture has a light and a dark form in one SVG, which follows the reader's colour scheme.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
RECIPES = DOCS.parent / "recipes"
RECIPE = RECIPES / "threshold-fedavg.yaml"
COMPARED = tuple(RECIPES / f"{name}.yaml" for name in ("bfv-fedavg", "dp-fedavg", "paraaegis-key-server"))
ATTACKED = 3
"""The exit code of attacks that succeed."""
WIDE = 1100
HIGH = {"report": 1230, "comparison": 1180, "evidence": 1000}
"""Pixels of each page that are shown, from its top."""
TOLD = {
    "report": "The top of a report, with eight numbered places",
    "comparison": "The top of a comparison: who is kept out, accuracy, bytes and seconds, in a row for each protocol",
    "evidence": "The top of an evidence folder's page: what was attacked, who could see what, what is not protected",
}
BADGES = {
    r'(?=<span class="status)': 1,
    r'(?<=<span class="who">)': 2,
    r'(?<=<span class="said">)': 3,
    r'(?<=<span class="reads">)': 4,
    r"(?<=<dt>)(?=Accuracy)": 5,
    r"(?<=<dt>)(?=Epsilon spent)": 6,
    r"(?=<b>Rests on:)": 7,
    r"(?=<b>Not covered:)": 8,
}
"""The numbers of the annotated report, each with the place in the page that it comes before."""
BADGE = (
    "<style>.n{{display:inline-block;width:1.5em;height:1.5em;margin-right:.45em;border-radius:50%;background:#d6336c;"
    "color:#fff;font:700 13px/1.5em system-ui,sans-serif;text-align:center;letter-spacing:0}}</style>"
    '<span class="n">{}</span>'
)


def annotated(page: str) -> str:
    """A report with a number at each place of `BADGES`."""
    for place, number in BADGES.items():
        page, found = re.subn(place, BADGE.format(number), page, count=1)
        if not found:
            sys.exit(f"docs/screens.py: the report has no place for number {number}: {place}")
    return page


def screen(page: Path, high: int, dark: bool) -> bytes:
    """The top of a page as WebP."""
    from PIL import Image

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("docs/screens.py needs Chromium or Chrome on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"]
        options += [f"--window-size={WIDE},{high + 200}", f"--screenshot={shot}"]  # the window has borders
        options += ["--force-dark-mode"] if dark else []
        subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True)
        written = io.BytesIO()
        Image.open(shot).convert("RGB").crop((0, 0, WIDE, high)).save(written, "WEBP", quality=70, method=6)
    return written.getvalue()


def picture(page: Path, high: int, told: str) -> str:
    """Both forms of a page's top as one SVG."""
    images = "".join(
        f'<image class="{name}" width="{WIDE}" height="{high}" '
        f'href="data:image/webp;base64,{base64.b64encode(screen(page, high, name == "dark")).decode()}"/>\n'
        for name in ("light", "dark")
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" role="img" '
        f'aria-label="{html.escape(told)}">\n'
        "<style>.dark { display: none } @media (prefers-color-scheme: dark) { .dark { display: inline } "
        ".light { display: none } }</style>\n"
        f"{images}</svg>\n"
    )


def pages(folder: Path) -> Mapping[str, Path]:
    """Runs what the pages are of: three protocols and their comparison, and one's attack and evidence."""
    _fedplug("compare", *map(str, COMPARED), "--output", "runs", folder=folder)
    (comparison,) = folder.glob("runs/compare-*/compare.html")
    _fedplug("run", str(RECIPE), "--record-wire", "--output", "attacked", folder=folder)
    (run,) = folder.glob("attacked/*")
    report = folder / "report.html"
    report.write_text(annotated((run / "report.html").read_text(encoding="utf-8")), encoding="utf-8")
    _fedplug("attack", str(run), folder=folder)
    _fedplug("evidence", str(run), folder=folder)
    return {"report": report, "comparison": comparison, "evidence": run / "evidence/index.html"}


def party(folder: Path) -> str:
    """A client of the federation of docs/tutorials/federation.md: what it is told, and what it answers."""
    text = (DOCS / "tutorials/federation.md").read_text(encoding="utf-8")
    recipe = re.search(r"<!-- file: desk.yaml -->\n```yaml\n(.*?)```", text, re.DOTALL)
    assert recipe is not None
    (folder / "desk.yaml").write_text(recipe[1].replace("rounds: 400", "rounds: 3"), encoding="utf-8")
    parties = {f"client-{number}": ["--client", str(number)] for number in range(3)} | {"key-server": ["--key-server"]}
    program, started = Path(sys.executable).parent / "fedplug", []
    try:
        for name, of in parties.items():
            command = [str(program), "party", "desk.yaml", *of, "--state", f"parties/{name}", "--yes"]
            with (folder / f"{name}.txt").open("w") as log:
                started.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT))
        while not all("listens in" in (folder / f"{name}.txt").read_text(encoding="utf-8") for name in parties):
            time.sleep(0.2)
        _fedplug("run", "desk.yaml", "--engine", "parties", "--parties", "parties", folder=folder)
        lines = (folder / "client-0.txt").read_text(encoding="utf-8").splitlines()
    finally:
        for one in started:
            one.send_signal(signal.SIGINT)
            one.wait(20)
    return _terminal()["still"](
        "fedplug party desk.yaml --client 0 --state parties/client-0 --yes", _told(lines),
        "A party program: what leaves this site, what the server can ask, what that guarantees, and what it answered",
    )  # fmt: skip


def _told(lines: list[str]) -> list[tuple[str, str]]:
    """The sections of a party's text that the picture has; long lists are cut after four lines."""
    marks, kept, section, shown = _terminal()["MARKS"], list[tuple[str, str]](), "", 0
    for line in lines:
        if line and not line.startswith(" "):
            section, shown = line, 0
        shown += 1
        left = section.startswith(("What runs", "The same if", "Never covered"))
        if not left and not (section.startswith("What the server can ask") and shown > 5 and line):
            kept.append((line, marks.get(line.strip()[:1], "dim" if line.startswith(" ") else "")))
            if section.startswith("What the server can ask") and shown == 5:
                kept.append(("  …", "dim"))
    return kept


@functools.cache
def _terminal() -> Mapping[str, Any]:
    return runpy.run_path(str(DOCS / "terminal.py"))


def _fedplug(*arguments: str, folder: Path) -> None:
    program = Path(sys.executable).parent / "fedplug"
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, ATTACKED):
        sys.exit(f"fedplug {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")


def main(names: Sequence[str]) -> None:
    """Draws these, or all."""
    with tempfile.TemporaryDirectory() as folder:
        found = {} if names == ["party"] else pages(Path(folder))
        for name in names or [*TOLD, "party"]:
            drawn = party(Path(folder)) if name == "party" else picture(found[name], HIGH[name], TOLD[name])
            (PICTURES / f"{name}.svg").write_text(drawn, encoding="utf-8")
            print(f"drew docs/pictures/{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
