"""A plugin that breaks: the component and its hook are named, and a file has the traceback, which is not printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
import yaml
from fedplug import Block, Client, Combine, Dataset, Facts, Known, Look, Model, Operations
from fedplug.api.errors import ERRORS, FedplugError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.execution import start
from fedplug_runs.settings import Settings
from fedplug_runs.shown import Display, display_of
from toy_components import recipe_of, toy_catalog


class Breaks:
    """Where: raise from here."""

    at: ClassVar[str] = ""

    def here(self, where: str) -> None:
        if Breaks.at == where:
            raise KeyError("lost")


class BadData(fedplug.DataSource, Breaks):
    """A data set that may break."""

    def load(self, root: str | None) -> Dataset:
        self.here("load")
        from fedplug_std.datasets import Digits

        return Digits(Digits.Options()).load(root)


class BadPartition(fedplug.Partition, Breaks):
    """A partition that may break."""

    def assign(self, labels: Any, num_clients: int, rng: np.random.Generator) -> Any:
        self.here("assign")
        return np.array_split(np.arange(len(labels)), num_clients)


class BadModel(fedplug.ModelSource, Breaks):
    """A model that may break."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        self.here("build")
        from fedplug_std.models import Mlp

        return Mlp(Mlp.Options(hidden=())).build(shape, num_classes, seed, device)


class BadTrainer(fedplug.Trainer, Breaks):
    """A trainer that may break."""

    def setup(self, cohort: Any, key_server: Any, facts: Facts) -> None:
        self.here("setup")

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        self.here("train")
        return {"loss": 0.0}


class BadScorer(fedplug.Scorer, Breaks):
    """A scorer that may break."""

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        self.here("score_parameters")
        return np.zeros(facts.layout.size, np.float32)


class BadProtector(fedplug.Protector, Breaks):
    """A protector that may break."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        if facts.layout.size:  # the check of the recipe knows no model
            self.here("protect")
        return (Look(self.look),)

    def look(self, block: Block, client: Client, facts: Facts) -> None:
        self.here("look")


class BadAggregator(fedplug.Aggregator, Breaks):
    """An aggregator that may break."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (Combine(self.add),)

    def add(self, blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        self.here("add")
        return fedplug.add_blocks(blocks, weights, facts)


PARTS: dict[str, tuple[str, type]] = {
    "dataset": ("bad.data", BadData), "partition": ("bad.partition", BadPartition), "model": ("bad.model", BadModel),
    "trainer": ("bad.trainer", BadTrainer), "score_parameters": ("bad.scorer", BadScorer),
    "protect": ("bad.protector", BadProtector), "aggregate": ("bad.aggregator", BadAggregator),
}  # fmt: skip


@pytest.mark.parametrize(("at", "said"), [
    ("load", "component bad.data, load: KeyError"), ("assign", "component bad.partition, assign: KeyError"),
    ("build", "component bad.model, build: KeyError"), ("setup", "component bad.trainer, setup: KeyError"),
    ("train", "component bad.trainer, train: KeyError"),
    ("score_parameters", "component bad.scorer, hook score_parameters: KeyError"),
    ("protect", "component bad.protector, hook protect: KeyError"),
    ("look", "component bad.protector, hook protect, zone clear, Look: KeyError"),
    ("add", "component bad.aggregator, hook aggregate, zone clear, Combine: KeyError"),
])  # fmt: skip
def test_a_component_that_breaks_is_named(
    at: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedplug.recipe.catalog import Entry

    catalog = toy_catalog()
    for group, (name, found) in PARTS.items():
        catalog.groups[group][name] = Entry(name, group, f"{found.__module__}:{found.__qualname__}", "bad", "0", found)
    plain = recipe_of(
        chain=[{"use": "bad.protector"}], data={"use": "bad.data", "clients": 4, "partition": {"use": "bad.partition"}},
        model={"use": "bad.model"}, train={"use": "bad.trainer"}, score_parameters=[{"use": "bad.scorer"}],
        aggregate={"use": "bad.aggregator"},
    )  # fmt: skip
    recipe = Recipe.from_plain(yaml.safe_load(yaml.safe_dump(plain)), catalog)
    monkeypatch.setattr(Breaks, "at", at)
    watch: Display = display_of("terminal", quiet=True)
    with pytest.raises(FedplugError) as error:
        start(recipe, Settings(output=str(tmp_path), quiet=True), catalog, watch=watch)
    assert said in str(error.value)
    assert "lost" in str(error.value)
    assert "Traceback" not in str(error.value) + "".join(capsys.readouterr())
    logs = list(tmp_path.glob(f"*/{ERRORS}"))
    if logs:  # a run that never began leaves no folder
        assert "Traceback" in logs[0].read_text()
        assert "raise KeyError" in logs[0].read_text()
        assert logs[0].stat().st_mode & 0o077 == 0
