"""`fedplug attack --update`: attacks on updates that the server of another framework logged.

The user states what such a server knows anyway: the model, the shape of an example, how the client trained. From these
facts follows the recipe of a run in the clear, which builds the model and names the attacks; from the files follow the
views. Only with `--truth` can anybody say whether a finding is right.
"""

from __future__ import annotations

import dataclasses
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import Examples
from fedplug.api.errors import SetupError
from fedplug.api.parties import threads_of_a_party
from fedplug.api.roles import Attack
from fedplug.recipe.composition import Composition
from fedplug.recipe.source import Marks, Position, Source
from fedplug.round.world import World
from fedplug_runs import overlay, yaml_source
from fedplug_runs.choice import options_of
from fedplug_runs.execution import INTERRUPTED
from fedplug_runs.files import private_folder, private_process, write_bytes, write_text
from fedplug_runs.machine import resolve_device, terminated_like_interrupted
from fedplug_runs.own_files import with_files
from fedplug_runs.trust import RUNS
from fedplug_std.torch_model import TorchModel
from threadpoolctl import threadpool_limits

from fedplug_attacks import AttackReport, Observation, Truth, View
from fedplug_attacks.api.needs import takes_inputs
from fedplug_attacks.api.report import FINISHED, NOT_APPLICABLE
from fedplug_attacks.views.logged import Facts, Server, arrays, files_in, outputs, tensors
from fedplug_attacks.workshop import pictures
from fedplug_attacks.workshop.calls import Caller
from fedplug_attacks.workshop.command import full_name
from fedplug_attacks.workshop.default_set import EXACT, LEAK, MINUTES, SEARCH, TEXTS, TOKENS
from fedplug_attacks.workshop.display import AttackDisplay, make_attack_display
from fedplug_attacks.workshop.scope import AskedAttacks
from fedplug_attacks.workshop.scorer import Scorer, matched, usual_metrics
from fedplug_attacks.workshop.stage import OutOfTime, Timer
from fedplug_attacks.workshop.target_truth import truth_of
from fedplug_attacks.workshop.words import metric_words

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe
    from fedplug_runs.settings import Settings

    from fedplug_attacks.workshop.records import Outcome

_TEXTS = "std.language_model"
_FOUND = ("images", "labels", "counts", "presence", "tokens", "texts", "share")


class _Stated:
    """Whose options the facts are, for messages."""

    Options = Facts


@dataclasses.dataclass(frozen=True)
class Logged:
    """What the command line says of updates from elsewhere.

    Attributes:
        update, start: files of the update and of the global model that it was made from, or folders of a file a round.
        model: as in a recipe.
        facts: `name=value` each.
        secret: parameters that the server could not read.
        truth: a file with the client's examples; None: nobody here knows them.
        public: a file with public examples, as `std.arrays` reads it.
        out: folder for what is found.
    """

    update: Path
    start: Path
    model: str
    facts: Sequence[str] = ()
    secret: Sequence[str] = ()
    truth: Path | None = None
    public: Path | None = None
    out: Path | None = None


def attack_logged(
    logged: Logged, settings: Settings, attacks: Sequence[str], sets: Sequence[str], quick: bool, minutes: float | None
) -> int:
    """Attacks updates from elsewhere; returns the exit code, 130 after an interruption.

    Args:
        logged: the updates, and what is known of them.
        settings: of this machine.
        attacks: names of attacks; if empty those for this kind of data.
        sets: `attack.path=value`, over the options of these.
        quick: whether to leave out searches.
        minutes: after which no further attack is started; None: as in the default set.

    Raises:
        SetupError: a file cannot be read, or does not fit the model; a fact is wrong or missing.
        RecipeError: there is no such model or attack, or it has other options.
    """
    facts, start, update = _facts(logged.facts), logged.start, logged.update
    starts, updates = files_in(start, "--global"), files_in(update, "--update")
    if len(starts) not in (1, len(updates)):
        raise SetupError(
            f"--global {start} has {len(starts)} files and --update {update} has {len(updates)}; give a global model "
            "for each update, or one for all"
        )
    pairs = [*zip(starts * (len(updates) // len(starts)), updates, strict=True)]
    out = logged.out or Path(f"attack-{update.stem}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SetupError(f"{out} holds something already; name a folder that is empty, or not there: --out DIR")
    watch = make_attack_display(settings.quiet)
    try:
        with terminated_like_interrupted(), private_process(), threadpool_limits(threads_of_a_party(), "blas"):
            bench = _Bench(logged, facts, outputs(tensors(starts[0])), settings, attacks, sets, quick, watch)
            bench.timer.allow(MINUTES if minutes is None else minutes)
            bench.attack([bench.server.saw(*pair, round) for round, pair in enumerate(pairs)], out)
    except KeyboardInterrupt:
        watch.note(f"interrupted; what was found is in {out}")
        return INTERRUPTED
    finally:
        watch.close()
    return 0


def _facts(given: Sequence[str]) -> Facts:
    named: dict[str, Any] = {}
    for fact in given:
        name, equals, text = fact.partition("=")
        read = yaml_source.read_text(text, f"--fact {name}", in_file=False)
        if not equals or read.problems:
            raise SetupError(f"--fact {fact}: write name=value, such as --fact 'shape=[1, 28, 28]'")
        named[name] = read.data
    found = options_of("--fact", _Stated, named)
    assert isinstance(found, Facts)
    return found


_OPTIONS = {"model": "--model", "public": "--public", "data": "--fact", "train": "--fact", "task": "--fact",
            "attack": "--attack"}  # fmt: skip
"""The option that each part of the recipe follows from; complaints name it as the place."""


def _read(plain: Mapping[str, Any], sets: Sequence[str], catalog: Catalog) -> Recipe:
    """The recipe that was put together."""
    source = Source("given", plain)
    for key, option in _OPTIONS.items():
        source.marks[key,] = Marks(Position(option), Position(option))
    overlay.override(source, sets)
    return overlay.finished(source, catalog)


class _Bench:
    """The model, the attacks and the scorer of one command."""

    def __init__(
        self, logged: Logged, facts: Facts, classes: int, settings: Settings, attacks: Sequence[str],
        sets: Sequence[str], quick: bool, watch: AttackDisplay,
    ) -> None:  # fmt: skip
        catalog, device = with_files(None, settings.plugins, RUNS), resolve_device(settings.device)
        self.facts, self.classes, self.watch = facts, facts.classes or classes, watch
        plain = self._as_recipe(logged)
        recipe = _read(plain, (), catalog)
        world = World(recipe, Composition(recipe), settings.data_root)
        model = world.model(device)
        if not isinstance(model, TorchModel):
            raise SetupError(f"--model {logged.model} is no torch module, whose gradients attacks could compute")
        self.model, self.server = model, Server(model, facts, logged.secret)
        wanted = [{"use": full_name(name, "attack", catalog)} for name in attacks] or self._usual(quick)
        recipe = _read(plain | {"attack": {"attacks": wanted}}, sets, catalog)
        asked, self.composition, self.timer = AskedAttacks.of(recipe), Composition(recipe), Timer(watch.progress)
        assert asked is not None
        self.uses = asked.attacks
        self.caller = Caller(
            self.composition, model.layout, world.public, device, self.timer.progress, watch.note
        )  # fmt: skip
        self.scorer = Scorer(usual_metrics(catalog), world.public, world.mean, recipe.seed)
        self.truth = None if logged.truth is None else self._truth(logged.truth)

    def _as_recipe(self, logged: Logged) -> dict[str, Any]:
        """A run as the facts describe it, of this client and another."""
        facts, (model, options) = self.facts, yaml_source.use_of(logged.model, "--model")
        named = [str(number) for number in range(self.classes)]
        mean, std = facts.scaled
        agreed = {"shape": [*facts.shape], "classes": named, "mean": [*mean], "std": [*std]}
        public = {} if logged.public is None else {"use": "std.arrays", "file": str(logged.public.resolve())}
        return {
            "name": "logged", "seed": 0, "rounds": 1,
            "data": {"use": "std.arrays", "at": "sites", "clients": 2, "agreed": agreed},
            "model": {**options, "use": model},
            "train": {
                "use": "std.sgd", "lr": facts.lr or 1.0, "epochs": facts.epochs or 1,
                "batch_size": facts.batch_size or facts.examples or 1,
            },
            "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
            "aggregate": "std.mean", **({"task": facts.task} if facts.task else {}),
            **({"public": public} if public else {}),
        }  # fmt: skip

    def _usual(self, quick: bool) -> list[Mapping[str, Any]]:
        """The attacks for this kind of data, the cheap ones first."""
        if self.facts.task == _TEXTS:
            return [TOKENS] if quick else [TOKENS, TEXTS]
        closed = takes_inputs(self.model.layout, self.facts.shape)
        cheap = [{"use": "attacks.ilrg"}, {"use": "attacks.labels"}, *([LEAK] if closed else [])]
        return cheap if quick else [*cheap, *([EXACT] if closed else []), SEARCH]

    def _truth(self, path: Path) -> Truth:
        held = arrays(path)
        inputs, labels = held.get("images", held.get("inputs")), held.get("labels")
        if inputs is None or labels is None or inputs.shape[1:] != self.facts.shape or labels.shape != inputs.shape[:1]:
            has = ", ".join(f"{name} {list(array.shape)}" for name, array in held.items())
            wanted = ", ".join(map(str, self.facts.shape))
            raise SetupError(f"--truth {path} must hold images or inputs [n, {wanted}] and labels [n]; it has {has}")
        return truth_of(Examples(inputs, labels.astype(np.int64)), self.classes, self.facts.scaled[1])

    def attack(self, rounds: Sequence[Observation], out: Path) -> None:
        """Makes every attack on every round, and writes what is found as soon as it is."""
        update, told = rounds[-1].update, list[dict[str, Any]]()
        said = f"{update.visible.mean():.1%} of {self.model.layout.size:,} parameters"
        if self.facts.sent is None:
            said += f"; taken for a {self.server.sent}: --fact sent=... says otherwise"
        if self.server.still:
            said += f"; {', '.join(self.server.still)} did not move, and count as not trained"
        total = len(rounds) * len(self.uses)
        self.watch.start(total, {"rounds": len(rounds), "seen": said})
        try:
            for round, last in enumerate(rounds):
                for use in self.uses:
                    key = f"{use.name}-round{round + 1}" if len(rounds) > 1 else use.name
                    self.watch.target(key, "", len(told) + 1, total)
                    told.append({"attack": key} | self._attacked(use.name, rounds[: round + 1], last, out / key))
                    self.watch.say(f"[{len(told)}/{total}] {key}: {told[-1]['result']}", "")
        finally:
            private_folder(out)
            about = {"facts": self.facts.model_dump(mode="json"), "secret": sorted(self.server.secret)}
            write_text(out / "found.json", json.dumps(about | {"attacks": told}, indent=1))
        self.watch.note(f"all that was found is in {out}")
        if unsaid := self.facts.unsaid:
            names = ", ".join(f"--fact {name}=..." for name in unsaid)
            self.watch.note(f"a server knows more than it was said to: attacks may find more with {names}")
        if self.truth is None:
            self.watch.note("without --truth nobody here can say what of it is right: look at it, or ask the client")

    def _attacked(self, name: str, rounds: Sequence[Observation], last: Observation, place: Path) -> dict[str, Any]:
        """What an attack found in a round, in short; writes the rest."""
        component = self.composition.part(name, Attack)
        if self.timer.late:
            return {"status": "left out", "result": "left out because time is up; raise --minutes"}
        started = time.process_time()
        try:
            report = self.caller.call(name, self._view(last, rounds if component.finds.needs.rounds else ()), "")
        except OutOfTime:
            return {"status": "left out", "result": "stopped because time is up; raise --minutes"}
        spent = time.process_time() - started
        outcome = None
        if self.truth is not None:
            truth = dataclasses.replace(self.truth, observed=last.update)
            guesses = self.scorer.baselines(component.finds.what, truth)
            outcome = self.scorer.outcome(report, truth, guesses, component.finds, spent)
        every = {field.name: vars(report)[field.name] for field in dataclasses.fields(report)}
        found = {key: np.asarray(every[key]) for key in _FOUND if every[key] is not None}
        if found:
            self._keep(place, found, report)
        return {
            "status": outcome.status if outcome else report.status,
            "result": self._in_words(report, outcome, component.finds.headline[0]),
            "seconds": round(spent, 2), "own": dict(report.metrics), "metrics": outcome.metrics if outcome else {},
            "recovered": outcome.recovered if outcome else [],
        }  # fmt: skip

    def _view(self, last: Observation, several: Sequence[Observation]) -> View:
        assert last.vector is not None
        self.model.set_vector(last.vector)
        self.model.set_buffers(last.buffers)
        return View(
            "server", target=0, round=last.round, update=last.update, vector=last.vector, model=self.model,
            num_classes=self.classes, shape=self.facts.shape, mean=self.facts.scaled[0], std=self.facts.scaled[1],
            task=self.facts.task, segmentation=bool(self.facts.task), observations=several,
        )  # fmt: skip

    def _keep(self, place: Path, found: Mapping[str, Any], report: AttackReport) -> None:
        """Writes the findings, and images as a picture: below the true ones, where these are known."""
        private_folder(place.parent)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **found)
        write_bytes(place.with_name(f"{place.name}.npz"), buffer.getvalue())
        if report.images is None or not len(report.images) or len(self.facts.shape) != 3:
            return
        rows = [[*report.images[: pictures.MOST_IMAGES]]]
        if self.truth is not None and (pairs := matched(report, self.truth)) is not None:
            true, guess = (side[: pictures.MOST_IMAGES] for side in pairs)
            rows = [[*self.truth.images[true]], [*report.images[guess]]]
        pictures.draw(place.with_name(f"{place.name}.png"), rows)

    def _in_words(self, report: AttackReport, outcome: Outcome | None, headline: str) -> str:
        if report.status == NOT_APPLICABLE:
            return f"does not apply: {report.reason}"
        if report.status != FINISHED:
            return f"{report.status}: {report.reason}"
        if outcome is not None:
            numbers = [metric_words(headline, outcome.metrics[headline])] if headline in outcome.metrics else []
            if self.truth is not None and (report.images is not None or report.texts is not None):
                numbers.insert(0, f"{len(outcome.recovered)} of {len(self.truth.labels)} recovered")
            return ", ".join([outcome.status, *numbers, *filter(None, [outcome.reason])])
        lists = {"images": report.images, "texts": report.texts, "tokens": report.tokens}
        found = [f"{len(each)} {what}" for what, each in lists.items() if each is not None]
        if report.counts is not None and not found:
            found = [f"{count:.0f} of class {label}" for label, count in enumerate(report.counts) if count >= 0.5]
        doubt = f"; inconclusive: {report.unfit}" if report.unfit else ""
        return f"found {', '.join(found) or 'nothing'}{doubt}"
