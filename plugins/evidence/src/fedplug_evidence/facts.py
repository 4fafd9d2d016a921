"""The contents of the files in a folder of evidence, as records. The page and the check read them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from fedplug.api.errors import SetupError
from fedplug.api.records import Count, Number, Record, Text, one_line
from fedplug.api.roles import Reveals
from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs import yaml_source
from fedplug_runs.compared import Compared

from fedplug_evidence.manifest import canonical
from fedplug_evidence.sites import Signed, Tried, in_folder, is_report
from fedplug_evidence.strict import read_json, read_yaml

PAGE, RECIPE, LEDGER = "index.html", "recipe.yaml", "ledger.json"


class Facts(Record):
    """`run.json`: what ran.

    Attributes:
        name, digest: of the recipe.
        rounds, clients, parameters: their numbers.
        engine, device: used by the run.
        resumed: whether the run continued from a checkpoint.
        plan: hook, component and description, in the order of a round.
        made: the day of the evidence, UTC.
        run: the identity by which parties elsewhere know the run; empty without such parties.
        released: what the run released in place of a model, in lines, as it was computed then.
    """

    name: Text
    digest: Text
    rounds: Count
    clients: Count
    parameters: Count
    engine: Text
    device: Text
    resumed: bool
    plan: list[tuple[Text, Text, Text]]
    made: Text
    run: Text = ""
    released: list[Text] = dataclasses.field(default_factory=list)


class Versions(Record):
    """`versions.json`.

    Attributes:
        run: of Python, numpy, fedplug and every plugin of the run, as the run recorded them.
        made: of all dependencies of these and of this plugin, as installed when the evidence was made.
    """

    run: dict[Text, Text]
    made: dict[Text, Text]


class OwnFiles(Record):
    """`own_files.json`: SHA-256 of each of the user's own files that the recipe names, by name."""

    sha256: dict[Text, Text] = dataclasses.field(default_factory=dict)


class Charges(Record):
    """`charges.json`: the initial facts of the ledger, and the releases of each round.

    Attributes:
        clients, rounds, min_clients, delta, sampling: of the recipe.
        accountant: the component that states some epsilons, by its name in the recipe; empty if there is none.
        presence: the probability that a sampled client is present.
        unopened: 0-based round and zone of sums that a repeated round did not open again.
        reveals: facts revealed in the run that do not follow from the recipe, such as class counts from sites.
        log: a round entry for each time that clients were asked for something with a privacy cost.
    """

    clients: Count
    rounds: Count
    min_clients: Count
    delta: Number
    sampling: dict[Text, Any] | None
    accountant: Text
    presence: Number
    unopened: list[tuple[Count, Text]]
    reveals: list[Reveals]
    log: list[RoundEntry]


class Closed(Record):
    """Ciphertexts of one zone in the recorded uploads.

    Attributes:
        zone: its name.
        sealed_by: the component.
        uploads, pieces, bytes: the numbers of blocks and ciphertexts, and their bytes.
        least, mean: size of a ciphertext after zlib, as a share of its bytes.
        entropy: mean entropy of their bytes, in bits per byte; `random` is that of random bytes of the same lengths.
        repeated: ciphertexts with the same bytes as an earlier one, of any client and round.
    """

    zone: Text
    sealed_by: Text
    uploads: Count
    pieces: Count
    bytes: Count
    least: Number
    mean: Number
    entropy: Number
    random: Number
    repeated: Count


class Sent(Record):
    """`messages.json`: facts about the messages.

    Attributes:
        recorded: whether the run kept them.
        messages, bytes: the number and bytes of recorded messages between any parties.
        answers: the number of messages from clients to the server.
        closed: zones that were sent as ciphertexts, or scrambled.
        values: the number of values by zone that was sent as values, over clients and rounds.
        compared: plain values that clients found in their own messages; None if none looked.
    """

    recorded: bool
    messages: Count = 0
    bytes: Count = 0
    answers: Count = 0
    closed: list[Closed] = dataclasses.field(default_factory=list)
    values: dict[Text, Count] = dataclasses.field(default_factory=dict)
    compared: Compared | None = None


class Way(Record):
    """Bytes that went one way in a round.

    Attributes:
        round: 1-based; 0: all rounds, if participation is secret.
        way: `up` to the server, `down` to the clients, `key_server` to and from the key server.
        zone: its name; `other`: bytes of no zone.
        bytes: of the messages of all clients.
    """

    round: Count
    way: Text
    zone: Text
    bytes: Count


class Attacks(Record):
    """`leakage.json`.

    Attributes:
        tried: each attack and adversary.
        awaited: whether the recipe wants attacks that were not run.
        untried: what was sent and not attacked, a sentence each.
    """

    tried: list[Tried] = dataclasses.field(default_factory=list)
    awaited: bool = False
    untried: list[Text] = dataclasses.field(default_factory=list)


_RECORDS: dict[str, tuple[str, type[Record]]] = {
    "facts": ("run.json", Facts), "versions": ("versions.json", Versions), "own_files": ("own_files.json", OwnFiles),
    "charges": ("charges.json", Charges), "sent": ("messages.json", Sent), "attacks": ("leakage.json", Attacks),
}  # fmt: skip
_WAYS, _CHARGES = "messages.csv", "charges.csv"


@dataclasses.dataclass(frozen=True, eq=False)
class Contents:
    """Everything that goes into the page. The fields have the names of the records."""

    facts: Facts
    versions: Versions
    own_files: OwnFiles
    charges: Charges
    sent: Sent
    attacks: Attacks
    ways: tuple[Way, ...]
    ledger: LedgerReport
    recipe: Mapping[str, Any]
    written: str
    """The text of the recipe's file."""
    sites: tuple[Signed, ...] = ()
    """The reports of sites that attacked their own uploads."""

    @property
    def digest(self) -> str:
        """The digest of the recipe, computed from its file."""
        return digest_of(self.recipe)

    def files(self) -> dict[str, bytes]:
        """The records as files, by name, without the recipe, the ledger, and the files that follow from these."""
        made = {file: canonical(getattr(self, name).to_plain(for_json=True)) for name, (file, _) in _RECORDS.items()}
        return {**made, _WAYS: _table(self.ways), **{site.name: site.data for site in self.sites}}

    def tables(self) -> dict[str, bytes]:
        """Tables for people with the contents of other files, by name."""
        return {_CHARGES: charges_table(self.charges)}

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Contents:
        """The contents of files, by name. Each file must be, byte for byte, what this program writes for its contents.

        Raises:
            SetupError: a file is missing, has other contents, or is written in another form.
        """
        found: dict[str, Any] = {}
        for name, (file, kind) in _RECORDS.items():
            found[name] = _read(files, file, _of_json(kind), lambda record: canonical(record.to_plain(for_json=True)))
        ledger = _read(files, LEDGER, _of_json(LedgerReport), lambda record: record.to_json(indent=2).encode())
        recipe = _read(files, RECIPE, recipe_of, written_recipe)
        ways = _read(files, _WAYS, _ways, _table)
        written, sites = files[RECIPE].decode(), in_folder(files)
        return cls(**found, ways=ways, ledger=ledger, recipe=recipe, written=written, sites=sites)

    @classmethod
    def knows(cls, name: str) -> bool:
        """Whether a file in a folder has a name of evidence, other than those of the manifest and its signature."""
        known = {*(file for file, _ in _RECORDS.values()), LEDGER, RECIPE, _WAYS, _CHARGES, PAGE}
        return name in known or is_report(name)


def _read(files: Mapping[str, bytes], name: str, read: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> Any:
    try:
        data = files[name]
        found = read(data)
        if write(found) != data:
            raise ValueError("it is not in the form that fedplug writes")
    except KeyError as error:
        raise SetupError(f"{name}: missing") from error
    except ValueError as error:
        raise SetupError(f"{name}: wrong contents ({one_line(str(error), 200)})") from error
    return found


def _of_json(kind: type[Record]) -> Callable[[bytes], Record]:
    def read(data: bytes) -> Record:
        read_json(data)  # refuses ambiguous data, which the record would read in one of several ways
        return kind.from_json(data.decode())

    return read


def written_recipe(plain: Mapping[str, Any]) -> bytes:
    """A resolved recipe as its file."""
    return yaml_source.dump(plain).encode()


def recipe_of(written: bytes) -> dict[str, Any]:
    """A resolved recipe as plain data.

    Raises:
        ValueError: it is not a mapping, or not plain YAML; see `strict.read_yaml`.
    """
    plain = read_yaml(written)
    if not isinstance(plain, dict):
        raise ValueError("not a mapping of keys")
    return plain


def digest_of(plain: Mapping[str, Any]) -> str:
    """The same as `fedplug.Recipe.digest`, which needs the plugins. A resolved recipe contains everything it needs."""
    kept = {key: value for key, value in plain.items() if key != "description"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def charged(entry: RoundEntry) -> str:
    """The charged clients, in words: `all`, `secret`, or the numbers of clients."""
    return entry.charged if isinstance(entry.charged, str) else " ".join(map(str, entry.charged))


def charges_table(charges: Charges) -> bytes:
    """Every charge as CSV, with a line for each zone of a round entry."""
    lines = [["round", "charged", "zone", "scalars", "noise", "multiplier at clients", "multiplier at the server",
              "times as large in the sum", "source"]]  # fmt: skip
    for entry in charges.log:
        for zone, facts in entry.zones.items():
            noise = " + ".join(release.mechanism for release in facts.releases) or "none"
            sources = " ".join(dict.fromkeys(release.source for release in facts.releases))
            local = facts.local if facts.other is None else facts.other[1]
            numbers = (facts.size, local, facts.central, facts.sum_factor)
            size, *others = ("" if number is None else f"{number:.17g}" for number in numbers)
            lines.append([str(entry.round), charged(entry), zone, size, noise, *others, sources])
    return ("\n".join(",".join(line) for line in lines) + "\n").encode()


def _table(ways: tuple[Way, ...]) -> bytes:
    lines = ["round,way,zone,bytes", *(f"{way.round},{way.way},{way.zone},{way.bytes}" for way in ways)]
    return ("\n".join(lines) + "\n").encode()


def _ways(data: bytes) -> tuple[Way, ...]:
    head, *lines = data.decode().splitlines()
    if head != "round,way,zone,bytes":
        raise ValueError(f"its first line is {head[:40]!r}")
    cells = [line.split(",") for line in lines]
    return tuple(Way(int(round), way, zone, int(size)) for round, way, zone, size in cells)
