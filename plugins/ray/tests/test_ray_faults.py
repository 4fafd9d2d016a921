"""Actors are killed in each phase of secure aggregation with masks, on a Ray of this machine."""

# ruff: noqa: E402  Ray may not be installed, which is said before anything else is imported.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fedplug_ray", reason="fedplug-ray is not installed: make test installs it")
ray = pytest.importorskip("ray", reason="Ray is not installed: make test installs it")

from fault_toys import CLIENTS, KILLS, Faulty, in_one_process, killed, mortal
from fedplug.api.events import Asking
from fedplug_ray.cluster import Cluster
from fedplug_ray.engine import RayEngine
from ray_actors import kill
from toy_protocol import run_protocol

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _a_ray() -> Iterator[None]:
    cluster = Cluster(None, cpus=CLIENTS)
    yield
    cluster.close()


def test_an_actor_that_is_killed_in_any_phase_costs_its_client_that_round(tmp_path: Path) -> None:
    run = Faulty(mortal(faults=KILLS), RayEngine, tmp_path)
    assert [sorted(lost) for lost in run.dropped] == killed(KILLS)
    assert not any("skipped" in note for note in run.notes)
    run.require_equal(in_one_process("Bonawitz", KILLS))


def test_one_that_was_killed_after_its_upload_has_lost_its_shares(tmp_path: Path) -> None:
    def prepare(protocol: Any, engine: Any) -> None:
        def on_opening(event: Asking) -> None:
            if event.round == 1 and event.what == "opening":
                kill(engine, "worker-4")

        protocol.events.subscribe(Asking, on_opening)

    run = Faulty(mortal(rounds=3), RayEngine, tmp_path, prepare)
    assert [sorted(lost) for lost in run.dropped] == [[], [4], []]
    run.require_equal(run_protocol(mortal(rounds=3)))
