"""What attacks came to: the records of a target's file, of the summary of all targets, and of a line of a sweep."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from fedplug.api.records import Amount, Count, Number, Record, Text
from pydantic import Field

from fedplug_attacks.api.observation import Meaning
from fedplug_attacks.api.report import FAILED, Status

Whole = Annotated[int, Field(strict=True)]
Numbers = dict[Text, Number]
Guesses = dict[Text, Numbers]
"""By the name of a trivial guess, its numbers."""


class Ranking(Record):
    """The number that ranks the forms of an attack; the name is empty where no number does.

    Attributes:
        metric: its name.
        better: whether `high` or `low` means that the attack learnt more.
    """

    metric: Text
    better: Literal["high", "low"]


class Success(Record):
    """What counts as a success: a number that is at most, or at least, a threshold."""

    metric: Text
    relation: Literal["<=", ">="]
    threshold: Number


class ProbedBatch(Record):
    """Which batch of a probe was attacked.

    Attributes:
        batch_size: examples in it.
        batch: counted from 1.
        classes: from how many classes it was drawn; None: from all.
        rounds: in how many rounds each client was asked about it.
    """

    batch_size: Count
    batch: Count
    classes: Count | None = None
    rounds: Count = 1


class Outcome(Record):
    """What came of one form of an attack on one target.

    Attributes:
        status: `success`, `failed`, `inconclusive` (a search that diverged or did not fit what it saw, or an attack
            that stopped with an error), `not_applicable`; or `finished`, only where nothing decides about success.
        reason: why it has that status, in a sentence; may be empty.
        metrics: what the metrics measured, by number; NaN where a number diverged.
        seconds: of the processor.
        gradient_evaluations, seed, losses: as the attack reports them.
        undefined: by metric, why it is not defined for this target.
        own: numbers of the attack's own.
        counts, labels, presence: what it says of the classes; None where it says nothing.
        recovered: which of the true images were recovered, by their places in the truth.
        remedy: of `not_applicable`, which adversary or option the attack would apply with.
        luck: the share of random guesses that would have been a success.
    """

    status: Status
    reason: Text
    metrics: Numbers
    seconds: Amount
    gradient_evaluations: Whole
    seed: Whole | None
    losses: list[Number]
    own: Numbers
    undefined: dict[Text, Text] = dataclasses.field(default_factory=dict)
    counts: list[Number] | None = None
    labels: list[Whole] | None = None
    presence: list[Number] | None = None
    recovered: list[Count] = dataclasses.field(default_factory=list)
    remedy: Text = ""
    luck: Number = 0.0

    def excuse(self, reason: str) -> None:
        """Names what may explain a failure, where nothing does yet."""
        if self.status == FAILED and not self.reason:
            self.reason = reason


class TrueClasses(Record):
    """What is true of the examples behind an update.

    Attributes:
        counts: how many there are of each class.
        labels: the class of each.
        people: a digest of each, by which the same example is known in other results of that client; empty where the
            question is not about single examples.
        of: what one example is, `image` or `row` of a table.
    """

    counts: list[Count]
    labels: list[Count]
    people: list[Text] = dataclasses.field(default_factory=list)
    of: Text = "image"


class TargetResult(Record):
    """One target, attacked in one or two forms: the content of its file.

    Attributes:
        key: the name of the file, without ending.
        attack, use, options: its name in the recipe, the component, and its options.
        adversary: who attacks.
        round: in which the update was made, from 1.
        client: the target.
        probe: None for an update of the run itself.
        digest: of everything that the result follows from.
        settings: digest of the options, the scope and the metrics alone.
        states: share of the entries that the adversary saw in each state; empty where it saw no update.
        unplaced: how many values it saw without knowing where they belong.
        meaning: what the numbers of the update are; None where it saw no update.
        finds: what the attack looks for.
        ranking: what ranks the forms.
        success: None where no number decides.
        better: by number, whether `high` or `low` means that the attack learnt more.
        baselines: what trivial guesses reach.
        forms: by form.
        headline: the stronger form; None where no form has the number that ranks them.
        truth: what the scorer compared with.
        picture: the name of its file; None where nothing is drawn.
    """

    key: Text
    attack: Text
    use: Text
    options: dict[Text, Any]
    adversary: Text
    round: Count
    client: Count
    probe: ProbedBatch | None
    digest: Text
    settings: Text
    states: Numbers
    unplaced: Count
    meaning: Meaning | None
    finds: list[Text]
    ranking: Ranking
    success: Success | None
    better: dict[Text, Text]
    baselines: Guesses
    forms: dict[Text, Outcome]
    headline: Text | None
    truth: TrueClasses
    picture: Text | None


class Averaged(Record):
    """Mean and standard deviation of a number over targets; NaN where none of them has it."""

    mean: Number
    std: Number


class People(Record):
    """Whose images attacks were after, each example of each client counted once, and whose they recovered.

    Attributes:
        attacked: how many examples some attack on images applied to.
        recovered: of how many an image was recovered.
        by: adversary -> how many it recovered.
        of: what one example is, `image` or `row` of a table.
    """

    attacked: Count = 0
    recovered: Count = 0
    by: dict[Text, Count] = dataclasses.field(default_factory=dict)
    of: Text = "image"


class SummaryRow(Record):
    """What one form of an attack by one adversary came to on all its targets.

    Attributes:
        attack, adversary, form: which.
        round: from 1.
        probe_batch_size: None for updates of the run itself.
        headline: whether it is the stronger form, or the only one.
        targets: how many; of these `succeeded`, `not_applicable` and `inconclusive`.
        wilson: 95% interval of the share of successes among the targets that it applied to.
        success: what counts as a success.
        reasons: sentence -> for how many targets it stands.
        remedies: the same of which adversary or option it would apply with.
        metrics, baselines, states: means over the targets.
        ranking: what ranks the forms.
        unplaced: the most of any target.
        seconds, gradient_evaluations: of all targets.
        finds: what the attack looks for.
        people: whose images it was after, and recovered.
        luck: the share of random guesses that would have been a success.
    """

    attack: Text
    adversary: Text
    form: Text
    round: Count
    probe_batch_size: Count | None
    headline: bool
    targets: Count
    succeeded: Count
    not_applicable: Count
    wilson: tuple[Number, Number]
    success: Success | None
    reasons: dict[Text, Count]
    metrics: dict[Text, Averaged]
    baselines: Guesses
    ranking: Ranking
    states: Numbers
    unplaced: Count
    seconds: Amount
    gradient_evaluations: Whole
    inconclusive: Count = 0
    remedies: dict[Text, Count] = dataclasses.field(default_factory=dict)
    finds: list[Text] = dataclasses.field(default_factory=list)
    people: People = dataclasses.field(default_factory=People)
    luck: Number = 0.0

    @property
    def applicable(self) -> int:
        """How many targets the attack applied to."""
        return self.targets - self.not_applicable

    @property
    def share(self) -> float | None:
        """Successes among the targets that it applied to; None where it applied to none."""
        return self.succeeded / self.applicable if self.applicable > 0 else None


class AttackSummary(Record):
    """All targets together: the content of `summary.json`.

    Attributes:
        rows: one for each attack, adversary and form.
        adversaries: by name, a sentence on what each sees and holds.
        notes: sentences for the report.
        people: whose images all attacks together were after, and recovered.
    """

    rows: list[SummaryRow]
    adversaries: dict[Text, Text]
    notes: list[Text] = dataclasses.field(default_factory=list)
    people: People = dataclasses.field(default_factory=People)


class FormMeans(Record):
    """Of one form, in the line of a sweep: means over the targets, how many there were, and the share of successes.

    `people` is of how many examples an image was sought, and `recovered` of how many one was recovered; `states` says
    how much of the update the adversary sees in each state.
    """

    metrics: Numbers
    targets: Count
    applicable: Count
    succeeded: Number | None
    seconds: Amount
    people: Count = 0
    recovered: Count = 0
    states: Numbers = dataclasses.field(default_factory=dict)


class Leakage(Record):
    """Of one attack by one adversary, in the line of a sweep.

    Attributes:
        ranking: what ranks its forms.
        stronger: the form that took more.
        guesses: what trivial guesses reach.
        forms: by form.
        adversary: who attacks, as the recipe writes it; empty in lines of earlier versions.
    """

    ranking: Ranking
    stronger: Text
    guesses: Guesses
    forms: dict[Text, FormMeans]
    adversary: Text = ""
