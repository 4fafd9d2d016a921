"""What a function must not read it is not handed: a client without its examples, its scores and its update."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from fedplug.api.context import Party


class NotHanded:
    """In place of what a function is not handed. How many examples there are is public."""

    def __init__(self, told: str, size: int = 0) -> None:
        self._told, self._size = told, size

    def __len__(self) -> int:
        return self._size

    def refuse(self, *_: Any) -> NoReturn:
        """Says what is not there, and why.

        Raises:
            ProtectionError: always.
        """
        raise ProtectionError(self._told)

    __getattr__ = __getitem__ = __iter__ = __contains__ = __array__ = __neg__ = __abs__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = refuse


def is_client(party: Any) -> bool:
    """Whether a party holds data, told by what it has: contexts, which define clients, import links themselves."""
    return hasattr(party, "update")


@contextlib.contextmanager
def without(party: Party, told: str, *, scores: bool = False, update: bool = False) -> Iterator[None]:
    """Inside, a client has no examples, and unless they are left to it no scores, no update and no model of its own.

    Args:
        party: a client; of other parties nothing is taken.
        told: what an error says where one of them is used.
        scores, update: whether these are left to it.
    """
    client: Any = party
    if not is_client(client):
        yield
        return
    names = [*([] if scores else ["scores"]), *([] if update else ["update", "personal"])]
    held = {name: getattr(client, name) for name in ["data", *names]}
    hidden: Any = NotHanded(told, len(client.data.train) if client.data is not None else 0)
    if client.data is not None:
        client.data = dataclasses.replace(client.data, train=hidden, own_test=hidden)
    for name in names:
        if held[name] is not None:
            setattr(client, name, hidden)
    try:
        yield
    finally:
        for name, value in held.items():
            setattr(client, name, value)
