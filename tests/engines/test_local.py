"""The local engine: messages equivalent to bytes, and parties that share only the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fedplug.api.parties import KEY_SERVER
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.wire.calls import Call, read_reply, request
from fedplug_runs.checkpoint import StateFiles
from toy_components import recipe_of, toy_catalog
from toy_protocol import Watched, run_protocol


def engine(key_server: bool = True) -> LocalEngine:
    return LocalEngine(Job(recipe_of(), catalog=toy_catalog(), key_server=key_server, store=StateFiles()))


def test_every_address_answers_in_the_order_of_the_messages() -> None:
    running = engine()
    steps, digest = running.clients.components["fedplug"], running.clients.recipe.digest
    data, _ = request(digest, [Call.of(steps.ready, (), "client", -1)])
    addresses = [f"client:{k}" for k in (2, 0, 3, 1)]
    replies = list(running.exchange(dict.fromkeys(addresses, data)))
    assert [address for address, _ in replies] == addresses
    assert all(read_reply(reply)[0].value is True for _, reply in replies if isinstance(reply, bytes))
    ((_, answer),) = running.exchange({KEY_SERVER: data})
    assert isinstance(answer, bytes)
    error = read_reply(answer)[0].error
    assert error is not None
    assert "fedplug.ready is not a method that may be called at a key_server" in error.message


def test_without_a_key_server_nobody_is_there() -> None:
    assert [host.addresses for host in engine(key_server=False).hosts] == [[f"client:{k}" for k in range(4)]]
    assert [host.addresses for host in engine().hosts][1:] == [[KEY_SERVER]]


def test_what_every_party_saved_is_loaded(tmp_path: Path) -> None:
    before, after = engine(), engine()
    moved = next(iter(before.clients.clients.values())).vector + 1
    for client in before.clients.clients.values():
        client.take_vector(moved)
    before.save(tmp_path)
    before.saved(tmp_path)
    after.load(tmp_path)
    assert all(np.array_equal(client.vector, moved) for client in after.clients.clients.values())
    assert {path.name for path in tmp_path.glob("*.state")} >= {"key_server.state", "clients-0.state"}
    before.close()
    after.close()


def test_messages_that_stay_in_the_process_give_what_recorded_bytes_give() -> None:
    """The same models and the same byte counts in every phase and zone, even with zones that not all clients share."""
    wide = {"use": "std.mlp", "hidden": [64]}  # arrays of over 4096 bytes
    voted = {
        "score_parameters": [{"use": "paraaegis.magnitude"}],
        "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.3}, "protect": {"encrypted": [], "noised": []},
    }  # fmt: skip

    def prepare(protocol: Watched, keep: bool) -> None:
        # Clients of a recorded run report their findings about their messages, which adds bytes.
        protocol.wire.keep, protocol.office.compares = keep, False

    for more in ({}, voted):
        plain = recipe_of(model=wide, **more)
        stayed = run_protocol(plain, prepare=lambda protocol, _: prepare(protocol, False))
        sent = run_protocol(plain, prepare=lambda protocol, _: prepare(protocol, True))
        assert not stayed.wire.messages
        assert sent.wire.messages
        np.testing.assert_array_equal(stayed.vector, sent.vector)
        assert stayed.wire.counts == sent.wire.counts
        assert [(row.accuracy, row.loss, row.clients) for row in stayed.rows] == [
            (row.accuracy, row.loss, row.clients) for row in sent.rows
        ]
