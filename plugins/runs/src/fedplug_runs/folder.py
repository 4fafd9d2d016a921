"""The folder of a run: how it is made and locked, and what its files hold."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fedplug.api.data import Figure
from fedplug.api.errors import CheckpointError, RecipeError, SetupError, describe
from fedplug.api.records import Count, Number, Record, Text
from fedplug.api.roles import GroundTruth, Groups, Partition
from fedplug.engines.base import Engine
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.round.world import World
from fedplug_ledger.ledger_record import SCHEMA, LedgerReport
from importlib_metadata import version

from fedplug_runs import yaml_source
from fedplug_runs.files import open_private, private_folder, read_text, write_text
from fedplug_runs.onward import resume_command
from fedplug_runs.overlay import load_recipe
from fedplug_runs.rows import Row
from fedplug_runs.trust import Consent
from fedplug_runs.wire_record import Wire


def new_folder(output: Path, name: str) -> Path:
    """Creates `output/name-YYYYmmdd-HHMMSS`, with a number behind it if that exists.

    Raises:
        SetupError: the folder cannot be made.
    """
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 1000):
        folder = output / (stem if number == 1 else f"{stem}-{number}")
        try:
            return private_folder(folder, exist_ok=False)
        except FileExistsError:
            if not output.is_dir():
                break
        except OSError as error:
            raise SetupError(f"cannot create {folder} ({error}); choose another place with --output") from error
    raise SetupError(f"cannot create a folder under {output}; choose another place with --output")


def recipe_file(run_dir: Path) -> Path:
    """The recipe of a run.

    Raises:
        CheckpointError: there is no run in that folder.
    """
    if not (file := run_dir / "recipe.yaml").is_file():
        raise CheckpointError(f"{run_dir} is not a run folder: it has no recipe.yaml; a run prints its folder")
    return file


_FROM = "# Resolved from "


def write_recipe(run_dir: Path, recipe: Recipe) -> None:
    """Writes the recipe of a run with all defaults, and where it was read at the top."""
    told = "".join(letter if letter.isprintable() else "?" for letter in recipe.origin)  # YAML forbids the others
    head = f"{_FROM}{told}\n" if told else ""
    write_text(run_dir / "recipe.yaml", head + yaml_source.dump(recipe.to_plain()))


def load_run(run_dir: Path, catalog: Catalog | None = None, trusted: bool = False, ask: bool = False) -> Recipe:
    """The recipe of a run, as it ran; its `origin` is that of the recipe that the run began with.

    Args:
        run_dir: the run folder.
        catalog: the components on offer; by default those installed.
        trusted, ask: about code that the folder brings, see `fedplug_runs.trust`.

    Raises:
        CheckpointError: there is no run in that folder.
        SetupError: it brings code that has not run here before, and nobody says that it may.
        RecipeError: its recipe cannot be read here.
    """
    file = recipe_file(run_dir)
    try:
        recipe = load_recipe(file, (), (catalog or Catalog.discover()).under(Consent(trusted, ask)))
    except RecipeError as error:
        if error.not_run:
            raise SetupError("\n".join(error.not_run)) from error
        raise
    with file.open(encoding="utf-8") as lines:
        first = lines.readline()
    return dataclasses.replace(recipe, origin=first.removeprefix(_FROM).strip() if first.startswith(_FROM) else "")


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Inside, this process alone writes in a run folder. However it ends, `kill -9` too, the system frees the lock.

    Raises:
        SetupError: another process writes there.
    """
    file = run_dir / "run.lock"
    with contextlib.suppress(OSError):  # what is wrong with it the lock says
        private_folder(run_dir.resolve(strict=True))
    try:
        opened = open_private(file, "a+")
    except OSError as error:
        raise SetupError(
            f"{run_dir} cannot be written ({error.strerror or error}); what it holds is safe: make it writable, and "
            f"continue: {resume_command(run_dir)}"
        ) from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            _await_number(file)
            raise SetupError(
                f"{run_dir} is being written by {_named(file)}; wait until that is done, or end it, and try again"
            ) from error
        except OSError as error:
            reason = f"{run_dir} cannot be locked ({error.strerror or error})"
            raise SetupError(f"{reason}; a run needs a file system with locks: choose one with --output") from error
        try:
            lock.truncate(0)
            os.write(lock.fileno(), str(os.getpid()).encode())  # not buffered, or closing it would fail once more
        except OSError as error:
            raise SetupError(f"{run_dir} cannot be used ({error.strerror or error}); make room there") from error
        yield


def _await_number(file: Path, seconds: float = 2) -> None:
    """A process locks first and then writes its number, over that of one that was killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(PermissionError):  # another user's process
            try:
                os.kill(int(read_text(file)), 0)  # sends nothing; raises where no such process runs
            except (ValueError, ProcessLookupError):
                time.sleep(0.01)
                continue
        return


def writer_of(run_dir: Path) -> str:
    """Who writes in a run folder at this moment, as half a sentence; empty where nobody does."""
    file = run_dir / "run.lock"
    try:
        with open_private(file, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(file)
    except OSError:  # it was never locked, or cannot be by us
        pass
    return ""


def _named(file: Path) -> str:
    who = read_text(file).strip()
    return f"process {who}" if who else "another process"


R = TypeVar("R", bound=Record)


def read_rows(run_dir: Path) -> list[Row]:
    """The metrics, a row for each round; empty where no round was finished."""
    file, rows = run_dir / "metrics.jsonl", []
    if not file.is_file() and (run_dir / "ledger.json").is_file() and (rounds := read_ledger(run_dir).rounds.actual):
        raise CheckpointError(f"{file} is missing, though ledger.json accounts for {rounds} rounds; {_remedy(file)}")
    for number, line in enumerate(_contents(file).splitlines() if file.is_file() else [], 1):
        try:
            rows.append(Row.from_json(line))
        except ValueError as error:
            raise CheckpointError(f"{file}, line {number}, is damaged ({error}); {_remedy(file)}") from error
    return rows


def read_ledger(run_dir: Path) -> LedgerReport:
    """The privacy ledger.

    Raises:
        CheckpointError: it cannot be read, or another version of fedplug wrote it.
    """
    file = run_dir / "ledger.json"
    written = re.search(r'"schema": ?(\d{1,9})\b', _contents(file)[:1000])
    if written and int(written[1]) != SCHEMA:
        raise CheckpointError(
            f"{file} was written by another version of fedplug (schema {written[1]}, this one reads {SCHEMA}): run the "
            "recipe again, or read it with that version"
        )
    return _read(LedgerReport, file)


def read_summary(run_dir: Path) -> Summary:
    """What ran."""
    return _read(Summary, run_dir / "summary.json")


def _contents(file: Path) -> str:
    if not (file.parent / "recipe.yaml").exists() and not file.exists():
        raise CheckpointError(f"{file.parent} is not a run folder: it has no {file.name}; a run prints its folder")
    try:
        return read_text(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}); {_remedy(file)}") from error


def _read(kind: type[R], file: Path) -> R:
    written = _contents(file)
    try:
        return kind.from_json(written)
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged ({error}); {_remedy(file)}") from error


def _remedy(file: Path) -> str:
    return f"a run writes it: put it back as it was, or resume the run: {resume_command(file.parent)}"


class Distribution(Record):
    """Who holds what: names of the classes, and by client how many training examples it has of each."""

    classes: list[Text]
    clients: dict[int, list[Count]]


class Summary(Record):
    """What ran.

    Attributes:
        name, digest: of the recipe.
        recipe: as plain data, with all defaults.
        origin: where the recipe was read, as `Recipe.origin`.
        plan: hook, component and what it does here, in the order of a round.
        versions: of Python, numpy, fedplug and every plugin used.
        engine, device: that computed.
        class_distribution: of the clients' data, which no message carries; of data at sites, what sites let be known.
        resumed: whether the run went on from a checkpoint.
        command: that does it again, for a shell; empty in a script and in a notebook.
        parameters: of the model.
        assessments: component -> fact -> value, with knowledge that no party has.
        carried: bytes that travelled in this execution: the `messages`, as the rows have them, and what was added to
            them on their way, where the engine says so; headers of networks come on top.
        figures: what the task is judged by besides accuracy, as the task and the model declare it, and balanced
            accuracy and AUC where an answer is one class.
        guess: by name of the figure, what the best guess that looks at no input gets, as in each row.
        common: the class that this guess names; empty where it names none, or with data at sites.
        doubts: what is odd about the results of the run, a sentence each, such as a model that is no better than that.
        not_repeatable: why nobody can repeat the run elsewhere, a sentence for each object that was in memory alone;
            empty where everybody can.
        data: a digest of the data sets that were loaded, in hex; empty with data at sites.
        peak_memory: bytes that the server's process held at most in this execution, libraries and all; with the engine
            `local` those of all parties. None where the system does not tell.
    """

    name: Text
    digest: Text
    recipe: dict[Text, Any]
    plan: list[tuple[Text, Text, Text]]
    versions: dict[Text, Text]
    engine: Text
    device: Text
    class_distribution: Distribution
    resumed: bool
    command: Text
    parameters: Count
    origin: Text = ""
    assessments: dict[Text, dict[Text, Number]] = dataclasses.field(default_factory=dict)
    carried: dict[Text, Count] = dataclasses.field(default_factory=dict)
    peak_memory: Count | None = None
    figures: list[Figure] = dataclasses.field(default_factory=list)
    not_repeatable: list[Text] = dataclasses.field(default_factory=list)
    guess: dict[Text, Number] = dataclasses.field(default_factory=dict)
    common: Text = ""
    doubts: list[Text] = dataclasses.field(default_factory=list)
    data: Text = ""


def versions(recipe: Recipe, catalog: Catalog, engine: Entry) -> dict[str, str]:
    """Of Python, numpy, fedplug, and every plugin that the recipe or the engine is of."""
    by_name = {"python": sys.version.split()[0], "numpy": np.__version__, "fedplug": version("fedplug")}
    by_name[engine.distribution] = engine.version
    for use in recipe.uses:
        entry = catalog.get(use.group, use.use)
        if entry is not None:
            by_name[entry.distribution] = entry.version
    for entry in (catalog.sections[key] for key in recipe.sections):
        by_name[entry.distribution] = entry.version
    return dict(sorted(by_name.items()))


def carried(wire: Wire, engine: Engine) -> dict[str, int]:
    """Bytes of this execution's messages, and of what the engine says was added to them on their way."""
    return {"messages": sum(sum(counts.values()) for counts in wire.counts.values()), **engine.overhead()}


def class_distribution(world: World, at_sites: Mapping[int, list[int]]) -> Distribution:
    """How many examples of each class a client has, which no message carries; of data at sites, what these let be
    known.
    """
    data = world.data
    if data is None:
        return Distribution(list(world.label_names), dict(at_sites))
    counts = {
        client_id: np.bincount(data.train.labels[mine], minlength=len(data.label_names)).tolist()
        for client_id, mine in enumerate(world.assignment)
    }
    return Distribution(list(data.label_names), counts)


def assessments(protocol: Protocol, distribution: Distribution) -> dict[str, dict[str, float]]:
    """Has groups of clients compared with what was true of the data, at the end of the run, outside every party.

    By component. An assessment that fails is noted, and left out.
    """
    recipe, composition, examples = protocol.recipe, protocol.composition, distribution.clients
    if not recipe.groups:
        return {}
    name, place = recipe.groups.name, recipe.data.partition
    try:
        categories = composition.part(place.name, Partition).categories(len(examples)) if place else None
        truth = GroundTruth(classes=distribution.classes, examples=examples, categories=categories)
        facts = composition.part(name, Groups).assess(protocol.server, truth)
        return {name: {str(fact): float(value) for fact, value in facts.items()}} if facts else {}
    except Exception as error:
        protocol.events.note(f"the assessment of {name} is left out: {describe(error)}")
        return {}
