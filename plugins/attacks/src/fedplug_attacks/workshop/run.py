"""Runs the attacks of a recipe on a finished run: builds the views, calls the attacks, scores them, writes the results.

for each moment      the recorded updates of a round, or the uploads of a probe
  for each adversary and target
    observe          from recorded messages and the adversary's keys: the view
    attack           in its adaptive form, and also in its naive form if entries are hidden
    score            by the scorer, the only one with the truth
    write            attacks/KEY.json, and attacks/KEY.png with images
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from fedplug.api.errors import FedplugError, PluginError, ViewError, describe
from fedplug.api.roles import Attack, Finds, Metric
from fedplug.api.streams import stream
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Use
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.verdict_words import named
from fedplug_runs.files import private_folder
from fedplug_runs.pace import TRAINING
from fedplug_runs.patterns import Pattern, words_of
from fedplug_std.handed import alarms, signs
from numpy.typing import NDArray

from fedplug_attacks import AttackReport, Observation, Plants, Truth, View
from fedplug_attacks.api.report import FAILED, NOT_APPLICABLE
from fedplug_attacks.views.adversaries import Adversary, plants, read_client
from fedplug_attacks.views.observer import Beyond, Known
from fedplug_attacks.views.probe import OneBatch
from fedplug_attacks.views.rounds import Observations
from fedplug_attacks.workshop import pictures as attack_pictures
from fedplug_attacks.workshop import results as attack_results
from fedplug_attacks.workshop.attributes import Attributes
from fedplug_attacks.workshop.calls import Calls
from fedplug_attacks.workshop.occasions import Occasion, Occasions
from fedplug_attacks.workshop.records import (
    AttackSummary,
    Outcome,
    ProbedBatch,
    Ranking,
    Success,
    TargetResult,
    TrueClasses,
)
from fedplug_attacks.workshop.scope import AskedAttacks
from fedplug_attacks.workshop.scorer import Scorer, matched, usual_metrics
from fedplug_attacks.workshop.stage import OutOfTime, Stage
from fedplug_attacks.workshop.target_truth import Truths
from fedplug_attacks.workshop.words import by_words, examples, who_words

_SUBTRACTS = "it subtracts its knowledge of all others from opened sums, which leaves the target's update"
OTHERS = ("server", "client", "key_server", "server+client", "server+key_server", "server+client+key_server")
"""Adversaries to consider for an attack that does not apply, fewer parties first."""


@dataclasses.dataclass(frozen=True)
class _Task:
    """An attack on one target by one adversary, and the place of its result; see `TargetResult`."""

    use: Use
    key: str
    adversary: str
    round: int  # 0-based
    target: int
    digest: str
    settings: str


class AttackRun:
    """The attacks of a recipe on a finished run.

    Args:
        recipe: the recipe of the run with the attacks to make; all else must be as in the run.
        stage: the run.
    """

    def __init__(self, recipe: Recipe, stage: Stage) -> None:
        self.recipe, self.stage, self.watch, self.rewound = recipe, stage, stage.watch, stage.rewound
        section = AskedAttacks.of(recipe)
        if section is None:
            raise ViewError("the recipe names no attacks")
        self.section, self.scope, self.folder = section, section.scope, stage.run_dir / "attacks"
        self.composition = Composition(recipe)
        self.occasions = Occasions(recipe, self.scope, stage.run_dir, self.rewound)
        others = self.rewound.somebody().data.shared_test
        self.scorer = Scorer(self._metrics(), stage.world.public, stage.world.mean, recipe.seed, others)
        wanted = any(metric.measures.kind == "update" for metric in self.scorer.metrics.values())
        asked, source = self.scope.truth, self.composition.components[recipe.data.name]
        data, root = self.rewound.somebody().data, stage.data_root
        attributes = None if asked is None else Attributes(asked, data, stage.world.public, source, root)
        self.truths = Truths(self.rewound, stage.repeats, wanted, self.watch.note, attributes)
        self.calls = Calls(section, self.composition, stage, self.truths)
        scope = self.scope.model_dump(mode="json", exclude={"adversaries", "targets", "rounds"})
        self._asked = [scope, [m.to_plain() for m in section.metrics]]  # that a result follows from
        self.adversaries: dict[str, str] = {}
        self._remedies: dict[tuple[str, str, int], str] = {}
        self._made_again: tuple[tuple[int, tuple[int, ...]], Mapping[int, NDArray[np.float32]]] | None = None
        self._alike: dict[tuple[Any, ...], TargetResult] = {}

    def execute(self) -> AttackSummary:
        """Runs everything that is not finished yet; returns the summary.

        Raises:
            ViewError: nothing was recorded to attack.
            CheckpointError: the run kept no checkpoint of a round that is probed.
        """
        self.occasions.require()
        for round, names in self.occasions.rounds():
            batches = range(self.scope.batches)
            unfinished = [number for number in batches if not self._finished(round, names, number)]
            if unfinished and self.stage.timer.late:  # avoids restoring the parties for nothing
                for task in self._tasks(round, names, unfinished):
                    self._leave(task)
                continue
            honest = [name for name in names if not plants(name)]
            for name in (name for name in names if plants(name)):
                for number in unfinished:
                    self._plant(round, name, number)
            if not honest:
                continue
            for occasion in self.occasions.of(round, "released" in names, unfinished, self._asking):
                for name in honest:
                    for target in self.scope.targets or occasion.clients:
                        adversary = Adversary.of(name, target, occasion.clients, self.scope.protected_links)
                        self._on_target(occasion, name, adversary, target)
        return self.summary()

    def summary(self) -> AttackSummary:
        """Writes the summary of the finished targets, and returns it."""
        left = self.stage.left if self.stage.ladder else None
        return attack_results.write_summary(self.folder, self.adversaries, self._unseen, left)

    def _unseen(self, seen: set[int]) -> list[str]:
        """What was sent and is not attacked, a sentence for each kind: rounds unlike those (0-based) that are, and sums
        that only the key server, or a server with a model of its own, tries.
        """
        if not seen:
            return []
        try:
            sent = self.rewound.sent
        except FedplugError as error:
            return [f"Whether other rounds sent something else is not known: {error}"]
        known = {sent[round] for round in seen if round in sent}
        rounds: dict[Pattern, list[int]] = {}
        for round, pattern in sent.items():
            if pattern not in known:
                rounds.setdefault(pattern, []).append(round + 1)
        said = {
            pattern: f"round{'s' if len(numbers) > 1 else ''} {named(map(str, numbers))}" if len(numbers) <= 4 else
            f"{len(numbers)} rounds, such as {numbers[0]} and {numbers[1]}," for pattern, numbers in rounds.items()
        }  # fmt: skip
        unlike = [f"Not attacked: {which} sent {words_of(pattern)}." for pattern, which in said.items()]
        sealed = sorted({zone for pattern in known for zone, _, closed, _ in pattern if closed})
        if not sealed or any(plants(name) or "key_server" in name.split("+") for name in self._adversaries_so_far()):
            return unlike
        zones = f"zone{'s' if len(sealed) > 1 else ''} {named(sealed)}"
        return [*unlike, f"Not attacked: the opened sum of {zones}; each attack took what one client sent."]

    def _adversaries_so_far(self) -> set[str]:
        before = attack_results.read_summary(self.folder)
        return {*self.adversaries, *(before.adversaries if before else ())}

    def _leave(self, task: _Task) -> None:
        """Notes a target that there is no time for."""
        if not self._needless(task) and not self._is_finished(task):
            size = self.scope.probe.batch_size if self.scope.probe else None
            self.stage.left[task.key] = f"{task.use.name} {by_words(task.adversary, task.round + 1, size)}"

    def count(self) -> int:
        """Number of targets, including finished ones."""
        return sum(len(self._tasks(*moment, range(self.scope.batches))) for moment in self.occasions.rounds())

    def _tasks(self, round: int, names: Sequence[str], numbers: Iterable[int]) -> list[_Task]:
        """All attacks on the batches of a round (0-based) of these numbers; with all clients if none are named."""
        targets = range(self.recipe.data.clients) if self.scope.targets is None else self.scope.targets
        every = itertools.product(names, targets, numbers, self.section.attacks)
        return [self._task(use, name, round, target, number) for name, target, number, use in every]

    def _finished(self, round: int, names: list[str], number: int) -> bool:
        """Whether every target of a moment is finished, so that the parties need not be restored to it."""
        if self.scope.targets is None:
            return False  # the participants are not known before
        tasks = self._tasks(round, names, [number])
        if not all(self._is_finished(task) or self._needless(task) for task in tasks):
            return False
        for task in tasks:
            self.stage.done += 1
            if self._is_finished(task):
                self.watch.skipped(task.key)
        return True

    def _needless(self, task: _Task) -> bool:
        """Whether attacks of the set before this one have recovered all that it looks for, so that it adds nothing."""
        finds = self.composition.part(task.use.name, Attack).finds.what
        if task.use.name not in self.stage.ladder or "images" not in finds:
            return False
        for before in itertools.takewhile(lambda name: name != task.use.name, self.stage.ladder):
            earlier = attack_results.read_result(self.folder, task.key.replace(task.use.name, before, 1))
            if earlier and any(len(one.recovered) == len(earlier.truth.labels) > 0 for one in earlier.forms.values()):
                return True
        return False

    def _is_finished(self, task: _Task) -> bool:
        earlier = attack_results.read_result(self.folder, task.key)
        return earlier is not None and earlier.digest == task.digest

    def _task(self, use: Use, adversary: str, round: int, target: int, number: int) -> _Task:
        """An attack on a target in a round (0-based), and the `number`-th batch of a probe."""
        size = self.scope.probe.batch_size if self.scope.probe else None
        key = attack_results.key_of(use.name, adversary, round, target, size, number)
        settings = [use.to_plain(), *self._asked]
        digest = attack_results.digest_of(self.stage.ran.digest, key, settings)
        return _Task(use, key, adversary, round, target, digest, attack_results.digest_of(settings))

    def _asking(self, round: int, batch: OneBatch) -> None:
        """Reports that the parties are asked about a batch, which may take as long as a round."""
        said = f"round {round + 1}, uploads of the clients for {examples(batch.batch_size)}"
        self.watch.target(said, TRAINING, self.stage.done + 1, self.stage.total)

    # -- one target ----------------------------------------------------------------------------------------------------

    def _plant(self, round: int, name: str, number: int) -> None:
        """Lets each attack choose the models that clients receive in a probe, and attacks their uploads."""
        (honest,) = self.occasions.of(round, False, [number], self._asking)
        for use in self.section.attacks:
            attack, occasion, refused = self.composition.part(use.name, Attack), honest, ""
            of_each = isinstance(attack, Plants) and attack.for_each_target
            for target in self.scope.targets or honest.clients:
                if isinstance(attack, Plants) and (of_each or occasion is honest) and not refused:
                    try:
                        models = self._planted(attack, honest, name, number, target if of_each else None)
                        occasion = self.occasions.planted(honest, models)
                    except (ViewError, PluginError) as error:
                        refused = str(error)
                adversary = Adversary.of(name, target, occasion.clients, self.scope.protected_links)
                self._on_target(occasion, name, adversary, target, [use], refused)

    def _planted(
        self, attack: Attack, honest: Occasion, name: str, number: int, target: int | None
    ) -> Mapping[int, NDArray[np.float32]]:
        """The model that each client receives.

        Raises:
            ViewError: the attack has none for this model, or gave an invalid one.
        """
        round, anyone = honest.round, honest.clients[0] if target is None else target
        server = Adversary("server", frozenset({"server"}), (), self.scope.protected_links)
        known = self._known(honest, server, anyone)
        # A server that does not see the current model takes any that fits, here the first round's.
        vector = self.stage.observer.initial if known.vector is None else known.vector
        known = dataclasses.replace(known, update=None, vector=vector)
        seed = int(stream(self.recipe.seed, "plant", attack.name, str(round), str(number)).integers(2**31))
        view = View(name, target=target, round=round, seed=seed)
        view, _ = self.calls.view(view, known, self.truths.of(round, anyone, honest.moment, None), attack, None)
        return self.calls.planted(attack.name, view, honest.clients)

    def _signs(self, occasion: Occasion, target: int) -> Mapping[str, float]:
        """The signs of a planted model that the target could notice, and whether fedplug party says so; else empty."""
        planted = occasion.batch.planted if occasion.batch else None
        if planted is None or occasion.moment is None:
            return {}
        before = read_client(occasion.batch.honest, target).vector if occasion.batch and occasion.batch.honest else None
        before = self.stage.observer.initial if before is None else before
        layout, update = self.stage.model.layout, occasion.moment.updates.get(target)
        found = signs(planted[target], before, layout, update)
        return {f"noticed_{key}": value for key, value in (found | {"by_party": float(bool(alarms(found)))}).items()}

    def _on_target(
        self, occasion: Occasion, name: str, adversary: Adversary | None, target: int,
        uses: Sequence[Use] | None = None, refused: str = "",
    ) -> None:  # fmt: skip
        known: Known | None = None
        rounds: Observations | None = None
        for use in self.section.attacks if uses is None else uses:
            task = self._task(use, name, occasion.round, target, occasion.batch.number if occasion.batch else 0)
            self.stage.done += 1
            if self._is_finished(task):
                self.watch.skipped(task.key)
                continue
            if self._needless(task):
                continue
            if self.stage.timer.late and not self.stage.ladder:
                self._leave(task)
                continue
            if adversary is not None and known is None:
                known = self._known(occasion, adversary, target)
                said = adversary.sentence(self.stage.shared_key, self.stage.shares)
                if known.update is not None and known.update.subtracted:
                    said += f"; {_SUBTRACTS}"
                if not self.adversaries.get(name, "").startswith(said):
                    self.adversaries[name] = said
            wants = self.composition.part(use.name, Attack).finds.needs.rounds
            if adversary is not None and known is not None and wants and rounds is None:
                self.watch.target(task.key, "earlier rounds", self.stage.done, self.stage.total)
                rounds = self.stage.shelf.keep(self._observations(occasion, adversary, target, known))
            observed = known.update if known else None
            truth = self.truths.of(occasion.round, target, occasion.moment, observed)
            try:
                result, truth, reports = self._attacked(
                    task, occasion, known, truth, rounds if wants else None, refused
                )  # fmt: skip
            except OutOfTime:
                self._leave(task)
                continue
            self._draw(result, truth, reports)
            attack_results.write_result(self.folder, result)
            self.watch.target_done(result)

    def _known(self, occasion: Occasion, adversary: Adversary, target: int) -> Known:
        if "released" in adversary.roles:
            assert occasion.moment is not None
            theirs = read_client(occasion.moment.folder, target)
            # A model is released with its batch-norm statistics, without which its predictions are useless.
            return Known((), None, theirs.vector, theirs.personal, theirs.buffers)
        size = len(occasion.moment.batches[target]) if occasion.batch and occasion.moment else None
        beyond = Beyond(occasion.later, functools.partial(self._theirs, occasion))
        seen = occasion.round, occasion.messages, occasion.folder, size, beyond
        known = self.stage.observer.known(adversary, target, *seen)
        planted = occasion.batch.planted if occasion.batch else None
        if planted is None:
            return known
        update = known.update
        if update is None or not update.visible.any():  # a sum holds the updates of all clients from the planted model
            update = self.stage.observer.opened_sum(adversary, target, *seen) or update
        return dataclasses.replace(known, update=update, vector=planted[target])

    def _theirs(self, occasion: Occasion, clients: Sequence[int]) -> Mapping[int, NDArray[np.float32]]:
        """The updates of colluding clients, reproduced because their states do not keep them."""
        if occasion.batch is not None:
            assert occasion.moment is not None
            return {c: occasion.moment.updates[c] for c in clients if c in occasion.moment.updates}
        if not self.stage.repeats:
            return {}
        key = occasion.round, tuple(clients)
        if self._made_again is None or self._made_again[0] != key:  # the same for all targets of a round, or nearly
            try:
                self._made_again = key, self.rewound.updates(occasion.round, clients)
            except FedplugError as error:
                self.watch.note(f"the updates of colluding clients in round {occasion.round + 1} are unknown: {error}")
                self._made_again = key, {}
        return self._made_again[1]

    def _observations(
        self, occasion: Occasion, adversary: Adversary, target: int, known: Known
    ) -> Iterator[Observation]:
        """The adversary's observations of the target in every round up to that of an occasion, which comes last."""
        if "released" in adversary.roles:
            return
        for earlier in occasion.earlier():
            if target not in earlier.clients:
                continue
            then = self._known(earlier, adversary, target)
            # The run was not made from the batch of a probe.
            same = earlier.batch is not None if occasion.batch else then.all_examples and known.all_examples
            if then.update is not None:
                yield Observation(earlier.round, then.update, then.vector, then.buffers, same)
        if known.update is not None:
            yield Observation(occasion.round, known.update, known.vector, known.buffers, True)

    def _attacked(
        self,
        task: _Task,
        occasion: Occasion,
        known: Known | None,
        truth: Truth,
        rounds: Observations | None = None,
        refused: str = "",
    ) -> tuple[TargetResult, Truth, dict[str, AttackReport]]:
        """Calls an attack in each form, and scores it."""
        attack, adversary, target = task.use.name, task.adversary, task.target
        component = self.composition.part(attack, Attack)
        seed = int(stream(self.recipe.seed, "attack", task.key).integers(2**31))
        view = View(adversary, target=target, round=occasion.round, seed=seed, observations=rounds or ())
        if known is not None:
            # Members are the examples behind the update; released models are made from all data of a client.
            batches = occasion.moment.batches if occasion.moment and adversary != "released" else {}
            view, truth = self.calls.view(view, known, truth, component, batches.get(target))
        finds = component.finds
        alike = self._alike_key(task, occasion, view, finds)
        if alike in self._alike:
            self.watch.target(task.key, "the same view", self.stage.done, self.stage.total)
            made = self._alike[alike]
            free = {form: dataclasses.replace(one, seconds=0.0, gradient_evaluations=0)
                    for form, one in made.forms.items()}  # fmt: skip
            same = dataclasses.replace(made, key=task.key, adversary=adversary, digest=task.digest, forms=free)
            return dataclasses.replace(same, picture=None, same_as=made.adversary), truth, {}
        if self.stage.timer.late and known is not None and not finds.needs.unmet(view, self.rewound.public):
            raise OutOfTime  # to say that an attack does not apply takes no time
        size = len(truth.labels)  # of the probe
        if finds.needs.told:
            truth = self.truths.of(occasion.round, target, None, None)
        update = view.update
        guesses = self.scorer.baselines(finds.what, truth)
        outcomes, reports, noticed = dict[str, Outcome](), dict[str, AttackReport](), self._signs(occasion, target)
        for form, name in self.calls.forms(attack, component, view).items():
            self.watch.target(task.key, form, self.stage.done, self.stage.total)
            started = time.process_time()
            report = self.calls.call(name, view, "the adversary is the target itself" if known is None else refused)
            spent = time.process_time() - started
            outcomes[form] = self.scorer.outcome(report, truth, guesses, finds, spent)
            outcomes[form].metrics |= noticed
            sized = finds.needs.update and "labels" in finds.what  # such an attack relies on the size
            failed = outcomes[form].status == FAILED and not outcomes[form].reason
            if sized and failed and update is not None and update.meaning.clip_norm is not None:
                outcomes[form].reason = f"a clip to {update.meaning.clip_norm:g} may hide the norm of what is visible"
            if report.status == NOT_APPLICABLE and known is not None:
                place = attack, adversary, occasion.round  # the same for all targets of a round
                if place not in self._remedies:
                    self._remedies[place] = self._remedy(task, occasion, component, view)
                outcomes[form].remedy = self._remedies[place]
            reports[form] = report
        ranking = Ranking(*finds.headline)
        ranked = {form: outcome.metrics.get(ranking.metric, math.nan) for form, outcome in outcomes.items()}
        batch = occasion.batch
        result = TargetResult(
            key=task.key, attack=attack, use=task.use.use, options=task.use.options.model_dump(mode="json"),
            adversary=adversary, round=occasion.round + 1, client=target,
            probe=ProbedBatch(size, batch.number + 1, batch.classes, self.scope.repeats) if batch else None,
            digest=task.digest, settings=task.settings, states=update.shares() if update else {},
            unplaced=update.unplaced if update else 0, meaning=update.meaning if update else None,
            finds=sorted(finds.what), ranking=ranking, success=Success(*finds.success) if finds.success[0] else None,
            better=self.scorer.better, baselines=guesses, forms=outcomes,
            headline=attack_results.stronger(ranked, ranking.better),
            truth=TrueClasses(
                truth.counts.tolist(), truth.labels.tolist(), _people(truth, finds, outcomes),
                "text" if truth.texts is not None else "image" if truth.scale is None else "row",
            ),
            picture=None,
        )  # fmt: skip
        if alike is not None and any(outcome.status != NOT_APPLICABLE for outcome in outcomes.values()):
            self._alike[alike] = result
        return result, truth, reports

    def _alike_key(self, task: _Task, occasion: Occasion, view: View, finds: Finds) -> tuple[Any, ...] | None:
        """What an attack of the set on an update follows from; None for attacks that read messages."""
        needs, update = finds.needs, view.update
        if not self.stage.ladder or update is None or needs.told or needs.rounds or needs.candidates:
            return None
        arrays = (update.states, update.values, update.sigma, view.vector, view.personal)
        digest = hashlib.blake2b(repr((update.meaning, update.contributors, update.clips, update.unplaced)).encode())
        for array in arrays:
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        return task.use.name, occasion.round, task.target, occasion.batch, digest.digest()

    def _draw(self, result: TargetResult, truth: Truth, reports: Mapping[str, AttackReport]) -> None:
        """Writes the true images and those of each form: of the stronger one the recovered ones, else the nearest."""
        result.picture = None
        if "images" not in result.finds or truth.images.ndim != 4:  # a row of a table has no picture
            return
        partners = dict[str, dict[int, NDArray[np.float32]]]()
        for form in sorted(reports, key=lambda form: form != result.headline):
            images, pairs = reports[form].images, matched(reports[form], truth)
            if images is not None and pairs is not None:
                partners[form] = {int(place): images[guess] for place, guess in zip(*pairs, strict=True)}
        if not partners:
            return
        first, best = next(iter(partners.items()))
        recovered = result.forms[first].recovered
        off = {
            place: float(np.square(truth.images[place] - np.nan_to_num(image)).mean()) for place, image in best.items()
        }  # fmt: skip
        shown = sorted(off, key=lambda place: (place not in recovered, off[place]))[: attack_pictures.MOST_IMAGES]
        rows: list[list[NDArray[np.float32] | None]] = [[truth.images[place] for place in shown]]
        rows += [[images.get(place) for place in shown] for images in partners.values()]
        private_folder(self.folder)
        try:
            attack_pictures.draw(self.folder / f"{result.key}.png", rows)
        except Exception as error:  # a picture matters less than its numbers
            self.watch.note(f"the picture of {result.key} is left out: {describe(error)}")
            return
        result.picture = f"{result.key}.png"

    def _remedy(self, task: _Task, occasion: Occasion, component: Attack, view: View) -> str:
        """The adversary or option with which an attack that does not apply to this view would apply; empty: none.

        The attack's needs are compared with the views of all other adversaries.
        """
        needs, seen = component.finds.needs, _visible(view)
        lacks = needs.unmet(view, self.rewound.public)
        if task.adversary == "released" or not self.rewound.whole:
            return ""
        for name in OTHERS:
            if ("key_server" in name and not self.stage.key_server) or name == task.adversary:
                continue
            other = Adversary.of(name, task.target, occasion.clients, self.scope.protected_links)
            if other is None:
                continue
            known = self._known(occasion, other, task.target)
            blank = View(name, target=task.target, round=occasion.round)
            truth = self.truths.of(occasion.round, task.target, occasion.moment, None)
            theirs, _ = self.calls.view(blank, known, truth, component, None)
            if needs.unmet(theirs, self.rewound.public):
                continue
            # Attacks that need entries declare it, and may take minutes; others check themselves, in milliseconds.
            more = lacks or _visible(theirs) > seen
            if more if needs.tensors else self.calls.call(task.use.name, theirs, "").status != NOT_APPLICABLE:
                option = "" if name in self.scope.adversaries else f": --adversary {name}"
                return f"it applies to {who_words(name)}{option}"
        if needs.update and occasion.batch is None:
            return f"it may apply to single batches: --probe {min(8, needs.batch_size[1]) if needs.batch_size else 8}"
        return ""

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _metrics(self) -> dict[str, Metric]:
        """The recipe's metrics, or else every installed one that is computed by default."""
        if self.section.metrics:
            return {use.name: self.composition.part(use.name, Metric) for use in self.section.metrics}
        return usual_metrics(self.stage.catalog)


def _visible(view: View) -> int:
    """Number of entries of the update that it sees."""
    return int(view.update.visible.sum()) if view.update is not None else 0


def _people(truth: Truth, finds: Finds, outcomes: Mapping[str, Outcome]) -> list[str]:
    """A digest of each example, if images or texts of single ones were sought."""
    if not finds.what & {"images", "texts"} or all(outcome.status == NOT_APPLICABLE for outcome in outcomes.values()):
        return []
    return [hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:16] for image in truth.images]
