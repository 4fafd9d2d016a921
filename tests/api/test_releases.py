"""The fold's output for the ledger and for attackers: a release for each noise, a record for each clip."""

from __future__ import annotations

import pytest
from fedplug import Clip, Known, Noise, Scale
from fedplug.api.known import Clipped
from fedplug.api.norms import Bound


def test_a_release_says_multiplier_sensitivity_and_who_added_it() -> None:
    known = Known(zone="noised", link="it", layers=(10,)).after(Clip(2.0), Noise.gaussian(3.0))
    (release,) = known.releases
    assert (release.mechanism, release.link, release.clipping_norm) == ("gaussian", "it", 2.0)
    assert release.noise_multiplier == pytest.approx(1.5)


def test_a_clip_remembers_in_which_units_it_was_made_and_whether_noise_hides_it() -> None:
    known = Known(zone="noised", link="it").after(Scale(0.5), Clip(2.0))
    assert known.clips == (Clipped("it", Bound(2.0), noised=False, factor=0.5),)
    (clip,) = known.after(Noise.gaussian(1.0)).clips
    assert clip.noised
