"""What all rounds of a run so far have in common, entry by entry of the log."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.api.releases import Release
from fedplug.privacy.ledger_log import RoundEntry, ZoneEntry
from fedplug.privacy.so_far import SoFar


def entry(secret_cohort: bool = False, **zones: dict[str, Any]) -> RoundEntry:
    return RoundEntry(1, "all", 100, {zone: ZoneEntry(10.0, **facts) for zone, facts in zones.items()}, secret_cohort)


def release(**changes: Any) -> Release:
    return Release("gaussian", 1.0, 1.0, **{"trust": "distributed", **changes})


def entered(*entries: RoundEntry) -> SoFar:
    so_far = SoFar()
    for each in entries:
        so_far.enter(each)
    return so_far


def test_zones_of_one_round_under_central_noise_are_one_release() -> None:
    """1/m^2 adds up: 1/9 + 1/16 = 1/2.4^2."""
    both = entry(True, a={"central": 3.0}, b={"central": 4.0})
    so_far = entered(both, both)
    ((multiplier, count),) = so_far.central.items()
    assert (multiplier, count) == (pytest.approx(2.4), 2)
    assert not so_far.exposed


def test_one_round_that_shows_who_took_part_exposes_the_run() -> None:
    secret = entry(True)
    assert not entered(secret).exposed
    assert entered(secret, entry(False), secret).exposed
    assert entered(RoundEntry(1, "all", 100, {})).exposed, "nothing said is nothing promised"


@pytest.mark.parametrize("noise", [{"local": 1.0}, {"central": 1.0}, {"other": ("laplace", 2.0)}])
def test_a_link_that_states_nothing_counts_where_no_noise_is_known(noise: dict[str, Any]) -> None:
    bare = entry(clear={"unstated": ["odd.b", "odd.a"]})
    assert [*entered(bare, bare).unstated] == ["odd.b in zone clear", "odd.a in zone clear"]
    assert not entered(entry(clear={"unstated": ["odd.a"], **noise})).unstated


def test_what_one_release_says_holds_for_the_run() -> None:
    quiet = entered(entry(a={"local": 1.0, "releases": [release()]}))
    assert (quiet.reproducible, quiet.single, quiet.scored) == (False, set(), set())
    loud = [release(source="reproducible"), release(trust="local"), release(scored=True)]
    so_far = entered(entry(a={"local": 1.0, "releases": loud}, b={"local": 1.0, "releases": [release()]}))
    assert (so_far.reproducible, so_far.single, so_far.scored) == (True, {"a"}, {"a"})
