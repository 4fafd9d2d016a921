"""What components keep on themselves: the clients of a process share them."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug import Changes, at_client, hookimpl
from fedplug.api import codec
from fedplug.api.errors import ProtectionError, TooFewClients
from fedplug.api.unchangeable import unchangeable
from fedplug.round.own_state import OwnState
from fedplug_std.single_zone import SingleZone
from toy_components import TOYS, recipe_of
from toy_protocol import run_protocol


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
        self.weights, self.gradients = torch.zeros(3, dtype=torch.bfloat16), {"a": torch.zeros(3, requires_grad=True)}
        self.draws = [np.random.default_rng(1), np.random.RandomState(1), random.Random(1)]

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
        lambda part: part.weights.add_(1),
        lambda part: part.gradients["a"].data.mul_(0).add_(2),
        lambda part: part.names.add("y"),
        lambda part: delattr(part, "names"),
        lambda part: part.draws[0].normal(),
        lambda part: part.draws[1].normal(),
        lambda part: part.draws[2].random(),
    ],
    ids=["attribute", "key", "list", "array", "tensor", "its data", "set", "gone", "generator", "state", "random"],
)
def test_every_change_is_found(change: Any) -> None:
    part = Plain(None)
    with pytest.raises(ProtectionError, match=r"component a\.plain keeps"), OwnState({"a.plain": part}).unchanged():
        change(part)


def test_who_draws_from_a_generator_of_its_own_is_told_from_which_to_draw() -> None:
    part = Plain(None)
    part.rng = np.random.default_rng(3)  # type: ignore[attr-defined]
    with pytest.raises(ProtectionError, match=r"keeps rng on itself.* draw from client\.rng"), \
            OwnState({"a.plain": part}).unchanged():  # fmt: skip
        part.rng.integers(9)  # type: ignore[attr-defined]


def test_what_is_the_same_for_all_clients_may_be_kept() -> None:
    part, holder = Plain(None), Holder(None)
    state = OwnState({"a.plain": part, "a.holder": holder, "fedplug": object()})
    for _ in range(2):
        with state.unchanged():
            assert part.primes == [2, 3, 5]
            holder.seen += 1
            part.table["a"] = part.table["a"]


def test_what_a_client_adds_to_a_cached_property_does_not_reach_the_next() -> None:
    part = Plain(None)
    state = OwnState({"a.plain": part})
    with state.unchanged():
        part.primes.append(7)
    assert part.primes == [2, 3, 5]  # as the next client finds it
    with pytest.raises(ProtectionError, match="keeps primes on itself"), state.unchanged():
        part.primes[0] = 7


def test_what_a_failed_message_leaves_is_found_beside_its_error() -> None:
    part = Plain(None)
    state = OwnState({"a.plain": part})
    with pytest.raises(KeyError), state.unchanged():
        raise KeyError("nothing was left")
    said = r"^a failure that looks honest; besides, component a\.plain keeps last on itself"
    with pytest.raises(ProtectionError, match=said) as caught, state.unchanged():
        _leave_and_fail(part)
    assert str(caught.value.__cause__) == "a failure that looks honest"


def test_nobody_runs_beside_what_was_left() -> None:
    part = Plain(None)
    state = OwnState({"a.plain": part})
    for client in range(2):
        with pytest.raises(ProtectionError, match="keeps last on itself"), state.unchanged():
            part.last = client  # type: ignore[attr-defined]
    assert vars(part)["last"] == 0


def _leave_and_fail(part: Any) -> None:
    part.last = 1
    raise ProtectionError("a failure that looks honest")


class Leaks(fedplug.Protector):
    """Sends the values of whoever came before, from a message that failed."""

    def effects(self, known: Any, ctx: Any) -> Any:
        return (Changes(),)

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        if client.client_id == 0:
            self.stolen = block.plain().copy()
            raise ProtectionError("a failure that looks honest")
        return block.replace(values=getattr(self, "stolen", block.plain()))


def test_the_run_stops_where_a_failed_client_left_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS["protect"], "toy.leaks", Leaks)
    with pytest.raises(TooFewClients, match=r"looks honest; besides, component toy.leaks keeps stolen on itself"):
        run_protocol(recipe_of("noised", [{"use": "toy.leaks"}], rounds=1))


def _spoil(array: Any) -> None:
    """What `torch.from_numpy(array)` allows, which no flag of numpy forbids."""
    torch.from_numpy(array).mul_(-1)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("size", [1, 255, 5000, 235_146])
def test_a_shared_array_that_is_written_to_is_found(size: int) -> None:
    array = unchangeable(np.random.default_rng(0).normal(size=size).astype(np.float32))
    state = OwnState({})
    state.share(array)
    with state.unchanged():
        pass
    said = f"changed an array of {size} float32 values.*change a copy"
    with pytest.raises(ProtectionError, match=said), state.unchanged():
        _spoil(array)
    with pytest.raises(ProtectionError, match="changed an array"), state.unchanged():
        pass


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_arrays_of_a_message_that_clients_share_are_looked_at() -> None:
    call = codec.pack({"mean": np.arange(5000, dtype=np.float32)})
    state = OwnState({})
    for message in (codec.frame(codec.pack([call])), codec.frame(codec.pack([call, call]))):
        state.share(message)
    with pytest.raises(ProtectionError, match="changed an array of 5000"), state.unchanged():
        _spoil(codec.decode(call)["mean"])


def test_an_array_that_nobody_holds_is_looked_at_no_longer() -> None:
    state = OwnState({})
    for number in range(50):
        kept = unchangeable(np.full(1000, number))
        state.share(kept)
        with state.unchanged():
            pass
        assert len(state._shared[False]) <= 2
    many = [unchangeable(np.full(1000, number)) for number in range(50)]
    for array in many:
        state.share(array)
    assert len(state._shared[False]) == 16


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_model_is_looked_at_however_many_messages_came_since() -> None:
    model, state = unchangeable(np.arange(5000.0)), OwnState({})
    state.share(model, model=True)
    messages = [unchangeable(np.full(1000, number)) for number in range(50)]
    for array in messages:
        state.share(array)
    with pytest.raises(ProtectionError, match="changed an array of 5000"), state.unchanged():
        _spoil(model)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_rows_that_change_places_are_found() -> None:
    """They leave every sum of a column as it was."""
    array, state = unchangeable(np.random.default_rng(0).normal(size=(4, 512)).astype(np.float32)), OwnState({})
    state.share(array)
    rows = torch.from_numpy(array)
    with pytest.raises(ProtectionError, match="changed an array"), state.unchanged():
        rows.copy_(rows.flip(0).clone())


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_changes_that_leave_all_sums_as_they_were_are_found_in_small_arrays() -> None:
    array, state = unchangeable(np.zeros((4, 256), np.int64)), OwnState({})
    state.share(array)
    corners = torch.from_numpy(array)[:2, :2]
    with pytest.raises(ProtectionError, match="changed an array"), state.unchanged():
        corners.add_(torch.tensor([[1, -1], [-1, 1]]))


class Spoils(fedplug.Trainer):
    """Writes to the model that all clients start from."""

    def train(self, client: Any, ctx: Any) -> dict[str, float]:
        if client.client_id == 0:
            torch.from_numpy(client.start).add_(1000)
        return {"loss": 0.0}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_the_run_stops_where_a_client_writes_to_the_model_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS["trainer"], "toy.spoils", Spoils)
    recipe = recipe_of("clear", [])
    recipe["train"] = {"use": "toy.spoils"}
    with pytest.raises(TooFewClients, match="a component changed an array of"):
        run_protocol(recipe)


class SpoilsSums(fedplug.Opener):
    """Writes to the sum that all clients adopt."""

    def opens(self, known: Any, ctx: Any) -> Any:
        return (Changes(),)

    @hookimpl
    def postprocess(self, block: Any, ctx: Any) -> Any:
        if ctx.party.client_id == 1:
            _spoil(block.values)
        return block


class SpoilsTold(SingleZone):
    """Writes to an array that was told to all clients."""

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Any) -> None:
        cohort.tell(self.adopt, np.arange(5000.0))

    @at_client
    def adopt(self, client: Any, told: Any = None) -> None:
        super().adopt(client)
        if client.client_id == 1:
            _spoil(told)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("where", ["sum", "told"])
def test_the_run_stops_where_a_component_writes_to_what_came_in_a_message(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    recipe = recipe_of("clear", [], model={"use": "std.mlp", "hidden": [32]})
    if where == "sum":
        monkeypatch.setitem(TOYS["postprocess"], "toy.spoils_sums", SpoilsSums)
        recipe["postprocess"] = {"clear": ["toy.spoils_sums"]}
    else:
        monkeypatch.setitem(TOYS["negotiate_mask"], "toy.spoils_told", SpoilsTold)
        recipe["negotiate_mask"] = {"use": "toy.spoils_told", "zone": "clear"}
    with pytest.raises(TooFewClients, match="a component changed an array of"):
        run_protocol(recipe, prepare=lambda protocol, _: setattr(protocol.wire, "keep", False))  # nothing is copied
