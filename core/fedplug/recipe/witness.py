"""What a component is truly handed and gives, so that an extension that changes it is found out."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections.abc import Generator
from typing import Any

from fedplug.api import codec
from fedplug.api.component import hookimpl
from fedplug.api.errors import FedplugError
from fedplug.api.types import Block


class Witness:
    """The innermost wrapper: notes what a component was handed and what it gave, before any extension can change it."""

    HOOKS = ("score_parameters", "protect", "aggregate", "postprocess", "attack")

    def __init__(self) -> None:
        self.handed = self.given = b""

    @staticmethod
    def digest(found: Any) -> bytes:
        """Of blocks, arrays and reports of attacks; of hook arguments those that a component works on."""
        if isinstance(found, dict):
            found = [found.get("block"), found.get("blocks"), found.get("weights")]
        report = dataclasses.is_dataclass(found) and not isinstance(found, Block)  # which never travels
        try:
            return hashlib.blake2b(pickle.dumps(found) if report else codec.encode(found), digest_size=16).digest()
        except (FedplugError, pickle.PicklingError):  # what cannot travel is refused at the border
            return b""

    def _note(self, *handed: Any) -> Generator[None, Any, Any]:
        before = self.digest(dict(zip(("block", "blocks", "weights"), handed, strict=False)))
        result = yield
        self.handed, self.given = before, self.digest(result)
        return result

    @hookimpl(wrapper=True)
    def score_parameters(self) -> Generator[None, Any, Any]:
        """The scores."""
        return (yield from self._note())

    @hookimpl(wrapper=True)
    def protect(self, block: Block) -> Generator[None, Any, Any]:
        """One client's block."""
        return (yield from self._note(block))

    @hookimpl(wrapper=True)
    def attack(self) -> Generator[None, Any, Any]:
        """What it found."""
        return (yield from self._note())

    @hookimpl(wrapper=True)
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float]) -> Generator[None, Any, Any]:
        """The blocks and the sum."""
        return (yield from self._note(None, blocks, weights))

    @hookimpl(wrapper=True)
    def postprocess(self, block: Block) -> Generator[None, Any, Any]:
        """The sum."""
        return (yield from self._note(block))
