"""From a zone's values to words that a component closes, to their closed sum, and back: the books that are the core's.

Clients whose plans agree close the same scalars one after the other. Where each client has its own positions, the
model is cut into blocks of `Seal.position_block` consecutive positions. A client closes every block that its mask
touches as a whole, with the word of zero at positions outside the mask. What is closed of one block adds up whatever
the masks, and the divisor of a position's sum follows from the masks, which travel in the clear.

A position that fewer than `min_clients` clients covered is left out of the result: its sum would be the value of one or
a few clients. The party that opens a block also sees the positions that are left out, and does not pass them on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from fedplug.api.blocks import Block, add_blocks
from fedplug.api.errors import FedplugError, MessageError, ProtectionError, of_component
from fedplug.api.facts import Facts
from fedplug.api.links import Link, closing_of
from fedplug.api.operations import Scramble, Seal
from fedplug.api.parties import Client, Party, Server
from fedplug.api.records import shown
from fedplug.api.roles import Closer
from fedplug.api.words import Opened, Sealed, Total, Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Given = TypeVar("_Given")


@dataclasses.dataclass(frozen=True)
class Closing:
    """How the uploads of a zone are closed, in one round.

    Attributes:
        link: of the component that closes them.
        operation: what it says of that.
        facts: of the round.
    """

    link: Link
    operation: Seal | Scramble
    facts: Facts

    @classmethod
    def of(cls, zone: str, facts: Facts) -> Closing:
        """That of a zone.

        Raises:
            ProtectionError: nothing closes it.
        """
        found = closing_of(facts.steps(zone))
        if found is None:
            raise ProtectionError(f"nothing closes zone {zone}")
        return cls(*found, facts)

    @property
    def component(self) -> Closer:
        """What closes it."""
        component: Closer = self.link.component
        return component

    @property
    def name(self) -> str:
        """The component's name."""
        return self.link.name

    # -- at a client ---------------------------------------------------------------------------------------------------

    def close(self, block: Block, client: Client) -> Block:
        """Multiplies the client's weight in, makes words, and has the component close them. Logs the share of values
        that saturated, and the share that are rounded to 0 where that is nearly everything.

        Raises:
            ProtectionError: a value is not finite, or lies at a position of the client's own, for which there is no
                room in the words.
        """
        values, index = block.plain().astype(np.float64), None
        if wrong := int(np.count_nonzero(~np.isfinite(values))):
            raise ProtectionError(
                f"{wrong} of {values.size} values of client {client.client_id}'s {block.zone} zone are NaN or infinite "
                "and cannot be closed; its training diverged: lower lr in train, or clip the update"
            )
        if isinstance(self.operation, Seal):
            values *= client.weight
            if block.positions is not None:
                values, index = self._by_blocks(values, block.positions)
        words, saturated = self.operation.numbers.encode(
            values.reshape(-1), client.rng(self.component, "rounding", block.zone)
        )
        client.log[f"{self.name}.saturated"] = saturated * values.size / max(1, block.size)
        sent = np.abs(values[values != 0])  # of sums that lose nearly everything this says why, and else nothing
        if sent.size and (lost := float(np.mean(sent < 0.5 * self.operation.numbers.step))) > 0.9:
            client.log[f"{self.name}.rounded_away"] = lost
        words = words.reshape(values.shape)
        del values
        sealed = self._given(Sealed, self.component.seal, Words(block.zone, words, index), client, self.facts)
        if not _are_parts(sealed.parts) or (index is not None and len(sealed.parts) != len(index)):
            wanted = "a tuple of bytes" if index is None else f"{len(index)} parts, one for each block of positions"
            raise self._refusal("seal", f"its parts are {shown(sealed.parts)}, which must be {wanted}")
        letters = {"letters": dict(sealed.letters)} if sealed.letters else {}
        return block.replace(
            values=None, ciphertexts=sealed.parts, sealed_by=self.name, divisor=client.weight,
            weighted=isinstance(self.operation, Seal), meta={**block.meta, **letters},
        )  # fmt: skip

    def _by_blocks(
        self, values: NDArray[np.float64], positions: NDArray[np.uint32]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Values, (m, width), of the blocks of positions that a mask touches, and the numbers of these blocks."""
        width = self._width()
        touched, row = np.unique(positions // width, return_inverse=True)
        covered = np.zeros((len(touched), width))
        covered[row, positions % width] = values
        return covered, touched.astype(np.int64)

    def _width(self) -> int:
        width = self.operation.position_block if isinstance(self.operation, Seal) else 0
        if not width:
            raise ProtectionError(
                f"zone {self.link.zone} has positions that differ between clients; {self.name} adds values one by one: "
                "let the negotiation share the zone"
            )
        return width

    def _index(self, positions: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The blocks of positions that these touch, ascending."""
        return np.unique(positions // self._width()).astype(np.int64)

    # -- at the server -------------------------------------------------------------------------------------------------

    def add(self, blocks: dict[int, Block], weights: Mapping[int, float], server: Server) -> Block:
        """The sum of closed blocks by client, with the sum of their weights as its divisor.

        Raises:
            ProtectionError: blocks of different form.
            MessageError: one is damaged; its client is blamed.
        """
        blocks = dict(sorted(blocks.items()))
        if isinstance(self.operation, Scramble):
            return self._scrambled_sum(blocks, weights, server)
        first = next(iter(blocks.values()))
        if any(block.positions is not None for block in blocks.values()):
            return self._scattered_sum(blocks, weights, server)
        if len({len(block.ciphertexts) for block in blocks.values()}) > 1:
            counts = ", ".join(f"{len(block.ciphertexts)} of client {c}" for c, block in [*blocks.items()][:5])
            raise ProtectionError(f"the {self.link.zone} uploads have different numbers of parts: {counts}")
        return first.replace(
            ciphertexts=self._added({c: self._total(block, (c,)) for c, block in blocks.items()}, server),
            contributors=len(blocks), divisor=sum(weights[c] for c in blocks), weighted=True,
            meta=_letters([self._total(block, (c,)) for c, block in blocks.items()]),
        )  # fmt: skip

    def _added(self, uploads: Mapping[int, Total], server: Server, what: str = "") -> tuple[bytes, ...]:
        """The parts of the sum; `what` describes those of a client in the message about a damaged one."""
        drawn = _Drawn(uploads)
        try:
            parts = self._given(tuple, self.component.add, drawn, server, self.facts)  # type: ignore[attr-defined]
        except MessageError as error:
            raise MessageError(f"client {drawn.last}{what}: {error}").blame(drawn.last) from error.__cause__
        if not _are_parts(parts):
            raise self._refusal("add", f"it gave {shown(parts)}, which must be a tuple of bytes")
        return parts

    def _scattered_sum(self, blocks: dict[int, Block], weights: Mapping[int, float], server: Server) -> Block:
        """The sum over the positions that at least `min_clients` clients closed.

        Its meta says in `counts` how many clients are in each part, and in `fewest` how many are behind any position
        that these hold, left out or not.
        """
        size, width = self.facts.layout.size, self._width()
        covers, weight = np.zeros(size, np.uint32), np.zeros(size, np.float64)
        for client_id, block in blocks.items():
            if block.positions is None:
                raise ProtectionError(f"client {client_id} sent a {block.zone} block without positions, others with")
            touched = len(self._index(block.positions))
            if len(block.ciphertexts) != touched:
                raise MessageError(
                    f"client {client_id} sent {len(block.ciphertexts)} parts for {block.size} values in {touched} "
                    f"blocks of {width} positions, expected one a block: the message was cut, or its sender uses "
                    "another packing"
                ).blame(client_id)
            covers[block.positions] += 1
            weight[block.positions] += weights[client_id]
        held = covers >= max(self.facts.min_clients, 1)
        positions = np.flatnonzero(held).astype(np.uint32)
        parts: dict[int, dict[int, Total]] = {index: {} for index in self._index(positions).tolist()}
        for client_id, block in blocks.items():
            assert block.positions is not None
            for index, part in zip(self._index(block.positions).tolist(), block.ciphertexts, strict=True):
                if index in parts:
                    one = np.array([index])
                    parts[index][client_id] = Total(block.zone, width, (part,), (client_id,), np.ones(1, np.int64), one)
        sums: list[bytes] = []
        for index, of_block in parts.items():
            sums += self._added(of_block, server, f", position block {index}")
        # Values of all clients and groups of the round: number closed, and number closed in vain.
        log = server.log
        for word, count in (("encrypted", covers.sum()), ("in_no_sum", covers[~held].sum())):
            log[f"{self.name}.{word}"] = log.get(f"{self.name}.{word}", 0.0) + float(count)
        # The party that opens also sees the omitted positions of these parts, which the noise of few clients hides.
        seen = covers[np.isin(np.arange(size) // width, list(parts))]
        return next(iter(blocks.values())).replace(
            size=len(positions), positions=positions, ciphertexts=tuple(sums), weighted=True, divisor=weight[positions],
            contributors=int(covers[positions].min(initial=len(blocks))),
            meta={
                "counts": np.array([len(part) for part in parts.values()], np.uint32),
                "fewest": int(seen[seen > 0].min(initial=len(blocks))),
            },
        )  # fmt: skip

    def _scrambled_sum(self, blocks: dict[int, Block], weights: Mapping[int, float], server: Server) -> Block:
        """Reads the uploads, adds them as plain values, and has the sum closed again.

        The order of the additions is that of plain uploads, so the sum differs from theirs only by the words.

        Raises:
            ProtectionError: the words cannot hold a sum. The client with the largest value is blamed.
        """
        plain = {}
        for client_id, block in blocks.items():
            try:
                plain[client_id] = self._unsealed(block, client_id, server)
            except FedplugError as error:
                raise error.blame(client_id) from error.__cause__
        total = add_blocks(plain, weights, self.facts)
        words, saturated = self.operation.numbers.encode(
            total.plain().astype(np.float64), self.facts.rng(self.name, "rounding", total.zone)
        )
        if saturated:
            largest = {client_id: float(np.abs(block.plain()).max(initial=0)) for client_id, block in plain.items()}
            worst = max(largest, key=largest.__getitem__)
            raise ProtectionError(
                f"the {total.zone} sum has values beyond {self.operation.range:g}, the largest that the words of "
                f"{self.name} hold, and client {worst} sent the largest; lower lr in train, or give its words a larger "
                "range"
            ).blame(worst)
        parts = self._given(tuple, self.component.reseal, Words(total.zone, words), server, self.facts)  # type: ignore[attr-defined]
        return total.replace(values=None, ciphertexts=parts, sealed_by=self.name)

    def _unsealed(self, block: Block, sender: int, party: Party) -> Block:
        given = self._given(
            Opened, self.component.unseal, self._total(block, (sender,)), party, self.facts  # type: ignore[attr-defined]
        )  # fmt: skip
        return self._plain(block, given)

    def join(self, sums: Sequence[Block], server: Server) -> Block:
        """The sum of sums of different clients, of words without an index."""
        return sums[0].replace(
            ciphertexts=self._added({-1 - n: self._total(block, ()) for n, block in enumerate(sums)}, server),
            contributors=sum(block.contributors for block in sums), divisor=sum(block.divisor for block in sums),
            meta=_letters([self._total(block, ()) for block in sums]),
        )  # fmt: skip

    def gather(self, block: Block, clients: Sequence[int], server: Server) -> Block:
        """A closed sum as it is sent to those who open it."""
        if isinstance(self.operation, Scramble):
            return block
        total = self._given(Total, self.component.gather, self._total(block, clients), server, self.facts)  # type: ignore[attr-defined]
        meta = {name: held for name, held in block.meta.items() if name != "letters"}
        if total.gathered is not None:
            meta["gathered"] = total.gathered
        return block.replace(ciphertexts=total.parts, meta=meta)

    # -- where it is opened --------------------------------------------------------------------------------------------

    def open(self, block: Block, clients: Sequence[int], party: Party) -> Block:
        """The values of a sum.

        Args:
            block: the sum.
            clients: whose uploads are in it.
            party: that opens it.

        Raises:
            ProtectionError: it holds fewer than `min_clients` updates, or another number than claimed; or this party
                cannot open it.
        """
        if block.sealed_by != self.name:
            raise ProtectionError(f"{self.name} cannot open a {block.zone} block sealed by {block.sealed_by}")
        total = self._total(block, clients)
        claimed = np.asarray(total.counts)
        if isinstance(self.operation, Seal):
            require_enough(block, self.facts, claimed)
        given = self._given(Opened, self.component.open, total, party, self.facts)
        if given.counts is not None:
            wrong = given.counts != claimed
            if wrong.any():
                # Without the true number: the message travels to the server, and must not contain decrypted values.
                raise ProtectionError(
                    f"part {wrong.argmax()} of the {block.zone} sum does not hold the {np.max(claimed)} updates that "
                    f"are claimed; {self.name} does not open it: it was damaged, or badly added"
                )
        return self._plain(block, given)

    def open_upload(self, block: Block, sender: int, parties: Sequence[Party]) -> Block | None:
        """One upload as parties who pool what they hold could open it; None where they cannot."""
        if isinstance(self.operation, Scramble):
            for party in parties:
                try:
                    return self._unsealed(block, sender, party)
                except FedplugError:  # another key, or none
                    continue
            return None
        upload = self._total(block, (sender,))
        given = self.component.open_upload(upload, parties, self.facts)  # type: ignore[attr-defined]
        return None if given is None else self._plain(block, given)

    def _total(self, block: Block, clients: Sequence[int]) -> Total:
        """A closed block as the component gets it.

        Raises:
            MessageError: it does not say how many updates each part holds.
        """
        counts: Any = block.contributors
        index = None
        if block.positions is not None and isinstance(self.operation, Seal):
            index, counts = self._index(block.positions), block.meta.get("counts", np.uint32(1))
            if isinstance(counts, np.uint32):  # an upload
                counts = np.full(len(index), counts, np.uint32)
            if not isinstance(counts, np.ndarray) or counts.shape != index.shape or counts.dtype != np.uint32:
                found = f"{counts.dtype}{list(counts.shape)}" if isinstance(counts, np.ndarray) else shown(counts)
                raise MessageError(
                    f"the {block.zone} sum must give the number of updates in each of its {len(index)} parts; meta "
                    f"counts is {found}, not uint32[{len(index)}]"
                )
            counts = counts.astype(np.int64)
        letters = block.meta.get("letters", {})
        return Total(
            block.zone, block.size, block.ciphertexts, tuple(clients), counts, index,
            {to: each if isinstance(each, dict) else {clients[0]: each} for to, each in letters.items()},
            block.meta.get("gathered"),
        )  # fmt: skip

    def _plain(self, block: Block, given: Opened) -> Block:
        """The block with the values that words of it represent."""
        words, index = given.words, None
        counts: Any = block.contributors
        shape: tuple[int, ...] = (block.size,)
        if block.positions is not None and isinstance(self.operation, Seal):
            index = self._index(block.positions)
            shape = (len(index), self._width())
            counts = np.asarray(block.meta.get("counts", np.ones(len(index))), np.int64)[:, np.newaxis]
        if not isinstance(words, np.ndarray) or words.shape != shape:
            found = f"{words.dtype}{list(words.shape)}" if isinstance(words, np.ndarray) else shown(words)
            raise self._refusal("open", f"its words are {found}; it must give numbers {list(shape)}")
        values = self.operation.numbers.decode(words, counts).astype(np.float32)
        if index is not None:
            assert block.positions is not None
            row = np.searchsorted(index, block.positions // self._width())
            values = values[row, block.positions % self._width()]
        return block.replace(values=values, ciphertexts=(), sealed_by=None, meta={})

    def _given(self, kind: type[_Given], method: Callable[..., Any], *arguments: Any) -> _Given:
        """What a method of the component gives, which must be of this kind.

        Raises:
            PluginError: it fails.
            ProtectionError: it gives something else.
        """
        name = method.__name__
        with of_component(self.name, f"zone {self.link.zone}, {name}"):
            given = method(*arguments)
        if not isinstance(given, kind):
            raise self._refusal(name, f"it gave {shown(given)}; it must give a {kind.__name__}")
        return given

    def _refusal(self, method: str, problem: str) -> ProtectionError:
        return ProtectionError(f"component {self.name}, zone {self.link.zone}, {method}: {problem}")


def require_enough(block: Block, facts: Facts, counts: Any = ()) -> None:
    """Holds the server to `min_clients`.

    Args:
        block: the closed sum.
        facts: the round.
        counts: how many updates are in each of its parts, where these differ.

    Raises:
        ProtectionError: it holds fewer updates, or one of its parts does.
    """
    fewest = min([block.contributors, *np.ravel(counts).tolist()])
    if fewest < facts.min_clients:
        raise ProtectionError(
            f"the {block.zone} sum holds {fewest} updates; opening fewer than "
            f"min_clients={facts.min_clients} would show too much of each"
        )


class _Drawn(Sequence[Total]):
    """Uploads, which remember whose was drawn last."""

    def __init__(self, uploads: Mapping[int, Total]) -> None:
        self._uploads, self.last = uploads, next(iter(uploads))

    def __len__(self) -> int:
        return len(self._uploads)

    @overload
    def __getitem__(self, number: int) -> Total: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Total]: ...
    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [*self._uploads.values()][number]
        self.last = [*self._uploads][number]
        return self._uploads[self.last]

    def __iter__(self) -> Iterator[Total]:
        for client_id, upload in self._uploads.items():
            self.last = client_id
            yield upload


def _are_parts(given: Any) -> bool:
    return isinstance(given, tuple) and all(isinstance(part, bytes) for part in given)


def _letters(totals: Sequence[Total]) -> dict[str, Any]:
    """Letters by receiver, of each sender; empty where there are none."""
    found: dict[int, dict[int, bytes]] = {}
    for total in totals:
        for receiver, letters in total.letters.items():
            found.setdefault(receiver, {}).update(letters)
    return {"letters": found} if found else {}
