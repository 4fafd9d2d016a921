"""What a run needs of the machine that it runs on, and how it was called there."""

from __future__ import annotations

import gc
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedplug.api import units
from fedplug.api.errors import SetupError
from fedplug.api.types import Layout
from fedplug.engines.choice import engine_entry, options_of
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.runs.settings import Settings


def command_line() -> str:
    """The command of fedplug that this process runs, ready for a shell; empty in a script and in a notebook."""
    program = Path(sys.argv[0])
    ours = program.stem == "fedplug" or program.parts[-2:] == ("fedplug", "__main__.py")
    return shlex.join(["fedplug", *sys.argv[1:]]) if ours else ""


class Equipment:
    """What a run is done with on this machine: the components, the engine with its options, the folder of data sets.

    Attributes:
        catalog: the components on offer; those installed, where none are given.
        entry, engine_class, options: of the engine.

    Raises:
        SetupError: there is no such engine, option or folder.
    """

    def __init__(self, settings: Settings, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog.discover()
        self.entry = engine_entry(settings.engine, self.catalog)
        self.engine_class: Any = self.entry.load()
        self.options = options_of(settings.engine, self.engine_class, settings.engine_options)
        if settings.data is not None and not settings.data.is_dir():
            remedy = "--data, the variable FEDPLUG_DATA or the config file names it"
            raise SetupError(f"the folder of data sets {settings.data} does not exist; {remedy}")


def require_memory(recipe: Recipe, layout: Layout) -> None:
    """Refuses a run whose clients' updates and scores alone are larger than this machine's memory.

    Every client of a round holds its update and its scores, float32 each, until the round ends. What else a run needs
    (data, activations, ciphertexts) comes on top, so this refuses nothing that could work.

    Raises:
        SetupError: they do not fit.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return
    share = recipe.sampling.rate if recipe.sampling else 1.0
    needed = 4 * layout.size * (1 + len(recipe.score_parameters)) * share * recipe.data.clients
    if needed > memory:
        raise SetupError(
            f"{recipe.data.clients} clients with a model of {layout.size:,} parameters need more than "
            f"{units.size(needed)} of memory for updates and scores, and this machine has {units.size(memory)}; take "
            "fewer clients (data.clients), a smaller sampling.rate, or a smaller model"
        )


class PeakMemory:
    """The most memory that this process holds from here on, libraries and all; where the system tells (Linux)."""

    def __init__(self) -> None:
        self._told = Path("/proc/self/status")
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
        except OSError:
            self._told = Path(os.devnull)

    def bytes(self) -> int | None:
        """None where nobody knows."""
        status = self._told.read_text(encoding="ascii", errors="replace")
        peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        return int(peak[1]) * 1024 if peak else None


def resolve_device(device: str) -> str:
    """Turns the device a user asked for into one that torch finds here.

    Args:
        device: `auto` (a CUDA device if there is one), `cpu`, `cuda` or `cuda:<index>`.

    Returns:
        `cpu`, `cuda` or `cuda:<index>`.

    Raises:
        SetupError: the name is unknown, or this machine has no such device.
    """
    # Importing torch makes a million objects, none of which is garbage, and each search goes through many of them. So
    # nobody searches meanwhile, nor later in what is there by then.
    searching = gc.isenabled()
    gc.disable()
    try:
        import torch
    finally:
        gc.freeze()
        if searching:
            gc.enable()
    if device == "cpu":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if count else "cpu"
    kind, _, index = device.partition(":")
    if kind != "cuda" or (":" in device and not index.isdecimal()):
        raise SetupError(f"device={device} must be auto, cpu, cuda or cuda:<index>, for instance cuda:0")
    if int(index or 0) >= count:
        raise SetupError(
            f"device={device} needs a CUDA device that torch {torch.__version__} can use, and it finds {count}; "
            "to use what there is, write device auto or cpu"
        )
    return device


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
