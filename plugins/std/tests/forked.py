"""Programs that start at once: forked from a server that has imported the libraries already, as worker processes are.

To import torch takes a new interpreter seconds. What begins with the import itself needs one all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import current_process, forkserver, get_context
from pathlib import Path
from typing import Any
from unittest import mock

from fedplug_std import workers
from fedplug_std.pool import draw_apart

FEDPLUG = "import sys; from fedplug_terminal.main import main; sys.exit(main())"
"""The command line."""


class Program:
    """A process that runs a text of Python.

    Args:
        code: the text.
        words: the arguments.
        log: the file for what it prints and says of errors; None: `stdout` and `stderr` keep it.
        cwd: the working directory; None: that of this process.
        environ: the environment; None: that of this process.
        server: what it is forked from; None: the server of workers.
    """

    def __init__(
        self, code: str, *words: object, log: Path | None = None, cwd: Path | None = None,
        environ: Mapping[str, str] | None = None, server: forkserver.ForkServer | None = None,
    ) -> None:  # fmt: skip
        self._files = [] if log else [tempfile.NamedTemporaryFile() for _ in range(2)]  # noqa: SIM115
        names = [str(log)] * 2 if log else [file.name for file in self._files]
        given = (code, [str(word) for word in words], str(cwd or Path.cwd()), dict(environ or os.environ), names)
        # A daemon, so that the end of the tests does not wait for one that a failure has left behind.
        if server is None:
            self._process = workers._context().Process(target=_be, args=given, daemon=True)
            self._process.start()
        else:
            self._process = get_context("forkserver").Process(target=_be, args=given, daemon=True)
            with mock.patch.object(forkserver, "connect_to_new_process", server.connect_to_new_process):
                self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def stdout(self) -> str:
        """What it has printed."""
        return Path(self._files[0].name).read_text("utf-8")

    @property
    def stderr(self) -> str:
        """What it has said of errors."""
        return Path(self._files[1].name).read_text("utf-8")

    @property
    def returncode(self) -> int | None:
        """Its exit code, or less 0 the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same: it is always looked for."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end, and gives its exit code.

        Raises:
            TimeoutExpired: it runs on after this number of seconds.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        """Kills it as `kill -9` does, and waits for its end."""
        self._process.kill()
        self._process.join()


def ran(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A program after its end."""
    program = Program(code, *words)
    return subprocess.CompletedProcess([code, *words], program.wait(), program.stdout, program.stderr)


@contextlib.contextmanager
def server_with(libraries: Sequence[str], environ: Mapping[str, str]) -> Iterator[forkserver.ForkServer]:
    """A server that has imported these libraries in this environment, while the context is open."""
    server: Any = forkserver.ForkServer()
    server.set_forkserver_preload(list(libraries))
    with mock.patch.dict(os.environ, {**environ, "OMP_NUM_THREADS": "1"}):  # other threads would be lost in the fork
        server.ensure_running()
    try:
        yield server
    finally:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


def _be(code: str, words: list[str], cwd: str, environ: dict[str, str], files: list[str]) -> None:
    os.setsid()
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it may start processes
    for number, name in enumerate(files, 1):
        handle = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # workers keep it blocked
    draw_apart()
    sys.argv = ["-c", *words]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
