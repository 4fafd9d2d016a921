"""Compares training, plans, scores and replies of a run with their declarations, and the end models of two runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api import codec
from fedplug.api.operations import Scramble, Seal
from fedplug.api.roles import Closer
from fedplug_std.per_sample import mean_gradient

from fedplug_kit.leaves import KEY, all_told, leaves

if TYPE_CHECKING:
    from fedplug.api.parties import Party
    from fedplug.api.roles import Component, Trainer

    from fedplug_kit.world import World

_SIZE = " size"
"""Marks the size of a part at the end of its path."""
_Place = tuple[str, str, int, int]
"""Of a reply: its method, who sent it, the round and the number."""


def learning_problems(world: World, trainer: Trainer) -> Iterator[str]:
    """One step on a batch is the stated gradient times the stated learning rate."""
    client = next(iter(world.clients.clients.values()))
    part: Any = world.clients.composition.components[trainer.name]
    facts = client.facts = client.facts.at(0)
    told, count = part.learns(facts), 5
    if told is None or told.descends != "cross_entropy" or told.class_weights or told.noise != 0 or not told.lr:
        return
    solver = part.one_batch(client, facts, count)
    if solver is None:
        return
    solver = solver.varied(name=f"{part.name}/kit")
    held, client.data = client.data, dataclasses.replace(client.data, train=client.data.train.take(slice(0, count)))
    client.cache.clear()
    try:
        client.model.set_vector(client.start)
        solver.train(client, facts)
        update = client.model.get_vector() - client.start
        gradient = mean_gradient(client.model, client.data.train, client.data, vector=client.start)
    finally:
        client.data = held
        client.forget_model()
    stated = -told.lr * (gradient + told.weight_decay * client.start)
    apart = float(np.abs(update - stated).max())
    if apart > 1e-3 * float(np.abs(stated).max()) + 1e-6:
        yield f"one step of it does not move the model by -lr times the gradient: the difference is up to {apart:.3g}"


def public_problems(world: World, other: World, name: str) -> Iterator[str]:
    """Checks that scores declared as public are the same for other data."""
    yield from other.problems
    for address, client in world.clients.clients.items():
        theirs = other.clients.clients[address]
        if name in client.scores and not np.array_equal(client.scores[name], theirs.scores[name]):
            yield "its scores are declared as public, but change with the clients' data"


def reply_problems(world: World, same: World, other: World, part: Component) -> Iterator[str]:
    """Checks that replies declared to cost nothing are the same for other data, and that keys among them are fresh.

    Fresh random numbers in a reply differ between two runs on the same data, and cannot be checked. The parts that are
    the same in both runs are compared.

    Args:
        world, same: two runs on the same data.
        other: one on other data.
        part: the component whose replies are compared.
    """
    free = [(shown.what, method) for shown in part.reveals(world.facts) for method in shown.asked
            if shown.covered_by == "nothing to pay"]  # fmt: skip
    replies = [_replies(each, part.name) for each in (world, same, other)]
    for what, method in free:
        here, like, unlike = ({place: parts for place, parts in each.items() if place[0] == method} for each in replies)
        place = f"component {part.name}, method {method}: its replies are declared to cost nothing ({what!r}), but"
        both = like.keys() & unlike.keys()
        if any(_changes(at, one, like[each].get(at), unlike[each].get(at))
               for each, parts in here.items() if each in both for at, one in parts.items()):  # fmt: skip
            yield (
                f"{place} change with the clients' data; leave covered_by out of their Reveals, or send what "
                "client.release(...) gives"
            )
        elif isinstance(part, Closer) and (where := _repeated(here, like)):
            yield (
                f"{place} hold the same bytes {where}, so a key or a box follows from nothing secret; draw it with "
                "fedplug.api.secrets, at each client, in each run and whenever it is asked for"
            )
        elif isinstance(part, Closer) and not part.cohort_secret and any(
            all_told(owner.memory(part), _joined(here)) for owner in _openers(world, part.name)
        ):
            yield (
                f"{place} hold all keys that a party who opens sums has in its memory(self), so the server opens them "
                "too; send the public half of a key pair, or letters to those who need the key (fedplug.api.secrets)"
            )


def _openers(world: World, name: str) -> list[Party]:
    """Those who open what a component has sealed: the key server, which is the last of all parties, or the clients."""
    found = [operation for step in world.steps(name, "protect") for operation in step.operations]
    at_key_server = any(isinstance(each, Seal) and each.opened_by == "key_server" for each in found)
    return world.parties[-1:] if at_key_server else [*world.clients.clients.values()]


def _joined(replies: dict[_Place, dict[str, Any]]) -> bytes:
    return b"".join(leaf for parts in replies.values() for leaf in parts.values() if isinstance(leaf, bytes))


def _repeated(replies: dict[_Place, dict[str, Any]], same: dict[_Place, dict[str, Any]]) -> str:
    """Where replies as long as a key have nothing that another one lacks; empty where all have. Parameters may repeat.

    Args:
        replies: of a method.
        same: of the same in another run.
    """
    seen: dict[Any, _Place] = {}
    for place, found in replies.items():
        keys = {leaf: at for at, leaf in found.items() if isinstance(leaf, bytes) and len(leaf) >= KEY}
        if keys and all(same.get(place, {}).get(at) == leaf for leaf, at in keys.items()):
            return "in two runs"
        if keys and keys.keys() <= seen.keys():
            return "at two clients" if seen[next(iter(keys))][1] != place[1] else "in two rounds"
        seen |= dict.fromkeys(keys, place)
    return ""


def _changes(at: str, one: Any, same: Any, other: Any) -> bool:
    """Whether a part of a reply is the same for the same data alone. Random numbers may begin with zeros and then take
    one or two bytes less.
    """
    if at.endswith(_SIZE) and isinstance(other, int) and abs(one - other) <= 2:
        return False
    return one == same != other  # type: ignore[no-any-return]


def _replies(world: World, name: str) -> dict[_Place, dict[str, Any]]:
    """The parts of the replies of the parties to a component, and the size of each in bytes, which is visible too."""
    found: dict[_Place, dict[str, Any]] = {}
    asked: dict[str, tuple[str, str]] = {}
    wire: Any = world.protocol.wire  # which the kit made, and keeps them
    for message in wire.messages:
        if message.sender == "server":
            call = message.asked()[-1]
            asked[message.receiver] = call.component, call.method
        elif asked.get(message.sender, ("", ""))[0] == name and (answer := message.answered()) is not None:
            place = (asked[message.sender][1], message.sender, message.round)
            parts = leaves(answer.value)
            sizes = {f"{at}{_SIZE}": len(codec.encode(leaf)) for at, leaf in parts.items()}
            found[(*place, sum(known[:3] == place for known in found))] = parts | sizes
    return found


def repeats(world: World) -> bool:
    """Whether a second run must give the same model: no noise is secret, and no vote depends on a secret."""
    facts = world.facts.at(0)
    composition = world.protocol.composition
    secret = any(part.cohort_secret for part in composition.components.values() if not _seals(world, part.name))
    told = composition.trainer.learns(facts)
    return (
        not secret
        and (told is None or told.repeats)
        and all(
            release.source == "reproducible"
            for zone in composition.links
            for step in facts.steps(zone)
            for release in step.after.releases
        )
    )


def _seals(world: World, name: str) -> bool:
    return any(step.has(Seal, Scramble) for step in world.steps(name, "protect"))


def same_models(world: World, other: World) -> bool:
    """Whether all clients ended with the same model in both."""
    theirs = other.clients.clients
    return all(np.array_equal(client.vector, theirs[name].vector) for name, client in world.clients.clients.items())


def difference(world: World, other: World) -> Iterator[str]:
    """Whether two runs ended with the same models."""
    if not same_models(world, other):
        yield (
            "with empty caches before each round it gives another result: keep in party.memory(self) what a restart "
            "must not lose, and draw random numbers from client.rng(self) or facts.rng(self.name)"
        )
