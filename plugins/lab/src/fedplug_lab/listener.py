"""What listens to a run: it keeps what components drew, and draws the report."""

from __future__ import annotations

import json
from collections.abc import Iterable

import fedplug
from fedplug.api.events import Event, ModelDelivered, RoundStarted
from fedplug_runs.events import PicturesMade, ResultsWritten, RowsRestored, RunStarted
from fedplug_runs.files import write_text

from fedplug_lab.pictures import Pictures
from fedplug_lab.report import rewrite_report


class KeepPictures(fedplug.Extension):
    """Keeps what components drew in `figures.json` of every run; `--without lab.pictures` goes without."""

    every_run, hears = True, (RunStarted, RowsRestored, PicturesMade, RoundStarted, ModelDelivered, ResultsWritten)

    def __init__(self, options: fedplug.Options) -> None:
        self.options = options
        self._notes: list[str] = []
        self._pictures, self._written = Pictures(self._notes.append), True

    def observe(self, event: Event) -> Iterable[str]:
        """Reads the file in a resumed run, and writes it between rounds; what cannot be used is a note."""
        if isinstance(event, RunStarted):
            self._file = event.folder / "figures.json"
        elif isinstance(event, RowsRestored):
            self._pictures.load(self._file)
        elif isinstance(event, PicturesMade):
            party = "the server" if event.client_id is None else f"client {event.client_id}"
            for name, reason in event.left_out.items():
                self._pictures.leave_out(name, party, reason)
            for name, text in event.pictures.items():
                self._add(name, text, party, event.round + 1)
        elif not self._written:
            write_text(self._file, self._pictures.to_json())
            self._written = True
        notes = list(self._notes)
        self._notes.clear()
        return notes

    def _add(self, name: str, text: str, party: str, round: int) -> None:
        try:
            picture = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._pictures.leave_out(name, party, str(error))
        else:
            self._pictures.add(name, picture, party, round)
            self._written = False


class Report(fedplug.Extension):
    """Draws `report.html` into the folder of every run, complete or not; `--without lab.report` goes without."""

    every_run, hears = True, (ResultsWritten,)

    def observe(self, event: Event) -> None:
        """Draws from the files of the run folder, as `fedplug report` does."""
        assert isinstance(event, ResultsWritten)
        rewrite_report(event.folder)
