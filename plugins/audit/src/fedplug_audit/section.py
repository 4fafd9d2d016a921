"""The audit's section in the report of a run. Loaded by fedplug-lab, and only there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedplug.api.errors import FedplugError
from fedplug_lab.sections import Section
from fedplug_lab.tables import sentence, table
from fedplug_runs.files import read_text

from fedplug_audit.auditing import FILE, Audit


class Audits(Section):
    """A table of the parties, and the measured bounds below the ledger's guarantees."""

    key, title, order = "audit", "Audit", 10

    def html(self, run_dir: Path) -> str:
        """The table and what it proves."""
        if (found := read(run_dir)) is None:
            return ""
        (head, *rows), notes = found.cells(), found.notes()
        body = [[sentence(cell) for cell in row] for row in rows]
        caption = "The epsilon that the ledger claims, and the measured lower bound."
        return table(caption, head, body, numeric=True) + "".join(f"<p>{sentence(note)}</p>" for note in notes)

    def headline(self, run_dir: Path) -> tuple[str, str] | None:
        """A notice for the top of the report if a claim does not hold."""
        found = read(run_dir)
        return ("Audit", " ".join(found.refutations())) if found and found.refuted else None

    def measured(self, run_dir: Path) -> Mapping[str, str]:
        """For each line of the verdict."""
        found = read(run_dir)
        return found.words() if found else {}


def read(run_dir: Path) -> Audit | None:
    """The audit of a run; None if it has none that can be read."""
    try:
        return Audit.from_json(read_text(run_dir / FILE))
    except (OSError, ValueError, FedplugError):
        return None


AUDITS = Audits()
"""The entry point."""
