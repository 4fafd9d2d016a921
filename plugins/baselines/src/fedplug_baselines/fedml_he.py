"""FedML-HE's mask: the clients' sensitivity maps are averaged under encryption, and the highest share is encrypted.

Jin et al., "FedML-HE: An Efficient Homomorphic-Encryption-Based Privacy-Preserving Federated Learning System"
(arXiv:2303.10837): M = Select(sum_i alpha_i [S_i], p), once before the training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    Closing,
    Cohort,
    Facts,
    Field,
    KeyServer,
    Reveals,
    Scorer,
    Seal,
    at_client,
    at_key_server,
)  # fmt: skip
from fedplug.api.blocks import CLEAR, ENCRYPTED
from fedplug.api.errors import ProtectionError
from fedplug.api.links import seal_of
from fedplug.mechanisms.closing import require_enough
from fedplug_std import he_keys
from fedplug_std.options import OtherZone
from fedplug_std.replies import unpacked, valid
from fedplug_std.scores import count_of, highest, scorer_problems

from fedplug_baselines import masks

if TYPE_CHECKING:
    from fedplug import KeyServerLine, Recipe
    from numpy.typing import NDArray


class FedMLHE(masks.ScoredShare):
    """Encrypt the share of the model with the highest average sensitivity over the clients (FedML-HE).

    Before round 1 every client encrypts its map of scores, and the server adds the maps, weighted as updates are. The
    key holder opens the sum and takes its `ratio` P highest scalars as the mask of the whole run. No party sees another
    client's map. Where the key server holds the key, no other party sees the sum.

    To fit what the encryption can hold, scores are scaled by the largest score of any client, which each client
    states.
    """

    class Options(fedplug.Options):
        """How much to encrypt, by which scores, through which encryption."""

        ratio: float = Field(0.1, ge=0, le=1, description="p, the share of the model that is encrypted")
        by: str | None = Field(None, description="scorer that gives the maps; the recipe's first if unset")
        cipher: str | None = Field(
            None, description="encryption that protects the maps; default: the one of the encrypted zone"
        )
        other_zone: OtherZone = CLEAR

    def check(self, recipe: Recipe) -> list[str]:
        """Something must score the scalars, and something must encrypt the scores."""
        if len(self.plans.zones) == 1:  # nothing to choose
            return []
        remedy = "the mask follows from scores; add score_parameters: [{use: baselines.fedml_he_sensitivity}]"
        problems = scorer_problems(recipe, self.options.by, remedy)
        chains = {zone: [use.name for use in chain] for zone, chain in recipe.protect.items()}
        names = [name for chain in chains.values() for name in chain]
        if self.options.cipher is not None and self.options.cipher not in names:
            problems.append(f"cipher: {self.options.cipher!r} protects no zone of this recipe; under protect: {names}")
        sealed = sorted({chain[-1] for zone, chain in chains.items() if chain and recipe.postprocess.get(zone)})
        if self.options.cipher is None and len(sealed) > 1:
            problems.append(f"{len(sealed)} components may encrypt the maps; write cipher: {sealed[0]}, or another")
        cipher = self.options.cipher or next(iter(sealed), None)
        sealing = [use for chain in recipe.protect.values() for use in chain if use.name == cipher]
        if sealing and not isinstance(sealing[0].options, he_keys.Options):
            problems.append(f"{cipher} cannot encrypt the maps, since nobody holds its key; write {{use: std.bfv}}")
        return problems

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """The agreement on the mask: maps in, added under encryption, mask out. The keys exist already.

        Raises:
            ProtectionError: no component encrypts, or several can, or a client's map cannot be added.
        """
        if len(self.plans.zones) == 1:
            return
        closing, seal = self._closing(facts)
        peaks = valid(cohort, cohort.ask(self.peak), peak_problem)  # runs at every client
        maps = cohort.ask(self.encrypt, max(peaks.values()))
        for client_id, block in maps.items():
            if not isinstance(block, Block) or block.size != facts.layout.size or block.positions is not None:
                raise ProtectionError(
                    f"client {client_id} sent something else than a map of {facts.layout.size} scores; start again"
                )
        total = closing.add(maps, cohort.server.weights, cohort.server)  # runs here, on ciphertexts
        if seal.opened_by == "clients":
            cohort.tell(self.open, total, sorted(maps))
        else:
            cohort.tell(self.learn, key_server.ask(self.select, total, sorted(maps)))

    @at_client
    def peak(self, client: Client) -> float:
        """The largest score of this client's map."""
        return float(self._map(client).max())

    @at_client
    def encrypt(self, client: Client, scale: float) -> Block:
        """This client's map [S_i], alpha_i multiplied in by the encryption, on the scale of all clients."""
        scores, (closing, seal) = self._map(client), self._closing(client.facts)
        # Weights are at most 1, so nothing saturates. One part in a million less, because float32 may round up.
        largest = seal.range * (1 - 1e-6)
        values = (scores * np.float64(largest / scale if scale > 0 else 1.0)).astype(np.float32)
        return closing.close(Block(closing.link.zone, len(values), values), client)

    @at_key_server
    def select(self, key_server: KeyServer, total: Block, senders: list[int]) -> NDArray[np.uint8]:
        """Where the key server holds the key: opens the sum and returns only the mask, packed.

        Refuses sums of fewer than `min_clients` maps.
        """
        return self._selected(total, senders, key_server)

    @at_client
    def open(self, client: Client, total: Block, senders: list[int]) -> None:
        """Where every client holds the key: opens the sum. All find the same mask."""
        client.memory(self)["mask"] = self._selected(total, senders, client)

    @at_client
    def learn(self, client: Client, mask: NDArray[np.uint8]) -> None:
        """Where the key server holds the key: keeps the mask that it found."""
        client.memory(self)["mask"] = mask

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Asks nothing: the mask of the set-up holds in every round."""
        cohort.tell(self.adopt)

    @at_client
    def adopt(self, client: Client) -> None:
        """Sets this round's plan, the same at every client."""
        size, zones = client.facts.layout.size, self.plans.zones
        if len(zones) == 1:
            encrypted = np.full(size, ENCRYPTED in zones)
        else:
            encrypted = unpacked(client.memory(self)["mask"], size)
        masks.adopt(client, encrypted, self.options.other_zone)

    def _map(self, client: Client) -> NDArray[np.float32]:
        """The scorer's map. No client has trained yet, so the scorer must work without an update."""
        scorers = {name: part for name, part in client.facts.components.items() if isinstance(part, Scorer)}
        scorer = scorers[self.options.by or next(iter(scorers))]
        return masks.spread(scorer.score_parameters(client, client.facts), client.facts.layout)

    def _selected(self, total: Block, senders: list[int], party: Client | KeyServer) -> NDArray[np.uint8]:
        """Select(sum_i alpha_i S_i, p): the packed mask of the `ratio` P highest; of equal ones the first.

        Raises:
            OpenedBefore: the party has opened another sum of maps before.
            ProtectionError: too few maps are in it.
        """
        closing, _ = self._closing(party.facts)
        require_enough(total, party.facts)
        with party.openings.once(0, _MAPS, "", senders, total.ciphertexts):
            return select(closing.open(total, senders, party).mean(), self.options.ratio)

    def _closing(self, facts: Facts) -> tuple[Closing, Seal]:
        """How the maps are closed.

        Raises:
            ProtectionError: no component encrypts, or several can, or no party holds the key.
        """
        by_zone = {zone: seal_of(facts.steps(zone)) for zone in facts.links}
        seals = {
            found[0]: (zone, found[1])
            for zone, found in by_zone.items() if found and self.options.cipher in (None, found[0])
        }  # fmt: skip
        if len(seals) != 1:
            raise ProtectionError(
                f"{self.name} finds {len(seals)} components that encrypt, must be 1; name the one to use: cipher: ..."
            )
        ((name, (zone, seal)),) = seals.items()
        if seal.opened_by == "shares":
            raise ProtectionError(f"{name} cannot encrypt the maps, since nobody holds its key; write {{use: std.bfv}}")
        return Closing.of(zone, facts), seal

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the agreement on the mask reveals, and to which party."""
        if len(self.plans.zones) == 1:
            return []
        peaks = "each client's, to bring the maps to one scale; clients are told the largest of all"
        found = [
            Reveals("largest sensitivity", ("server", "client"), asked=("peak",), note=peaks),
            Reveals("mask", ("client",), note="it follows from the clients' data; every client knows it"),
        ]
        if self._closing(facts)[1].opened_by == "clients":
            note = "every client opens the clients' averaged sensitivity map"
            single = "all clients hold the one secret key; a client with another's map in hand opens it"
            return [
                *found,
                Reveals("sensitivity map", ("client",), asked=("encrypt",), note=note),
                Reveals("sensitivity map of one client", ("client_and_server",), voids=True, note=single),
            ]
        note = "the key server opens the averaged sensitivity map and tells the aggregation server the mask"
        return [
            *found,
            Reveals("sensitivity map", ("key_holder",), asked=("encrypt",), note=note),
            Reveals("mask", ("server",), asked=("select",), note="the key server tells it"),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        share = f"{self.options.ratio:.1%} with the highest averaged sensitivity"
        return f"{share} encrypted, the rest {self.options.other_zone}"


_MAPS = "FedML-HE maps"
"""The sum of a run's maps, among those that a party notes by zone."""


def select(scores: NDArray[np.float32], ratio: float) -> NDArray[np.uint8]:
    """The packed mask of the floor(ratio * P) highest scores; of equal ones the lowest indices."""
    mask = np.zeros(len(scores), np.bool_)
    mask[highest(scores, count_of(ratio, len(scores)))] = True
    return np.packbits(mask)


def peak_problem(peak: Any) -> str:
    """Why this is not the largest score of a map; empty if it is."""
    fits = isinstance(peak, float) and 0 <= peak < np.inf
    return "" if fits else f"its largest score is {peak!r}, must be a finite number >= 0"
