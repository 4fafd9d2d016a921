"""Programs that a command starts and that end with it. Each has its own log, and all stop together."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug_runs.files import open_private
from fedplug_runs.machine import handled

_STOP_SECONDS = 5.0
"""Seconds that a program has to end after it was told to."""
_TOLD = 5
"""Lines of a log to show after a program has ended."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Programs:
    """Programs with one environment. Each has its own process group, so Ctrl-C reaches only this process.

    Args:
        folder: where to write their logs.
        environ: added to the environment of this process.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder, self._environ = folder, {**os.environ, **environ}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        """Starts a program, or restarts one that has ended. Its output goes to `NAME.log`.

        Raises:
            SetupError: there is no such program.
        """
        assert name not in self._running or self._running[name].poll() is not None
        with open_private(self._folder / f"{name}.log", "ab") as log:
            try:
                self._running[name] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._environ,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise SetupError(f"{command[0]} cannot be started: {error.strerror}") from error

    def pids(self) -> dict[str, int]:
        """The process id of each program."""
        return {name: process.pid for name, process in self._running.items()}

    def require(self) -> None:
        """Checks that all programs run.

        Raises:
            SetupError: a program has ended; shows the end of its log.
        """
        for name, process in self._running.items():
            if process.poll() is not None:
                raise SetupError(f"{name} ended with code {process.returncode}; its log says: {self.tail(name)}")

    def tail(self, name: str) -> str:
        """The last lines of a log."""
        with contextlib.suppress(OSError):
            text = _COLOUR.sub("", (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace"))
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return " | ".join(lines[-_TOLD:]) or "nothing"
        return "nothing"

    def await_port(self, name: str, port: int, seconds: float) -> None:
        """Waits until a program accepts connections.

        Raises:
            SetupError: the program ends, or does not accept connections within this time.
        """

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return True
            return False

        self._await(name, answers, seconds)

    def await_file(self, name: str, file: Path, seconds: float) -> None:
        """Waits until a program has created a file.

        Raises:
            SetupError: the program ends, or does not create the file within this time.
        """
        self._await(name, file.exists, seconds)

    def _await(self, name: str, is_ready: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not is_ready():
            self.require()
            if time.monotonic() > until:
                raise SetupError(f"{name} is not ready after {seconds:g} seconds; its log says: {self.tail(name)}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends all programs, the last one first, and all processes that they started, even in other sessions."""
        below = descendants({process.pid for process in self._running.values()})
        for process in reversed(self._running.values()):
            _signal(process.pid, signal.SIGTERM)
        until = time.monotonic() + _STOP_SECONDS
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for process in self._running.values():
            _signal(process.pid, signal.SIGKILL)
            process.wait()
        now = processes()
        for pid, (_, started) in below.items():
            if pid in now and now[pid][1] == started:  # otherwise another process has this id by now
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        self._running.clear()


@contextlib.contextmanager
def programs(folder: Path, environ: Mapping[str, str]) -> Iterator[Programs]:
    """Yields `Programs`, and stops all of them at the end."""
    started = Programs(folder, environ)
    try:
        yield started
    finally:
        with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C must not interrupt this
            started.stop()


def free_ports(number: int) -> list[int]:
    """Free ports of this machine."""
    with contextlib.ExitStack() as stack:
        found: Sequence[socket.socket] = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in found]


def processes() -> dict[int, tuple[int, str]]:
    """Every process of this machine, with its parent and start time; empty if the system does not tell."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found[int(folder.name)] = (int(fields[1]), fields[19])
    return found


def descendants(roots: set[int]) -> dict[int, tuple[int, str]]:
    """The processes that these have started, directly or indirectly, as in `processes`."""
    everyone, found = processes(), dict[int, tuple[int, str]]()
    above = roots
    while above:
        below = {pid: facts for pid, facts in everyone.items() if facts[0] in above and pid not in found}
        found |= below
        above = set(below)
    return found


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
