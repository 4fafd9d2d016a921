"""What clients send, as records, which are made of replies here alone.

What cannot be used is refused with its reason: a faulty client costs itself the round, and nobody else.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedplug.api.blocks import RETAINED, Block
from fedplug.api.errors import MessageError, of_component
from fedplug.api.records import MOST_EXAMPLES, Amount, Record, Text, shown
from fedplug.api.roles import AccountKeeper, Closer, Sealer
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe

BUFFERS = "batch-norm buffers"
"""Their name in lists of zones."""
Buffers = Mapping[str, NDArray[Any]]
"""Arrays by the names that they have in the model."""


def buffers_problem(given: Any, expected: Buffers) -> str:
    """What is wrong with buffers that arrived; empty if nothing.

    Args:
        given: what arrived.
        expected: the model's, whose names, shapes and types they must have.
    """
    if not isinstance(given, dict) or not all(isinstance(values, np.ndarray) for values in given.values()):
        return f"batch-norm buffers are {shown(given)}, not arrays by name"
    if given.keys() != expected.keys():
        found = [f"lack {name!r}" for name in sorted(expected.keys() - given.keys())[:1]]
        found += [f"hold {name}" for name in sorted(map(shown, given.keys() - expected.keys()))[:1]]
        return f"batch-norm buffers {' and '.join(found)}; they must have the names of the model's"
    for name, values in given.items():
        model = expected[name]
        if (values.dtype, values.shape) != (model.dtype, model.shape):
            theirs, ours = (f"{array.dtype}{list(array.shape)}" for array in (values, model))
            return f"batch-norm buffer {name!r} is {theirs}; the model's is {ours}"
        if not np.isfinite(values).all():
            return f"batch-norm buffer {name!r} holds NaN or infinity"
    return ""


def mean_of_buffers(buffers: Mapping[int, Buffers], weights: Mapping[int, float]) -> dict[str, NDArray[Any]]:
    """The weighted mean of buffers that are all alike; of whole numbers, such as counters, the largest.

    Args:
        buffers: by client; not empty.
        weights: by client, > 0.
    """
    total = sum(weights[client_id] for client_id in buffers)
    means: dict[str, NDArray[Any]] = {}
    for name, first in next(iter(buffers.values())).items():
        if first.dtype.kind == "f":
            parts = ((weights[c] / total) * theirs[name].astype(np.float64) for c, theirs in buffers.items())
            mean: Any = sum(parts)
        else:
            mean = np.maximum.reduce([theirs[name] for theirs in buffers.values()])
        means[name] = np.asarray(mean, first.dtype)  # numpy turns arrays of no dimension into numbers
    return means


_Size = Annotated[int, Field(strict=True, ge=1, le=MOST_EXAMPLES)]
_OfClass = Annotated[int, Field(strict=True, ge=0, le=MOST_EXAMPLES)]
_Key = Annotated[bytes, Field(strict=True, min_length=32, max_length=32)]


class Hello(Record, frozen=True, eq=False):
    """What a client says before round 1; None of what it was not asked.

    Attributes:
        accounts: by level, what each round releases, as the component says that keeps an account of that level.
        num_examples: of its training data, > 0.
        public_key: 32 bytes, under which secrets are sealed for it.
        classes: how many training examples of each class it has, where its site lets that be told.
    """

    accounts: dict[Text, list[list[Amount]]] | None = None
    num_examples: _Size | None = None
    public_key: _Key | None = None
    classes: list[_OfClass] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Upload:
    """One client's protected update.

    Attributes:
        blocks: by zone; zones that are empty in its plan are missing.
        facts: the fingerprint of the public facts that the client went by.
        buffers: its batch-norm statistics; None where the recipe does not share them.
        unasked: what else it held, in words; ignored. Never travels.
    """

    blocks: Mapping[str, Block]
    facts: bytes
    buffers: Buffers | None = None
    unasked: str = ""

    def to_plain(self) -> dict[str, Any]:
        """As it travels."""
        plain: dict[str, Any] = {"blocks": dict(self.blocks), "facts": self.facts}
        return plain if self.buffers is None else {**plain, "buffers": dict(self.buffers)}


def read_hello(
    hello: Any,
    wants_secret: bool,
    wants_size: bool,
    keepers: Mapping[str, AccountKeeper] | None = None,
    rounds: int = 0,
    classes: int = 0,
) -> Hello:
    """A client's hello as it arrived.

    Args:
        hello: what the client sent.
        wants_secret, wants_size: whether it must hold a public key, and the number of examples.
        keepers: the components that keep an account of another level, by level.
        rounds: for how many rounds it must say what these release.
        classes: how many classes it may count its examples of; 0: it may not.

    Raises:
        MessageError: it lacks what it must hold.
    """
    try:
        said = Hello.from_plain(hello)
    except ValueError as error:
        raise MessageError(f"its hello: {error}") from error
    for name, wanted in (("num_examples", wants_size), ("public_key", wants_secret)):
        if wanted and getattr(said, name) is None:
            raise MessageError(f"its hello lacks {name}")
    counts = said.classes if classes else None
    if counts is not None and len(counts) != classes:
        raise MessageError(f"its hello counts examples of {len(counts)} classes, and there are {classes}")
    accounts = said.accounts or {}
    kept = {level: _releases(keeper, accounts.get(level, []), rounds) for level, keeper in (keepers or {}).items()}
    size, key = said.num_examples if wants_size else None, said.public_key if wants_secret else None
    return Hello(kept or None, size, key, counts)


def _releases(keeper: AccountKeeper, said: list[list[float]], rounds: int) -> list[list[float]]:
    """What each round releases at the level of which a component keeps account, as a client stated it."""
    account = keeper.account
    what = f"its account of level {account.level}"
    if len(said) != rounds:
        raise MessageError(f"{what} has {len(said)} releases, not one for each of {rounds} rounds")
    for release in dict.fromkeys(map(tuple, said)):  # most rounds release the same
        if len(release) != account.size:
            raise MessageError(f"{what} holds {len(release)} numbers, not {account.size}")
        with of_component(keeper.name, "release_problem"):
            problem = keeper.release_problem(account.release(*release))
        if problem:
            raise MessageError(f"{what} cannot be: {problem}")
    return said


def read_dealt(dealt: Any, client_ids: list[int], what: str = "cohort secret") -> dict[int, bytes]:
    """The sealed copies of a secret as they arrived, one a client.

    Raises:
        MessageError: they are something else.
    """
    if not isinstance(dealt, dict) or any(type(key) is not int for key in dealt) or set(dealt) != set(client_ids):
        raise MessageError(f"the {what} came as {shown(dealt)}, not one copy a client")
    wrong = [client_id for client_id in client_ids if not isinstance(dealt.get(client_id), bytes)]
    if wrong:
        raise MessageError(f"the copy of the {what} for client {wrong[0]} is not bytes")
    return dealt


def read_fingerprint(digest: Any) -> bytes:
    """The fingerprint of a client's final model as it arrived.

    Raises:
        MessageError: it is something else.
    """
    if not isinstance(digest, bytes):
        raise MessageError("its fingerprint is not bytes")
    return digest


class UploadRules:
    """What the recipe says of a client's upload.

    Args:
        recipe, composition: the server's own.
        size: scalars of the model.
        buffers: the model's own, of which those of an upload must have the names, shapes and types.
    """

    def __init__(self, recipe: Recipe, composition: Composition, size: int, buffers: Buffers) -> None:
        self._zones = [zone for zone in recipe.zones if zone != RETAINED]
        self._buffers, self._size = buffers if recipe.buffers == "mean" else None, size
        self._sealers: dict[str, list[str | None]] = {}
        self._weighted: set[str] = set()
        for zone in self._zones:
            protecting = [link for link in composition.links.get(zone, ()) if link.hook == "protect"]
            sealing = [link.name for link in protecting if isinstance(link.component, Closer)]
            self._sealers[zone] = [*sealing[-1:]] or [None]
            if any(isinstance(link.component, Sealer) for link in protecting):
                self._weighted.add(zone)

    def read(self, upload: Any, weight: float, facts: bytes) -> Upload:
        """One client's upload as it arrived.

        Args:
            upload: what the client sent.
            weight: the client's weight, as the server knows it.
            facts: the fingerprint of the public facts that the server goes by.

        Raises:
            MessageError: it cannot be used; says why.
        """
        if problem := self._problem(upload, weight, facts):
            raise MessageError(problem)
        buffers = upload["buffers"] if self._buffers is not None else None
        return Upload(upload["blocks"], facts, buffers, self._unasked(upload))

    def _problem(self, upload: Any, weight: float, facts: bytes) -> str:
        if not isinstance(upload, dict) or not isinstance(upload.get("blocks"), dict):
            return f"it is {shown(upload)}, not blocks by zone"
        for zone, block in upload["blocks"].items():
            if zone not in self._zones:
                return f"it holds a zone {shown(zone)}, which is not to be sent"
            if not isinstance(block, Block):
                return f"its zone {zone} holds {shown(block)}, not a block"
            if block.zone != zone:
                return f"its zone {zone} holds a block of {block.zone[:40]}"
            if problem := self._block_problem(block, weight):
                return f"its {zone} block {problem}"
        if self._buffers is not None and (problem := buffers_problem(upload.get("buffers"), self._buffers)):
            return f"its {problem}"
        went_by = upload.get("facts")
        if not isinstance(went_by, bytes) or went_by != facts:  # an array would compare by elements
            return "it went by other public facts than the server has published, so by other bounds and noise, maybe"
        return ""

    def _unasked(self, upload: Mapping[Any, Any]) -> str:
        asked = {"blocks", "facts", *(["buffers"] if self._buffers is not None else [])}
        others = [shown(name) for name in upload if name not in asked]
        if not others:
            return ""
        hint = "; buffers: mean in the recipe averages them" if "buffers" in upload and self._buffers is None else ""
        return f"{', '.join(others[:3])}{', ...' * (len(others) > 3)}, which the recipe does not ask for{hint}"

    def _block_problem(self, block: Block, weight: float) -> str:
        sealers = self._sealers[block.zone]
        if block.sealed_by not in sealers:
            return f"is sealed by {str(block.sealed_by)[:40]}, which must be {' or '.join(map(str, sealers))}"
        if (block.values is None) != (block.sealed_by is not None) or (block.ciphertexts and not block.sealed_by):
            return "must hold either values, or ciphertexts and who sealed them"
        if block.weighted is not (block.zone in self._weighted):
            return f"says weighted={block.weighted}, which must be {block.zone in self._weighted}"
        letters = block.meta.get("letters", {})
        letters_alone = block.meta.keys() <= {"letters"} and isinstance(letters, dict)
        if not letters_alone or not all(type(to) is int and isinstance(sent, bytes) for to, sent in letters.items()):
            return "has in its meta something else than letters, bytes by receiver"
        if block.contributors != 1:
            return f"claims {block.contributors} contributors; an upload holds one update"
        if isinstance(block.divisor, np.ndarray) or block.divisor != weight:
            return f"claims the weight {shown(block.divisor)}; its client's is {weight:g}"
        if block.size > self._size:
            return f"holds {block.size} scalars, but the model has {self._size}"
        if block.positions is not None and len(block.positions) and int(block.positions[-1]) >= self._size:
            return f"has position {int(block.positions[-1])}, but the model has {self._size} scalars"
        return ""


Shape = tuple[int | None, int | None]
"""Scalars of a block, and the parts that it is closed in; None where not all must have as many, or it is not closed."""


def shapes_of(upload: Upload) -> dict[str, Shape]:
    """By zone, what must be alike at all clients."""
    return {
        zone: (None, None) if block.positions is not None
        else (block.size, None if block.sealed_by is None else len(block.ciphertexts))
        for zone, block in upload.blocks.items()
    }


def unlike(uploads: Mapping[int, Mapping[str, Shape]]) -> dict[int, str]:
    """Clients whose upload has another shape than those of more than half of their group, each with the difference.

    The server does not know the plan, but where a zone is shared all must have cut it alike. Where no shape has a
    majority nobody can be blamed, and the sum says what is wrong.

    Args:
        uploads: the shapes of each client's blocks.
    """
    found: dict[int, str] = {}
    for zone in sorted({zone for shapes in uploads.values() for zone in shapes}):
        shapes = {client_id: shapes[zone] for client_id, shapes in uploads.items() if zone in shapes}
        for client_id, usual in _odd(shapes).items():
            differs = f"its {zone} block has {_said(shapes[client_id])}, those of most others {_said(usual)}"
            found.setdefault(client_id, differs)
    return found


def _odd(features: Mapping[int, Hashable]) -> dict[int, Any]:
    """Whose feature differs from that of more than half, each with what most have."""
    if not features:
        return {}
    usual, count = Counter(features.values()).most_common(1)[0]
    if 2 * count <= len(features):
        return {}
    return {client_id: usual for client_id, feature in features.items() if feature != usual}


def _said(shape: Shape) -> str:
    size = "its own positions" if shape[0] is None else f"{shape[0]} scalars"
    return size if shape[1] is None else f"{size} in {shape[1]} part{'s' if shape[1] != 1 else ''}"
