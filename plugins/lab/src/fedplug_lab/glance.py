"""The verdict at a glance: a lock for each party, what it reads, and where its epsilon lies on one scale."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedplug_ledger.grades import LARGEST_MEANINGFUL
from fedplug_ledger.tiers import MODERATE, STRICT, Tier
from fedplug_ledger.verdict import Line, Verdict
from fedplug_ledger.verdict_words import number, times

from fedplug_lab.tables import sentence, text

STATES: dict[Tier, str] = {
    "nothing": "locked", "strict": "locked", "moderate": "locked", "loose": "loosely locked", "weak": "weakly locked",
    "part": "locked in part", "beyond": "open", "none": "open", "absent": "no such party",
}  # fmt: skip
LOCKS = {
    "locked": "a guarantee holds for each client",
    "loosely locked": f"a guarantee holds for each client, but an epsilon of it is above {MODERATE:g}",
    "weakly locked": "a guarantee holds for each client, but its replace-one epsilon promises nothing useful",
    "locked in part": "a guarantee holds for the named unit, but none for a client as a whole",
    "open": "there is no guarantee, or an epsilon that promises too little",
    "no such party": "this protocol has no such party",
}  # fmt: skip
"""The meaning of each lock."""
SCALE = (
    f"The bars show epsilon from 0 to {LARGEST_MEANINGFUL:g}: dark for add-or-remove, pale for replace-one, with marks "
    f"at {STRICT:g} (strict) and {MODERATE:g}; a full bar promises nothing. The odds are those of a guess about a "
    "client: by which factor what a party sees may change them."
)
CLIENT = "A client is one participant with all its data, such as a hospital."
_SHUT = "M5 17V11a8 8 0 0 1 16 0V17"
_OPEN = "M5 17V9a8 8 0 0 0 -16 0V15"
_FILLED = ("nothing", "strict", "moderate")


def lock(tier: Tier) -> str:
    """A padlock of 26 by 36: shut, shut and hollow, or open; a ring if there is no such party.

    It is hollow where a guarantee is loose or weak, or not for a client as a whole. An epsilon that promises too little
    shuts nothing, however it compares with others.
    """
    drawn = '<circle class="lock" cx="13" cy="20" r="11" stroke-dasharray="3 4"/>'
    if tier != "absent":
        body = f'<rect class="{"body" if tier in _FILLED else "lock"}" y="17" width="26" height="19" rx="3"/>'
        drawn = f'<path class="lock" d="{_OPEN if STATES[tier] == "open" else _SHUT}"/>{body}'
    return f'<svg viewBox="0 0 26 36" aria-hidden="true">{drawn}</svg>'


def legend(lines: Iterable[Line]) -> str:
    """The meanings of the locks of these lines, in one line."""
    there = {STATES[line.tier] for line in lines}
    return "; ".join(f"{state}: {meaning}" for state, meaning in LOCKS.items() if state in there) + "."


def state_of(line: Line) -> str:
    """What its lock says, in words."""
    return f"locked for each {line.unit} only" if line.tier == "part" else STATES[line.tier]


def glance(verdict: Verdict) -> str:
    """A tile a party, in the order of the lines; nothing where no round was recorded."""
    tiles = "".join(map(_tile, verdict.lines))
    return f'<ul class="glance">{tiles}</ul>' if tiles else ""


def _tile(line: Line) -> str:
    """Its lock, what it may learn, and what it reads."""
    said = f'<span class="said">{sentence(_said(line))}</span>' if line.tier != "absent" else ""
    reads = f'<span class="reads">{sentence(_reads(line))}</span>'
    return (
        f'<li class="{line.tier}">{lock(line.tier)}<span class="who">{text(line.who)}</span> '
        f'<b class="state">{text(state_of(line))}</b> {said}{_scale(line)}{reads}</li>'
    )


def _said(line: Line) -> str:
    """`ε 5.69, odds × 300`, and what is no number."""
    if line.state != "guaranteed":
        return "no guarantee" if line.state == "none" else line.guarantee
    if line.nothing or line.value is None:
        return "learns nothing (ε\u00a00)"
    open_to = "; a client as a whole is open" if line.tier == "part" else ""
    return f"ε {number(line.value)}, odds\u00a0×\u00a0{times(line.value)}{open_to}"


def _reads(line: Line) -> str:
    if line.tier == "absent":
        return line.reason
    return f"reads {line.sees}" if line.sees else line.reason


def _scale(line: Line) -> str:
    """A bar from 0 to the add-or-remove epsilon, and on to the replace-one epsilon."""
    if line.tier == "absent":
        return ""
    own, largest = (line.value, line.largest) if line.state == "guaranteed" else (math.inf, math.inf)
    first, last = _place(math.inf if own is None else own), _place(math.inf if largest is None else largest)
    told = f"{_place(STRICT):.0f}", f"{_place(MODERATE):.0f}"
    marks = "".join(f'<i class="tick" style="left:{place}%"></i>' for place in told)
    return (
        f'<span class="scale" aria-hidden="true"><i class="to" style="width:{last:.1f}%"></i>'
        f'<i class="own" style="width:{first:.1f}%"></i>{marks}</span>'
    )


def _place(epsilon: float) -> float:
    """Percent of the scale, which ends where an epsilon says nothing useful; roots, since small ones differ most."""
    return 100 * math.sqrt(min(epsilon, LARGEST_MEANINGFUL) / LARGEST_MEANINGFUL)
