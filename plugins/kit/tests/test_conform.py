"""Every first-party component does what it says; and a component that does not is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Bound, Client, Context, Effects, Field, Known, Noise, hookimpl
from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import Catalog
from fedplug_kit.conform import conformance
from own_file_toys import HALVE

OURS = {f"fedplug-{name}" for name in ("std", "paraaegis", "selectiveshield", "sensecrypt", "fas", "fedre", "attacks",
                                       "borda", "rowlog")}  # the baselines have their own list; fmt: skip

NAMES = sorted({entry.name for entry in Catalog.discover() if entry.distribution in OURS and entry.group != "engine"})
GAUSSIAN = {"noise_multiplier": 1.0, "source": "reproducible"}
OPTIONS: dict[str, dict[str, Any]] = {
    "attacks.lpips": {"folder": "absent"},
    "attacks.dlg": {"iterations": 3}, "attacks.idlg": {"iterations": 3},
    "attacks.inverting": {"iterations": 5}, "attacks.gradinversion": {"iterations": 5},
    "fedre.layer_budgets": {
        "epsilon": 8, "delta": 1e-5, "norm": 0.5, "source": "reproducible", "by": "kit.layer_scores",
    },
    "fedre.documents": {"train_count": 60, "test_count": 20},
    "fedre.pixel_noise": {"std": 0.5, "lr": 0.1, "source": "reproducible"},
    "fedre.psi": {"source": "calibration"},
    "fedre.receipts": {"train_count": 60, "test_count": 20},
    "fedre.sensitive_layers": {"layers": 1, "by": "kit.layer_scores"},
    "paraaegis.literal_noise": {"epsilon": 8},
    "selectiveshield.noise": GAUSSIAN,
    "std.central_gaussian": {**GAUSSIAN, "norm": 1.0},
    "std.clip": {"norm": 1.0}, "std.clip_l1": {"norm": 1.0},
    "std.paillier": {"key_bits": 2048},
    "std.gaussian": GAUSSIAN, "std.laplace": GAUSSIAN,
    "sensecrypt.select": {"budget": 0.5},
    "std.categories": {"categories": 5},
    "std.image_folder": {"path": "absent"},
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
    "fedre.pixel_noise": {"model": "std.mlp"},
    "sensecrypt.paillier": {"model": {"use": "kit.two_layers", "hidden": 1}},  # milliseconds a scalar
    "std.paillier": {"model": {"use": "kit.two_layers", "hidden": 8}},  # milliseconds a hundred of them
}  # fmt: skip
"""What a component needs around it that the kit's own recipe has not."""
SHAPES = {"std.densenet121": (1, 32, 32), "std.alexnet": (3, 64, 64)}


SLOW = ("sensecrypt.paillier",)  # std.paillier is the same scheme


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in NAMES])
def test_a_component_does_what_it_says(name: str) -> None:
    conformance(name, OPTIONS.get(name, {}), recipe=RECIPES.get(name), shape=SHAPES.get(name, (1, 28, 28)))


# -- components that break their word ----------------------------------------------------------------------------------


class WrongShape(fedplug.Protector):
    """Gives a column instead of a row."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return ()

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain()[:, None])


class MakesNan(fedplug.Protector):
    """Divides by zero."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (fedplug.Changes(),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=np.full(block.size, np.nan, np.float32))


class KeepsState(fedplug.Protector):
    """Counts its calls on itself."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.calls = 0

    def effects(self, known: Known, ctx: Context) -> Effects:
        return ()

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        self.calls += 1
        return block


class BreaksBound(fedplug.Protector):
    """States a bound of 1 and lets values be twice as long."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Bound(1.0),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        values = block.plain().astype(np.float64)
        return block.replace(values=(values * min(1.0, 2 / max(np.linalg.norm(values), 1e-9))).astype(np.float32))


class OtherScale(fedplug.Protector):
    """States noise of one standard deviation and adds four fifths of it."""

    class Options(fedplug.Options):
        std: float = Field(1.0, description="what it states")

    def effects(self, known: Known, ctx: Context) -> Effects:
        known.need_norm("put a clip before it")
        return (Noise(mechanism="gaussian", scale=self.options.std, source="reproducible"),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        noise = 0.8 * self.options.std * client.rng(self).standard_normal(block.size)
        return block.replace(values=(block.plain() + noise).astype(np.float32))


class SameNoise(OtherScale):
    """Adds what it states, and the same in every round: the difference of two uploads holds none of it."""

    effects = OtherScale.effects

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        memory = client.memory(self)
        if "noise" not in memory:
            memory["noise"] = self.options.std * client.rng(self).standard_normal(block.size)
        return block.replace(values=(block.plain() + memory["noise"]).astype(np.float32))


class PartlySameNoise(OtherScale):
    """Adds what it states, a tenth of whose variance is the same in every round."""

    effects = OtherScale.effects

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        memory, new = client.memory(self), client.rng(self, "new").standard_normal(block.size)
        if "noise" not in memory:
            memory["noise"] = client.rng(self, "kept").standard_normal(block.size)
        noise = self.options.std * (np.sqrt(0.9) * new + np.sqrt(0.1) * memory["noise"])
        return block.replace(values=(block.plain() + noise).astype(np.float32))


class SameCentralNoise(fedplug.Opener):
    """Adds noise to every sum, and the same in every round."""

    site = "server"

    def opens(self, known: Known, ctx: Context) -> Effects:
        known.need_norm("put a clip before it")
        return (Noise(mechanism="gaussian", scale=1.0, trust="central", source="reproducible"),)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        noise = fedplug.stream(ctx.seed, self.name).standard_normal(block.size)
        return block.replace(values=(block.plain() + noise).astype(np.float32))


class SaysPublic(fedplug.Scorer):
    """Says that its scores follow from public facts, and takes them from the update."""

    scoring = fedplug.Scoring(public=True)

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> Any:
        assert client.update is not None
        return np.abs(client.update)


class PublicAtFirst(SaysPublic):
    """In round 1 its scores are alike for all data."""

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> Any:
        assert client.update is not None
        return np.abs(client.update) * np.float32(ctx.round > 0)


class Forgets(fedplug.Negotiation):
    """Asks something that it states nowhere."""

    plans = fedplug.Plans(zones=frozenset({"clear"}), public=True)

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        cohort.ask(self.size)
        cohort.tell(self.adopt)

    @fedplug.at_client
    def size(self, client: Client) -> int:
        return client.num_examples

    @fedplug.at_client
    def adopt(self, client: Client) -> None:
        client.plan = fedplug.Plan.single("clear", client.ctx.layout.size, client.ctx.zones)


@pytest.mark.parametrize(("found", "said"), [
    (WrongShape, r"its values are float32\[\d+, 1\], which must be float32\[\d+\]: one for each scalar"),
    (MakesNan, r"it made \d+ finite values of \d+ NaN or infinite"),
    (KeepsState, "keeps calls on itself"),
    (BreaksBound, "states an L2 norm of at most 1, and gave values of norm 2"),
    (OtherScale, r"states noise of standard deviation 1, and adds 0\.[78]"),
    (SameNoise, r"its noise of round 2 follows that of round 1: a correlation of \+1\.00, where chance explains 0\.0"),
    (PartlySameNoise, r"its noise of round 2 follows that of round 1: a correlation of \+0\.1"),
    (SameCentralNoise, r"its noise of round 2 follows that of round 1: a correlation of \+1\.00"),
    (SaysPublic, "its scores are said to be public, and change with the clients' data"),
    (PublicAtFirst, "its scores are said to be public, and change with the clients' data"),
    (Forgets, "asks clients for size, and says nowhere what the answers show"),
])  # fmt: skip
def test_a_component_that_breaks_its_word_is_found_out(found: type, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        conformance(found)


def test_a_class_of_a_file_of_ones_own_is_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halve.py").write_text(HALVE, encoding="utf-8")
    conformance("halve.py:Halve", {"factor": 0.75})
    Path("cut.py").write_text(HALVE.replace("block.plain()", "block.plain()[:1]"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"own\.cut\.halve"):
        conformance("cut.py:Halve")
    with pytest.raises(PluginError, match=r"halve\.py has no component Gone"):
        conformance("halve.py:Gone")
