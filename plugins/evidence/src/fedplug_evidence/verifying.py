"""Checks a folder of evidence: files, signature, ledger and page. Needs neither data nor torch."""

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

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Catalog


@dataclasses.dataclass(frozen=True, eq=False)
class Verified:
    """What came of a check.

    Attributes:
        problems: what does not fit, each beginning with the file; none where all fits.
        notes: what was checked, and by what.
        public: the key that signed, 32 bytes; None where the signature cannot be read.
        unchecked: what could not be checked, and why; what was checked may fit all the same.
    """

    problems: list[str]
    notes: list[str]
    public: bytes | None
    unchecked: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything was checked, and fits."""
        return not (self.problems or self.unchecked)

    @property
    def last(self) -> str:
        """The last line of the command."""
        if count := len(self.problems):
            return f"{count} thing{' does' if count == 1 else 's do'} not fit."
        if self.unchecked:
            return f"What was checked fits; not everything was checked: {'; '.join(self.unchecked)}."
        return "Everything fits."


def verify_folder(folder: Path, signer: bytes | None = None, catalog: Catalog | None = None) -> Verified:
    """Checks a folder of evidence.

    Args:
        folder: as `make_evidence` has written it.
        signer: the public key of the one who is said to have signed, 32 bytes; None: whoever.
        catalog: the components on offer; by default what is installed.

    Raises:
        SetupError: there is no evidence in that folder.
    """
    if not any((folder / name).is_file() for name in (MANIFEST, SIGNATURE, PAGE)):
        hint = "; a run's evidence lies in RUN/evidence" if (folder / "recipe.yaml").is_file() else ""
        raise SetupError(f"{folder} holds no evidence: it has no {MANIFEST}{hint}; fedplug evidence RUN makes some")
    checked = Checked(folder)
    problems, notes = list(checked.problems), list[str]()
    if not problems:
        problems += [f"{name}: evidence has no such file" for name in sorted({*checked.data} - Contents.names())]
        notes.append(
            f"{len(checked.data)} files have the SHA-256 and size that {MANIFEST} lists, and there is no other file"
        )
    if checked.public is not None:
        named = fingerprint(checked.public)
        if signer is None:
            notes.append(
                f"Signed with the key {named}. Nobody was named with --signer, so the signature shows only that the "
                "folder was not changed since somebody signed it"
            )
        elif signer != checked.public:
            problems.append(f"{SIGNATURE}: it was signed with the key {named}, and --signer is {fingerprint(signer)}")
        elif not problems:
            notes.append(f"Signed by the key that --signer names, {named}")
    if problems:  # what the signer did not write is not read at all
        return Verified(problems, [*notes, "Nothing that the files say was looked at"], checked.public)
    try:
        contents = Contents.of(checked.data)
    except SetupError as error:
        return Verified([str(error)], [*notes, "The ledger was not reckoned again"], checked.public)
    found = reckon(contents, catalog)
    problems, unchecked = list(found.differences), list(found.unchecked)
    notes += found.notes
    if found.figures and not found.differences:
        notes.append(
            f"The ledger follows from {len(contents.charges.log)} charges: {found.figures} figures and words agree"
        )
    problems += [f"{name}: it does not follow from the other files" for name in _unlike_tables(checked.data, contents)]
    if problems:
        notes.append("The page was not made again, since other things do not fit")
    elif others := _other_versions(contents):
        unchecked.append(f"The page was made by {others}, which is not installed here, and was not made again")
    elif checked.data.get(PAGE) != render(contents).encode():
        problems.append(f"{PAGE}: it does not say what the other files say")
    else:
        notes.append("The page says what the other files say")
    return Verified(list(dict.fromkeys(problems)), notes, checked.public, unchecked)


def _unlike_tables(files: Mapping[str, bytes], contents: Contents) -> list[str]:
    """Files that hold the same as others, for people, and do not."""
    return [name for name, data in contents.tables().items() if files.get(name) != data]


def _other_versions(contents: Contents) -> str:
    """What made the page, where that is not what is installed here; else nothing."""
    names = ("fedplug", "fedplug-lab", "fedplug-evidence")
    made = contents.versions.made
    others = [f"{name} {made.get(name, 'of no version')}" for name in names if made.get(name) != _installed(name)]
    return " and ".join(others)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
