"""The books that the core keeps for sealers: weights, grids, contributors, divisors, positions, blame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client, Facts, FixedPoint, Layout, Opened, Operations, Scramble, Seal, Sealed, Total, Words
from fedplug.api.errors import FedplugError, MessageError, PluginError, ProtectionError
from fedplug.api.links import Link
from fedplug.api.parties import Server
from fedplug.mechanisms.closing import Closing
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

SIZE, STEP, CLIENTS = 24, 2.0**-12, 5
LAYOUT = Layout.of([("a.w", (SIZE,))])
UPDATES = arrays(np.float32, SIZE, elements=st.floats(-4, 4, width=32))
WEIGHTS = st.lists(st.floats(0.01, 1.0), min_size=CLIENTS, max_size=CLIENTS)


class Plain(fedplug.Sealer):
    """Hides nothing, and keeps no books: words are their bytes."""

    name = "plain"
    block = 0

    def protect(self, known: Any, facts: Facts) -> Operations:
        numbers = FixedPoint(range=2.0, step=STEP)
        return (Seal(scheme="none", opened_by="clients", numbers=numbers, position_block=self.block),)

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        rows = [words.values] if words.index is None else words.values
        return Sealed(tuple(row.tobytes() for row in rows))

    def add(self, uploads: Sequence[Total], server: Any, facts: Facts) -> tuple[bytes, ...]:
        alike = zip(*(each.parts for each in uploads), strict=True)
        return tuple(np.sum([np.frombuffer(part, np.int64) for part in parts], 0).tobytes() for parts in alike)

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        rows = [np.frombuffer(part, np.int64) for part in total.parts]
        return Opened(rows[0] if total.index is None else np.array(rows).reshape(len(rows), self.block))


class ByBlocks(Plain):
    """The same in blocks of five positions."""

    block = 5


class Mirror(fedplug.Scrambler):
    """Words backwards; the server reads them."""

    name = "mirror"

    def protect(self, known: Any, facts: Facts) -> Operations:
        return (Scramble(hides="nothing proved", numbers=FixedPoint(range=32.0, step=STEP)),)

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        return Sealed((words.values[::-1].tobytes(),))

    def unseal(self, upload: Total, party: Any, facts: Facts) -> Opened:
        return Opened(np.frombuffer(upload.parts[0], np.int64)[::-1])

    def reseal(self, words: Words, server: Any, facts: Facts) -> tuple[bytes, ...]:
        return (words.values[::-1].tobytes(),)

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        return self.unseal(total, party, facts)


def closing_of(component: Any, min_clients: int = 2) -> Closing:
    link = Link("encrypted", "protect", component.name, component, "client")
    facts = Facts(0, 3, LAYOUT, ("encrypted", "clear"), CLIENTS, min_clients, 7, "", {component.name: component},
                  chains={"encrypted": (link,)})  # fmt: skip
    return Closing.of("encrypted", facts)


def client_of(closing: Closing, number: int, weight: float = 1.0) -> Client:
    client = Client(client_id=number)
    client.facts, client.remembered.weight = closing.facts, weight
    return client


def uploads(
    closing: Closing, updates: Sequence[NDArray[Any]], weights: Sequence[float], where: Sequence[Any] | None = None
) -> dict[int, Block]:
    found = {}
    for number, (update, weight) in enumerate(zip(updates, weights, strict=True)):
        positions = None if where is None else np.asarray(where[number], np.uint32)
        values = update if positions is None else update[positions]
        block = Block("encrypted", len(values), values, positions, divisor=weight)
        found[number] = closing.close(block, client_of(closing, number, weight))
    return found


def held(update: NDArray[Any], weight: float, largest: float = 2.0) -> NDArray[Any]:
    """A weighted update as it lies on the grid."""
    return np.rint(np.clip(update.astype(np.float64) * weight, -largest, largest) / STEP) * STEP


@given(st.lists(UPDATES, min_size=CLIENTS, max_size=CLIENTS), WEIGHTS)
def test_a_sealer_without_books_gives_the_weighted_mean_on_its_grid(updates: Any, weights: list[float]) -> None:
    closing, server = closing_of(Plain(None)), Server()
    total = closing.add(uploads(closing, updates, weights), dict(enumerate(weights)), server)
    assert (total.contributors, total.divisor) == (CLIENTS, sum(weights))
    opened = closing.open(total, range(CLIENTS), server)
    expected = sum(held(update, weight) for update, weight in zip(updates, weights, strict=True))
    assert np.array_equal(opened.plain(), expected.astype(np.float32))
    assert np.array_equal(opened.mean(), (expected.astype(np.float32) / np.float64(sum(weights))).astype(np.float32))


@given(st.data())
def test_sums_of_some_joined_are_the_sum_of_all(data: Any) -> None:
    updates, weights = [data.draw(UPDATES) for _ in range(CLIENTS)], data.draw(WEIGHTS)
    closing, server, by_client = closing_of(Plain(None)), Server(), dict(enumerate(weights))
    sent, cut = uploads(closing, updates, weights), data.draw(st.integers(1, CLIENTS - 1))
    some = [{c: block for c, block in sent.items() if (c < cut) is first} for first in (True, False)]
    parts = [closing.add(each, by_client, server) for each in some]
    joined, whole = closing.join(parts, server), closing.add(sent, by_client, server)
    assert (joined.ciphertexts, joined.contributors) == (whole.ciphertexts, whole.contributors)
    assert joined.divisor == pytest.approx(whole.divisor)


@given(st.data())
def test_positions_of_ones_own_are_summed_where_enough_closed_them(data: Any) -> None:
    masks = [sorted(data.draw(st.sets(st.integers(0, SIZE - 1)))) for _ in range(CLIENTS)]
    updates, weights = [data.draw(UPDATES) for _ in range(CLIENTS)], data.draw(WEIGHTS)
    least = data.draw(st.integers(1, 3))
    closing, server = closing_of(ByBlocks(None), least), Server()
    total = closing.add(uploads(closing, updates, weights, masks), dict(enumerate(weights)), server)
    opened = closing.open(total, range(CLIENTS), server) if total.contributors >= least else total
    covers, divisor, expected = np.zeros(SIZE, int), np.zeros(SIZE), np.zeros(SIZE)
    for mask, update, weight in zip(masks, updates, weights, strict=True):
        covers[mask] += 1
        divisor[mask] += weight
        expected[mask] += held(update[mask], weight)
    where = np.flatnonzero(covers >= least)
    assert np.array_equal(opened.positions, where)
    assert np.array_equal(opened.plain(), expected[where].astype(np.float32))
    assert np.allclose(opened.divisor, divisor[where])
    assert total.contributors == min(covers[where], default=CLIENTS)
    touching = [len({p // 5 for p in mask} & {p // 5 for p in where}) for mask in masks]
    assert total.meta["counts"].sum() == sum(touching)


@given(st.lists(UPDATES, min_size=CLIENTS, max_size=CLIENTS), WEIGHTS, st.booleans())
def test_what_the_server_reads_is_summed_as_plain_values(updates: Any, weights: list[float], own: bool) -> None:
    closing, server = closing_of(Mirror(None)), Server()
    masks = [[*range(number, SIZE)] for number in range(CLIENTS)] if own else None
    sent = uploads(closing, updates, weights, masks)
    assert not any(block.weighted for block in sent.values())
    total = closing.add(sent, dict(enumerate(weights)), server)
    opened = closing.open(total, range(CLIENTS), server)
    values = [held(update, 1.0, 32.0).astype(np.float32).astype(np.float64) for update in updates]
    expected = np.zeros(SIZE)
    for number, (value, weight) in enumerate(zip(values, weights, strict=True)):
        expected[number if own else 0 :] += (value * weight)[number if own else 0 :]
    assert np.abs(opened.plain() - expected).max() <= STEP


def test_weights_are_in_and_saturation_is_logged() -> None:
    closing = closing_of(Plain(None))
    client = client_of(closing, 0, 0.5)
    block = Block("encrypted", 4, np.array([1, 3.9, 4.1, -9], np.float32), divisor=0.5)
    sealed = closing.close(block, client)
    assert np.frombuffer(sealed.ciphertexts[0], np.int64).tolist() == [2048, 7987, 8192, -8192]
    assert client.log["plain.saturated"] == 0.5
    assert (sealed.sealed_by, sealed.weighted, sealed.values, sealed.divisor) == ("plain", True, None, 0.5)


def test_values_that_diverged_are_not_closed() -> None:
    closing = closing_of(Plain(None))
    block = Block("encrypted", 2, np.array([1, np.nan], np.float32))
    with pytest.raises(ProtectionError, match="1 of 2 values of client 3's encrypted zone are NaN or infinite"):
        closing.close(block, client_of(closing, 3))


def test_a_sealer_that_adds_values_one_by_one_gets_no_positions_of_ones_own() -> None:
    closing = closing_of(Plain(None))
    block = Block("encrypted", 1, np.ones(1, np.float32), np.array([4], np.uint32))
    with pytest.raises(ProtectionError, match="positions that differ between clients; plain adds values one by one"):
        closing.close(block, client_of(closing, 0))


def test_a_sum_of_few_is_not_opened_nor_one_that_holds_another_number() -> None:
    class Counting(Plain):
        def open(self, total: Total, party: Any, facts: Facts) -> Opened:
            return Opened(np.frombuffer(total.parts[0], np.int64), np.array([3]))

    closing, server = closing_of(Counting(None), min_clients=3), Server()
    sent = uploads(closing, [np.ones(SIZE, np.float32)] * 3, [1.0] * 3)
    by_client = dict.fromkeys(range(3), 1.0)
    with pytest.raises(ProtectionError, match="the encrypted sum holds 2 updates; opening fewer than min_clients=3"):
        closing.open(closing.add({c: sent[c] for c in (0, 1)}, by_client, server), [0, 1], server)
    total = closing.add(sent, by_client, server)
    assert closing.open(total, range(3), server).plain().tolist() == [3.0] * SIZE
    with pytest.raises(ProtectionError, match="does not hold the 4 updates that are claimed"):
        closing.open(total.replace(contributors=4), range(4), server)


def test_a_part_of_few_is_not_opened_whatever_the_sum_claims() -> None:
    closing, server = closing_of(ByBlocks(None)), Server()
    upload = uploads(closing, [np.ones(SIZE, np.float32)], [1.0], [[0, 7]])[0]
    claimed = upload.replace(contributors=2, meta={"counts": np.array([2, 1], np.uint32)})
    with pytest.raises(ProtectionError, match="the encrypted sum holds 1 updates; opening fewer than min_clients=2"):
        closing.open(claimed, [0, 1], server)


def test_what_is_closed_in_different_forms_is_not_added() -> None:
    closing, server = closing_of(ByBlocks(None)), Server()
    sent = uploads(closing, [np.ones(SIZE, np.float32)] * 3, [1.0] * 3, [[0, 7]] * 3)
    mixed = {**sent, 1: sent[1].replace(positions=None)}
    with pytest.raises(ProtectionError, match="client 1 sent a encrypted block without positions, others with"):
        closing.add(mixed, dict.fromkeys(range(3), 1.0), server)
    gathered = {c: block.replace(positions=None) for c, block in sent.items()}
    gathered[2] = gathered[2].replace(ciphertexts=gathered[2].ciphertexts[:1])
    with pytest.raises(ProtectionError, match=r"have different numbers of parts: 2 of client 0, .* 1 of client 2"):
        closing.add(gathered, dict.fromkeys(range(3), 1.0), server)


def test_a_sum_beyond_what_its_updates_add_up_to_is_not_used() -> None:
    closing, server = closing_of(Plain(None)), Server()
    words = np.full(SIZE, 3 * 8192, np.int64)
    total = Block("encrypted", SIZE, None, ciphertexts=(words.tobytes(),), sealed_by="plain", contributors=2)
    with pytest.raises(ProtectionError, match="larger than its updates add up to") as refused:
        closing.open(total, [0, 1], server)
    assert "24576" not in str(refused.value)  # the message travels to the server


def test_a_damaged_upload_is_blamed_on_its_client() -> None:
    class Picky(Plain):
        def add(self, uploads: Sequence[Total], server: Any, facts: Facts) -> tuple[bytes, ...]:
            for upload in uploads:
                if len(upload.parts[0]) != 8 * SIZE:
                    raise MessageError("it is cut")
            return super().add(uploads, server, facts)

    closing, server = closing_of(Picky(None)), Server()
    sent = uploads(closing, [np.ones(SIZE, np.float32)] * 3, [1.0] * 3)
    sent[1] = sent[1].replace(ciphertexts=(b"short",))
    with pytest.raises(MessageError, match="client 1: it is cut") as blamed:
        closing.add(sent, dict.fromkeys(range(3), 1.0), server)
    assert blamed.value.client_id == 1


def test_a_block_without_a_part_is_blamed_on_its_client() -> None:
    closing, server = closing_of(ByBlocks(None)), Server()
    sent = uploads(closing, [np.ones(SIZE, np.float32)] * 3, [1.0] * 3, [[0, 7]] * 3)
    sent[2] = sent[2].replace(ciphertexts=sent[2].ciphertexts[:1])
    with pytest.raises(MessageError, match="client 2 sent 1 parts for 2 values in 2 blocks of 5 positions") as blamed:
        closing.add(sent, dict.fromkeys(range(3), 1.0), server)
    assert blamed.value.client_id == 2


def test_a_sum_that_words_cannot_hold_is_blamed_on_the_largest() -> None:
    closing, server = closing_of(Mirror(None)), Server()
    sent = uploads(closing, [np.full(SIZE, value, np.float32) for value in (1, 30, 2)], [1.0] * 3)
    with pytest.raises(ProtectionError, match=r"the encrypted sum has values beyond 32, .* client 1 sent the largest"):
        closing.add(sent, dict.fromkeys(range(3), 1.0), server)


WRONG: list[tuple[str, Any, str]] = [
    ("seal", lambda: b"bytes", "seal: it gave b'bytes'; it must give a Sealed"),
    ("seal", lambda: Sealed(("text",)), "seal: its parts are"),  # type: ignore[arg-type]
    ("add", lambda: b"bytes", "add: it gave b'bytes'; it must give a tuple"),
    ("add", lambda: (1,), r"add: it gave \(1,\), which must be a tuple of bytes"),
    ("open", lambda: np.zeros(SIZE), "open: it gave a ndarray; it must give a Opened"),
    ("open", lambda: Opened(np.zeros(3)), r"open: its words are float64\[3\]; it must give numbers \[24\]"),
    ("open", lambda: {}["nowhere"], "open: KeyError: 'nowhere'"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "gives", "said"), WRONG)
def test_what_a_sealer_must_not_give_names_component_zone_and_method(method: str, gives: Any, said: str) -> None:
    def wrong(*_: Any) -> Any:
        return gives()

    wrong.__name__ = method
    closing, server = closing_of(type("Wrong", (Plain,), {method: wrong})(None)), Server()

    def through() -> None:
        sent = uploads(closing, [np.ones(SIZE, np.float32)] * 3, [1.0] * 3)
        closing.open(closing.add(sent, dict.fromkeys(range(3), 1.0), server), range(3), server)

    with pytest.raises((ProtectionError, PluginError), match=f"^component plain, zone encrypted, {said}"):
        through()


def test_letters_of_all_uploads_are_sorted_by_receiver() -> None:
    class Writing(Plain):
        def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
            letters = {receiver: f"{client.client_id} to {receiver}".encode() for receiver in range(3)}
            return Sealed(super().seal(words, client, facts).parts, letters)

        def open(self, total: Total, party: Any, facts: Facts) -> Opened:
            assert total.clients == (0, 1, 2)
            assert total.letters == {r: {s: f"{s} to {r}".encode() for s in range(3)} for r in range(3)}
            return super().open(total, party, facts)

    closing, server = closing_of(Writing(None)), Server()
    sent, by_client = uploads(closing, [np.ones(SIZE, np.float32)] * 3, [1.0] * 3), dict.fromkeys(range(3), 1.0)
    closing.open(closing.add(sent, by_client, server), range(3), server)
    parts = [closing.add({c: sent[c] for c in some}, by_client, server) for some in ((0, 2), (1,))]
    closing.open(closing.join(parts, server), range(3), server)


def test_pooled_parties_open_an_upload_as_a_sum_of_one() -> None:
    closing = closing_of(Plain(None), min_clients=3)
    update = np.linspace(-1, 1, SIZE, dtype=np.float32)
    upload = uploads(closing, [update], [0.5])[0]
    opened = closing.open_upload(upload, 0, [Server()])
    assert opened is not None
    assert np.abs(opened.mean() - update).max() <= STEP

    class Closed(Plain):
        def open(self, total: Total, party: Any, facts: Facts) -> Opened:
            raise FedplugError("no key")

    closed = closing_of(Closed(None))
    assert closed.open_upload(uploads(closed, [update], [0.5])[0], 0, [Server()]) is None


def test_range_and_step_of_a_seal_are_those_of_its_numbers_unless_it_says_otherwise() -> None:
    numbers = FixedPoint(range=3.0, step=0.25)
    seal = Seal(scheme="any", opened_by="clients", numbers=numbers)
    assert (seal.range, seal.step) == (3.0, 0.25)
    assert Seal(scheme="any", opened_by="clients", numbers=numbers, step=0.5).step == 0.5
    assert math.isnan(Scramble(hides="values", numbers=numbers, range=math.nan).range)
