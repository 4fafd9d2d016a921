"""`fedplug run` and `fedplug resume`: a run folder around a protocol, from the first round or from a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from importlib_metadata import version

from fedplug import yaml_source
from fedplug.catalog import Catalog
from fedplug.checkpoint import Checkpoints
from fedplug.composition import Composition
from fedplug.context import stream
from fedplug.display import Display, make_display
from fedplug.engines.base import Engine, Job
from fedplug.errors import CheckpointError, FedplugError, SetupError
from fedplug.ledger import Ledger
from fedplug.parties import make_context
from fedplug.protocol import Protocol
from fedplug.recipe import Recipe, load_recipe
from fedplug.report import write_report
from fedplug.settings import Settings
from fedplug.steps import site_of
from fedplug.types import Layout, SideChannel
from fedplug.views import View, Wire, read_wire, write_wire

INTERRUPTED = 130


def run(recipe_path: Path, sets: list[str], settings: Settings) -> int:
    """Runs a recipe from the start in a new run folder; gives the exit code."""
    return start(load_recipe(recipe_path, sets), settings)[0]


def start(recipe: Recipe, settings: Settings, catalog: Catalog | None = None) -> tuple[int, Path]:
    """Runs a recipe from the start; gives the exit code and the run folder."""
    run_dir = new_folder(Path(settings.output), recipe.name)
    write_text(run_dir / "recipe.yaml", yaml_source.dump(recipe.to_plain()))
    try:
        return Run(recipe, run_dir, settings, catalog).execute(None), run_dir
    except FedplugError:
        if not Checkpoints(run_dir).rounds():  # nothing ran, so there is nothing to keep
            shutil.rmtree(run_dir, ignore_errors=True)
        raise


def resume(run_dir: Path, settings: Settings, round: int | None = None, catalog: Catalog | None = None) -> int:
    """Continues an interrupted run from its last checkpoint, or from that of `round`; gives the exit code.

    Raises:
        CheckpointError: there is no run there, or its checkpoint is damaged.
    """
    file = run_dir / "recipe.yaml"
    if not file.is_file():
        raise CheckpointError(f"{run_dir} is no run folder: it has no recipe.yaml; fedplug run prints a run's folder")
    recipe = load_recipe(file, (), catalog)
    checkpoint = Checkpoints(run_dir).read(round)
    return Run(recipe, run_dir, settings, catalog).execute(checkpoint)


class Run:
    """One execution of a recipe in a run folder.

    Args:
        recipe: what to run.
        run_dir: where everything is written.
        settings: of this machine.
        catalog: the components on offer; those installed if None.
    """

    def __init__(self, recipe: Recipe, run_dir: Path, settings: Settings, catalog: Catalog | None) -> None:
        self.recipe, self.run_dir, self.settings = recipe, run_dir, settings
        self.injected = catalog
        self.catalog = catalog or Catalog.discover()
        self.checkpoints = Checkpoints(run_dir)
        self.data_root = str(settings.data) if settings.data else os.environ.get("FEDPLUG_DATA") or None
        file = run_dir / "charging.jsonl"  # every request for uploads of this run, those that were repeated too
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        self.charges: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def execute(self, checkpoint: tuple[int, dict[str, Any], Path] | None) -> int:
        """Runs what is left of the recipe; gives the exit code."""
        recipe = self.recipe
        composition = Composition(recipe, self.catalog)
        device = resolve_device(self.settings.device)
        layout, distribution = self._public_facts(composition)
        wire = Wire(keep=self.settings.record_wire or bool(recipe.attack))
        ledger = self._ledger(composition, layout)
        watch = make_display(self.settings.quiet)
        plan = plan_of(recipe, composition)
        self.summary: dict[str, Any] = {
            "name": recipe.name,
            "digest": recipe.digest,
            "recipe": recipe.to_plain(),
            "plan": plan,
            "versions": self._versions(),
            "engine": self.settings.engine,
            "device": device,
            "class_distribution": distribution,
            "resumed": checkpoint is not None,
            "command": shlex.join(["fedplug", *sys.argv[1:]]),
            "parameters": layout.size,
        }
        watch.start(
            plan,
            {
                "recipe": recipe.name, "clients": recipe.data.clients, "rounds": recipe.rounds,
                "parameters": f"{layout.size:,}", "engine": self.settings.engine, "device": device,
                "run folder": str(self.run_dir),
            },
        )  # fmt: skip
        done = 0
        engine: Engine | None = None
        protocol: Protocol | None = None
        try:
            with terminated_like_interrupted():
                engine = self._engine(device, composition)
                protocol = Protocol(recipe, composition, engine, layout, wire, ledger, watch)
                protocol.on_upload = self._note_upload
                protocol.metrics.on_row = lambda row: self._write_row(protocol, row, watch)
                if checkpoint is None:
                    protocol.setup()
                    self._end_of_round(protocol, engine, 0)
                else:
                    done, state, folder = checkpoint
                    self._check(state, folder, done)
                    self._load(engine, folder, done)
                    protocol.restore(state)
                    self._charge_again(protocol, state["charges"])
                    self._write_metrics(protocol.rows)
                    for row in protocol.rows[-5:]:
                        watch.round_done(row)
                protocol.on_round = lambda rounds: self._end_of_round(protocol, engine, rounds)
                protocol.run(done)
                self._write_wire(wire, recipe.rounds)
                self._attack(composition, layout)
        except KeyboardInterrupt:
            self._report(protocol)
            rounds = self.checkpoints.rounds()
            watch.interrupted(rounds[-1] if rounds else 0, self.run_dir)
            return INTERRUPTED
        except FedplugError as error:
            self._report(protocol)
            if self.checkpoints.rounds() and not isinstance(error, CheckpointError):
                raise type(error)(f"{error}\nNothing is lost: continue with fedplug resume {self.run_dir}") from error
            raise
        finally:
            if engine is not None:
                engine.close()
            watch.close()
        report = self._report(protocol)
        watch.finish(protocol.rows, ledger.verdict(), report, self.run_dir)
        return 0

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _public_facts(self, composition: Composition) -> tuple[Layout, dict[str, Any]]:
        """The model's layout, and for the report the class distribution, which no message carries."""
        recipe = self.recipe
        data = composition.components[recipe.data.name].load(self.data_root)
        partition = composition.components[recipe.data.partition.name]
        assignment = partition.assign(data.train.labels, recipe.data.clients, stream(recipe.seed, "partition"))
        counts = {
            str(client_id): np.bincount(data.train.labels[mine], minlength=len(data.classes)).tolist()
            for client_id, mine in enumerate(assignment)
        }
        model = composition.components[recipe.model.name].build(data.shape, len(data.classes), recipe.seed, "cpu")
        return model.layout, {"classes": list(data.classes), "clients": counts}

    def _ledger(self, composition: Composition, layout: Layout) -> Ledger:
        from fedplug.context import Server

        recipe = self.recipe
        ctx = make_context(recipe, composition, layout, 0, Server())
        channels = [
            channel
            for component in composition.components.values()
            if hasattr(component, "side_channels")
            for channel in component.side_channels(ctx)
        ]
        note = "training loss, accuracy counts and component logs, sent in the clear for the report"
        channels.append(SideChannel("client metrics", ("server",), note=note))
        if recipe.buffers == "mean":
            note = "means and variances of activations, averaged in the clear; buffers: local keeps them at the client"
            channels.append(SideChannel("batch-norm statistics", ("server", "client"), note=note))
        sealers = {
            zone: component
            for zone, chain in recipe.protect.items()
            for component in (composition.components[use.name] for use in chain)
            if "encryption" in getattr(component, "provides", ())
        }
        accountant = composition.components[recipe.accountant.name] if recipe.accountant else None
        return Ledger(
            recipe_name=recipe.name,
            num_clients=recipe.data.clients,
            rounds=recipe.rounds,
            min_clients=recipe.min_clients,
            delta=recipe.delta,
            sampling=recipe.sampling.model_dump() if recipe.sampling else {"scheme": "all"},
            key_holders={zone: component.options.key_holder for zone, component in sealers.items()},
            schemes={zone: {"component": c.name, "parameters": c.describe()} for zone, c in sealers.items()},
            accountant=accountant,
            side_channels=channels,
        )

    def _engine(self, device: str, composition: Composition) -> Engine:
        name, installed = self.settings.engine, Catalog.discover()
        entry = self.catalog.get("engine", name) or installed.get("engine", name)
        if entry is None:
            raise SetupError(f"there is no engine {name!r}; {installed.suggest('engine', name)}")
        job = Job(
            recipe=self.recipe.to_plain(),
            data_root=self.data_root,
            device=device,
            workers=self.settings.workers or max(1, os.cpu_count() or 1),
            key_server=needs_key_server(self.recipe, composition),
            catalog=self.injected,
        )
        engine: Engine = entry.load()(job)
        return engine

    def _check(self, state: Any, folder: Path, round: int) -> None:
        """Refuses a checkpoint of something else."""
        digest = state.get("digest") if isinstance(state, dict) else None
        if digest is None:
            remedy = self.checkpoints.remedy(round)
            raise CheckpointError(f"{folder / 'server.state'} holds no server's state; {remedy}")
        if digest != self.recipe.digest:
            file = self.run_dir / "recipe.yaml"
            raise CheckpointError(
                f"{folder} belongs to recipe {digest[:12]}, but {file} is {self.recipe.digest[:12]} now; undo the "
                f"change, or start a run of its own: fedplug run {file}"
            )

    def _load(self, engine: Engine, folder: Path, round: int) -> None:
        try:
            engine.load(folder)
        except FedplugError as error:
            raise CheckpointError(f"{error}; {self.checkpoints.remedy(round)}") from error

    def _end_of_round(self, protocol: Protocol, engine: Engine, rounds: int) -> None:
        started = time.perf_counter()
        state = {**protocol.state(), "digest": self.recipe.digest, "charges": len(self.charges)}
        self.checkpoints.write(rounds, state, engine)
        self._write_wire(protocol.wire, rounds - 1)
        if protocol.metrics.awaiting is not None:
            protocol.metrics.awaiting["seconds"]["checkpoint"] = time.perf_counter() - started

    def _note_upload(self, round: int, charged: list[int]) -> None:
        """Notes, before clients are asked for their uploads, who pays: a kill must not make a release free."""
        self.charges.append({"round": round, "charged": charged})
        write_text(self.run_dir / "charging.jsonl", "".join(json.dumps(charge) + "\n" for charge in self.charges))

    def _charge_again(self, protocol: Protocol, known: int) -> None:
        """What was uploaded after the checkpoint is not in its ledger, and will be uploaded again with other noise."""
        for lost in self.charges[known:]:
            protocol.charge_lost_round(lost["round"], lost["charged"])

    def _write_wire(self, wire: Wire, round: int) -> None:
        if wire.keep:
            write_wire(self.run_dir / "wire" / f"round-{round + 1:04d}.wire", wire.take())

    def _write_row(self, protocol: Protocol, row: dict[str, Any], watch: Display) -> None:
        self._write_metrics(protocol.rows)
        watch.round_done(row)

    def _write_metrics(self, rows: list[dict[str, Any]]) -> None:
        write_text(self.run_dir / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def _report(self, protocol: Protocol | None) -> Path:
        """Writes ledger.json, summary.json and report.html with what there is."""
        ledger = protocol.ledger.to_json() if protocol else {}
        write_text(self.run_dir / "ledger.json", json.dumps(ledger, indent=2))
        write_text(self.run_dir / "summary.json", json.dumps(self.summary, indent=2))
        return write_report(self.run_dir, protocol.rows if protocol else [], ledger, self.summary)

    def _versions(self) -> dict[str, str]:
        versions = {"python": sys.version.split()[0], "numpy": np.__version__, "fedplug": version("fedplug")}
        for use in self.recipe.uses():
            entry = self.catalog.get(use.group, use.use)
            if entry is not None:
                versions[entry.distribution] = entry.version
        return dict(sorted(versions.items()))

    def _attack(self, composition: Composition, layout: Layout) -> None:
        """Runs the recipe's attacks on what the server saw."""
        from fedplug.context import Server

        if not self.recipe.attack:
            return
        files = sorted((self.run_dir / "wire").glob("*.wire"))
        view = View("server", tuple(message for file in files for message in read_wire(file)))
        ctx = make_context(self.recipe, composition, layout, self.recipe.rounds, Server())
        names = [use.name for use in self.recipe.attack]
        for name, report in composition.each("attack", names, view=view, ctx=ctx).items():
            (self.run_dir / "attacks").mkdir(exist_ok=True)
            text = json.dumps(dataclasses.asdict(report), indent=2)
            write_text(self.run_dir / "attacks" / f"{name}.json", text)


def needs_key_server(recipe: Recipe, composition: Composition) -> bool:
    """Whether some zone is opened by the key server."""
    opened_by = [composition.components[use.name] for chain in recipe.postprocess.values() for use in chain]
    return any(site_of(component) == "key_server" for component in opened_by)


def plan_of(recipe: Recipe, composition: Composition) -> list[tuple[str, str, str]]:
    """The protocol as people read it: (hook, component, what it does here), in the order in which it happens."""

    def line(hook: str, name: str) -> tuple[str, str, str]:
        component = composition.components[name]
        described = component.describe() if hasattr(component, "describe") else _options(component)
        return hook, name, described

    plan = [line("data", recipe.data.name), line("partition", recipe.data.partition.name)]
    plan += [line("model", recipe.model.name), line("train", recipe.train.name)]
    plan += [line("score_parameters", use.name) for use in recipe.score_parameters]
    plan.append(line("negotiate_mask", recipe.negotiate_mask.name))
    for zone in recipe.zones:
        if zone in recipe.protect and not recipe.protect[zone]:
            plan.append((f"protect {zone}", "–", "sent as it is"))
        plan += [line(f"protect {zone}", use.name) for use in recipe.protect.get(zone, ())]
    plan.append(line("aggregate", recipe.aggregate.name))
    plan += [line(f"postprocess {zone}", use.name) for zone, chain in recipe.postprocess.items() for use in chain]
    plan += [line("attack", use.name) for use in recipe.attack]
    return plan


def _options(component: Any) -> str:
    """A component's options in a line; without any, the first line of its documentation."""
    given = [(key, value) for key, value in component.options if value is not None]
    if given:
        return ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in given)
    return (type(component).__doc__ or "").strip().partition("\n")[0]


def resolve_device(device: str) -> str:
    """`auto` becomes `cuda` where there is one; the rest is checked by the model's own library."""
    from fedplug.torch_model import resolve_device as resolve

    return resolve(device)


def new_folder(output: Path, name: str) -> Path:
    """Creates `output/name-YYYYmmdd-HHMMSS`, with a number behind it if that exists.

    Raises:
        SetupError: the folder cannot be made.
    """
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 1000):
        folder = output / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            if not output.is_dir():
                break
        except OSError as error:
            raise SetupError(f"cannot create {folder} ({error}); choose another place with --output") from error
    raise SetupError(f"cannot create a folder under {output}; choose another place with --output")


def write_text(path: Path, text: str) -> None:
    """Writes a file so that a kill leaves the old or the new one, never half of it."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Inside, SIGTERM ends the run as cleanly as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: leave signals alone
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
