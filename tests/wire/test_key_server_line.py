"""The line to the key server: one question at a time."""

from __future__ import annotations

import pytest
from fake_parties import World
from fedplug.api.errors import ClientError
from fedplug.api.parties import KEY_SERVER
from fedplug.wire.post_office import KeyServerCalls


def test_the_key_server_answers_one_question_at_a_time() -> None:
    world = World()
    line = KeyServerCalls(world.office)
    assert line.ask(world.component.open, "yes") == "YES"
    with pytest.raises(ClientError, match=r"the key server refused toy\.open: ValueError: not that"):
        line.ask(world.component.open, "no")
    world.lost = {KEY_SERVER}
    with pytest.raises(ClientError, match="the key server is gone"):
        line.ask(world.component.open, "yes")
    assert world.wire.of_round(-1).key_server.total > 0
    assert world.wire.of_round(-1).down.total == 0
