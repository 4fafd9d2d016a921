"""Shadow models: models trained like the target, but on public examples.

Each is trained by `std.sgd` with the settings that the target's trainer states, from the same start, on half of the
public examples or fewer, drawn at random. No private example reaches any of them, so they show a model's predictions
for unseen examples (Carlini et al. 2022, the offline attack). An adversary who knows the candidates of a membership
challenge gives each shadow model half of them as well (the online attack): pairs of models share them out, so that
every candidate is in half of the models.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Client, Learns
from fedplug.api.data import ClientData, Examples
from fedplug.api.streams import stream

if TYPE_CHECKING:
    from fedplug.api.data import PublicData
    from numpy.typing import NDArray

    from fedplug_attacks import Attacker, Meaning

_FEWEST = 4
"""Shadow models that are trained, however long it takes."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shadow:
    """One shadow model.

    Attributes:
        vector: float32 (P,).
        buffers: its batch-norm statistics, by name.
        held: bool (m,), the candidates that it was trained on; all False in the offline attack.
    """

    vector: NDArray[np.float32]
    buffers: Mapping[str, NDArray[Any]]
    held: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class Schooling:
    """How a target was trained, as far as it is public.

    Attributes:
        start: float32 (P,), the model that training began with.
        rounds: what each round of training was; momentum starts from zero in each.
        size: number of examples that it trained on, if known and available; None: unknown.
    """

    start: NDArray[np.float32]
    rounds: tuple[Learns, ...]
    size: int | None = None

    @property
    def unknown(self) -> str:
        """Why no shadow can be trained like this; empty if it can."""
        if not self.rounds:
            return "the trainer does not say how it trains"
        for each in self.rounds:
            if each.descends != "cross_entropy":
                return f"the trainer descends {each.descends}, but shadow models would descend the cross entropy"
            if not each.lr or not each.epochs:
                return f"the trainer does not say {'its learning rate' if not each.lr else 'how many epochs it trains'}"
        return ""


def joined(first: Examples, second: Examples) -> Examples:
    """Both, one after the other; inputs of two types are compared as numbers from 0 to 1."""
    inputs = [each.inputs for each in (first, second)]
    if inputs[0].dtype != inputs[1].dtype:
        inputs = [each.astype(np.float32) / (255 if each.dtype == np.uint8 else 1) for each in inputs]
    return Examples(np.concatenate(inputs), np.concatenate([first.labels, second.labels]))


def learns_of(meaning: Meaning) -> Learns:
    """The training behind an update, as far as it is public."""
    return Learns(
        descends=meaning.loss, lr=meaning.lr, batch_size=meaning.batch_size, epochs=meaning.epochs,
        momentum=meaning.momentum, weight_decay=meaning.weight_decay, class_weights=meaning.class_weights,
    )  # fmt: skip


def shadows(model: Any, schooling: Schooling, public: PublicData, attacker: Attacker, count: int, seconds: float,
            progress: Callable[[int, int], None], candidates: Examples | None = None) -> list[Shadow]:  # fmt: skip
    """Shadow models, from the party's cache if an earlier target was trained alike.

    Args:
        model: the attacker's own `TorchModel`; it holds other weights and buffers afterwards.
        schooling: how the target was trained; nothing of it is unknown.
        public: what they are trained on.
        attacker: with the public facts, and a cache.
        count: how many.
        seconds: after this time no further one is started; a few are always trained.
        progress: told how many of them are trained, of how many.
        candidates: m examples of a challenge, half of which each model is trained on; None: none of them.
    """
    pool, challenged = public, 0 if candidates is None else len(candidates)
    if candidates is not None:
        pool = dataclasses.replace(public, examples=joined(public.examples, candidates))
    known = len(public.examples)
    size = known // 2
    if schooling.size:  # half of the candidates take the places of as many public examples
        size = max(1, min(schooling.size - challenged // 2, size))
    digest = hashlib.sha256(schooling.start.tobytes())
    buffers = {name: values.copy() for name, values in model.get_buffers().items()}
    for part in (*buffers.values(), pool.examples.inputs, pool.examples.labels):
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(repr((schooling.rounds, size, count, challenged, attacker.facts.seed)).encode())
    kept: dict[str, list[Shadow]] = attacker.cache.setdefault("attacks.membership shadows", {})
    key = digest.hexdigest()
    if key not in kept:
        kept.clear()  # models of another round, whose attacks are finished
        started, kept[key] = time.monotonic(), []
        for number in range(count):
            if number >= _FEWEST and time.monotonic() - started > seconds:
                break
            rng = stream(attacker.facts.seed, "shadow", number)
            rows = np.sort(rng.permutation(known)[:size])
            shared = stream(attacker.facts.seed, "shadow candidates", number // 2).permutation(challenged)
            held = np.isin(np.arange(challenged), shared[number % 2 :: 2])
            rows = np.concatenate([rows, known + np.flatnonzero(held)])
            model.set_vector(schooling.start)
            model.set_buffers(buffers)
            trained(model, schooling.rounds, pool, rows, number, attacker)
            after = {name: values.copy() for name, values in model.get_buffers().items()}
            kept[key].append(Shadow(model.get_vector().copy(), after, held))
            progress(number + 1, count)
    return kept[key]


def trained(model: Any, rounds: Sequence[Learns], public: PublicData, rows: NDArray[np.int64], number: int,
            attacker: Attacker) -> None:  # fmt: skip
    """Trains the model in place on public examples.

    Args:
        model: the attacker's own `TorchModel`.
        rounds: how each round trains, with a learning rate and a number of epochs.
        public: source of the examples.
        rows: indices of the examples; one may occur twice.
        number: of the shadow, for the order in which it sees them.
        attacker: with the public facts, and a cache.
    """
    from fedplug_std.training import Sgd

    own = public.examples.take(rows)
    client = Client(client_id=number, model=model, data=ClientData(own, own, own, **public.about))
    done = 0
    for alike, group in itertools.groupby(rounds):
        # Without momentum a new round resets nothing, so one long round is the same.
        times = len(list(group))
        together = 1 if alike.momentum else times
        assert alike.epochs is not None
        trainer = Sgd(Sgd.Options(
            epochs=alike.epochs * together, batch_size=min(alike.batch_size or len(own), len(own)), lr=alike.lr,
            momentum=alike.momentum, weight_decay=alike.weight_decay, class_weights=alike.class_weights,
        ))  # fmt: skip
        trainer.name = "shadow"
        for _ in range(times // together):
            client.facts = attacker.facts.at(done)
            trainer.train(client, client.facts)
            done += 1
