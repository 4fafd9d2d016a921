"""The declarations of roles: frozen records that refuse invalid values."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import fedplug
import pytest
from fedplug import Declares, Finds, Plans, Reads, Scoring, Wants
from fedplug.api.roles import ROLES, Account
from fedplug_attacks.api.needs import Needs
from fedplug_runs.members import RECORDS


@pytest.mark.parametrize(
    ("record", "facts"),
    [
        (Plans, {"zones": frozenset(), "own_zones": frozenset()}),
        (Plans, {"zones": frozenset(), "public": True}),
        (Wants, {"uses_num_examples": True}),
        (Reads, {"per_layer": True}), (Scoring, {"uses_private_data": False}), (Finds, {"images": True}),
        (Needs, {"updates": True}),
    ],
    ids=str,
)  # fmt: skip
def test_a_declaration_that_no_record_has_is_refused(record: Any, facts: dict[str, Any]) -> None:
    unknown = list(facts)[-1]
    with pytest.raises(TypeError, match=unknown):
        record(**facts)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"zones": "clear"}, r"Plans\.zones is 'clear'; it must be a frozenset of names"),
        ({"zones": ["clear"]}, r"Plans\.zones is \['clear'\]; it must be a frozenset of names"),
        ({"zones": frozenset({"clear"}), "own": frozenset({"noised"})}, r"Plans\.own names the zone noised, which"),
    ],
)
def test_zones_are_names(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Plans(**facts)


class Release(NamedTuple):
    """The release of a round."""

    rate: float
    steps: float


ACCOUNT: dict[str, Any] = {
    "level": "record", "release": Release, "unit": "one example", "trust": "local",
    "covers": "all",
}  # fmt: skip


def test_an_account_is_as_wide_as_its_release() -> None:
    assert Account(**ACCOUNT).size == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Account(**ACCOUNT).level = "client"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("level", "Record", r"Account\.level is 'Record'; it must be one word in small letters"),
        ("level", "two words", r"Account\.level is 'two words'; it must be one word"),
        ("level", "client", r"Account\.level is client, of which the ledger keeps account; give operations"),
        ("release", Release(1, 2), r"Account\.release is Release\(.*; it must be a NamedTuple"),
        ("release", tuple, r"Account\.release is .*; it must be a NamedTuple of numbers"),
    ],
)
def test_an_account_that_the_ledger_cannot_keep_is_refused(field: str, value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Account(**{**ACCOUNT, field: value})


def test_each_declared_record_is_a_member_of_some_role_under_its_name() -> None:
    for name, kind in RECORDS.items():
        assert kind.__name__.lower() == name
        assert any(hasattr(role, name) for role in {*ROLES.values(), fedplug.AccountKeeper}), name


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"shape": [1, 8, 8]}, r"Declares\.shape is \[1, 8, 8\]; it must be a tuple of sizes"),
        ({"shape": (1, 0, 8)}, r"Declares\.shape is \(1, 0, 8\)"),
        ({"shape": ()}, r"Declares\.shape is \(\)"),
        ({"num_classes": 0}, r"Declares\.num_classes is 0; it must be a whole number >= 1"),
        ({"num_classes": True}, r"Declares\.num_classes is True"),
        ({"per": "pixels"}, r"Declares\(per='pixels'\): it must be one of 'example', 'pixel'"),
    ],
)
def test_a_shape_is_sizes(facts: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        Declares(**facts)
