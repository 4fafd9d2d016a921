"""Central noise: once on a sum that is clipped."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fedplug import Clip, FixedPoint, Known, Scale, Seal
from fedplug.api.errors import RecipeError
from fedplug.api.links import settled
from fedplug.api.operations import Misplaced, Noise
from fedplug.recipe.recipe import Recipe
from fedplug_std.gaussian import require_bound
from noise_toys import SIZE, block, central, facts_of, known, on_sum
from pydantic import ValidationError
from scipy import stats  # type: ignore[import-untyped]
from toy_components import recipe_of, toy_catalog


def test_values_that_are_multiplied_behind_the_clip_need_a_larger_norm() -> None:
    known = Known(zone="noised").after(Clip(1.0)).after(Scale(7.0))
    with pytest.raises(Misplaced, match=r"clipped to 1 and then multiplied, by 7, .* write norm: 7 here"):
        require_bound(1.0, known)
    assert require_bound(7.0, known) == 7.0


@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_central_noise_is_added_once_to_the_sum(source: str) -> None:
    total = block(np.full(SIZE, 5.0)).replace(contributors=20, divisor=12.5, weighted=True)
    noise = central(norm=0.5, noise_multiplier=4, source=source)
    result = on_sum(total, noise)
    assert (result.divisor, result.contributors) == (12.5, 20)
    low, high = stats.chi2.ppf([1e-9, 1 - 1e-9], SIZE)
    assert low < float(np.sum((result.plain() - 5.0) ** 2)) / 2.0**2 < high
    (given,) = noise.postprocess(known(0.5), facts_of())
    assert isinstance(given, Noise)
    given = settled(given, dataclasses.replace(known(0.5), summed=True), facts_of())
    (release,) = known(0.5).after(given).releases
    assert (release.trust, release.noise_multiplier, release.clipping_norm) == ("central", 4, 0.5)


def test_the_grid_of_central_noise_does_not_show_how_many_took_part() -> None:
    noise = central(norm=1.0, noise_multiplier=1e-3, source="reproducible")
    few, many = (block(np.zeros(SIZE)).replace(contributors=count) for count in (1, 4))
    results = [on_sum(total, noise, 1.0).plain() for total in (few, many)]
    assert np.array_equal(*results)


def test_central_noise_refuses_what_it_cannot_protect() -> None:
    noise = central(norm=0.5, noise_multiplier=4)
    sealed = known(0.5).after(Seal(scheme="a test", opened_by="clients", numbers=FixedPoint(1.0, 0.0)))
    with pytest.raises(Misplaced, match=r"encrypted at the server; .*std\.gaussian before the encryption"):
        noise.postprocess(sealed, facts_of())
    with pytest.raises(Misplaced, match=r"zone noised is clipped to 1, but its noise is scaled to norm=0\.5"):
        noise.postprocess(known(1.0), facts_of())
    with pytest.raises(Misplaced, match=r"write \{use: std\.clip, norm: 0\.5\} in protect\.noised"):
        noise.postprocess(known(), facts_of())
    with pytest.raises(ValidationError, match="'secure' or 'reproducible'"):
        central(norm=0.5, noise_multiplier=4, source="exact")


@pytest.mark.parametrize(
    ("norm", "said"), [(None, "needs a bound of the L2 norm earlier"), (2.0, "is clipped to 2"), (0.5, None)]
)
def test_central_noise_checks_the_clip_of_its_zone(norm: float | None, said: str | None) -> None:
    clips = [] if norm is None else [{"use": "std.clip", "norm": norm}]
    noise = {"use": "std.central_gaussian", "norm": 0.5, "noise_multiplier": 4}
    plain = recipe_of("noised", clips, postprocess={"noised": [noise]})
    if said is None:
        Recipe.from_plain(plain, toy_catalog())
        return
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain, toy_catalog())
    (problem,) = caught.value.problems
    assert problem.startswith("recipe.postprocess.noised.0: std.central_gaussian")
    assert said in problem
    assert "{use: std.clip, norm: 0.5}" in problem
