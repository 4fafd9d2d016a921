"""The verdict: its levels, its words, and that less protection never makes it better."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_ledger.grades import PARTIES, Grade, Status
from fedplug_ledger.verdict import MOST_WORDS, Verdict
from fedplug_ledger.verdict_words import STATUSES
from hypothesis import given
from hypothesis import strategies as st
from ledger_toys import CENTRAL, LOCAL, enter, ledger_of
from verdict_toys import line

STATES: tuple[Grade, ...] = ("guaranteed", "weak", "beyond", "none", "absent")
BETTER = list(STATUSES)


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (("guaranteed", "absent", "guaranteed"), "protected_from_all"),
        (("guaranteed", "none"), "protected_from_some"),
        (("guaranteed", "beyond"), "protected_from_some"),
        (("beyond", "none"), "no_meaningful_guarantee"),
        (("none", "absent", "none"), "no_protection"),
        (("weak", "absent", "guaranteed"), "weakly_protected_from_all"),
        (("weak", "none", "guaranteed"), "protected_from_some"),
        (("weak", "beyond"), "weakly_protected_from_some"),
        ((), "nothing_run"),
    ],
)
def test_the_levels_are_those_that_are_documented(states: tuple[Grade, ...], status: Status) -> None:
    verdict = Verdict.of([line(party, state) for party, state in zip(PARTIES, states, strict=False)])
    assert verdict.status == status
    assert verdict.opening == STATUSES[status]


@given(st.lists(st.sampled_from(STATES[:4]), min_size=5, max_size=5), st.integers(0, 4))
def test_a_party_that_loses_protection_never_makes_the_verdict_better(states: list[Grade], place: int) -> None:
    worse = list(states)
    worse[place] = STATES[min(3, STATES.index(states[place]) + 1)]

    def level(these: list[Grade]) -> int:
        return BETTER.index(Verdict.of([line(p, s) for p, s in zip(PARTIES, these, strict=True)]).status)

    assert level(worse) >= level(states)


def test_a_weak_line_shows_in_the_status_the_sign_and_the_headline() -> None:
    verdict = Verdict.of([line("server", "guaranteed"), line("client", "weak"), line("released_model", "none")])
    assert verdict.opening == "Protected from some, not from everybody"
    assert verdict.headline == (
        "Each client's data are protected from the server, with epsilon 2.00 at most; each client's data are weakly "
        "protected from another client, with epsilon 11.00 at most, but not from anybody who gets the model."
    )
    assert any(one.startswith("  ~ another client") for one in verdict.text())
    assert Verdict.of(verdict.lines[:2]).opening == "Weakly protected from everybody named"


@given(st.lists(st.sampled_from([1.0, 9.0, 10.0, 10.1, 11.0, 19.0]), min_size=5, max_size=5), st.integers(0, 4))
def test_a_larger_epsilon_never_makes_the_verdict_better(epsilons: list[float], place: int) -> None:
    larger = [epsilon + (number == place) for number, epsilon in enumerate(epsilons)]
    found = [Verdict.of([line(p, "guaranteed", e) for p, e in zip(PARTIES, these, strict=True)])
             for these in (epsilons, larger)]  # fmt: skip
    assert BETTER.index(found[1].status) >= BETTER.index(found[0].status)


def test_nothing_run_says_so() -> None:
    assert str(Verdict("nothing_run")) == "Nothing to judge."
    assert Verdict("nothing_run").text() == ["Nothing to judge. No round was recorded, so nothing was released."]


def test_it_comes_back_from_json() -> None:
    verdict = Verdict.of([line(party, "guaranteed", math.inf) for party in PARTIES])
    assert Verdict.from_json(verdict.to_json()) == verdict


ODD = Release("gaussian", 0.05, 1.0)
SEEDED = dataclasses.replace(LOCAL, source="reproducible")
SHOWN = Reveals("how many clients sent each parameter", ("released_model",), voids=True, note="bare")
LONG = dataclasses.replace(SHOWN, what="what a component has to say of itself in too many words")
CASES: list[Any] = [
    ({"zone_sizes": {"clear": 10.0}}, {}),
    ({"zone_sizes": {"clear": 10.0, "noised": 5.0, "my own zone": 3.0}}, {}),
    ({"zone_sizes": {"noised": 10.0}, "releases": {"noised": [ODD]}}, {}),
    ({"zone_sizes": {"noised": 10.0}, "releases": {"noised": [SEEDED]}}, {}),
    ({"zone_sizes": {"noised": 10.0}, "releases": {"noised": [CENTRAL]}}, {}),
    ({"zone_sizes": {"noised": 10.0}, "releases": {"noised": [LOCAL]}}, {"reveals": [SHOWN]}),
    ({"zone_sizes": {"noised": 10.0}, "releases": {"noised": [LOCAL]}}, {"reveals": [LONG]}),
    ({"zone_sizes": {"noised": 10.0}, "releases": {"noised": [LOCAL]}}, {"delta": 0.1}),
    *(
        ({"zone_sizes": {"encrypted": 10.0}, "releases": {"encrypted": noise}}, {"key_holders": {"encrypted": holder}})
        for holder in ("clients", "key_server", "shares") for noise in ([], [LOCAL], [CENTRAL])
    ),
]  # fmt: skip


@pytest.mark.parametrize(("round", "facts"), CASES)
def test_every_line_says_something_in_few_words(round: dict[str, Any], facts: dict[str, Any]) -> None:
    ledger = enter(ledger_of(**facts), round["zone_sizes"], round.get("releases", {}))
    verdict = ledger.verdict()
    assert [each.party for each in verdict.lines] == list(PARTIES)
    for each in verdict.lines:
        said = [each.guarantee, each.rest, each.detail]
        assert all(said), each
        assert not any(word in text for text in said for word in ("–", "none ", "un-noised", "UNACCOUNTED")), said
        assert "aggregator" not in each.guarantee + each.rest
        if each.state != "guaranteed":
            assert 0 < len(each.reason.split()) <= MOST_WORDS, each.reason
        else:
            assert each.rests_on
