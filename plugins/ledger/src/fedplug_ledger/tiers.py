"""How much a guarantee limits, on a scale for those who show it in colours and signs. It decides nothing.

The scale has no step where the ledger's has one: a replace-one epsilon of 19.12 is next to one of 20.36. A line is
placed by the larger of its epsilons. The ends of the tiers are those of Ponomareva et al., "How to DP-fy ML" (JAIR
2023), section 5.2: up to 1, up to 10, and more.
"""

from __future__ import annotations

from typing import Literal

from fedplug.api.records import Text

from fedplug_ledger.grades import LARGEST_MEANINGFUL, Grade, Graded, quoted

Tier = Literal["nothing", "strict", "moderate", "loose", "weak", "part", "beyond", "none", "absent"]
STRICT, MODERATE = 1.0, 10.0
"""The largest epsilon of the tiers of that name."""
TIERS: dict[Tier, str] = {
    "nothing": "learns nothing of the updates",
    "strict": f"strict: no epsilon above {STRICT:g}",
    "moderate": f"moderate: no epsilon above {MODERATE:g}",
    "loose": f"loose: an epsilon between {MODERATE:g} and {LARGEST_MEANINGFUL:g}",
    "weak": f"weak: a replace-one epsilon above {LARGEST_MEANINGFUL:g}, which promises nothing useful",
    "part": "in part: for the named unit alone, and nothing for a client as a whole",
    "beyond": "an epsilon is stated, but it promises too little",
    "none": "no guarantee",
    "absent": "no such party",
}
"""The tiers of a line in words, from the best to the worst for a client; `absent` is no promise."""
FROM_BEST: tuple[Tier, ...] = ("absent", *(tier for tier in TIERS if tier != "absent"))
MARKS: dict[Tier, str] = {
    "nothing": "✓", "strict": "✓", "moderate": "✓", "loose": "~", "weak": "~", "part": "◐", "beyond": "!", "none": "✗",
    "absent": "○",
}  # fmt: skip
"""A sign for each tier; the words of the line say the same."""


class Tiered(Graded):
    """What has a place on the scale. See `fedplug_ledger.verdict.Line` for the fields."""

    unit: Text
    nothing: bool

    @property
    def largest(self) -> float | None:
        """The larger of its epsilons, which is that of replace-one; None where none is stated."""
        if self.epsilons is None or self.stated:
            return self.value
        return max(quoted(self.epsilons.zero_out), quoted(self.epsilons.replace_one))

    @property
    def tier(self) -> Tier:
        """Its place on the scale: never above its grade, and `part` where a client as a whole has no guarantee."""
        grade: Grade = self.grade
        if grade != "guaranteed":
            return grade
        if self.unit != "client":
            return "part"
        if self.nothing:
            return "nothing"
        if self.largest is None:
            return "loose"
        return "strict" if self.largest <= STRICT else "moderate" if self.largest <= MODERATE else "loose"

    @property
    def mark(self) -> str:
        """The sign of its tier."""
        return MARKS[self.tier]
