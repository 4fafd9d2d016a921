"""What the conformance kit asks of attacks and metrics: a metric that misleads is found out."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
from fedplug import Finds, Measures
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_kit.conform import conformance


class Wrong(fedplug.Metric):
    """Counts the labels that were found, and calls few of them many."""

    class Options(fedplug.Options):
        """None."""

    measures = Measures(kind="labels", better={"hits": "low"}, conventions="the number of labels, in order")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, Any]:
        """How many labels are right."""
        assert found.labels is not None
        return {"hits": int((found.labels == truth.labels).sum())}


class Untold(Wrong):
    """The same without saying what it compares."""

    measures = Measures(kind="pixels", better={}, conventions=" ")


class Silent(fedplug.Attack):
    """Says that it finds labels, and gives none."""

    class Options(fedplug.Options):
        """None."""

    finds = Finds(needs=Needs(update=False), what=frozenset({"labels"}), headline=("hits", "high"),
                  success=("hits", ">=", 1.0))  # fmt: skip

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """Nothing."""
        return AttackReport("finished")


def test_a_metric_that_calls_wrong_answers_better_is_found_out() -> None:
    with pytest.raises(AssertionError, match=r"hits is 2 for the truth, 0 for a wrong answer; better says low"):
        conformance(Wrong, group="metric")


def test_a_metric_says_what_it_compares_and_how() -> None:
    with pytest.raises(AssertionError) as found:
        conformance(Untold, group="metric")
    said = str(found.value)
    assert "kind of measures must say" in said
    assert "better of measures must map" in said
    assert "conventions of measures must give" in said


def test_an_attack_finds_what_it_says() -> None:
    with pytest.raises(AssertionError, match="it declares that it finds labels, but its report has none"):
        conformance(Silent)
