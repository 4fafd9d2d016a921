"""An opened sum less all updates in it but one is that one: by whom, how exactly, and where it is not to be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import Runs, machinery, observed, seen
from fedplug_attacks.api.observation import ObservedUpdate, Seen
from saved_toys import shield, zone
from toy_components import paraaegis, recipe_of

BFV = {"use": "std.bfv", "key_holder": "key_server"}
SEALED = recipe_of("encrypted", [BFV], postprocess={"encrypted": ["std.bfv"]})
CLIENTS = "client:1+client:2+client:3"
ALL_BUT_ONE = f"server+{CLIENTS}"
UNIFORM = {"use": "std.mean", "weighting": "uniform"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def known(folder: Path, *words: Any, **scope: Any) -> tuple[ObservedUpdate, Any]:
    found, truth = observed(folder, *words, **scope)
    assert found.update is not None
    return found.update, truth.update


def close(update: ObservedUpdate, truth: Any, where: Any = slice(None)) -> bool:
    """Whether visible values are the true ones, up to the rounding of an encryption."""
    gap = np.abs(update.dense(np.nan) - truth)[where]
    return bool((gap < 1e-3 * np.abs(truth).max()).all())


@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("adversary", [ALL_BUT_ONE, CLIENTS])
def test_all_but_one_have_the_last_ones_update(runs: Runs, adversary: str, round: int) -> None:
    """Weighted by examples, under a key that nobody colluding holds; of the last round, too."""
    update, truth = known(runs.of(SEALED), adversary, 0, round)
    assert update.subtracted == ("encrypted",)
    assert update.contributors == (0,)
    assert (update.states == Seen.CLEAR).all()
    assert close(update, truth)


@pytest.mark.parametrize("adversary", ["server", "eavesdropper", "server+client:1+client:2", "client:1+client:3"])
def test_fewer_have_nothing(runs: Runs, adversary: str) -> None:
    update, _ = known(runs.of(SEALED), adversary, 0)
    assert update.subtracted == ()
    assert (update.states == Seen.ENCRYPTED).all()


def test_a_zone_of_the_vote_is_taken_off_where_it_lies(runs: Runs) -> None:
    folder = runs.of(paraaegis(seal=BFV))
    update, truth = known(folder, ALL_BUT_ONE, 0, 2)
    where = zone(folder, "encrypted", 2)
    assert update.subtracted == ("encrypted",)
    assert np.array_equal(update.states == Seen.CLEAR, where)
    assert close(update, truth, where)
    fewer, _ = known(folder, "server+client:1+client:2", 0, 2)
    assert np.array_equal(fewer.states == Seen.ENCRYPTED, where)


def test_what_the_key_server_answers_to_clients_alone_is_taken_off_too(runs: Runs) -> None:
    """SelectiveShield: the noise stays, what the client keeps stays hidden, and the consensus is open."""
    folder = runs.of(shield())
    update, truth = known(folder, ALL_BUT_ONE, 0, 2)
    where = zone(folder, "encrypted", 2)
    assert update.subtracted == ("encrypted",)
    assert np.array_equal(update.states == Seen.CLEAR, where)
    assert close(update, truth, where)
    assert np.array_equal(update.states == Seen.RETAINED, zone(folder, "retained", 2))


def test_protected_links_do_not_hide_the_last_one_from_all_others(runs: Runs) -> None:
    folder = runs.of(recipe_of(aggregate=UNIFORM))
    update, truth = known(folder, CLIENTS, 0, 1, protected_links=True)
    assert update.subtracted == ("clear",)
    assert close(update, truth)
    found, _ = observed(folder, "client:1+client:2", 0, 1, protected_links=True)
    assert found.update is None
    # By examples, nobody told them how much the last one weighs.
    found, _ = observed(runs.of(recipe_of()), CLIENTS, 0, 1, protected_links=True)
    assert found.update is None


def test_noise_on_the_sum_stays_in_the_difference(runs: Runs) -> None:
    """Central noise of 0.5 times a clip to 0.05: what is left has a standard deviation of 0.025, and says so."""
    central = {"use": "std.central_gaussian", "norm": 0.05, "noise_multiplier": 0.5}
    folder = runs.of(
        recipe_of(protect={"clear": [{"use": "std.clip", "norm": 0.05}]}, aggregate=UNIFORM,
                  postprocess={"clear": [central]})
    )  # fmt: skip
    update, truth = known(folder, CLIENTS, 0, 1, protected_links=True)
    assert (update.states == Seen.NOISED).all()
    assert update.sigma == pytest.approx(0.025)
    clipped = truth * min(1.0, 0.05 / np.linalg.norm(truth))
    assert float(np.std(update.values - clipped)) == pytest.approx(0.025, rel=0.1)


def test_sizes_told_before_a_run_that_recorded_nothing_are_known_to_its_readers(runs: Runs) -> None:
    """Else all but one would seem to learn nothing of the last one by a probe, which runs no set-up."""
    probe = {"batch_size": 3, "batches": 1}
    folder = runs.of(SEALED, record=False)
    with machinery(folder, adversaries=[CLIENTS], rounds=[2], targets=[0], probe=probe) as run:
        found, truth = seen(run, CLIENTS, 0)
    assert found.update is not None
    assert found.update.subtracted == ("encrypted",)
    assert close(found.update, truth.update)
    with machinery(folder, adversaries=[CLIENTS], rounds=[2], targets=[0], probe=probe, protected_links=True) as run:
        found, _ = seen(run, CLIENTS, 0)
    assert found.update is None


@pytest.mark.parametrize("plain", [SEALED, shield()], ids=["sealed", "shield"])
def test_the_sums_of_a_probe_are_made_and_taken_apart(runs: Runs, plain: Any) -> None:
    with machinery(runs.of(plain), adversaries=[ALL_BUT_ONE], rounds=[2], targets=[0],
                   probe={"batch_size": 3, "batches": 2}) as run:  # fmt: skip
        for number in (0, 1):  # the key server of the second probe has opened nothing yet
            found, truth = seen(run, ALL_BUT_ONE, 0, number)
            assert found.update is not None
            assert found.update.subtracted == ("encrypted",)
            clear = found.update.states == Seen.CLEAR
            assert clear.any()
            assert close(found.update, truth.update, clear)


def test_nothing_is_summed_in_a_probe_where_nobody_could_subtract(runs: Runs) -> None:
    with machinery(runs.of(SEALED), adversaries=["server+client"], rounds=[2], targets=[0],
                   probe={"batch_size": 3}) as run:  # fmt: skip
        (occasion,) = run.occasions.of(1, False)
        assert list(occasion.later()) == []
