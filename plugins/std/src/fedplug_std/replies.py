"""Replies of clients in a negotiation: leave out those that are not as asked, read packed masks, count votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fedplug import Cohort
    from numpy.typing import NDArray

T = TypeVar("T")


def valid(cohort: Cohort, replies: dict[int, T], problem: Callable[[Any], str]) -> dict[int, T]:
    """The replies without a problem. A client that sent another one is left out of the round: it must not decide alone.

    Args:
        cohort: the clients that were asked.
        replies: by client.
        problem: says what is wrong with a reply; empty if nothing is.
    """
    found = {}
    for client_id, reply in replies.items():
        if why := problem(reply):
            cohort.drop(client_id, why)
        else:
            found[client_id] = reply
    return found


def packed_problem(mask: Any, size: int, what: str) -> str:
    """Why something is not the packed mask of so many scalars; empty if it is. `what` names it."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.uint8 or mask.shape != ((size + 7) // 8,):
        kind = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
        return f"its {what} is {kind}, which must be uint8[{(size + 7) // 8}]"
    return f"its {what} marks scalars beyond the {size} there are" if np.unpackbits(mask)[size:].any() else ""


def unpacked(mask: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
    """A packed mask as booleans, (size,)."""
    return np.unpackbits(mask, count=size).view(np.bool_)


def votes(masks: Iterable[NDArray[np.uint8]], size: int) -> NDArray[np.uint32]:
    """How many of the packed masks mark each scalar, (size,)."""
    found = np.zeros(size, np.uint32)
    for mask in masks:
        found += np.unpackbits(mask, count=size)
    return found
