"""What several runs on one data set cost together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fedplug_lab.records import Compared
from fedplug_lab.together import Spent, looked_at, price_of


def run(use: str, epsilon: float | None, source: str = "secure", **data: Any) -> Any:
    ledger = SimpleNamespace(
        epsilon=epsilon, delta=1e-5, rounds=SimpleNamespace(actual=3), noise=[SimpleNamespace(source=source)]
    )  # fmt: skip
    return SimpleNamespace(summary=SimpleNamespace(recipe={"data": {"use": use, **data}}), ledger=ledger, rows=[])


def test_runs_on_one_data_set_add_up_whoever_has_which_of_its_examples() -> None:
    one = Compared("one", [run("std.digits", 2.0, clients=5), run("std.digits", 3.0, clients=10)])
    other = Compared("other", [run("std.digits", 4.0), run("std.mnist", 1.0)])
    assert looked_at([one, other]) == [
        "The 3 runs on std.digits together have epsilon 9.00 at delta 3e-05 at most, their sum; so has a choice among "
        "them."
    ]


def test_a_run_without_epsilon_leaves_no_promise() -> None:
    (line,) = looked_at([Compared("one", [run("std.digits", 2.0)]), Compared("bare", [run("std.digits", None)])])
    assert "promise nothing to anybody who sees them or the choice among them: 1 run has no epsilon" in line
    assert price_of([Spent(2.0, 1e-5), Spent(None)]).without == 1


def test_noise_that_follows_from_a_seed_counts_as_none() -> None:
    (line,) = looked_at([Compared("two", [run("std.digits", 2.0), run("std.digits", 2.0, source="reproducible")])])
    assert "promise nothing" in line


def test_parts_of_a_data_set_may_share_examples_and_other_folders_do_not() -> None:
    parts = [run("std.images", 2.0, folder="a", train_size=400), run("std.images", 3.0, folder="a", train_size=800)]
    (line,) = looked_at([Compared("parts", [*parts, run("std.images", 1.0, folder="b")])])
    assert line.startswith("The 2 runs on std.images together have epsilon 5.00")
