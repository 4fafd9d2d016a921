"""Noise that is correlated over rounds in whole runs: what is added, remembered, refused and paid."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import json
import math
from pathlib import Path
from typing import Any
from unittest import mock

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.links import Link, ballot_states, fold
from fedplug.api.norms import Bound
from fedplug.api.operations import Misplaced, Noise
from fedplug.api.parties import Server
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.execution import execute
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol, sample
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_runs.checkpoint import Checkpoints
from fedplug_std.accountants import Pld
from fedplug_std.correlated import CorrelatedGaussian
from fedplug_std.factors import factor
from run_toys import resume, rows_of, start, stopped
from toy_components import pushed, recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol

ROUNDS, TURNS = 8, 3
NOISE = {"use": "std.correlated_gaussian", "norm": 1.0, "noise_multiplier": 2.0, "separation": TURNS}
NOISE_OPTIONS = {name: value for name, value in NOISE.items() if name != "use"}
STILL = {"use": "toy.push", "scale": 0.0}
"""Training that moves nothing, so that only noise moves the model."""


def recipe(noise: dict[str, Any] = NOISE, **changes: Any) -> dict[str, Any]:
    plain = recipe_of(
        "noised", [{"use": "std.clip", "norm": 1.0}], rounds=ROUNDS,
        aggregate={"use": "std.mean", "weighting": "uniform"},
        sampling={"scheme": "cyclic", "rate": 1 / TURNS}, postprocess={"noised": [noise]},
    )  # fmt: skip
    plain["data"]["clients"] = 6
    return plain | changes


def problems(plain: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain, toy_catalog())
    return "\n".join(caught.value.problems)


WIDER = pytest.param({"bands": 5}, marks=pytest.mark.slow)


@pytest.mark.parametrize("which", [{}, WIDER, {"factor": "tree"}, {"factor": "identity"}, {"factor": "blt"}])
def test_the_model_is_moved_by_the_inverse_of_the_factor_times_what_is_drawn(which: dict[str, Any]) -> None:
    plain = recipe(NOISE | {"source": "reproducible"} | which, train=STILL)
    outcome = run_protocol(plain)
    start = initial_vector(plain)
    made = CorrelatedGaussian.Options(**NOISE_OPTIONS | which).made(ROUNDS)
    std = 2.0 * made.sensitivity(ROUNDS, TURNS)
    drawn = [
        fedplug.stream(7, "server", round, "std.correlated_gaussian", "noised").standard_normal(len(start))
        for round in range(ROUNDS)
    ]
    noise = np.linalg.inv(made.dense()) @ (std * np.array(drawn))
    assert np.allclose(outcome.vector - start, noise.sum(axis=0) / 2, atol=1e-4)  # two clients a round
    variance = np.var(outcome.vector - start)
    assert variance == pytest.approx((std * made.errors()[-1] / 2) ** 2, rel=0.25)  # of 650 samples


@pytest.mark.parametrize("which", [{}, WIDER, {"bands": 1}, {"factor": "tree"}, {"factor": "blt"}])
def test_the_ledger_states_what_the_noise_was_calibrated_for(which: dict[str, Any]) -> None:
    ledger = run_protocol(recipe(NOISE | which)).protocol.ledger
    epsilon = ledger.epsilon()
    planned = gaussian_epsilon(2.0, ledger.delta)
    assert epsilon is not None
    if which.get("factor") == "tree":  # whose sensitivity is a bound
        assert 0.8 * planned < epsilon <= planned
    else:
        assert epsilon == pytest.approx(planned)
    views = ledger.report().views
    assert views["released_model"].epsilon == views["client"].epsilon == pytest.approx(epsilon)
    assert views["server"].state == "none"
    assert "in turn" in ledger.report().sampling.why


def test_epsilon_of_dp_accounting_is_the_same() -> None:
    dp = pytest.importorskip("dp_accounting")
    ledger = run_protocol(recipe()).protocol.ledger
    accountant = dp.pld.PLDAccountant()
    accountant.compose(dp.GaussianDpEvent(2.0))
    assert ledger.epsilon() == pytest.approx(accountant.get_epsilon(ledger.delta), rel=1e-3)


def test_epsilon_and_delta_are_of_the_whole_run_and_an_early_end_costs_less() -> None:
    noise = {key: value for key, value in NOISE.items() if key != "noise_multiplier"} | {"epsilon": 3, "delta": 1e-5}
    whole = run_protocol(recipe(noise))
    assert whole.protocol.ledger.epsilon() == pytest.approx(3)
    spent = [row.epsilon for row in whole.rows]
    assert all(isinstance(one, float) for one in spent)
    assert spent == sorted(spent)  # type: ignore[type-var]
    assert spent[0] < 0.75 * spent[-1]  # type: ignore[operator]
    assert spent[3] < spent[-1]  # type: ignore[operator]


def test_clients_take_part_in_turn() -> None:
    made = Recipe.from_plain(recipe() | {"data": recipe()["data"] | {"clients": 7}}, toy_catalog())
    cohorts = [sample(made, range(7), round) for round in range(2 * TURNS)]
    assert cohorts[:TURNS] == cohorts[TURNS:]
    assert sorted(client for cohort in cohorts[:TURNS] for client in cohort) == list(range(7))
    assert {len(cohort) for cohort in cohorts} == {2, 3}


@pytest.mark.parametrize("which", [{"bands": 6}, {"factor": "blt"}])
def test_a_run_that_goes_on_ends_as_one_that_was_not_stopped(which: dict[str, Any], tmp_path: Path) -> None:
    """The noise is in the server's state. Where it is secret, a resumed run continues from it, not from new noise."""
    plain = recipe(NOISE | {"source": "reproducible"} | which)
    whole = start(tmp_path / "whole", plain)
    with stopped(lambda _, round: round == 5):
        broken = start(tmp_path / "broken", plain)
    assert resume(broken) == 0
    rows = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (whole, broken)]
    accuracy = [[json.loads(line)["accuracy"] for line in lines] for lines in rows]
    assert accuracy[0] == accuracy[1]
    assert (whole / "ledger.json").read_text() == (broken / "ledger.json").read_text()
    states = list((broken / "checkpoint").glob("round-*/server.state"))
    assert states
    assert all(state.stat().st_mode & 0o077 == 0 for state in states)


class Killed(Exception):
    """Represents a kill inside the process."""


def killed_and_resumed(folder: Path, plain: dict[str, Any], after: int) -> dict[str, Any]:
    """The record of a run that ends before the checkpoint after that number of rounds, and is resumed."""
    saved = Checkpoints.write

    def dies(checkpoints: Checkpoints, round: int, *rest: Any) -> Path:
        if round == after:
            raise Killed
        return saved(checkpoints, round, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "write", dies)
        with pytest.raises(Killed):
            start(folder, plain)
    (broken,) = folder.iterdir()
    assert resume(broken) == 0
    record: dict[str, Any] = json.loads((broken / "ledger.json").read_text())
    return record


def square_of_the_third_time(rounds: int) -> float:
    """The largest squared effect of a client in a run that repeats its third round, over that without the repeat."""
    dense = factor("square_root", rounds, TURNS).dense()
    each = [dense[:, first::TURNS].sum(axis=1) for first in range(TURNS)]
    return max(float(moved @ moved + moved[2] ** 2) for moved in each) / max(float(moved @ moved) for moved in each)


def test_a_killed_round_is_paid_for_twice_by_those_who_were_in_it_and_earlier_ones_that_it_takes_back(
    tmp_path: Path,
) -> None:
    record = killed_and_resumed(tmp_path, recipe(train=STILL), 3)
    assert sorted(entry["round"] for entry in record["log"]) == [1, 2, 3, 3, 4, 5, 6, 7, 8]
    expected = gaussian_epsilon(2.0 / math.sqrt(square_of_the_third_time(ROUNDS)), 1e-5)
    assert record["epsilons"]["zero_out"]["epsilon_exact"] == pytest.approx(expected)


def test_a_killed_round_of_noise_that_is_shared_out_is_one_more_release_where_all_were_in_the_sum(
    tmp_path: Path,
) -> None:
    record = killed_and_resumed(tmp_path, shared(train=STILL), 3)
    assert sorted(entry["round"] for entry in record["log"]) == [1, 2, 3, 3, 4, 5, 6, 7, 8]
    expected = gaussian_epsilon(2.0 / math.sqrt(square_of_the_third_time(ROUNDS)), 1e-5)
    lines = {line["party"]: line for line in record["verdict"]["lines"]}
    assert lines["client"]["epsilons"]["zero_out"]["epsilon_exact"] == pytest.approx(expected)


@pytest.mark.parametrize("which", [{}, {"factor": "blt"}])
def test_a_skipped_round_leaves_no_noise_to_take_back(which: dict[str, Any]) -> None:
    """The rounds around it are released as if no client had been in it, and pay as if one had."""
    plain = recipe(NOISE | {"source": "reproducible"} | which, train=STILL, rounds=3)
    made = Recipe.from_plain(plain, toy_catalog())
    missing, _ = sample(made, range(6), 1)
    fails = {"use": "toy.fail", "clients": [missing], "rounds": [1]}
    outcome = run_protocol(plain | {"protect": {"noised": [{"use": "std.clip", "norm": 1.0}, fails]}})
    assert [row.clients.answered for row in outcome.rows] == [2, 0, 2]
    made_of = CorrelatedGaussian.Options(**NOISE_OPTIONS | which).made(3)
    std, back = 2.0 * made_of.sensitivity(3, TURNS), made_of.row(2)[2]
    assert which or back == 0.375
    first, third = (
        std * fedplug.stream(7, "server", round, "std.correlated_gaussian", "noised").standard_normal(650)
        for round in (0, 2)
    )
    assert np.allclose(outcome.vector - initial_vector(plain), (first + third - back * first) / 2, atol=1e-4)
    assert outcome.protocol.ledger.epsilon() == pytest.approx(gaussian_epsilon(2.0, 1e-5))


def test_a_blt_remembers_as_many_arrays_as_it_has_buffers_and_earns_no_credit_for_coins() -> None:
    noise = {"factor": "blt", "buffers": 2}
    outcome = run_protocol(sampled(noise, 12, 0.2, 4))
    ((memory,),) = (found for found in [[
        each for each in outcome.protocol.server.state.values() if isinstance(each, dict) and "last" in each
    ]])  # fmt: skip
    assert memory["last"] == 11
    assert [len(each) for each in memory["noise"].values()] == [650 + 12] * 2
    report = outcome.protocol.ledger.report()
    assert not report.sampling.amplified
    assert "a client may be drawn twice" in report.sampling.why
    assert report.epsilons is not None
    assert report.epsilons.epsilon >= gaussian_epsilon(2.0, 1e-5) * (1 - 1e-6)


@pytest.mark.parametrize("participations", [1, 3])
def test_the_epsilon_of_a_blt_is_that_of_all_that_is_released(participations: int) -> None:
    """C x + z is Gaussian, and a client moves its mean by the sum of its columns of C."""
    options, rounds = NOISE_OPTIONS | {"factor": "blt", "buffers": 2}, TURNS * participations
    ledger = run_protocol(recipe(NOISE | options, rounds=rounds)).protocol.ledger
    made = CorrelatedGaussian.Options(**options)
    dense, std = made.made(rounds).dense(), made.std(rounds)
    moved = max(float(np.linalg.norm(dense[:, start::TURNS].sum(axis=1))) for start in range(TURNS))
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(std / moved, ledger.delta), rel=1e-6)


def test_coins_within_cohorts_that_take_turns_earn_credit_for_noise_of_as_many_bands() -> None:
    """BandMF: a client pays for at most ceil(n / b) = 3 sampled releases, whose noise is 2 sqrt(3) times the norm."""
    noise = NOISE | {"factor": "banded"}
    secret = {"scheme": "poisson", "rate": 0.25, "separation": TURNS}
    plain = recipe(
        noise, data={"use": "std.digits", "clients": 120, "partition": {"use": "std.iid"}}, train=STILL,
        sampling=secret, accountant={"use": "std.pld"},
    )  # fmt: skip
    outcome = run_protocol(plain)
    ledger, made = outcome.protocol.ledger, Recipe.from_plain(plain, toy_catalog())
    assert made.sampling is not None
    for entry in ledger.log:
        assert {*entry.charged} <= {*made.sampling.cohort(made.seed, range(120), entry.round - 1)}
    report = ledger.report()
    assert report.sampling.amplified
    assert report.epsilons is not None
    expected = Pld(Pld.Options()).compose([("gaussian", 2 * math.sqrt(3), 0.75, 3)], 1e-5, "zero_out")["pld"]
    assert report.epsilons.epsilon == pytest.approx(expected, rel=1e-3)
    # Without the coins, as if each client had been in all rounds of its cohort.
    unsampled = report.views["released_model"].epsilons
    assert unsampled is not None
    assert unsampled.zero_out["epsilon_without_sampling"] == pytest.approx(gaussian_epsilon(2.0, 1e-5), rel=1e-3)
    wide = run_protocol(plain | {"sampling": secret | {"separation": 2}, "postprocess": {"noised": [
        noise | {"separation": 2, "bands": 3}
    ]}})  # fmt: skip
    why = wide.protocol.ledger.report().sampling
    assert not why.amplified
    assert "a client may be drawn twice" in why.why
    assert not any(entry.secret_cohort for entry in wide.protocol.ledger.log)


def sampled(noise: dict[str, Any], rounds: int, rate: float, separation: int, **changes: Any) -> dict[str, Any]:
    """A run whose clients are drawn by secret coins, in cohorts that take turns."""
    return recipe(
        NOISE | {"separation": separation} | noise, rounds=rounds, train=STILL,
        data={"use": "std.digits", "clients": 120, "partition": {"use": "std.iid"}},
        sampling={"scheme": "poisson", "rate": rate, "separation": separation}, accountant={"use": "std.pld"},
    ) | changes  # fmt: skip


def drawn_by(noise: dict[str, Any], rounds: int, separation: int) -> tuple[Any, float, list[Any]]:
    """C, the standard deviation of z over the clip, and the columns of C of each cohort; by their definitions."""
    dense = factor(noise.get("factor", "square_root"), rounds, noise.get("separation", separation)).dense()
    apart = noise.get("separation", separation)  # for which the noise was calibrated
    moved = max(float(np.linalg.norm(dense[:, start::apart].sum(axis=1))) for start in range(apart))
    return dense, 2.0 * moved, [dense[:, start::separation] for start in range(separation)]


@pytest.mark.parametrize(("noise", "rounds", "rate", "separation"), [
    pytest.param({"factor": "banded"}, 13, 0.25, 3, id="rounds-left-over"),
    pytest.param({}, 8, 0.4, 2, id="square-root"),
    pytest.param({"factor": "banded", "separation": 2}, 9, 0.2, 4, id="fewer-bands"),
])  # fmt: skip
def test_amplified_epsilon_is_that_of_dp_accounting(
    noise: dict[str, Any], rounds: int, rate: float, separation: int
) -> None:
    """Choquette-Choo et al. 2023, Theorem 4: a release for each coin of the worst cohort, by the norm of its column."""
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    ledger = run_protocol(sampled(noise, rounds, rate, separation)).protocol.ledger
    assert ledger.report().sampling.amplified
    _, std, cohorts = drawn_by(noise, rounds, separation)
    worst = 0.0
    for columns in cohorts:
        releases = (
            from_gaussian_mechanism(std, sensitivity=norm, sampling_prob=rate * separation)
            for norm in np.linalg.norm(columns, axis=0)
        )
        together = functools.reduce(lambda one, other: one.compose(other), releases)
        worst = max(worst, together.get_epsilon_for_delta(1e-5))
    assert ledger.epsilon() == pytest.approx(worst, rel=2e-3)


def test_amplified_epsilon_is_that_of_all_that_is_released() -> None:
    """The released vector C x + z itself, of a client with all patterns of its coins: no theorem, and no accountant."""
    rounds, separation, delta = 6, 2, 0.05
    noise = {"factor": "banded"}
    plain = sampled(noise, rounds, 0.2, separation, delta=delta)
    epsilons = run_protocol(plain).protocol.ledger.report().epsilons
    assert epsilons is not None
    _, std, (columns, _) = drawn_by(noise, rounds, separation)
    coins = np.array(list(itertools.product((0, 1), repeat=columns.shape[1])))
    chance = np.prod(np.where(coins, 0.4, 0.6), axis=1)
    rng = np.random.default_rng(1)
    z = std * rng.standard_normal((400_000, rounds))
    took_part = rng.choice(len(coins), size=len(z), p=chance)

    def density(released: Any, moved: Any) -> Any:
        """Of what is released, over that of noise alone; `moved` is what the client adds by pattern."""
        return sum(
            share * np.exp((released @ each - each @ each / 2) / std**2)
            for share, each in zip(chance, moved, strict=True)
        )

    there = coins @ columns.T
    gone, opposite = 0 * there, -there
    for one, other, epsilon in (
        (there, gone, epsilons.zero_out), (gone, there, epsilons.zero_out), (there, opposite, epsilons.replace_one)
    ):  # fmt: skip
        released = z + one[took_part]
        ratio = density(released, other) / density(released, one)
        found = np.maximum(0, 1 - math.exp(epsilon["epsilon_pld"]) * ratio)
        assert found.mean() <= delta + 4 * found.std() / math.sqrt(len(z))
        if other is not there:  # the worse of both directions
            assert found.mean() >= 0.97 * delta


# -- shared out among clients ------------------------------------------------------------------------------------------

SHARED = {"use": "std.distributed_correlated_gaussian", "noise_multiplier": 2.0, "separation": TURNS, "shared_by": 5}
MASKS = {"use": "secagg.bonawitz", "bits": 64}


def shared(seal: Any = MASKS, noise: dict[str, Any] = SHARED, **changes: Any) -> dict[str, Any]:
    plain = recipe(
        min_clients=4, negotiate_mask={"use": "std.single_zone", "zone": "encrypted"},
        protect={"encrypted": [{"use": "std.clip", "norm": 1.0}, noise, seal]},
        postprocess={"encrypted": [seal["use"]]},
        sampling={"scheme": "cyclic", "rate": 1 / TURNS, "resting": "noise"},
    )  # fmt: skip
    return plain | changes


@pytest.mark.parametrize("seal", [MASKS, {"use": "std.bfv", "key_holder": "key_server", "range": 64}])
def test_all_clients_add_noise_and_those_whose_turn_it_is_what_they_learnt(seal: dict[str, Any]) -> None:
    plain = shared(seal, SHARED | {"source": "reproducible"}, train={"use": "toy.push"}, rounds=4)
    outcome = run_protocol(plain)
    made = Recipe.from_plain(plain, toy_catalog())
    root = factor("square_root", 4, TURNS)
    std = 2.0 * root.sensitivity(4, TURNS) / math.sqrt(5)
    vector = start = initial_vector(plain).astype(np.float64)
    inverse = np.linalg.inv(root.dense())
    for round in range(4):
        turn = sorted({*range(6)} - made.resting(round))
        assert len(turn) == 2
        vector = vector + sum(pushed(start, 7, c, round).astype(np.float64) for c in turn) / 2
        for client in range(6):
            drawn = [
                fedplug.stream(7, client, r, "std.distributed_correlated_gaussian", "encrypted").standard_normal(650)
                for r in range(round + 1)
            ]
            vector += std * inverse[round, : round + 1] @ np.array(drawn) / 2
    assert np.allclose(outcome.vector, vector, atol=1e-2 if seal is not MASKS else 1e-4)
    log = outcome.protocol.ledger.log
    assert [entry.charged for entry in log] == [sorted({*range(6)} - made.resting(round)) for round in range(4)]
    assert all(row.clients.answered == 6 for row in outcome.rows)


def test_everybody_is_protected_where_nobody_opens_uploads() -> None:
    report = run_protocol(shared()).protocol.ledger.report()
    views = report.views
    # Six clients have the noise of the required five, and an observing client knows its own.
    assert views["client"].epsilon == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    assert views["client_and_server"].epsilon == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    for party in ("released_model", "server"):
        assert views[party].epsilon == pytest.approx(gaussian_epsilon(2.0 * math.sqrt(6 / 5), 1e-5))
    assert report.sampling.resting == "noise"


def test_a_client_that_drops_out_takes_its_noise_along_and_one_that_comes_back_brings_none() -> None:
    fails = {"use": "toy.fail", "clients": [2], "rounds": [3]}
    plain = shared()
    plain["protect"]["encrypted"].insert(0, fails)
    outcome = run_protocol(plain)
    assert [row.clients.answered for row in outcome.rows] == [6, 6, 6, 5, 6, 6, 6, 6]
    epsilons = [row.epsilon or math.inf for row in outcome.rows]
    assert epsilons == sorted(epsilons)
    report = outcome.protocol.ledger.report()
    assert [warning for warning in report.warnings if "that of 5 of 6 counts" in warning]
    views = report.views
    assert views["released_model"].epsilon == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    assert views["client"].epsilon == pytest.approx(gaussian_epsilon(2.0 * math.sqrt(4 / 5), 1e-5))


@pytest.mark.parametrize("seal", [MASKS, {"use": "std.bfv", "key_holder": "key_server", "range": 64}])
def test_a_skipped_round_costs_the_noise_of_those_who_were_missing(
    seal: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients whose uploads arrived have added their noise, and remove it later. The others have none to remove."""
    closes = Closing.close

    def fails(self: Closing, block: Block, client: Client) -> Block:
        if client.client_id in (2, 3, 4) and self.facts.round == 3:
            raise ProtectionError("this client fails")
        return closes(self, block, client)

    monkeypatch.setattr(Closing, "close", fails)
    outcome = run_protocol(shared(seal))
    assert [row.clients.answered for row in outcome.rows] == [6, 6, 6, 0, 6, 6, 6, 6]
    views = outcome.protocol.ledger.report().views
    assert views["released_model"].epsilon == pytest.approx(gaussian_epsilon(2.0 * math.sqrt(3 / 5), 1e-5))


@pytest.mark.parametrize("which", [{}, {"factor": "blt"}])
def test_a_client_whose_state_went_back_cannot_take_its_noise_back_and_stays_out(which: dict[str, Any]) -> None:
    whole, before = Protocol.round, {}

    def restarted(protocol: Any, round: int) -> None:
        client = protocol.engine.clients.clients["client:2"]
        if round == 3:
            before["state"] = copy.deepcopy(client.to_plain())
        elif round == 4:  # its process ended after round 4, whose checkpoint has the state of the one before
            client.restore(before["state"])
        whole(protocol, round)

    with mock.patch.object(Protocol, "round", restarted):
        outcome = run_protocol(shared(noise=SHARED | which))
    assert [row.clients.answered for row in outcome.rows] == [6, 6, 6, 6, 5, 5, 5, 5]
    assert "does not know the noise that it would have to take back" in outcome.rows[-1].clients.dropped[2]
    views = outcome.protocol.ledger.report().views
    assert views["released_model"].epsilon == pytest.approx(gaussian_epsilon(2.0, 1e-5))


@pytest.mark.parametrize("which", [{}, {"factor": "blt"}])
def test_clients_that_go_on_go_on_from_the_noise_that_they_have_added(which: dict[str, Any], tmp_path: Path) -> None:
    plain = shared(noise=SHARED | {"source": "reproducible"} | which, rounds=5)
    whole = start(tmp_path / "whole", plain)
    with stopped(lambda _, round: round == 3):
        broken = start(tmp_path / "broken", plain)
    assert resume(broken) == 0
    found = [[row["accuracy"] for row in rows_of(folder)] for folder in (whole, broken)]
    assert found[0] == found[1]
    assert (whole / "ledger.json").read_text() == (broken / "ledger.json").read_text()


def test_where_a_client_holds_the_key_its_own_noise_alone_counts() -> None:
    keys = {"use": "std.bfv", "key_holder": "clients", "range": 64}
    views = run_protocol(shared(keys)).protocol.ledger.report().views
    alone = gaussian_epsilon(2.0 / math.sqrt(5), 1e-5)
    assert views["client_and_server"].epsilon == pytest.approx(alone)
    assert views["released_model"].epsilon == pytest.approx(gaussian_epsilon(2.0 * math.sqrt(6 / 5), 1e-5))


def test_the_check_names_obstacles_to_sharing_it_out() -> None:
    away = shared(sampling={"scheme": "cyclic", "rate": 1 / TURNS}, min_clients=2)
    assert "only the client that added noise can subtract it" in problems(away)
    assert "write sampling: {scheme: cyclic, rate: 0.333333, resting: noise}" in problems(away)
    poisson = shared(sampling={"scheme": "poisson", "rate": 0.5, "resting": "noise"})
    assert "resting=noise is for clients that take part in turn, not poisson" in problems(poisson)
    bare = shared(sampling={"scheme": "cyclic", "rate": 1 / TURNS, "resting": "noise"}, min_clients=3)
    del bare["protect"]["encrypted"][1]
    assert "rate=0.333333 gives 2 of 6 clients a round, fewer than min_clients=3" in problems(bare)
    assert "shared_by=9 exceeds the number of clients, 6" in problems(shared(noise=SHARED | {"shared_by": 9}))
    open_ = recipe(protect={"noised": [{"use": "std.clip", "norm": 1.0}, SHARED]}, postprocess={})
    assert "is enough for a sum, not for an upload" in problems(open_)
    twice = shared()
    twice["protect"]["encrypted"].insert(1, {"use": "std.gaussian", "noise_multiplier": 1.0})
    assert "the zone has noise already" in problems(twice) or "no bound holds" in problems(twice)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_the_check_names_obstacles_to_the_participations() -> None:
    assert "separation=3 is more than the 1 from one round of a client to its next" in problems(recipe(sampling=None))
    poisson = problems(recipe(sampling={"scheme": "poisson", "rate": 0.5}))
    assert "write separation: 3 in sampling, or separation: 1" in poisson
    cyclic = problems(recipe(sampling={"scheme": "cyclic", "rate": 0.5}))
    assert "write sampling: {scheme: cyclic, rate: 0.3333}, or separation: 2" in cyclic
    assert "participations=2 is less than the 3 of 8 rounds" in problems(recipe(NOISE | {"participations": 2}))
    banded = problems(recipe(NOISE | {"factor": "tree", "bands": 2}))
    assert "bands=2 belongs to square_root and banded, but factor is tree" in banded
    for kind in ("tree", "banded"):
        long = problems(recipe(NOISE | {"factor": kind}, rounds=5000))
        assert f"rounds=5000 is more than the 1024 of factor {kind}; write factor: square_root" in long
    assert "needs a bound of the L2 norm" in problems(recipe(protect={"noised": []}))
    twice = recipe(postprocess={"noised": [NOISE, {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1}]})
    assert "adds noise behind that of std.correlated_gaussian" in problems(twice)
    other = recipe(postprocess={"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1}, NOISE]})
    assert "the sum has noise already" in problems(other)


def test_plans_that_follow_from_data_are_refused() -> None:
    plain = recipe(
        negotiate_mask={"use": "paraaegis.vote", "ratio": 0.3}, score_parameters=[{"use": "paraaegis.magnitude"}],
        protect={"encrypted": [{"use": "std.bfv", "key_holder": "clients"}],
                 "noised": [{"use": "std.clip", "norm": 1.0}]},
    )  # fmt: skip
    plain["postprocess"] = {"encrypted": ["std.bfv"], "noised": [NOISE]}
    assert "other parameters come from other clients and in other rounds" in problems(plain)
    resting = shared(negotiate_mask=plain["negotiate_mask"], score_parameters=plain["score_parameters"])
    assert "clients with noise alone have none; write negotiate_mask: std.single_zone" in problems(resting)


def test_ballots_take_no_noise_back() -> None:
    operations = (fedplug.Clip(1.0), Noise.gaussian(1.0, takes_back=(0.5,)))
    with pytest.raises(Misplaced, match="the ballots of votes give noise that takes back some of that of earlier"):
        ballot_states("votes", operations, context())


class Uploads(fedplug.Protector):
    """Returns correlated noise at the client, where nothing may be removed again."""

    name = "uploads"

    def __init__(self, noise: Noise) -> None:
        object.__setattr__(self, "noise", noise)

    def protect(self, known: fedplug.Known, facts: fedplug.Facts) -> fedplug.Operations:
        return (self.noise,)


def context(rounds: int = 4, size: int = 8) -> fedplug.Facts:
    layout = fedplug.Layout.of([("weight", (size,))])
    return fedplug.Facts(0, rounds, layout, ("noised",), 4, 2, 7, "digest")


def test_an_upload_takes_no_noise_back() -> None:
    noise = Noise.gaussian(1.0, takes_back=(0.5,))
    with pytest.raises(Misplaced, match="this is no sum"):
        fold([Link("noised", "protect", "uploads", Uploads(noise), "client")], context())


def test_one_sum_a_round_and_as_many_values_in_each() -> None:
    part = CorrelatedGaussian(CorrelatedGaussian.Options(norm=1.0, noise_multiplier=1.0, separation=2))
    part.name = "std.correlated_gaussian"
    facts, server = context(), Server()
    link = Link("noised", "postprocess", part.name, part, "server")

    def noised(round: int, size: int = 8) -> fedplug.Block:
        here = dataclasses.replace(facts, round=round)
        known = fedplug.Known(zone="noised", link=part.name, layers=(8,), bounds=(Bound(1.0),), summed=True)
        step = _step(link, known, here)
        return execute(step, fedplug.Block("noised", size, np.zeros(size, np.float32)), server, here)

    noised(0)
    with pytest.raises(ProtectionError, match="has added noise in round 1 already"):
        noised(0)
    with pytest.raises(ProtectionError, match="noised 8 values before, and 7 now"):
        noised(1, 7)
    noised(1)
    noised(2)
    (corner,) = server.state.values()
    assert sorted(corner["noise"]) == [1, 2]  # noise that no later round removes is forgotten


def _step(link: Link, known: fedplug.Known, facts: fedplug.Facts) -> Any:
    from fedplug.api import links

    return links._step(link, known, facts)
