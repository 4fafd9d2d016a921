"""The engine `nvflare`: parties behind the sites of an NVFlare federation. It runs only inside NVFlare's server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from fedplug.api.errors import SetupError
from fedplug.engines.base import Job
from fedplug_party.engine import PartyEngine, Transport

_LINE: ContextVar[tuple[Transport, float]] = ContextVar("line")


@contextlib.contextmanager
def serving(transport: Transport, patience: float) -> Iterator[None]:
    """Lets a run on this thread reach its parties through this transport, while the context is open.

    Args:
        transport: through NVFlare's tasks.
        patience: seconds to wait for parties that are not there yet.
    """
    token = _LINE.set((transport, patience))
    try:
        yield
    finally:
        _LINE.reset(token)


class NvflareEngine(PartyEngine):
    """Parties as separate programs behind the sites of an NVFlare federation.

    Raises:
        SetupError: this process is not NVFlare's server, or no party is there.
    """

    def __init__(self, job: Job) -> None:
        try:
            transport, patience = _LINE.get()
        except LookupError:
            raise SetupError(
                "--engine nvflare works only inside an NVFlare federation: fedplug nvflare-job writes the job that is "
                "submitted there"
            ) from None
        super().__init__(job, transport, patience)
