"""What training, plans, scores and replies did in a run, compared with what is said of them; and whether two runs end
alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api import codec
from fedplug.api.operations import Scramble, Seal

if TYPE_CHECKING:
    from fedplug.api.parties import Client
    from fedplug.api.roles import Component, Trainer
    from numpy.typing import NDArray

    from fedplug_kit.world import World

_SIZE = " size"
"""Ends the path of a part's size."""


def learning_problems(world: World, trainer: Trainer) -> Iterator[str]:
    """One step on a batch is the stated gradient times the stated learning rate."""
    client = next(iter(world.clients.clients.values()))
    part: Any = world.clients.composition.components[trainer.name]
    ctx = client.ctx = dataclasses.replace(client.ctx, round=0)
    told, count = part.learns(ctx), 5
    if told is None or told.descends != "cross_entropy" or told.class_weights or told.noise != 0 or not told.lr:
        return
    solver = part.one_batch(client, ctx, count)
    if solver is None:
        return
    solver = solver.varied(name=f"{part.name}/kit")
    held, client.data = client.data, dataclasses.replace(client.data, train=client.data.train.take(slice(0, count)))
    client.cache.clear()
    try:
        client.model.set_vector(client.start)
        solver.train(client, ctx)
        update = client.model.get_vector() - client.start
        gradient = _mean_gradient(client)
    finally:
        client.data = held
        client.forget_model()
    stated = -told.lr * (gradient + told.weight_decay * client.start)
    apart = float(np.abs(update - stated).max())
    if apart > 1e-3 * float(np.abs(stated).max()) + 1e-6:
        yield f"one step of it moves the model by another vector than -lr times the gradient: up to {apart:.3g} apart"


def _mean_gradient(client: Client) -> NDArray[np.float32]:
    """The gradient of the mean cross entropy over all examples at `client.start`, in evaluation mode, (P,)."""
    import torch
    from fedplug_std.torch_model import as_tensor, to_tensor

    model: Any = client.model
    model.set_vector(client.start)
    model.module.eval()
    examples = client.data.train
    logits = model.module(to_tensor(examples.inputs, client.data.mean, client.data.std, model.device))
    loss = torch.nn.functional.cross_entropy(logits, as_tensor(examples.answers).to(model.device))
    gradients = torch.autograd.grad(loss, model.parameters, materialize_grads=True)
    found: NDArray[np.float32] = torch.cat([gradient.reshape(-1) for gradient in gradients]).cpu().numpy()
    return found


def public_problems(world: World, other: World, name: str) -> Iterator[str]:
    """Plans and scores that are stated to follow from public facts are the same for other data."""
    yield from other.problems
    for address, client in world.clients.clients.items():
        theirs = other.clients.clients[address]
        plans = [plan.labels for plan in (client.plan, theirs.plan) if plan is not None]
        if len(plans) == 2 and not np.array_equal(plans[0], plans[1]):
            yield "its plans are said to be public, and change with the clients' data"
        if name in client.scores and not np.array_equal(client.scores[name], theirs.scores[name]):
            yield "its scores are said to be public, and change with the clients' data"


def reply_problems(world: World, same: World, other: World, part: Component) -> Iterator[str]:
    """Replies that cost nothing, since they follow from nobody's data, are the same for other data.

    What a reply holds of fresh random numbers differs between two runs on the same data, and nobody can say whether it
    follows from other data too; what is the same in both is compared.

    Args:
        world, same: two runs on the same data.
        other: one on other data.
        part: whose replies.
    """
    free = [(shown.what, method) for shown in part.reveals(world.protocol.server.ctx) for method in shown.asked
            if shown.covered_by == "nothing to pay"]  # fmt: skip
    replies = [_replies(each, part.name) for each in (world, same, other)]
    for what, method in free:
        for place in replies[0]:
            if place[0] != method or not all(place in each for each in replies):
                continue
            leaves = [_leaves(each[place]) for each in replies]
            if any(_changes(at, *(each.get(at) for each in leaves)) for at in leaves[0]):
                yield (
                    f"component {part.name}, method {method}: its replies are said to cost nothing ({what!r}), and "
                    "change with the clients' data; leave covered_by out of their Reveals, or send what "
                    "client.release(...) gives"
                )
                break


def _changes(at: str, one: bytes | None, same: bytes | None, other: bytes | None) -> bool:
    """Whether a part of a reply is the same for the same data alone. Random numbers may begin with zeros, and then take
    a byte or two less.
    """
    if at.endswith(_SIZE) and one is not None and other is not None and abs(int(one) - int(other)) <= 2:
        return False
    return one == same != other


def _replies(world: World, name: str) -> dict[tuple[str, str, int, int], Any]:
    """What parties answered a component: by method, address, round and number."""
    found: dict[tuple[str, str, int, int], Any] = {}
    asked: dict[str, tuple[str, str]] = {}
    for message in world.protocol.wire.messages:
        if message.sender == "server":
            call = message.asked()[-1]
            asked[message.receiver] = call.component, call.method
        elif asked.get(message.sender, ("", ""))[0] == name and (answer := message.answered()) is not None:
            method = asked[message.sender][1]
            place = (method, message.sender, message.round)
            number = sum(known[:3] == place for known in found)
            found[(*place, number)] = answer.value
    return found


def _leaves(value: Any, path: str = "") -> dict[str, bytes]:
    """The parts of a reply by where they are; and how many bytes each has, which shows too."""
    if isinstance(value, dict):
        return {at: leaf for key, inner in value.items() for at, leaf in _leaves(inner, f"{path}/{key!r}").items()}
    if isinstance(value, list | tuple):
        return {at: leaf for key, inner in enumerate(value) for at, leaf in _leaves(inner, f"{path}/{key}").items()}
    data = codec.encode(value)
    return {path: data, f"{path}{_SIZE}": str(len(data)).encode()}


def repeats(world: World) -> bool:
    """Whether a second run must give the same model: no noise is secret, and no vote depends on a secret."""
    ctx = dataclasses.replace(world.protocol.server.ctx, round=0)
    composition = world.protocol.composition
    secret = any(part.cohort_secret for part in composition.components.values() if not _seals(world, part.name))
    told = composition.trainer.learns(ctx)
    return (
        not secret
        and (told is None or told.repeats)
        and all(
            release.source == "reproducible"
            for zone in composition.links
            for step in ctx.steps(zone)
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
        yield "built anew before each round it gives another result: it keeps something that a restart loses"
