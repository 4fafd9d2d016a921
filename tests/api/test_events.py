"""A run as a stream of events: the listeners of each event, and their order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fedplug.api import events as module
from fedplug.api.events import Asking, Event, Events, Note, RoundStarted, SetUpDone


def test_a_listener_hears_its_kind_and_one_of_events_hears_all() -> None:
    events, notes, everything = Events(), [], []
    events.subscribe(Note, lambda event: notes.append(event.text))
    events.subscribe(Event, everything.append)
    events.note("one")
    started = RoundStarted(3)
    events.tell(started)
    assert notes == ["one"]
    assert [type(event) for event in everything] == [Note, RoundStarted]
    assert everything[1] is started


def test_listeners_that_must_hear_come_first_and_the_rest_in_order() -> None:
    events, heard = Events(), []
    for name, first in (("a", False), ("b", True), ("c", False), ("d", True)):
        events.subscribe(SetUpDone, lambda event, name=name: heard.append(name), first=first)  # type: ignore[misc]
    events.tell(SetUpDone())
    assert heard == ["b", "d", "a", "c"]


def test_what_a_listener_raises_stops_those_behind_it() -> None:
    events, heard = Events(), []

    def refuse(event: Asking) -> None:
        raise PermissionError("no")

    events.subscribe(Asking, heard.append)
    events.subscribe(Asking, refuse)
    events.subscribe(Asking, heard.append)
    with pytest.raises(PermissionError):
        events.tell(Asking(0, [1], "upload"))
    assert len(heard) == 1


def test_an_event_of_a_listener_is_told_before_the_next_listener_hears_the_first() -> None:
    events, heard = Events(), []
    events.subscribe(SetUpDone, lambda event: events.note("inside"))
    events.subscribe(Event, heard.append)
    events.tell(SetUpDone())
    assert [type(event) for event in heard] == [Note, SetUpDone]


def test_every_event_is_frozen() -> None:
    kinds: list[Any] = [kind for kind in vars(module).values() if isinstance(kind, type) and Event in kind.__mro__[1:]]
    assert len(kinds) > 12
    for kind in kinds:
        bare = kind.__new__(kind)
        for name in [field.name for field in dataclasses.fields(kind)] or ["anything"]:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(bare, name, None)
