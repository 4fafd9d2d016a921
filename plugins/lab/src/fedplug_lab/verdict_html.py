"""The verdict of a run as HTML: the first that every page shows of privacy."""

from __future__ import annotations

from collections.abc import Mapping

from fedplug_ledger.grades import LARGEST_MEANINGFUL
from fedplug_ledger.verdict import Line, Verdict
from fedplug_ledger.verdict_words import MARKS

from fedplug_lab.tables import sentence, text

HELP = (
    "A client is one participant with all its data, such as a hospital; what holds for a client holds for each "
    "of its patients or records too. Epsilon limits how much one client's data can change what somebody sees. "
    f"With 0 nobody learns anything, up to 1 is strict, and above {LARGEST_MEANINGFUL:g} it says nothing useful "
    f"({MARKS['beyond']}). Delta is the chance that the limit fails. Add-or-remove compares with a run without the "
    "client; replace-one, with other data in its place, which is the same noise seen over twice the distance. A "
    f"guarantee is weak ({MARKS['weak']}) where its replace-one epsilon is above {LARGEST_MEANINGFUL:g}. All lines "
    "suppose that everybody follows the protocol, and count this run alone: not earlier runs or searches on the same "
    "data. Where there are several reasons, the line has one, and the ledger below has all."
)
"""What a reader needs to know to read the lines."""


def verdict_html(verdict: Verdict, clients: int | None = None, measured: Mapping[str, str] | None = None) -> str:
    """The status, a plain sentence, and a row a party: a sign, its guarantee, what it sees, and why.

    Args:
        verdict: of a run.
        clients: how many take part; None where that is not known.
        measured: by party what an audit measured, in words.
    """
    badge = f'<span class="status {verdict.status}">{text(verdict.opening)}</span>'
    rows = "".join(_row(line, (measured or {}).get(line.party, "")) for line in verdict.lines)
    lines = (
        '<table class="parties"><caption><span>What each party can learn about a client.</span></caption>'
        '<thead><tr><th scope="col">Who looks</th><th scope="col">what is guaranteed</th>'
        f'<th scope="col">what it sees</th><th scope="col">why</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    many = f" {clients} clients take part." if clients else ""
    caveat = f"<p>{sentence(verdict.caveat)}</p>" if verdict.caveat else ""
    help_ = f'<p class="note">{sentence(HELP + many)}</p>'
    return f"<p>{badge} {sentence(verdict.headline)}</p>{lines + caveat + help_ if verdict.lines else ''}"


def _row(line: Line, measured: str) -> str:
    why = [sentence(line.reason or line.terms)] if line.reason or line.terms else []
    if line.state == "guaranteed":
        why += [f"<b>Rests on:</b> {sentence(', '.join(line.rests_on))}"] if line.rests_on else []
        why += [f"<b>Not covered:</b> {sentence(', '.join(line.not_covered))}"] if line.not_covered else []
    found = f"<br>{sentence(measured)}" if measured else ""
    return (
        f'<tr class="{line.grade}"><th scope="row">{text(line.who)}</th><td><span class="mark">{MARKS[line.grade]}'
        f"</span> <b>{sentence(line.guarantee)}</b>{found}</td><td>{sentence(line.sees)}</td>"
        f'<td title="{text(line.detail)}">{"<br>".join(why)}</td></tr>'
    )
