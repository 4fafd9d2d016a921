"""The picture of a round as inline SVG: the parties, the bytes between them, and a lock for each party."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from fedplug_ledger.grades import Grade
from fedplug_ledger.verdict import Line, Verdict
from fedplug_runs import units

_WIDTH, _HEIGHT = 960, 560
_LETTERS = 34
"""Letters of a line of text in a box."""
Lock = Grade | Literal["part"]
"""The lock of a line: its grade, or `part` if a guarantee is not for a client as a whole."""
_WORDS: dict[Lock, str] = {
    "guaranteed": "LOCKED", "weak": "WEAKLY LOCKED", "part": "LOCKED IN PART", "beyond": "HALF OPEN", "none": "OPEN",
    "absent": "NO SUCH PARTY",
}  # fmt: skip
LOCKS: dict[Lock, str] = {
    "guaranteed": "a guarantee holds for each client",
    "weak": "a guarantee holds for each client, but its replace-one epsilon promises nothing useful",
    "part": "a guarantee holds for the named unit, but none for a client as a whole",
    "beyond": "there is an epsilon, but it promises too little",
    "none": "there is no guarantee", "absent": "this protocol has no such party",
}  # fmt: skip
"""The meaning of each lock."""
STYLE = """
.round { display: block; width: 100%; min-width: 46rem; height: auto; font-size: 13px; }
.round text { fill: var(--ink); } .round .soft { fill: var(--muted); }
.round .name { font-weight: 600; font-size: 14px; }
.round rect.box { fill: var(--raised); stroke: var(--line); } .round .ways { stroke: var(--muted); fill: none; }
.round .head { fill: var(--muted); } .round .back { fill: var(--paper); }
.round .guaranteed { --lock: var(--good); } .round .beyond { --lock: var(--warn); } .round .none { --lock: var(--bad); }
.round .part, .round .weak { --lock: var(--warn); }
.round .absent { --lock: var(--muted); } .round .lock { stroke: var(--lock); fill: none; }
.round .body { fill: var(--lock); stroke: var(--lock); } .round .state { fill: var(--lock); font-weight: 700; }
.round .absent rect.box { stroke-dasharray: 4 4; }
.pan { overflow-x: auto; }
"""
"""CSS of the picture. It uses the colours of the page."""
_PLACES: dict[str, tuple[int, int, str]] = {
    "server": (350, 10, "server"), "key_holder": (690, 10, "key server"),
    "client": (10, 372, "another client"), "client_and_server": (350, 372, "client with the server"),
    "released_model": (690, 372, "anybody with the model"),
}  # fmt: skip
_BOX = 260, 178


def draw(verdict: Verdict, ways: Mapping[str, Mapping[str, int]]) -> str:
    """The picture.

    Args:
        verdict: has the lines of the parties.
        ways: bytes of the whole run by zone, for each of `up`, `down` and `key_server`.
    """
    lines = {line.party: line for line in verdict.lines}
    parts = [
        f'<svg class="round" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(words(verdict))}">',
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        'orient="auto-start-reverse"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>',
        _arrow("M270 60H344", True), _arrow("M350 140H276", False),
        _label(310, 212, "up", ways.get("up", {})), _label(310, 284, "down", ways.get("down", {})),
        _whose(),
    ]  # fmt: skip
    if ways.get("key_server"):
        both = 'marker-start="url(#head)" marker-end="url(#head)"'
        parts.append(f'<path class="ways" d="M616 100H684" stroke-width="2" {both}/>')
        parts.append(_label(650, 212, "to and from the key server", ways["key_server"]))
    parts.append('<path class="ways" d="M10 356H950" stroke-dasharray="3 5"/>')
    parts += [_party(party, line) for party, line in lines.items() if party in _PLACES]
    parts.append("</svg>")
    return "".join(parts)


def words(verdict: Verdict) -> str:
    """The picture in words, one sentence for each party."""
    return " ".join(f"{line.who}: {' '.join(_locked(line)).lower()}, {line.guarantee}." for line in verdict.lines)


def lock_of(line: Line) -> Lock:
    """The lock of a line."""
    return "part" if line.state == "guaranteed" and line.unit != "client" else line.grade


def _locked(line: Line) -> list[str]:
    """The words next to a lock, in one or two lines."""
    if lock_of(line) == "part":
        return [f"locked for each {line.unit};", "a client as a whole is open"]
    return [_WORDS[line.grade]]


def _whose() -> str:
    """The client that owns the data."""
    kept = ["holds the data, trains on them,", "cuts its update into zones, and", "protects each before it leaves"]
    return (
        f'<g><rect class="box" x="10" y="10" width="{_BOX[0]}" height="{_BOX[1]}" rx="8"/>'
        f'<text class="name" x="26" y="38">the client that owns the data</text>{_lines(26, 64, kept, "soft")}</g>'
    )


def _party(party: str, line: Line) -> str:
    x, y, name = _PLACES[party]
    width, height = _BOX
    said = textwrap.wrap(line.guarantee, _LETTERS) if line.state == "guaranteed" else []
    why = line.reason or "; ".join(filter(None, [line.terms, ", ".join(line.rests_on)]))
    said += textwrap.wrap(why, _LETTERS)
    state, top = _locked(line), y + 60 + 18 * len(_locked(line))
    room = (y + height - top + 12) // 18
    said = said if len(said) <= room else [*said[: room - 1], said[room - 1][: _LETTERS - 1] + "…"]
    return (
        f'<g class="{lock_of(line)}"><rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
        f'{_lock(x + 24, y + 14, lock_of(line))}<text class="name" x="{x + 60}" y="{y + 30}">{html.escape(name)}</text>'
        f"{_lines(x + 60, y + 50, state, 'state')}{_lines(x + 16, top, said, 'soft')}</g>"
    )


def _lock(x: int, y: int, state: Lock) -> str:
    """A padlock of 26 by 36: shut, shut and hollow, half open, or open; a ring if there is no such party.

    It is hollow where a guarantee is weak, or not for a client as a whole.
    """
    if state == "absent":
        return f'<circle class="lock" cx="{x + 13}" cy="{y + 20}" r="11" stroke-width="2.5" stroke-dasharray="3 4"/>'
    shut = f"M{x + 5} {y + 17}V{y + 11}a8 8 0 0 1 16 0V{y + 17}"
    shackles = {
        "guaranteed": shut,
        "weak": shut,
        "part": shut,
        "beyond": f"M{x + 5} {y + 17}V{y + 7}a8 8 0 0 1 16 0V{y + 11}",
        "none": f"M{x + 5} {y + 17}V{y + 9}a8 8 0 0 0 -16 0V{y + 15}",
    }
    filled = "body" if state == "guaranteed" else "lock"
    return (
        f'<path class="lock" d="{shackles[state]}" stroke-width="3"/>'
        f'<rect class="{filled}" x="{x}" y="{y + 17}" width="26" height="19" rx="3" stroke-width="2.5"/>'
    )


def _arrow(path: str, up: bool) -> str:
    dash = "" if up else ' stroke-dasharray="6 3"'
    return f'<path class="ways" d="{path}" stroke-width="2"{dash} marker-end="url(#head)"/>'


def _label(middle: int, y: int, way: str, zones: Mapping[str, int]) -> str:
    """Bytes by zone below an arrow, the largest first."""
    title = {"up": "from the clients", "down": "to the clients"}.get(way, way)
    most = sorted(zones.items(), key=lambda each: -each[1])[:3]
    texts = [f"{'no zone' if zone == 'other' else zone} {units.size(size)}" for zone, size in most] or ["nothing"]
    head = f'<text x="{middle}" y="{y}" text-anchor="middle">{html.escape(title)}</text>'
    return head + _lines(middle, y + 16, texts, "soft", "middle", 16)


def _lines(x: int, y: int, texts: Sequence[str], kind: str, anchor: str = "start", step: int = 18) -> str:
    return "".join(
        f'<text class="{kind}" x="{x}" y="{y + step * number}" text-anchor="{anchor}">{html.escape(text)}</text>'
        for number, text in enumerate(texts)
    )


def legend(lines: Iterable[Line]) -> str:
    """The meanings of the locks in the picture, in one line."""
    there = {*map(lock_of, lines)}
    return "; ".join(f"{_WORDS[state].lower()}: {meaning}" for state, meaning in LOCKS.items() if state in there) + "."
