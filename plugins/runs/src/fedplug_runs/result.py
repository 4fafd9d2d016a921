"""A run as Python and sections of its recipe see it: what its folder holds, read when it is asked for, and shown in a
notebook."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.data import Model, PublicData
from fedplug.api.errors import CheckpointError, PluginError, SetupError
from fedplug.api.events import Events
from fedplug.api.parties import SERVER, file_name
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_ledger.ledger_record import LedgerReport

from fedplug_runs import folder as run_files
from fedplug_runs import units
from fedplug_runs.archive import Checkpoint
from fedplug_runs.checkpoint import Checkpoints, StateFiles, holding
from fedplug_runs.folder import Summary, recipe_file
from fedplug_runs.installing import install
from fedplug_runs.machine import parties_compute_with
from fedplug_runs.onward import resume_command
from fedplug_runs.row_text import cells, filled, guess_words, sent, thin_out
from fedplug_runs.rows import Row
from fedplug_runs.settings import Settings
from fedplug_runs.wire_record import Wire


def taken_back(
    recipe: Recipe,
    composition: Composition,
    engine: LocalEngine,
    checkpoint: Checkpoint,
    wire: Wire,
    model: Model,
    public: PublicData | None,
) -> Protocol:
    """A protocol whose server and parties are as a checkpoint has them, as `Checkpoints.read` gives it.

    `wire` records what crosses it from here on; `model` and `public` are the server's own.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    _, state, folder = checkpoint
    engine.load(folder)
    protocol = Protocol(recipe, composition, engine, model.layout, wire, Events(), model, public)
    with holding(folder / file_name(SERVER), "server's state"):
        protocol.restore(state)
    return protocol


def deliver(protocol: Protocol, round: int) -> list[int]:
    """Sends the clients what they had not been sent when a round (0-based) began; gives those that answered.

    The last sum travels with the message after it, so a checkpoint holds it next to the clients and not yet in them.
    """
    protocol.begin(round, "finish")
    return list(protocol.cohort(protocol.client_ids).ask(protocol.steps.ready))


def final_model(recipe: Recipe, run_dir: Path, data_root: str | None, client_id: int | None = None) -> Any:
    """The torch module with the weights of the last checkpoint, on the CPU, in evaluation mode.

    That of one client, or of all, which then has to be the same.

    Raises:
        CheckpointError: no checkpoint, a damaged one, a client that there is not, or different models and no client.
        PluginError: the model of the recipe is not a torch module.
    """
    if client_id is not None and not 0 <= client_id < recipe.data.clients:
        raise CheckpointError(f"there is no client {client_id}; the run has 0 to {recipe.data.clients - 1}")
    checkpoint = Checkpoints(run_dir).read()
    if checkpoint is None:
        onward = resume_command(run_dir)
        raise CheckpointError(f"{run_dir} has no checkpoint, and so no model; resume the run: {onward}")
    composition = Composition(recipe)
    job = Job(recipe.to_plain(), data_root, key_server=needs_key_server(composition), store=StateFiles())
    engine = LocalEngine(job)
    try:
        host = engine.clients
        protocol = taken_back(recipe, composition, engine, checkpoint, Wire(keep=False), host.model, host.public)
        answered = deliver(protocol, checkpoint[0])
        clients = {client.client_id: client for client in host.clients.values() if client.client_id in answered}
        wanted = min(clients, default=None) if client_id is None else client_id
        if wanted not in clients:
            raise CheckpointError(f"the clients cannot be taken back to {checkpoint[2]}: {protocol.office.reasons()}")
        chosen = clients[wanted]
        if client_id is None and not all(np.array_equal(chosen.vector, other.vector) for other in clients.values()):
            raise CheckpointError(
                "groups of clients ended with different models; run.client_model(0) gives that of client 0"
            )
        host.model.set_vector(chosen.vector)
        host.model.set_buffers(chosen.remembered.buffers)
        module = host.model.module
    finally:
        engine.close()
    if module is None:
        raise PluginError(f"{recipe.model.use} builds {type(host.model).__name__}, which is not a torch module")
    return module.eval()


SHOWN = 10
"""Rounds in the table of a notebook, evenly spread."""


class Metrics(list[Row]):
    """The rows of a run, those of the first round first."""

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row a round; nested keys become columns such as `bytes.up.total`.

        Raises:
            SetupError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise SetupError(
                "to_pandas needs pandas, which fedplug does not bring: pip install pandas; without it, "
                "[row.accuracy for row in run.metrics] gives one column"
            ) from error
        return pandas.json_normalize([row.to_plain() for row in self])

    def __repr__(self) -> str:
        lines = ("  ".join(["", f"round {row.round}", *filled(row)]) for row in thin_out(self, SHOWN))
        return "\n".join([f"<Metrics of {units.many(len(self), 'round')}>", *lines])

    def _repr_html_(self) -> str:
        texts = {"round": [str(row.round) for row in self], **cells(self)}
        texts = {title: column for title, column in texts.items() if {*column} != {units.NOTHING}}
        return _table([*texts], *thin_out(list(zip(*texts.values(), strict=True)), SHOWN))


class Run:
    """A run that ended, complete or not. Files are read once, when they are asked for.

    One that is damaged, or missing because the run was killed, is a CheckpointError; so is a folder without a run.

    Args:
        folder: the run folder.
        settings: of this machine, for what has to be computed again.
        exit_code: of the command line: 0; another where an application of the recipe, such as its attacks, failed.
        catalog: the components on offer; None where they are those installed.
        world: of a run that was just completed the data and the initial model, which need not be built again.
    """

    def __init__(
        self, folder: Path, settings: Settings, exit_code: int = 0, catalog: Catalog | None = None,
        world: World | None = None,
    ) -> None:  # fmt: skip
        recipe_file(folder)
        self.folder, self.settings, self.exit_code = folder, settings, exit_code
        self.catalog, self.world = catalog, world

    @functools.cached_property
    def recipe(self) -> Recipe:
        """What ran, with all defaults; `origin` says where it was read.

        Raises:
            SetupError: the folder brings code that has not run here before; `open_run(folder, trust=True)` runs it.
        """
        return run_files.load_run(self.folder, self.catalog, self.settings.trust)

    @functools.cached_property
    def metrics(self) -> Metrics:
        """The numbers of each round."""
        return Metrics(run_files.read_rows(self.folder))

    @functools.cached_property
    def ledger(self) -> LedgerReport:
        """The privacy account."""
        return run_files.read_ledger(self.folder)

    @functools.cached_property
    def summary(self) -> Summary:
        """What ran, on what: digest, plan, versions, engine, device, ..."""
        return run_files.read_summary(self.folder)

    @property
    def complete(self) -> bool:
        """Whether every round of the recipe has its numbers."""
        return len(self.metrics) == self.recipe.rounds

    @functools.cached_property
    def model(self) -> Any:
        """The global model after the last round that is saved: a `torch.nn.Module` on the CPU, in evaluation mode.

        Statistics of batch norm that stay at the clients are those of client 0.

        Raises:
            CheckpointError: there is no checkpoint, it is damaged, or groups of clients have a model each.
            FedplugError: the data set or a plugin is missing; a client needs both to open the last sum.
        """
        return self.client_model(None)

    def client_model(self, client_id: int | None) -> Any:
        """The global model as one client has it; where clients form groups, that of its group.

        Raises:
            CheckpointError: as in `model`; or there is no such client.
        """
        with parties_compute_with(self.settings.threads):
            return final_model(self.recipe, self.folder, self.settings.data_root, client_id)

    def report(self) -> Path:
        """Draws the report of the run, and gives its path.

        A plugin draws it: the entry point of the group `fedplug.report`, a function from the run folder to the path.

        Raises:
            SetupError: no plugin that draws reports is installed.
            CheckpointError: a file of the run is missing or damaged.
        """
        from fedplug.recipe.catalog import REPORT, installed

        for entry in installed(REPORT).values():
            return Path(entry.imported()(self.folder))
        raise SetupError(f"no plugin that draws reports is installed: {install('fedplug-lab')}")

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {text}" for name, text in self._facts().items())
        verdict = "\n  ".join(self._verdict())
        return f"<Run {self.recipe.name}: {facts}\n  {verdict}\n  {self.folder}>"

    def _repr_html_(self) -> str:
        facts = _table([], *(self._facts() | {"folder": str(self.folder)}).items())
        title = f"<b>{escape(self.recipe.name)}</b> <code>{self.recipe.digest[:12]}</code>"
        return f"<div>{title}{self._verdict_html()}{facts}{self.metrics._repr_html_()}</div>"

    def _facts(self) -> dict[str, str]:
        rows = self.metrics
        last = units.last(row.leading for row in rows)
        leading = {} if last is None else {rows[-1].leads.name: units.number(last)}
        guess = {"guess": said} if (said := guess_words(rows)) else {}
        return {"rounds": f"{len(rows)} of {self.recipe.rounds}", **leading, **guess, "bytes": sent(rows)}

    def _verdict(self) -> list[str]:
        try:
            return self.ledger.verdict.text()
        except CheckpointError:  # a run that was killed; everything else can still be shown
            return [_KILLED]

    def _verdict_html(self) -> str:
        try:
            verdict = self.ledger.verdict
        except CheckpointError:
            return f"<p>{_KILLED}</p>"
        caveat = f"<p>{escape(verdict.caveat)}</p>" if verdict.caveat else ""
        lines = [(f"{line.mark} {line.who}", line.guarantee, line.rest) for line in verdict.lines]
        return f"<p><b>{escape(verdict.opening)}.</b> {escape(verdict.headline)}</p>{_table([], *lines)}{caveat}"


_KILLED = "No ledger: the run was killed; resume it."


def _table(head: Sequence[str], *rows: Sequence[str]) -> str:
    """For a notebook; a dash, where a row has no number, is left out."""
    lines = [(tag, row) for tag, row in (("th", head), *(("td", row) for row in rows)) if row]
    texts = ([f"<{tag}>{escape(text) if text != units.NOTHING else ''}</{tag}>" for text in row] for tag, row in lines)
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in texts) + "</table>"
