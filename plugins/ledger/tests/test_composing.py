"""What several runs cost together."""

from __future__ import annotations

import math

import pytest
from fedplug_ledger.composing import Cost, composed
from gaussian_toys import gaussian


def test_gaussian_studies_compose_exactly_and_not_by_adding_epsilons() -> None:
    studies = [(Cost(gaussian=3 / 4**2), 1e-5), (Cost(gaussian=5 / 6**2), 1e-6)]
    together = 1 / math.sqrt(3 / 4**2 + 5 / 6**2)
    assert composed(studies, 1e-5) == pytest.approx(gaussian(together, 1e-5), rel=1e-6)
    alone = [composed([study], 1e-5) for study in studies]
    assert max(alone) < composed(studies, 1e-5) < sum(alone)


def test_a_study_without_a_guarantee_leaves_none() -> None:
    assert composed([(Cost(gaussian=0.1), 1e-5), (Cost("reads the clear zone"), 1e-5)], 1e-5) == math.inf


def test_mechanisms_that_only_a_study_knows_are_added_with_their_delta() -> None:
    strange, plain = Cost(others=[("own.noise", 2.0, 3)], epsilon=0.7), Cost(gaussian=0.1)
    assert composed([(strange, 4e-6), (plain, 1e-5)], 1e-5) == pytest.approx(0.7 + composed([(plain, 0.0)], 6e-6))
    assert composed([(strange, 1e-5)], 1e-5) == math.inf


def test_laplace_noise_composes_by_renyi_dp_and_never_above_the_sum() -> None:
    one, two = Cost(others=[("laplace", 5.0, 10)]), Cost(others=[("laplace", 5.0, 30), ("pure", 8.0, 2)])
    together = composed([(one, 1e-5), (two, 1e-5)], 1e-5)
    assert together == pytest.approx(composed([(Cost(others=[("laplace", 5.0, 40), ("pure", 8.0, 2)]), 1e-5)], 1e-5))
    assert together <= 40 / 5 + 2 / 8
