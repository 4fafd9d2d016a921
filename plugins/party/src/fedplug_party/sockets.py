"""The engine `parties`: one program per party on this machine, reached by the socket in the party's folder."""

from __future__ import annotations

from pathlib import Path

import fedplug
from fedplug import Field
from fedplug.api.errors import SetupError
from fedplug.engines.base import Job

from fedplug_party.engine import PartyEngine
from fedplug_party.transport import SocketTransport


class SocketEngine(PartyEngine):
    """Parties that run as separate programs on this machine, started with `fedplug party`."""

    class Options(fedplug.Options):
        """Where the parties are."""

        parties: Path | None = Field(
            None, description="contains the state folder of every party: client-0, client-1, ..., key-server"
        )

    def __init__(self, job: Job) -> None:
        options = job.options
        if not isinstance(options, SocketEngine.Options) or options.parties is None:
            raise SetupError(
                "the engine parties needs to know where the parties are: --parties DIR, where DIR contains the --state "
                "folder of each: DIR/client-0, DIR/client-1, ..., DIR/key-server"
            )
        super().__init__(job, SocketTransport(options.parties))
