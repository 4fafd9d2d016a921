"""Checks a folder of evidence: files, signature, ledger and page. It needs neither data nor torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from fedplug.api.errors import SetupError

from fedplug_evidence.facts import PAGE, Contents
from fedplug_evidence.keys import fingerprint
from fedplug_evidence.manifest import MANIFEST, SIGNATURE, Checked
from fedplug_evidence.page import render
from fedplug_evidence.rebuilt import reckon
from fedplug_evidence.sites import strangers

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Catalog


@dataclasses.dataclass(frozen=True, eq=False)
class Verified:
    """The result of a check.

    Attributes:
        problems: the mismatches, each beginning with the name of the file; empty if there are none.
        notes: what was checked and how.
        public: the key that signed, 32 bytes; None if the signature cannot be read.
        unchecked: what could not be checked, and why. All other checks may have passed.
    """

    problems: list[str]
    notes: list[str]
    public: bytes | None
    unchecked: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything was checked and all checks passed."""
        return not (self.problems or self.unchecked)

    @property
    def last(self) -> str:
        """The last line of the command."""
        if count := len(self.problems):
            return f"{count} mismatch{'' if count == 1 else 'es'} found."
        if self.unchecked:
            return f"No mismatch found, but not everything could be checked: {'; '.join(self.unchecked)}."
        return "All checks passed."


def verify_folder(folder: Path, signer: bytes | None = None, catalog: Catalog | None = None) -> Verified:
    """Checks a folder of evidence.

    Args:
        folder: written by `make_evidence`.
        signer: the public key of the expected signer, 32 bytes; None: any signer.
        catalog: the available components; default: those installed.

    Raises:
        SetupError: the folder contains no evidence.
    """
    if not any((folder / name).is_file() for name in (MANIFEST, SIGNATURE, PAGE)):
        hint = "; a run's evidence is in RUN/evidence" if (folder / "recipe.yaml").is_file() else ""
        raise SetupError(f"{folder} contains no evidence: it has no {MANIFEST}{hint}; fedplug evidence RUN makes it")
    checked = Checked(folder)
    problems, notes = list(checked.problems), list[str]()
    if not problems:
        problems += [f"{name}: not a file of evidence" for name in sorted(checked.data) if not Contents.knows(name)]
        notes.append(
            f"{len(checked.data)} files have the SHA-256 and size in {MANIFEST}, and there is no other file"
        )
    if checked.public is not None:
        named = fingerprint(checked.public)
        if signer is None:
            notes.append(
                f"Signed with the key {named}. No --signer was given, so the signature shows only that the folder has "
                "not changed since somebody signed it"
            )
        elif signer != checked.public:
            problems.append(f"{SIGNATURE}: signed with the key {named}, but --signer is {fingerprint(signer)}")
        elif not problems:
            notes.append(f"Signed with the key given as --signer, {named}")
    if problems:  # never read contents that the signer did not write
        return Verified(problems, [*notes, "The contents of the files were not checked"], checked.public)
    try:
        contents = Contents.of(checked.data)
    except SetupError as error:
        return Verified([str(error)], [*notes, "The ledger was not recomputed"], checked.public)
    found = reckon(contents, catalog)
    problems, unchecked = list(found.differences), list(found.unchecked)
    notes += found.notes
    if found.figures and not found.differences:
        notes.append(
            f"The ledger follows from {len(contents.charges.log)} charges: {found.figures} figures and texts agree"
        )
    problems += [f"{name}: does not follow from the other files" for name in _unlike_tables(checked.data, contents)]
    facts = contents.facts
    strange = strangers(contents.sites, facts.digest, facts.run, facts.clients)
    problems += [f"{site.name}: {why}" for site, why in strange]
    notes += [
        f"{site.name} is of this recipe, run and client, signed with the key {fingerprint(site.public)}; whether that "
        "is the key of the site, ask the site"
        for site in contents.sites
    ]
    if problems:
        notes.append("The page was not checked, because of other mismatches")
    elif others := _other_versions(contents):
        unchecked.append(f"The page was made by {others}, which is not installed here, so it was not checked")
    elif checked.data.get(PAGE) != render(contents).encode():
        problems.append(f"{PAGE}: does not follow from the other files")
    else:
        notes.append("The page follows from the other files")
    return Verified(list(dict.fromkeys(problems)), notes, checked.public, unchecked)


def _unlike_tables(files: Mapping[str, bytes], contents: Contents) -> list[str]:
    """Tables for people that do not agree with the files that they are made from."""
    return [name for name, data in contents.tables().items() if files.get(name) != data]


def _other_versions(contents: Contents) -> str:
    """The versions that made the page, if they differ from those installed here; otherwise empty."""
    names = ("fedplug", "fedplug-lab", "fedplug-evidence")
    made = contents.versions.made
    others = [f"{name} {made.get(name, 'without a version')}" for name in names if made.get(name) != _installed(name)]
    return " and ".join(others)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
