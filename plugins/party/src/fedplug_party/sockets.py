"""The engine `parties`: programs of one party each on this machine, reached by the sockets in their folders."""

from __future__ import annotations

from pathlib import Path

import fedplug
from fedplug import Field
from fedplug.api.errors import SetupError
from fedplug.engines.base import Job

from fedplug_party.engine import PartyEngine
from fedplug_party.transport import SocketTransport


class SocketEngine(PartyEngine):
    """Parties that are programs of their own on this machine, started with `fedplug party`."""

    class Options(fedplug.Options):
        """Where they are."""

        parties: Path | None = Field(
            None, description="holds the state of every party, in folders client-0, client-1, ..., key-server"
        )

    def __init__(self, job: Job) -> None:
        options = job.options
        if not isinstance(options, SocketEngine.Options) or options.parties is None:
            raise SetupError(
                "engine parties needs to know where the parties are: --parties DIR, with the --state of each in "
                "DIR/client-0, DIR/client-1, ..., DIR/key-server"
            )
        super().__init__(job, SocketTransport(options.parties))
