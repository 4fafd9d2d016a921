"""Secure aggregation by Learning With Errors whose error is the noise of differential privacy (Stevens et al.).

Stevens, Skalka, Vincent, Ring, Clark and Near, "Efficient Differentially Private Secure Aggregation for Federated
Learning via Hardness of Learning with Errors" (USENIX Security 2022, arXiv:2112.06872); code of the group:
uvm-plaid/olympia, agent/Stevens.py (length of the secret, modulus, packed shares). That code masks with A s alone and
adds no error e. Then anyone can solve for s, and the sum has no noise. Here the error is always present.

    client    draws s uniform in Z_q^n and Gaussian e, sends h = A s + e + g mod q and a sealed share of s per client
    server    adds up the h, hands each client whose update is in the sum its sealed shares of those clients
    client    opens them, adds them up, answers with the sum, for one set of `min_clients` dealers or more a round
    server    opens sum s from `threshold` answers; sum h - A sum s = sum g + sum e

A server that deviates from this protocol can do more: it relays the clients' public keys, and could put its own in
their place. As everywhere here, it is assumed honest but curious.
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import TYPE_CHECKING, Any, cast

import fedplug
import numpy as np
from fedplug import (
    Client,
    Facts,
    Field,
    Known,
    Misplaced,
    Noise,
    Opened,
    Operations,
    Reveals,
    Round,
    Seal,
    Sealed,
    at_client,
)
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug_std.gaussian import CLIP_FIRST, NoiseOptions
from fedplug_std.letters import SEALED, Correspondent
from fedplug_std.options import PowerOfTwo
from fedplug_std.shamir import Sharing

from fedplug_baselines.lwe_field import Q, centred, keystream, masks, residues, uniform
from fedplug_baselines.lwe_numbers import Steps, step_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug import Cohort, KeyServerLine, Party, Recipe, Server, Total, Words
    from numpy.typing import NDArray


class Lwe(Correspondent, fedplug.Sealer):
    """Mask updates with LWE samples whose errors add up to the noise; clients' secret shares open the sum (Stevens).

    No party holds a key. The error of each client is its part of the noise: `shared_by` clients together have the
    strength that `epsilon` or `noise_multiplier` asks for. Weights must be uniform, and all clients must protect the
    same positions. We do not estimate here how hard the LWE instance is (n, q = 2^31 - 1, errors of at least 2^15, as
    many samples as values).
    """

    class Options(NoiseOptions):
        """How much noise, how long the secret is, and how many clients open a sum."""

        noise_multiplier: float | None = Field(
            None, gt=0, lt=math.inf,
            description="standard deviation over clipping norm of the noise of `shared_by` clients together, in the "
            "first round; instead of epsilon and delta",
        )  # fmt: skip
        grid: PowerOfTwo = Field(
            None, gt=0, lt=math.inf,
            description="value of an integer 1, a power of two; default: the finest with which no sum can wrap",
        )  # fmt: skip
        shared_by: int | None = Field(
            None, ge=1,
            description="number of clients whose noise together gives epsilon; default: one fewer than the smallest "
            "sum that is opened has, since a participant knows its own noise; 1: the noise of each client is enough by "
            "itself",
        )  # fmt: skip
        dimension: int = Field(710, ge=512, le=8192, description="n, the length of the LWE secret; the authors: 710")
        threshold: int | None = Field(
            None, ge=2,
            description="number of clients whose shares open a sum; default: more than half of them, so that no two "
            "sets of clients open sums that differ in one update",
        )  # fmt: skip
        packing: int = Field(
            1, ge=1,
            description="elements of the secret per polynomial: messages shrink by this factor, and threshold - "
            "packing clients together with the server still learn nothing about an upload",
        )  # fmt: skip

        def sharing(self, num_clients: int) -> Sharing:
            """How secrets are shared among the clients of the run.

            Raises:
                ProtectionError: there are too few clients for such a sharing.
            """
            return Sharing(Q, self.threshold or num_clients // 2 + 1, self.packing).among(num_clients)

        @property
        def share_length(self) -> int:
            """Residues in one share."""
            return -(-self.dimension // self.packing)

        def of_one(self, round: int, rounds: int, num_clients: int, min_clients: int) -> float:
            """Noise multiplier of one client: `shared_by` clients together have the multiplier of the options."""
            least = max(min_clients, self.sharing(num_clients).threshold)
            return self.multiplier(round, rounds) / math.sqrt(self.shared_by or max(1, least - 1))

    site = "server"
    options: Options

    # -- description ---------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """One line for the plan of a run."""
        return f"{self.scheme()}; errors: {self.options.words()}, by several clients together"

    def scheme(self) -> str:
        """Its parameters in one line."""
        options = self.options
        shares = "more than half" if options.threshold is None else f"{options.threshold}"
        return f"LWE masks, n={options.dimension}, q=2^31-1; shares of {shares} of the clients open a sum"

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Whole steps g, the error e as noise calibrated for the sum, and a mask that only many clients can open.

        Rounding is towards zero, so it lengthens nothing. It is exact: a float32 that is cut off at a power of two is
        a float32. Sums of all clients do not wrap (`lwe_numbers`).

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or clients have weights.
            ProtectionError: no such sharing exists, or the noise does not fit the modulus.
        """
        known.before("noise", "its error is the noise of the zone; keep one of the two")
        adding = [link.component for link in facts.links.get(known.zone, ()) if link.hook == "aggregate"]
        if any(aggregator.wants.num_examples for aggregator in adding):
            remedy = "write aggregate: {use: std.mean, weighting: uniform}"
            raise Misplaced(f"{self.name}: masked updates cannot be weighted; {remedy}")
        bound, zone = known.need_norm(CLIP_FIRST), known.zone
        least = facts.num_clients, facts.min_clients
        std = self.options.of_one(facts.turn(zone), facts.times(zone), *least) * bound
        step = step_of(bound, std, facts.num_clients, self.options.grid) if math.isfinite(bound) else 0.0
        error = Noise.gaussian(
            std, source=self.options.source, grid=step or None, trust="distributed",
            calibrated_delta=self.options.delta,
            note="the part of one client; it is also the error of the LWE samples that hide the upload",
        )  # fmt: skip
        sharing = self.options.sharing(facts.num_clients)
        # `threshold` shares open a sum. Part of the packed secrets may follow from fewer, down to this number.
        fewest = sharing.threshold - sharing.packing + 1
        numbers = Steps(step, facts.num_clients)
        seal = Seal(scheme=self.scheme(), opened_by="shares", opens_with=fewest, numbers=numbers)
        # While no model is known, a bound of each value bounds no norm yet, and there is no step.
        return (Round(step, toward_zero=True), error, seal) if step else (error, seal)

    def check(self, recipe: Recipe) -> list[str]:
        """Obstacles to opening the sum of that many clients. Its sharing is known to work."""
        problems, options = [], self.options
        if recipe.min_clients < 2:
            problems.append("min_clients: 1 would open single updates; raise it to 2 or more")
        sharing = options.sharing(recipe.clients)
        some = "sampling" if recipe.sampling else "groups" if recipe.groups else ""
        if some and sharing.threshold > recipe.min_clients:
            problems.append(
                f"threshold={sharing.threshold} is more than the min_clients={recipe.min_clients} that a sum may have "
                f"with {some}, and only clients in the sum are asked for shares; lower threshold, or raise min_clients"
            )
        if options.shared_by is not None and options.shared_by >= recipe.clients:
            problems.append(
                f"shared_by={options.shared_by} must be below the number of clients, {recipe.clients}: a participant "
                "knows its own noise"
            )
        return problems

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Quantities that the masks leave visible."""
        size = "the number of scalars follows from the length of an upload"
        shares = "of fresh secrets: they open the sum, whose noise the ledger counts, and no upload in it"
        return [
            Reveals("size of the encrypted zone", ("server",), note=size),
            self.correspondence(),
            Reveals("sums of shares", ("server",), covered_by="epsilon", asked=("sum_of_shares",), note=shares),
        ]

    def _seed(self, facts: Facts, zone: str) -> bytes:
        """The seed of the public matrix A: a different one for each round and zone, which no party chooses."""
        return hashlib.blake2b(f"{facts.digest} {self.name} {zone} {facts.round}".encode(), digest_size=32).digest()

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Has every client make a key pair, under which the others send it their shares."""
        self.introduce(cohort, facts)

    # -- a round -------------------------------------------------------------------------------------------------------

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """h = A s + (e + g) mod q, and a share of s for every client."""
        size, options = len(words.values), self.options
        s = uniform(keystream(os.urandom(32)), options.dimension)  # used once, never stored
        with client.operation(f"{self.name}.mask", size):
            h = (masks(self._seed(facts, words.zone), size, s) + residues(words.values)) % Q
        packed = np.zeros((options.packing, options.share_length), np.uint64)
        packed.reshape(-1)[: len(s)] = s
        shares = options.sharing(facts.num_clients).deal(packed, range(facts.num_clients)).astype("<u4")
        contents = {receiver: share.tobytes() for receiver, share in enumerate(shares)}
        return Sealed((h.astype("<u4").tobytes(),), self.write_letters(client, contents, words.zone))

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """Adds masked updates modulo q.

        Raises:
            MessageError: an upload does not hold so many residues, or not a sealed share for each client.
        """
        total = np.zeros(uploads[0].size, np.uint64)
        for upload in uploads:
            total += self._residues(upload, facts)
        return ((total % Q).astype("<u4").tobytes(),)

    def _residues(self, upload: Total, facts: Facts) -> NDArray[np.uint32]:
        """The masked values of an upload.

        Raises:
            MessageError: they are not so many residues modulo 2^31 - 1, or there is no sealed share for each client.
        """
        if [len(data) for data in upload.parts] != [4 * upload.size]:
            raise MessageError(f"its {upload.zone} block does not hold {upload.size} masked values")
        masked = np.frombuffer(upload.parts[0], "<u4")
        if int(masked.max(initial=0)) >= Q:
            raise MessageError(f"its {upload.zone} block holds a number that is not a residue modulo 2^31 - 1")
        if set(upload.letters) != set(range(facts.num_clients)):
            raise MessageError("it sent no sealed share for each client")
        length = 4 * self.options.share_length + SEALED
        if any(len(share) != length for letters in upload.letters.values() for share in letters.values()):
            raise MessageError(f"its sealed shares are not of {length} bytes each")
        return masked

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        """sum g + sum e = sum h - A sum s, with sum s from the shares of the clients whose updates are in the sum.

        Raises:
            TooFewClients: fewer than `threshold` of them answer.
            ProtectionError: the shares do not belong together.
        """
        sharing = self.options.sharing(facts.num_clients)
        answers = self._answers(total, cast("Server", party))
        if len(answers) < sharing.threshold:
            raise TooFewClients(
                f"round {facts.round + 1}: {len(answers)} of the {total.counts} clients whose updates are in the "
                f"{total.zone} sum answered with their shares; threshold={sharing.threshold} are needed to open it"
            )
        return self._unmasked(total, sharing.open(answers), party, facts)

    def _answers(self, total: Total, server: Server) -> dict[int, NDArray[Any]]:
        """Replies of the clients whose updates are in a sum. Each client receives only its own shares.

        A round continues with fewer replies than uploads if the shares are enough.
        """
        cohort, length = server.cohort, self.options.share_length
        assert cohort is not None  # while a sum is opened
        found: dict[int, NDArray[Any]] = {}
        questions: dict[int, Any] = {c: [total.zone, dict(total.letters[c])] for c in cohort.client_ids}
        for client_id, answer in cohort.ask_each(self.sum_of_shares, questions).items():
            if isinstance(answer, np.ndarray) and answer.dtype == np.uint32 and answer.shape == (length,):
                found[client_id] = answer
            else:
                cohort.drop(client_id, f"its sum of shares is not {length} residues")
        return found

    def open_upload(self, upload: Total, parties: Sequence[Party], facts: Facts) -> Opened | None:
        """One upload, opened with the shares of its secret that clients among the parties received."""
        (sender,), sharing = upload.clients, self.options.sharing(facts.num_clients)
        shares = {
            client.client_id: np.frombuffer(
                self.read_letters(client, dict(upload.letters[client.client_id]), upload.zone)[sender], "<u4"
            )
            for client in parties if isinstance(client, Client)
        }  # fmt: skip
        if not shares or len(shares) < sharing.threshold:
            return None
        return self._unmasked(upload, sharing.open(shares), parties[0], facts)

    def _unmasked(self, total: Total, packed: NDArray[np.uint64], party: Party, facts: Facts) -> Opened:
        """Masked values without the mask that a secret makes."""
        s = packed.reshape(-1)[: self.options.dimension]
        with party.operation(f"{self.name}.unmask", total.size):
            masked = np.frombuffer(total.parts[0], "<u4").astype(np.uint64)
            return Opened(centred((masked + Q - masks(self._seed(facts, total.zone), total.size, s)) % Q))

    @at_client
    def sum_of_shares(self, client: Client, asked: tuple[str, dict[int, bytes]]) -> NDArray[np.uint32]:
        """The sum of this client's shares of the dealers' secrets, residues of shape (length,).

        The server asks for a zone and hands over the sealed shares by dealer.

        A client answers for one set of shares a round, even after a restart. Two sums over sets of dealers that differ
        in one dealer would reveal the share of that dealer.

        Raises:
            OpenedBefore: the client has answered for other shares.
            ProtectionError: too few dealers are named.
            MessageError: a box does not open, or holds no share.
        """
        (zone, boxes), facts = asked, client.facts
        if len(boxes) < max(2, facts.min_clients) or not set(boxes) <= set(range(facts.num_clients)):
            raise ProtectionError(
                f"shares of {len(boxes)} clients were asked for; opening fewer than min_clients={facts.min_clients} "
                "would show too much of each"
            )
        total = np.zeros(self.options.share_length, np.uint64)
        # Whatever groups the server names, a client is in one group.
        with client.openings.once(facts.round, zone, "", boxes, (boxes[dealer] for dealer in sorted(boxes))):
            for dealer, content in self.read_letters(client, boxes, zone).items():
                share = np.frombuffer(content, "<u4")
                if share.shape != total.shape:
                    raise MessageError(f"client {dealer} dealt {len(share)} numbers as a share, expected {len(total)}")
                total += share
        return (total % Q).astype(np.uint32)
