"""The scorer: the regions, examples and model that it uses, the scores it keeps, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import fedplug_fedre.psi
import numpy as np
import pytest
import torch
from fedplug import Client, ClientData, Examples, Facts, Scoring
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.data import PublicData
from fedplug.api.errors import DataError, ProtectionError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_fedre.jacobian import psi_scores
from fedplug_fedre.preferences import Preference
from fedplug_fedre.psi import Psi
from fedplug_fedre.samples import calibration_data, sensitive
from fedplug_kit.static import check_component
from fedplug_std.torch_model import TorchModel
from numpy.typing import NDArray
from torch import nn
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

SHAPE, CLASSES = (1, 6, 5), 3


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    fedplug_fedre.psi._PUBLIC.clear()


def psi(**options: Any) -> Psi:
    component = Psi(Psi.Options(**options))
    component.name = "fedre.psi"
    return component


def examples_of(count: int, seed: int) -> Examples:
    """Images; a field of the first kind in the upper rows of all but the first two."""
    rng = np.random.default_rng(seed)
    regions = np.zeros((count, *SHAPE[1:]), np.uint8)
    regions[2:, :2] = 1
    return Examples(rng.integers(0, 256, (count, *SHAPE), np.uint8), rng.integers(0, CLASSES, count), regions=regions)


def network(batch_norm: bool = False) -> TorchModel:
    torch.manual_seed(1)
    norm = [nn.BatchNorm2d(3)] if batch_norm else []
    return TorchModel(nn.Sequential(nn.Conv2d(1, 3, 3), *norm, nn.Tanh(), nn.Flatten(), nn.Linear(36, CLASSES)))


def client_of(
    client_id: int = 0, round: int = 0, public: PublicData | str | None = "some", model: TorchModel | None = None,
    **fields: Any,
) -> Client:  # fmt: skip
    """A client that has trained, with 12 public examples by default."""
    names: Any = {"classes": ("a", "b", "c"), "mean": (0.4,), "std": (0.3,), "region_names": ("date", "total")}
    own = examples_of(12, 100 + client_id)
    model = model or network()
    client = Client(client_id=client_id, data=ClientData(own, own, own, **names), model=model)
    client.vector = model.get_vector()
    client.update = np.full(model.layout.size, 0.05, np.float32)
    for name, value in fields.items():
        setattr(client, name, value)
    if isinstance(public, str):
        public = PublicData(examples_of(12, 5), **names)
    client.facts = Facts(round, 5, model.layout, BASE_ZONES, 4, 2, 7, "digest", {}, public)
    return client


def score(component: Psi, client: Client) -> NDArray[np.float32]:
    return component.score_parameters(client, client.facts)


def test_conforms() -> None:
    check_component("fedre.psi")


# -- what is scored ----------------------------------------------------------------------------------------------------


def test_scores_are_those_of_public_examples_at_the_global_model() -> None:
    """By default: the 10 of the 12 public examples that show a field, in any order."""
    client, component = client_of(), psi()
    public = client.facts.public
    assert public is not None
    expected = psi_scores(client.model, public.examples, public.examples.regions > 0, public)  # type: ignore[operator]
    scores = score(component, client)
    assert scores.dtype == np.float32
    assert scores.shape == (2,)
    np.testing.assert_allclose(scores, expected.mean, rtol=1e-5)
    assert expected.examples == 10
    assert client.log == {"fedre.psi.region_share": pytest.approx(2 / 6), "fedre.psi.relative_error": 0.0}
    assert component.scoring == Scoring(per="layer", public=True)
    assert component.reveals(client.facts) == []


@pytest.mark.parametrize("source", ["public", "calibration"])
def test_scores_do_not_depend_on_private_data(source: Any) -> None:
    """Not on the client's examples, its training, a personal model, or its batch-norm statistics."""
    component = psi(source=source, preference={"box": [1, 1, 4, 4]})
    client = client_of(model=network(batch_norm=True))
    first = score(component, client)
    fedplug_fedre.psi._PUBLIC.clear()
    other = client_of(client_id=3, model=network(batch_norm=True))
    other.model.set_buffers({"1.running_mean": np.full(3, 0.7, np.float32), "1.running_var": np.full(3, 9, np.float32)})
    other.personal, other.update = other.vector + np.float32(1), None
    np.testing.assert_array_equal(score(component, other), first)


def test_the_paper_s_private_examples_at_the_local_model() -> None:
    """The literal choice depends on the client's data, training and batch-norm statistics, and states that."""
    box = {"box": [1, 1, 4, 4]}
    component = psi(source="private", at="local", samples=12, preference=box)
    client = client_of(model=network(batch_norm=True))
    regions = np.zeros((12, *SHAPE[1:]), np.bool_)
    regions[:, 1:4, 1:4] = True
    expected = psi_scores(client.model, client.data.train, regions, client.data, vector=client.local).mean
    np.testing.assert_allclose(score(component, client), expected, rtol=1e-5)
    assert fedplug_fedre.psi._PUBLIC == {}
    elsewhere = score(psi(source="private", samples=12, preference=box), client)
    expected = psi_scores(client.model, client.data.train, regions, client.data, vector=client.vector).mean
    np.testing.assert_allclose(elsewhere, expected, rtol=1e-5)
    assert component.scoring == psi(at="local").scoring == Scoring(per="layer")
    (channel,) = component.reveals(client.facts)
    assert (channel.what, channel.to, channel.covered_by) == ("PSI scores", ("server",), None)
    assert "each client's own examples" in channel.note
    assert "trained model" in psi(at="local").reveals(client.facts)[0].note
    assert component.describe().count("(as published)") == 2
    assert "as_published" not in psi().describe()


def test_the_local_model_with_public_examples() -> None:
    client, moved = client_of(), client_of(update=np.full(network().layout.size, 0.3, np.float32))
    here, there = (score(psi(at="local"), one) for one in (client, moved))
    assert not np.allclose(here, there, rtol=0.05)
    assert fedplug_fedre.psi._PUBLIC == {}


def test_calibration_images_are_noise_with_random_answers() -> None:
    data = client_of().data
    made = calibration_data(data, 400, np.random.default_rng(3))
    assert made.examples.inputs.shape == (400, *SHAPE)
    assert abs(made.examples.inputs.mean() - 127.5) < 2
    assert sorted(set(made.examples.labels.tolist())) == [0, 1, 2]
    assert made.examples.targets is None
    assert (made.mean, made.std) == (data.mean, data.std)
    targets = np.zeros((12, *SHAPE[1:]), np.uint8)
    segmentation = dataclasses.replace(data, train=dataclasses.replace(data.train, targets=targets), kinds=("x", "y"))
    made = calibration_data(segmentation, 400, np.random.default_rng(3))
    assert made.examples.targets is not None
    assert made.examples.targets.shape == (400, *SHAPE[1:])
    assert set(np.unique(made.examples.targets)) == {0, 1, 2}
    assert set(made.examples.labels.tolist()) == {0, 1}
    component = psi(source="calibration", samples=4)
    client = client_of(public=None)
    assert (score(component, client) > 0).all()
    assert client.log["fedre.psi.region_share"] == 1.0  # nothing is marked in noise: whole images


def test_samples_are_examples_that_have_a_region() -> None:
    """Only examples 2 to 11 show a date; three of them are scored, the same in every round."""
    component = psi(samples=3, preference={"fields": ["date"]})
    clients = client_of(), client_of(round=4), client_of(client_id=2)
    tasks = [component.task(client, client.facts) for client in clients]
    assert [len(task.examples) for task in tasks] == [3, 3, 3]
    assert all(task.regions.any((1, 2)).all() for task in tasks)
    for task in tasks[1:]:
        np.testing.assert_array_equal(task.examples.inputs, tasks[0].examples.inputs)


def test_samples_are_the_first_of_an_order_that_have_a_region() -> None:
    regions = np.zeros((200, 1, 2), np.uint8)
    regions[7::50, 0, 1] = 1
    many = Examples(np.arange(400, dtype=np.uint8).reshape(200, 1, 1, 2), np.zeros(200, np.int64), None, regions)
    data = PublicData(many, classes=("one",), mean=(0.5,), std=(0.5,))
    order = np.random.default_rng(1).permutation(200)
    few, theirs = sensitive(Preference(), many, data, None, order, 3)
    np.testing.assert_array_equal(few.inputs, many.inputs[order[order % 50 == 7][:3]])
    assert theirs.tolist() == [[[False, True]]] * 3


def test_private_samples_are_each_client_s_own() -> None:
    component = psi(source="private", samples=5, preference={"box": [0, 0, 2, 2]})
    order = [component.task(client, client.facts).examples.labels for client in (client_of(), client_of(round=1))]
    np.testing.assert_array_equal(order[0], order[1])
    client = client_of(client_id=2)
    client.data = client_of().data
    assert not np.array_equal(component.task(client, client.facts).examples.inputs,
                              component.task(client_of(), client_of().facts).examples.inputs)  # fmt: skip


def test_clients_with_individual_preferences(tmp_path: Path) -> None:
    """Client 1's boxes are in its own folder, by the number of the public example. The others share a box."""
    (tmp_path / "boxes.json").write_text(json.dumps({"3": [0, 0, 5, 6], "8": [0, 5, 5, 6]}))
    component = psi(preference={"box": [0, 0, 5, 2]}, preferences={"1": {"boxes": "boxes.json"}})
    client = client_of(client_id=1, data_root=str(tmp_path))
    task = component.task(client, client.facts)
    public = client.facts.public
    assert public is not None
    assert sorted(task.regions.sum((1, 2)).tolist()) == [5, 30]
    whole = task.examples.inputs[task.regions.all((1, 2))]
    np.testing.assert_array_equal(whole, public.examples.inputs[[3]])
    others = [score(component, client_of(client_id=k)) for k in (0, 2)]
    np.testing.assert_array_equal(*others)
    assert not np.allclose(score(component, client), others[0], rtol=0.01)
    (channel,) = component.reveals(client.facts)
    assert channel.what == "privacy preference"
    assert component.scoring == Scoring(per="layer", public=False)  # no other party has the file
    assert component.public_scores(client.model, client.vector, client.facts) == {}


def test_every_party_can_compute_public_scores() -> None:
    """From the global model and the public examples, each client's by the preference that the recipe gives it."""
    component = psi(preference={"box": [0, 0, 5, 2]}, preferences={"1": {"box": [0, 4, 5, 6]}})
    clients = [client_of(client_id=k, round=2) for k in range(4)]
    found = component.public_scores(network(), clients[0].vector, clients[0].facts)
    assert sorted(found) == [0, 1, 2, 3]
    for client in clients:
        np.testing.assert_array_equal(found[client.client_id], score(component, client))
    assert not np.array_equal(found[0], found[1])
    assert psi(refresh="once").public_scores(network(), clients[0].vector, clients[0].facts) == {}  # of another round
    for private in ({"source": "private"}, {"at": "local"}, {"source": "calibration"}):
        assert psi(**private).public_scores(network(), clients[0].vector, clients[0].facts) == {}


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_equal_public_scores_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of one process have the same global model and regions. Each is charged for the scores."""
    calls: list[Any] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(options)
        return psi_scores(*arguments, **options)

    monkeypatch.setattr(fedplug_fedre.psi, "psi_scores", counted)
    component = psi(preferences={1: {"box": [0, 0, 2, 2]}}, method="projections", projections=8)
    clients = [client_of(client_id=k) for k in (0, 1, 2)]
    scores = [score(component, client) for client in clients]
    assert len(calls) == 2
    np.testing.assert_array_equal(scores[0], scores[2])
    assert clients[2].log == clients[0].log
    for client in clients:
        count, seconds = client.operations["psi pass"]
        assert (count, seconds > 0) == (10 * 2 * 8, True)
    assert clients[0].operations["psi pass"] == pytest.approx(clients[2].operations["psi pass"])
    later = client_of(round=1)
    assert not np.array_equal(score(component, later), scores[0])  # other projections
    moved = client_of(vector=network().get_vector() * np.float32(1.1))
    score(component, moved)
    score(psi(samples=3, method="projections", projections=8), client_of())
    assert len(calls) == 5


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedplug_fedre.psi, "_MOST", 3)
    for round in range(5):
        score(psi(samples=1), client_of(round=round))
    assert len(fedplug_fedre.psi._PUBLIC) == 3


def test_options_of_the_method_arrive() -> None:
    client = client_of()
    exact, few, more = (
        score(psi(method=method, projections=count), client_of())
        for method, count in (("exact", 16), ("projections", 4), ("projections", 64))
    )
    component = psi(method="projections", projections=64)
    score(component, client)
    assert 0 < client.log["fedre.psi.relative_error"] < 0.05
    assert np.all(np.abs(more / exact - 1) < 0.15)
    assert not np.array_equal(few, more)


def test_refresh_once_keeps_the_first_scores() -> None:
    """They are in the client's state, which a checkpoint holds."""
    component, client = psi(refresh="once"), client_of()
    first = score(component, client)
    later = client_of(round=1, vector=client.vector * np.float32(2), state=client.state)
    np.testing.assert_array_equal(score(component, later), first)
    assert not np.allclose(score(psi(), client_of(vector=client.vector * np.float32(2))), first, rtol=0.05)


# -- in a run ----------------------------------------------------------------------------------------------------------


def recipe(**options: Any) -> dict[str, Any]:
    """Segmentation with a region in every image; budgets by score, reproducible noise."""
    budgets = {"use": "fedre.layer_budgets", "epsilon": 50, "delta": 1e-5, "norm": 1.0, "source": "reproducible"}
    return recipe_of(
        "noised", [budgets],
        data={"use": "toy.stripes", "clients": 3, "public": 12, "partition": {"use": "std.iid"}},
        model={"use": "toy.pixelwise"},
        score_parameters=[{"use": "fedre.psi", **options}],
    )  # fmt: skip


def test_a_run_on_documents_is_the_same_in_every_engine() -> None:
    """Client 1 has an individual preference. Segmentation, fields marked by the data."""
    plain = recipe(preference={"fields": ["bright"]}, preferences={"1": {"box": [0, 0, 3, 3]}})
    local, processes = (run_protocol(plain, engine) for engine in ("local", "processes"))
    np.testing.assert_array_equal(local.vector, processes.vector)
    shares = [[row.log["fedre.psi.region_share"] for row in one.rows] for one in (local, processes)]
    assert shares[0] == shares[1]
    assert all(0.2 < share < 0.4 for share in shares[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "public"}, "source: public needs public examples; write data: {public: 32, ...}"),
        ({"source": "calibration", "preference": {"fields": ["bright"]}}, "random images have none; give a box"),
        ({"source": "calibration", "preferences": {"7": {}}}, "preferences: client 7 must be 0 to 2"),
        ({"source": "calibration", "preferences": {"0": {"fields": ["all"]}}}, "random images have none"),
        ({"preference": {"box": [4, 0, 2, 2]}}, "must have 0 <= x0 < x1"),
        ({"preference": {"box": [0, 0, 2, 2], "mask": "a.png"}}, "given by one of box, boxes"),
        ({"samples": 0}, "samples=0 must be >= 1"),
        ({"projections": 3}, "projections=3 must be >= 4"),
        ({"source": "secret"}, "source='secret' must be 'public', 'calibration' or 'private'"),
    ],
)
def test_wrong_recipes_are_refused_before_anything_runs(changes: Any, message: str) -> None:
    plain = recipe(**changes)
    plain["data"] = plain["data"] | {"public": 0}
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain, toy_catalog())
    assert message in str(caught.value)


def test_a_public_section_is_as_good() -> None:
    plain = recipe()
    plain["data"] = plain["data"] | {"public": 0}
    Recipe.from_plain(plain | {"public": {"use": "std.digits"}}, toy_catalog())


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_no_public_examples() -> None:
    with pytest.raises(ProtectionError, match=r"source=public, but there are no public examples; write data: {public"):
        score(psi(), client_of(public=None))


def test_no_example_with_a_region() -> None:
    with pytest.raises(DataError, match=r"the preference \(fields\) marks no pixel in any of 12 examples"):
        score(psi(preference={"fields": ["total"]}), client_of())


def test_a_region_outside_the_image() -> None:
    with pytest.raises(DataError, match=r"\[0, 0, 6, 2\] .* lies outside the image, which is 5 wide and 6 high"):
        score(psi(preference={"box": [0, 0, 6, 2]}), client_of())


def test_scores_that_say_nothing() -> None:
    """A model that no longer depends on its input, and one that has diverged."""
    model = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(30, 4), nn.ReLU(), nn.Linear(4, CLASSES)))
    nn.init.constant_(model.module[1].bias, -1e3)  # type: ignore[union-attr, arg-type]
    with pytest.raises(ProtectionError, match=r"client 0: fedre\.psi: all 2 scores are 0: no layer depends on the"):
        score(psi(), client_of(model=model))
    diverged = np.full(network().layout.size, np.nan, np.float32)
    with pytest.raises(ProtectionError, match="scores of layers: 2 of 2 are NaN or infinite; its training diverged"):
        score(psi(), client_of(vector=diverged))


def test_a_layer_that_says_nothing_scores_zero() -> None:
    """Only the layer after a unit that is always off. The budgets lift its score to the floor."""
    model = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(30, 4), nn.Tanh(), nn.Linear(4, CLASSES)))
    nn.init.zeros_(model.module[3].weight)  # type: ignore[union-attr, arg-type]
    scores = score(psi(), client_of(model=model))
    assert scores[0] == 0
    assert scores[1] > 0
