"""FAS's share: the number of scalars, their choice, the same at all parties, and the limits 0 and 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import Facts, Layout, Plan, Plans
from fedplug.api.blocks import BASE_ZONES, ENCRYPTED
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.view import View
from fedplug_fas.share import Share
from fedplug_kit.static import check_component
from fedplug_std.scores import count_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from toy_components import recipe_of, toy_catalog
from toy_protocol import calls_of, run_protocol

SIZE = 650  # a linear model on digits


def fas(ratio: Any = 0.1, chain: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    """FAS on a toy, with BFV at the key server and no noise by default."""
    share = {"use": "fas.share", "ratio": ratio, **changes.pop("share", {})}
    plain = recipe_of(
        negotiate_mask=share, train={"use": "toy.push"},
        protect={"encrypted": [{"use": "std.bfv"}], "noised": ["fas.scramble"] if chain is None else chain},
        postprocess={"encrypted": ["std.bfv"], "noised": ["fas.scramble"]},
    )  # fmt: skip
    return plain | changes


def facts_of(component: Share, round: int = 0) -> Facts:
    return Facts(round, 10, Layout.of([("w", (SIZE,))]), BASE_ZONES, 4, 2, 7, "", components={"fas.share": component})


def share(ratio: float, order: Any = "uniform") -> Share:
    component = Share(Share.Options(ratio=ratio, order=order))
    component.name = "fas.share"
    return component


def test_the_plan_follows_from_public_facts_alone() -> None:
    assert Share(Share.Options(ratio=0.3, other_zone="clear")).plans == Plans(
        zones=frozenset({"encrypted", "clear"}), fixed=True
    )
    assert facts_of(share(0.3)).plans_are_public


def plan_of(ratio: float, order: str = "uniform", round: int = 0) -> Plan:
    component = share(ratio, order)
    return component.plan(facts_of(component, round))


def test_conforms() -> None:
    check_component("fas.share")


@given(st.floats(0, 1))
def test_encrypts_the_floor_of_the_share(ratio: float) -> None:
    """Item 31: mask count floor(p n)."""
    sizes = plan_of(ratio).sizes()
    assert sizes[ENCRYPTED] == math.floor(ratio * SIZE + 1e-9)
    assert sizes[ENCRYPTED] + sizes["noised"] == SIZE


def test_count_means_the_decimal_that_was_written() -> None:
    assert 0.29 * 100 < 29
    assert [count_of(ratio, 100) for ratio in (0, 0.29, 0.999, 1)] == [0, 29, 99, 100]


def test_mask_is_the_same_in_every_round() -> None:
    first = plan_of(0.3)
    for round in (1, 9):
        assert np.array_equal(first.labels, plan_of(0.3, round=round).labels)


def test_uniform_mask_spreads_over_the_model_and_prefix_does_not() -> None:
    """Alg. 1, line 16: the first scalars. A uniform mask covers the quarters equally, to six standard deviations."""
    uniform, prefix = (plan_of(0.4, order).positions(ENCRYPTED) for order in ("uniform", "prefix"))
    assert np.array_equal(prefix, np.arange(260))
    counts = np.histogram(uniform, bins=5, range=(0, SIZE))[0]
    std = math.sqrt(260 * 0.2 * 0.8 * (SIZE - 260) / (SIZE - 1))
    assert (np.abs(counts - 52) < 6 * std).all()
    assert np.array_equal(uniform, np.unique(uniform))


@pytest.mark.parametrize("ratio", [1.5, 150, "150", "10%", 10])
def test_share_above_one_says_that_shares_are_fractions(ratio: Any) -> None:
    with pytest.raises(ValidationError, match=r"a share is a fraction from 0 to 1"):
        Share.Options(ratio=ratio)


def test_share_above_one_says_what_to_write() -> None:
    with pytest.raises(RecipeError, match=r"ratio=15.*for 15% write 0\.15"):
        Recipe.from_plain(fas(15), toy_catalog())


@pytest.mark.parametrize("ratio", [-0.1, math.nan, "a tenth"])
def test_share_that_is_none_is_refused(ratio: Any) -> None:
    with pytest.raises(ValidationError):
        Share.Options(ratio=ratio)


@pytest.mark.parametrize("rest", ["encrypted", "retained"])
def test_the_other_zone_must_be_a_separate_zone_that_is_sent(rest: str) -> None:
    with pytest.raises(ValidationError, match="separate zone"):
        Share.Options(other_zone=rest)


def test_asks_for_no_ballot_and_costs_no_message() -> None:
    """Every party draws the mask itself."""
    outcome = run_protocol(fas(0.3))
    assert not [shown for shown in outcome.protocol.ledger.reveals if "mask" in shown.what]
    calls = {call for message in outcome.sent(sender="server", round=1) for call in calls_of(message)}
    assert not {call for call in calls if call.startswith("fas.share")}
    assert not [message for message in outcome.sent(round=1) if message.phase not in ("upload", "open")]


@pytest.mark.parametrize(("ratio", "zone", "sealed_by"), [(1, "encrypted", "std.bfv"), (0, "noised", "fas.scramble")])
def test_share_of_one_sends_no_plaintext_and_share_of_zero_no_ciphertext(ratio: int, zone: str, sealed_by: str) -> None:
    """Item 31."""
    outcome = run_protocol(fas(ratio))
    uploads = list(View("server", tuple(outcome.wire.messages)).uploads())
    assert len(uploads) == 8
    for _, _, blocks in uploads:
        assert set(blocks) == {zone}
        assert (blocks[zone].values, blocks[zone].sealed_by, blocks[zone].size) == (None, sealed_by, SIZE)
