"""Helpers of tests that find the processes of actors, stop them and kill them."""

from __future__ import annotations

import os
import signal
from typing import Any

import ray
from ended import gone
from fedplug.engines.base import Engine
from fedplug_ray.engine import RayEngine
from fedplug_std.models import Mlp


def actors(engine: Engine) -> dict[str, Any]:
    """The handles of the actors by name."""
    assert isinstance(engine, RayEngine)
    return {member.name: member._actor for member in engine._members.values() if member.alive}


def pids(engine: Engine) -> dict[str, int]:
    """Process ids of the actors by name."""
    handles = actors(engine)
    return dict(zip(handles, ray.get([actor.process.remote() for actor in handles.values()]), strict=True))


def kill(engine: Engine, name: str) -> None:
    """Kills an actor's process, as a machine that runs out of memory does."""
    pid = pids(engine)[name]
    os.kill(pid, signal.SIGKILL)
    assert gone([pid])


def fill_disk(actor: Any) -> None:
    """Runs in an actor. It simulates a full disk from then on."""

    def deliver(address: str, data: bytes) -> bytes:
        raise OSError(28, "No space left on device", address)

    actor._host.deliver = deliver


class Anywhere(Mlp):
    """A perceptron that always computes on the CPU, whatever the device."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Any:
        """Builds the module."""
        return super().build(shape, num_classes, seed, "cpu")
