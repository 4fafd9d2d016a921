"""Clients whose replies are changed on the way, for tests of the server's handling."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedplug.api import codec
from fedplug.engines.base import Engine
from fedplug.round.protocol import Protocol
from fedplug.wire.calls import Call, Reply, read_reply, request
from fedplug_std import he_keys
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol

PUSH = {"use": "toy.push"}


def sent_again(protocol: Protocol, engine: Engine, body: Any, client: int = 1) -> Reply:
    """A client's answer to a call as in a recorded message, in a separate message."""
    data, _ = request(protocol.recipe.digest, [Call(codec.encode(body), Counter(), body[0])])
    ((_, answer),) = engine.exchange({f"client:{client}": data})
    assert isinstance(answer, bytes)
    return read_reply(answer)[0]


def tampered(
    plain: dict[str, Any], edit: Any, *, phase: str = "upload", rounds: tuple[int, ...] = (0,)
) -> Outcome:
    """A run in which the replies of client 1 in a phase and some rounds are edited on their way."""
    return run_protocol(plain, prepare=lambda protocol, engine: tamper(protocol, engine, edit, phase, rounds))


def tamper(protocol: Protocol, engine: Engine, edit: Any, phase: str, rounds: tuple[int, ...]) -> None:
    exchange = engine.exchange

    def edited(messages: dict[str, bytes]) -> Any:
        for address, answer in exchange(messages):
            hit = address == "client:1" and protocol.office.phase == phase and protocol.office.round in rounds
            if hit and isinstance(answer, bytes):
                answer = codec.frame(codec.encode(edit(codec.decode(codec.unframe(answer)))))
            yield address, answer

    engine.exchange = edited  # type: ignore[method-assign]


def with_value(value: Any) -> Any:
    return lambda reply: {**reply, "value": value}


def with_block(change: Any) -> Any:
    """Edits the first block of an upload."""

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        zone, block = next(iter(reply["value"]["blocks"].items()))
        blocks = {**reply["value"]["blocks"], zone: change(block)}
        return {**reply, "value": {**reply["value"], "blocks": blocks}}

    return edit


def with_bytes(change: Any) -> Any:
    return with_block(lambda block: block.replace(ciphertexts=tuple(map(change, block.ciphertexts))))


def doubled(protocol: Protocol) -> Any:
    """Every ciphertext of an upload added to itself. Each loads and adds, but the sum counts one update too many."""

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        component = protocol.composition.components[reply["value"]["blocks"]["encrypted"].sealed_by]
        context, _ = he_keys.context_of(component, protocol.server)

        def twice(part: bytes) -> bytes:
            return component.backend.add(context, [[part], [part]], component.slots)[0]

        return with_bytes(twice)(reply)  # type: ignore[no-any-return]

    return edit


PLAIN = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}])


OWN = recipe_of(negotiate_mask={"use": "toy.own"})


SEALED = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "clients", "range": 0.5}])


SEALED_FOR_KEY_SERVER = recipe_of("encrypted", [{"use": "std.ckks", "key_holder": "key_server", "range": 0.5}])


NORMED = recipe_of(model={"use": "std.cnn", "hidden": 4}, buffers="mean")


def clipped(norm: float, multiplier: float) -> list[Any]:
    return [
        {"use": "std.clip", "norm": norm},
        {"use": "std.gaussian", "noise_multiplier": multiplier, "source": "reproducible"},
    ]
