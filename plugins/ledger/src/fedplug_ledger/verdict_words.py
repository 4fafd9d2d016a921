"""The words of a verdict: what people read of each line, of its status, and of both together. They decide nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from fedplug.api.records import Count, Number, Text

from fedplug_ledger.grades import PARTIES, Status, quoted
from fedplug_ledger.tiers import FROM_BEST, Tier, Tiered

STATUSES: dict[Status, str] = {
    "protected_from_all": "Protected from everybody named",
    "weakly_protected_from_all": "Weakly protected from everybody named",
    "protected_from_some": "Protected from some, not from everybody",
    "weakly_protected_from_some": "Weakly protected from some, not from everybody",
    "no_meaningful_guarantee": "No meaningful guarantee",
    "no_protection": "No protection by any guarantee",
    "nothing_run": "Nothing to judge",
}
"""The status in words, from the best to the worst. `protected_from_all`: every party that there is has a guarantee,
and none of these is weak. `weakly_protected_from_all`: every party has one, and one or more are weak.
`protected_from_some`: one or more have a guarantee that is not weak. `weakly_protected_from_some`: one or more have
one, and all of these are weak. `no_meaningful_guarantee`: none has, but for some an epsilon is stated that promises too
little. `no_protection`: nothing is stated for anybody. `nothing_run`: no round was recorded."""
BRIEF: dict[str, str] = {
    "server": "server", "key_holder": "key server", "client": "client",
    "client_and_server": "client + server", "released_model": "model",
}  # fmt: skip
"""The parties in the words of a narrow column."""


class LineWords(Tiered):
    """What is read of a line. See `fedplug_ledger.verdict.Line` for the fields."""

    party: Text
    reason: Text
    delta: Number
    sees: Text
    unit: Text
    adjacency: Text
    rests_on: list[Text]
    not_covered: list[Text]
    colluders: Count | None
    nothing: bool

    @property
    def who(self) -> str:
        """The party in words: `the server`, `5 clients together with the server`."""
        who = next((who for party, who in PARTIES.items() if party == self.party), self.party)
        several = f"{self.colluders} clients together"
        return re.sub("^(another client$|a client together)", several, who) if (self.colluders or 1) > 1 else who

    @property
    def guarantee(self) -> str:
        """The line's first words: `epsilon 5.69 for each client`, `weak guarantee: epsilon 8.81 for each client`,
        `no guarantee`, `no such party`.
        """
        if self.state == "absent":
            return "no such party"
        if self.state != "guaranteed" or self.value is None:
            return "no guarantee"
        if self.nothing:
            return "learns nothing of the updates (epsilon 0)"
        return f"{'weak guarantee: ' if self.weak else ''}epsilon {number(self.value)} for each {self.unit}"

    @property
    def terms(self) -> str:
        """What belongs to the epsilon: delta and both adjacencies; empty where nothing is guaranteed."""
        if self.state != "guaranteed" or self.nothing or self.value is None:
            return ""
        odds = f"the odds of a guess change by a factor of at most {times(self.value)}; delta {self.delta:g}"
        if self.epsilons is None or self.stated:
            return f"{odds}, {self.adjacency}" if self.adjacency else odds
        replaced = quoted(self.epsilons.replace_one)
        useless = ", which promises nothing useful" if self.weak else ""
        return f"{odds}, add-or-remove one client; replace-one: epsilon {number(replaced)}{useless}"

    @property
    def rest(self) -> str:
        """What follows the guarantee: why there is none; else its terms, what it rests on, what it does not cover."""
        return self.reason if self.state != "guaranteed" else "; ".join(filter(None, [self.terms, self.limits]))

    @property
    def limits(self) -> str:
        """The assumptions of a guarantee, and what it does not cover; empty where there is none."""
        if self.state != "guaranteed":
            return ""
        seen = f"; not covered: {', '.join(self.not_covered)}" if self.not_covered else ""
        return f"rests on: {', '.join(self.rests_on)}{seen}"

    def __str__(self) -> str:
        """`the server: no guarantee: reads the clear zone of every upload without noise`."""
        return f"{self.who}: {self.guarantee}{_then(self)}"


class VerdictWords:
    """What is read of a verdict. See `fedplug_ledger.verdict.Verdict` for the fields."""

    status: Status
    lines: Sequence[LineWords]
    not_judged: list[Text]

    @property
    def opening(self) -> str:
        """The status in words, with the unit where a guarantee is not one for clients."""
        units = list(dict.fromkeys(unit for unit, _ in self._by_unit()))
        whose = f", for each {' or '.join(units)}" if {*units} - {"client"} else ""
        return f"{STATUSES[self.status]}{whose}"

    @property
    def headline(self) -> str:
        """One plain sentence: from whom a client is protected, and from whom not."""
        if self.status == "nothing_run":
            return "No round was recorded, so nothing was released."
        open_to = [line.who for line in self.lines if line.state in ("beyond", "none")]
        safe = []
        for (unit, weak), lines in self._by_unit().items():
            priced = [line.value or 0.0 for line in lines if not line.nothing]
            what = f", with epsilon {number(max(priced))} at most" if priced else ""
            # Where nothing can be read it need not be said, if others read something.
            nothing = ": nothing of the updates can be read" if not priced and not open_to else ""
            how = "weakly protected" if weak else "protected"
            safe.append(f"each {unit}'s data are {how} from {named(line.who for line in lines)}{what}{nothing}")
        if safe:
            rest = f", but not from {named(open_to, 'or')}" if open_to else ""
            said = f"{'; '.join(safe)}{rest}."
            return said[0].upper() + said[1:]
        useful = "useful" if self.status == "no_meaningful_guarantee" else "guaranteed"
        return f"There is no {useful} limit on what {named(open_to, 'or')} can learn about a client."

    @property
    def tier(self) -> Tier | Literal["some"]:
        """The worst tier of its lines where each party that there is has a guarantee, and never above its status.

        `some` where some have one, and `none` where nobody has; `absent` where nothing was run.
        """
        if self.status in ("nothing_run", "no_meaningful_guarantee", "no_protection"):
            return "absent" if self.status == "nothing_run" else "none"
        there = [line for line in self.lines if line.state != "absent"]
        if not self.status.endswith("_all") or not all(line.state == "guaranteed" for line in there):
            return "some"
        least: list[Tier] = ["weak"] if self.status.startswith("weakly") else []
        return max([*least, *(line.tier for line in there)], key=FROM_BEST.index)

    @property
    def caveat(self) -> str:
        """The coalitions that no line judges, in a sentence; empty where there are none."""
        return f"Not judged: {'; '.join(self.not_judged)}." if self.not_judged else ""

    def _by_unit(self) -> dict[tuple[str, bool], list[LineWords]]:
        """The lines with a guarantee, by its unit and whether it is weak."""
        found: dict[tuple[str, bool], list[LineWords]] = {}
        for line in self.lines:
            if line.state == "guaranteed":
                found.setdefault((line.unit, line.weak), []).append(line)
        return found

    def text(self, measured: Mapping[str, str] | None = None) -> list[str]:
        """The verdict for a terminal: the status, and a line a party, with its sign; below it what it rests on.

        The coalitions that no line judges come last.

        Args:
            measured: by party what an audit measured, in words.
        """
        width, text = max((len(line.who) for line in self.lines), default=0), [f"{self.opening}. {self.headline}"]
        for line in self.lines:
            first = line.terms or line.reason
            said = f"{line.guarantee}{(': ' if line.reason else '; ') if first else ''}{first}"
            text.append(f"  {line.mark} {line.who:<{width}}  {said}")
            below = [(measured or {}).get(line.party, ""), f"sees {line.sees}" if line.sees else "", line.limits]
            text += [f"    {'':<{width}}  {more}" for more in below if more]
        return [*text, f"  {self.caveat}"] if self.caveat else text

    def __str__(self) -> str:
        """All of it in one paragraph."""
        said = [f"{str(line)[0].upper()}{str(line)[1:]}." for line in self.lines]
        return " ".join([f"{self.opening}.", *said, *filter(None, [self.caveat])])


def _then(line: LineWords) -> str:
    return f"{': ' if line.state != 'guaranteed' else '; '}{line.rest}" if line.rest else ""


def named(who: Iterable[str], last: str = "and") -> str:
    """`a, b and c`."""
    *most, end = who
    return f"{', '.join(most)} {last} {end}" if most else end


def times(epsilon: float) -> str:
    """The factor by which odds may change, rounded up: `2.8`, `300`, `97,000`."""
    factor = math.exp(min(epsilon, 700.0))
    digit = 10.0 ** (math.floor(math.log10(factor)) - 1)
    rounded = math.ceil(round(factor / digit, 6)) * digit
    return f"{rounded:.1f}" if rounded < 10 else f"{rounded:,.0f}"


def number(epsilon: float) -> str:
    """An epsilon as people read it."""
    if math.isinf(epsilon):
        return "∞"
    if epsilon == 0:
        return "0"
    return f"{epsilon:.2f}" if 0.005 <= epsilon < 10_000 else f"{epsilon:.2e}"
