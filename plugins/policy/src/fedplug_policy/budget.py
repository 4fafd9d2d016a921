"""A site's privacy budget: a file that only grows, with what each study has spent on which data.

    DIR/budget.jsonl   a line for every round, written and on the disk before the site answers in it
    DIR/budget.key     the secret under which data are known, for this user alone

A line has the cost of all rounds of a study so far, as its ledger composes them, toward each party. Studies compose as
the releases of one ledger do: Gaussian noise exactly, other noise by Renyi DP. Each line is signed together with the
signature before it, so that none can be changed or taken out of the middle. Data are known by the HMAC-SHA-256 of each
file under the secret: two studies on one file meet, and nobody else can tell whose file it is.

A study chooses its noise knowing what others released. For Gaussian noise alone such a filter costs nothing extra
(Whitehouse et al. 2023, Theorem 1: fully adaptive composition of zCDP); here each study's costs are fixed by its recipe
before it begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import SetupError
from fedplug.api.records import Count, Number, Record, Text
from fedplug.api.roles import AccountKeeper
from fedplug.recipe.catalog import Catalog
from fedplug_evidence.keys import own_key, public_bytes, signs
from fedplug_ledger.composing import Cost, composed
from fedplug_ledger.grades import PARTIES, quoted
from fedplug_ledger.views import SEED_IS_KNOWN, Guarantee, guaranteed, levels, voided
from fedplug_runs.files import append_line, open_private, private_folder, read_lines

if TYPE_CHECKING:
    from fedplug.recipe.parts import Use
    from fedplug_ledger.ledger import Ledger

FILE, KEY, LOCK = "budget.jsonl", "budget.key", "budget.lock"
CLIENT = "client"
_PURPOSE = b"fedplug budget 1\n"
_HEALTHY = "restore the file from a copy: without it nobody knows what was spent on this site's data"


class LevelCost(Record):
    """What a study has cost at a level of which a component keeps account.

    Attributes:
        keeper: the component.
        releases: of its account, each with how often the client made it.
        epsilon: by the component, at the delta of the study.
        lost: parties that see what this account does not cover, so that it promises nothing toward them.
    """

    keeper: Text
    releases: list[tuple[list[Number], Count]]
    epsilon: Number
    lost: list[Text] = dataclasses.field(default_factory=list)


class Charge(Record):
    """What a study has spent so far.

    Attributes:
        study: name of its recipe.
        digest: of the recipe.
        run: of the server; empty before one has named itself.
        client: as which the site takes part.
        rounds: that it was asked to upload in, from 1, each as often as it was.
        data: keyed digests of the files, ascending.
        delta: of its ledger.
        toward: by party, its cost.
        levels: by level of which a component keeps account, its cost.
        time: in UTC.
    """

    study: Text
    digest: Text
    run: Text
    client: Count
    rounds: list[Count]
    data: list[Text]
    delta: Number
    toward: dict[Text, Cost]
    levels: dict[Text, LevelCost] = dataclasses.field(default_factory=dict)
    time: Text = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Which charge it continues."""
        return self.digest, self.run, self.client


def charge_of(ledger: Ledger, client: int, uses: Mapping[str, Use]) -> tuple[dict[str, Cost], dict[str, LevelCost]]:
    """What a ledger has charged a client toward each party, and at each level; `uses` has the component behind each
    name of the recipe.
    """
    found: dict[str, Cost] = {}
    for party, view in guaranteed(ledger).items():
        if not isinstance(view, Guarantee):
            if not view.absent:
                found[party] = Cost(view.reason)
            continue
        spent = view.zero_out
        known = ledger.so_far.reproducible and spent.any()
        found[party] = Cost(SEED_IS_KNOWN) if known else Cost.of(spent, quoted(ledger.epsilons_of(spent)), client)
    kept: dict[str, LevelCost] = {}
    lost: list[str] = [party for party in guaranteed(ledger) if voided(ledger, party)]
    for level, stated in levels(ledger).items():
        history: Mapping[Any, int] = ledger.accounts[level].get(client, {})
        releases = [([*numbers], times) for numbers, times in history.items() if numbers is not None]
        kept[level] = LevelCost(uses[ledger.keepers[level].name].use, releases, quoted(stated), lost)
    return found, kept


class Budget:
    """The budget of a site.

    Args:
        folder: made if it is missing.

    Raises:
        CheckpointError: a line is damaged, or somebody changed one.
        SetupError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            private_folder(folder)
        except OSError as error:
            raise SetupError(f"the budget {folder} cannot be written ({error.strerror or error})") from error

    def identify(self, files: Iterable[Path], rows: str = "") -> list[str]:
        """Keyed digests of files; of `rows`, which say the same of the examples themselves, where there are none.

        Raises:
            SetupError: a file cannot be read.
        """
        with self.alone():  # of two processes that begin, one makes the secret
            secret, found = self._secret(), list[str]()
        for file in files:
            try:
                with file.open("rb") as opened:
                    found.append(hashlib.file_digest(opened, "sha256").hexdigest())
            except OSError as error:
                why = error.strerror or error
                raise SetupError(f"{file} cannot be read ({why}), so its budget is unknown; let it be read") from error
        return sorted({hmac.new(secret, each.encode(), "sha256").hexdigest() for each in found or [rows]})

    def charges(self) -> list[Charge]:
        """The last line of each study and run, in the order in which they began."""
        return [*self._read()[0].values()]

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other process charges this budget. However it ends, the system frees the lock."""
        with open_private(self.folder / LOCK, "a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def append(self, charge: Charge) -> None:
        """Writes what a study has spent so far; on the disk when this returns. Inside `alone`."""
        _, before = self._read(cut=True)
        key, _ = own_key()
        plain = dataclasses.replace(charge, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())).to_plain()
        signature = key.sign(_signed(before, plain))
        line = {"charge": plain, "signer": public_bytes(key).hex(), "signature": signature.hex()}
        append_line(self.folder / FILE, json.dumps(line).encode() + b"\n", synced=True)

    def _read(self, cut: bool = False) -> tuple[dict[tuple[str, str, int], Charge], bytes]:
        found, before = dict[tuple[str, str, int], Charge](), b""
        for line in read_lines(self.folder / FILE, _line, _HEALTHY, cut):
            signer, signature = bytes.fromhex(line["signer"]), bytes.fromhex(line["signature"])
            if not signs(signer, signature, _signed(before, line["charge"])):
                raise SetupError(f"{self.folder / FILE}: the signature of a line does not fit; {_HEALTHY}")
            before = signature
            charge = Charge.from_plain(line["charge"])
            found[charge.key] = charge
        return found, before

    def _secret(self) -> bytes:
        place = self.folder / KEY
        with contextlib.suppress(FileExistsError), open_private(place, "xb") as made:
            made.write(secrets.token_bytes(32))
        return place.read_bytes()


def _signed(before: bytes, plain: Mapping[str, Any]) -> bytes:
    return _PURPOSE + before + json.dumps(plain, sort_keys=True).encode()


def _line(text: str) -> dict[str, Any]:
    line = json.loads(text)
    if not isinstance(line, dict) or not all(isinstance(line.get(name), str) for name in ("signer", "signature")):
        raise ValueError("it is no line of a budget")
    Charge.from_plain(line["charge"])
    return line


def touching(charges: Iterable[Charge], data: Sequence[str], everything: bool) -> list[Charge]:
    """The studies that share a budget with these data: those that used any of them, or everything."""
    if everything:
        return [*charges]
    return [charge for charge in charges if not {*data}.isdisjoint(charge.data)]


def spent(charges: Sequence[Charge], party: str, unit: str, delta: float) -> float:
    """Epsilon of studies together, at `delta`.

    Args:
        charges: of the studies.
        party: toward whom; an account at another level holds toward everybody who sees nothing beyond it.
        unit: the client, or another level.
        delta: of all together. At another level an installed component composes what it keeps account of. Of several
            components, or one that a recipe brought, epsilons and deltas are added up.
    """
    if unit == CLIENT:
        costs = [(charge.toward[party], charge.delta) for charge in charges if party in charge.toward]
        return composed(costs, delta)
    known = [(charge.levels[unit], charge.delta) for charge in charges if unit in charge.levels]
    if len(known) < len(charges) or any(math.isinf(cost.epsilon) or party in cost.lost for cost, _ in known):
        return math.inf
    names = {cost.keeper for cost, _ in known}
    if len(names) == 1 and (keeper := _keeper(*names)) is not None:
        all_of_them = ((numbers, times) for cost, _ in known for numbers, times in cost.releases)
        each = [keeper.account.release(*numbers) for numbers, times in all_of_them for _ in range(times)]
        return quoted(keeper.epsilon_of(each, delta))
    return math.inf if sum(own for _, own in known) > delta else sum(cost.epsilon for cost, _ in known)


@functools.cache
def _keeper(use: str) -> AccountKeeper | None:
    """An installed component that keeps accounts. Options without default do not matter: what was released says all."""
    entry = Catalog.discover().groups["trainer"].get(use)
    if entry is None:
        return None
    kind: Any = entry.load()
    keeper: AccountKeeper = kind(kind.Options.model_construct())
    return keeper


def party_words(party: str) -> str:
    """`the server`."""
    return {str(name): words for name, words in PARTIES.items()}.get(party, party)
