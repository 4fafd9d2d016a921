"""The common parts of this plugin's pages: one HTML file that loads nothing, figures, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from fedplug_ledger.grades import LARGEST_MEANINGFUL
from fedplug_ledger.tiers import MARKS, MODERATE, STRICT
from fedplug_ledger.verdict import Line, Verdict
from fedplug_runs import units
from fedplug_runs.files import write_text

from fedplug_lab.drawing import Chart
from fedplug_lab.glance import CLIENT, SCALE, glance
from fedplug_lab.tables import sentence, text
from fedplug_lab.words import GLOSSARY

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_page(
    path: Path, kind: str, name: str, byline: str, top: Sequence[str], sections: Sequence[tuple[str, str, str]]
) -> Path:
    """Writes a page, whole or not at all; gives its path. What it holds is as in `page_html`."""
    write_text(path, page_html(kind, name, byline, top, sections))
    return path


def page_html(
    kind: str, name: str, byline: str, top: Sequence[str], sections: Sequence[tuple[str, str, str]], style: str = ""
) -> str:
    """A page.

    Args:
        kind: what kind of page it is, such as `report`.
        name: its heading.
        byline: below the heading, as HTML.
        top: before the sections, as HTML.
        sections: id, heading and HTML of each; one without HTML is left out.
        style: CSS of this kind of page, in addition to that of all pages.
    """
    links = "".join(f'<a href="#{key}">{text(title)}</a>' for key, title, body in sections if body)
    page = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{text(name)} · fedplug {kind}</title>",
        f"<style>{files('fedplug_lab').joinpath('report.css').read_text('utf-8')}{style}</style>\n</head>\n<body>\n<header>",
        f'<p class="eyebrow">fedplug {kind}</p><h1>{text(name)}</h1>{byline}',
        f'<nav aria-label="Sections">{links}</nav></header>\n<main>',
        *top,
        *(f'<section id="{key}"><h2>{text(title)}</h2>\n{body}</section>' for key, title, body in sections if body),
        "</main>\n<footer>Written by fedplug. This file is complete in itself: it loads nothing and runs no script."
        "</footer>\n</body>\n</html>\n",
    ]
    return "\n".join(page)


def glossary() -> str:
    """The meaning of the words of verdicts and ledgers, folded away."""
    words = "".join(f"<dt>{text(word)}</dt><dd>{text(meaning)}</dd>" for word, meaning in GLOSSARY.items())
    return f'<details class="glossary"><summary>What these words mean</summary><dl class="facts">{words}</dl></details>'


def figures(drawn: Sequence[Chart]) -> str:
    """The figures, two in a row."""
    return f'<div class="figures">{"".join(map(_figure, drawn))}</div>' if drawn else ""


def _figure(chart: Chart) -> str:
    keys = "".join(
        f'<li><span class="key {kind}" style="--c:{colour}"></span>{text(label)}</li>'
        for label, colour, kind in chart.legend
    )
    return (f'<figure id="figure-{chart.key}"{" class=wide" if chart.wide else ""}><h3>{text(chart.title)}</h3>'
            f'<ul class="legend">{keys}</ul>{chart.svg}'
            f"<figcaption>{sentence(chart.alt)} {sentence(chart.note)}</figcaption></figure>\n")  # fmt: skip


HELP = (
    f"{CLIENT} What holds for a client holds for each of its patients or records too. Epsilon limits how much one "
    "client's data can change what somebody sees. "
    f"With 0 nobody learns anything, up to {STRICT:g} is strict, above {MODERATE:g} is loose ({MARKS['loose']}), and "
    f"above {LARGEST_MEANINGFUL:g} it says nothing useful ({MARKS['beyond']}). Delta is the chance that the limit "
    "fails. Add-or-remove compares with a run without the client; replace-one, with other data in its place, which is "
    "the same noise seen over twice the distance. A line is as strict as the larger of the two. A guarantee is weak "
    f"where its replace-one epsilon is above {LARGEST_MEANINGFUL:g}. A guarantee for another unit, such as a record "
    f"({MARKS['part']}), promises nothing for a client as a whole. All lines suppose that everybody follows the "
    "protocol, and count this run alone: not earlier runs or searches on the same data. Where there are several "
    "reasons, the line has one, and the ledger below has all."
)
"""What a reader needs to know to read the lines."""


def verdict_opening(verdict: Verdict) -> str:
    """The status as a badge in the colour of its worst guarantee, and a plain sentence."""
    how = f" · {verdict.tier}" if verdict.tier in ("strict", "moderate", "loose") else ""
    badge = f'<span class="status {verdict.status} {verdict.tier}">{text(verdict.opening)}{how}</span>'
    return f"<p>{badge} {sentence(verdict.headline)}</p>"


def verdict_glance(verdict: Verdict) -> str:
    """A section: the same, and a tile a party with its lock, what it reads, and where its epsilon lies on one scale."""
    one = f"<small>{text(CLIENT)}</small>" if verdict.lines else ""
    head = f'<h2 id="verdict">Who can learn what about a client{one}</h2>'
    shown = f"{head}{verdict_opening(verdict)}{glance(verdict)}"
    return f'<section class="verdict" aria-labelledby="verdict">{shown}</section>'


def verdict_html(verdict: Verdict, clients: int | None = None, measured: Mapping[str, str] | None = None) -> str:
    """The status, a plain sentence, and below it all lines; see `verdict_lines`."""
    return verdict_opening(verdict) + verdict_lines(verdict, clients, measured)


def verdict_lines(verdict: Verdict, clients: int | None = None, measured: Mapping[str, str] | None = None) -> str:
    """A row a party: a sign, its guarantee, what it sees, and why; nothing where no round was recorded.

    Args:
        verdict: of a run.
        clients: how many take part; None where that is not known.
        measured: by party what an audit measured, in words.
    """
    if not verdict.lines:
        return ""
    rows, said = "", dict[str, str]()
    for line in verdict.lines:
        why = _why(line)
        told = f"as for {text(said[why])}" if why and why in said else why
        rows += _row(line, (measured or {}).get(line.party, ""), told)
        said.setdefault(why, line.who)
    lines = (
        '<table class="parties"><caption><span>What each party can learn about a client.</span></caption>'
        '<thead><tr><th scope="col">Who looks</th><th scope="col">what is guaranteed</th>'
        f'<th scope="col">what it sees</th><th scope="col">why</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    many = f" {units.many(clients, 'client')} {'takes' if clients == 1 else 'take'} part." if clients else ""
    caveat = f"<p>{sentence(verdict.caveat)}</p>" if verdict.caveat else ""
    folded = f'<p class="note">{sentence(f"{HELP} {SCALE}{many}")}</p>'
    return f'{lines}{caveat}<details class="glossary"><summary>How to read this</summary>{folded}</details>'


def _why(line: Line) -> str:
    why = [sentence(line.reason or line.terms)] if line.reason or line.terms else []
    if line.state == "guaranteed":
        why += [f"<b>Rests on:</b> {sentence(', '.join(line.rests_on))}"] if line.rests_on else []
        why += [f"<b>Not covered:</b> {sentence(', '.join(line.not_covered))}"] if line.not_covered else []
    return "<br>".join(why)


def _row(line: Line, measured: str, why: str) -> str:
    found = f"<br>{sentence(measured)}" if measured else ""
    return (
        f'<tr class="{line.tier}"><th scope="row">{text(line.who)}</th><td><span class="mark">{line.mark}'
        f"</span> <b>{sentence(line.guarantee)}</b>{found}</td><td>{sentence(line.sees)}</td>"
        f'<td title="{text(line.detail)}">{why}</td></tr>'
    )
