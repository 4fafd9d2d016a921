"""The ServerApp: the same run as `fedplug run`, with the parties behind Flower's nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError, SetupError
from fedplug_runs import functions, units
from fedplug_runs.settings import Settings
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedplug_flower.engine import serving

CONFIG: dict[str, str | int | bool] = {
    "output": "",
    "data": "",
    "resume": "",
    "round": -1,
    "timeout": 1800,
    "patience": 600,
    "record-wire": False,
}
"""The options of `flwr run --run-config 'output="/srv/runs"'` with their defaults. Empty: the value in this machine's
config file."""


def app_of(recipe: Path) -> ServerApp:
    """The ServerApp that runs this recipe."""

    def main(grid: Grid, context: Context) -> None:
        failure = ""
        try:
            _run(recipe, grid, dict(context.run_config))
        except FedplugError as error:
            failure = str(error)
        except KeyboardInterrupt as error:
            failure = f"interrupted; {error}"
        if failure:
            print(f"error: {failure}")
            raise RuntimeError(failure)  # then Flower lists the run as failed

    app = ServerApp()
    app.main()(main)
    return app


def _run(recipe: Path, grid: Grid, config: dict[str, Any]) -> None:
    settings = Settings.load().replace(
        {
            "engine": "flower",
            "output": Path(config["output"]).expanduser() if config["output"] else None,
            "data": Path(config["data"]).expanduser() if config["data"] else None,
            "timeout": config["timeout"],
            "record_wire": config["record-wire"],
        }
    )
    with serving(grid, config["patience"]):
        if config["resume"]:
            folder, round = Path(config["resume"]).expanduser(), int(config.get("round", -1))
            run = functions.resume(folder, None if round < 0 else round, settings=settings, display="terminal")
        else:
            run = functions.run(recipe, settings=settings, display="terminal")
    others = {name: size for name, size in run.summary.carried.items() if name != "messages"}
    told = ", ".join(f"{units.size(size)} for {name}" for name, size in others.items())
    print(f"carried: {units.size(run.summary.carried['messages'])} of messages, plus {told}")
    if run.exit_code:
        raise SetupError(f"the run ended with code {run.exit_code}; its results are in {run.folder}")
