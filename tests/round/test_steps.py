"""The protocol's questions to parties: one method per question, marked for the party that answers, defined once."""

from __future__ import annotations

from fedplug.api.component import site_of
from fedplug.round.base import PartySteps
from fedplug.round.set_up import Joining
from fedplug.round.steps import Adopting, Opening, Protecting, Steps, Training

PARTS = (Joining, Training, Protecting, Adopting, Opening)


def test_every_question_is_for_one_party() -> None:
    asked = {name: site_of(method) for name, method in vars_of(Steps).items() if callable(method)}
    assert {name for name, site in asked.items() if site == "key_server"} == {
        "deal_answer_key", "hear_all", "open",
    }  # fmt: skip
    assert {name for name, site in asked.items() if site == "client"} == {
        "join", "deal", "take_secret", "take_answer_key", "take_weight", "ready",
        "hear", "train", "protect", "adopt", "evaluate", "fingerprint", "goes_on",
    }  # fmt: skip
    assert None not in asked.values()


def test_no_part_hides_a_method_of_another() -> None:
    names = [name for part in PARTS for name in vars(part) if not name.startswith("__")]
    assert len(names) == len(set(names))
    assert [part for part in Steps.__mro__ if part in PARTS] == list(PARTS)


def vars_of(cls: type) -> dict[str, object]:
    """Public members of a class and its bases, without those that all steps have."""
    common = vars(PartySteps).keys()
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_") and name not in common}
