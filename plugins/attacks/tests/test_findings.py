"""Results of attacks, in a table and a conclusion: people count once, luck is no success, a bad fit no failure."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fedplug_attacks.workshop.findings import by_luck, conclusion, findings, idle, state_of
from fedplug_attacks.workshop.records import AttackSummary, TargetResult, TrueClasses
from fedplug_attacks.workshop.results import people_of, write_result, write_summary
from target_toys import a_summary_row, a_target, an_outcome

HIDDEN = "all entries are hidden"


def images(client: int, people: str, recovered: list[int], adversary: str = "server", **changes: Any) -> TargetResult:
    outcome = an_outcome("success" if recovered else "failed", metrics={"mse": 0.1}, recovered=recovered, **changes)
    truth = TrueClasses([], [0] * len(people), list(people))
    key = f"{adversary}-{client}{people}"
    return dataclasses.replace(a_target(client), forms={"adaptive": outcome}, adversary=adversary, truth=truth, key=key)


def classes(**changes: Any) -> Any:
    return a_summary_row(finds=["labels"], ranking={"metric": "presence_auc", "better": "high"}, **changes)


def test_people_are_counted_once_whoever_recovered_them() -> None:
    found = [images(0, "abc", [0]), images(0, "a", [0], "client"), images(1, "a", []), images(2, "xy", [1], "client")]
    people = people_of(found)
    assert (people.attacked, people.recovered) == (6, 2)
    assert people.by == {"server": 1, "client": 2}
    hidden = images(3, "z", [])
    hidden.forms["adaptive"] = an_outcome("not_applicable", HIDDEN)
    assert people_of([*found, hidden]).attacked == 6


def test_one_recovered_person_is_a_success_and_the_conclusion_names_who(tmp_path: Any) -> None:
    for result in (images(0, "abcdefgh", [2]), images(1, "abcdefgh", []), images(0, "abcdefgh", [2], "client")):
        write_result(tmp_path, result)
    summary = write_summary(tmp_path, {})
    said = conclusion(summary)
    assert said.startswith("The image of 1 of 16 examples was recovered: by ")
    assert "the server 1" in said
    assert "another client 1" in said
    assert "proves nothing" not in said
    assert [(one.who, one.found.split(",")[0], one.state) for one in findings(summary)] == [
        ("another client", "1 of 8 images", "succeeded"), ("the server", "1 of 16 images", "succeeded"),
    ]  # fmt: skip


def test_nothing_found_says_how_many_were_looked_for_and_proves_nothing(tmp_path: Any) -> None:
    write_result(tmp_path, images(0, "ab", []))
    said = conclusion(write_summary(tmp_path, {}))
    assert said == (
        "No image of 2 examples was recovered, and no other attack succeeded. All attacks, each by one adversary: 1 "
        "failed. That proves nothing about other attacks."
    )
    assert conclusion(AttackSummary([], {})) == ""


@pytest.mark.parametrize(
    ("succeeded", "targets", "luck", "state"),
    [(0, 9, 0.0, "failed"), (1, 9, 0.1, "failed"), (4, 9, 0.1, "succeeded"), (1, 1, 0.0, "succeeded"),
     (1, 1, 0.5, "failed"), (1, 10, 0.0, "succeeded"), (10, 10, 0.9, "failed")],
)  # fmt: skip
def test_what_guesses_reach_as_often_is_no_success(succeeded: int, targets: int, luck: float, state: str) -> None:
    row = classes(succeeded=succeeded, targets=targets, luck=luck)
    assert state_of(row) == state
    assert 0 <= by_luck(row) <= 1
    (found,) = findings(AttackSummary([row], {}))
    assert (found.remark == "as many as by luck") == bool(succeeded and state == "failed")


def test_searches_that_did_not_fit_are_inconclusive() -> None:
    assert state_of(a_summary_row(succeeded=0, inconclusive=5)) == "inconclusive"
    some = a_summary_row(succeeded=0, inconclusive=3)
    assert state_of(some) == "failed"
    (found,) = findings(AttackSummary([some], {}))
    assert found.status == "failed; 3 inconclusive"


def test_what_does_not_apply_names_who_could_and_what_applies_to_nobody_is_one_sentence() -> None:
    none = {"succeeded": 0, "not_applicable": 5, "metrics": {}, "reasons": {HIDDEN: 5}}
    could = a_summary_row(**none, remedies={"it applies to another client: --adversary client": 5})
    (found,) = findings(AttackSummary([could], {}))
    assert found.cells[2:] == ("–", "–", "not applicable; it applies to another client: --adversary client")
    nobody = a_summary_row(**none, attack="toy.none")
    summary = AttackSummary([could, nobody], {})
    assert [one.attack for one in findings(summary)] == ["toy.copy"]
    assert idle(summary) == [f"toy.none does not apply to this run: {HIDDEN}."]
    assert "1 not applicable" in conclusion(summary)
