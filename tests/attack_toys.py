"""Small attacks and metrics that behave in known ways, and ways to run attacks without the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import fedplug
import numpy as np
from fedplug import (
    Clip,
    Facts,
    Field,
    Finds,
    Known,
    Measures,
    Noise,
    Operations,
    Plan,
    Plans,
    Scale,
)
from fedplug.api.errors import MetricError, ViewError
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.views.adversaries import Adversary
from fedplug_attacks.views.observer import Known as KnownOfTarget
from fedplug_attacks.workshop.command import attack, wanted, with_section
from fedplug_attacks.workshop.display import AttackDisplay
from fedplug_attacks.workshop.run import AttackRun
from fedplug_attacks.workshop.stage import Stage
from fedplug_runs import execution
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from toy_base import Toy
from toy_components import toy_catalog

Deed = Literal[
    "finish", "raise", "refuse", "diverge", "interrupt", "dictionary", "nan_images", "strange_numbers", "text", "spoil"
]


class Echo(Toy, fedplug.Attack):
    """Keep the input, and return what the options say."""

    class Options(fedplug.Options):
        """The behaviour, and its targets."""

        form: Literal["adaptive", "naive"] = Field("adaptive", description="how hidden entries are taken")
        does: Deed = Field("finish", description="what it does at the targets in `at`")
        at: tuple[int, ...] | None = Field(None, description="targets; null: all of them")
        grey: float = Field(0.5, description="of the images that it finds; the naive form finds them darker by 0.2")
        finds: tuple[str, ...] = Field(("images", "labels"), description="what it finds")

    heard: ClassVar[list[tuple[View, Attacker]]] = []

    @property
    def finds(self) -> Finds:
        """As the options say; from a challenge, if it is to find members."""
        members = "members" in self.options.finds
        needs = Needs(update=not members, model=False, candidates=members, loss=None, classification=False)
        return Finds(needs=needs, what=frozenset(self.options.finds), headline=("toy_distance", "low"),
                     success=("toy_distance", "<=", 0.3))  # fmt: skip

    @property
    def form(self) -> Literal["adaptive", "naive"]:
        """As the options say."""
        form: Literal["adaptive", "naive"] = self.options.form
        return form

    def in_form(self, form: Literal["adaptive", "naive"]) -> Echo:
        """With the other options as they are."""
        return Echo(self.options.model_copy(update={"form": form}))

    def attack(self, view: View, attacker: Attacker) -> Any:
        """Keeps its arguments, and finds a grey image and a count of one for each class."""
        self.heard.append((view, attacker))
        grey = np.full((2, *view.shape), self.options.grey - 0.2 * (self.options.form == "naive"), np.float32)
        report = AttackReport(
            "finished",
            images=grey if "images" in self.options.finds else None,
            counts=np.ones(view.num_classes) if "labels" in self.options.finds else None,
            members=np.arange(float(len(view.candidates))) if view.candidates else None,
            seed=view.seed, gradient_evaluations=3, losses=(2.0, 1.0),
        )  # fmt: skip
        attacker.progress(1, 1, 0.5)
        at = self.options.at
        return report if at is not None and view.target not in at else self._deed(report, view)

    def _deed(self, report: AttackReport, view: View) -> Any:
        does = self.options.does
        if does == "raise":
            raise ZeroDivisionError("the toy divided")
        if does == "refuse":
            raise ViewError("the toy wants none of this")
        if does == "interrupt":
            raise KeyboardInterrupt
        if does == "diverge":
            return AttackReport("diverged", reason="the loss became NaN at step 3", losses=(1.0, float("nan")))
        if does == "dictionary":
            return {"status": "finished"}
        if does == "nan_images":
            return dataclasses.replace(report, images=np.full_like(report.images, np.nan), losses=(float("nan"),))
        if does == "strange_numbers":
            losses = (np.float32(1.5), np.float64("nan"))
            own = {"of numpy": np.float32(2.5), "infinite": np.inf}
            return dataclasses.replace(
                report, seed=np.int64(5), gradient_evaluations=np.int32(7), losses=losses, metrics=own
            )
        if does == "text":
            return dataclasses.replace(report, images="a picture", metrics={"what": "no number"})
        if does == "spoil" and view.update is not None:  # an attack that works in place, as torch makes easy
            for array in (view.update.values, view.vector):
                if array is not None and array.flags.writeable:
                    array[:] = 7
            if view.model is not None:
                view.model.set_vector(np.full(view.model.layout.size, 7, np.float32))
        return report


class Bare(Toy, fedplug.Attack):
    """Look for nothing and need nothing."""

    finds = Finds(
        needs=Needs(update=False, model=False, loss=None, classification=False), what=frozenset(),
        headline=("", "high"), success=("", ">=", float("inf")),
    )  # fmt: skip

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """Reports how much it can read."""
        return AttackReport("finished", {"messages": len(view.messages)})


class LayerClip(Toy, fedplug.Protector):
    """Multiply by a factor, clip each layer to a norm, and add noise, twice as much to each layer as to the last."""

    class Options(fedplug.Options):
        """How far, and how much."""

        factor: float = Field(1.0, description="that values are multiplied by")
        norm: float = Field(1.0, gt=0, description="of each layer")
        scale: float = Field(0.0, ge=0, description="of the noise on the first layer; 0: no noise")

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A public factor, a clip a layer and noise a layer."""
        scales = tuple((self.options.scale * 2.0 ** np.arange(len(facts.layout.layers))).tolist())
        clip = Scale(self.options.factor), Clip((self.options.norm,) * len(scales), per="layer")
        return (*clip, Noise.gaussian(scales, source="reproducible")) if self.options.scale else clip


class Measure(Toy, fedplug.Metric):
    """The base of every toy metric."""


def measures(kind: str = "images", **better: str) -> Measures:
    """The quantities that a toy metric compares."""
    return Measures(kind=kind, better=better, conventions="none")


class Distance(Measure):
    """Mean squared error."""

    measures = measures(toy_distance="low")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """Over all images."""
        assert found.images is not None
        return {"toy_distance": float(np.mean((found.images - truth.images) ** 2))}


class CountError(Measure):
    """Total error of the counts."""

    measures = measures("labels", toy_count_error="low")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """Over all classes."""
        return {"toy_count_error": float(np.abs(np.asarray(found.counts) - truth.counts).sum())}


class Hits(Measure):
    """Share of the candidates with the highest scores that are members."""

    measures = measures("members", toy_hits="high")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """Among as many as there are members."""
        assert found.members is not None
        assert truth.members is not None
        top = np.argsort(-found.members)[: int(truth.members.sum())]
        return {"toy_hits": float(truth.members[top].mean())}


class Agreement(Measure):
    """Largest difference between the visible part of the update and the update."""

    measures = measures("update", toy_agreement="low", toy_visible="high")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """And how much was visible."""
        assert truth.update is not None
        assert truth.observed is not None
        visible = truth.observed.visible
        gap = np.abs(truth.observed.values - truth.update[visible])
        return {"toy_agreement": float(gap.max(initial=0)), "toy_visible": float(visible.mean())}


class Undefined(Measure):
    """Never defined, except sometimes for random guesses of counts."""

    measures = measures("labels", toy_odd="high")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """Of odd counts of the first class only."""
        if int(np.asarray(found.counts)[0]) % 2 == 0 or (np.asarray(found.counts) == 1).all():
            raise MetricError("the toy metric needs an odd count; take another")
        return {"toy_odd": 1.0}


class NotANumber(Measure):
    """NaN and infinity."""

    measures = measures(toy_nan="high", toy_infinite="high")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """Both."""
        return {"toy_nan": float("nan"), "toy_infinite": float("inf")}


class Broken(Measure):
    """Raise an error that no metric should."""

    measures = measures(toy_broken="high")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """Never."""
        raise IndexError("the toy metric looked too far")


class InTurn(Toy, fedplug.PublicPlan):
    """Send the whole model in one zone a round, or its first layer in one and the rest in another."""

    class Options(fedplug.Options):
        """Which zones."""

        zones: tuple[str, ...] = Field(min_length=1, description="of the first rounds; the last: of all others")
        first: str | None = Field(None, description="zone of the first layer in all rounds; null: as the rest")

    @property
    def plans(self) -> Plans:
        """All of them."""
        return Plans(zones=frozenset(filter(None, [*self.options.zones, self.options.first])))

    def plan(self, facts: Facts) -> Plan | str:
        """By the number of the round alone."""
        zone = self.options.zones[min(facts.round, len(self.options.zones) - 1)]
        if self.options.first is None:
            return str(zone)
        (first, *_) = facts.layout.layer_slices().values()
        return Plan.of(facts, zone, **{self.options.first: np.concatenate([np.r_[part] for part in first])})


ATTACKS: dict[str, dict[str, type]] = {
    "negotiate_mask": {"toy.in_turn": InTurn},
    "protect": {"toy.layer_clip": LayerClip},
    "attack": {"toy.echo": Echo, "toy.bare": Bare},
    "metric": {
        "toy.distance": Distance, "toy.count_error": CountError, "toy.hits": Hits, "toy.agreement": Agreement,
        "toy.undefined": Undefined, "toy.not_a_number": NotANumber, "toy.broken": Broken,
    },
}  # fmt: skip
USUAL = ("toy.distance", "toy.count_error", "toy.hits", "toy.agreement")


@functools.cache
def attack_catalog() -> Catalog:
    """The installed components, the toys and the attacks here. Looked up once, because it takes a while."""
    catalog = toy_catalog()
    for group, classes in ATTACKS.items():
        for name, found in classes.items():
            value = f"{found.__module__}:{found.__qualname__}"
            catalog.groups[group][name] = Entry(name, group, value, "toys", "0", found)
    return catalog


def attacks_of(*names: str, metrics: Sequence[str] = USUAL, **scope: Any) -> dict[str, Any]:
    """A section `attack`."""
    return {"attacks": [{"use": name} for name in names], "metrics": [{"use": name} for name in metrics], **scope}


def finished_run(
    plain: dict[str, Any], output: Path, *, record: bool = True, engine: str = "local", workers: int | None = None
) -> Path:
    """Runs a recipe. Returns its folder."""
    catalog = attack_catalog()
    settings = Settings(output=output, quiet=True, record_wire=record, engine=engine, workers=workers)
    with contextlib.redirect_stdout(io.StringIO()):
        code, folder = execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
    assert code == 0
    return folder


def attacked(
    folder: Path, *names: str, sets: Sequence[str] = (), metrics: Sequence[str] = USUAL, **scope: Any
) -> dict[str, dict[str, Any]]:
    """Runs attacks on a finished run. Returns all results by key."""
    Echo.heard.clear()
    with contextlib.redirect_stdout(io.StringIO()):
        code = attack(folder, Settings(quiet=True), names, metrics, scope, sets, attack_catalog())
    assert code == 0
    return results(folder)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """All results in a run folder by key; JSON that holds NaN is refused."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"a result holds {constant}")

    found = {}
    for file in sorted((folder / "attacks").glob("*.json")):
        found[file.stem] = json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    return found


@contextlib.contextmanager
def machinery(folder: Path, *names: str, **scope: Any) -> Iterator[AttackRun]:
    """The attacks of a run, built and not yet executed."""
    catalog, file = attack_catalog(), folder / "recipe.yaml"
    ran = load_recipe(file, (), catalog)
    section = wanted(ran, catalog, names or ("toy.echo",), USUAL, scope, ())
    recipe = with_section(ran, file, catalog, section, ())
    stage = Stage(ran, folder, None, "cpu", catalog, AttackDisplay(io.StringIO(), quiet=True))
    try:
        yield AttackRun(recipe, stage)
    finally:
        stage.close()


def observed(
    folder: Path, adversary: str = "server", target: int = 0, round: int = 1, **scope: Any
) -> tuple[KnownOfTarget, Truth]:
    """An adversary's knowledge about a target in a round (from 1), and the truth."""
    with machinery(folder, adversaries=[adversary], rounds=[round], **scope) as run:
        return seen(run, adversary, target)


def seen(run: AttackRun, name: str, target: int, number: int = 0) -> tuple[KnownOfTarget, Truth]:
    """The same of attacks that are built: of their first round, and of one batch of a probe."""
    ((round, names), *_) = run.occasions.rounds()
    occasions = run.occasions.of(round, "released" in names)
    occasion = next(each for place, each in enumerate(occasions) if place == number)
    adversary = Adversary.of(name, target, occasion.clients, run.scope.protected_links)
    assert adversary is not None
    known = run._known(occasion, adversary, target)
    return known, run.truths.of(occasion.round, target, occasion.moment, known.update)


def reachable(*roots: Any) -> Iterator[tuple[str, Any]]:
    """Every object reachable from the given ones by attributes, items, closures and bound methods, with its path.

    Not through classes, modules and the globals of functions, because objects there do not belong to this run.
    """
    stack: list[tuple[str, Any]] = [(f"<{type(root).__name__}>", root) for root in roots]
    known: dict[int, Any] = {}
    while stack:
        path, found = stack.pop()
        if id(found) in known or isinstance(found, type | types.ModuleType | str | bytes | int | float | None):
            continue
        known[id(found)] = found  # kept alive, so that no other object gets its id
        yield path, found
        inside: list[tuple[str, Any]] = []
        if isinstance(found, dict):
            inside += [(f"[{key!r}]", value) for key, value in found.items()]
            inside += [(".keys", key) for key in found]
        elif isinstance(found, list | tuple | set | frozenset):
            inside += [(f"[{place}]", value) for place, value in enumerate(found)]
        if isinstance(found, np.ndarray) and found.base is not None:
            inside.append((".base", found.base))
        for name in ("__self__", "__func__", "__wrapped__", "func", "args", "keywords", "gi_frame"):
            if not isinstance(found, dict) and hasattr(type(found), name):
                inside.append((f".{name}", getattr(found, name)))
        if isinstance(found, types.FunctionType):
            inside += [(f".closure[{place}]", cell) for place, cell in enumerate(found.__closure__ or ())]
            inside += [(".defaults", found.__defaults__), (".kwdefaults", found.__kwdefaults__)]
        if isinstance(found, types.CellType):
            with contextlib.suppress(ValueError):
                inside.append((".cell", found.cell_contents))
        if isinstance(found, types.FrameType):
            inside.append((".locals", found.f_locals))
        if hasattr(found, "__dict__"):
            inside += [(f".{key}", value) for key, value in vars(found).items()]
        for kind in type(found).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for slot in [slots] if isinstance(slots, str) else slots:
                if hasattr(found, slot):
                    inside.append((f".{slot}", getattr(found, slot)))
        stack += [(path + step, value) for step, value in inside]


class Runs:
    """Finished runs, each made once.

    Args:
        output: the folder of their run folders.
    """

    def __init__(self, output: Path) -> None:
        self._output, self._known = output, dict[str, Path]()

    def of(self, plain: dict[str, Any], **how: Any) -> Path:
        """The run of a recipe; see `finished_run`."""
        key = json.dumps([plain, how], sort_keys=True)
        if key not in self._known:
            self._known[key] = finished_run(plain, self._output / str(len(self._known)), **how)
        return self._known[key]
