"""NVFlare's filters: equal to what the real package made, bit for bit, and priced by what they do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_toys import facts_of, passed, steps
from fedplug import Layout, Public
from fedplug.recipe.recipe import Recipe
from fedplug_deployed.layers import EncryptLayers, ExcludeVars, matching
from fedplug_deployed.percentile_privacy import PercentilePrivacy, largest
from fedplug_deployed.svt_privacy import SvtPrivacy, sparse_vector, zero_out_epsilon
from fedplug_deployed.tensors import in_zone
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from toy_components import recipe_of
from toy_protocol import run_protocol

FILE = Path(__file__).with_name("nvflare_references.npz")
"""Made by benchmarks/peer_programs/nvflare_references.py, which names the versions."""
KEPT = np.load(FILE)
ABOUT: dict[str, Any] = json.loads(str(KEPT["about"]))
LAYOUT = Layout.of([(name, tuple(shape)) for name, shape in ABOUT["shapes"].items()])
NAMES = [parameter.name for parameter in LAYOUT.parameters]


def update(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """That of the program, in the order of the model."""
    random = np.random.default_rng(seed)
    return np.concatenate([random.normal(0, 0.01, p.size).astype(np.float32) for p in LAYOUT.parameters])


def public(positions: Any = None) -> Public:
    return Public("noised", 0, 1, LAYOUT, positions, None, {}, np.random.default_rng(0))


# -- bit for bit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(ABOUT["percentile"])))
def test_the_percentile_filter_sends_what_nvflare_sends(number: int) -> None:
    case = ABOUT["percentile"][number]
    sent = largest(update(number), case["percentile"], case["gamma"], case["steps"])
    assert sent.tobytes() == KEPT[f"percentile{number}"].tobytes()


@pytest.mark.parametrize("number", range(len(ABOUT["svt"])))
def test_the_sparse_vector_technique_sends_what_nvflare_sends_from_the_same_random_numbers(number: int) -> None:
    case = dict(ABOUT["svt"][number])
    chunk, stated = case.pop("chunk", 1_000_000), case.pop("stated")
    options = SvtPrivacy.Options(**case)
    tensors = [where for _, where in sorted(in_zone(public(), LAYOUT.size))]
    sent = sparse_vector(update(number), tensors, options, np.random.RandomState(number), chunk)
    assert sent.tobytes() == KEPT[f"svt{number}"].tobytes()
    assert sum(options.split(options.sent(LAYOUT.size))) == pytest.approx(options.epsilon)
    assert options.epsilon + options.release(options.sent(LAYOUT.size)) == pytest.approx(stated)


def test_layers_are_chosen_by_name_as_nvflare_does() -> None:
    for wanted, sent in ABOUT["excluded"]:
        assert sorted(set(NAMES) - set(matching(wanted if isinstance(wanted, str) else tuple(wanted), NAMES))) == sent
    for wanted, closed in ABOUT["encrypted"]:
        assert sorted(matching(wanted if isinstance(wanted, str) else tuple(wanted), NAMES)) == closed


# -- the tensors of a zone ---------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=LAYOUT.size, max_size=LAYOUT.size))
def test_a_zone_has_its_part_of_each_tensor(held: list[bool]) -> None:
    where = np.flatnonzero(held).astype(np.uint32)
    parts = in_zone(public(where), len(where))
    covered = [place for _, part in parts for place in range(part.start, part.stop)]
    assert covered == list(range(len(where)))
    for name, part in parts:
        own = next(parameter.slice for parameter in LAYOUT.parameters if parameter.name == name)
        assert all(own.start <= position < own.stop for position in where[part])


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_the_percentile_filter_promises_nothing() -> None:
    component = PercentilePrivacy(PercentilePrivacy.Options(gamma=0.001, percentile=99))
    (*_, step) = steps(facts_of(LAYOUT), "clear", component)
    assert step.after.releases == ()
    assert step.after.norm() is None
    assert "no guarantee" in component.describe()
    outcome = run_protocol(recipe_of("clear", [{"use": "deployed.percentile_privacy"}]))
    assert outcome.protocol.ledger.epsilon() is None


def test_the_price_of_the_sparse_vector_technique_on_a_worked_example() -> None:
    """1000 values, of which 100 are sent: 0.1 is split 1 to 200^(2/3), a tenth of the values may be sent."""
    options = SvtPrivacy.Options()
    threshold = 0.1 / (1 + 200 ** (2 / 3))
    expected = threshold + (0.1 - threshold) / 0.1 + 100 * 0.1 / 2
    assert zero_out_epsilon(options, 1000) == pytest.approx(expected)
    assert expected == pytest.approx(5.974, abs=1e-3)


@given(st.integers(1, 5000), st.integers(0, 5000), st.floats(0.01, 1), st.floats(0.01, 10))
def test_more_values_never_cost_less(size: int, more: int, fraction: float, epsilon: float) -> None:
    """So the price for the largest zone holds for what a client sends of it."""
    options = SvtPrivacy.Options(fraction=fraction, epsilon=epsilon)
    assert zero_out_epsilon(options, size) <= zero_out_epsilon(options, size + more) * (1 + 1e-9)


def test_the_ledger_states_that_price_in_each_round() -> None:
    outcome = run_protocol(recipe_of("noised", [{"use": "deployed.svt_privacy", "gamma": 0.01}]))
    size = outcome.protocol.layout.size
    total = outcome.protocol.recipe.rounds * zero_out_epsilon(SvtPrivacy.Options(), size)
    epsilon = outcome.protocol.ledger.epsilon()
    assert epsilon is not None
    assert total - 1e-4 < epsilon < total  # the delta of the recipe buys so much


def test_the_ratio_of_chances_keeps_to_the_price() -> None:
    """Of two values one is sent. Its sign and place under neighbouring updates, 6,000 draws each."""
    options = SvtPrivacy.Options(fraction=0.5, epsilon=1.0, gamma=1.0, tau=0.5, epsilon_release=1.0)
    random, counts = np.random.RandomState(0), []
    for values in (np.array([1.0, 0.0], np.float32), np.zeros(2, np.float32)):
        drawn = [sparse_vector(values, [slice(0, 2)], options, random) for _ in range(6_000)]
        counts.append(np.mean([[one[0] > 0, one[0] < 0, one[1] > 0, one[1] < 0] for one in drawn], axis=0))
    assert np.abs(np.log(counts[0] / counts[1])).max() < zero_out_epsilon(options, 2)
    assert np.log(counts[0] / counts[1])[0] > 0.3  # and they do differ


def test_values_lie_on_a_public_grid_and_follow_the_recipes_seed() -> None:
    component = SvtPrivacy(SvtPrivacy.Options(gamma=0.01, source="reproducible"))
    (step,) = steps(facts_of(LAYOUT), "noised", component)
    grid = step.operations[-1].step  # type: ignore[union-attr]
    assert math.frexp(grid)[0] == 0.5
    out = passed(LAYOUT, "noised", update(1), component)
    assert np.array_equal(np.rint(out / grid) * grid, out)
    assert np.array_equal(out, passed(LAYOUT, "noised", update(1), component))
    secret = SvtPrivacy(SvtPrivacy.Options(gamma=0.01))
    assert not np.array_equal(passed(LAYOUT, "noised", update(1), secret), passed(LAYOUT, "noised", update(1), secret))


def test_of_weights_it_filters_the_clients_model_at_the_same_price() -> None:
    """A job with params_transfer_type FULL cuts the weights themselves off at gamma."""
    model, values = np.full(LAYOUT.size, 0.5, np.float32), update(2)
    cut = PercentilePrivacy(PercentilePrivacy.Options(of="weights", percentile=0))
    assert passed(LAYOUT, "clear", values, cut, model=model) == pytest.approx(0.01 - 0.5)
    options = {"gamma": 0.01, "source": "reproducible"}
    for of in ("update", "weights"):
        (step,) = steps(facts_of(LAYOUT), "noised", SvtPrivacy(SvtPrivacy.Options(of=of, **options)))
        (release,) = step.after.releases
        assert 1 / release.noise_multiplier == pytest.approx(zero_out_epsilon(SvtPrivacy.Options(), LAYOUT.size))


# -- plans -------------------------------------------------------------------------------------------------------------


def test_excluded_parameters_keep_their_first_values() -> None:
    """Whatever the clients learn: two runs that differ in the learning rate have the same of them, and no others."""
    plain = recipe_of("clear", [], negotiate_mask={"use": "deployed.exclude_vars", "exclude_vars": "bias"})
    slow = plain | {"train": {**plain["train"], "lr": 0.001}}
    one, other = run_protocol(plain), run_protocol(slow)
    for parameter in one.protocol.layout.parameters:
        same = one.vector[parameter.slice] == other.vector[parameter.slice]
        assert same.all() if "bias" in parameter.name else not same.any()


def test_encrypted_and_clear_layers_make_the_plan() -> None:
    component = EncryptLayers(EncryptLayers.Options(encrypt_layers="fc2"))
    plan = component.plan(facts_of(LAYOUT))
    assert plan.positions("encrypted").tolist() == list(range(16 * 12 + 16, LAYOUT.size))
    assert len(plan.positions("clear")) == 16 * 12 + 16


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "options", "says"),
    [
        (PercentilePrivacy, {"percentile": 101}, "percentile"),
        (PercentilePrivacy, {"gamma": 0}, "gamma"),
        (SvtPrivacy, {"epsilon": 1, "epsilon_threshold": 0.5, "epsilon_query": 0.6}, "must add up to epsilon=1"),
        (SvtPrivacy, {"epsilon": 1, "epsilon_threshold": 1.5}, "must be below epsilon=1"),
        (SvtPrivacy, {"fraction": 0}, "fraction"),
        (ExcludeVars, {"exclude_vars": ""}, "names no parameter"),
        (ExcludeVars, {"exclude_vars": "("}, "is no regular expression"),
        (EncryptLayers, {"encrypt_layers": []}, "names no parameter"),
    ],
)
def test_wrong_options_are_refused(made: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        made.Options(**options)


def test_names_that_the_model_lacks_are_refused_before_a_round() -> None:
    from fedplug.api.errors import SetupError

    plain = recipe_of("clear", [])
    plain["negotiate_mask"] = {"use": "deployed.exclude_vars", "exclude_vars": "conv7"}
    assert Recipe.from_plain(plain)
    with pytest.raises(SetupError, match=r"no parameter is called 'conv7'; the model has"):
        run_protocol(plain)
