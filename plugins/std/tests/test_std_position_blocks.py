"""Encrypted zones in which each client has its own mask: sums are right wherever enough clients met, and only there.

A toy scheme without any cryptography shows that a component needs nothing but what `he_blocks` asks for; it has tiny
ciphertexts, so that many masks can be tried. BFV and CKKS then show the same with real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug import Block, Facts
from fedplug.api import codec
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.recipe.composition import hook_problems
from fedplug_std import he_keys
from fedplug_std.he_blocks import Encryption
from fedplug_std.he_keys import Keyed
from fedplug_std.paillier import OnePerSlot
from he_toys import SCHEMES, OneClient, make
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from position_toys import KINDS, SIZE, UPDATES, WEIGHTS, mask_of, masked


@pytest.fixture(scope="module", params=SCHEMES)
def parties(request: pytest.FixtureRequest) -> OneClient:
    """Four clients with keys of BFV or CKKS, as one object."""
    return masked(request.param)


# -- a scheme that hides nothing ---------------------------------------------------------------------------------------


class Naked:
    """A backend whose ciphertexts are the rows, behind the name of their key."""

    def encrypt(self, context: dict[str, Any], rows: NDArray[Any]) -> tuple[bytes, ...]:
        return tuple(context["name"] + row.astype(np.int64).tobytes() for row in rows)

    def _rows(self, context: dict[str, Any], data: bytes, slots: int, where: str) -> NDArray[np.int64]:
        if len(data) != 8 + 8 * slots or data[:8] != context["name"]:
            raise MessageError(f"{where} is damaged")
        return np.frombuffer(data, np.int64, offset=8)

    def add(self, context: dict[str, Any], uploads: Iterable[Sequence[bytes]], slots: int) -> tuple[bytes, ...]:
        rows = [[self._rows(context, data, slots, "a ciphertext") for data in parts] for parts in uploads]
        return self.encrypt(context, np.array(rows).sum(0))

    def decrypt(self, context: dict[str, Any], ciphertexts: Sequence[bytes], slots: int) -> NDArray[np.int64]:
        if not context["secret"]:
            raise ProtectionError("no secret key")
        rows = [self._rows(context, data, slots, "a sum") for data in ciphertexts]
        return np.array(rows, np.int64).reshape(-1, slots)

    def dump_context(self, context: dict[str, Any], *, public_key: bool = False, secret_key: bool = False) -> bytes:
        return codec.encode({"name": context["name"], "secret": secret_key})

    def load_context(self, data: bytes) -> Any:
        return codec.decode(data)


class Steps:
    """Whole numbers of `step`, shifted so that none is negative: the word of zero is not zero."""

    range, step, offset = 1.0, 1 / 64, 64

    def encode(
        self, values: NDArray[Any], rng: np.random.Generator | None = None
    ) -> tuple[NDArray[np.int64], float]:
        words = np.rint(np.clip(values, -1, 1) / self.step).astype(np.int64) + self.offset
        return words, float(np.mean(np.abs(values) > 1)) if len(values) else 0.0

    def decode(self, words: NDArray[Any], counts: Any) -> NDArray[np.float32]:
        return ((words - counts * self.offset) * self.step).astype(np.float32)


class Toy(Encryption):
    """Encrypt nothing, in ciphertexts of three values."""

    class Options(he_keys.Options):
        """No more than any encryption has."""

    name = "toy.naked"
    slots, position_block = 4, 3
    backend = Naked()

    def describe(self) -> str:
        return "rows as they are"

    def scheme(self) -> str:
        return "rows as they are"

    def step(self, num_clients: int) -> float:
        return Steps.step

    def agree(self, max_clients: int) -> None:
        """Any number fits."""

    def new_keys(self, max_clients: int) -> tuple[Any, he_keys.Terms]:
        return {"name": np.random.default_rng().bytes(8), "secret": True}, {"max_clients": max_clients}

    def packing(self, terms: he_keys.Terms, facts: Facts | None = None) -> OnePerSlot:
        return OnePerSlot(Steps())


# -- a run's parties ---------------------------------------------------------------------------------------------------


def half_a_step(parties: OneClient) -> float:
    """The largest error of one client's value."""
    return float(parties.numbers.step) / 2


def check_round(parties: OneClient, masks: NDArray[np.bool_], updates: Any, min_clients: int, error: float) -> Block:
    """Runs protect, add and open, and compares each field of the result with what the masks say it must be."""
    weights, width = np.array(WEIGHTS[: len(masks)]), parties.component.position_block
    blocks = {c: parties.seal_masked(masks[c], updates[c], weights[c]) for c in range(len(masks))}
    for mask, block in zip(masks, blocks.values(), strict=True):
        assert len(block.ciphertexts) == len(set(np.flatnonzero(mask) // width))
    total = parties.add(blocks, min_clients)
    covers = masks.sum(0)
    kept = np.flatnonzero(covers >= min_clients)
    assert total.positions is not None
    assert np.array_equal(total.positions, kept)
    assert np.allclose(total.divisor, (weights @ masks)[kept], rtol=1e-12)
    assert total.contributors == (covers[kept].min() if len(kept) else len(masks))
    touching = np.array(
        [[mask[b * width : (b + 1) * width].any() for b in sorted(set(kept // width))] for mask in masks]
    )
    assert np.array_equal(total.meta["counts"], touching.sum(0))
    assert len(total.ciphertexts) == len(set(kept // width))
    opened = parties.open(total)
    assert opened.positions is not None
    assert np.array_equal(opened.positions, kept)  # nothing outside is ever returned
    assert opened.plain().shape == (len(kept),)
    assert (opened.sealed_by, opened.ciphertexts, dict(opened.meta)) == (None, (), {})
    expected = (weights[:, None] * updates[: len(masks)].astype(np.float64) * masks).sum(0)[kept]
    assert np.abs(opened.plain() - expected).max(initial=0) <= len(masks) * error + 1e-6
    mean = np.divide(expected, (weights @ masks)[kept], where=covers[kept] > 0, out=np.zeros(len(kept)))
    allowed = (len(masks) * error + 1e-6) / weights.min()
    assert np.abs(opened.mean() - mean).max(initial=0) <= allowed
    return total


# -- any masks ---------------------------------------------------------------------------------------------------------


def test_a_component_needs_no_more_than_the_contract_says() -> None:
    toy = make(Toy)
    assert hook_problems(Toy, "protect") == hook_problems(Toy, "postprocess") == ()
    assert {name for name, value in vars(Keyed).items() if hasattr(value, "__fedplug_site__")} == {
        "make_shared_key", "make_keys", "adopt_keys"
    }  # fmt: skip
    assert (toy.site, toy.cohort_secret) == ("key_server", False)


def test_a_position_block_fills_a_ciphertext(parties: OneClient) -> None:
    component = parties.component
    packing = parties.packing
    assert packing.num_slots(component.position_block) == component.slots - 1
    assert packing.num_slots(component.position_block + 1) > component.slots - 1


@given(st.data(), st.integers(1, 4), st.integers(1, 20), st.integers(1, 3))
@settings(deadline=None, max_examples=examples(150))
def test_sums_over_any_masks_are_those_of_the_plain_values(
    data: st.DataObject, num_clients: int, size: int, min_clients: int
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=num_clients * size, max_size=num_clients * size))
    masks = np.array(flags).reshape(num_clients, size)
    check_round(OneClient(make(Toy), size, 4, 1), masks, UPDATES[:, :size], min_clients, Steps.step / 2)


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), st.integers(1, 3))
@example(["none"] * 4, 2)
@example(["all"] * 4, 1)
@example(["own"] * 4, 1)
@example(["own"] * 4, 2)
@example(["scattered"] * 4, 3)
@example(["none", "all", "own", "first"], 2)
@settings(deadline=None, max_examples=6)
def test_real_ciphertexts_of_any_masks_open_to_the_weighted_mean(
    parties: OneClient, kinds: list[str], min_clients: int
) -> None:
    masks = np.array([mask_of(kind, client_id) for client_id, kind in enumerate(kinds)])
    check_round(parties, masks, UPDATES, min_clients, half_a_step(parties))


def test_the_union_of_masks_opens_to_the_weighted_mean_of_plain_values(parties: OneClient) -> None:
    masks = np.array([mask_of(kind, c) for c, kind in enumerate(("first", "other", "own", "last"))])
    opened = parties.open(check_round(parties, masks, UPDATES, 1, half_a_step(parties)))
    union = masks.any(0)
    mean = np.average(UPDATES, axis=0, weights=np.array(WEIGHTS)[:, None] * np.where(union, masks, 1))
    error = 4 * half_a_step(parties) / min(WEIGHTS) + 1e-6
    assert opened.positions is not None
    assert np.array_equal(opened.positions, np.flatnonzero(union))
    assert np.abs(opened.mean() - mean[union]).max() < error


def test_equal_masks_give_what_a_gathered_zone_gives(parties: OneClient) -> None:
    mask = mask_of("scattered", 0)
    blocks = {c: parties.seal_masked(mask, UPDATES[c], WEIGHTS[c]) for c in range(4)}
    by_position = parties.open(parties.add(blocks))
    gathered = {}
    for client_id in range(4):
        gathered[client_id] = parties.seal(UPDATES[client_id][mask], WEIGHTS[client_id])
    assert np.array_equal(by_position.plain(), parties.open(parties.add(gathered)).plain())


def test_a_lone_position_is_not_opened(parties: OneClient) -> None:
    masks = np.zeros((3, SIZE), np.bool_)
    masks[:2, :10], masks[1:, 5:15], masks[2, SIZE - 1] = True, True, True
    blocks = {c: parties.seal_masked(masks[c], UPDATES[c]) for c in range(3)}
    total = parties.add(blocks, min_clients=2)
    assert total.positions is not None
    assert total.positions.tolist() == list(range(15))
    assert len(total.ciphertexts) == 1  # the last block has one client in it, and goes nowhere
    masks[2, 10:15] = False
    total = parties.add({**blocks, 2: parties.seal_masked(masks[2], UPDATES[2])}, min_clients=2)
    assert total.positions is not None
    assert total.positions.tolist() == list(range(10))
    assert len(parties.open(total).plain()) == 10
    # At positions 0 to 4 and 10 to 14 the party that decrypts sees values without another client's noise.
    assert (total.contributors, total.meta["fewest"]) == (2, 2 if parties.component.position_block == 1 else 1)


def test_an_empty_mask_costs_no_ciphertext_and_an_empty_sum_opens(parties: OneClient) -> None:
    nothing = np.zeros(SIZE, np.bool_)
    blocks = {c: parties.seal_masked(nothing, UPDATES[c]) for c in range(3)}
    assert [block.ciphertexts for block in blocks.values()] == [()] * 3
    total = parties.add(blocks, min_clients=2)
    assert (total.size, total.ciphertexts, total.contributors) == (0, (), 3)
    assert parties.open(total).mean().shape == (0,)


def test_saturation_counts_covered_positions_alone(parties: OneClient) -> None:
    mask, update = np.zeros(SIZE, np.bool_), np.full(SIZE, 7.0)
    mask[[3, 8, 4000, 8999]] = True
    update[3] = 0.5
    parties.seal_masked(mask, update)
    assert parties.client.log[f"{parties.component.name}.saturated"] == pytest.approx(0.75)
    with pytest.raises(ProtectionError, match="NaN or infinite"):
        parties.seal_masked(mask, np.full(SIZE, np.nan))
    assert parties.seal_masked(mask, np.where(mask, 0.5, np.nan)).size == 4  # what is not covered is not looked at


def test_costly_operations_are_counted_in_ciphertexts(parties: OneClient) -> None:
    for party in (parties.client, parties.server, parties.holder):
        party.operations.clear()
    masks = np.array([mask_of("all", 0), mask_of("first", 1)])
    blocks = {c: parties.seal_masked(mask, UPDATES[c]) for c, mask in enumerate(masks)}
    parties.open(parties.add(blocks))
    name, many = parties.component.name, -(-SIZE // parties.component.position_block)
    assert parties.client.operations[f"{name}.encrypt"][0] == many + 1
    assert parties.server.operations[f"{name}.add"][0] == many + 1
    assert parties.holder.operations[f"{name}.decrypt"][0] == many
    assert all(seconds > 0 for _, seconds in parties.client.operations.values())
