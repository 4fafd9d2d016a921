"""Parties taken back to a checkpoint: probes, released models, the truth of updates; and a run that is not touched."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import Runs, attacked, finished_run, machinery, observed, seen
from fedplug.api import codec
from fedplug.api.errors import CheckpointError, TooFewClients
from fedplug.round.base import NAME
from fedplug.round.parties import ClientHost
from fedplug.round.steps import Steps
from fedplug_attacks.api.observation import Seen
from fedplug_attacks.views.probe import OneBatch, probing, uploads_of
from fedplug_runs.checkpoint import read_file
from toy_components import UNANIMOUS, paraaegis, recipe_of
from toy_protocol import read_clients

FEDAVG = recipe_of(rounds=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a run folder but what attacks write."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "attacks" not in path.parts and path.suffix != ".html"
    }


def vector(folder: Path, client_id: int = 0) -> Any:
    saved = read_clients(folder)[client_id]
    return codec.decode(read_file(folder / saved["vector"]))


def probed(folder: Path, target: int = 0, round: int = 1, **probe: Any) -> tuple[Any, Any]:
    return observed(folder, "server", target, round, probe=probe)


# -- the run is not touched --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [FEDAVG, paraaegis()], ids=["fedavg", "paraaegis"])
def test_attacks_change_nothing_that_the_run_wrote(runs: Runs, plain: Any) -> None:
    folder = runs.of(plain)
    before = files(folder)
    assert {"ledger.json", "metrics.jsonl", "wire/round-0001.wire", "checkpoint/round-0002/server.state"} <= set(before)
    scope: dict[str, Any] = {"targets": [0], "rounds": [1, 3]}
    attacked(folder, "toy.bare", adversaries=["server", "client"], probe={"batch_size": 4, "batches": 2}, **scope)
    attacked(folder, "toy.bare", adversaries=["released"], targets=[0])
    attacked(folder, "toy.bare", adversaries=["server"], rounds=[2], targets=[1])
    assert files(folder) == before


@pytest.mark.parametrize(
    "plain", [recipe_of(rounds=3), paraaegis(rounds=3, score_parameters=[UNANIMOUS])], ids=["fedavg", "paraaegis"]
)
def test_without_recorded_messages_an_adversary_starts_from_the_model_of_the_round(runs: Runs, plain: Any) -> None:
    """Not from the first model: a search that starts from another one fails whatever the protocol does."""
    for adversary in ("server", "client"):
        scope: dict[str, Any] = {"target": 1, "round": 3, "probe": {"batch_size": 4}}
        without, _ = observed(runs.of(plain, record=False), adversary, **scope)
        recorded, _ = observed(runs.of(plain), adversary, **scope)
        assert (without.vector is None) == (recorded.vector is None)
        if without.vector is not None:
            assert np.allclose(without.vector, recorded.vector, atol=1e-4)


def test_a_probe_moves_no_model(runs: Runs) -> None:
    folder = runs.of(FEDAVG)
    with machinery(folder, adversaries=["server"], probe={"batch_size": 4}) as run:
        moment = run.rewound.probe(1, OneBatch(4))
        assert np.array_equal(vector(moment.folder), vector(run.rewound.before(1).folder))
        again = run.rewound.probe(1, OneBatch(4))
    assert all(np.array_equal(moment.updates[c], again.updates[c]) for c in range(4))


MASKED = recipe_of("encrypted", [{"use": "std.clip", "norm": 1.0}, "secagg.bonawitz"], rounds=2, min_clients=3,
                   postprocess={"encrypted": ["secagg.bonawitz"]})  # fmt: skip


def test_the_round_of_a_probe_continues_to_its_sums_after_the_parties_were_saved(runs: Runs) -> None:
    """In a run a save ends the round; a probe saves the parties for views alone."""
    with machinery(runs.of(MASKED), adversaries=["server"]) as run:
        for _ in range(2):
            later = run.rewound.probe(1, OneBatch(4), sums=True).later
            told = [call for message in later if message.receiver == "client:0" for call in message.asked()]
            (adopted,) = [call for call in told if (call.method, call.round) == ("adopt", 1)]
            assert adopted.payload[0]["encrypted"].values is not None


def test_what_the_parties_leave_behind_disappears(runs: Runs) -> None:
    with machinery(runs.of(FEDAVG), adversaries=["server"]) as run:
        folder = run.rewound.before(1).folder
        assert (folder / "clients-0.state").is_file()
    assert not folder.exists()


# -- probes ------------------------------------------------------------------------------------------------------------


def test_the_same_probe_gives_the_same_update_and_another_batch_another(runs: Runs) -> None:
    folder = runs.of(FEDAVG)
    with machinery(folder, adversaries=["server"], probe={"batch_size": 6, "batches": 2}) as run:
        first, truth = seen(run, "server", 2, 0)
        second, other = seen(run, "server", 2, 1)
    repeated, same = probed(folder, 2, batch_size=6)
    assert first.update is not None
    assert second.update is not None
    assert np.array_equal(first.update.values, repeated.update.values)
    assert np.array_equal(truth.images, same.images)
    assert not np.array_equal(truth.images, other.images)
    assert not np.array_equal(first.update.values, second.update.values)


def test_a_batch_is_made_of_the_clients_own_examples(runs: Runs) -> None:
    with machinery(runs.of(FEDAVG), adversaries=["server"], probe={"batch_size": 12}) as run:
        moment = run.rewound.probe(0, OneBatch(12))
        for client_id, batch in moment.batches.items():
            mine = {image.tobytes() for image in run.rewound.client(client_id).data.train.inputs}
            assert len(batch) == 12
            assert {image.tobytes() for image in batch.inputs} <= mine
            assert len(run.rewound.client(client_id).data.train) > 12  # it has all its data back


def test_a_batch_may_be_drawn_from_few_classes(runs: Runs) -> None:
    found = set()
    with machinery(runs.of(FEDAVG), adversaries=["server"], probe={"batch_size": 10, "classes": 2}) as run:
        for number in range(4):
            batch = run.rewound.probe(0, OneBatch(10, number, 2)).batches[2]
            assert len(np.unique(batch.labels)) <= 2
            found.add(tuple(np.unique(batch.labels)))
    assert len(found) > 1  # which classes is drawn anew for each batch


def test_a_batch_larger_than_the_data_is_all_of_it(runs: Runs) -> None:
    known, truth = probed(runs.of(FEDAVG), 0, batch_size=100_000)
    with machinery(runs.of(FEDAVG), adversaries=["server"]) as run:
        count = len(run.rewound.client(0).data.train)
    assert len(truth.labels) == count
    assert known.update.meaning.examples == known.update.meaning.batch_size == count
    assert known.update.meaning.steps == 1


def test_a_probe_goes_through_the_recipes_protection(runs: Runs) -> None:
    folder = runs.of(paraaegis())
    known, _ = probed(folder, 0, batch_size=4)
    assert (known.update.states == Seen.ABSENT).all()
    assert known.update.unplaced == round(0.7 * known.update.layout.size)
    insider, truth = observed(folder, "client", 0, probe={"batch_size": 4})
    assert insider.update is not None
    assert set(np.unique(insider.update.states)) == {Seen.CLEAR, Seen.NOISED}
    opened = insider.update.states == Seen.CLEAR
    gap = insider.update.dense(0)[opened] - truth.update[opened]
    assert np.abs(gap).max() <= 2e-3 * np.abs(truth.update).max()


def test_the_final_model_can_be_probed(runs: Runs) -> None:
    folder = runs.of(FEDAVG)
    known, truth = probed(folder, 1, 3, batch_size=4)
    assert known.update.round == 2
    assert np.array_equal(known.update.values, truth.update)
    with machinery(folder, adversaries=["released"]) as run:
        final, _ = seen(run, "released", 1)
    assert np.array_equal(known.vector, final.vector)
    assert not np.array_equal(known.vector, vector(folder / "checkpoint" / "round-0000", 1))


def test_momentum_and_epochs_do_not_change_a_probe(runs: Runs) -> None:
    """One step is one step: update / -lr is the gradient, whatever the recipe's own training does."""
    train = {"use": "std.sgd", "epochs": 2, "batch_size": 16, "lr": 0.05, "momentum": 0.9}
    plainly, _ = probed(runs.of(FEDAVG), 0, batch_size=7)
    known, _ = probed(runs.of(recipe_of(train=train)), 0, batch_size=7)
    assert np.array_equal(known.update.values, plainly.update.values)
    assert known.update.meaning.steps == 1


# -- no message probes -------------------------------------------------------------------------------------------------


def test_no_message_can_have_a_party_probed() -> None:
    """A probe takes the place of an object that only this process has; nothing that a message may call touches it."""
    callable_by_message = {
        name: method for name, method in inspect.getmembers(Steps, callable) if hasattr(method, "__fedplug_site__")
    }
    assert "train" in callable_by_message
    for name, method in callable_by_message.items():
        source = inspect.getsource(method)
        assert "components[" not in source, name
        assert "setattr" not in source, name
        assert not {"probe", "batch"} & set(inspect.signature(method).parameters), name
    for ours in (OneBatch.indices, OneBatch.on_one_batch, probing, uploads_of, ClientHost.deliver):
        assert not hasattr(ours, "__fedplug_site__")


def test_a_party_that_is_not_probed_refuses_a_round_after_the_last(runs: Runs) -> None:
    with machinery(runs.of(FEDAVG), adversaries=["server"]) as run:
        with pytest.raises(TooFewClients, match="there is no round 3 to train in"):
            run.rewound.update(2, 0)
        steps = run.rewound._engine.clients.components[NAME]
        assert type(steps) is Steps
        run.rewound.probe(2, OneBatch(4))
        assert run.rewound._engine.clients.components[NAME] is steps


# -- the truth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("train", [
    FEDAVG["train"], {"use": "std.sgd", "epochs": 2, "batch_size": 16, "lr": 0.1, "momentum": 0.9, "lr_decay": 0.9},
    {"use": "toy.push"},
], ids=["sgd", "momentum", "push"])  # fmt: skip
def test_an_update_made_again_is_the_one_that_was_sent(runs: Runs, train: Any) -> None:
    folder = runs.of(recipe_of(train=train))
    with machinery(folder, adversaries=["server"], rounds=[2]) as run:
        for target in range(4):
            known, _ = seen(run, "server", target)
            assert known.update is not None
            assert np.array_equal(run.rewound.update(1, target), known.update.values)


def test_an_update_with_noise_that_is_drawn_once_is_not_made_again(runs: Runs) -> None:
    """Other noise would pass for the truth; a probe's update is the very one that was protected, and so it is known."""
    train = {"use": "baselines.dp_sgd", "batch_size": 32, "lr": 0.1, "clipping_norm": 1.0, "noise_multiplier": 1.0}
    two = {"use": "std.digits", "clients": 2, "partition": {"use": "std.iid"}}  # for fewer accounts, which take long
    for source, known in (("secure", False), ("reproducible", True)):
        folder = runs.of(recipe_of(train=train | {"source": source}, rounds=1, data=two))
        view, truth = observed(folder, "server", 1)
        assert view.update is not None
        assert (truth.update is not None) == known
        assert not known or np.array_equal(view.update.values, truth.update)
        probe, batch = probed(folder, 1, batch_size=5)
        assert np.array_equal(probe.update.values, batch.update)


def test_a_round_without_a_checkpoint_is_said_to_have_none(runs: Runs) -> None:
    folder = runs.of(recipe_of(rounds=3), record=False)
    with machinery(folder, adversaries=["server"], probe={"batch_size": 3}) as run:
        with pytest.raises(CheckpointError, match=r"no checkpoint of round 0; it has \[2, 3\]"):
            run.rewound.probe(0, OneBatch(3))
        assert run.rewound.probe(2, OneBatch(3)).updates.keys() == {0, 1, 2, 3}


def test_what_each_round_sent_follows_from_the_last_checkpoint_and_the_ledger(tmp_path: Path) -> None:
    plain = recipe_of(
        rounds=3, negotiate_mask={"use": "toy.in_turn", "zones": ["clear", "encrypted"]},
        protect={"encrypted": [{"use": "std.bfv", "key_holder": "clients"}], "clear": []},
        postprocess={"encrypted": ["std.bfv"]},
    )  # fmt: skip
    with machinery(finished_run(plain, tmp_path, record=False), "toy.echo", probe={"batch_size": 1}) as run:
        sent = run.rewound.sent
        assert sorted(sent) == [0, 1, 2]
        assert sent[0] != sent[1] == sent[2]
        assert run.rewound.unlike(1) == [0]  # one group, in which all send alike
        assert run.rewound.unlike(7) == []


def test_a_client_of_each_group_is_unlike_the_others(tmp_path: Path) -> None:
    folder = finished_run(paraaegis(groups="toy.halves"), tmp_path, record=False)
    with machinery(folder, "toy.echo", probe={"batch_size": 1}) as run:
        even, odd = run.rewound.unlike(1)
        assert (even % 2, odd % 2) in ((0, 1), (1, 0))
