"""What clients sent besides their updates: who can read it, and how it is read whatever negotiation it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attack_toys import Runs, machinery, observed, seen
from fedplug.api.blocks import ENCRYPTED, Layout
from fedplug_attacks.api.told import MEMBERS, UPLOAD, Told, examples_of
from saved_toys import HALVES, saved, shield, zone
from toy_components import paraaegis, recipe_of

LAYOUT = Layout.of([("fc1.weight", (3, 2)), ("fc1.bias", (3,)), ("fc2.weight", (2, 3)), ("fc2.bias", (2,))])
SIZE = LAYOUT.size  # 17
CLIENTS = range(recipe_of()["data"]["clients"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def said(value: Any, **more: Any) -> Told:
    return Told("some.negotiation", "answer", 0, 0, value, **more)


# -- reading a value ---------------------------------------------------------------------------------------------------


def test_a_packed_bitmap_is_one_bit_a_scalar() -> None:
    bits = np.random.default_rng(1).random(SIZE) < 0.5
    assert np.array_equal(said(np.packbits(bits)).scalars(LAYOUT), bits)


def test_a_vector_is_one_number_a_scalar_and_what_is_not_finite_is_zero() -> None:
    vector = np.arange(SIZE, dtype=np.float32)
    vector[3] = np.nan
    found = said(vector).scalars(LAYOUT)
    assert found is not None
    assert found[3] == 0
    assert np.array_equal(np.delete(found, 3), np.delete(np.arange(SIZE), 3))


@pytest.mark.parametrize("kind", [np.uint32, np.int64])
def test_positions_are_a_mask(kind: type) -> None:
    found = said(np.array([4, 0, 16], kind)).scalars(LAYOUT)
    assert found is not None
    assert np.flatnonzero(found).tolist() == [0, 4, 16]


def test_positions_of_a_whole_zone_are_positions_and_no_scores() -> None:
    found = said(np.arange(SIZE, dtype=np.uint32), zone=ENCRYPTED).scalars(LAYOUT)
    assert np.array_equal(found, np.ones(SIZE))


def test_one_number_a_layer_goes_to_all_its_scalars() -> None:
    found = said(np.array([0.5, 0.25], np.float32)).scalars(LAYOUT)
    assert np.array_equal(found, [0.5] * 9 + [0.25] * 8)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.5, b"a key", "text", {"num_examples": 3}, [[1.0], [2.0, 3.0]], np.ones((SIZE, 2)), np.ones(5),
     np.array([SIZE]), np.array([-1])],
)  # fmt: skip
def test_what_is_not_about_scalars_says_nothing_of_them(value: Any) -> None:
    assert said(value).scalars(LAYOUT) is None


# -- who can read it ---------------------------------------------------------------------------------------------------


def of(told: Any, method: str, client_id: int, round: int = 0) -> Any:
    (found,) = [t for t in told if (t.method, t.client_id, t.round) == (method, client_id, round) and not t.zone]
    return found


def test_the_ballots_of_all_clients_are_in_the_servers_view(runs: Runs) -> None:
    """A ballot is all that a client encrypts and it names, and all that it keeps: the encrypted zone is everybody's."""
    folder = runs.of(shield())
    known, _ = observed(folder, "server", 1)
    for client_id in CLIENTS:
        ballot = of(known.heard, "mark", client_id)
        assert ballot.component == "selectiveshield.consensus"
        named = ballot.scalars(Layout.of([("all", (len(saved(folder, 1, 0)["labels"]),))]))
        retained = zone(folder, "retained", client_id=client_id)
        assert named is not None
        assert named[retained].all()
        assert not named[zone(folder, "noised", client_id=client_id)].any()


def test_a_view_keeps_what_the_target_told_apart(runs: Runs) -> None:
    with machinery(runs.of(shield()), adversaries=["server"], rounds=[1]) as run:
        known, truth = seen(run, "server", 2)
        component = run.composition.components["toy.echo"]
        from fedplug_attacks.api.view import View

        view, _ = run.calls.view(View("server", target=2), known, truth, component, None)
    assert {told.client_id for told in view.told} == {2}
    assert view.told == view.told_by(2)
    assert of(view.told_by(0), "mark", 0) is of(view.heard, "mark", 0)
    assert View("server", heard=view.heard).told == ()


def test_sizes_of_zones_show_through_encryption_and_positions_where_they_travel(runs: Runs) -> None:
    folder = runs.of(shield())
    known, _ = observed(folder, "server", 0)
    for client_id in CLIENTS:
        zones = {t.zone: t.value for t in known.heard if t.method == UPLOAD and t.client_id == client_id}
        assert np.array_equal(np.flatnonzero(zone(folder, "noised", client_id=client_id)), zones["noised"])
        assert zones["encrypted"] == np.count_nonzero(zone(folder, "encrypted", client_id=client_id))


@pytest.mark.parametrize(
    ("adversary", "who"), [("eavesdropper", set()), ("client:1", {1}), ("server", set(CLIENTS)), ("key_server", set())]
)
def test_on_protected_links_only_what_reaches_the_adversary_is_told(runs: Runs, adversary: str, who: set[int]) -> None:
    known, _ = observed(runs.of(shield()), adversary, 0, protected_links=True)
    assert {told.client_id for told in known.heard} == who


def test_on_open_links_whoever_listens_has_all_ballots(runs: Runs) -> None:
    known, _ = observed(runs.of(shield()), "eavesdropper", 0)
    assert {told.client_id for told in known.heard if told.method == "mark"} == set(CLIENTS)


def test_nothing_of_later_rounds_is_told(runs: Runs) -> None:
    for round in (1, 2):
        known, _ = observed(runs.of(shield()), "server", 0, round)
        assert {told.round for told in known.heard if told.method == "mark"} == set(range(round))


def test_a_ballot_under_a_key_is_placed_only_for_who_has_the_key(runs: Runs) -> None:
    folder = runs.of(paraaegis())
    blind, _ = observed(folder, "server", 0)
    assert not of(blind.heard, "nominate", 0).placed
    inside, _ = observed(folder, "server+client", 0)
    layout = Layout.of([("all", (len(saved(folder, 1, 0)["labels"]),))])
    named = {}
    for client_id in CLIENTS:
        ballot = of(inside.heard, "nominate", client_id)
        assert ballot.placed
        named[client_id] = ballot.scalars(layout)
        closed = of(blind.heard, "nominate", client_id).scalars(layout)
        assert closed.sum() == named[client_id].sum() == np.count_nonzero(zone(folder, "encrypted"))
        assert not np.array_equal(closed, named[client_id])
    votes = np.sum(list(named.values()), axis=0)
    encrypted = zone(folder, "encrypted")
    assert votes[encrypted].min() >= votes[~encrypted].max()


def test_how_many_examples_there_are_is_told_where_weights_need_it(runs: Runs) -> None:
    known, truth = observed(runs.of(recipe_of(rounds=2)), "server", 1)
    assert examples_of(t for t in known.heard if t.client_id == 1) == len(truth.labels)


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("adversary", "round"), [("server", 1), ("eavesdropper", 2), ("server", 2)])
def test_who_shares_a_group_is_known_to_the_server_and_shows_in_the_messages(
    runs: Runs, adversary: str, round: int
) -> None:
    plain = paraaegis(groups=HALVES)
    plain["data"] = plain["data"] | {"clients": 6}
    known, _ = observed(runs.of(plain), adversary, 0, round)
    members = {told.client_id: told.value for told in known.heard if told.method == MEMBERS}
    assert members == {client_id: (0, 2, 4) if client_id % 2 == 0 else (1, 3, 5) for client_id in range(6)}


def test_where_all_share_one_model_no_group_is_told(runs: Runs) -> None:
    known, _ = observed(runs.of(paraaegis()), "server", 0)
    assert not any(told.method == MEMBERS for told in known.heard)
