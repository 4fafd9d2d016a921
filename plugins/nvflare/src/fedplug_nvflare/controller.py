"""The workflow of a job: it gives NVFlare's tasks to the run; see `running`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError
from fedplug_party.within import RECIPE
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, SendOrder, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedplug_nvflare import letters
from fedplug_nvflare.running import Options, run_job
from fedplug_nvflare.transport import deadline


class FedplugController(Controller):  # type: ignore[misc]
    """Runs the recipe of the job at NVFlare's server.

    Args:
        options: see `running.Options`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = Options(**options)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing before the run."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing after it."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The run. An error ends the job, which NVFlare then lists as failed."""
        engine = fl_ctx.get_engine()

        def ask(site: str, data: bytes, seconds: float, answered: Callable[[bytes | str], None]) -> None:
            def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
                answered(letters.reply_of(client_task.result or {}))

            held = Shareable()
            held.update(letters.request(data, seconds))
            task = Task(letters.TASK, held, timeout=deadline(seconds), result_received_cb=received)
            self.send(task, fl_ctx, targets=[site], send_order=SendOrder.ANY)

        try:
            run_job(
                Path(engine.get_workspace().get_app_config_dir(fl_ctx.get_job_id())) / RECIPE, self._options, ask,
                lambda: {client.name for client in engine.get_clients()}, lambda: bool(abort_signal.triggered),
            )  # fmt: skip
        except (FedplugError, KeyboardInterrupt) as error:
            self.system_panic(f"fedplug: {error}", fl_ctx)

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A reply to a request that nobody waits for any more."""
