"""The picture of a round: a box with a lock for each party, and the bytes between them."""

from __future__ import annotations

from collections.abc import Mapping

from fedplug_lab.api import lock, sentence, state_of, text
from fedplug_ledger.verdict import Line, Verdict
from fedplug_runs import units

STYLE = """
.round { display: grid; grid-template-columns: 1fr 8rem 1fr 8rem 1fr; gap: 1rem; min-width: 56rem; font-size: 13px; }
.round p { margin: .15rem 0; } .round .name { font-weight: 600; font-size: 14px; }
.round .party { border: 1px solid var(--line); border-radius: .5rem; background: var(--raised); padding: .8rem 1rem; }
.round .ways { align-self: center; text-align: center; color: var(--muted); }
.round svg { float: left; margin: 0 .8rem .3rem 0; }
.round .absent { border-style: dashed; } .round .state { color: var(--tier); font-weight: 700; }
.round .why { clear: both; color: var(--muted); }
.pan { overflow-x: auto; }
@media screen and (max-width: 47rem) {
  .round { display: block; min-width: 0; } .round > div { margin-bottom: .6rem; }
}
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


def _party(place: str, name: str, line: Line) -> str:
    why = line.guarantee if line.state == "guaranteed" else line.reason if line.state == "absent" else ""
    state = f'{lock(line.tier)}<p class="state">{text(state_of(line).upper())}</p>'
    return _box(place, line.tier, name, why, state)


def _box(place: str, tier: str, name: str, why: str, state: str = "") -> str:
    told = f'<p class="why">{sentence(why)}</p>' if why else ""
    head = f'<div class="party {tier}" style="grid-area: {place}">'
    return f'{head}<p class="name">{text(name)}</p>{state}{told}</div>'


def _between(place: str, ways: Mapping[str, Mapping[str, int]], titles: Mapping[str, str]) -> str:
    """Bytes by zone of each way, the largest first."""
    told = ""
    for way, title in titles.items():
        most = sorted(ways.get(way, {}).items(), key=lambda each: -each[1])[:3]
        sizes = [f"{'no zone' if zone == 'other' else zone} {units.size(size)}" for zone, size in most] or ["nothing"]
        told += f"<p><b>{title}</b><br>{'<br>'.join(map(text, sizes))}</p>"
    return f'<div class="ways" style="grid-area: {place}">{told}</div>'
