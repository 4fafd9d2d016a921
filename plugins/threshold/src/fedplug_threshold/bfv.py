"""Sums under a joint key that no party holds: `threshold.bfv`.

    set-up     client    a nonce (all nonces together give a, which no party chooses)
               client    draws s_i, sends b_i and, in a letter to each client, a share of s_i, and forgets s_i
               client    adds the shares that it received: S_j
               server    adds the b_i: the joint key, and sends it to all
    upload     client    a ciphertext under the joint key
    opening    server    adds uploads, and names t clients that are to open the sum
               client    its part of the opening, with smudging noise and masks that cancel within the set
               server    adds the parts: the sum

The server relays letters, which it cannot read. This holds against a server that is honest but curious and colludes
with fewer than t clients.
"""

from __future__ import annotations

import functools
import hashlib
import math
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Client, Facts, Field, Known, Opened, Operations, Reveals, Seal, Sealed, at_client
from fedplug.api import secrets
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug.api.links import seal_of
from fedplug.api.records import shown
from fedplug_std.fixed_point import bound_of
from fedplug_std.letters import Correspondent

from fedplug_threshold.fixed_point import FixedPoint
from fedplug_threshold.parameters import choose
from fedplug_threshold.scheme import Scheme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug import Cohort, KeyServerLine, Party, Recipe, Server, Total, Words
    from fedplug.api.roles import Site
    from numpy.typing import NDArray

    from fedplug_threshold.parameters import Parameters
    from fedplug_threshold.ring import Residues

SETS = 4
"""Largest number of sets of clients that are asked to open one sum, where clients of earlier sets dropped out."""
LEAST = 3
"""Fewest updates in an opened sum. With two, each client could subtract its own update and get the other's."""
MOST_VALUES = 2**26
"""Most values in a zone, for which `check` computes the leakage that smudging leaves."""
_OF_DELTA = 1e-2
"""Largest share of delta for the distance of all openings from ideal ones, which the ledger leaves out."""
_NONCE = 16
_RELAYED_BYTES = 1 << 28
"""Bytes of letters that the server holds at once in the set-up. With a thousand clients, all of them are 54 GB."""


@functools.lru_cache(maxsize=16)
def _scheme(parameters: Parameters) -> Scheme:
    return Scheme(parameters)


@functools.lru_cache(maxsize=4)
def _public_key(parameters: Parameters, joint: bytes, seed: bytes) -> list[NDArray[np.complex128]]:
    """The joint key, prepared for encryption. Made once for the clients of a process."""
    scheme = _scheme(parameters)
    (public,), (common,) = scheme.chain.unpack([joint], "the joint key"), scheme.chain.uniform(seed)
    return scheme.public_key(public, common)


def _question(chosen: Sequence[int], c1: Sequence[bytes]) -> str:
    """A digest of a set of clients and the ciphertexts that they open."""
    found = hashlib.blake2b(f"{sorted(chosen)}".encode(), digest_size=32)
    for data in c1:
        found.update(data)
    return found.hexdigest()


class ThresholdBfv(Correspondent, fedplug.Sealer):
    """Encrypt under a joint BFV key that no party holds: t of the n clients open a sum; fewer learn nothing.

    Each client has a share of the key, which is made once, before round 1. Sums are exact. Opened sums carry smudging
    noise, which hides the noise of the ciphertexts and is rounded away. Clients may drop out of a round as long as t of
    those in the sum are left to open it. Holds against an honest-but-curious server with fewer than t clients.
    """

    class Options(fedplug.Options):
        """Which clients open a sum, and how large its values can be."""

        threshold: int | float | None = Field(
            None, gt=0,
            description="t, number of clients that open a sum together: a number of at least 2, or a share of the "
            "clients below 1; default: more than half of them",
        )  # fmt: skip
        sums_visible_to: Literal["server", "clients"] = Field(
            "server", json_schema_extra={"formerly": "answer"},
            description="the party that sees opened sums: the server, which passes them on to the clients, or only the "
            "clients, for whom the sums travel under a pad that no server knows",
        )  # fmt: skip
        bits: int | None = Field(
            None, ge=12, le=48,
            description="of the sum of one value; default: up to 32, with which the most values fit into a coefficient",
        )  # fmt: skip
        range: float | None = Field(
            None, gt=0, lt=math.inf,
            description="largest magnitude of a weighted value; larger ones saturate. Default: the bound of a clip "
            "that comes before it, plus 12 standard deviations of any noise between them",
        )  # fmt: skip
        smudging_bits: int = Field(
            40, ge=10, le=64,
            description="lambda: smudging noise is 2^lambda times the bound on the noise of a sum; refused where "
            "all openings together would differ from ideal ones by more than a hundredth of delta",
        )  # fmt: skip
        degree: Literal[4096, 8192, 16384] | None = Field(
            None,
            description="of the ring; default: the smallest that holds a sum. For a large model a larger one sends "
            "fewer bytes per value",
        )

    options: Options

    @property
    def site(self) -> Site:
        """The party that reads opened sums."""
        return "server" if self.options.sums_visible_to == "server" else "client"

    @property
    def cohort_secret(self) -> bool:
        """Whether pads follow from a secret of all clients."""
        return self.options.sums_visible_to == "clients"

    # -- description ---------------------------------------------------------------------------------------------------

    def threshold(self, clients: int) -> int:
        """t for that many clients.

        Raises:
            ProtectionError: it is neither a number of clients nor a share of them.
        """
        wanted = self.options.threshold
        if wanted is None:
            return clients // 2 + 1
        if wanted >= 1 and wanted != int(wanted):
            raise ProtectionError(
                f"threshold={wanted} must be a whole number of clients, or a share of them below 1, such as 0.6"
            )
        return math.ceil(wanted * clients) if wanted < 1 else int(wanted)

    def parameters(self, clients: int) -> Parameters:
        """Parameters of the ring, for that many clients in a run.

        Raises:
            ProtectionError: no ring holds their sums.
        """
        options = self.options
        return choose(clients, self.threshold(clients), options.smudging_bits, options.bits, options.degree)

    def scheme(self, facts: Facts) -> Scheme:
        """The scheme with which the parties compute in this run."""
        return _scheme(self.parameters(facts.num_clients))

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A seal that no party opens alone.

        Raises:
            Misplaced: nothing bounds the values.
            ProtectionError: no ring holds a sum of that many clients.
        """
        parameters = self.parameters(facts.num_clients)
        bound = self.options.range or bound_of(known, self.name, "overflow")
        who = f"{parameters.threshold} of {facts.num_clients} clients open a sum"
        return (
            Seal(
                scheme=f"threshold BFV, {who}; {parameters.describe()}", opened_by="shares",
                opens_with=parameters.threshold, sums_visible_to=self.options.sums_visible_to,
                numbers=FixedPoint(bound, facts.num_clients, parameters.bits),
            ),
        )  # fmt: skip

    def check(self, recipe: Recipe) -> list[str]:
        """Obstacles to opening the sums of the recipe's clients."""
        problems = []
        if recipe.min_clients < LEAST:
            problems.append(
                f"min_clients: {recipe.min_clients} would open sums from which a client subtracts its own update and "
                f"has another's; raise it to {LEAST} or more"
            )
        try:
            parameters = self.parameters(recipe.clients)
        except ProtectionError as error:
            return [*problems, str(error)]
        if recipe.groups is not None:
            return [
                *problems,
                "groups: clients whose updates are in a sum open it, and more than half of all clients must, so of "
                "several groups one can be opened at most; write {use: secagg.bonawitz}, where the members of a group "
                "mask and open among themselves",
            ]
        rate = recipe.sampling.rate if recipe.sampling is not None else 1.0
        present, opening = rate * recipe.clients, parameters.threshold
        if 2 * opening <= present:
            problems.append(
                f"threshold={opening} is at most half of the {present:g} clients of a round, so two sets of clients "
                "without one in common could open two sums of it, whose difference could be a single update; raise it "
                f"to {math.floor(present / 2) + 1} or more"
            )
        if opening > present:
            problems.append(
                f"threshold={opening} clients open a sum, and {present:g} of {recipe.clients} take part in a round; "
                "lower threshold, or raise sampling.rate"
            )
        leak = 2 ** parameters.log2_leak(MOST_VALUES * recipe.rounds * SETS)
        if leak > _OF_DELTA * recipe.delta:
            enough = math.log2(parameters.smudge_deviation / parameters.noise * leak / (_OF_DELTA * recipe.delta))
            problems.append(
                f"smudging_bits={self.options.smudging_bits}: what {recipe.rounds} rounds open differs from the ideal "
                f"by up to {leak:.1g} in total variation, which no epsilon covers; it may be at most {_OF_DELTA:g} x "
                f"delta={recipe.delta:g}; raise smudging_bits to {math.ceil(enough)}"
            )
        return problems

    def describe(self) -> str:
        """One line for the plan of a run."""
        wanted = self.options.threshold
        who = "more than half of the clients" if wanted is None else f"{wanted:g} clients"
        if wanted is not None and wanted < 1:
            who = f"{wanted:.0%} of the clients"
        return f"threshold BFV: {who} open a sum together, under 2^{self.options.smudging_bits} of smudging"

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Quantities that the encryption leaves visible."""
        size = "the number of ciphertexts, and the number of scalars that travels with them"
        nonces = "fresh random numbers, from which the common polynomial of the key follows"
        keys = "each client's part of the joint public key, and sealed shares of its secret, which the server relays"
        taken = "who has a share of the key"
        parts = "with those of a whole set they open the sum and no upload in it; the ledger counts the sum"
        if self.options.sums_visible_to == "clients":
            parts = "with those of a whole set they are the sum under a pad that the clients know"
        return [
            Reveals("size of the encrypted zone", ("server",), note=size),
            self.correspondence(),
            *(
                Reveals(what, ("server",), covered_by="nothing to pay", asked=(asked,), note=note)
                for what, asked, note in (
                    ("nonces", "draw_nonce", nonces), ("public keys and letters", "deal", keys),
                    ("holders of shares", "take_shares", taken), ("partial decryptions", "decrypt_share", parts),
                )
            ),
        ]  # fmt: skip

    # -- the joint key -------------------------------------------------------------------------------------------------

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Has the clients make the joint key and its shares, once a run; at the server.

        Raises:
            TooFewClients: fewer clients are left than open a sum.
        """
        scheme = self.scheme(facts)
        needed = scheme.parameters.threshold
        self.introduce(cohort, facts)
        nonces = {}
        for client_id, nonce in cohort.ask(self.draw_nonce).items():
            if isinstance(nonce, bytes) and len(nonce) == _NONCE:
                nonces[client_id] = nonce
            else:
                cohort.drop(client_id, f"{self.name}: its nonce is not {_NONCE} bytes")
        self._require(len(nonces), needed, "have sent a nonce")
        everybody, dealers, holders = sorted(nonces), list[int](), set(nonces)
        joint = scheme.chain.total(())
        at_once = max(1, _RELAYED_BYTES // (len(everybody) * scheme.chain.packed))
        for start in range(0, len(everybody), at_once):
            some = everybody[start : start + at_once]
            relayed: dict[int, dict[int, bytes]] = {client_id: {} for client_id in everybody}
            dealt = self._dealt(cohort, some, nonces, scheme)
            for dealer, (public, letters) in dealt.items():
                joint = scheme.chain.plus(joint, public)
                dealers.append(dealer)
                for receiver, letter in zip(everybody, letters, strict=True):
                    relayed[receiver][dealer] = letter
            if dealt:
                holders &= set(cohort.ask_each(self.take_shares, relayed))
        # The key comes from all that dealt. A holder has added up the shares of all; a client that missed one is none.
        self._require(len(holders), needed, "have a share of the key")
        (packed,) = scheme.chain.pack(joint[None])
        cohort.tell(self.take_key, [packed, self._seed(facts, nonces), dealers])
        cohort.server.memory(self).update(holders=sorted(holders), dealers=dealers)

    def _dealt(
        self, cohort: Cohort, some: list[int], nonces: dict[int, bytes], scheme: Scheme
    ) -> dict[int, tuple[Residues, list[bytes]]]:
        """By client, its part of the key and its letters, for some clients at a time."""
        found = {}
        for dealer, given in cohort.ask_each(self.deal, dict.fromkeys(some, nonces)).items():
            try:
                public, letters = given
                (part,) = scheme.chain.unpack([public], f"the part of the key of client {dealer}")
                if len(letters) != len(nonces) or not all(isinstance(letter, bytes) for letter in letters):
                    raise MessageError(f"it did not send a letter to each of {len(nonces)} clients")
            except (MessageError, TypeError, ValueError) as error:
                cohort.drop(dealer, f"{self.name}: {error}")
            else:
                found[dealer] = (part, letters)
        return found

    def _require(self, count: int, needed: int, what: str) -> None:
        if count < needed:
            raise TooFewClients(f"set-up of {self.name}: {count} clients {what}, and {needed} open a sum")

    def _seed(self, facts: Facts, nonces: dict[int, bytes]) -> bytes:
        """The seed of the common polynomial. It follows from all nonces, so it is random if one of them is."""
        seed = hashlib.blake2b(f"{facts.digest} {self.name}".encode(), digest_size=16)
        for client_id, nonce in sorted(nonces.items()):
            seed.update(client_id.to_bytes(8, "big") + nonce)
        return seed.digest()

    @at_client
    def draw_nonce(self, client: Client) -> bytes:
        """A nonce for the common polynomial. Also draws the secret from which this client's smudging noise follows."""
        memory = client.memory(self)
        if memory.get("dealt"):
            raise ProtectionError(f"client {client.client_id} has dealt shares of its secret, and draws no other nonce")
        memory.update(nonce=secrets.draw()[:_NONCE], noise=secrets.draw(), dealt=False)
        nonce: bytes = memory["nonce"]
        return nonce

    @at_client
    def deal(self, client: Client, nonces: dict[int, bytes]) -> list[Any]:
        """Draws a secret. Returns its part of the joint key and letters with its shares, ascending by receiver.

        Raises:
            ProtectionError: its own nonce is missing, there are too few clients, or it has dealt before.
        """
        memory, me = client.memory(self), client.client_id
        scheme = self.scheme(client.facts)
        if nonces.get(me) != memory.get("nonce") or memory["dealt"]:
            raise ProtectionError(f"client {me} deals shares of a secret once, for nonces with its own among them")
        (common,) = scheme.chain.uniform(self._seed(client.facts, nonces))
        holders = sorted(nonces)
        with client.operation(f"{self.name}.deal", len(holders)):
            public, shares = scheme.contribution(common, holders)
        memory["dealt"] = True
        contents = dict(zip(holders, scheme.chain.pack(shares), strict=True))
        (packed,) = scheme.chain.pack(public[None])
        return [packed, list(self.write_letters(client, contents, "shares").values())]

    @at_client
    def take_shares(self, client: Client, letters: dict[int, bytes]) -> bool:
        """Adds up shares from some dealers. The shares of all dealers give this client's share of the joint key.

        Raises:
            MessageError: a letter does not open, or holds no share.
            ProtectionError: it has the joint key already, or a share from one of these dealers.
        """
        memory, scheme = client.memory(self), self.scheme(client.facts)
        before: list[int] = memory.get("dealers", [])
        if "key" in memory or not {*before}.isdisjoint(letters):
            raise ProtectionError(f"client {client.client_id} has a share of the key already; keys stay as they are")
        contents = self.read_letters(client, letters, "shares")
        parts = [memory["share"]] if "share" in memory else []
        parts += contents.values()
        share = scheme.chain.total(scheme.chain.unpack(parts, "shares of the key"))
        (memory["share"],) = scheme.chain.pack(share[None])
        memory["dealers"] = [*before, *sorted(letters)]
        return True

    @at_client
    def take_key(self, client: Client, key: tuple[bytes, bytes, list[int]]) -> None:
        """Keeps the joint public key. A client without a share from every dealer encrypts, but opens nothing.

        Raises:
            ProtectionError: it has another key.
        """
        joint, seed, dealers = key
        memory = client.memory(self)
        if memory.setdefault("key", [joint, seed]) != [joint, seed]:
            raise ProtectionError(f"client {client.client_id} has another joint key already; keys stay as they are")
        if memory.get("dealers", []) != dealers:
            memory.pop("share", None)
            memory["dealers"] = dealers

    # -- uploads -------------------------------------------------------------------------------------------------------

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Encrypts under the joint key.

        Raises:
            ProtectionError: there are too many values, or there is no key.
        """
        if len(words.values) > MOST_VALUES:
            raise ProtectionError(
                f"zone {words.zone} has {len(words.values)} scalars, and the leakage under smudging was computed for "
                f"{MOST_VALUES}; encrypt a part of the model"
            )
        scheme = self.scheme(facts)
        key = self._key(client, scheme)
        with client.operation(f"{self.name}.encrypt", scheme.count(len(words.values))):
            pairs = scheme.encrypt(key, words.values)
        return Sealed(scheme.pack_pairs(pairs))

    def _key(self, client: Client, scheme: Scheme) -> list[NDArray[np.complex128]]:
        memory = client.memory(self)
        if "key" not in memory:
            raise ProtectionError(f"{self.name}: client {client.client_id} has no key; it was not there in the set-up")
        joint, seed = memory["key"]
        return _public_key(scheme.parameters, joint, seed)

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """Adds ciphertexts modulo q.

        Raises:
            MessageError: some cannot be read.
        """
        scheme = self.scheme(facts)
        pairs = (self._pairs(upload, scheme) for upload in uploads)
        return scheme.pack_pairs(scheme.chain.total(pairs, (scheme.count(uploads[0].size), 2)))

    def _pairs(self, total: Total, scheme: Scheme) -> Residues:
        """The ciphertexts of an upload, or of a sum.

        Raises:
            MessageError: they are not as many as its values take, or not of this ring.
        """
        if len(total.parts) != scheme.count(total.size):
            raise MessageError(
                f"{len(total.parts)} ciphertexts for {total.size} values, expected {scheme.count(total.size)}"
            )
        return scheme.unpack_pairs(total.parts, f"ciphertexts of the {total.zone} zone")

    # -- the sum -------------------------------------------------------------------------------------------------------

    def gather(self, total: Total, server: Server, facts: Facts) -> Total:
        """Has t clients open the sum. At the server, it stays closed under a pad.

        Raises:
            TooFewClients: fewer than t of the clients in the sum are left.
        """
        phases, question = self._phases(total, server, facts)
        return total.replace(parts=tuple(self.scheme(facts).chain.pack(phases)), gathered=question)

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        """Has t clients open the sum, at the server; or reads the sum they opened, at a client.

        Raises:
            TooFewClients: fewer than t of the clients in the sum are left.
            ProtectionError: their parts do not open it.
        """
        scheme, question = self.scheme(facts), total.gathered
        if not isinstance(party, Client):
            phases, _ = self._phases(total, party, facts)
        elif isinstance(question, str):
            phases = scheme.chain.unpack(list(total.parts), f"the opened {total.zone} sum")
            if len(phases):
                pad = party.secret(self, "answer", facts.round, total.zone, question)[:16]
                phases = scheme.chain.minus(phases, scheme.chain.uniform(pad, len(phases)))
        else:
            raise ProtectionError(f"the {total.zone} sum was not opened by clients for {self.name}")
        with party.operation(f"{self.name}.open", len(phases)):
            return Opened(scheme.read(phases, total.size))

    def _phases(self, total: Total, server: Any, facts: Facts) -> tuple[Residues, str]:
        """c0 + s c1 of a sum, or that plus a pad, and the origin of the pad."""
        scheme = self.scheme(facts)
        pairs = self._pairs(total, scheme)
        if not len(pairs):
            return pairs[:, 0], ""
        c1 = scheme.chain.pack(pairs[:, 1])
        chosen, parts = self._parts(total, c1, scheme, server, facts)
        return functools.reduce(scheme.chain.plus, parts, pairs[:, 0]), _question(chosen, c1)

    def _parts(
        self, total: Total, c1: list[bytes], scheme: Scheme, server: Any, facts: Facts
    ) -> tuple[list[int], list[Residues]]:
        """Parts of an opening by one set of clients, the first set that answers completely; and that set."""
        cohort, needed = server.cohort, scheme.parameters.threshold
        inside = sorted(total.clients)
        holders = [c for c in server.memory(self).get("holders", []) if c in inside]
        holders = [*holders[facts.round % max(1, len(holders)) :], *holders[: facts.round % max(1, len(holders))]]
        for _ in range(SETS):
            left = [client_id for client_id in holders if client_id in cohort.client_ids]
            if len(left) < needed:
                raise TooFewClients(
                    f"round {facts.round + 1}: {len(left)} of the clients in the {total.zone} sum are left that have a "
                    f"share of the key, and {needed} open it"
                )
            chosen = sorted(left[:needed])
            asked = [total.zone, inside, chosen, c1]
            found = []
            for client_id, given in cohort.ask_each(self.decrypt_share, dict.fromkeys(chosen, asked)).items():
                try:
                    if not isinstance(given, list) or len(given) != len(c1):
                        raise MessageError(f"its part of the opening is not {len(c1)} polynomials")
                    found.append(scheme.chain.unpack(given, "its part of the opening"))
                except MessageError as error:
                    cohort.drop(client_id, f"{self.name}: {error}")
            if len(found) == needed:
                return chosen, found
        raise TooFewClients(
            f"round {facts.round + 1}: in each of {SETS} sets of {needed} clients one dropped out while they opened "
            f"the {total.zone} sum; a sum is not shown to more sets, since each sees it under other smudging noise"
        )

    @at_client
    def decrypt_share(self, client: Client, asked: tuple[str, list[int], list[int], list[bytes]]) -> list[bytes]:
        """This client's part of the opening of a sum, by a set of clients; the same for the same question.

        It receives the zone, the clients in the sum, those of the set, and c1 of the sum's ciphertexts.

        Raises:
            OpenedBefore: it has helped to open another sum of the round and zone.
            ProtectionError: too few updates are in the sum, the set is not valid, or there are too many sets for a sum.
        """
        zone, inside, chosen, c1 = asked
        memory, me, facts = client.memory(self), client.client_id, client.facts
        scheme = self.scheme(facts)
        self._permit(client, inside, chosen, scheme)
        if zone not in facts.links or (found := seal_of(facts.steps(zone))) is None or found[0] != self.name:
            raise ProtectionError(f"{self.name} closes no zone {shown(zone)}")
        polynomials = scheme.chain.unpack(c1, f"the {zone} sum")
        # Where clients open sums locally, those openings are noted under the zone's name.
        noted = zone if self.options.sums_visible_to == "server" else f"{zone}, by shares"
        with client.openings.once(facts.round, noted, "", sorted(inside), c1):
            question = _question(chosen, c1)
            # Each set sees the sum under other smudging noise, and more of them would average it away.
            client.openings.use(facts.round, f"smudging noise of zone {zone}", [question.encode()], SETS)
            purpose = ("opening", facts.digest, self.name, facts.round, zone, question)
            masks = {c: secrets.derive(self._shared(client, c), *purpose)[:16] for c in chosen if c != me}
            (share,) = scheme.chain.unpack([memory["share"]], "the share of the key")
            with client.operation(f"{self.name}.decrypt_share", len(c1)):
                noise = secrets.derive(memory["noise"], *purpose)
                part = scheme.partial(share, me, chosen, polynomials, noise, masks)
                if self.options.sums_visible_to == "clients" and me == min(chosen):
                    pad = client.secret(self, "answer", facts.round, zone, question)[:16]
                    part = scheme.chain.plus(part, scheme.chain.uniform(pad, len(c1)))
            return scheme.chain.pack(part)

    def _permit(self, client: Client, inside: list[int], chosen: list[int], scheme: Scheme) -> None:
        memory, me, needed = client.memory(self), client.client_id, scheme.parameters.threshold
        if "share" not in memory or "key" not in memory:
            raise ProtectionError(f"{self.name}: client {me} has no share of the key; it was not there in the set-up")
        if len(inside) < max(LEAST, client.facts.min_clients):
            raise ProtectionError(
                f"{len(inside)} clients are said to be in the sum; below {max(LEAST, client.facts.min_clients)} it "
                "shows too much of each"
            )
        if 2 * needed <= len(inside):
            raise ProtectionError(
                f"{len(inside)} clients are said to be in the sum, and {needed} open it: two sets of them without one "
                "in common could open two sums of a round; raise threshold to more than half of a round's clients"
            )
        if len({*inside} & {*range(client.facts.num_clients)}) < len(inside):
            raise ProtectionError(
                f"clients {', '.join(map(str, inside))} are said to be in the sum; they must be among the "
                f"{client.facts.num_clients} of the run, each named once"
            )
        if len(set(chosen)) != needed or len(chosen) != needed or me not in chosen or not {*chosen} <= {*inside}:
            raise ProtectionError(
                f"clients {', '.join(map(str, chosen))} are to open the sum; they must be {needed} of those in it, and "
                f"client {me} among them"
            )

    def open_upload(self, upload: Total, parties: Sequence[Party], facts: Facts) -> Opened | None:
        """One upload, opened with the secret key that t clients among the parties reconstruct from their shares."""
        clients = [party for party in parties if isinstance(party, Client) and "share" in party.memory(self)]
        scheme = self.scheme(facts)
        if len(clients) < (needed := scheme.parameters.threshold):
            return None
        packed = {client.client_id: client.memory(self)["share"] for client in clients[:needed]}
        shares = scheme.chain.unpack(list(packed.values()), "shares of the key")
        secret = scheme.secret(dict(zip(packed, shares, strict=True)))
        return Opened(scheme.decrypt(secret, self._pairs(upload, scheme), upload.size))
