"""SecAgg (Bonawitz et al., CCS 2017): every client exchanges masks with every other client."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug import Field, File
from fedplug.api.errors import ProtectionError, SetupError
from fedplug_std.letters import read_signers

from fedplug_secagg.graph import Parameters
from fedplug_secagg.masked import Masked, MaskOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedplug import Facts, Recipe


class Bonawitz(Masked):
    """Mask updates so that masks cancel in the sum; no party holds a key, and clients may drop out (SecAgg).

    Every client exchanges masks and shares with all others: O(n) work per client, O(n^2) at the server. The shares of
    `threshold` clients remove the masks of a sum. Holds against an honest-but-curious server that colludes with fewer
    clients than that. With `signed: true` clients sign their keys and the list of clients in the sum. That holds
    against a server that lies and colludes with less than a third of the clients.
    """

    class Options(MaskOptions):
        """Options of `secagg.bonawitz`."""

        threshold: int | None = Field(
            None, ge=2,
            description="t, number of clients whose shares open; default: more than half of the clients, and more than "
            "two thirds where keys are signed",
        )  # fmt: skip
        signed: bool = Field(
            False,
            description="clients sign their public keys and, before they open a sum, the list of clients in it: a "
            "server that substitutes its own keys, or tells clients different things, gets no shares",
        )
        signers: File | None = Field(
            None,
            description="list of all clients' signing keys, lines such as client:0 ssh-ed25519 AAAA...; default: keys "
            "made in the run and introduced by the server, which is trusted with that",
        )

    options: Options

    def parameters(self, clients: int) -> Parameters:
        """The complete graph, and the threshold of the recipe.

        Raises:
            ProtectionError: no such sharing exists.
        """
        signed = self.options.signed
        threshold = self.options.threshold or (2 * clients // 3 if signed else clients // 2) + 1
        if signed and 3 * threshold <= 2 * clients:
            raise ProtectionError(
                f"threshold={threshold} must be more than two thirds of the {clients} clients where keys are signed: "
                "with fewer, two different lists of who is in the sum could have enough signatures; "
                f"{2 * clients // 3 + 1} is the least"
            )
        if not 2 <= threshold < clients:
            raise ProtectionError(
                f"threshold={threshold} must be at least 2 and below the number of clients, {clients}: every client "
                "deals a share to each of the others"
            )
        return Parameters(clients, clients - 1, threshold, -math.inf, -math.inf)

    def stated(self, facts: Facts) -> int:
        """The recipe's threshold, or more than half of the smallest cohort that a round may have."""
        return self.options.threshold or super().stated(facts)

    def signers(self) -> Mapping[int, bytes] | None:
        """The keys of the list, those of the run, or none."""
        if not self.options.signed:
            return None
        file = self.options.signers
        return {} if file is None else read_signers(file.read(), file.file)

    def smallest(self, facts: Facts) -> int:
        """The fewest clients of any graph in the run. Of three, more than two thirds are all."""
        return max(4, super().smallest(facts)) if self.options.signed else super().smallest(facts)

    def against(self, facts: Facts) -> str:
        """States that the server may lie, and with how many clients: 2 t > n + c in every graph of a round."""
        if not self.options.signed:
            return ""
        sizes = range(self.smallest(facts), facts.num_clients + 1)
        most = min(2 * max(self.parameters(size).threshold, self.stated(facts)) - size - 1 for size in sizes)
        clients = f"{most} client{'s' if most > 1 else ''}"
        if self.options.signers is None:
            return (
                f"; signed, against a server that lies with up to {clients}, but keys were introduced by the "
                "server: that rests on its having introduced the right ones"
            )
        return f"; signed by the keys that all sites know, against a server that lies with up to {clients}"

    def check(self, recipe: Recipe) -> list[str]:
        """Obstacles: a list of keys that does not match, or groups too small for their shares to open."""
        options, problems = self.options, super().check(recipe)
        threshold, least = options.threshold, recipe.min_clients
        if recipe.groups is not None and threshold is not None and threshold >= least:
            problems.append(
                f"threshold: {threshold} opens no sum of a group of min_clients: {least}, whose members "
                f"have {least - 1} others each; lower threshold to {least - 1} or less, or "
                "raise min_clients, and the size of the groups with it"
            )
        if options.signed and least == 3:
            problems.append("min_clients: 3 must be 4 or more where keys are signed: of 3, shares of all would open")
        return [*problems, *self._of_the_list(recipe.clients)]

    def _of_the_list(self, clients: int) -> list[str]:
        """Problems with the list of keys."""
        file = self.options.signers
        if file is None:
            return []
        if not self.options.signed:
            return ["signers: names keys that nobody signs with; say signed: true as well, or leave it out"]
        try:
            listed = sorted(read_signers(file.read(), file.file))
        except SetupError as error:
            return [f"signers: {error}"]
        if listed == list(range(clients)):
            return []
        missing = next((c for c in range(clients) if c not in listed), None)
        what = f"client {listed[-1]} of {clients}" if missing is None else f"no client {missing}"
        return [f"signers: {file.file} names {what}; it must name each client once"]

    def scheme(self, clients: int) -> str:
        """Its parameters in one line."""
        threshold = self.parameters(clients).threshold
        return f"masks modulo 2^{self.options.bits} between all {clients} clients; shares of {threshold} open a sum"

    def describe(self) -> str:
        """One line for the plan of a run."""
        opens = (
            f"more than {'two thirds' if self.options.signed else 'half'} of the clients"
            if self.options.threshold is None
            else f"{self.options.threshold} clients"
        )
        file = self.options.signers
        by = "that the server introduces" if file is None else f"of {file.file}"
        signed = f", signed by keys {by}" if self.options.signed else ""
        return f"SecAgg: masks between all clients, modulo 2^{self.options.bits}{signed}; shares of {opens} open a sum"
