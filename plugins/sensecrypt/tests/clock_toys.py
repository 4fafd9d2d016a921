"""Devices for the simulated clock."""

from __future__ import annotations

import math
from typing import Any

from fedplug_sensecrypt.devices import Profile, by_party
from fedplug_sensecrypt.simulated_clock import (
    Party,
)

SLOW_AND_FAST = [
    {"of": [0, 1, 3], "cpus": 24, "bandwidth": 50},
    {"of": [2], "cpus": 1, "bandwidth": 5},
    {"of": ["server", "key_server"], "cpus": 32, "bandwidth": 1000},
]
SEALED: list[Any] = [{"use": "std.bfv", "key_holder": "key_server"}]


def device(cpus: float, bandwidth: float = math.inf) -> Profile:
    return Profile.model_construct(of=[0], cpus=cpus, bandwidth=bandwidth)


def profiles(clients: dict[int, Profile], **servers: Profile) -> dict[Party, Profile]:
    return dict([*by_party([]).items(), *clients.items(), *servers.items()])
