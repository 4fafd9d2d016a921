"""The results of attacks: the records of a target's file, of the summary of all targets, and of a line of a sweep."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any, Literal

from fedplug.api.records import Amount, Count, Number, Record, Text
from pydantic import Field

from fedplug_attacks import Meaning
from fedplug_attacks.api.report import Status

Whole = Annotated[int, Field(strict=True)]
Numbers = dict[Text, Number]
Guesses = dict[Text, Numbers]
"""The numbers of trivial guesses, by name."""


class Ranking(Record):
    """The number that ranks the forms of an attack; the name is empty if no number does.

    Attributes:
        metric: its name.
        better: whether `high` or `low` means that the attack learnt more.
    """

    metric: Text
    better: Literal["high", "low"]


class Success(Record):
    """The criterion of success: a number that is at most, or at least, a threshold."""

    metric: Text
    relation: Literal["<=", ">="]
    threshold: Number


class ProbedBatch(Record):
    """Which batch of a probe was attacked.

    Attributes:
        batch_size: examples in it.
        batch: counted from 1.
        classes: the number of classes it was drawn from; None: all.
        rounds: the number of rounds in which each client was asked about it.
    """

    batch_size: Count
    batch: Count
    classes: Count | None = None
    rounds: Count = 1


class Evidence(Record):
    """What one target says about a measure of an attack.

    Attributes:
        metric: the measure.
        value: the attack's number.
        guess: the expected number of a guess that looks at nothing.
        std, skew: standard deviation of that guess, and skewness of its distribution.
        shared: standard deviation of the part of it that all targets have in common.
    """

    metric: Text
    value: Number
    guess: Number
    std: Number
    skew: Number = 0.0
    shared: Number = 0.0


class Judged(Record):
    """The outcome of an attack on all its targets together.

    Attributes:
        state: `success`, `failed`, `inconclusive` or `not_applicable`.
        metric: the measure that decides; empty if recovered examples do, or nothing is known of guesses.
        value, low, high: its mean over the targets, and its interval.
        guess: what a guess that looks at nothing has of it.
        confidence: of the intervals of all looks together.
        looks: number of these.
    """

    state: Status
    metric: Text = ""
    value: Number = math.nan
    low: Number = math.nan
    high: Number = math.nan
    guess: Number = math.nan
    confidence: Number = 0.95
    looks: Count = 1


class Outcome(Record):
    """The outcome of one form of an attack on one target.

    Attributes:
        status: `success`, `failed`, `inconclusive` (a search that diverged or did not fit what it saw, or an attack
            that stopped with an error), `not_applicable`; or `finished`, only if no number decides about success.
        reason: why it has that status, in a sentence; may be empty.
        metrics: the metrics' numbers, by name; NaN if a number diverged.
        seconds: processor time.
        gradient_evaluations, seed, losses: as the attack reports them.
        undefined: by metric, why it is not defined for this target.
        own: the attack's own numbers.
        counts, labels, presence: its findings about the classes; None without any.
        recovered: the recovered true images, by their places in the truth.
        remedy: for `not_applicable`, the adversary or option with which the attack would apply.
        evidence: for each measure that decides, how it compares with guesses.
        roc: of members' scores, false and true positive rates, the highest score first; empty without a challenge.
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
    evidence: list[Evidence] = dataclasses.field(default_factory=list)
    roc: list[tuple[Number, Number]] = dataclasses.field(default_factory=list)


class TrueClasses(Record):
    """The truth about the examples behind an update.

    Attributes:
        counts: how many there are of each class.
        labels: the class of each.
        people: a digest of each, which identifies the same example in other results of that client; empty if the
            question is not about single examples.
        of: the kind of an example, `image` or `row` of a table.
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
        adversary: the adversary.
        round: in which the update was made, from 1.
        client: the target.
        probe: None for an update of the run itself.
        digest: of everything that the result follows from.
        settings: digest of the options, the scope and the metrics alone.
        states: share of the entries that the adversary saw in each state; empty where it saw no update.
        unplaced: number of values seen without known positions.
        meaning: the meaning of the update's numbers; None if it saw no update.
        finds: the information that the attack looks for.
        ranking: the number that ranks the forms.
        success: the criterion of success; None if no number decides.
        better: by number, whether `high` or `low` means that the attack learnt more.
        baselines: the numbers of trivial guesses.
        forms: by form.
        headline: the stronger form; None if no form has the number that ranks them.
        truth: the truth that the scorer compared with.
        picture: the name of the file with its images; None if no images are drawn.
        same_as: the adversary that saw the same, so that its result holds here too; empty if the attack was made.
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
    same_as: Text = ""


class Averaged(Record):
    """Mean and standard deviation of a number over targets; NaN if none of them has it."""

    mean: Number
    std: Number


class People(Record):
    """The examples whose images attacks looked for and recovered, each example of each client counted once.

    Attributes:
        attacked: number of examples to which some attack on images applied.
        recovered: number of examples with a recovered image.
        by: adversary -> number that it recovered.
        of: the kind of an example, `image` or `row` of a table.
    """

    attacked: Count = 0
    recovered: Count = 0
    by: dict[Text, Count] = dataclasses.field(default_factory=dict)
    of: Text = "image"


class SummaryRow(Record):
    """The results of one form of an attack by one adversary on all its targets.

    Attributes:
        attack, adversary, form: which.
        round: from 1.
        probe_batch_size: None for updates of the run itself.
        headline: whether it is the stronger form, or the only one.
        targets: their number; of these `succeeded`, `not_applicable` and `inconclusive`.
        wilson: 95% interval of the share of successes among the targets that it applied to.
        success: the criterion of success.
        reasons: sentence -> number of targets that it applies to.
        remedies: the same for the adversary or option with which it would apply.
        metrics, baselines, states: means over the targets.
        ranking: the number that ranks the forms.
        unplaced: the largest number of any target.
        seconds, gradient_evaluations: of all targets.
        finds: the information that the attack looks for.
        people: the examples whose images it looked for, and recovered.
        judged: the outcome of all targets together; None in summaries of earlier versions.
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
    judged: Judged | None = None

    @property
    def applicable(self) -> int:
        """Number of targets that the attack applied to."""
        return self.targets - self.not_applicable

    @property
    def share(self) -> float | None:
        """Successes among the targets that it applied to; None if it applied to none."""
        return self.succeeded / self.applicable if self.applicable > 0 else None


class AttackSummary(Record):
    """All targets together: the content of `summary.json`.

    Attributes:
        rows: one for each attack, adversary and form.
        adversaries: by name, a sentence on the messages and keys of each.
        people: the examples whose images all attacks together looked for, and recovered.
        unseen: what was sent in the run and is not attacked, a sentence each.
        left: what there was no time for: the key of a target, and what it is.
    """

    rows: list[SummaryRow]
    adversaries: dict[Text, Text]
    people: People = dataclasses.field(default_factory=People)
    unseen: list[Text] = dataclasses.field(default_factory=list)
    left: dict[Text, Text] = dataclasses.field(default_factory=dict)


class FormMeans(Record):
    """One form in the line of a sweep: means over the targets, their number, and the share of successes.

    `people` is the number of examples whose image was sought, and `recovered` the number recovered. `states` is the
    share of the update that the adversary sees in each state. `state` is the outcome of all targets together, empty in
    lines of earlier versions.
    """

    metrics: Numbers
    targets: Count
    applicable: Count
    succeeded: Number | None
    seconds: Amount
    people: Count = 0
    recovered: Count = 0
    states: Numbers = dataclasses.field(default_factory=dict)
    state: Text = ""


class Leakage(Record):
    """One attack by one adversary in the line of a sweep.

    Attributes:
        ranking: the number that ranks its forms.
        stronger: the stronger form.
        guesses: the numbers of trivial guesses.
        forms: by form.
        adversary: the adversary, as in the recipe; empty in lines of earlier versions.
    """

    ranking: Ranking
    stronger: Text
    guesses: Guesses
    forms: dict[Text, FormMeans]
    adversary: Text = ""
