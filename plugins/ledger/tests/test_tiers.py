"""The scale of guarantees: it has no cliff, and what promises less is never placed above what promises more."""

from __future__ import annotations

import itertools

import pytest
from fedplug_ledger.grades import Epsilons
from fedplug_ledger.tiers import FROM_BEST, MARKS, TIERS, Tier
from fedplug_ledger.verdict import Line, Verdict
from row_toys import a_line


def of(zero_out: float, replace_one: float) -> Line:
    """A guarantee for clients with these epsilons."""
    return a_line("server", "guaranteed", epsilons=Epsilons({"exact": zero_out}, {"exact": replace_one}))


@pytest.mark.parametrize(
    ("zero_out", "replace_one", "tier"),
    [
        (0.4, 0.9, "strict"), (0.4, 1.1, "moderate"), (3.0, 7.0, "moderate"), (5.63, 13.0, "loose"),
        (8.0, 19.12, "loose"), (8.5, 20.36, "weak"), (12.0, 3.0, "loose"),
    ],
)  # fmt: skip
def test_a_line_is_placed_by_the_larger_of_its_epsilons(zero_out: float, replace_one: float, tier: Tier) -> None:
    assert of(zero_out, replace_one).tier == tier


def test_just_below_what_is_weak_has_the_sign_of_what_is_weak() -> None:
    assert of(8.0, 19.12).mark == of(8.5, 20.36).mark != of(0.4, 0.9).mark


def test_more_epsilon_is_never_a_better_place() -> None:
    places = [FROM_BEST.index(of(epsilon / 2, epsilon).tier) for epsilon in (0.01, 0.5, 1, 1.1, 5, 10, 11, 20, 21, 40)]
    assert places == sorted(places)
    assert [*map(FROM_BEST.index, ("nothing", "strict"))] == [1, 2]
    assert {*FROM_BEST} == {*TIERS} == {*MARKS}


def test_a_guarantee_of_records_is_below_every_guarantee_of_clients() -> None:
    record = a_line("server", "guaranteed", unit="record", epsilons=None, stated={"pld": 0.01})
    assert record.tier == "part"
    clients = [of(0.4, 0.9).tier, of(3.0, 7.0).tier, of(8.0, 19.12).tier, of(8.5, 20.36).tier]
    assert max(map(FROM_BEST.index, clients)) < FROM_BEST.index("part")
    assert record.mark not in {MARKS[tier] for tier in clients}


@pytest.mark.parametrize("grades", [*itertools.product(("guaranteed", "weak", "beyond", "none", "absent"), repeat=2)])
def test_a_verdict_is_no_better_than_its_worst_line(grades: tuple[str, str]) -> None:
    lines = [a_line(party, grade) for party, grade in zip(("server", "client"), grades, strict=True)]  # type: ignore[arg-type]
    verdict, there = Verdict.of(lines), [line for line in lines if line.state != "absent"]
    safe = [line for line in there if line.state == "guaranteed"]
    if not there:
        assert verdict.tier == "absent"
    elif len(safe) == len(there):
        assert verdict.tier == max((line.tier for line in safe), key=FROM_BEST.index)
    else:
        assert verdict.tier == ("some" if safe else "none")
