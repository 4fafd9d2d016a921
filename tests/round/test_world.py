"""One world per process: public and client objects are built once, and parties still share no component."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import Client, Facts
from fedplug.api.data import Dataset, Model
from fedplug.api.errors import DataError, TooFewClients
from fedplug.engines.base import Job, host_of
from fedplug.engines.local import LocalEngine
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import World
from fedplug_runs import execution
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_std.models import Mlp
from fedplug_std.partitions import Dirichlet
from mix_toys import install
from toy_base import Toy
from toy_components import TinyDigits, recipe_of, toy_catalog
from toy_protocol import run_protocol

RECIPE = Path(__file__).parents[2] / "recipes" / "leakage.yaml"


@pytest.mark.slow
def test_a_run_with_attacks_builds_data_partition_and_model_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            built[f"{owner.__name__}.{name}"] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    recipe = load_recipe(RECIPE, ["rounds=1", "attack.targets=[0]"])
    count(World, "__init__")
    count(Composition, "__init__")
    count(Dirichlet, "assign")
    count(Mlp, "build")
    assert execution.start(recipe, Settings(output=tmp_path, quiet=True))[0] == 0
    # For each party, in the run and again in the parties taken back, and three for the attacks.
    assert built.pop("Composition.__init__") <= 9
    assert built == {"World.__init__": 1, "Dirichlet.assign": 1, "Mlp.build": 1}


def test_a_model_of_the_world_is_ones_own_and_components_are_not_in_it() -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(), catalog)
    composition = Composition(recipe)
    world = World(recipe, composition, None)
    first, second = world.model("cpu"), world.model("cpu")
    initial = first.get_vector()
    assert np.array_equal(second.get_vector(), initial)
    first.set_vector(initial + 1)
    assert np.array_equal(second.get_vector(), initial)
    assert np.array_equal(world.model("cpu").get_vector(), initial)
    engine = LocalEngine(Job(recipe.to_plain(), catalog=catalog, key_server=True, world=world))
    hosts = [*engine.hosts]
    parts = [set(map(id, host.composition.components.values())) for host in hosts]
    assert len(parts) == 2
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & set(map(id, composition.components.values()))


def test_clients_of_a_given_world_have_the_data_of_a_separate_world() -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(), catalog)
    job = Job(recipe.to_plain(), catalog=catalog)
    apart = LocalEngine(job).clients
    world = World(recipe, Composition(recipe), None)
    given = LocalEngine(Job(recipe.to_plain(), catalog=catalog, world=world))
    for address, client in apart.clients.items():
        other = given.clients.clients[address]
        assert np.array_equal(client.data.train.inputs, other.data.train.inputs)
        assert np.array_equal(client.data.own_test.labels, other.data.own_test.labels)
        assert np.array_equal(client.vector, other.vector)


class Theirs(Mlp):
    """A model of another distribution."""


def test_a_model_of_others_begins_each_message_as_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process has one client, what its model kept of one message would be there in the next."""
    install(monkeypatch, {"model": {"toy.theirs": Theirs}})
    recipe, catalog = recipe_of(model={"use": "toy.theirs", "hidden": [4]}), toy_catalog()
    host = LocalEngine(Job(Recipe.from_plain(recipe, catalog).to_plain(), catalog=catalog)).clients
    (address, client), *_ = host.clients.items()
    before = host.model_for(client)
    assert host.model_for(client) is before
    host.deliver(address, b"no message")
    assert host.model_for(client) is not before


class Random(TinyDigits):
    """Other examples in every process, unless a seed is given."""

    class Options(TinyDigits.Options):
        seed: int | None = None

    def load(self, root: str | None) -> Dataset:
        """Part of the digits."""
        whole = super().load(root)
        chosen = np.random.default_rng(self.options.seed).permutation(len(whole.train.labels))[:40]
        return dataclasses.replace(whole, train=whole.train.take(chosen))


@pytest.mark.parametrize(("seed", "alike"), [(None, False), (3, True)])
def test_examples_of_others_code_must_be_the_same_in_every_process(
    seed: int | None, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, {"dataset": {"toy.random": Random}})
    catalog = toy_catalog()
    data = {"use": "toy.random", "seed": seed, "clients": 2, "partition": "std.iid"}
    recipe = Recipe.from_plain(recipe_of(data=data), catalog)
    world = World(recipe, Composition(recipe), None)
    job = Job(recipe.to_plain(), catalog=catalog, data=world.digest)
    with nullcontext() if alike else pytest.raises(DataError, match="gives other training examples, or splits them"):
        host_of(job, [0])


class Remembers(Toy, fedplug.ModelSource):
    """A model that keeps how often values were set, and adds it."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """A linear one."""
        built = Mlp(Mlp.Options(hidden=[])).build(shape, num_classes, seed, device)
        real, times = built.set_vector, itertools.count()
        built.set_vector = lambda vector: real(vector + next(times))  # type: ignore[method-assign]
        return built


def test_what_a_model_of_others_keeps_reaches_no_other_client(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"model": {"toy.remembers": Remembers}})
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(model="toy.remembers"), catalog)
    host = LocalEngine(Job(recipe.to_plain(), catalog=catalog)).clients
    first, second = host.clients["client:0"], host.clients["client:1"]
    before = host.model_for(first)
    assert host.model_for(first) is before
    other = host.model_for(second)
    assert other is not before


class Writes(fedplug.Scorer):
    """Change the public examples in place, as if to normalise them."""

    class Options(fedplug.Options):
        """What is written to."""

        what: str = "public"

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        assert facts.public is not None
        shared = {
            "public": facts.public.examples.inputs, "test": client.data.shared_test.labels, "vector": client.vector
        }  # fmt: skip
        shared[self.options.what].flat[0] = client.client_id
        return np.zeros(facts.layout.size, np.float32)


@pytest.mark.parametrize("what", ["public", "test", "vector"])
def test_nobody_can_write_to_what_all_share(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = toy_components.TOYS["score_parameters"]
    monkeypatch.setitem(toy_components.TOYS, "score_parameters", {**there, "toy.writes": Writes})
    plain = recipe_of(score_parameters=[{"use": "toy.writes", "what": what}], rounds=1)
    plain["data"] = plain["data"] | {"public": 8}
    with pytest.raises(TooFewClients, match="read-only"):
        run_protocol(plain)
