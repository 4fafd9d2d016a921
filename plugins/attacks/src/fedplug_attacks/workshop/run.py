"""Runs the attacks of a recipe on a finished run: builds the views, calls the attacks, scores them, writes the results.

    for each moment      the updates of a round as they crossed the wire, or the answers to a probe
      for each adversary and target
        observe          from recorded messages and the adversary's keys: the view
        attack           in its adaptive and in its naive form, where entries are hidden
        score            by the scorer, which alone has the truth
        write            attacks/KEY.json and attacks/KEY.png
"""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path

from fedplug.api.errors import DataError, ViewError, describe
from fedplug.api.files import private_folder
from fedplug.api.operations import Seal
from fedplug.api.parties import Server, stream
from fedplug.api.roles import Attack, Metric
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Use
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import make_context
from fedplug.round.world import World

from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import View
from fedplug_attacks.views.adversaries import Adversary, read_client
from fedplug_attacks.views.observer import Known, Observer
from fedplug_attacks.views.rewind import Rewound
from fedplug_attacks.workshop import pictures as attack_pictures
from fedplug_attacks.workshop import results as attack_results
from fedplug_attacks.workshop.calls import Calls
from fedplug_attacks.workshop.display import AttackDisplay
from fedplug_attacks.workshop.occasions import Occasion, Occasions
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
        self.occasions = Occasions(recipe, self.scope, run_dir)
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
        self.calls = Calls(
            recipe, self.composition, section, self.rewound, self.model, self.buffers, self.truths, device, watch
        )
        public = self.rewound.public
        self.observer = Observer(self.ran, self.composition, self.model.layout, self.initial, public, self.model)
        self.shared_key = any(
            isinstance(operation, Seal) and operation.opened_by == "clients"
            for zone in self.composition.links
            for step in ctx.steps(zone)
            for operation in step.operations
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
        self.occasions.require()
        rounds = self.occasions.rounds()
        self.total = sum(self._count(names) for _, names in rounds)
        facts = {
            "run": str(self.run_dir), "rounds": ", ".join(str(round + 1) for round, _ in rounds),
            "attacks": ", ".join(use.name for use in self.section.attacks),
            "adversaries": ", ".join(self.scope.adversaries), "device": self.device,
        }  # fmt: skip
        self.watch.start(self.total, facts)
        for round, names in rounds:
            for occasion in self.occasions.of(round, "released" in names, self.rewound):
                for name in names:
                    for target in self._targets(occasion):
                        adversary = Adversary.of(name, target, occasion.clients, self.scope.protected_links)
                        self._on_target(occasion, name, adversary, target)
        return self.summary()

    def summary(self) -> AttackSummary:
        """Writes the summary of what is finished, and gives it."""
        return attack_results.write_summary(self.folder, self.adversaries)

    def _count(self, names: list[str]) -> int:
        batches = self.scope.probe.batches if self.scope.probe else 1
        targets = self.recipe.data.clients if self.scope.targets is None else len(self.scope.targets)
        return batches * targets * len(names) * len(self.section.attacks)

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
            view, truth = self.calls.view(view, known, truth, component, batches.get(target))
        size = len(truth.labels)  # of the probe
        finds = component.finds
        if finds.needs.told:
            truth = self.truths.of(occasion.round, target, None, None)
        update = view.update
        guesses = self.scorer.baselines(finds.what, truth)
        outcomes, reports = dict[str, Outcome](), dict[str, AttackReport]()
        for form, name in self.calls.forms(attack, component, view).items():
            self.watch.target(task.key, form, self.done, self.total)
            started = time.process_time()
            report = self.calls.call(name, view, "the adversary is the target itself" if known is None else "")
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

    def _draw(self, result: TargetResult, truth: Truth, reports: dict[str, AttackReport]) -> None:
        images = {form: report.images for form, report in reports.items()}
        scores = {form: report.members for form, report in reports.items() if report.members is not None}
        if not any(report.images is not None or report.counts is not None or report.labels is not None
                   or report.members is not None for report in reports.values()):  # fmt: skip
            result.picture = None  # nothing was found that could be shown
            return
        members = Challenge(truth.members, scores) if scores and truth.members is not None else None
        private_folder(self.folder)
        try:
            attack_pictures.draw(self.folder / f"{result.key}.png", result, truth.images, images, members)
        except Exception as error:  # a picture is worth less than the numbers it shows
            self.watch.note(f"the picture of {result.key} is left out: {describe(error)}")
            result.picture = None

    # -- parts ---------------------------------------------------------------------------------------------------------

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
