"""What no link can judge by itself: what must come later in the chain, and what noise costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chain_toys import (
    CLIP,
    HIDE,
    MAP,
    POST,
    SCRAMBLE,
    SEAL,
    Refuses,
    Says,
    Seals,
    by_scores,
    context,
    links_of,
    noise,
)
from fedplug import (
    Clip,
    Noise,
    Round,
    Scale,
    Shift,
)
from fedplug.api.links import fold
from fedplug.api.order import misplaced_links
from fedplug_ledger.rules import unpriced


def problems(*parts: Says) -> list[str]:
    return [f"{link.name}: {message}" for link, message in misplaced_links(links_of(*parts), context())]


@pytest.mark.parametrize("scale", [0.0, (0.3, 0.0)])
def test_zeros_over_what_a_client_keeps_need_noise_on_every_value(scale: Any) -> None:
    expected = [
        "hide: zone noised gets no noise, so the zeros would show what a client retains; put noise after hide, for "
        "instance {use: std.gaussian, epsilon: 8, delta: 1.0e-5}"
    ]
    assert problems(HIDE, CLIP) == problems(HIDE, SEAL) == problems(HIDE, CLIP, noise(scale)) == expected


def test_zeros_under_noise_are_no_problem() -> None:
    assert problems(HIDE, CLIP, noise(0.1)) == problems(CLIP, HIDE, noise((0.1, 0.2))) == []
    assert problems(HIDE, CLIP, Says("noise", by_scores(0.5))) == []
    (problem,) = problems(HIDE, CLIP, Says("noise", by_scores(0.0)))  # of which some client may have none
    assert problem.startswith("hide: zone noised gets no noise, so the zeros would show what a client retains")


def test_noise_for_a_sum_needs_an_encryption_behind_it() -> None:
    ours = noise(0.1, trust="distributed")
    for chain in ((CLIP, ours), (CLIP, ours, SCRAMBLE)):
        (problem,) = problems(*chain)
        assert problem.startswith("noise: the noise of noise is enough for a sum, not for an upload, and uploads of")
        assert "encrypt the zone after noise" in problem
    assert problems(CLIP, ours, SEAL) == []
    both = Seals("both", Noise.gaussian(0.1, trust="distributed"), *SEAL.given)
    assert problems(CLIP, both) == []
    assert problems(CLIP, noise(0.1)) == []


def test_what_is_misplaced_is_said_once() -> None:
    """It counts as if it did nothing, so links that need it complain too."""
    assert problems(HIDE, Refuses("noise")) == ["noise: not here"]


def test_no_bound_no_price_and_the_check_says_so() -> None:
    def said(*parts: Says, **more: Any) -> list[str]:
        return [f"{link.name}: {message}" for link, message in unpriced(fold(links_of(*parts, **more), context()))]

    missing = "noise: nothing bounds the L2 norm of the noised values before the noise of noise, so it has no price"
    assert [text.partition(" and gives")[0] for text in said(noise(1.0))] == [missing]
    assert [text.partition(" and gives")[0] for text in said(Says("l1", Clip(1.0, order=1)), noise(1.0))] == [missing]
    assert said(CLIP, noise(1.0)) == said(noise(0.0)) == said(CLIP, Says("free", MAP), CLIP, noise(1.0)) == []
    assert said(CLIP, noise(1.0), Says("half", Scale(0.5), Round(0.5), Shift(lambda _: np.ones(4)), POST)) == []
    (found,) = said(CLIP, noise(1.0), Says("free", MAP))
    assert found.startswith("free: free changes noised values behind the noise with the data in hand, so the noise ")
    assert "give Post(function), which is handed values alone" in found
    assert said(CLIP, noise(1.0), behind=(Says("free", MAP),)) == []  # at the server, of uploads with noise
    assert said(CLIP, behind=(noise(1.0),)) == []
    (found,) = said(Says("nothing"), behind=(noise(1.0),))
    assert found.startswith("noise: nothing bounds the L2 norm")
