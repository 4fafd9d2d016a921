"""What travels in NVFlare's Shareable: a request for a party, and its reply or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASK = "fedplug"
"""The task that sites do."""


def request(data: bytes, seconds: float) -> dict[str, Any]:
    """A request, and how long its sender waits for the reply."""
    return {"request": data, "seconds": seconds}


def reply(data: bytes) -> dict[str, Any]:
    """What a party answered."""
    return {"reply": data}


def failure(why: str) -> dict[str, Any]:
    """Why there is no answer."""
    return {"failure": why}


def request_of(given: Mapping[str, Any]) -> tuple[bytes, float]:
    """The bytes of a request, and seconds.

    Raises:
        ValueError: it is none.
    """
    data, seconds = given.get("request"), given.get("seconds")
    if not isinstance(data, bytes) or not isinstance(seconds, float):
        raise ValueError("the task holds no request of fedplug")
    return data, seconds


def reply_of(given: Mapping[str, Any]) -> bytes | str:
    """The bytes of a reply, or why there are none."""
    data = given.get("reply")
    return data if isinstance(data, bytes) else str(given.get("failure", "its site sent no reply of fedplug"))[:1000]
