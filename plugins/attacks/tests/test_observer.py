"""What an adversary makes of recorded messages: values, states, noise, the model, and nothing that it cannot know."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import Runs, machinery, observed, seen
from fedplug.api.errors import PluginError
from fedplug.api.parties import SERVER
from fedplug_attacks.api.observation import ObservedUpdate, Seen
from saved_toys import CLIP, HALVES, saved, shield, zone
from toy_components import paraaegis, recipe_of
from toy_sealers import AtClients

FEDAVG = recipe_of(rounds=3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def bfv(holder: str) -> dict[str, Any]:
    return {"use": "std.bfv", "key_holder": holder}


def update_of(folder: Path, *words: Any, **scope: Any) -> ObservedUpdate:
    update = observed(folder, *words, **scope)[0].update
    assert update is not None
    return update


def hides(update: ObservedUpdate, truth: Any) -> None:
    """No array of the update holds a value that its states call hidden, and it is NaN if requested."""
    hidden = ~update.visible
    assert np.isnan(update.dense(math.nan)[hidden]).all()
    assert not np.isnan(update.dense(math.nan)[~hidden]).any()
    secret = truth[hidden & (truth != 0)]
    for array in (update.values, update.sigma, update.states):
        assert not np.isin(secret, array).any()
    for tensor in update.tensors().values():
        assert not np.isin(secret, tensor.values).any()
        assert len(tensor.values) == np.count_nonzero(tensor.visible)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round", [1, 3])
def test_a_clear_update_is_the_update_to_the_last_bit(runs: Runs, round: int) -> None:
    for target in (0, 3):
        known, truth = observed(runs.of(FEDAVG), "server", target, round)
        assert known.update is not None
        assert (known.update.states == Seen.CLEAR).all()
        assert not known.update.sigma.any()
        assert truth.update is not None
        assert np.array_equal(known.update.values, truth.update)
        assert known.update.contributors == (target,)


def test_a_probe_of_a_clear_recipe_shows_the_gradient_of_its_batch(runs: Runs) -> None:
    """Update = -lr * gradient of one batch, computed here by hand for the linear model."""
    with machinery(runs.of(FEDAVG), adversaries=["server"], rounds=[2], probe={"batch_size": 5}) as run:
        known, truth = seen(run, "server", 1)
        data = run.rewound.client(1).data
    assert known.update is not None
    assert known.vector is not None
    assert np.array_equal(known.update.values, truth.update)
    meaning = known.update.meaning
    assert (meaning.steps, meaning.batch_size, meaning.examples, meaning.lr) == (1, 5, 5, 0.05)
    inputs = ((truth.images.reshape(5, -1) - data.mean[0]) / data.std[0]).astype(np.float64)
    weight, bias = (known.vector[:640].reshape(10, 64), known.vector[640:])
    logits = inputs @ weight.T + bias
    wrong = np.exp(logits - logits.max(1, keepdims=True))
    wrong /= wrong.sum(1, keepdims=True)
    wrong[np.arange(5), truth.labels] -= 1
    gradient = np.concatenate([(wrong.T @ inputs / 5).ravel(), wrong.mean(0)])
    assert known.update.as_gradient().values == pytest.approx(gradient, abs=2e-5)


def test_weights_are_divided_out_of_opened_ciphertexts(runs: Runs) -> None:
    """std.mean weights by examples, and a client that encrypts multiplies its weight in."""
    folder = runs.of(recipe_of("encrypted", [bfv("clients")]))
    sealed, truth = observed(folder, "server", 0)
    assert sealed.update is not None
    assert (sealed.update.states == Seen.ENCRYPTED).all()
    assert len(sealed.update.values) == 0
    weight = saved(folder, 1, 0)["remembered"]["weight"]
    assert weight < 0.5  # otherwise this test could not tell
    opened = update_of(folder, "client:1", 0)
    assert (opened.states == Seen.CLEAR).all()
    assert opened.values == pytest.approx(truth.update, abs=1e-3 * float(np.abs(truth.update).max()))


def test_shares_that_meet_at_the_clients_open_an_upload_to_so_many_of_them(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = {"encrypted": ["toy.at_clients"]}
    folder = runs.of(recipe_of("encrypted", ["toy.at_clients"], min_clients=4, postprocess=opening))
    for few in ("server", "server+client:1", "server+client:1+client:2"):
        assert (update_of(folder, few, 0).states == Seen.ENCRYPTED).all()
    known, truth = observed(folder, "server+client:1+client:2+client:3", 0)
    assert known.update is not None
    assert (known.update.states == Seen.CLEAR).all()
    assert known.update.values == pytest.approx(truth.update, abs=1e-5)
    monkeypatch.delattr(AtClients, "open_upload")
    assert (update_of(folder, "server", 0).states == Seen.ENCRYPTED).all()
    with pytest.raises(PluginError, match="does not declare how clients with pooled shares open an upload"):
        update_of(folder, "server+client:1", 0)


def test_values_that_clients_have_turned_are_turned_back(runs: Runs) -> None:
    """The signs of a rotation are public, so it hides nothing."""
    chain = [{"use": "std.clip", "norm": 100.0}, {"use": "std.rotate"}]
    folder = runs.of(recipe_of("clear", chain, postprocess={"clear": ["std.rotate"]}))
    known, truth = observed(folder, "server", 2, 1)
    assert known.update is not None
    assert (known.update.states == Seen.CLEAR).all()
    assert np.abs(known.update.values - truth.update).max() < 1e-5 * np.abs(truth.update).max()
    assert known.update.meaning.grid == 0


# -- states ------------------------------------------------------------------------------------------------------------


def test_selective_shield_shows_each_state_where_it_is(runs: Runs) -> None:
    folder = runs.of(shield())
    for target in (0, 2):
        known, truth = observed(folder, "server", target)
        update = known.update
        assert update is not None
        for name, state in (("encrypted", Seen.ENCRYPTED), ("noised", Seen.NOISED), ("retained", Seen.RETAINED)):
            where = zone(folder, name, client_id=target)
            assert where.any()
            assert np.array_equal(update.states == state, where)
        assert np.array_equal(update.visible, zone(folder, "noised", client_id=target))
        hides(update, truth.update)


@pytest.mark.parametrize("adversary", ["client", "client:3", "eavesdropper", "server", "server+client"])
def test_a_key_at_the_key_server_keeps_everybody_else_out(runs: Runs, adversary: str) -> None:
    folder = runs.of(shield())
    states = update_of(folder, adversary, 0).states
    assert np.array_equal(states == Seen.ENCRYPTED, zone(folder, "encrypted"))


def test_the_key_server_alone_sees_a_sum_and_with_the_server_each_upload(runs: Runs) -> None:
    folder = runs.of(paraaegis(seal=bfv("key_server")))
    alone = update_of(folder, "key_server", 0)
    assert alone.contributors == (-1,) * 4
    assert not alone.visible.any()
    assert alone.unplaced == np.count_nonzero(zone(folder, "encrypted"))
    together = update_of(folder, "server+key_server", 0)
    assert together.contributors == (0,)
    assert together.unplaced == zone(folder, "encrypted").size  # all values of this client, and no place for them


def test_the_key_servers_sum_is_that_of_the_clients(runs: Runs) -> None:
    folder = runs.of(recipe_of("encrypted", [bfv("key_server")]))
    total = update_of(folder, "key_server", 0)
    parts = [observed(folder, "server", target)[1].update for target in range(4)]
    weights = [saved(folder, 1, target)["remembered"]["weight"] for target in range(4)]
    mean = np.average(parts, axis=0, weights=weights)
    assert (total.states == Seen.CLEAR).all()
    assert total.values == pytest.approx(mean, abs=1e-3 * float(np.abs(mean).max()))
    opened = update_of(folder, "server+key_server", 2)
    assert opened.values == pytest.approx(parts[2], abs=1e-3 * float(np.abs(parts[2]).max()))


def test_paraaegis_hides_places_from_the_server_and_nothing_from_a_client_with_the_key(runs: Runs) -> None:
    folder = runs.of(paraaegis())
    encrypted = zone(folder, "encrypted")
    blind, truth = observed(folder, "server", 0)
    assert blind.update is not None
    assert (blind.update.states == Seen.ABSENT).all()
    assert blind.update.unplaced == np.count_nonzero(~encrypted)
    for adversary in ("client", "server+client"):
        update = update_of(folder, adversary, 0)
        assert np.array_equal(update.states == Seen.CLEAR, encrypted)
        assert np.array_equal(update.states == Seen.NOISED, ~encrypted)
        gap = update.dense(0)[encrypted] - truth.update[encrypted]
        assert np.abs(gap).max() <= 1e-3 * np.abs(truth.update).max()


def test_what_the_naive_would_call_zero_is_absent(runs: Runs) -> None:
    known, truth = observed(runs.of(shield()), "server", 1)
    assert known.update is not None
    hides(known.update, truth.update)
    assert len(known.update.values) == np.count_nonzero(known.update.visible) < known.update.layout.size


# -- noise -------------------------------------------------------------------------------------------------------------


def clipped(values: Any, norm: float, order: int) -> Any:
    return values * min(1.0, norm / np.linalg.norm(values, order))


@pytest.mark.parametrize(
    ("chain", "order"),
    [
        ([CLIP, {"use": "std.gaussian", "noise_multiplier": 0.3, "source": "reproducible"}], 2),
        ([{"use": "std.clip_l1", "norm": 2.0}, {"use": "std.laplace", "noise_multiplier": 0.3,
                                                "source": "reproducible"}], 1),
        ([CLIP, {"use": "selectiveshield.noise", "noise_multiplier": 0.3, "choice": "as_published",
                 "source": "reproducible"}], 2),
    ],
)  # fmt: skip
def test_sigma_is_the_standard_deviation_of_the_noise_that_was_added(runs: Runs, chain: Any, order: int) -> None:
    norm = chain[0]["norm"]
    folder = runs.of(recipe_of("noised", chain, rounds=1))
    measured = []
    for target in range(4):
        known, truth = observed(folder, "server", target)
        update = known.update
        assert update is not None
        assert (update.states == Seen.NOISED).all()
        measured.append(update.values - clipped(truth.update, norm, order))
    sigma = float(update.sigma[0])
    assert (update.sigma == sigma).all()
    # 2,600 values: the standard error of the estimate is 1.4% for Gaussian noise, 2.2% for Laplace noise.
    assert np.std(measured) == pytest.approx(sigma, rel=0.1)
    expected = {1: math.sqrt(2) * 0.3 * norm, 2: 0.3 * norm}[order] * (2 if "choice" in chain[1] else 1)
    assert sigma == pytest.approx(expected)
    assert update.meaning.clip_norm == norm
    assert [(clip.norm, clip.order, clip.noised) for clip in update.clips] == [(norm, order, True)]


def test_a_clip_alone_is_clear_and_noise_of_the_trainer_is_of_unknown_size(runs: Runs) -> None:
    bare = update_of(runs.of(recipe_of("noised", [CLIP], rounds=1)), "server", 0)
    assert (bare.states == Seen.CLEAR).all()
    train = {"use": "baselines.dp_sgd", "batch_size": 32, "lr": 0.1, "clipping_norm": 1.0, "noise_multiplier": 1.0}
    two = {"use": "std.digits", "clients": 2, "partition": {"use": "std.iid"}}  # for fewer accounts, which take long
    inner = update_of(runs.of(recipe_of(train=train, rounds=1, data=two)), "server", 0)
    assert (inner.states == Seen.NOISED).all()
    assert np.isnan(inner.sigma).all()


def test_noise_of_no_size_at_all_is_not_called_noise(runs: Runs) -> None:
    chain = [CLIP, {"use": "std.gaussian", "noise_multiplier": 0, "source": "reproducible"}]
    update = update_of(runs.of(recipe_of("noised", chain, rounds=1)), "server", 0)
    assert (update.states == Seen.CLEAR).all()


@pytest.mark.parametrize("adversary", ["server", "eavesdropper", "client:1"])
def test_what_was_published_is_known_to_who_hears_or_remembers_it(runs: Runs, adversary: str) -> None:
    """The norm of `baselines.adaptive_clip` is published in each round; clients are clipped to it from there on."""
    clip = {"use": "baselines.adaptive_clip", "initial_norm": 0.01, "noise_multiplier": 4.0, "source": "reproducible"}
    folder = runs.of(recipe_of(
        rounds=3, negotiate_mask=clip, protect={"noised": ["baselines.adaptive_clip"]},
        aggregate={"use": "std.mean", "weighting": "uniform"}, postprocess={"noised": ["baselines.adaptive_clip"]},
    ))  # fmt: skip
    norms = []
    for round in (1, 2, 3):
        update = update_of(folder, adversary, 0, round)
        told = saved(folder, round, 0)["remembered"]["published"][round - 1]["baselines.adaptive_clip"]["norm"]
        assert [clip.norm for clip in update.clips] == [told]
        assert float(np.linalg.norm(update.values.astype(np.float64))) == pytest.approx(told, rel=1e-5)
        norms.append(told)
    assert norms[0] == 0.01
    assert len(set(norms)) > 1


def test_noise_by_public_scores_has_the_size_that_clients_give_it(runs: Runs) -> None:
    """Who knows the model of a round works out the scores that everybody can, and the noise of each layer from them."""
    box = {"box": [2, 2, 6, 6]}
    folder = runs.of(recipe_of(
        "noised", [{"use": "fedre.layer_budgets", "epsilon": 10, "delta": 1e-5, "norm": 0.5, "source": "reproducible"}],
        rounds=1, model={"use": "std.mlp", "hidden": [32]}, score_parameters=[{"use": "fedre.psi", "preference": box}],
        data={"use": "std.digits", "clients": 4, "public": 64, "partition": {"use": "std.iid"}},
    ))  # fmt: skip
    off: list[Any] = []
    for target in range(4):
        known, truth = observed(folder, "eavesdropper", target)
        update = known.update
        assert update is not None
        layers = update.layout.per_scalar(np.arange(len(update.layout.layers)))
        sigma = [np.unique(update.sigma[layers == layer]) for layer in range(2)]
        assert [each.size for each in sigma] == [1, 1]
        assert sigma[0] != sigma[1]
        wanted = np.concatenate([clipped(truth.update[layers == layer], 0.5, 2) for layer in range(2)])
        off.append((update.values - wanted) / update.sigma)
    for layer in range(2):
        assert np.std([each[layers == layer] for each in off]) == pytest.approx(1, rel=0.1)
    # Without a model nobody can tell.
    with machinery(folder, adversaries=["eavesdropper"]) as run:
        run.stage.observer.model = None
        blind = seen(run, "eavesdropper", 0)[0].update
    assert blind is not None
    assert np.isnan(blind.sigma).all()


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round", [1, 2, 3])
def test_the_server_knows_the_model_that_the_clients_train(runs: Runs, round: int) -> None:
    folder = runs.of(FEDAVG)
    known = observed(folder, "server", 0, round)[0]
    assert np.array_equal(known.vector, saved(folder, round, 0)["vector"])
    inside = observed(folder, "client:2", 0, round)[0]
    assert np.array_equal(known.vector, inside.vector)


def test_a_model_that_a_sealed_sum_moved_is_not_known(runs: Runs) -> None:
    folder = runs.of(paraaegis())
    first, second = (observed(folder, "server", 0, round)[0] for round in (1, 2))
    assert first.vector is not None  # the initial weights are public
    assert second.vector is None
    inside = observed(folder, "client:1", 0, 2)[0]
    assert np.array_equal(inside.vector, saved(folder, 2, 0)["vector"])


@pytest.mark.parametrize(("adversary", "protected"), [("eavesdropper", True), ("key_server", False)])
def test_who_hears_nothing_of_the_target_does_not_know_its_model(runs: Runs, adversary: str, protected: bool) -> None:
    folder = runs.of(recipe_of("encrypted", [bfv("key_server")]))
    first, second = (observed(folder, adversary, 0, round, protected_links=protected)[0] for round in (1, 2))
    assert first.vector is not None
    assert second.vector is None


def test_groups_have_models_and_plans_of_their_own(runs: Runs) -> None:
    """Clients 0 and 2 are one group, 1 and 3 the other; a client of the other group knows neither of the target's."""
    plain = paraaegis(groups=HALVES)
    plain["data"] = plain["data"] | {"clients": 6}
    folder = runs.of(plain)
    assert not np.array_equal(zone(folder, "encrypted", client_id=0), zone(folder, "encrypted", client_id=1))
    friend, stranger = (observed(folder, f"client:{number}", 0, 1)[0].update for number in (2, 1))
    assert friend is not None
    assert stranger is not None
    assert np.array_equal(friend.states == Seen.CLEAR, zone(folder, "encrypted"))
    assert not stranger.visible.any()
    later = [observed(folder, f"client:{number}", 0, 2)[0].vector for number in (2, 1)]
    assert np.array_equal(later[0], saved(folder, 2, 0)["vector"])
    assert later[1] is None


def test_a_client_that_sat_a_round_out_has_an_old_model_and_an_old_plan(runs: Runs) -> None:
    sampling = {"scheme": "fixed", "rate": 0.5, "source": "reproducible"}
    plain = paraaegis(rounds=3, sampling=sampling, min_clients=2)
    plain["data"] = plain["data"] | {"clients": 6}
    folder = runs.of(plain)
    with machinery(folder, adversaries=["server"], rounds=[3]) as run:
        occasion = next(run.occasions.of(2, False))
        absent = sorted(set(range(6)) - set(occasion.clients))
    assert absent
    target = occasion.clients[0]
    for number in absent:
        known = observed(folder, f"client:{number}", target, 3)[0]
        assert known.update is not None
        assert not known.update.visible.any()
        if known.vector is not None:
            assert np.array_equal(known.vector, saved(folder, 3, target)["vector"])
    present = observed(folder, f"client:{occasion.clients[1]}", target, 3)[0]
    assert present.update is not None
    assert present.update.visible.all()
    assert np.array_equal(present.vector, saved(folder, 3, target)["vector"])


# -- links, and what the numbers mean ----------------------------------------------------------------------------------


def test_on_protected_links_an_eavesdropper_reads_nothing_and_a_client_its_own(runs: Runs) -> None:
    folder = runs.of(FEDAVG)
    nobody = observed(folder, "eavesdropper", 0, 2, protected_links=True)[0]
    assert nobody.messages == ()
    assert nobody.update is None
    own = observed(folder, "client:1", 0, 2, protected_links=True)[0]
    assert own.messages
    assert all({message.sender, message.receiver} == {"client:1", SERVER} for message in own.messages)
    assert own.update is None
    openly = observed(folder, "eavesdropper", 0, 2)[0]
    server = observed(folder, "server", 0, 2)[0]
    assert [m.data for m in openly.messages] == [m.data for m in server.messages]


def test_no_adversary_reads_messages_of_later_rounds(runs: Runs) -> None:
    for round in (1, 2):
        known = observed(runs.of(FEDAVG), "server+client", 0, round)[0]
        assert max(message.round for message in known.messages) == round - 1


def test_the_meaning_of_an_update_follows_from_the_recipe_and_the_messages(runs: Runs) -> None:
    train = {"use": "std.sgd", "epochs": 2, "batch_size": 32, "lr": 0.05, "lr_decay": 0.5, "momentum": 0.9,
             "weight_decay": 0.01}  # fmt: skip
    folder = runs.of(recipe_of(train=train))
    known, truth = observed(folder, "server", 3, 2)
    assert known.update is not None
    meaning, count = known.update.meaning, len(truth.labels)
    assert meaning.lr == 0.025
    assert meaning.examples == count
    assert meaning.steps == 2 * math.ceil(count / 32)
    assert (meaning.momentum, meaning.weight_decay, meaning.epochs, meaning.batch_size) == (0.9, 0.01, 2, 32)
    uniform = recipe_of(aggregate={"use": "std.mean", "weighting": "uniform"}, rounds=1)
    unknown = update_of(runs.of(uniform), "server", 3).meaning
    assert unknown.examples is None  # nobody said how many it has
    assert unknown.steps is None


def test_both_engines_give_the_same_view(runs: Runs) -> None:
    plain = shield()  # not ParaAegis: each of its votes draws a key, which decides among equals
    plain["protect"]["encrypted"], plain["postprocess"]["encrypted"] = [bfv("key_server")], ["std.bfv"]
    for adversary in ("server", "client:1"):
        local, processes = (
            observed(runs.of(plain, engine=engine, workers=workers), adversary, 0, 2)
            for engine, workers in (("local", None), ("processes", 2))
        )
        one, other = local[0].update, processes[0].update
        assert one is not None
        assert other is not None
        assert np.array_equal(one.states, other.states)
        assert np.array_equal(one.values, other.values)
        assert np.array_equal(one.sigma, other.sigma, equal_nan=True)
        assert (one.meaning, one.unplaced) == (other.meaning, other.unplaced)
        assert (local[0].vector is None) == (processes[0].vector is None)
        assert local[0].vector is None or np.array_equal(local[0].vector, processes[0].vector)
        assert np.array_equal(local[1].update, processes[1].update)
