"""The ledger before round 1: the statements of a recipe's links and components."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fedplug import Plans
from fedplug.api.blocks import Layout
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Sampling
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.charging import ledger_of
from fedplug_ledger.ledger import Ledger
from toy_components import TOYS, paraaegis, recipe_of, toy_catalog
from toy_negotiations import Masks


def ledger(plain: dict[str, Any]) -> Ledger:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain, catalog)
    return ledger_of(recipe, Composition(recipe), Layout.of([("w", (65, 10))]))


def shown(found: Ledger) -> dict[str, tuple[str, ...]]:
    return {each.what: each.to for each in found.reveals}


def test_fedavg_has_no_key_and_shows_metrics_alone() -> None:
    found = ledger(recipe_of(min_clients=3, delta=1e-6, rounds=9))
    assert (found.recipe_name, found.num_clients, found.rounds, found.min_clients) == ("toy", 4, 9, 3)
    assert (found.delta, found.sampling, found.accountant) == (1e-6, None, None)
    assert (found.key_holders, found.opened, found.log) == ({}, frozenset(), [])
    assert shown(found) == {"client metrics": ("server",), "number of examples": ("server", "client")}


@pytest.mark.parametrize(
    ("options", "holder", "opened"),
    [
        ({"key_holder": "clients"}, "clients", False),
        ({"key_holder": "key_server"}, "key_server", True),
        ({"key_holder": "key_server", "sums_visible_to": "clients"}, "key_server", False),
    ],
)
def test_who_opens_a_zone_and_whether_the_server_sees_its_sum_follow_from_the_links(
    options: dict[str, Any], holder: str, opened: bool
) -> None:
    found = ledger(paraaegis(0.3, seal={"use": "std.bfv", **options}, min_clients=2))
    assert found.key_holders == {"encrypted": holder}
    assert found.opened == (frozenset({"encrypted"}) if opened else frozenset())
    assert found.encryption["encrypted"].component == "std.bfv"


def test_sampling_is_passed_on_with_its_accountant() -> None:
    plain = recipe_of(sampling={"scheme": "poisson", "rate": 0.5}, accountant={"use": "std.pld"})
    found = ledger(plain)
    assert found.sampling == Sampling(scheme="poisson", rate=0.5)
    assert found.accountant is not None


def test_who_is_not_of_fedplug_itself_is_named() -> None:
    """Another distribution may offer a component under a shipped one's name."""
    sampled = {"sampling": {"scheme": "poisson", "rate": 0.5}, "accountant": {"use": "std.pld"}}
    plain = paraaegis(0.3, seal={"use": "std.bfv"}, min_clients=2, **sampled)
    for distribution, named in (("fedplug-std", False), ("acme", True)):
        catalog = toy_catalog()
        for group, name in (("protect", "std.bfv"), ("postprocess", "std.bfv"), ("accountant", "std.pld")):
            offered = catalog.groups[group][name]
            catalog.groups[group][name] = dataclasses.replace(offered, distribution=distribution)
        recipe = Recipe.from_plain(plain, catalog)
        found = ledger_of(recipe, Composition(recipe), Layout.of([("w", (65, 10))]))
        assert [name for name in found.words if name.startswith("std.")] == (["std.bfv", "std.pld"] if named else [])


def test_data_and_models_of_others_are_named() -> None:
    """Any component can ask clients in `setup` and `prepare`, a data set may hold one person's records twice, and a
    model may mix the examples of a batch.
    """
    catalog = toy_catalog()
    for group, name in (("dataset", "std.digits"), ("model", "std.mlp"), ("partition", "std.dirichlet")):
        catalog.groups[group][name] = dataclasses.replace(catalog.groups[group][name], distribution="acme")
    recipe = Recipe.from_plain(recipe_of(), catalog)
    found = ledger_of(recipe, Composition(recipe), Layout.of([("w", (65, 10))]))
    assert [name for name in found.words if name.startswith("std.")] == ["std.digits", "std.dirichlet", "std.mlp"]


def test_buffers_that_are_averaged_are_shown_to_everybody() -> None:
    assert "batch-norm statistics" not in shown(ledger(recipe_of(buffers="local")))
    assert shown(ledger(recipe_of(buffers="mean")))["batch-norm statistics"] == (
        "server", "client", "released_model"
    )  # fmt: skip


class OwnMasks(Masks):
    """State that positions differ between clients."""

    @property
    def plans(self) -> Plans:
        return Plans(zones=frozenset({"encrypted", "clear"}), own=frozenset({"encrypted"}))


MASKS = recipe_of(
    negotiate_mask={"use": "toy.masks"}, protect={"encrypted": [{"use": "std.ckks"}], "clear": []},
    postprocess={"encrypted": ["std.ckks"]},
)  # fmt: skip


def test_plans_that_follow_from_data_are_shown_where_nobody_says_to_whom() -> None:
    assert shown(ledger(MASKS))["plans of clients"] == ("server", "client")
    assert "plans of clients" not in shown(ledger(recipe_of()))


@pytest.mark.parametrize(
    ("options", "to"),
    [
        ({"key_holder": "clients"}, ("client",)),
        ({"key_holder": "key_server", "sums_visible_to": "server"}, ("key_holder",)),
        ({"key_holder": "key_server", "sums_visible_to": "clients"}, ("key_holder", "client")),
    ],
)
def test_positions_of_a_clients_own_show_how_many_chose_each(
    options: dict[str, str], to: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The party that opens the sum learns its divisors, and so does a party that receives it still closed."""
    monkeypatch.setitem(TOYS["negotiate_mask"], "toy.masks", OwnMasks)
    plain = {**MASKS, "protect": {"encrypted": [{"use": "std.ckks", **options}], "clear": []}}
    assert shown(ledger(plain))["divisors of positions"] == to
