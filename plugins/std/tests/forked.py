"""Programs that start at once: forked from the server of worker processes, which has imported the libraries already.

To import torch takes a new interpreter seconds. What begins with the import itself needs one all the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from fedplug_std import workers

FEDPLUG = "import sys; from fedplug_terminal.main import main; sys.exit(main())"
"""The command line."""


class Program:
    """A process that runs a text of Python, with the environment of this one.

    Args:
        code: the text.
        words: the arguments.
        cwd: the working directory; None: that of this process.
    """

    def __init__(self, code: str, *words: object, cwd: Path | None = None) -> None:
        self._files = [tempfile.NamedTemporaryFile() for _ in range(2)]  # noqa: SIM115  # for as long as the process
        names = [file.name for file in self._files]
        given = (code, [str(word) for word in words], str(cwd or Path.cwd()), dict(os.environ), names)
        self._process = workers._context().Process(target=_be, args=given)
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

    def poll(self) -> int | None:
        """Its exit code, or less 0 the signal that ended it; None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Waits for its end, and gives its exit code."""
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code

    def kill(self) -> None:
        """Kills it as `kill -9` does, and waits for its end."""
        self._process.kill()
        self._process.join()


def ran(code: str, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program after its end."""
    program = Program(code, *words, cwd=cwd)
    return subprocess.CompletedProcess([code, *words], program.wait(), program.stdout, program.stderr)


def _be(code: str, words: list[str], cwd: str, environ: dict[str, str], files: list[str]) -> None:
    for number, name in enumerate(files, 1):
        handle = os.open(name, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # workers keep it blocked
    import sys

    sys.argv = ["-c", *words]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
