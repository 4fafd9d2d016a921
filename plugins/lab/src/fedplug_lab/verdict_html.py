"""The verdict of a run as HTML: the first that every page shows of privacy."""

from __future__ import annotations

from fedplug.api.verdict import LARGEST_MEANINGFUL, MARKS, Line, Verdict

from fedplug_lab.tables import sentence, text

HELP = (
    "Epsilon limits how much one client's data can change what somebody sees: with 0 nobody learns anything, 1 is a "
    f"strict limit, and above {LARGEST_MEANINGFUL:g} nothing useful is promised. Delta is the chance that the limit "
    "fails. All lines suppose that everybody follows the protocol, and count this run alone: not earlier runs or "
    "searches on the same data."
)
"""What a reader needs to know to read the lines."""


def verdict_html(verdict: Verdict) -> str:
    """The status, a plain sentence, and a row a party: a sign, its guarantee, and the reason or what it rests on."""
    badge = f'<span class="status {verdict.status}">{text(verdict.opening)}</span>'
    rows = "".join(_row(line) for line in verdict.lines)
    lines = (
        '<table class="parties"><thead><tr><th scope="col">What can be learnt of a client by</th>'
        f'<th scope="col">guarantee</th><th scope="col">why</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    help_ = f'<p class="note">{sentence(HELP)}</p>'
    return f"<p>{badge} {sentence(verdict.headline)}</p>{lines + help_ if verdict.lines else ''}"


def _row(line: Line) -> str:
    why = [sentence(line.reason or line.terms)] if line.reason or line.terms else []
    if line.state == "guaranteed":
        why += [f"<b>Rests on:</b> {sentence(', '.join(line.rests_on))}"] if line.rests_on else []
        why += [f"<b>Not covered:</b> {sentence(', '.join(line.not_covered))}"] if line.not_covered else []
    return (
        f'<tr class="{line.state}"><th scope="row">{text(line.who)}</th><td><span class="mark">{MARKS[line.state]}'
        f'</span> <b>{sentence(line.guarantee)}</b></td><td title="{text(line.detail)}">{"<br>".join(why)}</td></tr>'
    )
