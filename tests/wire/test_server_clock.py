"""The server's clock: its own work by phase, without waiting."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from fedplug.wire.post_office import ServerClock


def test_waiting_for_others_is_no_work_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    now, computed = [100.0], [7.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: computed[0])
    office: Any = SimpleNamespace(waited=3.0)
    key_server: Any = SimpleNamespace(seconds=5.0)
    clock = ServerClock(office, key_server)
    assert clock.seconds() == {"wall": 0.0, "cpu": 0.0}
    computed[0] += 2
    for _ in range(2):
        with clock("aggregate"):
            now[0], office.waited = now[0] + 10, office.waited + 8
    key_server.seconds += 1.5
    assert clock.own() == pytest.approx(4)
    assert clock.seconds() == {
        "aggregate": pytest.approx(4), "open": pytest.approx(1.5), "wall": pytest.approx(20), "cpu": pytest.approx(2),
    }  # fmt: skip
