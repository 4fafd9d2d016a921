"""The common parts of this plugin's pages: one HTML file that loads nothing, and figures with their captions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from fedplug_runs.files import write_text

from fedplug_lab.drawing import Chart
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
