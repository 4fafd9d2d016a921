"""Hosts: a message reaches only its party, and loading restores what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Plan
from fedplug.api import codec
from fedplug.api.errors import CheckpointError
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.wire.calls import Call, read_reply, request
from fedplug_runs.checkpoint import StateFiles
from toy_components import recipe_of, toy_catalog


def host(**changes: object) -> ClientHost:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(**changes), catalog)
    return ClientHost(recipe, Composition(recipe), [0, 1, 2], None, "cpu", StateFiles())


def test_what_a_host_saves_it_loads_and_equal_arrays_lie_in_one_file(tmp_path: Path) -> None:
    before = host()
    first, second, third = before.clients.values()
    moved = first.vector + 1
    first.take_vector(moved)
    second.take_vector(moved.copy())
    labels = np.zeros(moved.size, np.uint8)
    first.plan = Plan(labels, first.facts.zones, "clear")
    third.personal = moved + 1
    second.state["toy"] = {"kept": [1, 2]}
    before.save(tmp_path)
    arrays = [codec.decode(codec.unframe(path.read_bytes())) for path in tmp_path.glob("*array*")]
    assert len(arrays) == 4  # the moved model, the first one, a plan, a personal model
    after = host()
    after.load(tmp_path)
    one, two, three = after.clients.values()
    assert np.array_equal(one.vector, moved)
    assert one.vector is two.vector
    assert np.array_equal(three.vector, third.vector)
    assert three.personal is not None
    assert np.array_equal(three.personal, moved + 1)
    assert one.plan is not None
    assert np.array_equal(one.plan.labels, labels)
    assert one.plan.whole == "clear"
    assert (two.plan, two.state["toy"]) == (None, {"kept": [1, 2]})


def test_a_message_is_run_at_its_receiver_in_its_round() -> None:
    parties = host()
    steps, recipe = parties.components["fedplug"], parties.recipe
    data, _ = request(recipe.digest, [Call.of(steps.take_weight, (10**6,), "client", 1)])
    reply, _ = read_reply(parties.deliver("client:1", data))
    assert reply.error is None
    assert [client.facts.round for client in parties.clients.values()] == [-1, 1, -1]
    refused, _ = read_reply(parties.deliver("client:2", request("other", [])[0]))
    assert refused.error is not None
    assert "start all parties with the same recipe" in refused.error.message


def test_a_save_ends_the_round_of_the_party_that_runs_and_of_the_one_that_is_saved(tmp_path: Path) -> None:
    """At a key server too: otherwise a state could be used twice that holds what serves once."""
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(), catalog)
    before, after = host(), host()
    keys = [KeyServerHost(recipe, Composition(recipe), before.model.layout, StateFiles()) for _ in range(2)]
    clients_asked = before.components["fedplug"].ready, "client", "client:1"
    key_server_asked = before.components["fedplug"].open, "key_server", "key_server"
    for (method, site, address), hosts in ((clients_asked, (before, after)), (key_server_asked, keys)):

        def ask(at: Any, round: int, method: Any = method, site: str = site, address: str = address) -> str:
            data, _ = request(recipe.digest, [Call.of(method, (), site, round)])
            error = read_reply(at.deliver(address, data))[0].error
            return error.message if error else ""

        ended = f"belongs to round 1, and this {site} was saved in the middle of it"
        assert ended not in ask(hosts[0], 0)
        hosts[0].save(tmp_path)
        hosts[1].load(tmp_path)
        for each in hosts:
            assert ended in ask(each, 0)
            assert "saved in the middle" not in ask(each, 1)


def test_the_key_server_keeps_its_state_and_nothing_that_can_be_rebuilt(tmp_path: Path) -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(), catalog)
    layout = host().model.layout
    before, after = (KeyServerHost(recipe, Composition(recipe), layout, StateFiles()) for _ in range(2))
    before.party.state["toy"], before.party.remembered.answer_key = {"key": b"k"}, bytes(32)
    before.save(tmp_path)
    after.party.cache["table"] = 1
    after.load(tmp_path)
    assert (after.party.state, after.party.cache) == ({"toy": {"key": b"k"}}, {})
    assert after.party.remembered.answer_key == bytes(32)


def test_without_a_run_folder_a_party_has_opened_nothing(tmp_path: Path) -> None:
    assert len(StateFiles().openings(["client:0"])["client:0"]) == 0
    assert len(StateFiles(tmp_path).openings(["client:0"])["client:0"]) == 0
    notes = tmp_path / "openings" / "client-0.jsonl"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("no line of ours\n")
    with pytest.raises(CheckpointError):
        StateFiles(tmp_path).openings(["client:0"])
