"""What components keep on themselves: the clients of a process share them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Changes, hookimpl
from fedplug.api.errors import ProtectionError, TooFewClients
from fedplug.round.own_state import nothing_kept
from toy_components import TOYS, recipe_of, run_protocol


class Feedback(fedplug.Protector):
    """Error feedback, with what was cut off kept on the component by mistake."""

    def effects(self, known: Any, ctx: Any) -> Any:
        return (Changes(),)

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        before, self.left = getattr(self, "left", 0.0), block.plain().copy()
        return block.replace(values=block.plain() + before)


class Holder(fedplug.Extension):
    """Counts, as extensions may."""

    seen = 0


class Plain(fedplug.Trainer):
    """Has attributes of every kind."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.table: dict[str, Any] = {"a": [1, np.zeros(3)]}
        self.names = {"x"}

    @cached_property
    def primes(self) -> list[int]:
        return [2, 3, 5]

    def train(self, client: Any, ctx: Any) -> dict[str, float]:
        return {}


def test_what_one_client_leaves_on_a_component_does_not_reach_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS["protect"], "toy.feedback", Feedback)
    with pytest.raises(TooFewClients, match=r"component toy.feedback keeps left on itself.*client\.memory"):
        run_protocol(recipe_of("noised", [{"use": "toy.feedback"}]))


@pytest.mark.parametrize(
    "change",
    [
        lambda part: setattr(part, "last", 1),
        lambda part: part.table.update(b=1),
        lambda part: part.table["a"].append(2),
        lambda part: part.table["a"][1].__setitem__(0, 7.0),
        lambda part: part.names.add("y"),
        lambda part: delattr(part, "names"),
    ],
    ids=["attribute", "key", "list", "array", "set", "gone"],
)
def test_every_change_is_found(change: Any) -> None:
    part = Plain(None)
    with pytest.raises(ProtectionError, match=r"component a\.plain keeps"), nothing_kept({"a.plain": part}):
        change(part)


def test_what_is_the_same_for_all_clients_may_be_kept() -> None:
    part, holder = Plain(None), Holder(None)
    with nothing_kept({"a.plain": part, "a.holder": holder, "fedplug": object()}):
        assert part.primes == [2, 3, 5]
        holder.seen += 1
        part.table["a"] = part.table["a"]
