"""Values, parties and chains on which operations are executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    ClientData,
    Examples,
    Facts,
    FixedPoint,
    Layout,
    Opened,
    Operations,
    Plan,
    Seal,
    Sealed,
    Total,
    WeightedSum,
    Words,
)
from fedplug.api.links import Hook, Link, Step, fold
from fedplug.api.parties import Server
from fedplug.api.roles import Site
from fedplug.mechanisms.execution import execute
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])


ZONES = ("encrypted", "noised", "clear", "retained")


VALUES = np.array([3, 0, 4, 0, 0, 0, 0, 0, 0, 12], np.float32)


FLOATS = arrays(np.float32, 10, elements=st.floats(-1e6, 1e6, width=32))


ADD = WeightedSum()


class Part(fedplug.Sealer):
    """Returns the operations that it was made with. Seals words as their bytes."""

    def __init__(self, *given: Any, name: str = "odd") -> None:
        self.name, self.given = name, given

    def protect(self, known: Any, facts: Facts) -> Operations:
        return self.given

    aggregate = postprocess = protect

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        return Sealed((words.values.tobytes(),))

    def add(self, uploads: Sequence[Total], server: Any, facts: Facts) -> tuple[bytes, ...]:
        return (np.sum([np.frombuffer(each.parts[0], np.int64) for each in uploads], 0).tobytes(),)

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        return Opened(np.frombuffer(total.parts[0], np.int64))


def party(client_id: int = 0, plan: Plan | None = None) -> Client:
    """A client whose whole model is noised."""
    client = Client(client_id=client_id, plan=plan or Plan.single("noised", 10, ZONES))
    client.vector = np.arange(10, dtype=np.float32)
    client.remembered.weight = 0.5
    examples = Examples(np.zeros((3, 1, 1, 1), np.uint8), np.array([1, 2, 3]))
    client.data = ClientData(examples, examples, examples, classes=("0", "1"), mean=(0.0,), std=(1.0,))
    return client


def context(who: Any, *parts: Part, round: int = 0) -> Facts:
    components = {part.name: part for part in parts}
    who.facts = Facts(round, 5, LAYOUT, ZONES, 4, 2, 7, "", components)
    return who.facts  # type: ignore[no-any-return]


def steps(*parts: Part, hook: Hook = "protect", site: Site = "client", facts: Facts | None = None) -> list[Step]:
    """The links of a zone; for a sum, after a plain link."""
    before = [] if hook == "protect" else [Link("noised", "aggregate", "sum", Part(ADD, name="sum"), "server")]
    links = [*before, *(Link("noised", hook, part.name, part, site) for part in parts)]
    return list(fold(links, facts or context(Server())))[len(before) :]


def done(*operations: Any, values: Any = VALUES, who: Client | None = None, round: int = 0, **block: Any) -> Any:
    """The result of a client's link on values."""
    who = who or party()
    part = Part(*operations)
    facts = context(who, part, round=round)
    values = np.asarray(values, np.float32)
    before = values.copy()
    (step,) = steps(part, facts=facts)
    found = execute(step, Block("noised", len(values), values, **block), who, facts)
    assert np.array_equal(values, before, equal_nan=True)  # its input is unchanged
    return found.values if found.values is not None else found


def norm_of(values: Any, order: float) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64), order))


SEAL = Seal(scheme="bytes", opened_by="clients", numbers=FixedPoint(100.0, 2.0**-10))


def uploads(*values: Any, **more: Any) -> dict[int, Block]:
    return {i: Block("noised", len(v), np.asarray(v, np.float32), **more) for i, v in enumerate(values)}


def broken(*_: Any) -> Any:
    return {}["nowhere"]
