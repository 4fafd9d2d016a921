"""FedML-HE: the label derivative is the per-sample gradient, and the mask is that of the weighted mean of the maps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
import pytest
from examples import examples
from fedplug import Block, Examples, KeyServer, Layout, Server
from fedplug.api import codec
from fedplug.api.data import About
from fedplug.api.errors import ProtectionError, RecipeError, TooFewClients
from fedplug.api.links import Link
from fedplug.recipe.recipe import Recipe
from fedplug_baselines import fedml_he_sensitivity
from fedplug_baselines.fedml_he import FedMLHE, select
from fedplug_baselines.fedml_he_sensitivity import FedMLHESensitivity, label_derivatives, mean_sensitivity
from fedplug_runs.checkpoint import read_file
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toy_components import recipe_of
from toy_protocol import Outcome, read_clients, run_protocol, weights_of
from toy_sealers import Bare

SENSITIVITY = "baselines.fedml_he_sensitivity"


def recipe(ratio: float = 0.2, holder: str = "key_server", **changes: Any) -> dict[str, Any]:
    return recipe_of(
        negotiate_mask={"use": "baselines.fedml_he", "ratio": ratio},
        score_parameters=[{"use": SENSITIVITY}],
        protect={"encrypted": [{"use": "std.bfv", "key_holder": holder}], "clear": []},
        postprocess={"encrypted": ["std.bfv"]},
    ) | changes  # fmt: skip


# -- the sensitivity ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case() -> Any:
    """A small network with two hidden units, six examples of three classes, and a point to differentiate at."""
    import torch
    from fedplug_std.torch_model import TorchModel

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2), torch.nn.Tanh(), torch.nn.Linear(2, 3))
    rng = np.random.default_rng(0)
    examples = Examples(rng.random((6, 1, 2, 2), np.float32), np.array([0, 1, 2, 2, 1, 0]))
    data = About(classes=("a", "b", "c"), mean=(0.5,), std=(0.25,))
    model = TorchModel(network)
    return SimpleNamespace(model=model, examples=examples, data=data, vector=model.get_vector())


@pytest.fixture(scope="module")
def jacobians(case: Any) -> Any:
    """d/dy (dl/dw), (n, C, P), as the authors' code has it: each element of the gradient derived by the label."""
    import torch
    from fedplug_std.torch_model import to_tensor

    inputs = to_tensor(case.examples.inputs, case.data.mean, case.data.std)
    found = []
    for example, label in zip(inputs, case.examples.labels, strict=True):
        one_hot = torch.nn.functional.one_hot(torch.tensor([label]), 3).float().requires_grad_()
        loss = -(one_hot * torch.log_softmax(case.model.module(example.unsqueeze(0)), 1)).sum()
        gradient = torch.autograd.grad(loss, case.model.parameters, create_graph=True)
        elements = torch.cat([part.reshape(-1) for part in gradient])
        rows = [torch.autograd.grad(element, one_hot, retain_graph=True)[0][0] for element in elements]
        found.append(torch.stack(rows, 1))
    return torch.stack(found).detach().numpy()


def test_the_label_derivative_is_minus_the_gradient_of_log_p(case: Any, jacobians: Any) -> None:
    derivatives = np.concatenate(list(label_derivatives(case.model, case.examples, case.data, case.vector)))
    assert derivatives.shape == (6, 3, 4 * 2 + 2 + 2 * 3 + 3)
    assert np.abs(derivatives - jacobians).max() < 1e-5


def test_at_the_true_label_it_is_the_per_sample_gradient(case: Any, jacobians: Any) -> None:
    """The fact that reduces FedML-HE's map to one backward pass per example."""
    import torch
    from fedplug_std.torch_model import to_tensor

    inputs = to_tensor(case.examples.inputs, case.data.mean, case.data.std)
    for example, label, jacobian in zip(inputs, case.examples.labels, jacobians, strict=True):
        loss = torch.nn.functional.cross_entropy(case.model.module(example.unsqueeze(0)), torch.tensor([label]))
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, case.model.parameters)])
        assert np.abs(gradient.numpy() - jacobian[label]).max() < 1e-5
    found = mean_sensitivity(case.model, case.examples, case.data, case.vector, every_label=False)
    true = np.stack([jacobian[label] for jacobian, label in zip(jacobians, case.examples.labels, strict=True)])
    assert np.abs(found - np.abs(true).mean(0)).max() < 1e-5


def test_every_label_takes_the_norm_over_the_classes(case: Any, jacobians: Any, monkeypatch: Any) -> None:
    found = mean_sensitivity(case.model, case.examples, case.data, case.vector, every_label=True)
    assert np.abs(found - np.linalg.norm(jacobians, axis=1).mean(0)).max() < 1e-5
    monkeypatch.setattr(fedml_he_sensitivity, "_DERIVATIVE_BYTES", 1)  # one example at a time
    again = mean_sensitivity(case.model, case.examples, case.data, case.vector, every_label=True)
    assert np.allclose(found, again, rtol=1e-5, atol=0)


def test_the_map_is_made_once_at_the_initial_model(case: Any, make_client: Any) -> None:
    component = FedMLHESensitivity(FedMLHESensitivity.Options(max_examples=4))
    component.name = SENSITIVITY
    client = make_client(case.model.layout, vector=case.vector, model=case.model)
    client.data = SimpleNamespace(train=case.examples, **vars(case.data))
    first = component.score_parameters(client, client.facts)
    expected = mean_sensitivity(case.model, case.examples.take(slice(0, 4)), case.data, case.vector, every_label=False)
    assert np.array_equal(first, expected)
    client.vector = case.vector + 1
    assert component.score_parameters(client, client.facts) is first


# -- the mask ----------------------------------------------------------------------------------------------------------


def test_the_highest_share_is_selected_and_of_equal_scores_the_first() -> None:
    mask = np.unpackbits(select(np.array([1, 3, 2, 3, 2, 0], np.float32), 0.5), count=6)
    assert mask.tolist() == [0, 1, 1, 1, 0, 0]


@settings(max_examples=examples(100))
@given(arrays(np.float32, (3, 12), elements=st.integers(0, 1000)), st.integers(-20, 20), st.floats(0, 1))
def test_the_mask_does_not_change_when_all_weights_or_all_maps_are_scaled(maps: Any, power: int, ratio: float) -> None:
    """Spec 33. Scales are powers of two, which float32 holds exactly."""
    weights, factor = np.array([1, 0.5, 0.25], np.float32), np.float32(2.0**power)
    mask = select(weights @ maps, ratio).tobytes()
    assert select((factor * weights) @ maps, ratio).tobytes() == mask
    assert select(weights @ (factor * maps), ratio).tobytes() == mask


def sums(**changes: Any) -> Bare:
    """In place of an encryption: adds in the clear, on a grid."""
    return Bare(Bare.Options()).varied(name="sums", **changes)


class Scripted(fedplug.Scorer):
    """A scorer whose maps are given."""

    def __init__(self, maps: Any, factor: float) -> None:
        self.maps, self.factor = maps, factor

    def score_parameters(self, client: Any, facts: Any) -> Any:
        """The client's map."""
        return (self.maps[client.client_id] * np.float64(self.factor)).astype(np.float32)


def agreed(make_client: Any, maps: Any, weights: list[float], factor: float = 1.0) -> Any:
    """The masks that clients with these maps find, by the component's own steps."""
    component = FedMLHE(FedMLHE.Options(ratio=0.25, cipher="sums", by="scores"))
    component.name = "baselines.fedml_he"
    parts = {"sums": sums(), "scores": Scripted(maps, factor), component.name: component}
    links = {"encrypted": (Link("encrypted", "protect", "sums", sums(), "client"),)}
    layout = Layout.of([("w", (maps.shape[1],))])
    clients = {c: make_client(layout, parts, client_id=c, links=links) for c in range(len(weights))}
    for client_id, weight in enumerate(weights):
        clients[client_id].remembered.weight = weight

    def ask(method: Any, *payload: Any) -> Any:
        return {client_id: method(client, *payload) for client_id, client in clients.items()}

    facts = clients[0].facts
    server = Server()
    server.remembered.weights = dict(enumerate(weights))
    component.setup(SimpleNamespace(ask=ask, tell=ask, server=server), SimpleNamespace(), facts)  # type: ignore[arg-type]
    return [client.memory(component)["mask"].tolist() for client in clients.values()]


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e9])
def test_the_agreement_does_not_depend_on_the_scale_of_the_scores(make_client: Any, factor: float) -> None:
    """Spec 33, through the scaling that brings the maps into the range of the encryption."""
    maps = np.abs(np.random.default_rng(1).standard_normal((3, 400))).astype(np.float32)
    weights = [1.0, 0.5, 0.25]
    masks = agreed(make_client, maps, weights)
    assert masks[0] == masks[1] == masks[2] == select(np.array(weights, np.float32) @ maps, 0.25).tolist()
    assert agreed(make_client, maps, weights, factor) == masks
    assert agreed(make_client, maps, [weight / 2 for weight in weights]) == masks


def test_maps_of_zeros_give_the_first_scalars(make_client: Any) -> None:
    masks = agreed(make_client, np.zeros((2, 16), np.float32), [1.0, 1.0])
    assert np.unpackbits(np.array(masks[0], np.uint8)).tolist() == [1] * 4 + [0] * 12


# -- as a whole --------------------------------------------------------------------------------------------------------


def saved(outcome: Outcome, folder: Path) -> dict[int, Any]:
    """What each client's state file holds, with its plan's labels as an array."""
    for name, content in outcome.files.items():
        (folder / name).write_bytes(content)
    states = {}
    for client_id, state in read_clients(folder).items():
        state["labels"] = codec.decode(read_file(folder / state["plan"]["labels"]))
        states[client_id] = state
    return states


@pytest.mark.parametrize("holder", ["key_server", "clients"])
def test_the_mask_is_that_of_the_weighted_mean_and_holds_all_run_long(holder: str, tmp_path: Path) -> None:
    """With real encryption. No map crosses the wire in readable form."""
    outcome = run_protocol(recipe(0.2, holder, rounds=3))
    states, weights = saved(outcome, tmp_path), weights_of(outcome)
    maps = {client_id: state["state"][SENSITIVITY]["map"] for client_id, state in states.items()}
    mean = sum(weights[client_id] * maps[client_id].astype(np.float64) for client_id in maps)
    masks = [state["labels"] == 0 for state in states.values()]
    assert all(np.array_equal(masks[0], mask) for mask in masks)
    assert masks[0].sum() == 130
    # BFV's grid decides between scores that differ by less than it.
    cut, step = np.sort(mean)[-130], 4 * max(map(np.max, maps.values())) / (2**17 - 1)
    assert masks[0][mean > cut + step].all()
    assert not masks[0][mean < cut - step].any()
    assert [row.mask_churn for row in outcome.rows[1:]] == [0, 0]
    wire = b"".join(message.data for message in outcome.wire.messages)
    assert not any(part.tobytes() in wire for found in maps.values() for part in np.split(found[:648], 162))
    mask_on_wire = np.packbits(masks[0]).tobytes() in wire
    assert mask_on_wire == (holder == "key_server")


def test_both_engines_agree() -> None:
    assert np.array_equal(run_protocol(recipe()).vector, run_protocol(recipe(), "processes", workers=1).vector)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_ratio_0_and_1_need_no_agreement(ratio: float) -> None:
    zone = "encrypted" if ratio else "clear"
    chain = [{"use": "std.bfv"}] if ratio else []
    limits = {"protect": {zone: chain}, "postprocess": {"encrypted": ["std.bfv"]} if ratio else {}}
    outcome = run_protocol(recipe(ratio, score_parameters=[], **limits))
    assert np.array_equal(outcome.vector, run_protocol(recipe_of(zone, chain)).vector)


def test_a_sum_of_too_few_maps_is_not_opened(make_client: Any) -> None:
    component = FedMLHE(FedMLHE.Options(cipher="sums"))
    key_server = KeyServer()
    links = {"encrypted": (Link("encrypted", "protect", "sums", sums(), "client"),)}
    key_server.facts = make_client(Layout(()), {"sums": sums()}, links=links).facts
    one = Block("encrypted", 2, None, ciphertexts=(bytes(16),), sealed_by="sums", contributors=1)
    with pytest.raises(ProtectionError, match="holds 1 updates; opening fewer than min_clients=2"):
        component.select(key_server, one, [0])


def test_a_scorer_that_needs_an_update_says_so() -> None:
    with pytest.raises(TooFewClients, match="the client has not trained in this round"):
        run_protocol(recipe(score_parameters=[{"use": "std.magnitude"}]))


@pytest.mark.parametrize(("changes", "problem"), [
    ({"score_parameters": []}, "the mask follows from scores"),
    ({"negotiate_mask": {"use": "baselines.fedml_he", "by": "std.random"}}, "not a scorer of this recipe"),
    ({"negotiate_mask": {"use": "baselines.fedml_he", "cipher": "std.ckks"}}, "'std.ckks' protects no zone"),
    ({"negotiate_mask": {"use": "baselines.fedml_he", "ratio": 2}}, "ratio"),
])  # fmt: skip
def test_what_the_recipe_lacks_is_said_before_the_run(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Recipe.from_plain(recipe(**changes))


def test_of_two_encryptions_one_must_be_named() -> None:
    seals = {"encrypted": [{"use": "std.bfv"}], "special": [{"use": "std.ckks"}]}
    negotiation = {"use": "baselines.fedml_he", "other_zone": "special"}
    two = {"protect": seals, "postprocess": {"encrypted": ["std.bfv"], "special": ["std.ckks"]}}
    with pytest.raises(RecipeError, match=r"2 components may encrypt the maps; write cipher: std.bfv"):
        Recipe.from_plain(recipe(negotiate_mask=negotiation, **two))
    assert run_protocol(recipe(negotiate_mask=negotiation | {"cipher": "std.ckks"}, rounds=1, **two)).rows


@pytest.mark.parametrize("holder", ["key_server", "clients"])
def test_it_says_what_the_agreement_shows(holder: str) -> None:
    """Any party that has the clients' one key and a single map can open it. Then no epsilon holds."""
    outcome = run_protocol(recipe(holder=holder, rounds=1))
    shown = outcome.protocol.composition.components["baselines.fedml_he"].reveals(outcome.protocol.server.facts)
    by_key_server = {"select"} if holder == "key_server" else set()
    assert {method for each in shown for method in each.asked} == {"peak", "encrypt"} | by_key_server
    seen = {(each.what, party) for each in shown for party in each.to}
    assert {("largest sensitivity", "server"), ("largest sensitivity", "client"), ("mask", "client")} <= seen
    opened = "client" if holder == "clients" else "key_holder"
    assert ("sensitivity map", opened) in seen
    assert ("mask", "server") in seen or holder == "clients"
    voiding = [each.to for each in shown if each.voids]
    assert voiding == ([("client_and_server",)] if holder == "clients" else [])
    assert not outcome.protocol.ledger.uncovered


def test_lwe_without_a_key_holder_cannot_encrypt_the_maps(make_client: Any) -> None:
    component = FedMLHE(FedMLHE.Options(by="scores"))
    component.name = "baselines.fedml_he"
    shared = sums(opened_by="shares")
    links = {"encrypted": (Link("encrypted", "protect", "sums", shared, "client"),)}
    facts = make_client(Layout.of([("w", (4,))]), {"sums": shared}, links=links).facts
    with pytest.raises(ProtectionError, match="sums cannot encrypt the maps, since nobody holds its key"):
        component.reveals(facts)
