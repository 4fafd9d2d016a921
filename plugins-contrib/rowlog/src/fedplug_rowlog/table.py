"""The rows of a run in a CSV file, while it goes on."""

from __future__ import annotations

import csv
from pathlib import Path

import fedplug
from fedplug import Field
from fedplug.api.events import Event, RowComplete


class Csv(fedplug.Extension):
    """Add a line to a CSV file when the numbers of a round are complete.

    A round that is repeated after a kill has a line for each time.
    """

    class Options(fedplug.Options):
        file: str = Field("rows.csv", min_length=1, description="to which lines are added; made where it is missing")
        columns: tuple[str, ...] = Field(
            ("round", "accuracy", "loss", "epsilon"), min_length=1, description="attributes of a row to write"
        )

    options: Options

    def observe(self, event: Event) -> None:
        """Opens the file anew for each row, so that whoever follows it sees every line at once."""
        if isinstance(event, RowComplete):
            file = Path(self.options.file)
            is_new = not file.exists()
            with file.open("a", newline="", encoding="utf-8") as lines:
                writer = csv.DictWriter(lines, self.options.columns)
                if is_new:
                    writer.writeheader()
                writer.writerow({name: getattr(event.row, name) for name in self.options.columns})

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"rows go to {self.options.file}"
