"""The machine of a run: its command line, its memory, its device, and the signals that end a program."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedplug.api.blocks import Layout
from fedplug.api.errors import SetupError
from fedplug.api.parties import set_threads_of_a_party, threads_of_a_party
from fedplug.recipe.recipe import Recipe

from fedplug_runs import units
from fedplug_runs.fitting import memory


def command_line() -> str:
    """The command of fedplug that this process runs, ready for a shell; empty in a script and in a notebook."""
    program = Path(sys.argv[0])
    ours = program.stem == "fedplug" or program.parts[-2:] == ("fedplug", "__main__.py")
    return shlex.join(["fedplug", *sys.argv[1:]]) if ours else ""


def require_memory(recipe: Recipe, layout: Layout) -> None:
    """Refuses a run whose clients' updates and scores alone are larger than this machine's memory.

    Every client of a round holds its update and its scores, float32 each, until the round ends. What else a run needs
    (data, activations, ciphertexts) comes on top, so this refuses nothing that could work.

    Raises:
        SetupError: they do not fit.
    """
    share = recipe.sampling.rate if recipe.sampling else 1.0
    needed = 4 * layout.size * (1 + len(recipe.score_parameters)) * share * recipe.data.clients
    if (there_is := memory()) is not None and needed > there_is:
        raise SetupError(
            f"{units.many(recipe.data.clients, 'client')} with a model of {layout.size:,} parameters: that takes over "
            f"{units.size(needed)} of memory for updates and scores, and this machine has {units.size(there_is)}; take "
            "fewer clients (data.clients), a smaller sampling.rate, or a smaller model"
        )


def memory_now() -> tuple[int | None, int | None]:
    """Bytes that this process holds, and bytes that others may still take; None where the system does not tell."""

    def told(file: str, key: str) -> int | None:
        try:
            text = Path(file).read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        found = re.search(rf"^{key}:\s*(\d+) kB", text, re.MULTILINE)
        return int(found[1]) * 1024 if found else None

    return told("/proc/self/status", "VmRSS"), told("/proc/meminfo", "MemAvailable")


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
    # nobody searches meanwhile, nor later in what is there by then. Once it is there nothing is frozen: that would keep
    # what an earlier run of this process has left to be collected.
    is_first, searching = "torch" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        import torch
    finally:
        if is_first:
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


@contextlib.contextmanager
def handled(handler: Callable[[int, Any], object] | signal.Handlers, *numbers: int) -> Iterator[None]:
    """Inside, signals are handled so, and afterwards as before.

    Without effect where signals cannot be set: outside the main thread, which alone receives them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def terminated_like_interrupted() -> contextlib.AbstractContextManager[None]:
    """Inside, SIGTERM ends a run as cleanly as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    return handled(interrupt, signal.SIGTERM)


@contextlib.contextmanager
def parties_compute_with(count: int) -> Iterator[None]:
    """Inside, parties compute with this many threads. Afterwards torch has as many as before, and so has a notebook.

    torch is imported already, or is so inside; then it has as many as it begins with.
    """
    import torch  # here, since what needs no parties must not wait for it

    before, torchs = threads_of_a_party(), torch.get_num_threads()
    set_threads_of_a_party(count)
    try:
        yield
    finally:
        set_threads_of_a_party(before)
        torch.set_num_threads(torchs)
