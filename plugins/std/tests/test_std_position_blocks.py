"""Encrypted zones where each client has a mask of its own: sums are right wherever enough clients met, and only there.

A toy scheme without any cryptography shows that a component needs nothing but what `he_blocks` asks for; it has tiny
ciphertexts, so that many masks can be tried. BFV and CKKS then show the same with real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import fedplug
import numpy as np
import pytest
import toy_base
import toy_components
import toy_protocol
from fedplug import Block, Plan, at_client, hookimpl
from fedplug.api import codec
from fedplug.api.context import Client, Context, KeyServer, Party, Server
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.types import ENCRYPTED, RETAINED, Layout
from fedplug.recipe.composition import new_manager, register
from fedplug.recipe.implementations import hook_problems
from fedplug_std import he_keys
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from fedplug_std.he_blocks import Encryption
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

# -- a scheme that hides nothing ---------------------------------------------------------------------------------------


class Naked:
    """A backend whose ciphertexts are the rows, behind the name of their key."""

    def encrypt(self, context: dict[str, Any], rows: NDArray[Any]) -> tuple[bytes, ...]:
        return tuple(context["name"] + row.astype(np.int64).tobytes() for row in rows)

    def _rows(self, context: dict[str, Any], data: bytes, slots: int, where: str) -> NDArray[np.int64]:
        if len(data) != 8 + 8 * slots or data[:8] != context["name"]:
            raise MessageError(f"{where} is damaged")
        return np.frombuffer(data, np.int64, offset=8)

    def add(
        self, context: dict[str, Any], uploads: Iterable[tuple[str, Sequence[bytes]]], slots: int
    ) -> tuple[bytes, ...]:
        rows = [[self._rows(context, data, slots, whose) for data in parts] for whose, parts in uploads]
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
    """Whole numbers of `step`, shifted so that none is negative: the code of zero is not zero."""

    count_unit: float = 1
    step, offset = 1 / 64, 64

    def encode(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], float]:
        codes = np.rint(np.clip(values, -1, 1) / self.step).astype(np.int64) + self.offset
        return codes, float(np.mean(np.abs(values) > 1)) if len(values) else 0.0

    def num_slots(self, size: int) -> int:
        return size

    def decode(self, slots: NDArray[Any], size: int, contributors: int) -> NDArray[np.float32]:
        return ((slots[:size] - contributors * self.offset) * self.step).astype(np.float32)

    def counts(self, slots: NDArray[Any]) -> NDArray[np.int64]:
        return slots.astype(np.int64)


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

    def codec(self, terms: he_keys.Terms) -> Steps:
        return Steps()


# -- a run's parties ---------------------------------------------------------------------------------------------------


class Parties:
    """One component's parties with their keys; all clients are one object. What travels goes through the codec."""

    def __init__(self, component: Any, size: int, num_clients: int = 4) -> None:
        self.component, self.num_clients = component, num_clients
        self.layout, self.min_clients = Layout.of([("w", (size,))]), 1
        self.server, self.key_server, self.client = Server(), KeyServer(), Client(client_id=0)
        self.client.remembered.cohort_secret = bytes(32)
        if component.site == "client":
            made = component.make_shared_key(self.client, num_clients)
        else:
            made = component.make_keys(self.key_server, num_clients)
        self.server.memory(component).update(context=made["adding"], terms=made["terms"])
        component.adopt_keys(self.client, made["keys"], made["terms"])
        self.holder = self.client if component.site == "client" else self.key_server

    def context(self, party: Party) -> Context:
        return Context(
            round=0, rounds=1, layout=self.layout, zones=("encrypted",), num_clients=self.num_clients,
            min_clients=self.min_clients, seed=1, digest="d", party=party,
        )  # fmt: skip

    def protect(self, mask: NDArray[Any], update: NDArray[Any], weight: float = 1.0) -> Block:
        """What a client sends that encrypts its update where its mask says."""
        where, self.client.weight = np.flatnonzero(mask).astype(np.uint32), weight
        plain = Block("encrypted", len(where), update[where].astype(np.float32), where)
        return self.relay(self.component.protect(plain, self.client, self.context(self.client)))

    def add(self, blocks: dict[int, Block], min_clients: int = 1) -> Block:
        self.min_clients = min_clients
        return self.relay(self.component.add_blocks(blocks, self.context(self.server)))

    def open(self, block: Block) -> Block:
        return self.relay(self.component.postprocess(block, self.context(self.holder)))

    @staticmethod
    def relay(block: Block) -> Block:
        return codec.decode(codec.encode(block))  # type: ignore[no-any-return]


SIZE = 9000  # two blocks of BFV, five of CKKS
WEIGHTS = (1.0, 0.5, 0.25, 0.7)
UPDATES = np.random.default_rng(0).uniform(-1, 1, (4, SIZE)).astype(np.float32)


def make(kind: Any, **options: Any) -> Any:
    return kind(kind.Options.model_validate(options))


@pytest.fixture(scope="module", params=[(Bfv, "key_server"), (Bfv, "clients"), (Ckks, "key_server"), (Ckks, "clients")],
                ids=["bfv-key_server", "bfv-clients", "ckks-key_server", "ckks-clients"])  # fmt: skip
def parties(request: pytest.FixtureRequest) -> Parties:
    kind, key_holder = request.param
    return Parties(make(kind, key_holder=key_holder), SIZE)


def half_a_step(parties: Parties) -> float:
    """The largest error of one client's value."""
    terms = parties.server.memory(parties.component)["terms"]
    numbers = parties.component.codec(terms)
    step: float = numbers.fixed_point.step if isinstance(parties.component, Bfv) else numbers.grid
    return step / 2


def check_round(parties: Parties, masks: NDArray[np.bool_], updates: Any, min_clients: int, error: float) -> Block:
    """Runs protect, add and open, and compares each field of the result with what the masks say it must be."""
    weights, width = np.array(WEIGHTS[: len(masks)]), parties.component.position_block
    blocks = {c: parties.protect(masks[c], updates[c], weights[c]) for c in range(len(masks))}
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
    assert hook_problems(Toy, "protect") == hook_problems(Toy, "postprocess") == []
    register(new_manager(), toy, toy.name)
    assert {name for name, value in vars(Encryption).items() if hasattr(value, "__fedplug_site__")} == {
        "make_shared_key", "make_keys", "adopt_keys"
    }  # fmt: skip
    assert (toy.site, toy.cohort_secret) == ("key_server", False)


def test_a_position_block_fills_a_ciphertext(parties: Parties) -> None:
    component = parties.component
    numbers = component.codec(parties.server.memory(component)["terms"])
    assert numbers.num_slots(component.position_block) == component.slots - 1
    assert numbers.num_slots(component.position_block + 1) > component.slots - 1


@given(st.data(), st.integers(1, 4), st.integers(1, 20), st.integers(1, 3))
@settings(deadline=None, max_examples=150)
def test_sums_over_any_masks_are_those_of_the_plain_values(
    data: st.DataObject, num_clients: int, size: int, min_clients: int
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=num_clients * size, max_size=num_clients * size))
    masks = np.array(flags).reshape(num_clients, size)
    check_round(Parties(make(Toy), size), masks, UPDATES[:, :size], min_clients, Steps.step / 2)


KINDS = ("none", "all", "own", "scattered", "first", "last", "other")


def mask_of(kind: str, client_id: int) -> NDArray[np.bool_]:
    """`own` masks are disjoint from everyone's; `scattered` and `other` are random, the same at all and different."""
    where = np.arange(SIZE)
    masks: dict[str, NDArray[np.bool_]] = {
        "none": np.zeros(SIZE, np.bool_),
        "all": np.ones(SIZE, np.bool_),
        "own": where % 4 == client_id,
        "scattered": np.random.default_rng(9).random(SIZE) < 0.1,
        "first": where < 40,
        "last": where >= SIZE - 1,
        "other": np.random.default_rng(client_id).random(SIZE) < 0.01,
    }
    return masks[kind]


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), st.integers(1, 3))
@example(["none"] * 4, 2)
@example(["all"] * 4, 1)
@example(["own"] * 4, 1)
@example(["own"] * 4, 2)
@example(["scattered"] * 4, 3)
@example(["none", "all", "own", "first"], 2)
@settings(deadline=None, max_examples=6)
def test_real_ciphertexts_of_any_masks_open_to_the_weighted_mean(
    parties: Parties, kinds: list[str], min_clients: int
) -> None:
    masks = np.array([mask_of(kind, client_id) for client_id, kind in enumerate(kinds)])
    check_round(parties, masks, UPDATES, min_clients, half_a_step(parties))


def test_the_union_of_masks_opens_to_the_weighted_mean_of_plain_values(parties: Parties) -> None:
    masks = np.array([mask_of(kind, c) for c, kind in enumerate(("first", "other", "own", "last"))])
    opened = parties.open(check_round(parties, masks, UPDATES, 1, half_a_step(parties)))
    union = masks.any(0)
    mean = np.average(UPDATES, axis=0, weights=np.array(WEIGHTS)[:, None] * np.where(union, masks, 1))
    error = 4 * half_a_step(parties) / min(WEIGHTS) + 1e-6
    assert opened.positions is not None
    assert np.array_equal(opened.positions, np.flatnonzero(union))
    assert np.abs(opened.mean() - mean[union]).max() < error


def test_equal_masks_give_what_a_gathered_zone_gives(parties: Parties) -> None:
    mask = mask_of("scattered", 0)
    blocks = {c: parties.protect(mask, UPDATES[c], WEIGHTS[c]) for c in range(4)}
    by_position = parties.open(parties.add(blocks))
    gathered = {}
    for client_id in range(4):
        parties.client.weight = WEIGHTS[client_id]
        plain = Block("encrypted", int(mask.sum()), UPDATES[client_id][mask])
        gathered[client_id] = parties.component.protect(plain, parties.client, parties.context(parties.client))
    assert np.array_equal(by_position.plain(), parties.open(parties.add(gathered)).plain())


def test_a_lone_position_is_not_opened(parties: Parties) -> None:
    masks = np.zeros((3, SIZE), np.bool_)
    masks[:2, :10], masks[1:, 5:15], masks[2, SIZE - 1] = True, True, True
    blocks = {c: parties.protect(masks[c], UPDATES[c]) for c in range(3)}
    total = parties.add(blocks, min_clients=2)
    assert total.positions is not None
    assert total.positions.tolist() == list(range(15))
    assert len(total.ciphertexts) == 1  # the last block has one client in it, and goes nowhere
    masks[2, 10:15] = False
    total = parties.add({**blocks, 2: parties.protect(masks[2], UPDATES[2])}, min_clients=2)
    assert total.positions is not None
    assert total.positions.tolist() == list(range(10))
    assert len(parties.open(total).plain()) == 10
    # What whoever decrypts sees of positions 0 to 4 and 10 to 14 has no other client's noise to hide behind.
    assert (total.contributors, total.meta["fewest"]) == (2, 2 if parties.component.position_block == 1 else 1)


def test_an_empty_mask_costs_no_ciphertext_and_an_empty_sum_opens(parties: Parties) -> None:
    nothing = np.zeros(SIZE, np.bool_)
    blocks = {c: parties.protect(nothing, UPDATES[c]) for c in range(3)}
    assert [block.ciphertexts for block in blocks.values()] == [()] * 3
    total = parties.add(blocks, min_clients=2)
    assert (total.size, total.ciphertexts, total.contributors) == (0, (), 3)
    assert parties.open(total).mean().shape == (0,)


def test_saturation_counts_covered_positions_alone(parties: Parties) -> None:
    mask, update = np.zeros(SIZE, np.bool_), np.full(SIZE, 7.0)
    mask[[3, 8, 4000, 8999]] = True
    update[3] = 0.5
    parties.protect(mask, update)
    assert parties.client.log[f"{parties.component.name}.saturated"] == pytest.approx(0.75)
    with pytest.raises(ProtectionError, match="NaN or infinite"):
        parties.protect(mask, np.full(SIZE, np.nan))
    assert parties.protect(mask, np.where(mask, 0.5, np.nan)).size == 4  # what is not covered is not looked at


def test_costly_operations_are_counted_in_ciphertexts(parties: Parties) -> None:
    for party in (parties.client, parties.server, parties.holder):
        party.operations.clear()
    masks = np.array([mask_of("all", 0), mask_of("first", 1)])
    blocks = {c: parties.protect(mask, UPDATES[c]) for c, mask in enumerate(masks)}
    parties.open(parties.add(blocks))
    name, many = parties.component.name, -(-SIZE // parties.component.position_block)
    assert parties.client.operations[f"{name}.encrypt"][0] == many + 1
    assert parties.server.operations[f"{name}.add"][0] == many + 1
    assert parties.holder.operations[f"{name}.decrypt"][0] == many
    assert all(seconds > 0 for _, seconds in parties.client.operations.values())


# -- what a sum can hold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sums_still_fit(parties: Parties, sign: float) -> None:
    block = parties.protect(mask_of("last", 0), np.full(SIZE, sign))
    opened = parties.open(parties.add(dict.fromkeys(range(4), block)))
    assert opened.plain().tolist() == [4 * sign]


def test_more_updates_than_a_sum_holds_are_refused(parties: Parties) -> None:
    block = parties.protect(mask_of("first", 0), UPDATES[0])
    with pytest.raises(ProtectionError, match="sum of 5 updates could overflow: max_clients=4"):
        parties.add(dict.fromkeys(range(5), block))


# -- faults ------------------------------------------------------------------------------------------------------------


def test_the_server_cannot_open_a_sum(parties: Parties) -> None:
    total = parties.add({c: parties.protect(mask_of("other", c), UPDATES[c]) for c in range(4)})
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.component.postprocess(total, parties.context(parties.server))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"meta": {"key": 1}}, "client 1 encrypted its encrypted block under another key"),
        ({"meta": {}}, "block whose meta says key=None, which must be the whole number of the key"),
        ({"meta": {"key": 1.0}}, "says key=1.0, which must be the whole number"),
        ({"meta": {"key": np.ones(3)}}, "says key=a ndarray, which must be the whole number"),
        ({"meta": {"key": 10**5000}}, "says key=a whole number of 16610 bits, which must be"),
        ({"ciphertexts": (b"garbage",)}, "ciphertext 0 of client 1, position block 0, "),
        ({"ciphertexts": ()}, r"client 1 sent 0 ciphertexts for 40 values in 1 blocks of \d+ positions"),
        ({"positions": np.arange(SIZE - 39, SIZE + 1, dtype=np.uint32)}, "encrypted position 9000, but the model has"),
        ({"positions": np.arange(40, dtype=np.uint32)[::-1]}, "must be as many and strictly ascending"),
        ({"positions": np.arange(39, dtype=np.uint32)}, "39 encrypted positions for 40 scalars"),
        ({"contributors": 2}, "client 1 sent a encrypted block of 2 contributors"),
        ({"divisor": 0.5}, "another weight than 1.0"),
    ],
)
def test_a_fault_of_one_upload_is_blamed_on_its_client(parties: Parties, change: dict[str, Any], message: str) -> None:
    parties.server.remembered.weights = dict.fromkeys(range(3), 1.0)
    blocks = {c: parties.protect(mask_of("first", c), UPDATES[c]) for c in range(3)}
    blocks[1] = blocks[1].replace(**change)
    with pytest.raises((ProtectionError, MessageError), match=message) as caught:
        parties.component.add_blocks(blocks, parties.context(parties.server))
    parties.server.remembered.weights = {}
    assert caught.value.client_id == 1


def test_ciphertexts_cut_for_other_blocks_are_blamed(parties: Parties) -> None:
    """A client that packs twice as many positions into a ciphertext sends fewer than its positions take."""
    wider = parties.protect(mask_of("all", 0), UPDATES[0])
    wider = wider.replace(ciphertexts=wider.ciphertexts[::2])
    with pytest.raises(MessageError, match=r"client 2 sent .* its sender packs otherwise") as caught:
        parties.add({0: parties.protect(mask_of("all", 0), UPDATES[0]), 2: wider})
    assert caught.value.client_id == 2


def test_gathered_and_positioned_blocks_do_not_mix(parties: Parties) -> None:
    block = parties.protect(mask_of("first", 0), UPDATES[0])
    with pytest.raises(ProtectionError, match="client 1 sent a encrypted block without positions, others with"):
        parties.add({0: block, 1: block.replace(positions=None)})


def test_counts_that_are_claimed_wrongly_stay_closed(parties: Parties) -> None:
    blocks = {c: parties.protect(mask_of("first", c), UPDATES[c]) for c in range(3)}
    total = parties.add(blocks)
    for counts in ([2], [4]):
        with pytest.raises(ProtectionError, match=rf"does not hold the {counts[0]} updates that are claimed"):
            parties.open(total.replace(meta={"counts": np.array(counts, np.uint32)}))
    for wrong in ({}, {"counts": [3]}, {"counts": np.array([3, 3], np.uint32)}, {"counts": np.array([3.0])}):
        with pytest.raises(MessageError, match="must say how many updates each of its 1 ciphertexts holds"):
            parties.open(total.replace(meta=wrong))
    with pytest.raises(MessageError, match="0 ciphertexts for 40 values, expected 1"):
        parties.open(total.replace(ciphertexts=()))
    # An upload alone, claimed to be what it is: too few.
    parties.min_clients = 2
    lone = blocks[0].replace(meta={"counts": np.array([1], np.uint32)}, contributors=2)
    with pytest.raises(ProtectionError, match="holds 1 updates; opening fewer than min_clients=2"):
        parties.open(lone)


# -- whole runs --------------------------------------------------------------------------------------------------------


class Steps5(toy_base.Toy, fedplug.Negotiation):
    """Client k encrypts the positions whose number modulo 5 is at most k, and keeps the rest to itself."""

    plans = fedplug.Plans(zones=frozenset({ENCRYPTED, RETAINED}), own=frozenset({ENCRYPTED}))

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        size, zones = client.ctx.layout.size, client.ctx.zones
        client.plan = Plan.of(RETAINED, size, zones, **{ENCRYPTED: np.arange(size) % 5 <= client.client_id})


@pytest.mark.parametrize("min_clients", [2, 4])
@pytest.mark.parametrize(
    ("scheme", "key_holder"), [("std.bfv", "key_server"), ("std.bfv", "clients"), ("std.ckks", "clients")]
)
def test_a_run_moves_exactly_the_positions_that_enough_clients_encrypted(
    scheme: str, key_holder: str, min_clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(toy_components.TOYS["negotiate_mask"], "toy.steps5", Steps5)
    seal = {"use": scheme, "key_holder": key_holder, "range": 0.5}
    plain = toy_components.recipe_of(
        "encrypted", [seal], train={"use": "toy.push"}, negotiate_mask={"use": "toy.steps5"}, rounds=1,
        min_clients=min_clients,
    )  # fmt: skip
    outcome = toy_protocol.run_protocol(plain)
    assert outcome.notes == []
    start, weights = toy_protocol.initial_vector(plain), toy_protocol.weights_of(outcome)
    residue = np.arange(len(start)) % 5
    total, divisor = np.zeros(len(start)), np.zeros(len(start))
    for client_id, weight in weights.items():
        mask = residue <= client_id
        total[mask] += weight * toy_components.pushed(start, 7, client_id, 0).astype(np.float64)[mask]
        divisor[mask] += weight
    moved = residue <= 4 - min_clients
    expected = np.where(moved, total / np.where(moved, divisor, 1), 0)
    assert np.abs(outcome.vector - start - expected).max() < 2e-5
    assert np.array_equal(outcome.vector[~moved], start[~moved])


def test_a_run_in_which_no_two_clients_meet_opens_nothing_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Apart(Steps5):
        """No position is in two masks."""

        @at_client
        def choose(self, client: Client) -> None:
            """Sets this client's plan."""
            size, zones = client.ctx.layout.size, client.ctx.zones
            client.plan = Plan.of(RETAINED, size, zones, **{ENCRYPTED: np.arange(size) % 4 == client.client_id})

    monkeypatch.setitem(toy_components.TOYS["negotiate_mask"], "toy.apart", Apart)
    plain = toy_components.recipe_of(
        "encrypted", [{"use": "std.bfv"}], train={"use": "toy.push"}, negotiate_mask={"use": "toy.apart"}, rounds=2
    )
    outcome = toy_protocol.run_protocol(plain)
    assert outcome.notes == []
    assert np.array_equal(outcome.vector, toy_protocol.initial_vector(plain))
    assert len(outcome.rows) == 2
