"""The events of a run: told among those of the protocol, each equal to itself alone."""

from __future__ import annotations

from pathlib import Path

from fedplug.api.events import Event, Events
from fedplug_runs.events import ResultsWritten, RunStopped


def test_a_listener_to_all_events_hears_them_too() -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(Event, heard.append)
    written, stopped = ResultsWritten(Path("run")), RunStopped(None, 2, Path("run"))
    for event in (written, stopped):
        events.tell(event)
    assert heard == [written, stopped]
    assert written != ResultsWritten(Path("run"))
