"""What all rounds of a run so far have in common, entry by entry of the log."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.privacy.so_far import SoFar


def facts(**changes: Any) -> dict[str, Any]:
    """Of one zone in an entry of the log."""
    return {"local": None, "central": None, "other": None, "unstated": [], "releases": [], **changes}


def release(**changes: Any) -> dict[str, Any]:
    return {"source": "secure", "trust": "distributed", "scored": False, **changes}


def entered(*entries: dict[str, Any]) -> SoFar:
    found = SoFar()
    for entry in entries:
        found.enter(entry)
    return found


def test_zones_of_one_round_under_central_noise_are_one_release() -> None:
    """1/m^2 adds up: 1/9 + 1/16 = 1/2.4^2."""
    both = {"zones": {"a": facts(central=3.0), "b": facts(central=4.0)}, "secret_cohort": True}
    found = entered(both, both)
    ((multiplier, count),) = found.central.items()
    assert (multiplier, count) == (pytest.approx(2.4), 2)
    assert not found.exposed


def test_one_round_that_shows_who_took_part_exposes_the_run() -> None:
    secret = {"zones": {}, "secret_cohort": True}
    assert not entered(secret).exposed
    assert entered(secret, {"zones": {}, "secret_cohort": False}, secret).exposed
    assert entered({"zones": {}}).exposed, "nothing said is nothing promised"


@pytest.mark.parametrize("noise", [{"local": 1.0}, {"central": 1.0}, {"other": ["laplace", 2.0]}])
def test_a_link_that_states_nothing_counts_where_no_noise_is_known(noise: dict[str, Any]) -> None:
    bare = {"zones": {"clear": facts(unstated=["odd.b", "odd.a"])}}
    assert [*entered(bare, bare).unstated] == ["odd.b in zone clear", "odd.a in zone clear"]
    assert not entered({"zones": {"clear": facts(unstated=["odd.a"], **noise)}}).unstated


def test_what_one_release_says_holds_for_the_run() -> None:
    quiet = entered({"zones": {"a": facts(local=1.0, releases=[release()])}})
    assert (quiet.reproducible, quiet.single, quiet.scored) == (False, set(), set())
    loud = [release(source="reproducible"), release(trust="local"), release(scored=True)]
    found = entered({"zones": {"a": facts(local=1.0, releases=loud), "b": facts(local=1.0, releases=[release()])}})
    assert (found.reproducible, found.single, found.scored) == (True, {"a"}, {"a"})
