"""Training: once a round, from the global model, for any clients in one process."""

from __future__ import annotations

from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost
from fedplug.wire.calls import read_reply
from toy_components import paraaegis, recipe_of, toy_catalog
from toy_protocol import build


def test_a_message_of_an_earlier_round_trains_and_votes_no_more() -> None:
    protocol, engine, _ = build(paraaegis(rounds=3))
    protocol.setup()
    protocol.run()
    old = next(m for m in protocol.wire.messages if m.receiver == "client:1" and m.round == 0)
    ((_, answer),) = engine.exchange({"client:1": old.data})
    assert isinstance(answer, bytes)
    reply = read_reply(answer)[0]
    assert "fedplug.train belongs to round 1, but this client has been in round 4 already" in reply.error.message
    assert reply.value is None


def test_what_components_see_of_the_model_does_not_depend_on_who_shares_the_process() -> None:
    class Apart(LocalEngine):
        """A separate host for every client, as if each had a process."""

        def __init__(self, job: Job) -> None:
            super().__init__(job)
            for client_id, address in enumerate(list(self._hosts)):
                host = ClientHost(*job.build(), [client_id], None, "cpu")
                self._hosts[address] = host
                self.hosts.append(host)
            del self.hosts[0]

    plain = recipe_of(negotiate_mask={"use": "toy.asks", "question": "model"}, rounds=2)
    plain["model"] = {"use": "std.cnn", "hidden": 8}
    seen = []
    for engine_class in (LocalEngine, Apart):
        protocol, _, _ = build(plain)
        job = Job(Recipe.from_plain(plain, toy_catalog()).to_plain(), catalog=toy_catalog())
        protocol.engine = protocol.office.transport = engine_class(job)
        protocol.setup()
        protocol.run()
        seen.append(protocol.server.state["toy.asks"])
    assert len(set(seen[0]["1"])) == 4  # every client has trained its own model
    assert seen[0] == seen[1]
