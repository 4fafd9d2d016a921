"""Components in use: one object each, one call at a time, and every call visible to extensions."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import fedplug
import pytest
from fedplug import Clip, Facts, Known, Noise, Operations, WeightedSum, hookimpl
from fedplug.api.blocks import Layout
from fedplug.api.errors import PluginError, ProtectionError
from fedplug.api.links import amplified
from fedplug.recipe import composition
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition, shipped
from fedplug.recipe.parts import Sampling
from fedplug.recipe.recipe import Recipe
from fedplug_runs.trust import RUNS
from packaging.requirements import Requirement
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> Recipe:
    protect = {
        "encrypted": [{"use": "std.clip", "norm": 1}, "std.ckks"],
        "noised": [{"use": "std.clip", "norm": 1}, {"use": "std.gaussian", "epsilon": 8}],
    }
    scorers = ["std.size", {"use": "std.size", "name": "size2"}]
    changes = {"protect": protect, "score_parameters": scorers, "extensions": ["std.spy"], "accountant": "std.book"}
    return Recipe.from_plain(plain_recipe | changes, fake_catalog)


def handed(zone: str = "noised") -> dict[str, Any]:
    """The arguments of a link."""
    facts = Facts(0, 1, Layout(()), (), 4, 2, 7, "of a run")
    return {"known": Known(zone=zone, link="it").after(Clip(4.0)), "facts": facts}


def test_every_component_is_one_object_with_its_name(recipe: Recipe, fake_catalog: Catalog) -> None:
    composition = Composition(recipe)
    assert set(composition.components) == set(recipe.components)
    assert {
        "std.clip",
        "std.clip@noised",
        "std.digits",
        "std.dirichlet",
        "std.mlp",
        "std.sgd",
        "std.book",
        "std.spy",
    } < set(composition.components)
    assert all(component.name == name for name, component in composition.components.items())
    assert composition.components["std.clip"] is not composition.components["std.clip@noised"]
    assert composition.components["std.gaussian"].options.epsilon == 8
    assert Composition(recipe).components["std.ckks"] is not composition.components["std.ckks"]


def test_what_is_of_fedplug_itself_follows_from_who_offers_it(recipe: Recipe, tmp_path: Path) -> None:
    """A catalog of the same names from elsewhere, a file of one's own, and another's part within a shipped model."""
    everything = Composition(recipe)
    assert not any(everything.shipped(name) for name in recipe.components), "std.clip of the distribution test"
    (tmp_path / "book.py").write_text(
        "import fedplug\n\nclass Book(fedplug.Accountant):\n    def compose(self, releases, delta, adjacency):\n"
        "        return {'mine': 0.1}\n"
    )
    own = f"{tmp_path / 'book.py'}:Book"
    plain = recipe_of(accountant={"use": own, "name": "std.pld"}, model={"use": "std.lora", "around": "std.mlp"})
    mixed = Recipe.from_plain(plain, toy_catalog().under(RUNS))
    found = Composition(mixed)
    assert {name for name in mixed.components if not found.shipped(name)} == {"std.pld"}
    assert not found.shipped("nobody")
    around = dict(mixed.model.inner)["around"]
    assert shipped(around)
    strange = (("around", dataclasses.replace(around, distribution="acme")),)
    assert not shipped(dataclasses.replace(mixed.model, inner=strange))


def test_distributions_of_fedplug_are_those_of_its_extra() -> None:
    """A list that is written nowhere else; what is in `plugins-contrib` is of others."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["all"]
    found = composition._shipped()
    assert found == {"fedplug", *(Requirement(each).name for each in extra)}
    assert "fedplug-borda" not in found


def test_one_calls_exactly_the_component_named(recipe: Recipe, fake_catalog: Catalog) -> None:
    composition = Composition(recipe)
    for name, expected in (("std.clip", Clip(1.0)), ("std.gaussian", Noise.gaussian(4.0)), ("std.clip", Clip(1.0))):
        assert composition.one("protect", name, **handed()) == (expected,), name
    (seal,) = composition.one("protect", "std.ckks", **handed())
    assert seal.scheme == "negation"


def test_extensions_see_every_call_and_what_it_gave(recipe: Recipe, fake_catalog: Catalog) -> None:
    composition = Composition(recipe)
    composition.one("protect", "std.clip@noised", **handed())
    composition.one("protect", "std.gaussian", **handed())
    composition.one("protect", "std.ckks", **handed("encrypted"))
    assert composition.part("std.spy", fedplug.Extension).seen == [  # type: ignore[attr-defined]
        "noised: Clip", "noised: Noise", "encrypted: Seal",
    ]  # fmt: skip


class Meddles(fedplug.Extension):
    """Halve every noise, and every score in place."""

    @hookimpl(wrapper=True)
    def protect(self) -> Any:
        result = yield
        return tuple(Noise.gaussian(one.std / 2) if isinstance(one, Noise) else one for one in result)

    @hookimpl(wrapper=True)
    def score_parameters(self) -> Any:
        scores = yield
        scores *= 0.5
        return scores


def test_what_an_extension_makes_of_a_result_reaches_nobody(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    fake_classes["extension"]["acme.meddles"] = Meddles
    changed = plain_recipe | {"extensions": ["acme.meddles"], "score_parameters": ["std.size"]}
    composition = Composition(Recipe.from_plain(changed, Catalog.of(fake_classes)))
    assert composition.one("protect", "std.gaussian", **handed()) == (Noise.gaussian(4.0),)
    assert composition.one("score_parameters", "std.size", client=None, facts=None).tolist() == [1.0, 1.0]
    links = composition.links["noised"]
    assert links[1].operations(**handed()) == (Noise.gaussian(4.0),)


def test_components_are_frozen_and_extensions_are_not(recipe: Recipe, fake_catalog: Catalog) -> None:
    composition = Composition(recipe)
    with pytest.raises(ProtectionError, match=r"component std\.clip keeps seen on itself, .*client\.memory\(self\)"):
        composition.components["std.clip"].seen = 1  # type: ignore[attr-defined]
    composition.components["std.spy"].seen = []  # type: ignore[attr-defined]
    assert composition.components["std.clip"].varied(name="other").name == "other"


class Nothing(fedplug.Aggregator):
    """Gives nothing once the run has begun."""

    def aggregate(self, known: Any, facts: Any) -> Operations:
        return None if facts.digest else (WeightedSum(),)  # type: ignore[return-value]  # none: the check of a recipe


class Breaks(Nothing):
    """Breaks."""

    def aggregate(self, known: Any, facts: Any) -> Operations:
        if not facts.digest:  # the check of a recipe
            return (WeightedSum(),)
        raise ValueError("no luck")


class Leaves(fedplug.Aggregator):
    """Ends the program."""

    def aggregate(self, known: Any, facts: Any) -> Operations:
        if not facts.digest:
            return (WeightedSum(),)
        raise SystemExit(3)


def test_a_hook_that_gives_nothing_is_named(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    fake_classes["aggregate"]["acme.nothing"] = Nothing
    catalog = Catalog.of(fake_classes)
    composition = Composition(Recipe.from_plain(plain_recipe | {"aggregate": "acme.nothing"}, catalog))
    with pytest.raises(PluginError, match=r"acme\.nothing, hook aggregate: it gave nothing; the hook must return a"):
        composition.one("aggregate", "acme.nothing", **handed())
    # An error that is not fedplug's is reported with the line that raised it.
    fake_classes["aggregate"]["acme.breaks"] = Breaks
    catalog = Catalog.of(fake_classes)
    broken = Composition(Recipe.from_plain(plain_recipe | {"aggregate": "acme.breaks"}, catalog))
    said = r"^component acme\.breaks, hook aggregate: ValueError: no luck \(test_composition\.py:\d+\)$"
    with pytest.raises(PluginError, match=said):
        broken.one("aggregate", "acme.breaks", **handed())
    # One that ends its program fails like any other.
    leaves = Catalog.of(fake_classes | {"aggregate": fake_classes["aggregate"] | {"acme.leaves": Leaves}})
    gone = Composition(Recipe.from_plain(plain_recipe | {"aggregate": "acme.leaves"}, leaves))
    with pytest.raises(PluginError, match=r"^component acme\.leaves, hook aggregate: SystemExit: 3 \(test_comp"):
        gone.one("aggregate", "acme.leaves", **handed())
    # The negotiation is the only hook without a return value, because plans are kept at the clients.
    assert composition.one("negotiate_mask", "acme.vote", cohort=None, facts=None) is None


def test_links_follow_the_recipe_and_retained_has_none(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    recipe = Recipe.from_plain(plain_recipe, fake_catalog)
    links = Composition(recipe).links
    assert "retained" not in links
    for zone, chain in links.items():
        expected = [(use.name, "protect", "client") for use in recipe.protect[zone]]
        expected.append((recipe.aggregate.name, "aggregate", "server"))
        assert [(link.name, link.hook, link.site) for link in chain][: len(expected)] == expected
        opened = [link.name for link in chain if link.hook == "postprocess"]
        assert opened == [use.name for use in recipe.postprocess.get(zone, ())]


def test_only_central_noise_on_a_poisson_sample_is_hidden_by_sampling() -> None:
    clip = {"use": "std.clip", "norm": 1.0}
    central = {"use": "std.central_gaussian", "noise_multiplier": 1.0, "norm": 1.0}
    local = {"use": "std.gaussian", "noise_multiplier": 1.0}
    for plain, hidden in (
        (recipe_of("noised", [clip], postprocess={"noised": [central]}), {"noised"}),
        (recipe_of("noised", [clip, local]), set()),
    ):
        facts = run_protocol(plain | {"rounds": 1}).protocol.server.facts
        assert amplified(Sampling(rate=0.5), facts) == hidden
        assert amplified(Sampling(rate=0.5, scheme="fixed"), facts) == set()
        assert amplified(None, facts) == set()
