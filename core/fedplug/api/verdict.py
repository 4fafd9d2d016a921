"""The verdict of a run: what each party may learn about a client, and on what that rests. Everybody shows this one.

A verdict has a status and five lines, always all of them. A line is a guarantee, or says why there is none. Where
people read it, they read the words that are made here.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from fedplug.api.operations import Party
from fedplug.api.records import Count, Number, Record, Text

Methods = dict[Text, Number]
"""By method of accounting, what it states; the first is the one to quote."""


def quoted(stated: Methods) -> float:
    """The one to quote."""
    return next(iter(stated.values()))


class Epsilons(Record):
    """Epsilon of the worst client under both adjacencies, by method."""

    zero_out: Methods
    replace_one: Methods

    @property
    def epsilon(self) -> float:
        """Add-or-remove, by the first method."""
        return quoted(self.zero_out)


class Priced:
    """What has an epsilon, or none.

    Attributes:
        epsilons: None where there is no guarantee.
    """

    epsilons: Epsilons | None

    @property
    def epsilon(self) -> float | None:
        """Add-or-remove, by the first method; None where there is no guarantee."""
        return None if self.epsilons is None else self.epsilons.epsilon


PARTIES: dict[Party, str] = {
    "server": "the server",
    "key_holder": "the key server",
    "client": "another client",
    "client_and_server": "a client together with the server",
    "released_model": "anybody who gets the model",
}
"""Who looks, in the order of the lines."""

Status = Literal[
    "protected_from_all", "weakly_protected_from_all", "protected_from_some", "weakly_protected_from_some",
    "no_meaningful_guarantee", "no_protection", "nothing_run",
]  # fmt: skip
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

State = Literal["guaranteed", "beyond", "none", "absent"]
Grade = State | Literal["weak"]
BRIEF: dict[str, str] = {
    "server": "server", "key_holder": "key server", "client": "client",
    "client_and_server": "client + server", "released_model": "model",
}  # fmt: skip
"""The parties in the words of a narrow column."""
MARKS: dict[Grade, str] = {"guaranteed": "✓", "weak": "~", "beyond": "!", "none": "✗", "absent": "○"}
"""A sign for each grade of a line, from the best to the worst; the words of the line say the same."""

EXECUTED = "noise that fedplug itself adds"
ENCRYPTION = "as long as the encryption holds"
SERVER = "as long as the server really adds it"
SUMS_ALONE = "as long as this party sees totals only"
NOT_SEEN = "nothing of the updates is sent"
NOT_READ = "trainers were handed no examples"

LARGEST_MEANINGFUL = 20.0
"""Epsilon above which no line is a guarantee; a guarantee whose replace-one epsilon is above it is weak.

The odds of a right guess about a client may then change by a factor of e^20 = 5e8: who guessed one client in a million
knows. No theorem: see docs/edges/differential-privacy.md."""

MOST_WORDS = 12
"""A reason has no more words than that; `detail` has the rest."""


class Line(Priced, Record):
    """What one party may learn about a client.

    Attributes:
        party: in the word of the ledger.
        state: `guaranteed`, `beyond` (an epsilon is stated that promises too little), `none` (there is no guarantee),
            or `absent` (there is no such party).
        reason: why there is no guarantee, or no such party, in at most twelve words; empty where there is one.
        detail: the same, or on what the guarantee rests, in a whole sentence.
        unit: whose data the guarantee is about: `client`, or a level of which a component keeps account.
        adjacency: of another unit than the client, what neighbouring data are; empty for a client.
        epsilons: None where nothing is stated, and of another unit: see `stated`.
        stated: epsilon of another unit, by method; empty for a client.
        delta: the probability with which it may fail.
        sees: what this party gets to see, whatever the guarantee.
        rests_on: what must hold for it to hold.
        not_covered: what this party sees besides that follows from clients' data.
        nominal: what the noise would give if it did not follow from the recipe's seed.
        colluders: how many clients put their heads together; None where the party has no client.
        nothing: nothing of the updates was released to it, so that there is nothing to price.
    """

    party: Text
    state: State
    reason: Text
    detail: Text
    delta: Number
    sees: Text
    epsilons: Epsilons | None = None
    unit: Text = "client"
    adjacency: Text = ""
    stated: Methods = dataclasses.field(default_factory=dict)
    rests_on: list[Text] = dataclasses.field(default_factory=list)
    not_covered: list[Text] = dataclasses.field(default_factory=list)
    nominal: Epsilons | None = None
    colluders: Count | None = None
    nothing: bool = False

    @property
    def who(self) -> str:
        """The party in words: `the server`, `5 clients together with the server`."""
        who = next((who for party, who in PARTIES.items() if party == self.party), self.party)
        several = f"{self.colluders} clients together"
        return re.sub("^(another client$|a client together)", several, who) if (self.colluders or 1) > 1 else who

    @property
    def value(self) -> float | None:
        """The epsilon to quote, of the line's unit; None where nothing is stated."""
        return quoted(self.stated) if self.stated else self.epsilon

    @property
    def weak(self) -> bool:
        """Whether the guarantee promises nothing useful under replace-one: its epsilon there is above 20."""
        if self.state != "guaranteed" or self.epsilons is None or self.stated:
            return False
        return quoted(self.epsilons.replace_one) > LARGEST_MEANINGFUL

    @property
    def grade(self) -> Grade:
        """The state, or `weak`: by this a line is shown and compared."""
        return "weak" if self.weak else self.state

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


class Verdict(Record):
    """What privacy a run gave.

    Attributes:
        status: see `STATUSES`.
        lines: one a party, in the order of `PARTIES`; none where nothing was run.
        not_judged: coalitions that have no line but can open uploads, each in a clause.
    """

    status: Status
    lines: list[Line] = dataclasses.field(default_factory=list)
    not_judged: list[Text] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, lines: list[Line], not_judged: Iterable[str] = ()) -> Verdict:
        """The verdict of these lines: a party without a guarantee never makes it better."""
        there = {line.grade for line in lines if line.state != "absent"}
        if not there:
            return cls("nothing_run")
        status: Status = "no_meaningful_guarantee" if "beyond" in there else "no_protection"
        if there <= {"guaranteed", "weak"}:
            status = "weakly_protected_from_all" if "weak" in there else "protected_from_all"
        elif "guaranteed" in there:
            status = "protected_from_some"
        elif "weak" in there:
            status = "weakly_protected_from_some"
        return cls(status, lines, [*not_judged])

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
    def caveat(self) -> str:
        """The coalitions that no line judges, in a sentence; empty where there are none."""
        return f"Not judged: {'; '.join(self.not_judged)}." if self.not_judged else ""

    def _by_unit(self) -> dict[tuple[str, bool], list[Line]]:
        """The lines with a guarantee, by its unit and whether it is weak."""
        found: dict[tuple[str, bool], list[Line]] = {}
        for line in self.lines:
            if line.state == "guaranteed":
                found.setdefault((line.unit, line.weak), []).append(line)
        return found

    def toward(self, party: Party) -> Line:
        """The line of this party.

        Raises:
            KeyError: nothing was run.
        """
        return {line.party: line for line in self.lines}[party]

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
            text.append(f"  {MARKS[line.grade]} {line.who:<{width}}  {said}")
            below = [(measured or {}).get(line.party, ""), f"sees {line.sees}" if line.sees else "", line.limits]
            text += [f"    {'':<{width}}  {more}" for more in below if more]
        return [*text, f"  {self.caveat}"] if self.caveat else text

    def __str__(self) -> str:
        """All of it in one paragraph."""
        said = [f"{str(line)[0].upper()}{str(line)[1:]}." for line in self.lines]
        return " ".join([f"{self.opening}.", *said, *filter(None, [self.caveat])])


def _then(line: Line) -> str:
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
