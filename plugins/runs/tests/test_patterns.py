"""Rounds of one pattern look alike to whoever reads messages; a run keeps a checkpoint of one round of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import InTurn, attack_catalog, finished_run
from fedplug.api.blocks import Layout, Plan
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug_ledger.entries import RoundEntry, ZoneEntry
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.patterns import Pattern, pattern_of, words_of
from toy_components import recipe_of

LAYOUT = Layout.of([("a.weight", (4, 8)), ("a.bias", (4,)), ("b.weight", (2, 4))])
NOISE = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}]


def in_turn(*zones: str, **changes: Any) -> dict[str, Any]:
    first = changes.pop("first", None)
    chains = {"clear": [], "noised": NOISE, "encrypted": [{"use": "std.bfv", "key_holder": "clients"}]}
    there = {zone: chain for zone, chain in chains.items() if zone in (*zones, first)}
    return recipe_of(
        negotiate_mask={"use": "toy.in_turn", "zones": list(zones), "first": first}, protect=there,
        postprocess={"encrypted": ["std.bfv"]} if "encrypted" in there else {}, **changes,
    )  # fmt: skip


def pattern(plain: dict[str, Any], round: int = 0, entry: RoundEntry | None = None) -> Pattern:
    recipe = Recipe.from_plain(plain, attack_catalog())
    return pattern_of([facts_of(Composition(recipe), LAYOUT, round)], entry)


def test_zones_seals_and_noise_tell_rounds_apart_and_words_say_how() -> None:
    plain = in_turn("clear", "noised", "encrypted")
    found = [pattern(plain, round) for round in range(4)]
    assert found[2] == found[3]
    assert len(set(found)) == 3
    assert [words_of(one) for one in found[:3]] == [
        "the zone clear in the clear",
        "the zone noised with gaussian noise of multiplier about 1",
        "the zone encrypted encrypted, opened by clients",
    ]


def test_which_tensors_a_zone_holds_counts_and_not_which_scalars() -> None:
    first = pattern(in_turn("clear", first="encrypted"))
    assert words_of(first) == (
        "the zone clear (of 3 tensors 1 whole and 0 in part) in the clear, "
        "the zone encrypted (of 3 tensors 2 whole and 0 in part) encrypted, opened by clients"
    )
    assert first != pattern(in_turn("encrypted", first="clear"))


def test_a_mask_that_shrinks_to_a_sliver_of_the_same_tensors_is_another_pattern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent(*left: int) -> Pattern:
        clear = np.flatnonzero(np.isin(np.arange(44) % 4, left))
        monkeypatch.setattr(InTurn, "plan", lambda own, facts: Plan.of(facts, "encrypted", clear=clear))
        return pattern(in_turn("clear", first="encrypted"))

    assert sent(0) == sent(1)
    assert sent(0) != sent(0, 1, 2)
    assert "the zone encrypted (of 3 tensors 0 whole and 3 in part, half of the model or more)" in words_of(sent(0))
    assert "the zone encrypted (of 3 tensors 0 whole and 3 in part, less than half of the model)" in words_of(
        sent(0, 1, 2)
    )


def test_sizes_of_negotiated_plans_come_from_the_ledger_and_small_differences_do_not_count() -> None:
    plain = recipe_of(
        negotiate_mask={"use": "paraaegis.vote", "ratio": 0.3}, score_parameters=[{"use": "paraaegis.magnitude"}],
        protect={"encrypted": [{"use": "std.bfv", "key_holder": "clients"}], "noised": NOISE},
        postprocess={"encrypted": ["std.bfv"]},
    )  # fmt: skip

    def sent(encrypted: int) -> Pattern:
        zones = {"encrypted": ZoneEntry(encrypted), "noised": ZoneEntry(44 - encrypted)}
        return pattern(plain, 0, RoundEntry(1, "all", 44, zones))

    assert sent(20) == sent(2)
    assert sent(20) != sent(30)
    assert "the zone encrypted (less than half of the model) encrypted, opened by clients" in words_of(sent(20))
    assert {zone for zone, *_ in sent(0)} == {"noised"}


def test_a_run_keeps_the_last_two_checkpoints_and_one_of_each_other_kind(tmp_path: Path) -> None:
    folder = finished_run(in_turn("clear", "clear", "noised", "encrypted", rounds=6), tmp_path, record=False)
    # Rounds 4 to 6 are encrypted. Of the clear ones the later is kept, and the one with noise.
    assert Checkpoints(folder).rounds() == [1, 2, 5, 6]


def test_a_run_whose_rounds_are_alike_keeps_two(tmp_path: Path) -> None:
    assert Checkpoints(finished_run(in_turn("clear", rounds=4), tmp_path, record=False)).rounds() == [3, 4]
