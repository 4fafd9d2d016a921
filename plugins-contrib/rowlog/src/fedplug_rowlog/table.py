"""Writes the rows of a run to a CSV file while it runs."""

from __future__ import annotations

import csv

import fedplug
from fedplug import Field
from fedplug.api.events import Event
from fedplug_runs.events import RowComplete, RunStarted
from fedplug_runs.files import Files


class Csv(fedplug.Extension):
    """Add a line to a CSV file when the numbers of a round are complete.

    A round that is repeated after a kill has one line for each time.
    """

    hears = (RunStarted, RowComplete)

    class Options(fedplug.Options):
        file: str = Field(
            "rows.csv", min_length=1,
            description="file to append lines to, created if missing; if named by a recipe, in the run folder",
        )  # fmt: skip
        columns: tuple[str, ...] = Field(
            ("round", "accuracy", "loss", "epsilon"), min_length=1, description="attributes of a row to write"
        )

    options: Options
    files: Files

    def observe(self, event: Event) -> None:
        """Opens the file anew for each row, so that readers see every line at once."""
        if isinstance(event, RunStarted):
            self.files = event.files
            self.files.path(self.options.file)  # refuses a path outside before anything runs
        elif isinstance(event, RowComplete):
            is_new = not self.files.path(self.options.file).exists()
            with self.files.open(self.options.file, "a", newline="") as lines:
                writer = csv.DictWriter(lines, self.options.columns)
                if is_new:
                    writer.writeheader()
                writer.writerow({name: getattr(event.row, name) for name in self.options.columns})

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"rows go to {self.options.file}"
