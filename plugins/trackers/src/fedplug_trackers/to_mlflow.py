"""Runs in MLflow: a tracking server, or a database next to the runs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import fedplug
from fedplug import Field
from fedplug_runs.files import Files

from fedplug_trackers.said import Outcome, word
from fedplug_trackers.tracker import Begun, Common, Sink, State, Tracker, masked

if TYPE_CHECKING:
    from mlflow import MlflowClient

T = TypeVar("T")
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "superseded": "KILLED"}
_LONGEST = 5000
"""The longest tag or parameter, in characters, that every supported server accepts."""
_BATCH = 100
"""The largest number of parameters or tags that a server accepts at once. The limit for metrics is ten times higher."""
_EVERY = "messages"
"""A number that every round has."""
_ENVIRONMENT = {
    # By default MLflow asks its makers' server what to report, and reports it.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A missing server must not delay a run: by default MLflow retries for minutes at every call.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
"""Variables that are set unless the user's environment sets them."""


class Mlflow(Tracker):
    """Log the run to MLflow: recipe, numbers of each round, verdict, report. Default: a database next to the runs.

    It sends the resolved recipe, the digest, versions, the numbers of each round (means over the clients) and notes. At
    the end it sends the verdict, epsilons, recipe and report. It never sends updates, keys, models or examples. Nothing
    leaves the machine unless `uri` or the variable MLFLOW_TRACKING_URI names a server.
    """

    class Options(Common):
        uri: str = Field(
            "",
            description="http://HOST:5000 or sqlite:///FILE; default: MLFLOW_TRACKING_URI, otherwise mlflow.db next to "
            "the runs",
        )
        experiment: str = Field("fedplug", min_length=1, description="the experiment of the run; created if missing")

    extra, modules = "mlflow", ("mlflow", "sqlalchemy", "alembic")

    def check(self, recipe: fedplug.Recipe) -> Iterable[str]:
        """Requires the library, and refuses a password in the options: the run folder and the report keep options."""
        yield from super().check(recipe)
        if masked(self.options.uri) != self.options.uri:
            yield (
                "uri: it contains a password, which the run folder would keep; leave it out, and set "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the whole address as MLFLOW_TRACKING_URI"
            )

    def require_allowed(self, files: Files) -> None:
        """Requires permission for an address in the options."""
        if self.options.uri:
            files.require_allowed(f"uri: {masked(self.options.uri)}")

    def place(self, run_dir: Path) -> str:
        """The address of the server or database, and the experiment."""
        return f"{self._uri(run_dir)} ({self.options.experiment})"

    def open(self, begun: Begun, id: str) -> Sink:
        """Opens a run of the experiment."""
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import logging

        from mlflow import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it logs the tables that it creates
        client = MlflowClient(tracking_uri=self._uri(begun.folder))
        if id:
            client.update_run(id, status="RUNNING")
            known = _Run(client, id)
            known.rounds = max((each.step for each in client.get_metric_history(id, _EVERY)), default=0)
            return known
        experiment = client.get_experiment_by_name(self.options.experiment)
        if experiment is None:
            # A server decides where files go. With only a database, MLflow puts them into the current directory.
            local = self._uri(begun.folder).startswith("sqlite:")
            artifacts = _beside(begun.folder, "mlflow-artifacts").as_uri() if local else None
            made = client.create_experiment(self.options.experiment, artifact_location=artifacts)
        else:
            made = experiment.experiment_id
        tags = {**{f"fedplug.{name}": text for name, text in begun.facts.items()}, **self.options.tags}
        tags |= {"fedplug.instead_of": begun.earlier} if begun.earlier else {}
        run = client.create_run(made, run_name=begun.title, tags=_texts(tags))
        sink = _Run(client, run.info.run_id)
        sink.params(begun.params)
        return sink

    def _named(self) -> str:
        return str(self.options.uri or os.environ.get("MLFLOW_TRACKING_URI", ""))

    def _uri(self, run_dir: Path) -> str:
        return self._named() or f"sqlite:///{_beside(run_dir, 'mlflow.db')}"


class _Run(Sink):
    def __init__(self, client: MlflowClient, id: str) -> None:
        self.client, self.id = client, id

    def params(self, given: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        for some in _batches([Param(*pair) for pair in _texts(given).items()], _BATCH):
            self.client.log_batch(self.id, params=some)

    def row(self, round: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        found = [Metric(_name(name), value, now, round) for name, value in values.items()]
        for some in _batches(found, 10 * _BATCH):
            self.client.log_batch(self.id, metrics=some)

    def notes(self, lines: Sequence[str], round: int) -> None:
        self.client.log_text(self.id, "\n".join(lines) + "\n", "notes.txt")

    def end(self, state: State, why: str, outcome: Outcome, files: Sequence[Path], round: int) -> None:
        from mlflow.entities import RunTag

        told = {"state": state, "verdict": outcome.verdict, "error": why}
        told |= {f"view.{name}": reason for name, reason in outcome.reasons.items()}
        self.row(round, {f"final_epsilon/{name}": value for name, value in outcome.epsilons.items()})
        tags = _texts({f"fedplug.{name}": text for name, text in told.items() if text})
        self.client.log_batch(self.id, tags=[RunTag(*pair) for pair in tags.items()])
        for file in files:
            self.client.log_artifact(self.id, str(file))
        self.client.set_terminated(self.id, status=_STATUS[state])


def _beside(run_dir: Path, name: str) -> Path:
    """A file in the folder of runs, shared by all runs: MLflow compares the runs in one database."""
    return run_dir.absolute().parent / name


def _name(text: str) -> str:
    """A name with only the characters that MLflow accepts."""
    return re.sub(r"[^\w./\- ]", "_", text)[:250]


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {_name(name): word(value)[:_LONGEST] for name, value in given.items()}


def _batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
