"""Runs a recipe, and draws the terminal's output as a moving picture: docs/pictures/run.svg.

    python docs/terminal.py
    python docs/terminal.py secagg-digits --seconds 9

Times are those of the run, scaled to the given seconds. Rounds replace each other on one line. Readers who prefer no
motion see the last state.
"""

from __future__ import annotations

import argparse
import html
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PICTURE = Path(__file__).parent / "pictures" / "run.svg"
COLUMNS, WIDE, HIGH, AROUND = 104, 8.05, 19.0, 18.0
"""Characters of a line, size of a character, space around the text; in pixels."""
MARKS = {"✓": "good", "~": "fair", "◐": "fair", "!": "fair", "✗": "bad"}
STYLE = """
  .ground { fill: #f6f8fa; stroke: #d0d7de } text { fill: #1f2328; white-space: pre }
  .dim { fill: #656d76 } .good { fill: #116329 } .fair { fill: #7d4e00 } .bad { fill: #a40e26 }
  .typed { fill: #0550ae; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #151b23; stroke: #3d444d } text { fill: #e6edf3 }
    .dim { fill: #9198a1 } .typed { fill: #79c0ff }
    .good { fill: #3fb950 } .fair { fill: #d29922 } .bad { fill: #ff7b72 }
  }
  .shown { opacity: 0; animation: shown 0.01s linear forwards }
  .passing { opacity: 0; animation: passing linear }
  @keyframes shown { to { opacity: 1 } }
  @keyframes passing { from { opacity: 1 } to { opacity: 1 } }
  @media (prefers-reduced-motion: reduce) { .shown { animation: none; opacity: 1 } .passing { display: none } }
"""


def record(recipe: str) -> list[tuple[float, str]]:
    """The lines that a run prints, each with the seconds since its start."""
    program = Path(sys.executable).parent / "fedplug"
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        command = [str(program), "run", recipe, "--output", "runs"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as ran:
            assert ran.stdout is not None
            lines = [(time.monotonic() - begun, line.rstrip("\n")) for line in ran.stdout]
        if ran.returncode:
            sys.exit(f"fedplug run {recipe} ended with {ran.returncode}")
    return lines


def picture(recipe: str, lines: list[tuple[float, str]], seconds: float) -> str:
    """The moving picture as SVG."""
    typed = 1.2
    scale = (seconds - typed) / lines[-1][0]
    rows: list[str] = [_row(0, f"$ fedplug run {recipe}", "typed", 0.2)]
    at, rounds = 1, [(typed + scale * when, line) for when, line in lines if line.startswith("round ")]
    for when, line in lines:
        begin = typed + scale * when
        if line.startswith("round "):
            if line == rounds[0][1]:
                ends = [later for later, _ in rounds[1:]]
                for (since, passing), until in zip(rounds[:-1], ends, strict=True):
                    rows.append(_row(at, _cut(passing), "passing", since, until - since))
                rows.append(_row(at, _cut(rounds[-1][1]), "", rounds[-1][0]))
                at += 1
            continue
        kept, kind = _kept(line)
        if kept:
            rows.append(_row(at, _cut(kept), kind, begin))
            at += 1
    return _frame(rows, at, f"fedplug run {recipe}: rounds, then what each party can learn, and the report")


def still(command: str, lines: list[tuple[str, str]], told: str) -> str:
    """A picture that does not move: a command and what it printed, each line with its kind."""
    shown = [_row(at + 1, _cut(line), kind) for at, (line, kind) in enumerate(lines)]
    return _frame([_row(0, f"$ {command}", "typed"), *shown], len(lines) + 1, told)


def _frame(rows: list[str], high: int, told: str) -> str:
    width, height = COLUMNS * WIDE + 2 * AROUND, high * HIGH + 2 * AROUND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{html.escape(told)}" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>\n'
        + "\n".join(rows) + "\n</svg>\n"
    )  # fmt: skip


_LEFT_OUT = ("rounds: ", "run folder: ", "  train", "  partition", "  negotiate", "  aggregate", "  postprocess")


def _kept(line: str) -> tuple[str, str]:
    """The part of a line in the picture, and its kind: part of the plan, and for each party its guarantee and view."""
    words = line.strip()
    if line.startswith(_LEFT_OUT) or words.startswith("rests on") or "no such party" in line:
        return "", ""
    if words[:1] in MARKS:
        return line.partition(";")[0], MARKS[words[0]]
    return line.partition(", run folder")[0].partition(" Each client")[0], "dim" if line.startswith(" ") else ""


def _cut(line: str) -> str:
    return line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


def _row(at: int, line: str, kind: str, since: float | None = None, lasts: float | None = None) -> str:
    """A line of text that appears after `since`, and stays or passes. Without `since` it is there from the start."""
    words = "passing" if lasts is not None else kind if since is None else f"shown {kind}".strip()
    moves = "" if since is None else f"animation-delay:{since:.2f}s"
    moves += f";animation-duration:{lasts:.2f}s" if lasts is not None else ""
    y = AROUND + (at + 0.75) * HIGH
    # The same width in any font.
    length = f' textLength="{len(line) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"' if line else ""
    style = f' style="{moves}"' if moves else ""
    return (
        f'<text class="{words}"{style} x="{AROUND:.0f}" y="{y:.1f}" xml:space="preserve"{length}>'
        f"{html.escape(line)}</text>"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="secagg-digits")
    parser.add_argument("--seconds", type=float, default=9.0, help="that the picture takes")
    given = parser.parse_args()
    PICTURE.write_text(picture(given.recipe, record(given.recipe), given.seconds), encoding="utf-8")
    print(f"drew {PICTURE.relative_to(PICTURE.parents[2])}")
