"""What several runs on one data set cost together."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fedplug import Reveals
from fedplug_lab.records import Compared
from fedplug_lab.together import Spent, _stated, looked_at, price_of, spent_in
from fedplug_ledger.composing import Cost
from fedplug_runs import functions
from gaussian_toys import gaussian_together
from row_toys import a_ledger, a_line, a_verdict

RECIPES = Path(__file__).parents[3] / "recipes"


def run(use: str, epsilon: float | None, seed: int = 1, line: Any = None, **data: Any) -> Any:
    """Epsilon toward those who get the model; replace-one costs twice that."""
    found = line or a_line("released_model", "none" if epsilon is None else "guaranteed", epsilon or 0.0)
    ledger = SimpleNamespace(verdict=a_verdict(released_model=found), rounds=SimpleNamespace(actual=3))
    recipe = {"data": {"use": use, **data}}
    return SimpleNamespace(summary=SimpleNamespace(recipe=recipe), ledger=ledger, rows=[], seed=seed)


def test_runs_on_one_data_set_add_up_whoever_has_which_of_its_examples() -> None:
    """With twice the epsilon of each, since an example is a part of what a client sends."""
    one = Compared("one", [run("std.digits", 2.0, clients=5), run("std.digits", 3.0, clients=10)])
    other = Compared("other", [run("std.digits", 4.0), run("std.mnist", 1.0)])
    assert looked_at([one, other]) == [
        "The 3 runs on std.digits together have epsilon 18.00 at delta 3e-05 at most for each example, since who has "
        "it differs between them, the sum of theirs, toward anybody who gets their models; so has a choice among them."
    ]


def test_clients_who_have_the_same_in_all_runs_add_up_as_such() -> None:
    (line,) = looked_at([Compared("one", [run("std.digits", 2.0, clients=5), run("std.digits", 3.0, clients=5)])])
    assert "epsilon 5.00 at delta 2e-05 at most for each client, the sum" in line
    seeds = [run("std.digits", 2.0, seed, clients=5) for seed in (1, 2)]
    assert "epsilon 8.00 at delta 2e-05 at most for each example" in looked_at([Compared("one", seeds)])[0]
    sites = [run("std.table", 2.0, seed, at="sites", file="a.csv") for seed in (1, 2)]
    (line,) = looked_at([Compared("one", sites)])
    assert "epsilon 4.00 at delta 2e-05 at most for each client" in line
    assert line.endswith("figures of examples that sites hold out, and so a choice by these, are not covered.")


def of_records(level: str, epsilon: float) -> Any:
    line = a_line("released_model", "guaranteed", unit=level, adjacency="one of them", epsilons=None,
                  stated={"epsilon_rdp": epsilon})  # fmt: skip
    return run("std.digits", None, line=line)


def test_epsilons_of_records_and_of_clients_are_no_epsilon_of_clients() -> None:
    (line,) = looked_at([Compared("two", [of_records("record", 1.5), run("std.digits", 2.0)])])
    assert "epsilon 5.50 at delta 2e-05 at most for each record, the sum" in line
    (line,) = looked_at([Compared("two", [of_records("record", 1.5), of_records("user", 2.0)])])
    assert line.endswith("have no epsilon that is known: theirs are for each record and for each user.")


def test_a_run_without_epsilon_leaves_no_promise() -> None:
    (line,) = looked_at([Compared("one", [run("std.digits", 2.0)]), Compared("bare", [run("std.digits", None)])])
    assert "promise nothing to anybody who sees them or the choice among them: 1 run has no epsilon" in line
    assert price_of([Spent(2.0, 1e-5), Spent(None)]).without == 1


@pytest.mark.parametrize("multipliers", [(3.0, 3.0), (3.0, 20.0), (5.0, 20.0)])
def test_gaussian_noise_of_several_runs_composes_exactly(multipliers: tuple[float, ...]) -> None:
    each = [Spent(8.0, 1e-6, cost=Cost("", 1 / multiplier**2)) for multiplier in multipliers]
    price = price_of([*each, Spent(0.25, 1e-6)])
    assert price.epsilon is not None
    assert not price.added
    assert price.epsilon == pytest.approx(0.25 + gaussian_together(multipliers, 2e-6))
    assert price.delta == pytest.approx(3e-6)
    assert price_of(each[:1]).epsilon == 8.0


def test_what_a_sum_states_better_stays_a_sum() -> None:
    """As of few releases that are not Gaussian, which compose by Renyi DP."""
    price = price_of([Spent(0.1, 0.0, cost=Cost("", 0.0, [("laplace", 10.0, 1)])), Spent(math.nan), Spent(1.0, 1e-9)])
    assert (price.epsilon, price.added, price.without) == (1.1, True, 1)


def test_a_run_keeps_what_composes_with_others(tmp_path: Path) -> None:
    few = {"data.clients": 4, "rounds": 2, "delta": 1e-6, "train.epochs": 1, "sampling": None,
           "postprocess.noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 30.0}]}  # fmt: skip
    for seed in (1, 2):
        functions.run(RECIPES / "central-dp-fedavg.yaml", few | {"seed": seed}, output=tmp_path)
    each = spent_in(tmp_path)
    price = price_of(each)
    assert price.epsilon is not None
    assert price.epsilon == pytest.approx(gaussian_together([30.0] * 4, 2e-6))
    assert price.epsilon < 0.75 * sum(run.epsilon or 0.0 for run in each)


def test_what_voids_a_verdict_leaves_no_price() -> None:
    """Such as liars who leave out noise that others count on."""
    spent = {"zero_out": {"epsilon_exact": 2.0}, "replace_one": {"epsilon_exact": 4.0}}
    for to, epsilon in ((("server", "released_model"), None), (("server",), 2.0)):
        voiding = Reveals("noise left out", to, voids=True).to_plain()
        assert _stated(a_ledger(epsilons=spent, reveals=[voiding]), []).epsilon == epsilon


def test_parts_of_a_data_set_may_share_examples_and_other_folders_do_not() -> None:
    parts = [run("std.images", 2.0, folder="a", train_size=400), run("std.images", 3.0, folder="a", train_size=800)]
    (line,) = looked_at([Compared("parts", [*parts, run("std.images", 1.0, folder="b")])])
    assert line.startswith("The 2 runs on std.images folder=a together have epsilon 10.00")


def test_features_of_a_data_set_are_of_its_examples() -> None:
    inner = {"use": "features.scattering", "of": {"use": "std.mnist", "features": None}}
    runs = [run("std.mnist", 1.0, features="oriented_gradients"), run("std.mnist", 1.0),
            run("features.whitening", 1.0, of=inner), run("features.whitening", 1.0, mean=[0.1], of=inner)]  # fmt: skip
    (line,) = looked_at([Compared("four", runs)])
    assert line.startswith("The 4 runs on std.mnist together have epsilon 8.00")
