"""Makes a folder of evidence from the folder of a run that has ended."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import leaves
from fedplug_lab.api import sections_of_plugins
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.files import private_folder, read_bytes, write_bytes
from fedplug_runs.folder import read_ledger, read_rows, read_summary, recipe_file, writer_of
from fedplug_runs.onward import resume_command
from packaging.requirements import InvalidRequirement, Requirement

from fedplug_evidence.facts import (
    LEDGER,
    PAGE,
    RECIPE,
    Attacks,
    Charges,
    Contents,
    Facts,
    OwnFiles,
    Versions,
    recipe_of,
    written_recipe,
)
from fedplug_evidence.keys import fingerprint, own_key, public_bytes, public_pem
from fedplug_evidence.manifest import MANIFEST, seal
from fedplug_evidence.messages import sent_in, ways_of
from fedplug_evidence.page import render
from fedplug_evidence.rebuilt import own_files, reckon, shown_in_run
from fedplug_evidence.sites import read_reports, strangers, tried_on, untried

_DISTRIBUTION = "fedplug-evidence"


def make_evidence(
    run: Path, output: Path | None = None, key: Path | None = None, force: bool = False, catalog: Catalog | None = None,
    sites: Sequence[Path] = (),
) -> tuple[Path, list[str]]:  # fmt: skip
    """Writes the evidence of a run, completely or not at all.

    Args:
        run: the folder of a run that has ended.
        output: the folder to create; default: `evidence` in the folder of the run.
        key: the file of the Ed25519 key that signs; default: the user's key, which is created if there is none.
        force: whether to replace an existing folder of evidence.
        catalog: the available components; default: those installed.
        sites: the reports of sites that attacked their own uploads.

    Returns:
        The folder, and notes for the user.

    Raises:
        CheckpointError: the folder has no run, the run has not ended, or a file of it is damaged.
        SetupError: the output exists or cannot be written, the key cannot be used, or the report of a site is damaged
            or of another run.
    """
    folder = output or run / "evidence"
    _require_ended(run)
    _require_free(folder, force)
    reports, problems = read_reports(sites)
    gathered = dataclasses.replace(_gathered(run, catalog), sites=tuple(reports.values()))
    facts = gathered.facts
    problems += [
        f"--site {file}: {why}; use the reports of this run's sites" for file, signed in reports.items()
        for _, why in strangers([signed], facts.digest, facts.run, facts.clients)
    ]  # fmt: skip
    if problems:
        raise SetupError("\n".join(problems))
    signer, made_key = own_key(key)
    files = {**gathered.files(), RECIPE: gathered.written.encode(), LEDGER: read_bytes(run / "ledger.json")}
    # Make tables and page from the files as read back, because the check makes them in the same way.
    contents = Contents.of(files)
    files |= {**contents.tables(), PAGE: render(contents).encode()}
    try:
        if not folder.parent.is_dir():
            private_folder(folder.parent)
        with tempfile.TemporaryDirectory(prefix=".evidence-", dir=folder.parent) as around:
            draft = private_folder(Path(around) / "made")
            _write(draft, {**files, **seal(files, signer)})
            if folder.exists():
                folder.rename(Path(around) / "before")
            draft.rename(folder)
    except OSError as error:
        raise SetupError(
            f"{folder} cannot be written ({error.strerror or error}); choose another folder with --output"
        ) from error
    public = public_bytes(signer)
    notes = [f"signed by {fingerprint(public)}, public key {public.hex()}"]
    if made_key is not None:
        shared = made_key.with_suffix(".pub.pem")
        with contextlib.suppress(OSError):
            write_bytes(shared, public_pem(public))
        notes.insert(0, f"created your signing key {made_key}; give reviewers its public key, {shared}")
    return folder, [*notes, *_what_lacks(contents)]


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        write_bytes(folder / name, data)


def _require_ended(run: Path) -> None:
    recipe = _recipe(run)
    if who := writer_of(run):
        raise CheckpointError(f"{run} is being written by {who}; wait until the run has ended, then try again")
    rows, planned = read_rows(run), recipe.get("rounds")
    missing = [name for name in ("ledger.json", "summary.json") if not (run / name).is_file()]
    if len(rows) != planned or missing:
        lacks = f", and no {' and no '.join(missing)}" if missing else ""
        raise CheckpointError(
            f"{run} has {len(rows)} of {planned} rounds{lacks}; evidence needs a run that has ended: finish it with "
            f"{resume_command(run)}"
        )


def _require_free(folder: Path, force: bool) -> None:
    if not (folder.exists() or folder.is_symlink()):
        return
    if not force:
        raise SetupError(f"{folder} exists; replace it with --force, or choose another folder with --output DIR")
    if not (folder / MANIFEST).is_file():  # never delete other files by mistake
        raise SetupError(
            f"{folder} exists and contains no evidence; --force replaces only evidence: choose another folder"
        )


def _recipe(run: Path) -> dict[str, Any]:
    """The resolved recipe of a run."""
    file = recipe_file(run)
    try:
        return recipe_of(read_bytes(file))
    except ValueError as error:
        raise CheckpointError(f"{file} is not a resolved recipe ({error}); restore it from a copy") from error


def _gathered(run: Path, catalog: Catalog | None) -> Contents:
    """The contents of the folder."""
    recipe, rows = _recipe(run), read_rows(run)
    ledger, summary = read_ledger(run), read_summary(run)
    secret = any(entry.charged == "secret" for entry in ledger.log)
    accountant = recipe.get("accountant")
    presence = _presence(recipe, catalog)
    contents = Contents(
        facts=Facts(
            summary.name, summary.digest, len(rows), int(recipe["data"]["clients"]), summary.parameters, summary.engine,
            summary.device, summary.resumed, summary.plan, datetime.datetime.now(datetime.UTC).date().isoformat(),
            _identity(run), [line for section in sections_of_plugins() for line in section.released(run)],
        ),
        versions=Versions(summary.versions, dict(sorted(_needed([_DISTRIBUTION, *summary.versions]).items()))),
        own_files=OwnFiles(dict(own_files(recipe))),
        charges=Charges(
            int(recipe["data"]["clients"]), int(recipe["rounds"]), int(recipe["min_clients"]), float(recipe["delta"]),
            recipe["sampling"], accountant["use"] if accountant else "", presence, _unopened(run), [], ledger.log,
        ),
        sent=sent_in(run, rows),
        attacks=_attacks(run, recipe),
        ways=ways_of(rows, secret),
        ledger=ledger,
        recipe=recipe,
        written=written_recipe(recipe).decode(),
    )  # fmt: skip
    shown = shown_in_run(contents, catalog)
    contents = dataclasses.replace(contents, charges=dataclasses.replace(contents.charges, reveals=shown))
    if contents.digest != summary.digest:
        raise CheckpointError(
            f"{run / 'recipe.yaml'} has the digest {contents.digest[:12]}, but the run had {summary.digest[:12]}; "
            "restore the recipe from a copy"
        )
    if found := reckon(contents, catalog).differences:
        raise CheckpointError(
            f"{run / 'ledger.json'} does not follow from its own log ({found[0]}); the file was changed, or another "
            f"version of fedplug wrote it; run the recipe again: fedplug run {run / 'recipe.yaml'}"
        )
    return contents


def _identity(run: Path) -> str:
    """The identity by which parties elsewhere know the run; empty without such parties."""
    file = run / "parties.run"
    return read_bytes(file).decode("utf-8", "replace").strip() if file.is_file() else ""


def _presence(recipe: Mapping[str, Any], catalog: Catalog | None) -> float:
    """The probability that a sampled client is present, from the sections of the recipe."""
    from fedplug.recipe.recipe import Recipe

    known = (catalog or Catalog.discover()).sections
    if not recipe.get("sampling") or not any(recipe.get(key) for key in known):
        return 1.0
    return math.prod((each.presence for each in Recipe.from_plain(recipe, catalog).sections.values()), start=1.0)


def _unopened(run: Path) -> list[tuple[int, str]]:
    """Sums that a repeated round did not open again, from the last checkpoint."""
    with contextlib.suppress(CheckpointError, KeyError, TypeError, ValueError):
        if checkpoint := Checkpoints(run).read():
            return [(int(round), str(zone)) for round, zone in checkpoint[1]["ledger"]["unopened"]]
    return []


def _needed(names: list[str]) -> dict[str, str]:
    """Installed versions of these distributions and of all their dependencies, without extras."""
    found: dict[str, str] = {}
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            there = distribution(name)
        except PackageNotFoundError:  # such as python, and the dependencies of extras
            continue
        found[name] = there.version
        for line in there.requires or ():
            with contextlib.suppress(InvalidRequirement):
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    left.append(needed.name)
    return found


def _attacks(run: Path, recipe: Mapping[str, Any]) -> Attacks:
    """The results of attacks on the run, from the sections of plugins."""
    sections = sections_of_plugins()
    awaited = any(section.is_awaited(run, recipe) for section in sections)
    return Attacks(tried_on(run), awaited, [said for section in sections for said in section.untried(run)])


def _what_lacks(contents: Contents) -> Iterator[str]:
    """Notes on what the page cannot say, with remedies."""
    if not contents.sent.recorded:
        yield "the messages were not recorded, so the ciphertexts were not checked: run again with --record-wire"
    elif contents.sent.compared is None:
        yield "no client compared its messages with its plain values: run again with --record-wire"
    if contents.facts.run:
        if left := untried(contents.sites, contents.facts.clients):
            yield (
                f"nobody attacked {left}: each site does it with fedplug party RECIPE --client N --data DIR --state "
                "DIR --attack; add its leakage.json with --site FILE"
            )
    elif not contents.attacks.tried:
        yield "no attack was tried: fedplug attack RUN tries some if the messages were recorded"
    for place, path, _ in leaves(contents.recipe):
        if isinstance(path, str) and re.match(r"(/|~|[A-Za-z]:\\)", path):
            named = f"{'.'.join(map(str, place))}: {path}"
            yield f"the recipe names a path of this machine ({named}), which is part of the evidence and the digest"
