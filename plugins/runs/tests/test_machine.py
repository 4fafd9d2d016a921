"""A run's requirements of its machine, and its command line there."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.blocks import Layout
from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.machine import PeakMemory, command_line, require_memory, resolve_device, terminated_like_interrupted
from toy_components import recipe_of, toy_catalog


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/usr/bin/fedplug", "run", "my recipe.yaml"], "fedplug run 'my recipe.yaml'"),
        (["/lib/fedplug/__main__.py", "list"], "fedplug list"),
        (["script.py", "run"], ""),
        ([""], ""),
    ],
)
def test_only_a_command_of_fedplug_is_repeated(
    words: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", words)
    assert command_line() == command


def memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": size}.__getitem__)


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, 4 * 650 * 4),
        ({"score_parameters": ["std.random"]}, 2 * 4 * 650 * 4),
        ({"sampling": {"scheme": "fixed", "rate": 0.5}}, 4 * 650 * 2),
    ],
)
def test_updates_and_scores_of_a_rounds_clients_have_to_fit(
    changes: dict[str, Any], needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 clients, 650 float32 each, and as many again for each score; of a sample its share."""
    recipe = Recipe.from_plain(recipe_of(**changes), toy_catalog())
    layout = Layout.of([("w", (65, 10))])
    memory(monkeypatch, needed)
    require_memory(recipe, layout)
    memory(monkeypatch, needed - 1)
    with pytest.raises(SetupError, match=r"4 clients with a model of 650 parameters: that takes .*data\.clients"):
        require_memory(recipe, layout)


def test_a_machine_that_does_not_tell_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    require_memory(Recipe.from_plain(recipe_of(), toy_catalog()), Layout.of([("w", (10**9, 10**9))]))


def test_termination_is_an_interruption_inside_and_as_before_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    found: list[Any] = []

    def elsewhere() -> None:  # where signals cannot be set
        with terminated_like_interrupted():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]


def test_devices() -> None:
    import torch

    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    missing = f"cuda:{torch.cuda.device_count() if torch.cuda.is_available() else 0}"
    with pytest.raises(SetupError, match="auto or cpu"):
        resolve_device(missing)
    for bad in ("gpu", "cuda:", "cuda:x", "cudax", ""):
        with pytest.raises(SetupError, match="must be auto, cpu"):
            resolve_device(bad)


@pytest.mark.parametrize("searching", [True, False])
def test_garbage_is_looked_for_as_before_once_the_device_is_known(searching: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if searching else gc.disable)()
        assert resolve_device("cpu") == "cpu"
        assert gc.isenabled() is searching
        with pytest.raises(SetupError, match="device=gpu must be"):
            resolve_device("gpu")
        assert gc.isenabled() is searching
    finally:
        (gc.enable if before else gc.disable)()


def test_what_importing_torch_made_is_looked_through_no_more(tmp_path: Path) -> None:
    """A library of that name is enough: torch itself takes seconds."""
    (tmp_path / "torch.py").write_text("import gc\nsearching = gc.isenabled()\nmade = [[] for _ in range(20_000)]\n")
    said = (
        "import gc, sys; sys.path.insert(0, sys.argv[1]); from fedplug_runs.machine import resolve_device as r\n"
        "assert 'torch' not in sys.modules; r('cpu'); import torch\n"
        "print(torch.searching, gc.get_freeze_count() > 20_000, any(one is torch.made for one in gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", said, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_the_peak_of_memory_is_of_what_was_held_since() -> None:
    memory = PeakMemory()
    before = memory.bytes()
    assert before is not None
    with mmap.mmap(-1, 80_000_000) as held:  # from the system, where an allocator would give what was freed before
        held.write(b"\1" * 80_000_000)
    after = memory.bytes()
    assert after is not None
    assert 70e6 < after - before < 250e6


def test_what_an_earlier_run_left_can_still_be_collected() -> None:
    resolve_device("cpu")  # the first one, which may import torch and keeps what that makes

    class Left:
        """In a cycle, as parties are."""

    left = Left()
    left.itself = left  # type: ignore[attr-defined]
    gone = weakref.ref(left)
    del left
    resolve_device("cpu")
    gc.collect()
    assert gone() is None
