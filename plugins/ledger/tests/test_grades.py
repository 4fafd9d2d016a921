"""The grades of lines."""

from __future__ import annotations

import dataclasses

from verdict_toys import line


def test_a_guarantee_with_a_useless_replace_one_epsilon_is_weak() -> None:
    weak, edge = line("client", "guaranteed", 11.0), line("client", "guaranteed", 10.0)
    assert weak.terms.endswith("epsilon 22.00, which promises nothing useful")
    assert (weak.weak, weak.grade, weak.guarantee) == (True, "weak", "weak guarantee: epsilon 11.00 for each client")
    assert (edge.weak, edge.grade, edge.guarantee) == (False, "guaranteed", "epsilon 10.00 for each client")
    assert not dataclasses.replace(weak, unit="record", epsilons=None, stated={"pld": 11.0}).weak
