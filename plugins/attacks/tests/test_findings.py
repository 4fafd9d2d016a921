"""Results of attacks, in a table and a conclusion: people count once, luck is no success, a bad fit no failure."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedplug_attacks.workshop.records import AttackSummary, TargetResult, TrueClasses
from fedplug_attacks.workshop.results import people_of, write_result, write_summary
from fedplug_attacks.workshop.words import conclusion, findings, idle, state_of
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
        "No image of 2 examples was recovered, and no other attack succeeded. All questions, each of one adversary: "
        "1 failed. That proves nothing about other attacks."
    )
    assert conclusion(AttackSummary([], {})) == ""


def test_each_question_has_a_row_by_the_attack_that_found_most(tmp_path: Any) -> None:
    """The closed form does not apply, and matching has the image: that is what the server found."""
    closed = dataclasses.replace(images(0, "a", []), attack="toy.closed", key="closed")
    closed.forms["adaptive"] = an_outcome("not_applicable", HIDDEN)
    for result in (closed, images(0, "a", [0])):
        write_result(tmp_path, result)
    (found,) = findings(write_summary(tmp_path, {}))
    assert (found.attack, found.state, found.found) == ("toy.copy", "succeeded", "1 of 1 image, MSE 0.100")


def test_one_adversary_is_named_once_whatever_it_found_in_several_rounds() -> None:
    judged = {"state": "success", "metric": "presence_auc", "value": 0.99, "low": 0.97, "high": 1.0, "guess": 0.5}
    said = conclusion(AttackSummary([classes(round=1, judged=judged), classes(round=3, judged=judged)], {}))
    assert said.startswith(
        "The server found which classes a client has (presence AUC 0.990 (0.970 to 1.000), 5 targets). All questions"
    )


def test_what_was_found_otherwise_in_another_round_is_said_with_the_rounds() -> None:
    """The same phrase came twice, with other numbers."""
    judged = {"state": "success", "metric": "presence_auc", "value": 0.99, "low": 0.97, "high": 1.0, "guess": 0.5}
    rows = [classes(round=1, judged=judged), classes(round=5, judged=judged, adversary="client")]
    rows.append(classes(round=3, judged={**judged, "value": 0.8, "low": 0.7, "high": 0.9}))
    said = conclusion(AttackSummary(rows, {}))
    which = "found which classes a client has"
    assert f"The server and another client {which}, round 1 and round 5 (presence AUC 0.990 (" in said
    assert f"The server {which}, round 3 (presence AUC 0.800 (" in said


def test_what_was_not_attacked_is_in_the_conclusion(tmp_path: Any) -> None:
    write_result(tmp_path, images(0, "ab", []))
    unseen = "Not attacked: rounds 1 and 3 sent the zone clear in the clear."
    left = {"gone": "attacks.inverting by the server, round 4", "server-0ab": "made meanwhile"}
    summary = write_summary(tmp_path, {}, lambda rounds: [unseen] if rounds == {0} else [], left)
    said = conclusion(summary)
    assert unseen in said
    assert "Not attacked for want of time: attacks.inverting by the server, round 4 (1 target)." in said
    assert "meanwhile" not in said
    assert "gone" in write_summary(tmp_path, {}).left


def test_a_wide_interval_says_that_targets_are_too_few_and_a_narrow_one_that_guesses_have_as_much() -> None:
    judged = {"metric": "presence_auc", "value": 0.52, "low": 0.3, "high": 0.8, "guess": 0.5}
    wide = classes(judged={**judged, "state": "inconclusive"}, succeeded=0, inconclusive=5)
    narrow = classes(judged={**judged, "state": "failed"}, succeeded=1, adversary="client")
    assert {one.who: one.status for one in findings(AttackSummary([wide, narrow], {}))} == {
        "the server": "inconclusive; too few targets or candidates to tell it from a guess",
        "another client": "failed; no more than a guess",
    }  # fmt: skip


def test_an_interval_stays_within_the_range_of_a_share_and_other_numbers_are_as_they_are() -> None:
    judged = {"state": "success", "metric": "m", "value": 0.9, "low": 0.7, "high": 1.2, "guess": 0.5}
    row = a_summary_row(judged=judged, finds=["labels"])
    (found,) = findings(AttackSummary([row], {}))
    assert found.found == "m 0.900 (0.700 to 1.000), 5 targets"
    count = {**judged, "value": 7.5, "low": 4.5, "high": 9.5, "guess": 2.0}
    (found,) = findings(AttackSummary([a_summary_row(judged=count, finds=["labels"])], {}))
    assert found.found == "m 7.500 (4.500 to 9.500), 5 targets"


def test_what_a_search_might_have_found_is_not_called_safe() -> None:
    row = a_summary_row(succeeded=0, not_applicable=5, metrics={}, reasons={HIDDEN: 5}, remedies={"it: --adversary": 5})
    left = {"key": "attacks.inverting by the server, round 1, 8 examples"}
    (found,) = findings(AttackSummary([row], {}, left=left))
    assert found.status == "inconclusive; no time for attacks.inverting"
    (other,) = findings(AttackSummary([dataclasses.replace(row, adversary="client")], {}, left=left))
    assert other.state == "not applicable"


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
    assert found.cells[2:] == (
        "–", "–", f"not applicable; {HIDDEN}; it applies to another client: --adversary client"
    )  # fmt: skip
    nobody = a_summary_row(**none, attack="toy.none", finds=["labels"])
    summary = AttackSummary([could, nobody], {})
    assert [one.attack for one in findings(summary)] == ["toy.copy"]
    assert idle(summary) == [f"toy.none does not apply to this run: {HIDDEN}."]
    assert "1 not applicable" in conclusion(summary)
