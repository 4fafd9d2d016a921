"""DP-SGD for users with several examples: what takes part, what it costs, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.api.errors import RecipeError
from fedplug_baselines.user_dp_sgd import UserDpSgd, UserSteps, first_of_each
from fedplug_std.loss_distributions import Group, epsilon_of
from hypothesis import given
from hypothesis import strategies as st

TRAIN = {
    "use": "baselines.user_dp_sgd", "rate": 0.25, "lr": 0.5, "noise_multiplier": 2.0, "records_per_user": 2,
    "clients_per_user": 2,
}  # fmt: skip


def recipe(train: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    plain = {
        "name": "users", "seed": 1, "rounds": 3, "min_clients": 3, "model": "std.logistic", "delta": 1e-5,
        "data": {
            "use": "std.simulated_users", "users": 300, "skew": 0.5, "of": "std.digits", "clients": 4,
            "partition": {"use": "std.by_user", "clients_per_user": 2},
        },
        "train": TRAIN | (train or {}), "protect": {"clear": []}, "aggregate": "std.mean",
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    }  # fmt: skip
    return plain | changes


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 5))
def test_the_first_of_each_user_take_part_and_no_more(users: list[int], most: int) -> None:
    places = first_of_each(np.array(users, np.int64), most).tolist()
    seen: Counter[int] = Counter()
    expected = []
    for place, user in enumerate(users):
        if seen[user] < most:
            expected.append(place)
        seen[user] += 1
    assert places == expected


def test_no_more_examples_of_a_user_reach_training_than_the_price_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, spread = [], list[set[int]]()
    examples = UserDpSgd.examples

    def noted(self: UserDpSgd, client: Any) -> Any:
        chosen = examples(self, client)
        taken.append(Counter(chosen.users.tolist()))
        there = Counter(client.data.train.users.tolist())
        assert taken[-1] == {user: min(2, count) for user, count in there.items()}
        spread.append({*there})
        return chosen

    batches = list[int]()
    clipped = UserDpSgd._clipped_sum

    def summed(self: UserDpSgd, client: Any, gradients_of: Any, batch: Any) -> Any:
        most = max(Counter(batch.users.tolist()).values(), default=0)
        batches.append(most)
        return clipped(self, client, gradients_of, batch)

    monkeypatch.setattr(UserDpSgd, "examples", noted)
    monkeypatch.setattr(UserDpSgd, "_clipped_sum", summed)
    for _ in fedplug.protocol(recipe()):
        pass
    assert len(taken) == 3 * 4
    assert max(batches) == 2  # and both of some user were drawn
    per_user = Counter(user for users in spread[:4] for user in users)
    assert max(per_user.values()) == 2


@pytest.mark.parametrize("bounds", [(2, 2), (1, 1), (4, 2)])
def test_the_ledger_states_the_price_of_all_a_users_examples(bounds: tuple[int, int], tmp_path: Path) -> None:
    records, clients = bounds
    plain = recipe({"records_per_user": records, "clients_per_user": clients})
    plain["data"]["partition"]["clients_per_user"] = clients
    run = fedplug.run(plain, output=tmp_path, quiet=True, muted=["lab.report"])
    steps = 3 * 4 * clients  # rounds, steps of a round, clients that a user may be at
    assert run.metrics[-1].level_epsilons["user"] == pytest.approx(
        epsilon_of([(Group(2.0, 0.25, records), steps)], 1e-5), rel=1e-6
    )
    text = (run.folder / "ledger.json").read_text()
    assert "all examples of one user, added or removed" in text
    assert f"at most {records} a client and round" in text


def test_noise_for_an_epsilon_gives_that_epsilon() -> None:
    options = {key: value for key, value in TRAIN.items() if key not in ("use", "noise_multiplier")}
    trainer = UserDpSgd(UserDpSgd.Options(**options, epsilon=4.0, delta=1e-5))
    sigma, rate, steps = trainer._steps(rounds=10)
    found = trainer.epsilon_of([UserSteps(sigma, rate, steps, 100)] * 10, 1e-5)["epsilon_pld"]
    assert 3.99 < found <= 4.0
    less = trainer.epsilon_of([UserSteps(sigma - 2e-4, rate, steps, 100)] * 10, 1e-5)["epsilon_pld"]
    assert less > 4.0 - 1e-3
    assert rate == 0.25
    assert steps == 4


def test_all_engines_give_equal_models(tmp_path: Path) -> None:
    plain = recipe({"source": "reproducible"}, rounds=2)
    losses = [
        [row.loss for row in fedplug.run(plain, output=tmp_path / engine, engine=engine, quiet=True).metrics]
        for engine in ("local", "processes")
    ]
    assert losses[0] == losses[1]


def test_noise_of_a_known_seed_protects_nobody() -> None:
    trainer = UserDpSgd(UserDpSgd.Options(**{**OPTIONS, "source": "reproducible"}))
    assert trainer.epsilon_of([UserSteps(2.0, 0.25, 4, 9)], 1e-5) == {"epsilon_pld": math.inf}
    assert trainer.epsilon_of([], 1e-5) == {"epsilon_pld": 0.0}


OPTIONS = {key: value for key, value in TRAIN.items() if key != "use"}


@pytest.mark.parametrize(("release", "says"), [
    (UserSteps(2.0, 0.25, 4, 9), ""), (UserSteps(2.0, 0.25, 4, 0), "must be a whole number"),
    *((other, "must have") for other in (
        UserSteps(3.0, 0.25, 4, 9), UserSteps(2.0, 0.2, 5, 9), UserSteps(2.0, 0.25, 3, 9)
    )),
])  # fmt: skip
def test_a_client_states_the_release_of_the_recipe(release: UserSteps, says: str) -> None:
    problem = UserDpSgd(UserDpSgd.Options(**OPTIONS)).release_problem(release)
    assert says in problem
    assert bool(says) == bool(problem)


def test_a_split_that_spreads_users_further_than_the_price_counts_is_refused() -> None:
    def said(partition: Any, **train: Any) -> str:
        plain = recipe(train)
        plain["data"]["partition"] = partition
        try:
            fedplug.check(plain)
        except RecipeError as error:
            return str(error)
        return ""

    assert "std.iid may put the examples of a user at 4 clients, and the price counts 2" in said("std.iid")
    assert "clients_per_user: 4" in said("std.iid")
    assert said("std.iid", clients_per_user=4) == ""
    assert said({"use": "std.by_user", "clients_per_user": 2}) == ""
    assert "may put the examples of a user at 3 clients" in said({"use": "std.by_user", "clients_per_user": 3})


def test_data_that_name_no_user_are_refused(tmp_path: Path) -> None:
    plain = recipe({"clients_per_user": 4})
    plain["data"] = {"use": "std.digits", "clients": 4, "partition": "std.iid"}
    with pytest.raises(fedplug.FedplugError, match="needs to know whose each example is"):
        fedplug.run(plain, output=tmp_path, quiet=True)
