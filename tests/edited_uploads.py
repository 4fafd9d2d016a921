"""Runs in which the uploads of one client are edited on their way."""

from __future__ import annotations

from typing import Any

from fedplug.api import codec
from fedplug.engines.base import Engine
from fedplug.round.protocol import Protocol
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol

LOCAL = recipe_of(
    model={"use": "std.cnn", "hidden": 4},
    data={"use": "std.digits", "train_size": 160, "test_size": 40, "clients": 4, "partition": {"use": "std.iid"}},
)


MEAN = LOCAL | {"buffers": "mean"}


def edit_replies(engine: Engine, protocol: Protocol, edit: Any, rounds: tuple[int, ...] | None = (0,)) -> None:
    """Has the uploads of client 1 edited on their way, in some rounds or all."""
    exchange = engine.exchange

    def edited(messages: dict[str, bytes]) -> Any:
        for address, answer in exchange(messages):
            now = protocol.office.phase == "upload" and (rounds is None or protocol.office.round in rounds)
            if now and address == "client:1" and isinstance(answer, bytes):
                reply = codec.decode(codec.unframe(answer))
                if isinstance(reply.get("value"), dict):  # no answer to a component that opens a sum meanwhile
                    answer = codec.frame(codec.encode(edit(reply)))
            yield address, answer

    engine.exchange = edited  # type: ignore[method-assign]


def run_edited(plain: dict[str, Any], edit: Any) -> Outcome:
    return run_protocol(plain, prepare=lambda protocol, engine: edit_replies(engine, protocol, edit))


def with_entry(name: Any, value: Any) -> Any:
    return lambda reply: {**reply, "value": {**reply["value"], name: value}}


def buffers_of(outcome: Outcome) -> dict[str, Any]:
    """The batch-norm buffers that clients received after round 1."""
    told = [call for message in outcome.sent("client:0", round=1) for call in message.decode()["calls"]]
    payload = next(payload for *_, name, payload in told if name == "adopt")
    return payload[1]  # type: ignore[no-any-return]
