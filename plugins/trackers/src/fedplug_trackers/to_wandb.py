"""Runs in Weights & Biases: by default offline, in the run folder."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fedplug import Field
from fedplug_runs.files import Files

from fedplug_trackers.said import Outcome
from fedplug_trackers.tracker import Begun, Common, Sink, State, Tracker

_CODES = {"finished": 0, "failed": 1, "interrupted": 130, "superseded": 130}
"""A run with an exit code other than 0 counts as failed there."""


class Wandb(Tracker):
    """Log the run to Weights & Biases. Default: offline, in the run folder, from where `wandb sync` sends it.

    It sends the resolved recipe, the digest, versions, the numbers of each round (means over the clients) and notes. At
    the end it sends the verdict, epsilons, recipe and report. It never sends updates, keys, models or examples. The
    additions of wandb itself are off: terminal output, code, git, command line, installed packages, host, system load.
    """

    class Options(Common):
        mode: Literal["offline", "online"] | None = Field(
            None, description="online sends at once, to WANDB_BASE_URL; default: WANDB_MODE, otherwise offline"
        )
        project: str = Field("fedplug", min_length=1, description="the project of the run")
        entity: str = Field("", description="user or team that owns the project; default: that of the login")
        folder: str = Field("", description="contains wandb's folder; default: the run folder")

    extra, modules = "wandb", ("wandb",)

    def require_allowed(self, files: Files) -> None:
        """Requires permission for a folder, or to send at once."""
        if self.options.mode == "online":
            files.require_allowed("mode: online sends to a server, which")
        files.path(self.options.folder)

    def place(self, run_dir: Path) -> str:
        """The project, and the folder or server."""
        where = f"{self.options.entity}/{self.options.project}".lstrip("/")
        if self._mode() == "online":
            return f"{os.environ.get('WANDB_BASE_URL', 'https://api.wandb.ai')} ({where})"
        return f"{self.options.folder or 'the run folder'} ({where})"

    def open(self, begun: Begun, id: str) -> Sink:
        """Opens a run of the project."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would report to its makers, even in offline runs
        import wandb

        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, save_code=False, init_timeout=30,
            x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False,
        )  # fmt: skip
        config = {**begun.params, **{f"fedplug.{name}": text for name, text in begun.facts.items()}}
        config |= {"fedplug.instead_of": begun.earlier} if begun.earlier else {}
        folder = begun.files.path(self.options.folder).absolute() if self.options.folder else begun.folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=self.options.project, entity=self.options.entity or None, name=begun.title, dir=str(folder),
            mode=self._mode(), id=id or uuid.uuid4().hex[:12], resume="allow", reinit="create_new",
            config={**config, **self.options.tags},
            tags=[f"{key}:{text}"[:64] for key, text in self.options.tags.items()],
            settings=settings,
        )  # fmt: skip
        return _Run(run)

    def _mode(self) -> Literal["offline", "online"]:
        if self.options.mode is not None:
            return self.options.mode  # type: ignore[no-any-return]
        return "online" if os.environ.get("WANDB_MODE") == "online" else "offline"


class _Run(Sink):
    def __init__(self, run: Any) -> None:
        self.run, self.id = run, str(run.id)

    def row(self, round: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=round)

    def notes(self, lines: Sequence[str], round: int) -> None:
        self.run.summary["notes"] = "\n".join(lines)

    def end(self, state: State, why: str, outcome: Outcome, files: Sequence[Path], round: int) -> None:
        told: dict[str, Any] = {"state": state, "verdict": outcome.verdict, "error": why}
        told |= {f"view/{name}": reason for name, reason in outcome.reasons.items()}
        told |= {f"final_epsilon/{name}": value for name, value in outcome.epsilons.items()}
        self.run.summary.update({name: value for name, value in told.items() if value != ""})
        for file in files:
            copy = shutil.copy(file, self.run.dir)  # for a file elsewhere, wandb would keep a link and print a message
            self.run.save(copy, base_path=self.run.dir, policy="now")
        self.run.finish(exit_code=_CODES[state])
