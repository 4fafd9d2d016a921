"""Actors that are killed in each phase of sums under masks, on a Ray of this machine."""

# ruff: noqa: E402  Ray may not be installed, which is said before anything else is imported.

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fedplug_ray", reason="fedplug-ray is not installed: make test installs it")
ray = pytest.importorskip("ray", reason="Ray is not installed: make test installs it")

from fault_toys import CLIENTS, KILLS, Faulty, in_one_process, killed, mortal
from fedplug_ray.cluster import Cluster
from fedplug_ray.engine import RayEngine

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]


def test_an_actor_that_is_killed_in_any_phase_costs_its_client_that_round(tmp_path: Path) -> None:
    cluster = Cluster(None, cpus=CLIENTS)
    try:
        run = Faulty(mortal(faults=KILLS), RayEngine, tmp_path)
    finally:
        cluster.close()
    assert [sorted(lost) for lost in run.dropped] == killed(KILLS)
    assert not any("skipped" in note for note in run.notes)
    run.require_equal(in_one_process("Bonawitz", KILLS))
