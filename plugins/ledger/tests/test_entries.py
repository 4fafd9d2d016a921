"""The log of a ledger, as it is written and read."""

from __future__ import annotations

import math

import pytest
from fedplug.api.known import Release
from fedplug_ledger.entries import RoundEntry, ZoneEntry

NOISED = ZoneEntry(
    10.5, [Release("gaussian", 1.25, math.nan), Release("toy", 0.5, 1.0, trust="central", link="toy.noise")],
    local=1.25, other=("toy", 0.5), sum_factor=2.0, peer_factor=1.5, uncredited="a reason", freed=["toy.link"],
)  # fmt: skip


ENTRY = RoundEntry(3, [0, 7], 100, {"noised": NOISED, "clear": ZoneEntry(4.0)}, True, {"record": {7: [1.0, math.inf]}})


def test_an_entry_comes_back_from_a_file_as_it_was() -> None:
    again = RoundEntry.from_json(ENTRY.to_json())
    assert repr(again) == repr(ENTRY)  # NaN equals nothing
    assert (ENTRY.zones["noised"].is_bare, ENTRY.zones["clear"].is_bare) == (False, True)


def test_where_cohorts_are_secret_neither_they_nor_their_size_are_published() -> None:
    published = ENTRY.without_cohort()
    assert published.charged == "secret"
    text = published.to_json()
    assert not any(word in text for word in ("sum_factor", "peer_factor", "accounts", "7"))
    assert ENTRY.charged == [0, 7], "the checkpoint remembers"


@pytest.mark.parametrize("change", [{"charged": "some"}, {"round": -1}, {"zones": {"noised": {}}}, {"more": 1}])
def test_an_entry_that_is_damaged_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        RoundEntry.from_plain({**ENTRY.to_plain(), **change})
