"""Flower's mods and strategies: equal to what the real package does, and priced by what they do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from deployed_toys import facts_of, named, passed, steps
from fedplug import Layout, Noise, gaussian_epsilon
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.links import Link, fold
from fedplug.recipe.recipe import Recipe
from fedplug_deployed.adaptive_clipping import AdaptiveClipping
from fedplug_deployed.clips import length, scaling
from fedplug_deployed.fixed_clipping import FixedClipping, stated_epsilon
from fedplug_deployed.local_dp_mod import LocalDpMod
from fedplug_std.mean import Mean
from pydantic import ValidationError
from toy_components import recipe_of
from toy_protocol import run_protocol

LAYOUT = Layout.of([("fc1.weight", (64, 48)), ("fc1.bias", (64,)), ("fc2.weight", (10, 64)), ("fc2.bias", (10,))])
FLOWER = "1.42"
"""The version whose arithmetic this is. With another one the comparisons below are skipped."""
HOSPITAL = {"clipping_norm": 1.0, "sensitivity": 1e-4, "epsilon": 10.0, "delta": 1e-5}


def flower(module: str) -> Any:
    """A module of Flower."""
    flwr = pytest.importorskip("flwr")
    if not flwr.__version__.startswith(FLOWER):
        pytest.skip(f"flwr {flwr.__version__} is not {FLOWER}")
    return pytest.importorskip(module)


def update(seed: int, size: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(0, size, LAYOUT.size).astype(np.float32)


def tensors(values: Any) -> list[Any]:
    return [values[parameter.slice].reshape(parameter.shape).copy() for parameter in LAYOUT.parameters]


@dataclasses.dataclass
class Letter:
    """A message as mods read it."""

    content: Any

    def has_error(self) -> bool:
        return False


def through(mod: Callable[..., Any], values: Any, norm: float) -> Any:
    """What a mod of Flower sends where a client's model is an update on a model of zeros."""
    app = flower("flwr.app")

    def record(arrays: list[Any]) -> Any:
        named_arrays = zip(LAYOUT.parameters, arrays, strict=True)
        return app.ArrayRecord({parameter.name: app.Array(array) for parameter, array in named_arrays})

    def train(message: Any, context: Any) -> Any:
        content = {"arrays": record(tensors(values)), "metrics": app.MetricRecord({"num-examples": 1})}
        return Letter(app.RecordDict(content))

    content = {"arrays": record(tensors(np.zeros_like(values))), "config": app.ConfigRecord({"clipping_norm": norm})}
    reply = mod(Letter(app.RecordDict(content)), None, train)
    sent = next(iter(reply.content.array_records.values())).to_numpy_ndarrays()
    return np.concatenate([array.ravel() for array in sent]), reply.content.metric_records["metrics"]


# -- the clip ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [0.001, 0.1])
def test_the_clip_is_flowers_bit_for_bit(seed: int, size: float) -> None:
    """Apart from values that float32 leaves beyond the norm, which the core shortens by a part in 2^22."""
    mods, values = flower("flwr.clientapp.mod"), update(seed, size)
    sent, _ = through(mods.fixedclipping_mod, values, 0.7)
    ours = passed(LAYOUT, "noised", values, FixedClipping(FixedClipping.Options(noise_multiplier=1, clipping_norm=0.7)))
    if math.sqrt(np.square(sent, dtype=np.float64).sum()) <= 0.7:
        assert ours.tobytes() == sent.tobytes()
    else:
        assert np.allclose(ours, sent, rtol=2.0**-21, atol=0)
    assert math.sqrt(np.square(ours, dtype=np.float64).sum()) <= 0.7


def test_the_arithmetic_is_flowers_for_every_update() -> None:
    functions = flower("flwr.supercore.differential_privacy")
    for seed in range(40):
        parts = tensors(update(seed, 10.0 ** (seed % 7 - 5)))
        assert length(parts) == functions.get_norm(parts)
        clipped = [part * np.float32(scaling(parts, 0.3)) for part in parts]
        functions.clip_inputs_inplace(parts, 0.3)
        assert all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(clipped, parts, strict=True))


def test_an_update_of_zeros_passes() -> None:
    """Flower divides by its norm and fails."""
    functions, nothing = flower("flwr.supercore.differential_privacy"), np.zeros(LAYOUT.size, np.float32)
    with pytest.raises(ZeroDivisionError):
        functions.clip_inputs_inplace(tensors(nothing), 1.0)
    component = LocalDpMod(LocalDpMod.Options(**{**HOSPITAL, "sensitivity": 0.0}))
    assert not passed(LAYOUT, "noised", nothing, component).any()


# -- LocalDpMod --------------------------------------------------------------------------------------------------------


def test_the_mods_noise_has_the_size_that_flower_gives_it() -> None:
    mods = flower("flwr.clientapp.mod")
    options = {"clipping_norm": 1.0, "sensitivity": 0.5, "epsilon": 3.0, "delta": 1e-3}
    component, values = LocalDpMod(LocalDpMod.Options(**options)), update(0, 0.01)
    np.random.seed(0)
    theirs = through(mods.LocalDpMod(**options), values, 1.0)[0] - values
    ours = passed(LAYOUT, "noised", values, component) - values
    for noise in (ours, theirs):  # 4 standard errors of 3,786 samples
        assert np.std(noise) == pytest.approx(component.options.std, rel=0.046)
    assert component.options.std == pytest.approx(0.5 * math.sqrt(2 * math.log(1250)) / 3)


def test_the_defaults_of_a_hospital_project_cost_an_epsilon_of_a_thousand_million() -> None:
    """Multiplier 4.845e-5; five rounds toward the server, where Flower says 10."""
    (step,) = steps(facts_of(LAYOUT), "noised", LocalDpMod(LocalDpMod.Options(**HOSPITAL)))
    (release,) = step.after.releases
    assert release.noise_multiplier == pytest.approx(4.845e-5, rel=1e-3)
    assert release.as_published
    assert "Flower claims epsilon 10 at delta 1e-05" in release.note
    assert "sensitivity of 0.0001, and the clip leaves a norm of 1" in release.note
    plain = recipe_of("noised", [{"use": "deployed.local_dp_mod", **HOSPITAL}], rounds=5)
    epsilon = run_protocol(plain).protocol.ledger.epsilon()
    assert epsilon == pytest.approx(1.07e9, rel=0.01)


def test_the_formula_is_said_to_hold_below_epsilon_1() -> None:
    for epsilon, there in ((0.9, False), (1.0, True)):
        component = LocalDpMod(LocalDpMod.Options(**{**HOSPITAL, "sensitivity": 1.0, "epsilon": epsilon}))
        (release,) = steps(facts_of(LAYOUT), "noised", component)[0].after.releases
        assert ("holds below epsilon 1" in release.note) == there
        assert "sensitivity" not in release.note


# -- the server's noise ------------------------------------------------------------------------------------------------


def central(component: Any, clients: int = 4, **published: Any) -> Noise:
    """The noise on the sum of a round."""
    mean = Mean(Mean.Options(weighting="uniform"))
    mean.name = "std.mean"
    name = named(component).name
    links = (
        Link("noised", "protect", name, component, "client"), Link("noised", "aggregate", mean.name, mean, "server"),
        Link("noised", "postprocess", name, component, "server"),
    )  # fmt: skip
    facts = facts_of(LAYOUT, num_clients=clients, published={name: published} if published else {})
    facts = dataclasses.replace(facts, chains={"noised": links})
    (noise,) = fold(links, facts)[-1].operations
    assert isinstance(noise, Noise)
    return noise


def test_the_noise_on_the_mean_is_flowers() -> None:
    """What is added to the sum of n clients is n times what Flower adds to their mean."""
    functions = flower("flwr.supercore.differential_privacy")
    for sampled in (4, 10):
        made = FixedClipping.Options(noise_multiplier=1.5, clipping_norm=0.7, num_sampled_clients=sampled)
        noise = central(FixedClipping(made))
        assert noise.std == pytest.approx(4 * functions.compute_stdv(1.5, 0.7, sampled))


def test_it_costs_what_std_costs_and_more_where_flower_is_told_more_clients() -> None:
    def epsilon(chain: list[Any], opener: Any) -> float | None:
        mean = {"use": "std.mean", "weighting": "uniform"}
        plain = recipe_of("noised", chain, aggregate=mean, postprocess={"noised": [opener]})
        return run_protocol(plain).protocol.ledger.epsilon()

    use = {"use": "deployed.fixed_clipping", "clipping_norm": 0.5, "noise_multiplier": 2.0}
    noise = {"use": "std.central_gaussian", "norm": 0.5, "noise_multiplier": 2.0}
    plain = epsilon([{"use": "std.clip", "norm": 0.5}], noise)
    assert epsilon([use], "deployed.fixed_clipping") == plain == pytest.approx(gaussian_epsilon(2 / 2**0.5, 1e-5))
    told = epsilon([use | {"num_sampled_clients": 8}], "deployed.fixed_clipping")
    assert told == pytest.approx(gaussian_epsilon(1 / 2**0.5, 1e-5))


def test_weighted_by_examples_the_noise_is_flowers_and_has_no_price() -> None:
    use = {"use": "deployed.fixed_clipping", "clipping_norm": 100.0, "noise_multiplier": 2.0, "source": "reproducible"}
    noised = recipe_of("noised", [use], postprocess={"noised": ["deployed.fixed_clipping"]}, rounds=1)
    silent = recipe_of("noised", [use | {"noise_multiplier": 0.0}], postprocess=noised["postprocess"], rounds=1)
    found = run_protocol(noised)
    assert found.protocol.ledger.epsilon() is None
    difference = found.vector - run_protocol(silent).vector
    assert np.std(difference) == pytest.approx(2.0 * 100.0 / 4, rel=0.12)  # 650 values, 4 standard errors


def test_flowers_accountant_states_a_bound_of_what_the_ledger_states() -> None:
    accounting = flower("flwr.supercore.privacy_accounting")
    rdp = flower("flwr.supercore.privacy_accounting.rdp_accountant")
    for multiplier, rounds in ((2.0, 10), (0.7, 3)):
        config = accounting.PrivacyConfig(
            target_delta=1e-5, population_size=4, sampling_method=accounting.SamplingMethod.NO_AMPLIFICATION,
            neighboring_relation=accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        )  # fmt: skip
        accountant = rdp.RdpAccountant(config)
        event = accounting.GaussianPrivacyEvent(noise_multiplier=multiplier, sample_size=4, population_size=4)
        accountant.compose(event, rounds)
        exact = gaussian_epsilon(multiplier / math.sqrt(rounds), 1e-5)
        assert exact < accountant.get_privacy_spent().epsilon < 1.25 * exact


def test_both_engines_agree() -> None:
    use = {"use": "deployed.fixed_clipping", "clipping_norm": 0.1, "noise_multiplier": 1.0, "source": "reproducible"}
    mean = {"use": "std.mean", "weighting": "uniform"}
    plain = recipe_of("noised", [use], aggregate=mean, postprocess={"noised": ["deployed.fixed_clipping"]})
    assert np.array_equal(run_protocol(plain).vector, run_protocol(plain, "processes", workers=1).vector)


# -- the adaptive clip -------------------------------------------------------------------------------------------------


def adaptive(clients: int = 4, **options: Any) -> dict[str, Any]:
    name = "deployed.adaptive_clipping"
    plain = recipe_of("noised", [name], postprocess={"noised": [name]}, rounds=4)
    plain["data"]["clients"] = clients
    return plain | {
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "negotiate_mask": {"use": name, "noise_multiplier": 1e-4, "clipped_count_stddev": 1e-3, **options},
    }


@pytest.mark.parametrize(("initial", "share"), [(0.001, 1.0), (1000.0, 0.0)])
def test_the_norm_moves_away_from_the_clients_as_in_flower(initial: float, share: float) -> None:
    """Where all are clipped it falls, and where none is it grows; to find the quantile it would have to turn."""
    strategies = flower("flwr.serverapp.strategy")
    real = strategies.DifferentialPrivacyClientSideAdaptiveClipping(
        strategies.FedAvg(), noise_multiplier=1e-4, num_sampled_clients=4, initial_clipping_norm=initial,
        clipped_count_stddev=1e-3,
    )  # fmt: skip
    outcome = run_protocol(adaptive(initial_clipping_norm=initial))
    for row in outcome.protocol.rows:
        assert row.log["deployed.adaptive_clipping.norm"] == pytest.approx(real.clipping_norm, rel=0.01)
        real._geometric_update(share)
    assert (real.clipping_norm < initial) == (share == 1)


def test_the_norm_bit_is_flowers() -> None:
    mods, mod = flower("flwr.clientapp.mod"), AdaptiveClipping(AdaptiveClipping.Options(noise_multiplier=1.0))
    named(mod)
    for size in (1e-4, 1e-1):
        values = update(3, size)
        _, metrics = through(mods.adaptiveclipping_mod, values, 0.1)
        assert (scaling(tensors(values), 0.1) < 1) == bool(metrics["norm_bit"])


def test_the_multipliers_are_flowers() -> None:
    functions = flower("flwr.supercore.differential_privacy")
    for multiplier, clients, stddev in ((1.0, 100, None), (0.5, 40, 3.0), (2.0, 1000, None)):
        options = AdaptiveClipping.Options(noise_multiplier=multiplier, clipped_count_stddev=stddev)
        count, of_mean = functions.compute_adaptive_noise_params(multiplier, clients, stddev)
        assert (options.count_std(clients), options.mean_multiplier(clients)) == pytest.approx((count, of_mean))
    with pytest.raises(ValueError, match="too low"):
        functions.compute_adaptive_noise_params(1.0, 10, None)
    with pytest.raises(ProtectionError, match=r"noise_multiplier=1 must be below 2 clipped_count_stddev, 1: "):
        AdaptiveClipping.Options(noise_multiplier=1.0).mean_multiplier(10)


def test_the_noise_is_scaled_to_the_next_norm_and_priced_over_the_present_one() -> None:
    options = AdaptiveClipping.Options(noise_multiplier=1.0, clipped_count_stddev=5.0)
    component = AdaptiveClipping(options)
    noise = central(component, norm=0.2, next=0.2 * math.exp(-0.1))
    assert noise.std == pytest.approx(options.mean_multiplier(4) * 0.2 * math.exp(-0.1))
    outcome = run_protocol(adaptive(noise_multiplier=1.0, clipped_count_stddev=5.0))
    norms = [row.log["deployed.adaptive_clipping.norm"] for row in outcome.protocol.rows]
    entries = [entry.zones["noised"] for entry in outcome.protocol.ledger.log if "noised" in entry.zones]
    for entered, norm, following in zip(entries, norms, norms[1:], strict=False):
        (release,) = entered.releases
        assert release.clipping_norm == pytest.approx(norm)
        assert release.noise_multiplier == pytest.approx(options.mean_multiplier(4) * following / norm)


def test_a_client_that_answers_nonsense_is_left_out() -> None:
    class Asked:
        dropped: list[int]

        def ask(self, method: Any) -> dict[int, Any]:
            return {0: True, 1: "yes", 2: 1.0}

        def drop(self, client_id: int, why: str) -> None:
            assert "must be true or false" in why
            self.dropped = [*getattr(self, "dropped", []), client_id]

    cohort = Asked()
    component = AdaptiveClipping(AdaptiveClipping.Options(noise_multiplier=1.0))
    assert component._answers(cohort) == {0: True}  # type: ignore[arg-type]
    assert cohort.dropped == [1, 2]


# -- bad input ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("noise_multiplier", "releases", "delta", "stated"),
    [
        (0.5, 1, 1e-5, 10.725509696418232), (1.0, 10, 1e-5, 19.05359753163139), (2.0, 2, 1e-5, 3.1889915626335874),
        (2.0, 100, 1e-6, 37.429216196844386), (30.0, 3, 1e-3, 0.12298487662174798),
        (200.0, 10, 1e-5, 0.05148903409255255), (0.05, 5, 1e-5, 1211.7782575788603),
    ],
)  # fmt: skip
def test_flowers_accountant_states_this(noise_multiplier: float, releases: int, delta: float, stated: float) -> None:
    """Of `RdpAccountant` of flwr 1.42.0 with dp-accounting 0.6.0, ADD_OR_REMOVE_ONE and NO_AMPLIFICATION."""
    assert stated_epsilon(noise_multiplier, releases, delta) == pytest.approx(stated, rel=1e-12)
    assert stated >= gaussian_epsilon(noise_multiplier / releases**0.5, delta)


def test_what_flowers_accountant_states_is_in_the_ledger() -> None:
    use = FIXED | {"target_delta": 1e-5}
    plain = recipe_of("noised", [use], aggregate=UNIFORM, postprocess={"noised": ["deployed.fixed_clipping"]})
    entry = run_protocol(plain).protocol.ledger.log[0].zones["noised"]
    assert entry.releases[0].note.startswith("Flower's accountant states epsilon 3.189 at delta 1e-05; ")


FIXED = {"use": "deployed.fixed_clipping", "clipping_norm": 0.5, "noise_multiplier": 2.0}
UNIFORM = {"use": "std.mean", "weighting": "uniform"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"postprocess": {}}, "write deployed.fixed_clipping in postprocess too"),
        (
            {
                "sampling": {"scheme": "fixed", "rate": 0.5},
                "protect": {"noised": [FIXED | {"num_sampled_clients": 2}]},
            },
            "with sampling, leave it out",
        ),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    plain = recipe_of("noised", [FIXED], aggregate=UNIFORM, postprocess={"noised": ["deployed.fixed_clipping"]})
    assert Recipe.from_plain(plain)
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(plain | changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sampling": {"scheme": "fixed", "rate": 0.5}}, "remove sampling"),
        (
            {
                "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
                "protect": {"noised": [{"use": "deployed.adaptive_clipping", "noise_multiplier": 0.1}]},
            },
            "write negotiate_mask",
        ),
        (
            {"negotiate_mask": {"use": "deployed.adaptive_clipping", "noise_multiplier": 1.0}},
            "must be below 2 clipped_count_stddev",
        ),
    ],
)
def test_an_adaptive_recipe_that_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    assert Recipe.from_plain(adaptive())
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(adaptive() | changes)


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"delta": 0}, {"delta": 1.3}, {"clipping_norm": 0}])
def test_what_flower_takes_and_no_noise_is_right_for_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LocalDpMod.Options(**{**HOSPITAL, **wrong})
