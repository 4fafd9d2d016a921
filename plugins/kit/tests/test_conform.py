"""Every first-party component passes, and the mistakes of wrong components are found."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    Clip,
    Combine,
    Facts,
    Known,
    Look,
    Map,
    Noise,
    Operations,
    Post,
    Public,
    Scale,
)  # fmt: skip
from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import Catalog
from fedplug_kit.conform import conformance
from fedplug_kit.parts import PARTS
from own_file_toys import HALVE

OURS = {
    f"fedplug-{name}"
    for name in ("std", "paraaegis", "selectiveshield", "sensecrypt", "fas", "fedre", "attacks", "rowlog")
}  # the baselines have their own list, and borda its own test; fmt: skip

NAMES = sorted({entry.name for entry in Catalog.discover() if entry.distribution in OURS and entry.group != "engine"})
GAUSSIAN = {"noise_multiplier": 1.0, "source": "reproducible"}
OPTIONS: dict[str, dict[str, Any]] = {
    "attacks.lpips": {"folder": "absent"}, "std.alexnet": {"channels": [8] * 5, "hidden": [9]},
    "attacks.dlg": {"iterations": 2, "restarts": 1}, "attacks.idlg": {"iterations": 2, "restarts": 1},
    "attacks.inverting": {"iterations": 5}, "attacks.gradinversion": {"iterations": 5},
    "fedre.layer_budgets": {
        "epsilon": 8, "delta": 1e-5, "norm": 0.5, "source": "reproducible", "by": "kit.layer_scores",
    },
    "fedre.documents": {"train_count": 20, "test_count": 8},
    "fedre.pixel_noise": {"std": 0.5, "lr": 0.1, "source": "reproducible"},
    "fedre.psi": {"source": "calibration", "samples": 2},
    "fedre.receipts": {"train_count": 20, "test_count": 8},
    "fedre.sensitive_layers": {"layers": 1, "by": "kit.layer_scores"},
    "paraaegis.literal_noise": {"epsilon": 8},
    "selectiveshield.noise": GAUSSIAN,
    "std.central_gaussian": {**GAUSSIAN, "norm": 1.0},
    "std.correlated_gaussian": {**GAUSSIAN, "norm": 1.0},
    "std.clip": {"norm": 1.0}, "std.clip_l1": {"norm": 1.0},
    "std.simulated_users": {"users": 20, "of": {"use": "std.digits"}},
    "std.lora": {"rank": 2, "around": {"use": "std.gpt", "width": 8}},
    "std.paillier": {"key_bits": 2048},
    "std.gaussian": GAUSSIAN, "std.distributed_gaussian": GAUSSIAN, "std.laplace": GAUSSIAN,
    "std.distributed_skellam": GAUSSIAN, "std.distributed_discrete_gaussian": GAUSSIAN,
    "std.distributed_correlated_gaussian": GAUSSIAN,
    "sensecrypt.select": {"budget": 0.5},
    "std.categories": {"categories": 5},
    "std.image_folder": {"path": "absent"}, "std.text": {"file": "absent"},
    "std.table": {"file": "absent.csv", "answer": "y"}, "std.text_table": {"file": "absent.csv", "answer": "y"},
    "std.huggingface": {"path": "absent"},
    "std.torchvision": {"dataset": "KMNIST", "path": "absent"},
}  # fmt: skip


FEW = {"model": {"use": "kit.two_layers", "hidden": 8}}
"""Fewer scalars than the kit's own model has. Seals are tried with all, for more than one block of 4096."""
SEALS = ("fas.scramble", "std.bfv", "std.ckks")


def shared(noise: str) -> dict[str, Any]:
    """Noise in whole numbers, in a zone that is sealed after it."""
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": noise, **GAUSSIAN}, {"use": "std.bfv"}]
    return {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": chain}, "postprocess": {"encrypted": ["std.bfv"]},
    }  # fmt: skip


RECIPES: dict[str, dict[str, Any]] = {
    "selectiveshield.hide_support": {
        "negotiate_mask": {"use": "selectiveshield.consensus", "by": "kit.scores", "tau": 0.1},
        "protect": {
            "encrypted": [{"use": "std.bfv"}],
            "noised": [
                {"use": "std.clip", "norm": 1.0}, {"use": "selectiveshield.hide_support"},
                {"use": "std.gaussian", **GAUSSIAN},
            ],
        },
        "postprocess": {"encrypted": ["std.bfv"]},
    },
    "selectiveshield.merge": {
        "negotiate_mask": {"use": "selectiveshield.consensus", "by": "kit.scores", "tau": 0.1},
        "protect": {"encrypted": [{"use": "std.bfv"}], "noised": []},
        "postprocess": {"encrypted": ["std.bfv"], "retained": [{"use": "selectiveshield.merge"}]},
    },
    "std.distributed_gaussian": {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {
            "encrypted": [
                {"use": "std.clip", "norm": 1.0}, {"use": "std.distributed_gaussian", **GAUSSIAN}, {"use": "std.bfv"},
            ],
        },
        "postprocess": {"encrypted": ["std.bfv"]},
    },
    "std.distributed_skellam": shared("std.distributed_skellam"),
    "std.distributed_discrete_gaussian": shared("std.distributed_discrete_gaussian"),
    "std.distributed_correlated_gaussian": {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {
            "encrypted": [
                {"use": "std.clip", "norm": 1.0}, {"use": "std.distributed_correlated_gaussian", **GAUSSIAN},
                {"use": "std.bfv"},
            ],
        },
        "postprocess": {"encrypted": ["std.bfv"]},
    },
    "fedre.pixel_noise": {"model": "std.mlp"},
    "std.by_name": {
        "negotiate_mask": {"use": "std.by_name", "zones": {"retained": ["*.bias"]}},
        "postprocess": {"retained": ["std.by_name"]},
    },
    "sensecrypt.paillier": {"model": {"use": "kit.two_layers", "hidden": 1}},  # milliseconds a scalar
    "std.paillier": {"model": {"use": "kit.two_layers", "hidden": 2}},  # two ciphertexts
}  # fmt: skip
"""What a component needs around it that the kit's own recipe lacks."""
SHAPES: dict[str, tuple[int, ...]] = {
    "std.densenet121": (1, 32, 32), "std.alexnet": (3, 64, 64), "std.gpt": (8,), "std.lora": (8,)
}  # fmt: skip


SLOW = ("sensecrypt.paillier", "std.paillier", "std.resnet50")
"""baselines.batchcrypt is the same scheme, and std.resnet18 the same class."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in NAMES])
def test_a_component_conforms(name: str) -> None:
    recipe = {**({} if name in SEALS else FEW), **RECIPES.get(name, {})}
    conformance(name, OPTIONS.get(name, {}), recipe=recipe, shape=SHAPES.get(name, (1, 28, 28)))


# -- components that do not --------------------------------------------------------------------------------------------


class WrongShape(fedplug.Protector):
    """Gives one value of many."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(lambda block, party, facts: block.plain()[:1]),)


class MakesNan(fedplug.Protector):
    """Divides by the largest value, of which there is none among zeros."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.scaled),)

    def scaled(self, block: Block, party: Any, facts: Facts) -> Any:
        with np.errstate(invalid="ignore"):
            return block.plain() / np.abs(block.plain()).max()


class KeepsState(fedplug.Protector):
    """Counts its calls on itself."""

    calls = 0

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.counted),)

    def counted(self, block: Block, party: Any, facts: Facts) -> Block:
        self.calls += 1
        return block


class Box:
    """Holds something."""

    def __init__(self) -> None:
        self.held: list[int] = []


class KeepsInside(fedplug.Protector):
    """Counts its calls in an object that it holds."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.box = Box()

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.counted),)

    def counted(self, block: Block, party: Any, facts: Facts) -> Block:
        self.box.held.append(facts.round)
        return block


class LaterOnly(fedplug.Protector):
    """Gives nothing while no model is known."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Scale(0.5),) if facts.layout.size else ()


KEPT = {"norm": 1.0}
"""What components here keep in their module, where the core does not see it."""


class Remembers(fedplug.Protector):
    """Clips to the norm that it has seen last, which it keeps in its module."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Look(self.noted), Clip(KEPT["norm"]))

    def noted(self, block: Block, party: Any, facts: Facts) -> None:
        KEPT["norm"] = float(np.linalg.norm(block.plain()))


class PutsBack(Remembers):
    """Has a function behind noise read what it has kept in its module, when it runs."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        noise = Noise.gaussian(known.need_norm("put a clip before it"), source="reproducible")
        return (Look(self.noted), noise, Post(lambda values, public: values * np.float32(KEPT["norm"])))


class Encloses(Remembers):
    """Has a function enclose it."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        most = KEPT["norm"]
        return (Look(self.noted), Map(lambda block, party, facts: block.plain() * np.float32(most)))


class OfTheClock(fedplug.Protector):
    """Scales by the time of day."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Scale(1 + time.perf_counter_ns() % 1000 / 1000),)


class PlansByChance(fedplug.PublicPlan):
    """Draws each plan from the system's randomness."""

    plans = fedplug.Plans(zones=frozenset({"clear", "retained"}))

    def plan(self, facts: Facts) -> fedplug.Plan:
        return fedplug.Plan.of(facts, "clear", retained=np.random.default_rng().random(facts.layout.size) < 0.5)


class Flips(fedplug.Protector):
    """Draws its changes of values from a new generator each time."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Post(lambda values, public: values * np.float32(np.random.default_rng().random())),)


class InPlace(fedplug.Aggregator):
    """Adds up in the first block that it is handed."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (Combine(self.added),)

    def added(self, blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        first, *others = blocks.values()
        values = np.require(first.plain(), requirements="W")
        for block in others:
            values += block.plain()
        return first.replace(values=values, contributors=len(blocks), divisor=float(len(blocks)), weighted=True)


class FirstCounts(InPlace):
    """Takes the first block."""

    def added(self, blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        return next(iter(blocks.values())).replace(contributors=len(blocks), weighted=True)


class Own(fedplug.Protector):
    """Gaussian noise that it draws itself, of the size that its price is for."""

    size = 1.0
    source = "reproducible"

    def protect(self, known: Known, facts: Facts) -> Operations:
        sample = functools.partial(self.drawn, self.norm(known))
        return (Noise.own("gaussian", sample, multiplier=1.0, order=2, source=self.source),)

    def norm(self, known: Known) -> float:
        return known.need_norm("put a clip before it")

    def drawn(self, norm: float, values: Any, public: Public, stream: np.random.Generator) -> Any:
        return (values + self.size * norm * stream.standard_normal(len(values))).astype(np.float32)


class HalfTheNoise(Own):
    """Draws noise of half the size."""

    size = 0.5


class OnceDrawn(Own):
    """Draws the same noise each time."""

    def drawn(self, norm: float, values: Any, public: Public, stream: np.random.Generator) -> Any:
        return super().drawn(norm, values, public, np.random.default_rng(0))


class BareTail(Own):
    """Leaves the last ten values as they are."""

    def drawn(self, norm: float, values: Any, public: Public, stream: np.random.Generator) -> Any:
        return np.concatenate([super().drawn(norm, values[:-10], public, stream), values[-10:]])


class SecureInWords(Own):
    """Declares that nobody can reproduce its noise, but draws it from the seed."""

    source = "secure"


class OfTheHour(Own):
    """Declares that its noise follows from the seed, but draws it elsewhere."""

    def drawn(self, norm: float, values: Any, public: Public, stream: np.random.Generator) -> Any:
        return super().drawn(norm, values, public, np.random.default_rng())


class SaysPublic(fedplug.Scorer):
    """Declares that its scores follow from public facts, but takes them from the update."""

    scoring = fedplug.Scoring(public=True)

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        assert client.update is not None
        return np.abs(client.update)


class PublicAtFirst(SaysPublic):
    """In round 1 its scores are alike for all data."""

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        assert client.update is not None
        return np.abs(client.update) * np.float32(facts.round > 0)


class Forgets(fedplug.Negotiation):
    """Asks a question that it declares nowhere."""

    plans = fedplug.Plans(zones=frozenset({"clear"}))

    def negotiate_mask(self, cohort: Any, facts: Facts) -> None:
        cohort.ask(self.size)
        cohort.tell(self.adopt)

    def reveals(self, facts: Facts) -> list[Any]:
        return []

    @fedplug.at_client
    def size(self, client: Client) -> int:
        return client.num_examples

    @fedplug.at_client
    def adopt(self, client: Client) -> None:
        client.plan = fedplug.Plan.single("clear", client.facts.layout.size, client.facts.zones)


@pytest.mark.parametrize(("found", "said"), [
    (WrongShape, r"hook protect, zone clear, Map: it gave float32\[1\]; its function must give floats \[\d+\]"),
    (MakesNan, r"given zeros: .* hook protect, .* Map: it made \d+ finite values of \d+ NaN or infinite"),
    (KeepsState, r"keeps calls on itself, .* keep it in client\.memory\(self\)"),
    (KeepsInside, r"keeps state in box during a run, .* use party\.memory\(self\)"),
    (Remembers, r"asked again with equal facts after a run, it answers differently, hook protect, .* Clip\.norm"),
    (PutsBack, r"asked again with equal facts after a run, .* Post of the same values; .* cohort\.publish"),
    (Encloses, r"asked again with equal facts after a run, .* Map\.function variables\['most'\]"),
    (OfTheClock, r"asked again with equal facts after a run, .* Scale\.factor; .* the clock"),
    (PlansByChance, "asked again with equal facts after a run, it answers differently, plan of round 1"),
    (LaterOnly, "before a run, while no model is known, it gives nothing, and in round 1 Scale"),
    (Flips, r"asked again with equal facts after a run, .* Post of the same values; .* public\.stream"),
    (InPlace, "hook aggregate, Combine: it changes the blocks that it receives; work on copies"),
    (FirstCounts, "hook aggregate, Combine: given .* in two orders of the clients, it returns two different"),
    (HalfTheNoise, r"its price is an epsilon of .* can be told from zeros in \d+% of the draws"),
    (OnceDrawn, r"Noise\.own\('gaussian'\): it gives the same noise more than once, .* draw afresh in each call"),
    (BareTail, r"10 of \d+ values are unchanged in 16 draws; give each its own noise"),
    (SecureInWords, "it is declared as secure, but follows from the recipe's seed, which protects nobody"),
    (OfTheHour, "it is declared as reproducible, but differs for the same stream"),
    (SaysPublic, "its scores are declared as public, but change with the clients' data"),
    (PublicAtFirst, "its scores are declared as public, but change with the clients' data"),
    (Forgets, "asks clients for size, and says nowhere what the answers show; name the method in Reveals"),
])  # fmt: skip
def test_what_a_component_does_itself_is_looked_at(found: type, said: str) -> None:
    rounds = 2 if found is PublicAtFirst else 1
    with pytest.raises(AssertionError, match=said):
        conformance(found, recipe=FEW | {"rounds": rounds})


def test_noise_of_its_own_that_is_worth_its_price_passes() -> None:
    conformance(Own, recipe=FEW)


def test_a_component_with_the_name_of_a_part_of_the_kit_is_tested_like_any_other() -> None:
    for name, found in (("Scores", WrongShape), ("Still", FirstCounts)):
        assert any(f"kit.{name.lower()}" in parts for parts in PARTS.values())
        with pytest.raises(AssertionError, match=rf"^own\.{name.lower()}:"):
            conformance(type(name, (found,), {"__doc__": found.__doc__, "__module__": __name__}), recipe=FEW)


def test_a_class_of_a_file_of_ones_own_is_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halve.py").write_text(HALVE, encoding="utf-8")
    conformance("halve.py:Halve", {"factor": 0.75})
    cut = HALVE.replace("Scale(self.options.factor)", "fedplug.Map(lambda block, party, facts: block.plain()[:1])")
    Path("cut.py").write_text(cut, encoding="utf-8")
    with pytest.raises(AssertionError, match=r"kit\.cut\.halve"):
        conformance("cut.py:Halve")
    with pytest.raises(PluginError, match=r"halve\.py has no component Gone"):
        conformance("halve.py:Gone")
