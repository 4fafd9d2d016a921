"""The run of a job at NVFlare's server: the same as `fedplug run`, with the parties behind NVFlare's sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import RecipeError, SetupError
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug_runs import functions
from fedplug_runs.settings import Settings

from fedplug_nvflare.engine import serving
from fedplug_nvflare.transport import Ask, NvflareTransport


@dataclasses.dataclass(frozen=True)
class Options:
    """What a job says of its run.

    Attributes:
        output: folder of runs; empty: that of this machine's settings.
        resume: a run folder to continue; empty: a new run.
        round: the checkpoint of it to go back to; 0: the last one.
        sites: by the address of a party, the name of its site; others are `client-0`, `client-1`, ... and `key-server`.
        patience: seconds to wait for sites that are not there yet.
        timeout: seconds that a party has for one message.
    """

    output: str = ""
    resume: str = ""
    round: int = 0
    sites: Mapping[str, str] = dataclasses.field(default_factory=dict)
    patience: float = 600.0
    timeout: float = 1800.0


def run_job(
    recipe: Path, options: Options, ask: Ask, there: Callable[[], set[str]], stopped: Callable[[], bool]
) -> None:
    """Runs the recipe, or continues a run.

    Python files that a job brings run only if they have run on this machine before: the one who submits a job
    may have no right to bring code.

    Args:
        recipe: of the job.
        options: of the job.
        ask, there, stopped: as in `NvflareTransport`.

    Raises:
        FedplugError: the run failed.
        KeyboardInterrupt: NVFlare stopped the job; everything up to the last round is saved.
    """
    try:
        checked = functions.check(recipe)
    except RecipeError as error:
        if not error.not_run:
            raise
        raise SetupError(f"{error}; for NVFlare's server, with: fedplug check RECIPE --trust") from error
    sites = {client_address(number): f"client-{number}" for number in range(checked.clients)}
    transport = NvflareTransport(ask, {**sites, KEY_SERVER: "key-server", **options.sites}, there, stopped)
    changes: dict[str, Any] = {"engine": "nvflare", "timeout": options.timeout}
    changes |= {"output": Path(options.output)} if options.output else {}
    settings = Settings.load().replace(changes)
    with serving(transport, options.patience):
        if options.resume:
            run = functions.resume(Path(options.resume), options.round or None, settings=settings, display="terminal")
        else:
            run = functions.run(checked, settings=settings, display="terminal")
    if run.exit_code:
        raise SetupError(f"the run ended with code {run.exit_code}; its results are in {run.folder}")
