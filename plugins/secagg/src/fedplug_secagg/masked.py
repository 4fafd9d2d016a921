"""Secure aggregation by masks that cancel in the sum (Bonawitz et al., CCS 2017; SecAgg+: Bell et al., CCS 2020).

    AdvertiseKeys    client    makes s_u, sends the public half, gets its neighbours' keys in the graph from the server
    ShareKeys        client    draws b_u, sends each neighbour a share of b_u and of s_u's private half, in a letter
    MaskedInput      client    y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)  mod 2^bits, over
                               the neighbours v whose letters it has
    Unmasking        client    the share of b_v of a neighbour whose upload is in the sum, the share of s_v of one that
                               dropped out after ShareKeys, never both shares of one client
                     server    sum y_u - sum PRG(b_u) -+ sum PRG(s_uv) over u in the sum and v that dropped out

`prepare` does the first two steps between negotiation and uploads, `open` the last. This holds against a server that is
honest but curious and colludes with fewer clients than `opens_with`. The server relays public keys and says which
clients dropped out, and the clients believe it.

Where keys are signed (`signers`; Bonawitz et al., Fig. 4, underlined parts), one exchange comes before Unmasking:

    AdvertiseKeys     client    signs the public half of s_u; in ShareKeys each client checks those of the others
    ConsistencyCheck  client    signs the list of clients in the sum, once a round, with all keys it received for it
    Unmasking         client    gives shares once t clients, including itself, have signed exactly the same

Letters with shares open only where the same keys were sent. So clients that answer agree on the keys of the round, on
t, on what was published, and on the clients in the sum. With n clients, c of whom collude with the server and sign
anything, two lists of a round have n + c signatures together, and need 2 t. So there cannot be two while 2 t > n + c
(their Sec. 6.2).
"""

from __future__ import annotations

import abc
import hashlib
import math
import os
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Client, Facts, Field, Known, Misplaced, Opened, Operations, Reveals, Seal, Sealed, at_client
from fedplug.api import codec, secrets
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug.api.operations import INTEGER
from fedplug_std.fixed_point import bound_of
from fedplug_std.letters import SIGNATURE, Correspondent
from pydantic import model_validator

from fedplug_secagg import graph, masks, shamir
from fedplug_secagg.fixed_point import FixedPoint, Wrapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedplug import Cohort, KeyServerLine, Party, Recipe, Total, Words
    from numpy.typing import NDArray

    from fedplug_secagg.graph import Parameters

_SELF, _PAIR = 0, 1
"""The secret of a dealer that a share belongs to: b_u, or the private half of s_u."""
_KEY = 32
"""Bytes of a public key."""
_MASK_KEY, _IN_THE_SUM = "the public key of the round", "who is in the sum"
"""The two kinds of signed statement."""


class MaskOptions(fedplug.Options):
    """The value of an integer."""

    bits: int = Field(32, ge=8, le=64, description="of the modulus, 2^bits; an upload has that many bits per value")
    range: float | None = Field(
        None, gt=0, lt=math.inf,
        description="largest magnitude of a weighted value; larger ones saturate. Default: the bound of a clip that "
        "comes before it, plus 12 standard deviations of any noise between them",
    )  # fmt: skip
    wraps: float | None = Field(
        None, ge=3, le=100,
        description="standard deviations of a sum that half the modulus holds; values beyond wrap. For noise in whole "
        "numbers, such as std.distributed_skellam, whose grid the values keep. Default: nothing ever wraps",
    )  # fmt: skip

    aligned: float = Field(
        1.0, gt=0, le=1,
        description="with wraps: expected length of a sum of n updates, over n times the longest one; random updates "
        "have 1 / sqrt(n). Longer sums wrap more often, which costs accuracy and no privacy",
    )  # fmt: skip

    @model_validator(mode="after")
    def _one_way_to_bound(self) -> MaskOptions:
        if self.wraps is not None and self.range is not None:
            raise ValueError(f"wraps={self.wraps:g} lets sums wrap, and range={self.range:g} has none do so; write one")
        return self


class Masked(Correspondent, fedplug.Sealer):
    """The common part of SecAgg and SecAgg+. They differ in which clients exchange masks, and how many shares open."""

    class Options(MaskOptions):
        """Options of both."""

    options: MaskOptions
    site = "server"

    @abc.abstractmethod
    def parameters(self, clients: int) -> Parameters:
        """Degree of the graph of that many clients, and threshold of the shares.

        Raises:
            ProtectionError: no such sharing exists.
        """

    def may_drop(self, size: int) -> int:
        """Number of clients of a graph that may be missing from a sum while the others still mask each other."""
        return size

    def stated(self, facts: Facts) -> int:
        """The fewest shares that open anything in any round: the threshold of the smallest cohort of a round."""
        return self.parameters(self.smallest(facts)).threshold

    def threshold(self, size: int, facts: Facts) -> int:
        """Number of shares that open a secret in a graph of that many clients. Never fewer than the verdict states, for
        any size that the server names.
        """
        return max(self.parameters(size).threshold, self.stated(facts))

    def smallest(self, facts: Facts) -> int:
        """The fewest clients of any graph in the run."""
        return max(3, min(facts.min_clients, facts.num_clients))

    def against(self, facts: Facts) -> str:
        """For the scheme's line, the adversary beyond an honest-but-curious server that it withstands; empty: none."""
        return ""

    # -- description ---------------------------------------------------------------------------------------------------

    def scheme(self, clients: int) -> str:
        """Its parameters in one line."""
        return f"masks modulo 2^{self.options.bits}, {self.parameters(clients).describe()}"

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A seal that no party opens alone.

        Raises:
            Misplaced: nothing bounds the values.
            ProtectionError: the modulus does not hold a sum of that many clients.
        """
        scheme, numbers = self.scheme(facts.num_clients), self._numbers(known, facts.num_clients)
        if isinstance(numbers, Wrapping):
            fit = f"{numbers.held:.3g} standard deviations of a sum of {known.size} scalars fit"
            scheme += f"; {fit}, and {numbers.wrapped:.1g} of it wraps"
        return (
            Seal(
                scheme=scheme + self.against(facts), opened_by="shares", opens_with=self.stated(facts), numbers=numbers
            ),
        )

    def _numbers(self, known: Known, clients: int) -> FixedPoint:
        if self.options.wraps is not None:
            return self._wrapping(known, clients, self.options.wraps)
        return FixedPoint(self.options.range or bound_of(known, self.name, "wrap"), clients, self.options.bits)

    def _wrapping(self, known: Known, clients: int, deviations: float) -> Wrapping:
        """Residues on the grid of the noise. A scalar of a rotated sum of length s has a standard deviation of at most
        s / sqrt(D), where D values are rotated together (`fedplug.mechanisms.rotation`), and each client adds noise to
        it. Without rotation it may be s.
        """
        noises = [release for release in known.releases if release.mechanism in INTEGER]
        if len(noises) != 1 or known.grid != noises[0].step:
            raise Misplaced(
                f"{self.name} has wraps, and the {known.zone} values before it are no whole numbers with noise; put "
                "{use: std.distributed_skellam, epsilon: 6, delta: 1.0e-5}, say, right before it, or leave wraps out"
            )
        noise, size = noises[0], known.size
        turned = 1 << (max(size, 1).bit_length() - 1) if known.rotated else 1
        signal = self.options.aligned * clients * noise.clipping_norm / math.sqrt(turned)
        std = math.sqrt(clients) * noise.clipping_norm * noise.noise_multiplier
        numbers = Wrapping(noise.step, clients, self.options.bits, math.hypot(signal, std))
        if size and numbers.held < deviations:
            raise ProtectionError(
                f"{self.name}: bits={numbers.bits} hold {numbers.held:.3g} standard deviations of a sum of {clients} "
                f"clients on the grid {numbers.step!r} of the noise, and wraps={deviations:g} asks for more; raise "
                f"bits to {numbers.bits + numbers.missing(deviations)}, or give the noise a grid of "
                f"{numbers.step * 2.0 ** numbers.missing(deviations)!r} or more"
                + ("" if known.rotated else "; or rotate the values first (std.rotate), so that none is large")
            )
        return numbers

    def check(self, recipe: Recipe) -> list[str]:
        """Obstacles to opening the sum of the recipe's clients."""
        problems = []
        if recipe.min_clients < 3:
            problems.append(
                f"min_clients: {recipe.min_clients} would open sums from which a client subtracts its own update and "
                "has another's; raise it to 3 or more"
            )
        try:
            self.parameters(recipe.clients)
        except ProtectionError as error:
            problems.append(str(error))
        return problems

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Quantities that the masks leave visible."""
        size = "the number of scalars follows from the length of an upload"
        keys = "halves of key pairs that are drawn in every round; who has none dropped out"
        letters = "sealed shares of fresh secrets, which the server relays and cannot read"
        shares = "shares of fresh secrets: together they open the sum and no upload in it; the ledger counts the sum"
        agreed = "signatures over the list of clients in the sum, which the server has sent"
        return [
            Reveals("size of the masked zone", ("server",), note=size),
            self.correspondence(),
            *(
                Reveals(what, ("server",), covered_by="nothing to pay", asked=(asked,), note=note)
                for what, asked, note in (
                    ("public keys of the round", "advertise", keys), ("letters", "share_keys", letters),
                    ("shares", "unmask", shares),
                    *([("signatures", "agree", agreed)] if self.signers() is not None else []),
                )
            ),
        ]  # fmt: skip

    # -- before the uploads --------------------------------------------------------------------------------------------

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Has every client make the key pair of its letters."""
        self.introduce(cohort, facts, {})

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        """AdvertiseKeys and ShareKeys; at the server.

        Raises:
            TooFewClients: too few clients are left to open a sum, or for any sharing.
        """
        present = cohort.client_ids
        try:
            neighbours = self._graph(cohort, facts)
            size = len(neighbours)
            threshold = self.threshold(size, facts)
        except ProtectionError as error:  # the recipe's clients have a sharing, but these are too few for one
            raise TooFewClients(
                f"round {facts.round + 1}: {len(present)} clients are in a graph of {self.name}, and {error}; form "
                "larger groups, or let the shares of fewer clients open"
            ) from error
        self.introduce(cohort, facts, neighbours)
        keys = {
            client_id: key
            for client_id, key in cohort.ask(self.advertise).items()
            if self._is_key(cohort, client_id, key)
        }
        theirs = {c: {v: keys[v] for v in neighbours[c] if v in keys} for c in present if c in keys}
        relayed: dict[int, dict[int, bytes]] = {client_id: {} for client_id in theirs}
        dealt = cohort.ask_each(self.share_keys, {c: [size, known] for c, known in theirs.items()})
        for dealer, letters in dealt.items():
            count = len(theirs[dealer])
            if not isinstance(letters, list) or len(letters) != count:
                cohort.drop(dealer, f"{self.name}: it did not send a letter for each of its {count} neighbours")
                continue
            for receiver, letter in zip(sorted(theirs[dealer]), letters, strict=True):
                relayed[receiver][dealer] = letter
        cohort.tell_each_now(self.take_shares, relayed)
        left = set(dealt) & set(cohort.client_ids)
        if len(left) <= threshold:
            raise TooFewClients(
                f"round {facts.round + 1}: {len(left)} clients have shared their keys, and the shares of {threshold} "
                f"others open a sum of {self.name}"
            )
        memory = cohort.server.memory(self)
        if memory.get("round") != facts.round:
            memory.update(round=facts.round, neighbours={}, keys={}, thresholds={}, sizes={}, answers={})
        memory["neighbours"] |= {c: [v for v in neighbours[c] if v in left] for c in sorted(left)}
        memory["keys"] |= {c: keys[c][:_KEY] for c in sorted(left)}
        memory["thresholds"] |= dict.fromkeys(sorted(left), threshold)
        memory["sizes"] |= dict.fromkeys(sorted(left), size)

    def _graph(self, cohort: Cohort, facts: Facts) -> dict[int, tuple[int, ...]]:
        """The neighbours of each client that takes part, which follow from public keys that no party chose."""
        ids = cohort.client_ids
        seed = hashlib.blake2b(f"{facts.digest} {self.name} {ids}".encode(), digest_size=32)
        for _, key in sorted(cohort.server.memory(self)["letters: public keys"].items()):
            seed.update(key)
        return graph.draw(ids, self.parameters(len(ids)).degree, seed.digest())

    def _is_key(self, cohort: Cohort, client_id: int, key: Any) -> bool:
        signed = self.signers() is not None
        size = _KEY + (SIGNATURE if signed else 0)
        if not isinstance(key, bytes) or len(key) != size:
            cohort.drop(client_id, f"{self.name}: its public key is not {size} bytes")
            return False
        return not signed or self._has_signed(cohort, client_id, key[_KEY:], _MASK_KEY, key[:_KEY])

    def _has_signed(self, cohort: Cohort, client_id: int, signature: Any, *statement: object) -> bool:
        """Whether a client has signed its message. If not, it is left out, before others refuse to answer for it."""
        try:
            self.require_signed(cohort.server, client_id, signature, *statement)
        except ProtectionError as error:
            cohort.drop(client_id, str(error))
            return False
        return True

    @at_client
    def advertise(self, client: Client) -> bytes:
        """AdvertiseKeys: a fresh key pair s_u of this round. Returns the public half, followed by its signature."""
        memory = client.memory(self)
        private, public = secrets.key_pair()
        memory.update(
            round=client.facts.round, private=private, own=b"", keys={}, letters={}, threshold=0, unseen=0, shown=b"",
            agreed=[],
        )  # fmt: skip
        return public if self.signers() is None else public + self.sign(client, _MASK_KEY, public)

    @at_client
    def share_keys(self, client: Client, asked: tuple[int, dict[int, bytes]]) -> list[bytes]:
        """ShareKeys: b_u, and letters with a share of it and of s_u for the neighbours, ascending.

        It receives the number of clients in the graph, and its neighbours' public keys by client.

        Raises:
            ProtectionError: there are fewer neighbours than shares needed, or a key lacks a required signature, or the
                client has shared in this round already.
        """
        size, keys = asked
        memory, me = self._memory(client), client.client_id
        if memory["own"]:
            raise ProtectionError(f"client {me} has shared its keys of this round; it does so once")
        threshold = self.threshold(size, client.facts)
        if len(keys) < threshold or me in keys:
            raise ProtectionError(
                f"client {me} has {len(keys)} neighbours in this round, and the shares of {threshold} open a secret; "
                "there must be as many neighbours, and the client not among them"
            )
        shown = b""
        if self.signers() is not None:
            for other, key in sorted(keys.items()):
                self.require_signed(client, other, key[_KEY:], _MASK_KEY, key[:_KEY])
            keys = {other: key[:_KEY] for other, key in keys.items()}
            if len(keys) >= size:
                raise ProtectionError(f"client {me} is shown {len(keys)} others in a graph of {size} clients")
            mine = masks.KeyAgreement(memory["private"]).public
            shown = hashlib.sha256(codec.encode([size, sorted({**keys, me: mine}.items())])).digest()
        unseen = max(0, size - 1 - self.parameters(size).degree)
        memory.update(
            own=os.urandom(shamir.SECRET), keys=dict(keys), threshold=threshold, unseen=unseen, shown=shown
        )  # fmt: skip
        dealt = shamir.deal([memory["own"], memory["private"]], sorted(keys), threshold)
        return list(self.write_letters(client, dict(sorted(dealt.items())), self._about(memory)).values())

    def _about(self, memory: Mapping[str, Any]) -> str:
        """The context of a letter with shares. Where keys are signed, it opens only where the same keys were sent."""
        return " ".join(["shares", *([memory["shown"].hex()] if memory["shown"] else [])])

    @at_client
    def take_shares(self, client: Client, letters: dict[int, bytes]) -> None:
        """Keeps the neighbours' letters, and exchanges masks with their writers. Once a round: with other letters after
        its upload, it would count clients as neighbours with which it has exchanged no masks.
        Raises:
            ProtectionError: it already has other letters of this round.
        """
        memory = self._memory(client)
        letters = {sender: letter for sender, letter in letters.items() if sender in memory["keys"]}
        if memory["letters"] and memory["letters"] != letters:
            raise ProtectionError(f"client {client.client_id} has its letters of this round; it takes them once")
        memory["letters"] = letters

    def _memory(self, client: Client) -> dict[str, Any]:
        """This client's memory of the round.

        Raises:
            ProtectionError: it made no keys in this round, because its process was restarted in the middle of it.
        """
        memory = client.memory(self)
        if memory.get("round") != client.facts.round:
            raise ProtectionError(
                f"{self.name}: client {client.client_id} has no keys of round {client.facts.round + 1}; its process "
                "was started again in the middle of it"
            )
        return memory

    # -- uploads -------------------------------------------------------------------------------------------------------

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """MaskedInput: y_u.

        Raises:
            ProtectionError: too few neighbours' letters are there to open.
        """
        memory, total = self._memory(client), words.values
        if not memory["own"] or len(memory["letters"]) < memory["threshold"]:
            raise ProtectionError(
                f"client {client.client_id} has letters of {len(memory['letters'])} neighbours in round "
                f"{facts.round + 1}; {memory['threshold']} must have written, or its masks could not be taken off"
            )
        with client.operation(f"{self.name}.mask", len(total) * (1 + len(memory["letters"]))):
            masks.add_masks(total, self._masks_of(client, words.zone))
        return Sealed((masks.pack(total, self.options.bits),))

    def _masks_of(self, client: Client, zone: str) -> list[tuple[bytes, int]]:
        """Seeds of a client's masks with their signs: its own seed, and those that it shares with neighbours."""
        memory, agreement = self._memory(client), masks.KeyAgreement(self._memory(client)["private"])
        keys = {other: memory["keys"][other] for other in memory["letters"]}
        pairs = self._pairs(agreement, client.client_id, keys, client.facts, zone)
        return [(self._own(memory["own"], client.facts, zone), 1), *pairs]

    def _pairs(
        self, agreement: masks.KeyAgreement, owner: int, keys: Mapping[int, bytes], facts: Facts, zone: str
    ) -> list[tuple[bytes, int]]:
        """Seeds of the masks that a client shares with others, with the signs by which it adds them. The others add
        them with the opposite signs.
        """
        return [
            (agreement.seed(key, self._purpose(facts, zone, owner, other)), 1 if other > owner else -1)
            for other, key in keys.items()
        ]

    def _own(self, secret: bytes, facts: Facts, zone: str) -> bytes:
        return secrets.derive(secret, facts.digest, self.name, facts.round, zone)

    def _purpose(self, facts: Facts, zone: str, one: int, other: int) -> bytes:
        """The purpose of the mask of a pair. It masks one vector."""
        first, second = sorted((one, other))
        return f"{facts.digest} {self.name} round {facts.round} {zone} of {first} and {second}".encode()

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """Adds masked updates modulo 2^bits.

        Raises:
            MessageError: an upload does not hold as many masked values as it says.
        """
        total = np.zeros(uploads[0].size, masks.word(self.options.bits))
        for upload in uploads:
            total += self._residues(upload)
        return (masks.pack(total, self.options.bits),)

    def _residues(self, total: Total) -> NDArray[Any]:
        if len(total.parts) != 1:
            raise MessageError(f"{len(total.parts)} parts for {total.size} masked values, expected one")
        return masks.unpack(total.parts[0], total.size, self.options.bits)

    # -- the sum -------------------------------------------------------------------------------------------------------

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        """Unmasking, at the server.

        Raises:
            TooFewClients: more clients are missing than the graph allows for, or there are too few shares of some
                client's secret.
            ProtectionError: shares do not belong together.
        """
        inside, memory = set(total.clients), party.memory(self)
        if memory.get("round") != facts.round or not inside <= set(memory["neighbours"]):
            raise ProtectionError(f"{self.name}: round {facts.round + 1} was not prepared by this server")
        size = memory["sizes"][min(inside)]
        if (missing := size - len(inside)) > self.may_drop(size):
            raise TooFewClients(
                f"round {facts.round + 1}: {missing} of {size} clients are missing from the {total.zone} sum, and "
                f"{self.name} allows for {self.may_drop(size)}: with more, those left may not mask each other any "
                "more, so nobody is asked for shares; raise dropped"
            )
        neighbours = {c: memory["neighbours"][c] for c in inside}
        gone = {v for others in neighbours.values() for v in others} - inside
        found = self._collected(inside, gone, neighbours, party)
        taken: list[tuple[bytes, int]] = []
        for client_id in sorted(inside):
            taken.append((self._own(self._secret(found, client_id, _SELF, party), facts, total.zone), -1))
        for absent in sorted(gone):
            agreement = masks.KeyAgreement(self._secret(found, absent, _PAIR, party))
            if agreement.public != memory["keys"][absent]:
                raise ProtectionError(f"the shares of client {absent}'s key open another one: a share is wrong")
            keys = {other: memory["keys"][other] for other in memory["neighbours"][absent] if other in inside}
            # What would have cancelled the masks that those inside share with it.
            taken += self._pairs(agreement, absent, keys, facts, total.zone)
        words = self._residues(total)
        with party.operation(f"{self.name}.unmask", total.size * len(taken)):
            masks.add_masks(words, taken)
        return Opened(words)

    def _collected(
        self, inside: set[int], gone: set[int], neighbours: Mapping[int, Sequence[int]], party: Any
    ) -> dict[int, dict[int, bytes]]:
        """The shares that neighbours reply with, by the client whose secret it is. Asked for once a round."""
        answers: dict[str, Any] = party.memory(self)["answers"]
        key = ",".join(map(str, sorted(inside)))
        if key in answers:
            return answers[key]  # type: ignore[no-any-return]
        asked: dict[int, list[Any]] = {
            c: [sorted({*others} & inside), sorted({*others} & gone)] for c, others in neighbours.items()
        }
        found: dict[int, dict[int, bytes]] = {client_id: {} for client_id in (*inside, *gone)}
        if self.signers() is not None:
            asked = self._with_signatures(asked, inside, party)
        for holder, given in party.cohort.ask_each(self.unmask, asked).items():
            owners = sorted([*asked[holder][0], *asked[holder][1]])
            if not isinstance(given, list) or len(given) != len(owners):
                party.cohort.drop(holder, f"{self.name}: it did not answer with the shares it was asked for")
                continue
            for owner, share in zip(owners, given, strict=True):
                found[owner][holder] = share
        answers[key] = found
        return found

    def _with_signatures(self, asked: Mapping[int, list[Any]], inside: set[int], party: Any) -> dict[int, list[Any]]:
        """ConsistencyCheck: the questions for the clients that sign, with the signatures of all their neighbours.

        Raises:
            TooFewClients: fewer clients sign than shares open.
        """
        cohort: Cohort = party.cohort
        memory, facts = party.memory(self), party.facts
        given = cohort.ask_each(self.agree, dict.fromkeys(asked, sorted(inside)))
        signatures = {
            client_id: answer[32:]
            for client_id, answer in given.items()
            if isinstance(answer, bytes)
            and self._has_signed(cohort, client_id, answer[32:], _IN_THE_SUM, answer[:32], sorted(inside))
        }
        threshold = max(memory["thresholds"][c] for c in inside)
        if len(signatures) < threshold:
            raise TooFewClients(
                f"round {facts.round + 1}: {len(signatures)} clients have signed who is in the sum, and {threshold} "
                "must; nobody is asked for shares"
            )
        return {
            c: [*asked[c], {v: signatures[v] for v in memory["neighbours"][c] if v in signatures}] for c in signatures
        }

    def _secret(self, found: Mapping[int, Mapping[int, bytes]], owner: int, which: int, party: Party) -> bytes:
        """A client's secret of this round from the shares in the replies."""
        shares, threshold = found[owner], party.memory(self)["thresholds"][owner]
        if len(shares) < threshold:
            what = "own mask" if which == _SELF else "key"
            raise TooFewClients(
                f"round {party.facts.round + 1}: {len(shares)} clients answered with a share of client {owner}'s "
                f"{what}, and {threshold} open it"
            )
        return shamir.combine(shares, threshold)

    @at_client
    def agree(self, client: Client, inside: list[int]) -> bytes:
        """ConsistencyCheck: a digest of the round's keys and of what was published, as this client received them, 32
        bytes, and its signature over that and the list of clients in the sum. It signs one such list a round.

        Raises:
            ProtectionError: it has signed another list, is not in this one, or has too few letters for it.
        """
        memory, me = self._memory(client), client.client_id
        if memory["agreed"] and memory["agreed"] != inside:
            raise ProtectionError(
                f"client {me} has signed that {memory['agreed']} are in the sum of round {client.facts.round + 1}, and "
                f"is now told {inside}"
            )
        others = {*inside} - {me}
        if me not in inside or inside != sorted({*inside}) or not others <= set(memory["letters"]):
            raise ProtectionError(
                f"client {me} cannot sign that {inside} are in the sum: it must be one of them, and have letters of "
                "all others"
            )
        self._require_enough(client, others)
        memory["agreed"] = list(inside)
        told = self._told(client)
        return told + self.sign(client, _IN_THE_SUM, told, inside)

    def _told(self, client: Client) -> bytes:
        """A digest of all that a client was told: the keys of the round, and what its upload went by."""
        shown: bytes = self._memory(client)["shown"]
        return hashlib.sha256(shown + client.told).digest()

    def _require_enough(self, client: Client, others: set[int]) -> None:
        """Refuses to help to open a sum that shows too much, with these neighbours of the client in it.

        It holds the server to `min_clients` as far as it can tell: it does not see who is in the sum of the clients
        that are not its neighbours, and only knows how many they are.

        Raises:
            ProtectionError: fewer neighbours than shares open, or fewer clients than `min_clients`.
        """
        memory, least = self._memory(client), client.facts.min_clients
        if len(others) < memory["threshold"]:
            raise ProtectionError(
                f"{len(others)} neighbours are said to be in the sum; below {memory['threshold']} it shows too much"
            )
        if (most := len(others) + 1 + memory["unseen"]) < least:
            raise ProtectionError(
                f"the sum is said to be of {most} clients{' at most' if memory['unseen'] else ''}; client "
                f"{client.client_id} helps to open none of fewer than min_clients={least}"
            )

    def _require_agreed(self, client: Client, inside: Sequence[int], signatures: Mapping[int, Any]) -> None:
        """Refuses to answer unless at least the threshold of clients has signed the same statement as this one.

        Raises:
            ProtectionError: too few have signed; the error names a client that has not.
        """
        memory, me = self._memory(client), client.client_id
        if not memory["agreed"] or memory["agreed"] != sorted({*inside, me}):
            raise ProtectionError(f"client {me} has not signed that {sorted({*inside, me})} are in the sum")
        for other, signature in sorted(signatures.items()):
            if other not in inside:
                raise ProtectionError(f"client {other} has signed, and is not among those in the sum")
            self.require_signed(client, other, signature, _IN_THE_SUM, self._told(client), memory["agreed"])
        if len(signatures) + 1 < memory["threshold"]:
            raise ProtectionError(
                f"{len(signatures) + 1} clients have signed who is in the sum, client {me} among them; "
                f"{memory['threshold']} must, or others may have been told something else"
            )

    @at_client
    def unmask(self, client: Client, asked: tuple[Any, ...]) -> list[bytes]:
        """Unmasking: a share of b_v for each neighbour whose upload is in the sum, and of s_v for each that dropped
        out, by ascending client number.

        It answers for one such division of its neighbours in a round, even after a restart, because both shares of one
        client open its upload. Where keys are signed, it answers only once enough others have signed the same division.

        Args:
            client: the client that answers.
            asked: the neighbours in the sum, those that dropped out, and signatures by client where keys are signed.

        Raises:
            OpenedBefore: it has answered for another division.
            ProtectionError: a client is on both sides, fewer are in the sum than shares open, or fewer have signed.
            MessageError: a letter does not open.
        """
        inside, gone, *signatures = asked
        memory = self._memory(client)
        if both := sorted({*inside} & {*gone}):
            raise ProtectionError(f"both shares of client {both[0]} were asked for; together they open its upload")
        if strangers := sorted({*inside, *gone} - set(memory["letters"])):
            raise ProtectionError(f"a share of client {strangers[0]} was asked for, which dealt none to this client")
        self._require_enough(client, {*inside})
        if self.signers() is not None:
            self._require_agreed(client, inside, signatures[0] if signatures else {})
        letters = {v: memory["letters"][v] for v in sorted({*inside, *gone})}
        # Together with the letters: a repeated round has other masks, and its sum would be a different one.
        asked_for = [codec.encode([sorted(inside), sorted(gone)]), *letters.values()]
        with client.openings.once(client.facts.round, self.name, "", sorted({*inside, client.client_id}), asked_for):
            contents = self.read_letters(client, letters, self._about(memory))
            return [shamir.part(contents[v], _PAIR if v in gone else _SELF) for v in letters]

    def open_upload(self, upload: Total, parties: Sequence[Party], facts: Facts) -> Opened | None:
        """One upload, opened with the shares of its masks that clients among the parties received, and with the
        server's keys.
        """
        (sender,) = upload.clients
        servers = [p.memory(self) for p in parties if not isinstance(p, Client)]
        clients = [p for p in parties if isinstance(p, Client) and p.memory(self).get("round") == facts.round]
        clients = [client for client in clients if sender in client.memory(self)["letters"]]
        if not servers or not clients or sender not in servers[0].get("thresholds", {}):
            return None
        server = servers[0]
        shares = {
            c.client_id: self.read_letters(
                c, {sender: c.memory(self)["letters"][sender]}, self._about(c.memory(self))
            )
            for c in clients
        }
        if len(shares) < server["thresholds"][sender]:
            return None
        own, private = (
            shamir.combine(
                {c: shamir.part(held[sender], which) for c, held in shares.items()}, server["thresholds"][sender]
            )
            for which in (_SELF, _PAIR)
        )
        agreement, words = masks.KeyAgreement(private), self._residues(upload)
        keys = {other: server["keys"][other] for other in server["neighbours"][sender]}
        pairs = self._pairs(agreement, sender, keys, facts, upload.zone)
        taken = [(self._own(own, facts, upload.zone), -1), *((seed, -sign) for seed, sign in pairs)]
        masks.add_masks(words, taken)
        return Opened(words)
