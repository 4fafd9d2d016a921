"""Links that give what a test says, executed at a client without a run."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
from fedplug import Block, Client, ClientData, Examples, Facts, Layout, Operations, Plan, WeightedSum
from fedplug.api.links import Hook, Link, Step, fold
from fedplug.api.roles import Site
from fedplug.mechanisms.execution import execute
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])
ZONES = ("encrypted", "noised", "clear", "retained")
VALUES = np.array([3, 0, 4, 0, 0, 0, 0, 0, 0, 12], np.float32)
FLOATS = arrays(np.float32, 10, elements=st.floats(-1e6, 1e6, width=32))
FACTS = Facts(0, 5, LAYOUT, ZONES, 4, 2, 7, "")


class Gives(fedplug.Protector):
    """Returns the operations that it was made with, in every hook."""

    def __init__(self, *given: Any, name: str = "odd") -> None:
        self.name, self.given = name, given

    def protect(self, known: Any, facts: Facts) -> Operations:
        return self.given

    aggregate = postprocess = protect


def steps(*parts: Gives, hook: Hook = "protect", site: Site = "client") -> list[Step]:
    """The links of a zone; for a sum, after a plain link."""
    total = Link("noised", "aggregate", "sum", Gives(WeightedSum(), name="sum"), "server")
    before = [] if hook == "protect" else [total]
    return [*fold([*before, *(Link("noised", hook, part.name, part, site) for part in parts)], FACTS)][len(before) :]


def party(client_id: int = 0, plan: Plan | None = None) -> Client:
    """A client whose whole model is noised."""
    client = Client(client_id=client_id, plan=plan or Plan.single("noised", 10, ZONES), facts=FACTS)
    client.vector = np.arange(10, dtype=np.float32)
    examples = Examples(np.zeros((3, 1, 1, 1), np.uint8), np.array([1, 2, 3]))
    client.data = ClientData(examples, examples, examples, classes=("0", "1"), mean=(0.0,), std=(1.0,))
    return client


def done(*operations: Any, values: Any = VALUES, who: Client | None = None) -> Any:
    """The result of a client's link on values."""
    (step,) = steps(Gives(*operations))
    values = np.asarray(values, np.float32)
    return execute(step, Block("noised", len(values), values), who or party(), FACTS).plain()
