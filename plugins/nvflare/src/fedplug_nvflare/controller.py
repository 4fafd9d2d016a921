"""The workflow of a job: the same run as `fedplug run`, with the parties behind NVFlare's sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug_runs import functions
from fedplug_runs.settings import Settings
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, SendOrder, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedplug_nvflare import letters
from fedplug_nvflare.engine import serving
from fedplug_nvflare.transport import NvflareTransport, deadline

RECIPE = "recipe.yaml"
"""In the job's folder of configurations."""


class FedplugController(Controller):  # type: ignore[misc]
    """Runs the recipe of the job at NVFlare's server.

    Args:
        output: folder of runs; empty: that of this machine's settings.
        resume: a run folder to continue; empty: a new run.
        sites: by the address of a party, the name of its site; others are `client-0`, `client-1`, ... and `key-server`.
        patience: seconds to wait for sites that are not there yet.
        timeout: seconds that a party has for one message.
    """

    def __init__(
        self, output: str = "", resume: str = "", sites: Mapping[str, str] | None = None, patience: float = 600.0,
        timeout: float = 1800.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self._output, self._resume, self._sites = output, resume, dict(sites or {})
        self._patience, self._timeout = float(patience), float(timeout)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing before the run."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing after it."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The run. An error ends the job, which NVFlare then lists as failed."""
        engine = fl_ctx.get_engine()
        workspace, job_id = engine.get_workspace(), fl_ctx.get_job_id()
        recipe = Path(workspace.get_app_config_dir(job_id)) / RECIPE
        transport = NvflareTransport(
            lambda site, data, seconds, answered: self._give(site, data, seconds, answered, fl_ctx),
            _named(functions.check(recipe, trust=True).clients, self._sites),
            lambda: {client.name for client in engine.get_clients()},
            lambda: bool(abort_signal.triggered),
        )
        changes: dict[str, Any] = {"engine": "nvflare", "timeout": self._timeout}
        settings = Settings.load().replace(changes | ({"output": Path(self._output)} if self._output else {}))
        try:
            with serving(transport, self._patience):
                if self._resume:
                    functions.resume(Path(self._resume), settings=settings, display="lines")
                else:
                    functions.run(recipe, settings=settings, display="lines")
        except (FedplugError, KeyboardInterrupt) as error:
            self.system_panic(f"fedplug: {error}", fl_ctx)

    def _give(
        self, site: str, data: bytes, seconds: float, answered: Callable[[bytes | str], None], fl_ctx: FLContext
    ) -> None:
        """Gives a site a request."""

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            answered(letters.reply_of(client_task.result or {}))

        held = Shareable()
        held.update(letters.request(data, seconds))
        task = Task(letters.TASK, held, timeout=deadline(seconds), result_received_cb=received)
        self.send(task, fl_ctx, targets=[site], send_order=SendOrder.ANY)

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A reply to a request that nobody waits for any more."""


def _named(clients: int, given: Mapping[str, str]) -> dict[str, str]:
    """The site of each party, by its address."""
    usual = {client_address(number): f"client-{number}" for number in range(clients)} | {KEY_SERVER: "key-server"}
    return usual | dict(given)
