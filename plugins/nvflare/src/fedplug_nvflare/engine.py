"""The engine `nvflare`: parties behind the sites of an NVFlare federation. It runs only inside NVFlare's server."""

from __future__ import annotations

import shlex
from pathlib import Path

from fedplug.engines.base import Job
from fedplug_party.engine import PartyEngine, Transport
from fedplug_party.within import Serving

serving: Serving[Transport] = Serving("nvflare")
"""A job gives its tasks."""


class NvflareEngine(PartyEngine):
    """Parties as separate programs behind the sites of an NVFlare federation.

    Raises:
        SetupError: this process is not NVFlare's server, or no party is there.
    """

    @staticmethod
    def continued_by(run_dir: Path, round: int | None) -> str:
        """The command that writes the job with which a run continues."""
        words = ["fedplug", "nvflare-job", str(run_dir / "recipe.yaml"), "JOB", "--resume", str(run_dir.absolute())]
        return shlex.join(words + ([] if round is None else ["--round", str(round)])) + " && nvflare job submit -j JOB"

    def __init__(self, job: Job) -> None:
        transport, patience = serving.given(
            "--engine nvflare works only inside an NVFlare federation: fedplug nvflare-job writes the job that is "
            "submitted there"
        )
        super().__init__(job, transport, patience)
