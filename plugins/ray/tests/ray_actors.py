"""What tests do to actors: find their processes, stop and kill them."""

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
    """Ends an actor's process, as a machine without memory does."""
    pid = pids(engine)[name]
    os.kill(pid, signal.SIGKILL)
    assert gone([pid])


def fill_disk(actor: Any) -> None:
    """Runs in an actor: whatever it is sent from here on meets a full disk."""

    def deliver(address: str, data: bytes) -> bytes:
        raise OSError(28, "No space left on device", address)

    actor._host.deliver = deliver


class Anywhere(Mlp):
    """A perceptron that computes on the CPU, whatever it is told."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Any:
        """Builds it."""
        return super().build(shape, num_classes, seed, "cpu")
