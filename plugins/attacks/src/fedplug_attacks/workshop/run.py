"""Runs the attacks of a recipe on a finished run: builds the views, calls the attacks, scores them, writes the results.

    for each moment      the updates of a round as they crossed the wire, or the answers to a probe
      for each adversary and target
        observe          from recorded messages and the adversary's keys: the view
        attack           in its adaptive and in its naive form, where entries are hidden
        score            by the scorer, which alone has the truth
        write            attacks/KEY.json and attacks/KEY.png
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from fedplug.api.context import Context, Server
from fedplug.api.data import Examples
from fedplug.api.effects import Seal
from fedplug.api.errors import CheckpointError, DataError, FedplugError, PluginError, ViewError, describe
from fedplug.api.model import Model
from fedplug.api.outer_roles import Attack, Metric
from fedplug.api.streams import stream
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Use
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import make_context
from fedplug.round.checkpoint import Checkpoints
from fedplug.round.world import World
from fedplug.wire.record import SERVER, Message, read_wire

from fedplug_attacks.api.report import FAILED, NOT_APPLICABLE, AttackReport, checked
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.views.adversaries import Adversary, read_client
from fedplug_attacks.views.observer import Known, Observer
from fedplug_attacks.views.probe import OneBatch
from fedplug_attacks.views.rewind import Moment, Rewound
from fedplug_attacks.workshop import pictures as attack_pictures
from fedplug_attacks.workshop import results as attack_results
from fedplug_attacks.workshop.display import AttackDisplay
from fedplug_attacks.workshop.pictures import Challenge
from fedplug_attacks.workshop.records import (
    AttackSummary,
    Outcome,
    ProbedBatch,
    Ranking,
    Success,
    TargetResult,
    TrueClasses,
)
from fedplug_attacks.workshop.scope import AttackSection
from fedplug_attacks.workshop.scorer import Scorer
from fedplug_attacks.workshop.target_truth import Truths

ADAPTIVE, NAIVE = "adaptive", "naive"


@dataclasses.dataclass(frozen=True, eq=False)
class Occasion:
    """One thing to attack: a moment of the run, or of a probe, with who could be a target.

    Attributes:
        round: 0-based.
        batch: which batch of the probe; None for the run itself.
        messages: everything recorded up to it.
        folder: where every party's state of that moment lies; None where it was not kept.
        clients: who took part.
        moment: of a probe or a released model; None for the run itself.
    """

    round: int
    batch: OneBatch | None
    messages: list[Message]
    folder: Path | None
    clients: list[int]
    moment: Moment | None = None


@dataclasses.dataclass(frozen=True)
class _Task:
    """An attack on one target by one adversary, and where its result goes; see `TargetResult`."""

    use: Use
    key: str
    adversary: str
    target: int
    digest: str
    settings: str


class AttackRun:
    """The attacks of a recipe on a finished run.

    Args:
        recipe: of the run, with the attacks to make; all else must be as it ran.
        ran: the recipe as it ran, whose digest the parties know.
        run_dir: the run folder.
        data_root: folder of data sets, or None.
        device: torch device name.
        key_server: whether the protocol has one.
        catalog: the components on offer; those installed if None.
        watch: told of progress.
        world: of the run, where this process has it already.
    """

    def __init__(
        self,
        recipe: Recipe,
        ran: Recipe,
        run_dir: Path,
        data_root: str | None,
        device: str,
        key_server: bool,
        catalog: Catalog | None,
        watch: AttackDisplay,
        world: World | None = None,
    ) -> None:
        self.recipe, self.ran, self.run_dir, self.watch = recipe, ran, run_dir, watch
        section = AttackSection.of(recipe)
        if section is None:
            raise ViewError("the recipe names no attacks")
        self.section, self.scope, self.folder = section, section.scope, run_dir / "attacks"
        self.catalog, self.device = catalog or Catalog.discover(), device
        self.composition = Composition(recipe)
        self.twins = self._twins()
        self.checkpoints = Checkpoints(run_dir)
        self.recorded = self._recorded(max(round for round, _ in self._rounds()))
        # The attacker has a model of its own, and no data but what is public; the scorer stands outside every party.
        world = World(ran, self.composition, data_root) if world is None else world
        self.model = world.model(device)
        self.initial, self.buffers = self.model.get_vector(), self.model.get_buffers()
        try:
            self.rewound = Rewound(ran, catalog, run_dir, data_root, device, key_server, self.model, world)
        except DataError as error:
            if ran.data.at == "here":
                raise
            raise ViewError(
                "attacks are judged by the data of the clients, which with data at sites only the sites have; attack a "
                f"trial on one machine, whose --data holds a folder for each client. {error}"
            ) from error
        self.scorer = Scorer(self._metrics(), world.public, world.mean, recipe.seed)
        ctx = make_context(recipe, self.composition, self.model.layout, 0, Server(), self.rewound.public)
        learns = self.composition.trainer.learns(ctx)
        self.truths = Truths(
            self.rewound,
            repeats=learns is None or learns.repeats,
            wanted=any(metric.measures.kind == "update" for metric in self.scorer.metrics.values()),
            note=watch.note,
        )
        public = self.rewound.public
        self.observer = Observer(self.ran, self.composition, self.model.layout, self.initial, public, self.model)
        self.shared_key = any(
            isinstance(effect, Seal) and effect.opened_by == "clients"
            for zone in self.composition.links
            for step in ctx.steps(zone)
            for effect in step.effects or ()
        )
        self.adversaries: dict[str, str] = {}
        self.done = self.total = 0

    def close(self) -> None:
        """Forgets the parties."""
        self.rewound.__exit__()

    def execute(self) -> AttackSummary:
        """Runs everything that is not finished yet; gives the summary.

        Raises:
            ViewError: nothing was recorded to attack.
            CheckpointError: the run kept no checkpoint of a round that is probed.
        """
        rounds = self._rounds()
        self._require(rounds)
        self.total = sum(self._count(names) for _, names in rounds)
        facts = {
            "run": str(self.run_dir), "rounds": ", ".join(str(round + 1) for round, _ in rounds),
            "attacks": ", ".join(use.name for use in self.section.attacks),
            "adversaries": ", ".join(self.scope.adversaries), "device": self.device,
        }  # fmt: skip
        self.watch.start(self.total, facts)
        for round, names in rounds:
            for occasion in self._occasions(round, "released" in names):
                for name in names:
                    for target in self._targets(occasion):
                        adversary = Adversary.of(name, target, occasion.clients, self.scope.protected_links)
                        self._on_target(occasion, name, adversary, target)
        return self.summary()

    def summary(self) -> AttackSummary:
        """Writes the summary of what is finished, and gives it."""
        return attack_results.write_summary(self.folder, self.adversaries)

    # -- what there is to attack ---------------------------------------------------------------------------------------

    def _rounds(self) -> list[tuple[int, list[str]]]:
        """Rounds, 0-based, each with its adversaries: by default the first, and of released models the final one."""
        names = self.scope.adversaries
        if self.scope.rounds is not None:
            return [(round - 1, names) for round in self.scope.rounds]
        # Of a run that was not recorded only the last checkpoints are there to probe.
        first = min(self.checkpoints.rounds(), default=0) if self.scope.probe else 0
        others = [name for name in names if name != "released"]
        final = [(self.recipe.rounds, ["released"])] if "released" in names else []
        return ([(first, others)] if others else []) + final

    def _require(self, rounds: list[tuple[int, list[str]]]) -> None:
        """Refuses what the run folder cannot answer, before anything is tried."""
        there = {m.round for m in self.recorded if m.phase == "upload" and m.receiver == SERVER}
        for round, names in rounds:
            if self.scope.probe is not None or names == ["released"]:
                self._require_checkpoint(round)
            elif round not in there:
                only = f"recorded uploads of rounds {sorted(round + 1 for round in there)} only"
                raise ViewError(
                    f"{self.run_dir} holds {only if there else 'no recorded messages'}, and round {round + 1} is to "
                    "be attacked; run the recipe with --record-wire, or with attacks in it, and attack that run; or "
                    "probe single batches, for which the checkpoint before the round is enough: --probe 30"
                )

    def _require_checkpoint(self, round: int) -> None:
        kept = self.checkpoints.rounds()
        if kept and round not in kept:
            final = f"; {self.recipe.rounds + 1} is the final model" if self.recipe.rounds in kept else ""
            raise CheckpointError(
                f"{self.run_dir} kept no checkpoint from before round {round + 1}; there are some for rounds "
                f"{', '.join(str(each + 1) for each in kept)}{final}. Attack one of these (--round), or run the recipe "
                "with --record-wire, which keeps all"
            )
        self.checkpoints.read(round)

    def _count(self, names: list[str]) -> int:
        batches = self.scope.probe.batches if self.scope.probe else 1
        targets = self.recipe.data.clients if self.scope.targets is None else len(self.scope.targets)
        return batches * targets * len(names) * len(self.section.attacks)

    def _occasions(self, round: int, released: bool) -> Iterator[Occasion]:
        probe, before = self.scope.probe, [message for message in self.recorded if message.round < round]
        if probe is not None:
            for number in range(probe.batches):
                batch = OneBatch(probe.batch_size, number, probe.classes)
                moment = self.rewound.probe(round, batch)
                clients = sorted(moment.batches)
                yield Occasion(round, batch, [*before, *moment.messages], moment.folder, clients, moment)
            return
        now = [message for message in self.recorded if message.round == round]
        senders = {m.sender for m in now if m.phase == "upload" and m.receiver == SERVER}
        clients = sorted(int(sender.partition(":")[2]) for sender in senders)
        kept = self.checkpoints.path(round + 1)
        moment_now = self.rewound.before(round) if released else None
        everyone = clients or list(range(self.recipe.data.clients))
        yield Occasion(round, None, [*before, *now], kept if kept.is_dir() else None, everyone, moment_now)

    def _targets(self, occasion: Occasion) -> list[int]:
        return occasion.clients if self.scope.targets is None else list(self.scope.targets)

    # -- one target ----------------------------------------------------------------------------------------------------

    def _on_target(self, occasion: Occasion, name: str, adversary: Adversary | None, target: int) -> None:
        batch, size = occasion.batch, self.scope.probe.batch_size if self.scope.probe else None
        known: Known | None = None
        for use in self.section.attacks:
            key = attack_results.key_of(use.name, name, occasion.round, target, size, batch.number if batch else 0)
            scope = self.scope.model_dump(mode="json", exclude={"adversaries", "targets", "rounds"})
            settings = [use.to_plain(), scope, [m.to_plain() for m in self.section.metrics]]
            digest = attack_results.digest_of(self.ran.digest, key, settings)
            self.done += 1
            earlier = attack_results.read_result(self.folder, key)
            if earlier is not None and earlier.digest == digest:
                self.watch.skipped(key)
                continue
            if adversary is not None and known is None:
                known = self._known(occasion, adversary, target)
                self.adversaries[name] = adversary.sentence(self.shared_key)
            observed = known.update if known else None
            truth = self.truths.of(occasion.round, target, occasion.moment, observed)
            task = _Task(use, key, name, target, digest, attack_results.digest_of(settings))
            result, truth, reports = self._attacked(task, occasion, known, truth)
            self._draw(result, truth, reports)
            attack_results.write_result(self.folder, result)
            self.watch.target_done(result)

    def _known(self, occasion: Occasion, adversary: Adversary, target: int) -> Known:
        if "released" in adversary.roles:
            assert occasion.moment is not None
            theirs = read_client(occasion.moment.folder, target)
            # A model is released with its batch-norm statistics: it answers nothing sensible without them.
            return Known((), None, theirs.vector, theirs.personal, theirs.buffers)
        size = len(occasion.moment.batches[target]) if occasion.batch and occasion.moment else None
        return self.observer.known(adversary, target, occasion.round, occasion.messages, occasion.folder, size)

    def _attacked(
        self, task: _Task, occasion: Occasion, known: Known | None, truth: Truth
    ) -> tuple[TargetResult, Truth, dict[str, AttackReport]]:
        """Calls an attack in each form, and scores it."""
        attack, adversary, target = task.use.name, task.adversary, task.target
        component = self.composition.part(attack, Attack)
        seed = int(stream(self.recipe.seed, "attack", task.key).integers(2**31))
        view = View(adversary, target=target, round=occasion.round, seed=seed)
        if known is not None:
            # Members of what the update was made from; released models are made from all a client has.
            batches = occasion.moment.batches if occasion.moment and adversary != "released" else {}
            view, truth = self._view(view, known, truth, component, batches.get(target))
        size = len(truth.labels)  # of the probe
        finds = component.finds
        if finds.needs.told:
            truth = self.truths.of(occasion.round, target, None, None)
        update = view.update
        guesses = self.scorer.baselines(finds.what, truth)
        outcomes, reports = dict[str, Outcome](), dict[str, AttackReport]()
        for form, name in self._forms(attack, component, view).items():
            self.watch.target(task.key, form, self.done, self.total)
            started = time.process_time()
            report = self._call(name, _apart(view), "the adversary is the target itself" if known is None else "")
            spent = time.process_time() - started
            outcomes[form] = self.scorer.outcome(report, truth, guesses, finds, spent)
            if update is not None and update.meaning.clip_norm is not None:
                outcomes[form].excuse(f"a clip to {update.meaning.clip_norm:g} may hide how long what is visible was")
            reports[form] = report
        ranking = Ranking(*finds.headline)
        ranked = {form: outcome.metrics.get(ranking.metric, math.nan) for form, outcome in outcomes.items()}
        batch = occasion.batch
        result = TargetResult(
            key=task.key, attack=attack, use=task.use.use, options=task.use.options.model_dump(mode="json"),
            adversary=adversary, round=occasion.round + 1, client=target,
            probe=ProbedBatch(size, batch.number + 1, batch.classes) if batch else None,
            digest=task.digest, settings=task.settings, states=update.shares() if update else {},
            unplaced=update.unplaced if update else 0, meaning=update.meaning if update else None,
            finds=sorted(finds.what), ranking=ranking, success=Success(*finds.success) if finds.success[0] else None,
            better=self.scorer.better, baselines=guesses, forms=outcomes,
            headline=attack_results.stronger(ranked, ranking.better),
            truth=TrueClasses(truth.counts.tolist(), truth.labels.tolist()), picture=f"{task.key}.png",
        )  # fmt: skip
        return result, truth, reports

    def _forms(self, attack: str, component: Attack, view: View) -> dict[str, str]:
        """The forms to try, each with the name of the component; two only where something is hidden."""
        hides = view.update is not None and not bool(view.update.visible.all())
        if not (self.scope.compare_forms and hides and attack in self.twins):
            return {component.form or ADAPTIVE: attack}
        if component.form == NAIVE:
            return {ADAPTIVE: self.twins[attack], NAIVE: attack}
        return {ADAPTIVE: attack, NAIVE: self.twins[attack]}

    def _view(
        self, view: View, known: Known, truth: Truth, component: Attack, batch: Examples | None
    ) -> tuple[View, Truth]:
        """Fills in what the adversary knows, and for a challenge the candidates, from `batch` or all its data."""
        data = self.rewound.client(0).data
        model: Model | None = None
        if known.vector is not None:
            model = copy.deepcopy(self.model)
            model.set_vector(known.vector)
            model.set_buffers(known.buffers or self.buffers)
        view = dataclasses.replace(
            view,
            messages=known.messages, update=known.update, vector=known.vector, personal=known.personal, model=model,
            num_classes=len(data.classes), shape=data.shape, mean=data.mean, std=data.std,
            segmentation=data.train.targets is not None, heard=known.heard,
        )  # fmt: skip
        if component.finds.needs.candidates and view.target is not None:
            candidates, members = self.truths.challenge(view.target, view.seed, self.scope.candidates, batch)
            view = dataclasses.replace(view, candidates=candidates)
            truth = dataclasses.replace(truth, members=members)
        return view, truth

    def _call(self, name: str, view: View, unmet: str) -> AttackReport:
        """Runs one form of an attack, if the view has what it needs."""
        component = self.composition.part(name, Attack)
        if reason := unmet or component.finds.needs.unmet(view, self.rewound.public):
            return AttackReport(NOT_APPLICABLE, reason=reason)
        try:
            answer = self.composition.one("attack", name, view=view, ctx=self._context(view.round, component))
        except PluginError as error:  # what it raised is not an answer; the other targets still count
            why = describe(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            self.watch.note(f"{name} stopped with an error: {why}")
            return AttackReport(FAILED, reason=f"the attack stopped with an error: {why}")
        except FedplugError as error:
            return AttackReport(NOT_APPLICABLE, reason=str(error))
        try:
            return checked(answer, view)
        except ViewError as error:
            self.watch.note(f"{name}: {error}")
            return AttackReport(FAILED, reason=str(error))

    def _context(self, round: int, component: Attack) -> Context:
        """The public facts, without the components of the run: they could lead to data."""
        attacker = Attacker(device=self.device, progress=self.watch.progress)
        public = self.rewound.public
        ctx = make_context(self.recipe, self.composition, self.model.layout, round, attacker, public)
        attacker.ctx = dataclasses.replace(ctx, components={component.name: component})
        return attacker.ctx

    def _draw(self, result: TargetResult, truth: Truth, reports: dict[str, AttackReport]) -> None:
        images = {form: report.images for form, report in reports.items()}
        scores = {form: report.members for form, report in reports.items() if report.members is not None}
        if not any(report.images is not None or report.counts is not None or report.labels is not None
                   or report.members is not None for report in reports.values()):  # fmt: skip
            result.picture = None  # nothing was found that could be shown
            return
        members = Challenge(truth.members, scores) if scores and truth.members is not None else None
        self.folder.mkdir(exist_ok=True)
        try:
            attack_pictures.draw(self.folder / f"{result.key}.png", result, truth.images, images, members)
        except Exception as error:  # a picture is worth less than the numbers it shows
            self.watch.note(f"the picture of {result.key} is left out: {describe(error)}")
            result.picture = None

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _recorded(self, last: int) -> list[Message]:
        """What was recorded up to a round, which is all that an attack on it may know."""
        messages: list[Message] = []
        for file in sorted((self.run_dir / "wire").glob("round-*.wire")):
            if int(file.stem.partition("-")[2]) > last + 1:
                break
            try:
                messages += read_wire(file)
            except Exception as error:  # whatever a damaged file makes of itself
                remedy = "without the file only probes, and rounds before it, can be attacked"
                raise ViewError(f"{file} is damaged ({describe(error)}); {remedy}") from error
        return messages

    def _twins(self) -> dict[str, str]:
        """For each attack with a form, the name of the same attack in the other form."""
        twins = {}
        for use in self.section.attacks:
            component = self.composition.part(use.name, Attack)
            if component.form is None or use.is_reference:
                continue
            other: Literal["adaptive", "naive"] = "naive" if component.form == ADAPTIVE else "adaptive"
            twin = component.in_form(other)
            if twin is not None:
                twins[use.name] = f"{use.name}/{other}"
                self.composition.add(twin, twins[use.name])
        return twins

    def _metrics(self) -> dict[str, Metric]:
        """The recipe's metrics, or else every installed one that is computed by default."""
        if self.section.metrics:
            return {use.name: self.composition.part(use.name, Metric) for use in self.section.metrics}
        found: dict[str, Metric] = {}
        for entry in self.catalog.groups["metric"].values():
            metric: type[Metric] = entry.load()
            # One that cannot do without options is for recipes to name; what it measures may follow from them.
            if any(field.is_required() for field in metric.Options.model_fields.values()):
                continue
            one = metric(metric.Options())
            if one.measures.default:
                one.name, found[entry.name] = entry.name, one
        return found


def _apart(view: View) -> View:
    """The view with arrays and a model of its own: an attack that works in place must not change what others get."""
    update, candidates = view.update, view.candidates
    if update is not None:
        states, values, sigma = update.states.copy(), update.values.copy(), update.sigma.copy()
        clips = tuple(dataclasses.replace(clip, where=clip.where.copy()) for clip in update.clips)
        update = dataclasses.replace(update, states=states, values=values, sigma=sigma, clips=clips)
    if candidates is not None:
        candidates = Examples(candidates.inputs.copy(), candidates.labels.copy())
    vector, personal = (None if array is None else array.copy() for array in (view.vector, view.personal))
    model = copy.deepcopy(view.model)
    return dataclasses.replace(
        view, update=update, candidates=candidates, vector=vector, personal=personal, model=model
    )  # fmt: skip
