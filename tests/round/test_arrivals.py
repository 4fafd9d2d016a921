"""Uploads as they arrive: sums in pieces equal the whole sums, and the server keeps at most one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from faulty_clients import OWN, PLAIN, PUSH, tampered, with_block
from fedplug import Block, Combine, Facts
from fedplug.api import codec
from fedplug.api.errors import ProtectionError
from fedplug.engines.base import Engine
from fedplug.round import sums as arrivals
from fedplug.round.protocol import Protocol
from fedplug.round.sums import Arrivals, joins
from fedplug_std.mean import Mean
from toy_components import paraaegis, recipe_of
from toy_protocol import Outcome, build, initial_vector, run_protocol

SIZE = 650
CLIENTS = 7


def many(plain: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**plain, "rounds": 2, "data": {**plain["data"], "clients": CLIENTS}, **changes}


SEALED = recipe_of("encrypted", [{"use": "std.bfv", "range": 0.1}], train=PUSH)
HELD = recipe_of("encrypted", [{"use": "std.bfv", "range": 0.1, "key_holder": "key_server"}], train=PUSH)


@pytest.fixture
def _pieces_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_AT_ONCE", 2 * SIZE)


def shuffled(protocol: Protocol, engine: Engine) -> None:
    """Has replies arrive in a different order from the questions."""
    exchange = engine.exchange

    def late(messages: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        answers = list(exchange(messages))
        yield from [answers[at] for at in np.random.default_rng(len(answers)).permutation(len(answers))]

    engine.exchange = late  # type: ignore[method-assign]


@pytest.mark.parametrize("plain", [PLAIN, SEALED, HELD], ids=["plain", "bfv", "held"])
def test_sums_in_pieces_are_the_sums_of_all(plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_protocol(many(plain))
    monkeypatch.setattr(arrivals, "_AT_ONCE", 2 * SIZE)
    pieces = run_protocol(many(plain))
    assert np.abs(pieces.vector - whole.vector).max() < 1e-7
    assert not np.array_equal(whole.vector, initial_vector(many(plain)))
    assert [row.clients.answered for row in pieces.rows] == [CLIENTS, CLIENTS]
    later = run_protocol(many(plain), prepare=shuffled)
    assert np.array_equal(later.vector, pieces.vector)


@pytest.mark.usefixtures("_pieces_of_two")
def test_the_server_holds_a_piece_of_the_uploads_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    take = Arrivals.take

    def watched(self: Arrivals, client_id: int, reply: Any) -> None:
        take(self, client_id, reply)
        groups = self._groups.values()
        most.append(sum(len(here) for group in groups for here in group._here))

    monkeypatch.setattr(Arrivals, "take", watched)
    run_protocol(many(SEALED))
    assert max(most) == 2  # a piece of two is added up as soon as both are there
    most.clear()
    run_protocol(many(OWN))
    assert max(most) == CLIENTS  # with individual positions, the fewest clients of a value are unknown before the end


def mean_without(plain: dict[str, Any], client: int) -> Any:
    """The model after one round of equal weights in which one client does not take part."""

    def silent(protocol: Protocol, engine: Engine) -> None:
        take = Arrivals.take

        def without(self: Arrivals, client_id: int, reply: Any) -> None:
            if client_id == client:
                self.office.drop(client_id, "left out")
            else:
                take(self, client_id, reply)

        patch.setattr(Arrivals, "take", without)

    with pytest.MonkeyPatch.context() as patch:
        return run_protocol(plain, prepare=silent).vector


FAULTS = {
    "nan": lambda block: block.replace(values=block.values * np.nan),
    "huge": lambda block: block.replace(values=np.full(SIZE, 3e38, np.float32)),
    "short": lambda block: block.replace(size=5, values=block.values[:5]),
    "weighted": lambda block: block.replace(weighted=True),
}


@pytest.mark.usefixtures("_pieces_of_two")
@pytest.mark.parametrize("fault", FAULTS)
def test_an_upload_that_spoils_a_piece_costs_its_client_the_round_alone(fault: str) -> None:
    """Client 1 answers in the first piece, before the form of most uploads is known."""
    plain = {**many(PLAIN), "rounds": 1}
    outcome: Outcome = tampered(plain, with_block(FAULTS[fault]))
    assert outcome.rows[0].clients.answered == CLIENTS - 1
    assert list(outcome.rows[0].clients.dropped) == [1]
    assert np.allclose(outcome.vector, mean_without(plain, 1), atol=1e-7)


@pytest.mark.usefixtures("_pieces_of_two")
def test_positions_where_a_zone_is_shared_cost_their_senders_the_round() -> None:
    def scattered(protocol: Protocol, engine: Engine) -> None:
        exchange = engine.exchange

        def edited(messages: dict[str, Any]) -> Iterator[tuple[str, Any]]:
            for address, answer in exchange(messages):
                if protocol.office.phase == "upload" and address in ("client:1", "client:4"):
                    change = with_block(lambda b: b.replace(positions=np.arange(SIZE, dtype=np.uint32)))
                    answer = codec.frame(codec.encode(change(codec.decode(codec.unframe(answer)))))
                yield address, answer

        engine.exchange = edited  # type: ignore[method-assign]

    outcome = run_protocol({**many(PLAIN), "rounds": 1}, prepare=scattered)
    assert sorted(outcome.rows[0].clients.dropped) == [1, 4]
    assert "has its own positions" in outcome.rows[0].clients.dropped[1]


@pytest.mark.usefixtures("_pieces_of_two")
def test_an_aggregators_complaint_about_a_few_uploads_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked to add up the few before it is known that they are few."""

    def strict(blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        if any(block.size != SIZE for block in blocks.values()):
            raise ProtectionError("it adds whole models only")
        total = np.sum([weights[client_id] * block.plain() for client_id, block in blocks.items()], axis=0)
        divisor = sum(weights[client_id] for client_id in blocks)
        return Block("noised", SIZE, total.astype(np.float32), divisor=divisor, contributors=len(blocks))

    monkeypatch.setattr(Mean, "aggregate", lambda self, known, facts: (Combine(strict),))
    outcome = tampered({**many(PLAIN), "rounds": 1}, with_block(FAULTS["short"]))
    assert list(outcome.rows[0].clients.dropped) == [1]
    with pytest.raises(ProtectionError, match="it adds whole models only"):  # one of two is not few
        tampered({**many(PLAIN), "rounds": 1, "data": PLAIN["data"] | {"clients": 2}}, with_block(FAULTS["short"]))


@pytest.mark.parametrize(
    ("plain", "joined"),
    [
        (PLAIN, True), (SEALED, True), (paraaegis(0.5), True), (OWN, False),
        (recipe_of(aggregate={"use": "toy.peek"}), False),
        (
            recipe_of("noised", [
                {"use": "std.clip", "norm": 1.0}, {"use": "selectiveshield.hide_support"},
                {"use": "std.gaussian", "noise_multiplier": 1.0},
            ]), False,
        ),
        (recipe_of("encrypted", [{"use": "fas.scramble"}], postprocess={"encrypted": ["fas.scramble"]}), False),
    ],
)  # fmt: skip
def test_only_sums_of_shared_positions_that_join_are_joined(plain: dict[str, Any], joined: bool) -> None:
    protocol, engine, _ = build(plain)
    try:
        assert joins(protocol.composition, protocol.facts(0)) is joined
    finally:
        engine.close()
