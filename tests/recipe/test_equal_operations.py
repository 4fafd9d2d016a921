"""Server and clients have equal operations: those of a round follow from the recipe and from its facts alone."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import test_matrix
from examples import examples
from fedplug import Facts, Layout
from fedplug.api import codec
from fedplug.api.errors import FedplugError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug_runs.overlay import load_recipe
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_components import recipe_of

ROOT = Path(__file__).parents[2]
SHIPPED = [
    *ROOT.glob("recipes/*.yaml"), *ROOT.glob("recipes/baselines/*.yaml"), *ROOT.glob("recipes/hybrids/*.yaml"),
    *ROOT.glob("recipes/deployed/*.yaml"), *ROOT.glob("recipes/statistics/*.yaml"),
    *ROOT.glob("plugins-contrib/*/src/*/recipes/*.yaml"),
]  # fmt: skip
CORRELATED = {"use": "std.distributed_correlated_gaussian", "epsilon": 8, "delta": 1e-5}
OTHERS: dict[str, dict[str, Any]] = {
    "-".join(names): test_matrix.recipe_of(*names) | {"rounds": 4} for names in (
        ("std.single_zone", "paraaegis.literal_noise", "std.bfv", "std.mean"),
        ("std.single_zone", "selectiveshield.hide_support", "std.bfv", "std.mean"),
        ("std.single_zone@encrypted", "nothing", "secagg.bonawitz", "std.mean"),
        ("std.single_zone@encrypted", "nothing", "threshold.bfv", "std.mean"),
        ("std.by_name@retained", "baselines.feddpa_noise", "std.bfv", "fedre.pda_pam"),
        ("baselines.adaptive_clip", "nothing", "std.bfv", "std.mean"),
    )
}  # fmt: skip
OTHERS["feddpa"] = test_matrix.recipe_of("baselines.feddpa", "nothing", "std.bfv", "std.mean") | {
    "train": {"use": "baselines.feddpa", "send_personal": True}, "protect": {"noised": ["baselines.feddpa"]}
}
OTHERS["correlated"] = recipe_of(
    "encrypted", [{"use": "std.clip", "norm": 1.0}, CORRELATED, {"use": "secagg.bonawitz"}], rounds=4, min_clients=3,
    postprocess={"encrypted": ["secagg.bonawitz"]}, aggregate={"use": "std.mean", "weighting": "uniform"},
)  # fmt: skip
OTHERS |= {
    name: recipe_of("noised", [{"use": f"deployed.{name}", **options}], rounds=4) for name, options in {
        "appfl_output_perturbation": {"epsilon": 1, "clip_value": 1.0}, "fedml_local_dp": {"epsilon": 1, "delta": 1e-5},
        "fedbiomed_central_dp": {"sigma": 1.0, "clip": 1.0},
    }.items()
}  # fmt: skip
OTHERS["fedml_global_dp"] = recipe_of(
    "noised", [{"use": "deployed.fedml_global_dp", "epsilon": 1, "delta": 1e-5, "max_grad_norm": 1.0}], rounds=4,
    postprocess={"noised": ["deployed.fedml_global_dp"]},
)  # fmt: skip
OTHERS |= {
    name: recipe_of("noised", aggregate={"use": f"robust.{name}", **options}, rounds=4, min_clients=4)
    for name, options in {
        "median": {}, "krum": {"f": 0}, "bulyan": {"f": 0}, "geometric_median": {}, "centred_clipping": {"tau": 1.0},
        "norm_bound": {},
    }.items()
}  # fmt: skip
OTHERS["fltrust"] = recipe_of(
    "noised", aggregate={"use": "robust.fltrust"}, data=recipe_of()["data"] | {"public": 50}, rounds=4
)
"""Of links that no recipe in the repository has."""
PUBLISHED: dict[str, Any] = {
    "baselines.adaptive_clip": st.fixed_dictionaries({"norm": st.floats(1e-6, 1e6)}),
    "deployed.adaptive_clipping": st.fixed_dictionaries({"norm": st.floats(1e-6, 1e6), "next": st.floats(1e-6, 1e6)}),
    "paraaegis.literal_noise": st.fixed_dictionaries({"largest": st.integers(1, 10**6)}),
}
"""What components publish. A link that goes by what it publishes itself is here, or it is asked before it does."""


@functools.cache
def recipe(name: str) -> Recipe:
    if name in OTHERS:
        return Recipe.from_plain(OTHERS[name], test_matrix.toy_catalog())
    return load_recipe(ROOT / name, (), Catalog.discover())


NAMES = [*sorted(str(path.relative_to(ROOT)) for path in SHIPPED), *OTHERS]


def uses(name: str) -> set[tuple[str, str]]:
    """The links of a recipe, each with the hook that it is called in."""
    if name in OTHERS:
        chains = {hook: [use for chain in OTHERS[name].get(hook, {}).values() for use in chain]
                  for hook in ("protect", "postprocess")} | {"aggregate": [OTHERS[name]["aggregate"]]}  # fmt: skip
        return {(hook, use if isinstance(use, str) else use["use"]) for hook, chain in chains.items() for use in chain}
    composition = Composition(recipe(name))
    links = [*(link for chain in composition.links.values() for link in chain), *composition.retained]
    return {(link.hook, recipe(name).components[link.name].use) for link in links}


def test_every_shipped_link_is_in_a_recipe_below() -> None:
    found = set().union(*map(uses, NAMES))
    groups = Catalog.discover().groups
    shipped = {(hook, name) for hook in ("protect", "aggregate", "postprocess") for name in groups[hook]}
    assert shipped - found == set()


# -- what is compared --------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """All that can be compared of a value: numbers to the bit, functions by their names and what they have kept."""
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case float():
            return value.hex()
        case np.ndarray() | np.generic():
            return value.dtype.str, np.shape(value), value.tobytes()
        case Mapping():
            return sorted((repr(key), plain(inner)) for key, inner in value.items())
        case tuple() | list():
            return type(value).__name__, [plain(inner) for inner in value]
        case set() | frozenset():
            return sorted(map(repr, value))
        case Facts():
            return "facts", value.fingerprint
        case fedplug.Component():
            return "component", value.name, type(value).__qualname__
        case functools.partial():
            return "partial", plain(value.func), plain(value.args), plain(value.keywords)
        case types.MethodType():
            return "method", value.__func__.__qualname__, plain(value.__self__)
        case types.FunctionType():
            kept = [plain(cell.cell_contents) for cell in value.__closure__ or ()]
            return "function", value.__module__, value.__qualname__, kept
    if dataclasses.is_dataclass(value):
        return type(value).__qualname__, [(f.name, plain(getattr(value, f.name))) for f in dataclasses.fields(value)]
    return type(value).__qualname__, plain(vars(value)) if hasattr(value, "__dict__") else repr(value)


def test_what_differs_is_seen() -> None:
    def made(std: float) -> Any:
        return fedplug.Noise.by(lambda count: std * count, reads="num_examples", at_least=1.0)

    assert plain(made(1.0)) == plain(made(1.0))
    assert plain(made(1.0)) != plain(made(1.0 + 2**-52))
    assert plain(fedplug.Clip({3: 0.5}, others=1.0)) != plain(fedplug.Clip({4: 0.5}, others=1.0))
    assert plain(fedplug.Post(np.sign)) != plain(fedplug.Post(np.abs))


# -- the property ------------------------------------------------------------------------------------------------------

NAMED = ("conv1", "conv2", "fc1", "fc2", "head", "net.0", "net.2")
LAYOUTS = st.dictionaries(st.sampled_from(NAMED), st.integers(1, 40), min_size=1, max_size=3).map(
    lambda sizes: Layout.of([(f"{name}.{part}", (size,)) for name, size in sizes.items() for part in ("w", "bias")])
)


@st.composite
def facts(draw: st.DrawFn, of: Recipe) -> tuple[Layout, int, dict[int, dict[str, Any]]]:
    """A layout, a round, and what components have published by then."""
    round = draw(st.integers(-1, of.rounds - 1))
    told = {use.name: draw(PUBLISHED[use.use]) for use in of.components.values() if use.use in PUBLISHED}
    return draw(LAYOUTS), round, {round: told} if told and draw(st.booleans()) else {}


def folded(composition: Composition, given: tuple[Layout, int, dict[int, dict[str, Any]]]) -> Any:
    """The operations of all zones, what is known behind each, the ballots and the plan, or what is wrong."""
    layout, round, published = given
    found = facts_of(composition, layout, round, None, codec.decode(codec.encode(published)))
    try:
        steps = {zone: [(plain(s.operations), plain(s.states)) for s in found.steps(zone)] for zone in found.links}
        sent = {zone: (found.sent(zone), found.times(zone), found.turn(zone)) for zone in found.links}
        ballots = [(name, plain(operations)) for name, operations in composition.ballots(found)]
        plan = found.plan and (found.plan.labels.tolist(), found.plan.zones)
    except FedplugError as error:
        return found.fingerprint, str(error)
    return found.fingerprint, steps, sent, ballots, plan


def with_marks() -> list[Any]:
    opacus = "its check imports opacus, which takes ten seconds"
    return [pytest.param(n, marks=pytest.mark.slow(reason=opacus) if "feddpa_noise" in n else ()) for n in NAMES]


@pytest.mark.parametrize("name", with_marks())
@settings(deadline=None, max_examples=examples(16))
@given(data=st.data())
def test_parties_that_were_told_the_same_have_equal_operations(name: str, data: st.DataObject) -> None:
    """Whatever else a party was asked before, in whatever order."""
    checked = recipe(name)
    server, client = Composition(checked), Composition(checked)
    for each in data.draw(st.lists(facts(checked), max_size=2)):
        folded(client, each)
    now = data.draw(facts(checked))
    assert folded(server, now) == folded(client, now)
