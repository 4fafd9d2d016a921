"""Whether processes have ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path


def alive(pid: int) -> bool:
    """A process that has ended is listed until its parent waits for it. An orphan's new parent may take a while."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(processes: Iterable[int], seconds: float = 120.0) -> bool:
    """Whether all have ended within that time."""
    deadline = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, processes))


SIGNALLED = """
import os, signal, sys, threading
from fedplug_terminal.main import main
from fedplug_runs.checkpoint import Checkpoints

number, at, delay, note = (kind(word) for kind, word in zip((int, int, float, str), sys.argv[1:5]))
del sys.argv[1:5]
write = Checkpoints.write


def signalled(self, round, *given):
    path = write(self, round, *given)
    if round == at:
        with open(f"/proc/self/task/{os.getpid()}/children") as children, open(note, "w") as file:
            file.write(children.read())
        threading.Timer(delay, os.kill, (os.getpid(), number)).start()
    return path


Checkpoints.write = signalled
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
sys.exit(main())
"""
"""The command line as a program that sends itself a signal some seconds after it has written a checkpoint. A test that
watched the folder could look too late. Its arguments: the signal, after how many rounds, the seconds, and a file in
which it notes its children first; then those of the command line.
"""
