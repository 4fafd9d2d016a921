"""The words of a verdict."""

from __future__ import annotations

import dataclasses
import math

import pytest
from fedplug_ledger.grades import PARTIES
from fedplug_ledger.tiers import MARKS
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.verdict_words import times
from verdict_toys import line


def test_a_guarantee_names_epsilon_delta_unit_and_both_adjacencies_in_words() -> None:
    one = dataclasses.replace(line("client", "guaranteed"), rests_on=["it holds"], not_covered=["mask"])
    assert str(one) == (
        "another client: epsilon 2.00 for each client; the odds of a guess change by a factor of at most 7.4; "
        "delta 1e-05, add-or-remove one client; replace-one: epsilon 4.00; rests on: it holds; not covered: mask"
    )
    assert str(line("key_holder", "absent")) == "the key server: no such party: there is none"
    assert str(line("server", "beyond", 90.0)) == "the server: no guarantee: too large"


def test_its_text_has_a_line_for_each_party_with_a_sign_and_words() -> None:
    verdict = Verdict.of([line(party, "none") for party in PARTIES])
    opening, *lines = verdict.text()
    assert opening.startswith("No protection by any guarantee. There is no guaranteed limit on what the server,")
    assert [one.strip() for one in lines[1::2]] == ["sees its own"] * 5
    assert [MARKS["none"] in one and "no guarantee: reads it" in one for one in lines[::2]] == [True] * 5
    assert len({*MARKS.values()}) == 6


def test_an_epsilon_of_zero_that_noise_bought_keeps_its_terms() -> None:
    bought = line("client", "guaranteed", 0.0)
    nothing = dataclasses.replace(bought, nothing=True)
    assert bought.guarantee == "epsilon 0 for each client"
    assert "delta 1e-05" in bought.terms
    assert (nothing.guarantee, nothing.terms) == ("learns nothing of the updates (epsilon 0)", "")


def test_guarantees_of_other_units_are_told_apart() -> None:
    """Records toward one party, clients toward another: neither represents both."""
    record = dataclasses.replace(line("client", "guaranteed"), unit="record", epsilons=None, stated={"pld": 1.5})
    server = dataclasses.replace(line("server", "guaranteed", 0.0), nothing=True)
    verdict = Verdict.of([server, record])
    assert verdict.opening == "Protected from everybody named, for each client or record"
    assert verdict.headline == (
        "Each client's data are protected from the server: nothing of the updates can be read; each record's data are "
        "protected from another client, with epsilon 1.50 at most."
    )


def test_coalitions_that_no_line_judges_are_named_last() -> None:
    lines = [line(party, "guaranteed") for party in PARTIES]
    verdict = Verdict.of(lines, ["the server together with the key server can decrypt every upload"])
    assert verdict.caveat == "Not judged: the server together with the key server can decrypt every upload."
    assert verdict.text()[-1].strip() == verdict.caveat
    assert str(verdict).endswith(f". {verdict.caveat}")
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert (Verdict.of(lines).caveat, Verdict.of(lines).status) == ("", verdict.status)


@pytest.mark.parametrize(
    ("epsilon", "said"), [(1.0, "2.8"), (2.0, "7.4"), (5.69, "300"), (11.48, "97,000"), (math.log(9.99), "10")]
)
def test_odds_are_rounded_up(epsilon: float, said: str) -> None:
    assert times(epsilon) == said
