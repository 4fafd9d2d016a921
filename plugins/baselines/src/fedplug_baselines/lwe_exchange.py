"""Transport of secret shares: a dealer seals them, the server relays them, a receiver opens and adds them up."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.letters import SEALED, Correspondent

from fedplug_baselines.lwe_field import Q

if TYPE_CHECKING:
    from fedplug import Client, Facts, Server, Total
    from numpy.typing import NDArray

    from fedplug_baselines.lwe_options import LweOptions


class Dealing(Correspondent):
    """A component whose clients deal shares."""

    options: LweOptions

    @abc.abstractmethod
    def sum_of_shares(self, client: Client, asked: tuple[str, dict[int, bytes]]) -> NDArray[np.uint32]:
        """What the function of that name gives, at a client, for a zone and boxes by dealer."""


def seal(component: Dealing, client: Client, zone: str, shares: NDArray[np.uint32]) -> dict[int, bytes]:
    """A sealed share for each client, by its number; `shares` has one row per client. Runs at the dealer."""
    contents = {receiver: share.astype("<u4").tobytes() for receiver, share in enumerate(shares)}
    return component.write_letters(client, contents, zone)


def residues_of(component: Dealing, upload: Total, facts: Facts) -> NDArray[np.uint32]:
    """The masked values of an upload, or of a sum.

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
    length = 4 * share_length(component, facts) + SEALED
    if any(len(share) != length for letters in upload.letters.values() for share in letters.values()):
        raise MessageError(f"its sealed shares are not of {length} bytes each")
    return masked


def answers(component: Dealing, total: Total, server: Server, facts: Facts) -> dict[int, NDArray[Any]]:
    """Replies of the clients whose updates are in a sum. Each client receives only its own shares.

    Runs at the server. A round continues with fewer replies than uploads if the shares are enough.
    """
    cohort, length = server.cohort, share_length(component, facts)
    assert cohort is not None  # while a sum is opened
    found: dict[int, NDArray[Any]] = {}
    questions: dict[int, Any] = {c: [total.zone, dict(total.letters[c])] for c in cohort.client_ids}
    for client_id, answer in cohort.ask_each(component.sum_of_shares, questions).items():
        if isinstance(answer, np.ndarray) and answer.dtype == np.uint32 and answer.shape == (length,):
            found[client_id] = answer
        else:
            cohort.drop(client_id, f"its sum of shares is not {length} residues")
    return found


def sum_of_shares(component: Dealing, client: Client, zone: str, boxes: dict[int, bytes]) -> NDArray[np.uint32]:
    """The sum of this client's opened shares from all dealers; residues, shape (length,). Runs at the receiver.

    Raises:
        OpenedBefore: it has answered for other dealers or other shares in this round, even before a restart.
        ProtectionError: too few dealers are named.
        MessageError: a box does not open, or holds no share.
    """
    facts = client.facts
    if len(boxes) < max(2, facts.min_clients) or not set(boxes) <= set(range(facts.num_clients)):
        raise ProtectionError(
            f"shares of {len(boxes)} clients were asked for; opening fewer than min_clients={facts.min_clients} would "
            "show too much of each"
        )
    total = np.zeros(share_length(component, facts), np.uint64)
    # Whatever groups the server names, a client is in one group.
    with client.openings.once(facts.round, zone, "", boxes, (boxes[dealer] for dealer in sorted(boxes))):
        for dealer, content in component.read_letters(client, boxes, zone).items():
            share = np.frombuffer(content, "<u4")
            if share.shape != total.shape:
                raise MessageError(f"client {dealer} dealt {len(share)} numbers as a share, expected {len(total)}")
            total += share
    return (total % Q).astype(np.uint32)


def share_length(component: Dealing, facts: Facts) -> int:
    """Residues in one share."""
    return component.options.sharing(facts.num_clients).length(component.options.dimension)

