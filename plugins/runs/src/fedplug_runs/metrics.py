"""The numbers of a run: one row a round, from what clients report with their replies and what crossed the wire.

Accuracy after a round is counted by the clients and arrives with their next message, so a row waits until then.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from fedplug.api.data import ACCURACY, Figure
from fedplug.api.errors import cause_of
from fedplug.api.events import (
    Events,
    ModelDelivered,
    Negotiated,
    ReplyArrived,
    RoundClosed,
    SetUpDone,
    SumWithheld,
    Uploaded,
)
from fedplug.api.parties import Server
from fedplug.api.records import Record
from fedplug.api.reports import Reports
from fedplug.api.roles import ModelSource, Task
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.uploads import BUFFERS
from fedplug.wire.post_office import PostOffice, alike, listed
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.spent import level_epsilons, priced_part, unprotected, view_epsilons
from fedplug_ledger.wording import PLAIN_VALUES

from fedplug_runs.by_class import AUC, BALANCED, OWN_MODELS, ByClass, Guess, figures_by_class, is_by_class, recalls_of
from fedplug_runs.compared import Compared
from fedplug_runs.drawn import drawn
from fedplug_runs.evaluation import Evaluated
from fedplug_runs.events import PicturesMade, RowComplete, RowMade, RowsRestored
from fedplug_runs.rows import Attendance, GroupResult, Row, Unopened
from fedplug_runs.wire_record import Wire


def judges_of(recipe: Recipe, composition: Composition) -> list[Task | ModelSource]:
    """Who says by which figures a recipe's models are judged: its task, if it names one, and its model."""
    task = [composition.part(recipe.task.name, Task)] if recipe.task else []
    return [*task, composition.part(recipe.model.name, ModelSource)]


@runtime_checkable
class Judged(Protocol):
    """A section of a recipe that adds figures to those of the task.

    Attributes:
        key: of the recipe.
        judged_by: each figure that `figures` gives, with which way is better and its unit.
    """

    key: str
    judged_by: tuple[Figure, ...]

    def figures(self, counts: Mapping[str, float], log: Mapping[str, float]) -> Mapping[str, float]:
        """Figures of a round, by name: of what clients have counted under names that begin with its key and a full
        stop, summed over them, and of what parties have logged.
        """


def figures_of(recipe: Recipe, composition: Composition) -> list[Figure]:
    """What they are judged by, the leading figure first: accuracy, where the recipe names no task.

    Where a class turns out to be rare, balanced accuracy leads in the place of accuracy.
    """
    said = [figure for judge in judges_of(recipe, composition) for figure in judge.judged_by]
    said = said if recipe.task else [ACCURACY, *said]
    if is_by_class(composition.part(recipe.task.name, Task) if recipe.task else None):
        known = {figure.name for figure in said}
        said += [figure for figure in (BALANCED, AUC) if figure.name not in known]
    return said + [figure for section in judged(recipe) for figure in section.judged_by]


def judged(recipe: Recipe) -> list[Judged]:
    """The sections that add figures."""
    return [section for section in recipe.sections.values() if isinstance(section, Judged)]


MOST_RECALLS = 100
"""A row has the recall of each class where there are at most this many."""
_Report = TypeVar("_Report", bound=Record)


class Metrics:
    """Collects the rows of `metrics.jsonl`, and announces them among the events.

    `guess` is what is known of the common test set; by default nothing.

    Attributes:
        rows: the complete rows.
        awaiting: the row of the last round, until its figures are known.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, office: PostOffice, wire: Wire, ledger: Ledger,
        server: Server, events: Events, guess: Guess | None = None,
    ) -> None:  # fmt: skip
        self.guess = guess or Guess()
        self.recipe, self.office, self.wire, self.ledger, self.events = recipe, office, wire, ledger, events
        self.judges, self.leads = judges_of(recipe, composition), self.guess.leads or figures_of(recipe, composition)[0]
        self._sections = judged(recipe)
        self.has_accuracy = ACCURACY.name in [figure.name for figure in figures_of(recipe, composition)]
        self.rows: list[Row] = []
        self.awaiting: Row | None = None
        self.server = server
        self._reports: list[tuple[int, Reports]] = []
        self._evaluated: dict[int, Evaluated] = {}
        self._looked: list[Compared] = []
        self._noted: set[int] = set()  # drop-outs of this round that a note has named
        events.subscribe(SetUpDone, lambda event: self.forget())
        events.subscribe(ReplyArrived, self._hear)
        events.subscribe(Negotiated, self._after_negotiation)
        events.subscribe(Uploaded, lambda event: self.complete(event.groups))
        events.subscribe(RoundClosed, self._close_round)
        events.subscribe(ModelDelivered, self._end)

    def forget(self) -> None:
        """Drops what was reported during the set-up."""
        self._noted = set()
        self._begin()

    def _begin(self) -> None:
        """From here on, reports are those of the next row."""
        self._reports, self._evaluated, self._looked = [], {}, []

    def restore(self, rows: list[Row], awaiting: Row | None) -> None:
        """Continues from the rows of a checkpoint."""
        self.rows, self.awaiting = rows, awaiting
        if rows:
            self.leads = rows[-1].leads
        self.events.tell(RowsRestored([*rows, *([awaiting] if awaiting else [])]))

    def _after_negotiation(self, event: Negotiated) -> None:
        if len(self._evaluated) == len(event.asked):
            self.complete(event.groups)

    def complete(self, groups: Mapping[str, Sequence[int]]) -> None:
        """Adds the figures to the row of the round before; does nothing if no row waits."""
        row, self.awaiting = self.awaiting, None
        if row is None:
            return
        counts, results = dict(sorted(self._evaluated.items())), {}
        if self.leads == ACCURACY and any(count.rare for count in counts.values()):  # at a site
            self.leads = BALANCED
            self.events.note(
                "a class is rare among the held-out examples of a site, so balanced accuracy leads. To have rare "
                "classes count more in training, class_weights in train gives each class a weight"
            )
        by_class = self.recipe.data.at == "sites" or not counts or self._counts_by_class(counts.values())
        if self.leads == BALANCED and not by_class:
            self.leads = ACCURACY
            self.events.note(
                f"{self.recipe.model.use} does not give its outputs, so that nobody can count by class, and accuracy "
                "leads although a class is rare: a model says in evaluate what it gave (outputs of Evaluation)"
            )
        row.leads = self.leads
        public, worth = dict(counts), self._worth(counts)
        for group, ids in groups.items():
            sizes = {member: counts[member].count for member in ids if member in counts}
            for client_id in too_large(sizes) if self.recipe.data.at == "here" else ():
                claimed = public.pop(client_id).count
                self.events.note(
                    f"round {row.round}: client {client_id} says that its share of the common test set has {claimed:g} "
                    "answers, more than twice as many as those of most others; it does not count in the figures"
                )
            inside = [(public[client_id], worth[client_id]) for client_id in ids if client_id in public]
            if total := sum(count.count * by for count, by in inside):
                right = sum(count.correct * by for count, by in inside) / total if self.has_accuracy else None
                loss = sum(count.loss * by for count, by in inside) / total
                results[group] = GroupResult(right, loss)
                if len(groups) > 1:
                    results[group].figures = self._figures_by_class(inside) | self._figures(
                        [(count.task, by) for count, by in inside]
                    )
        everybody = [(count, worth[client_id]) for client_id, count in public.items()]
        row.figures = self._figures_by_class(everybody) | self._figures([(count.task, by) for count, by in everybody])
        for section in self._sections:
            row.figures |= section.figures(_added_up((count.task, by) for count, by in everybody), row.log)
        row.recalls, row.guess = self._recalls(everybody), dict(self.guess.figures)
        own = self._figures([(count.personal_task, worth[client_id]) for client_id, count in public.items()])
        row.figures |= {f"{title}{OWN_MODELS}": value for title, value in own.items()}
        if (mean := _weighted((count.personal_balanced, count.count * by) for count, by in everybody)) is not None:
            row.figures[f"{BALANCED.name}{OWN_MODELS}"] = mean
        row.accuracy = _mean(result.accuracy for result in results.values() if result.accuracy is not None)
        row.loss = _mean(result.loss for result in results.values())
        row.groups = results if len(results) > 1 else {}
        if self.has_accuracy:
            row.client_accuracy = _shares(counts, lambda count: (count.own_correct, count.own_count))
            row.personal_accuracy = _shares(counts, lambda count: (count.personal_own_correct, count.own_count))
            row.personal_public_accuracy = _shares(counts, lambda count: (count.personal_correct, count.count))
        if self.leads.name == ACCURACY.name:
            row.tuned = _shares(counts, lambda count: (count.tuned_own_correct, count.own_count))
            row.tuned_public = _shares(counts, lambda count: (count.tuned_correct, count.count))
        elif self.leads == BALANCED:
            row.client_leading = _known(counts, lambda count: count.own_balanced)
            row.personal_leading = _known(counts, lambda count: count.personal_own_balanced)
            row.personal_public_leading = _known(counts, lambda count: count.personal_balanced)
            row.tuned = _known(counts, lambda count: count.tuned_own_balanced)
            row.tuned_public = _known(counts, lambda count: count.tuned_balanced)
        else:
            row.client_leading = self._by_client(counts, lambda count: count.own_task)
            row.personal_leading = self._by_client(counts, lambda count: count.personal_own_task)
            row.personal_public_leading = self._by_client(counts, lambda count: count.personal_task)
            row.tuned = self._by_client(counts, lambda count: count.tuned_own_task)
            row.tuned_public = self._by_client(counts, lambda count: count.tuned_task)
        row.clusters = self._by_cluster(counts, worth)
        row.group_members = {group: list(ids) for group, ids in groups.items()} if len(groups) > 1 else {}
        row.unopened = self._unopened()
        self.rows.append(row)
        self.events.tell(RowComplete(row))

    def _close_round(self, event: RoundClosed) -> None:
        """Makes the row of a round that has ended; it waits for its accuracy."""
        self.complete(event.groups)  # of the round before, if not all evaluated in this one, or nobody
        self._note_drop_outs()  # those that nobody was waiting for
        self._noted = set()
        # In the order of ids, so that sums do not depend on who answered first.
        reports = [report for _, report in sorted(self._reports, key=lambda heard: heard[0])]
        shares, epsilon = means_by_name(report.zones for report in reports), self.ledger.epsilon()
        of_levels = level_epsilons(self.ledger)
        self.awaiting = Row(
            round=event.round + 1,
            accuracy=None,
            loss=None,
            train_loss=means_by_name(report.train for report in reports).get("loss"),
            client_accuracy={},
            clients=Attendance(len(event.asked), len(event.answered), dict(self.office.dropped)),
            zones={zone: shares.get(zone) for zone in self.recipe.zones},
            sealed=sorted(self.ledger.sealed),
            seconds=self._seconds(event.seconds),
            wall_seconds=event.seconds["wall"],
            cpu_seconds=event.seconds["cpu"],
            bytes=self.wire.of_round(event.round),
            messages=self.wire.requests[event.round],
            epsilon=epsilon,
            epsilon_prices=priced_part(self.ledger),
            view_epsilons=view_epsilons(self.ledger, epsilon),
            unprotected=unprotected(self.ledger, of_levels),
            level_epsilons=of_levels,
            mask_churn=_mean(report.churn for report in reports if report.churn is not None),
            log=self._with_server_log(means_by_name(report.log for report in reports)),
            skipped=event.skipped,
            compared=self._compared(None),
            leads=self.leads,
        )
        self.events.tell(RowMade(event.round, self.awaiting, self._reports, event.own))
        self._begin()
        self._show(None, *drawn(self.server.figures))

    def _end(self, event: ModelDelivered) -> None:
        """Adds the costs of the end of the run to its last row, and how the final model does."""
        if self.awaiting is not None:
            self._add_costs(self.awaiting, self.recipe.rounds, event.seconds)
            self.events.tell(RowMade(self.recipe.rounds, self.awaiting, self._reports, event.own))
        self.complete(event.groups)

    def _hear(self, event: ReplyArrived) -> None:
        reports = event.reports
        self._show(event.client_id, reports.pictures, reports.unpictured)
        if reports.pictures or reports.unpictured:  # a round of many clients would hold all of them
            reports = dataclasses.replace(reports, pictures={}, unpictured={})
        self._reports.append((event.client_id, reports))
        if evaluated := self._report(event.client_id, Evaluated, reports.evaluation):
            self._evaluated[event.client_id] = evaluated
        if compared := self._report(event.client_id, Compared, reports.compared):
            self._looked.append(compared)
        if event.answered == event.asked:
            self._note_drop_outs()

    def _report(self, client_id: int, kind: type[_Report], plain: Mapping[str, Any]) -> _Report | None:
        """A report of a client; None where there is none, or one that cannot be, after a note."""
        try:
            return kind.from_plain(plain) if plain else None
        except ValueError as error:
            self.events.note(f"client {client_id} reports what cannot be, and it does not count: {error}")
            return None

    def _show(self, client_id: int | None, pictures: Mapping[str, str], left_out: Mapping[str, str]) -> None:
        if pictures or left_out:
            self.events.tell(PicturesMade(self.office.round, client_id, pictures, left_out))

    def _with_server_log(self, means: dict[str, float]) -> dict[str, float]:
        """The clients' means, and what the server logged in this round; of equal names, both."""
        own = {f"server.{key}" if key in means else key: float(value) for key, value in self.server.log.items()}
        self.server.log.clear()
        return {**means, **own}

    def _note_drop_outs(self) -> None:
        """Notes who dropped out since the last time: one note a reason, however many clients it hit."""
        new = {c: reason for c, reason in self.office.dropped.items() if c not in self._noted}
        self._noted.update(new)
        shown = min(self.office.round + 1, self.recipe.rounds)
        when = f"round {shown}" if shown else "set-up"
        for reason, ids in alike(new):
            who = f"client {ids[0]}" if len(ids) == 1 else f"{len(ids)} clients ({listed(ids)})"
            self.events.note(f"{when}: {who} dropped out: {reason}")

    def _unopened(self) -> list[Unopened]:
        """Sums that clients could not open, once a reason, each with its clients, and tells it."""
        by_zone: dict[str, dict[int, str]] = {}
        for client_id, report in self._reports:
            for zone, reason in report.unopened.items():
                if zone in (*self.recipe.zones, BUFFERS):
                    by_zone.setdefault(zone, {})[client_id] = reason
            for zone, rounds in report.opened_before.items():
                for round in rounds if zone in self.recipe.zones else ():
                    if round <= self.office.round:
                        self.events.tell(SumWithheld(round, zone))
        sums = [(zone, reason, ids) for zone, reasons in by_zone.items() for reason, ids in alike(reasons)]
        for _, reason, ids in sums:
            self.events.note(f"client {listed(ids)} {reason}; the model keeps its values there")
        return [Unopened(*each) for each in sums]

    def _worth(self, counts: Mapping[int, Evaluated]) -> dict[int, float]:
        """By what each client's counts are multiplied before they are added up.

        Shares of a common test set are added as they are. A site counts by its weight in the sums of updates, whatever
        number of examples it says it has held out.
        """
        if self.recipe.data.at == "here":
            return dict.fromkeys(counts, 1.0)
        weights = self.server.remembered.weights
        return {c: weights[c] / count.count if count.count else 0.0 for c, count in counts.items()}

    def _figures(self, counts: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
        """What the task, and the model, make of the clients' counts. These may be anything, so errors cost no round."""
        keys, found = tuple(f"{section.key}." for section in self._sections), dict[str, float]()
        total = {name: value for name, value in _added_up(counts).items() if not name.startswith(keys)}
        for judge in self.judges if total else ():
            try:
                found |= {title: float(value) for title, value in judge.figures(dict(total)).items()}
            except Exception as error:
                self.events.note(f"figures of {judge.name} are left out: {cause_of(error)}")
        found.pop(ACCURACY.name, None)  # has a separate place in a row
        return found

    def _counts_by_class(self, counts: Iterable[Evaluated]) -> list[ByClass]:
        """Of clients that count the classes of the run."""
        expected = len(self.guess.classes)
        return [each.by_class for each in counts if each.by_class and len(each.by_class.are) == expected]

    def _figures_by_class(self, counts: Sequence[tuple[Evaluated, float]]) -> dict[str, float]:
        """Balanced accuracy and AUC: of counts on the common test set, else means of what sites found."""
        if not self.guess.by_class:
            return {}
        if self.recipe.data.at == "here":
            return figures_by_class(self._counts_by_class(count for count, _ in counts))
        found = {
            BALANCED.name: _weighted((count.own_balanced, count.count * by) for count, by in counts),
            AUC.name: _weighted((count.own_auc, count.count * by) for count, by in counts),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _recalls(self, counts: Sequence[tuple[Evaluated, float]]) -> dict[str, float]:
        if not self.guess.by_class or len(self.guess.classes) > MOST_RECALLS:
            return {}
        known = self._counts_by_class(count for count, _ in counts)
        recalls = recalls_of(known) if known else []
        named = zip(self.guess.classes, recalls, strict=False)
        return {name: recall for name, recall in named if recall is not None}

    def _by_client(
        self, counts: Mapping[int, Evaluated], of: Callable[[Evaluated], Mapping[str, float]]
    ) -> dict[int, float]:
        """The figure that leads, by client; clients of which it cannot be made are left out."""
        each = ((client_id, self._leading(of(count))) for client_id, count in counts.items())
        return {client_id: value for client_id, value in each if value is not None}

    def _leading(self, counts: Mapping[str, float]) -> float | None:
        if not counts:
            return None
        with contextlib.suppress(Exception):  # a client's counts may be anything; the sum's errors are noted
            return float(self.judges[0].figures(counts)[self.leads.name])
        return None

    def _by_cluster(self, counts: Mapping[int, Evaluated], worth: Mapping[int, float]) -> dict[str, float]:
        """The figure that leads, over the clients of each cluster of the recipe, on test data like their own."""
        found: dict[str, float] = {}
        for cluster, ids in self.recipe.clusters.items():
            inside = [(counts[client_id], worth[client_id]) for client_id in ids if client_id in counts]
            if self.leads.name == ACCURACY.name:
                asked = sum(count.own_count * by for count, by in inside)
                value = sum(count.own_correct * by for count, by in inside) / asked if asked else None
            elif self.leads == BALANCED:
                value = _weighted((count.own_balanced, count.own_count * by) for count, by in inside)
            else:
                value = self._leading(_added_up((count.own_task, by) for count, by in inside))
            if value is not None:
                found[cluster] = value
        return found

    def _seconds(self, own: Mapping[str, float]) -> dict[str, float]:
        """By phase, summed over the parties."""
        seconds = Counter({phase: value for phase, value in own.items() if phase not in ("wall", "cpu")})
        for _, report in self._reports:
            seconds.update(report.seconds)
            seconds.update({"negotiate": max(0.0, report.seconds_total - sum(report.seconds.values()))})
        return dict(seconds)

    def _add_costs(self, row: Row, round: int, own: Mapping[str, float]) -> None:
        """Adds what a further question to the clients cost."""
        for phase, value in self._seconds(own).items():
            row.seconds[phase] = row.seconds.get(phase, 0.0) + value
        row.wall_seconds += own["wall"]
        row.cpu_seconds = None if row.cpu_seconds is None else row.cpu_seconds + own["cpu"]
        row.bytes = row.bytes + self.wire.of_round(round)
        row.messages += self.wire.requests[round]
        row.compared = self._compared(row.compared)

    def _compared(self, before: Compared | None) -> Compared | None:
        """What clients have found in their own messages, added to what they had `before`."""
        if any(any(each.found.values()) for each in self._looked):
            self.ledger.message_uncovered(*PLAIN_VALUES.split(" ", 1))
        return sum(self._looked, before or Compared()) if self._looked else before


def _shares(
    counts: Mapping[int, Evaluated], of: Callable[[Evaluated], tuple[float | None, float]]
) -> dict[int, float]:
    """Of what each client was asked, the share that was right. Clients without examples are left out."""
    answers = ((client_id, *of(count)) for client_id, count in counts.items())
    return {client_id: right / asked for client_id, right, asked in answers if asked and right is not None}


def _known(counts: Mapping[int, Evaluated], of: Callable[[Evaluated], float | None]) -> dict[int, float]:
    return {client_id: value for client_id, count in counts.items() if (value := of(count)) is not None}


def _weighted(given: Iterable[tuple[float | None, float]]) -> float | None:
    """The mean of the numbers that are known, each with its weight; None where none has any."""
    known = [(value, by) for value, by in given if value is not None and by > 0]
    total = sum(by for _, by in known)
    return sum(value * by for value, by in known) / total if total else None


def means_by_name(given: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each name over those that have it, names in order."""
    sums: dict[str, list[float]] = {}
    for numbers in given:
        for name, number in numbers.items():
            sums.setdefault(name, []).append(float(number))
    return {name: sum(numbers) / len(numbers) for name, numbers in sorted(sums.items())}


def too_large(counts: Mapping[int, float]) -> list[int]:
    """Clients whose share of the common test set is too large to be one: shares differ by one example at most.

    An example may have many answers, such as pixels, so of the clients with any example nobody has more than twice as
    many answers as another. Of one or two nobody can say who is right.
    """
    known = sorted(count for count in counts.values() if count)
    if len(known) < 3:
        return []
    usual = known[(len(known) - 1) // 2]
    return [client_id for client_id, count in counts.items() if count > 2 * usual]


def _added_up(counts: Iterable[tuple[Mapping[str, float], float]]) -> Counter[str]:
    """The sum of each name over what clients have counted, each times a factor."""
    total: Counter[str] = Counter()
    for count, by in counts:
        total.update({name: value * by for name, value in count.items()})
    return total


def _mean(values: Iterable[float]) -> float | None:
    collected = [float(value) for value in values]
    return sum(collected) / len(collected) if collected else None
