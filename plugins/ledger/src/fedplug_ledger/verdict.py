"""The verdict of a run: what each party may learn about a client, and on what that rests. Everybody shows this one.

A verdict has a status and five lines, always all of them. A line is a guarantee, or says why there is none. Where
people read it, they read the words that are made here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fedplug.api.operations import Party
from fedplug.api.records import Count, Number, Record, Text

from fedplug_ledger.composing import Cost
from fedplug_ledger.grades import Epsilons, Methods, State, Status
from fedplug_ledger.verdict_words import LineWords, VerdictWords

EXECUTED = "noise that fedplug itself adds"
ENCRYPTION = "as long as the encryption holds"
SERVER = "as long as the server really adds it"
SUMS_ALONE = "as long as this party sees totals only"
NOT_SEEN = "nothing of the updates is sent"
NOT_READ = "trainers were handed no examples"


MOST_WORDS = 12
"""A reason has no more words than that; `detail` has the rest."""


class Line(LineWords, Record):
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
        costs: by adjacency, what composes with other runs; empty where `epsilons` can only be added to theirs.
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
    costs: dict[Text, Cost] = dataclasses.field(default_factory=dict)


class Verdict(VerdictWords, Record):
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

    def toward(self, party: Party) -> Line:
        """The line of this party.

        Raises:
            KeyError: nothing was run.
        """
        return {line.party: line for line in self.lines}[party]
