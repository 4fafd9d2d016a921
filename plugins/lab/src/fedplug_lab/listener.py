"""The report, as something that listens to a run."""

from __future__ import annotations

import fedplug
from fedplug.api.events import Event, ResultsWritten

from fedplug_lab.report import rewrite_report


class Report(fedplug.Extension):
    """Draws `report.html` into the folder of every run, complete or not; `--without lab.report` goes without."""

    class Options(fedplug.Options):
        pass

    every_run, hears = True, (ResultsWritten,)

    def __init__(self, options: Options) -> None:
        self.options = options

    def observe(self, event: Event) -> None:
        """Draws from the files of the run folder, as `fedplug report` does."""
        assert isinstance(event, ResultsWritten)
        rewrite_report(event.folder)
