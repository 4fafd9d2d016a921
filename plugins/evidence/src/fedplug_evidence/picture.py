"""The picture of a round: a box with a lock for each party, and the bytes between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from fedplug_lab.api import sentence, text
from fedplug_ledger.grades import Grade
from fedplug_ledger.verdict import Line, Verdict
from fedplug_runs import units

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
_SHUT = "M5 17V11a8 8 0 0 1 16 0V17"
_SHACKLES: dict[Lock, str] = {
    "guaranteed": _SHUT, "weak": _SHUT, "part": _SHUT,
    "beyond": "M5 17V7a8 8 0 0 1 16 0V11", "none": "M5 17V9a8 8 0 0 0 -16 0V15",
}  # fmt: skip
STYLE = """
.round { display: grid; grid-template-columns: 1fr 8rem 1fr 8rem 1fr; gap: 1rem; min-width: 56rem; font-size: 13px; }
.round p { margin: .15rem 0; } .round .name { font-weight: 600; font-size: 14px; }
.round .party { border: 1px solid var(--line); border-radius: .5rem; background: var(--raised); padding: .8rem 1rem; }
.round .ways { align-self: center; text-align: center; color: var(--muted); }
.round svg { float: left; width: 26px; height: 36px; margin: 0 .8rem .3rem 0; overflow: visible; stroke-width: 2.5; }
.round .guaranteed { --lock: var(--good); } .round .beyond { --lock: var(--warn); } .round .none { --lock: var(--bad); }
.round .part, .round .weak { --lock: var(--warn); }
.round .absent { --lock: var(--muted); border-style: dashed; } .round .lock { stroke: var(--lock); fill: none; }
.round .body { fill: var(--lock); stroke: var(--lock); } .round .state { color: var(--lock); font-weight: 700; }
.round .why { clear: both; color: var(--muted); }
.pan { overflow-x: auto; }
"""
"""CSS of the picture. It uses the colours of the page."""
_PLACES = {
    "server": ("1 / 3", "server"), "key_holder": ("1 / 5", "key server"),
    "client": ("2 / 1", "another client"), "client_and_server": ("2 / 3", "client with the server"),
    "released_model": ("2 / 5", "anybody with the model"),
}  # fmt: skip
"""Row and column of each party, and its name."""


def draw(verdict: Verdict, ways: Mapping[str, Mapping[str, int]]) -> str:
    """The picture.

    Args:
        verdict: has the lines of the parties.
        ways: bytes of the whole run by zone, for each of `up`, `down` and `key_server`.
    """
    owner = "It holds the data, trains on them, cuts its update into zones, and protects each before it leaves."
    parts = [
        _box("1 / 1", "", "the client that owns the data", owner),
        _between("1 / 2", ways, {"up": "→ from the clients", "down": "← to the clients"}),
        *(_party(*_PLACES[line.party], line) for line in verdict.lines if line.party in _PLACES),
    ]
    if ways.get("key_server"):
        parts.append(_between("1 / 4", ways, {"key_server": "↔ to and from the key server"}))
    return f'<div class="round">{"".join(parts)}</div>'


def lock_of(line: Line) -> Lock:
    """The lock of a line."""
    return "part" if line.state == "guaranteed" and line.unit != "client" else line.grade


def _party(place: str, name: str, line: Line) -> str:
    lock = lock_of(line)
    state = _WORDS[lock]
    if lock == "part":
        state = f"locked for each {line.unit}; a client as a whole is open"
    guarantee = [line.guarantee] if line.state == "guaranteed" else []
    why = "; ".join([*guarantee, line.reason or "; ".join(filter(None, [line.terms, ", ".join(line.rests_on)]))])
    return _box(place, lock, name, why, f'{_lock(lock)}<p class="state">{text(state)}</p>')


def _box(place: str, lock: str, name: str, why: str, state: str = "") -> str:
    head = f'<div class="party {lock}" style="grid-area: {place}">'
    return f'{head}<p class="name">{text(name)}</p>{state}<p class="why">{sentence(why)}</p></div>'


def _lock(lock: Lock) -> str:
    """A padlock of 26 by 36: shut, shut and hollow, half open, or open; a ring if there is no such party.

    It is hollow where a guarantee is weak, or not for a client as a whole.
    """
    drawn = '<circle class="lock" cx="13" cy="20" r="11" stroke-dasharray="3 4"/>'
    if lock != "absent":
        filled = "body" if lock == "guaranteed" else "lock"
        body = f'<rect class="{filled}" y="17" width="26" height="19" rx="3"/>'
        drawn = f'<path class="lock" d="{_SHACKLES[lock]}"/>{body}'
    return f'<svg viewBox="0 0 26 36" aria-hidden="true">{drawn}</svg>'


def _between(place: str, ways: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]) -> str:
    """Bytes by zone of each way, the largest first."""
    told = ""
    for way, title in titles.items():
        most = sorted(ways.get(way, {}).items(), key=lambda each: -each[1])[:3]
        sizes = [f"{'no zone' if zone == 'other' else zone} {units.size(size)}" for zone, size in most] or ["nothing"]
        told += f"<p><b>{title}</b><br>{'<br>'.join(map(text, sizes))}</p>"
    return f'<div class="ways" style="grid-area: {place}">{told}</div>'


def legend(lines: Iterable[Line]) -> str:
    """The meanings of the locks in the picture, in one line."""
    there = {*map(lock_of, lines)}
    return "; ".join(f"{_WORDS[state].lower()}: {meaning}" for state, meaning in LOCKS.items() if state in there) + "."
