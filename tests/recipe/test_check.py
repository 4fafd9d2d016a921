"""The rules between the parts of a recipe: zones, undoing, order, and the statements of components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fedplug import Clip, Negotiation, Plans, Protector, PublicPlan, Sealer
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from recipe_texts import GOOD, changed, problems, write

CLIP, NOISE, SEAL = {"use": "std.clip", "norm": 1}, {"use": "std.gaussian", "epsilon": 1}, {"use": "std.ckks"}


def test_mistakes_of_one_part_and_between_parts_come_together(tmp_path: Path, fake_catalog: Catalog) -> None:
    text = GOOD.replace("alpha: 0.5", "alfa: 0.5").replace("seed: 7\n", "min_clients: 9\nseed: 7\n")
    text = text.replace("postprocess: {encrypted: [std.ckks]}\n", "")
    assert problems(write(tmp_path, text), fake_catalog) == [
        "r.yaml:3:14: min_clients=9 must be <= data.clients=4; lower it, or split the data among more",
        "r.yaml:6:65: unknown option 'alfa' of std.dirichlet; did you mean alpha?",
        "r.yaml:12:3: std.ckks protects the zone encrypted, but nothing opens the sum; "
        "write postprocess: {encrypted: [std.ckks]}",
    ]


def zones(plain: dict[str, Any], **chains: Any) -> dict[str, Any]:
    return {"protect": plain["protect"] | chains}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"protect": {"noised": []}, "postprocess": {}},
            "recipe.protect: plans of acme.vote can hold zone encrypted, which nothing covers; write encrypted: "
            "[{use: ...}], or "
            "encrypted: [] to send it unprotected",
        ),
        (
            {"negotiate_mask": "std.single_zone", "protect": {}, "postprocess": {}},
            "recipe.protect: plans of std.single_zone can hold zone clear, which nothing covers; write clear: [] "
            "to send it in "
            "the clear",
        ),
        (
            {"protect": {"encrypted": [], "noised": [], "noiced": []}, "postprocess": {}},
            "recipe.protect.noiced: no plan of acme.vote can hold zone noiced; did you mean noised?",
        ),
        (
            {"protect": {"encrypted": [], "noised": [], "clear": []}, "postprocess": {}},
            "recipe.protect.clear: no plan of acme.vote can hold zone clear; remove it, or write clear: null where it "
            "comes by extends (zones here: encrypted, noised)",
        ),
        (
            {"protect": {"encrypted": [], "noised": [], "retained": []}, "postprocess": {}},
            "recipe.protect.retained: zone retained never leaves the client; remove it from protect",
        ),
        (
            {"postprocess": {"encrypted": ["std.ckks"], "clear": []}},
            "recipe.postprocess.clear: zone clear is not under protect; zones here: encrypted, noised",
        ),
        (
            {"postprocess": {}},
            "recipe.protect.encrypted: std.ckks protects the zone encrypted, but nothing opens the sum; write "
            "postprocess: "
            "{encrypted: [std.ckks]}",
        ),
        (
            {"postprocess": {"encrypted": ["std.ckks"], "noised": ["std.ckks"]}},
            "recipe.postprocess.noised.0: std.ckks opens the noised sum, which nothing has closed; remove it there",
        ),
        (
            {"postprocess": {"encrypted": [{"use": "std.ckks"}]}},
            "recipe.postprocess.encrypted.0: std.ckks@encrypted does not protect the zone encrypted, so it cannot "
            "open it; refer to that of this zone by its name, std.ckks",
        ),
        (
            {"postprocess": {"encrypted": ["std.ckks", "std.clip"]}},
            "recipe.postprocess.encrypted.1: std.clip (std.clip) cannot be under postprocess: it is not an Opener; "
            "name a component of the group postprocess",
        ),
        (
            {"aggregate": "std.ckks"},
            "recipe.aggregate: std.ckks (std.ckks) cannot be under aggregate: it is not an Aggregator; name a "
            "component of the group aggregate",
        ),
    ],
)
def test_zones_and_undoing(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any], expected: str
) -> None:
    assert changed(plain_recipe, fake_catalog, **change) == [expected]


@pytest.mark.parametrize("order", [["std.ckks", "std.outer"], ["std.outer", "std.ckks"]])
def test_a_zone_is_closed_once(plain_recipe: dict[str, Any], fake_catalog: Catalog, order: list[str]) -> None:
    protect = {"encrypted": ["std.ckks", "std.outer"], "noised": []}
    found = changed(plain_recipe, fake_catalog, protect=protect, postprocess={"encrypted": order})
    assert found[0] == (
        "recipe.protect.encrypted.1: std.outer must not come after encryption in the chain of zone encrypted: std.ckks "
        "has closed it; keep one of the two"
    )


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (
            [NOISE],
            [
                "std.gaussian needs a bound of the L2 norm earlier in the chain of zone encrypted; "
                "put {use: std.clip, norm: 1.0} before it"
            ],
        ),
        (
            [NOISE, CLIP],
            [
                "std.gaussian needs a bound of the L2 norm earlier in the chain of zone encrypted; "
                "put {use: std.clip, norm: 1.0} before it"
            ],
        ),
        (
            [CLIP, NOISE, CLIP | {"name": "b"}],
            ["b must not come after noise in the chain of zone encrypted; put the clip first"],
        ),
        (
            [SEAL, CLIP],
            [
                "std.clip must not come after encryption in the chain of zone encrypted; put the clip before the "
                "encryption"
            ],
        ),
        ([CLIP, NOISE], []),
        ([CLIP, NOISE, SEAL], []),
        ([], []),
    ],
)
def test_order_rules_that_components_declare(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, chain: list[Any], expected: list[str]
) -> None:
    post = {"encrypted": ["std.ckks"] if SEAL in chain else []}
    change = {"protect": {"encrypted": chain, "noised": []}, "postprocess": post}
    if not expected:
        assert Recipe.from_plain(plain_recipe | change, fake_catalog).protect["noised"] == ()
        return
    assert [problem.partition(": ")[2] for problem in changed(plain_recipe, fake_catalog, **change)] == expected


def test_order_rules_follow_the_block_into_postprocess(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    sealed = {"protect": {"encrypted": [CLIP, SEAL], "noised": []}}
    Recipe.from_plain(plain_recipe | sealed | {"postprocess": {"encrypted": ["std.ckks", "std.central"]}}, fake_catalog)
    too_early = changed(plain_recipe, fake_catalog, **sealed, postprocess={"encrypted": ["std.central", "std.ckks"]})
    assert len(too_early) == 1
    assert "must not come after encryption in the chain of zone encrypted; open the sum first" in too_early[0]
    unclipped = {
        "protect": {"encrypted": [SEAL], "noised": []},
        "postprocess": {"encrypted": ["std.ckks", "std.central"]},
    }
    assert "clip at the clients" in changed(plain_recipe, fake_catalog, **unclipped)[0]


def test_one_noise_component_may_not_serve_two_zones(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    protect = {"encrypted": [CLIP, NOISE], "noised": ["std.clip", "std.gaussian"]}
    (problem,) = changed(plain_recipe, fake_catalog, protect=protect, postprocess={})
    assert "std.gaussian draws the noise of zone encrypted already; write {use: std.gaussian, ...}" in problem


def with_component(classes: dict[str, dict[str, type]], group: str, name: str, found: type) -> Catalog:
    classes[group][name] = found
    return Catalog.of(classes)


def test_a_negotiation_must_say_which_zones_it_uses(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    class Silent(Negotiation):
        """Says nothing of zones."""

        def negotiate_mask(self, cohort: Any, facts: Any) -> None: ...

        def reveals(self, facts: Any) -> tuple[()]:
            return ()

    catalog = with_component(fake_classes, "negotiate_mask", "odd", Silent)
    expected = "recipe.negotiate_mask: component odd has no plans, which a Negotiation must have"
    assert changed(plain_recipe, catalog, negotiate_mask="odd") == [expected]


class Ghost(Protector):
    """Names a client that there is not."""

    def protect(self, known: Any, facts: Any) -> Any:
        return Clip({1: 2.0, 99: 2.0}, others=1.0)


class Broken(Sealer):
    """Fails before it says what it does."""

    def protect(self, known: Any, facts: Any) -> Any:
        raise KeyError("k")

    def reveals(self, facts: Any) -> Any: ...

    def seal(self, words: Any, client: Any, facts: Any) -> Any: ...

    def open(self, total: Any, party: Any, facts: Any) -> Any: ...

    def add(self, uploads: Any, server: Any, facts: Any) -> Any: ...


class NoPlan(PublicPlan):
    """Plans nothing."""

    plans = Plans(zones=frozenset({"noised"}))

    def plan(self, facts: Any) -> Any:
        return None


class Cohorts(NoPlan):
    """Takes what a negotiation takes."""

    def plan(self, cohort: Any, facts: Any) -> Any:  # type: ignore[override]
        return "noised"


@pytest.fixture
def catalog(fake_classes: dict[str, dict[str, type]]) -> Catalog:
    fake_classes["protect"] |= {"acme.ghost": Ghost, "acme.broken": Broken}
    fake_classes["postprocess"] |= {"acme.broken": Broken}
    fake_classes["negotiate_mask"] |= {"acme.none": NoPlan, "acme.cohorts": Cohorts}
    return Catalog.of(fake_classes)


def test_operations_name_clients_that_there_are(plain_recipe: dict[str, Any], catalog: Catalog) -> None:
    assert changed(plain_recipe, catalog, protect={"encrypted": [], "noised": ["acme.ghost"]}, postprocess={}) == [
        "recipe.protect.noised.0: component acme.ghost, hook protect: Clip names client 99, and the recipe has clients "
        "0 to 3; leave it out, or name one of those"
    ]


def test_who_opens_what_a_broken_sealer_did_not_close_is_not_blamed(
    plain_recipe: dict[str, Any], catalog: Catalog
) -> None:
    chains = {"protect": {"encrypted": ["acme.broken"], "noised": []}, "postprocess": {"encrypted": ["acme.broken"]}}
    (found,) = changed(plain_recipe, catalog, **chains)
    assert found.startswith("recipe.protect.encrypted.0: component acme.broken, hook protect: KeyError: 'k'")


def test_behind_a_link_with_a_wrong_option_none_seems_to_lack_it(
    plain_recipe: dict[str, Any], catalog: Catalog
) -> None:
    chain = [CLIP | {"norn": 1}, NOISE]
    (found,) = changed(plain_recipe, catalog, protect={"encrypted": [], "noised": chain}, postprocess={})
    assert "unknown option 'norn' of std.clip" in found


def test_links_are_not_blamed_for_a_zone_that_there_is_not(plain_recipe: dict[str, Any], catalog: Catalog) -> None:
    negotiation = {"use": "std.single_zone", "zone": "noise"}
    change = {"negotiate_mask": negotiation, "protect": {"noised": [CLIP, NOISE]}, "postprocess": {}}
    one, other = changed(plain_recipe, catalog, **change)
    assert "can hold zone noise, which nothing covers" in one
    assert "no plan of std.single_zone can hold zone noised" in other


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("acme.none", "component acme.none, plan: it gave None, and no client negotiates a plan; give a "),
        ("acme.cohorts", "component acme.cohorts has plan(cohort, facts), which a PublicPlan has as plan(facts); take"),
    ],
)
def test_a_public_plan_is_one(plain_recipe: dict[str, Any], catalog: Catalog, use: str, said: str) -> None:
    (found,) = changed(plain_recipe, catalog, negotiate_mask=use, protect={"noised": []}, postprocess={})
    assert found.startswith(f"recipe.negotiate_mask: {said}")
