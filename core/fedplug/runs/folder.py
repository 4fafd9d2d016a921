"""The folder of a run: how it is made and locked, and text that is never half written."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fedplug.api.errors import CheckpointError, SetupError


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


def recipe_file(run_dir: Path) -> Path:
    """The recipe of a run.

    Raises:
        CheckpointError: there is no run in that folder.
    """
    if not (file := run_dir / "recipe.yaml").is_file():
        raise CheckpointError(f"{run_dir} is not a run folder: it has no recipe.yaml; a run prints its folder")
    return file


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Inside, this process alone writes in a run folder. However it ends, `kill -9` too, the system frees the lock.

    Where the system has no such locks, a file marks the folder, and must be deleted by hand after a kill.

    Raises:
        SetupError: another process writes there.
    """
    file = run_dir / "run.lock"
    try:
        import fcntl
    except ImportError:
        with _marked(run_dir, file.with_suffix(".mark")):
            yield
        return
    try:
        opened = file.open("a+", encoding="utf-8")
    except OSError as error:
        raise SetupError(
            f"{run_dir} cannot be written ({error.strerror or error}); what it holds is safe: make it writable, and go "
            f"on: fedplug resume {run_dir}"
        ) from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            _await_number(file)
            raise SetupError(_taken(run_dir, file)) from error
        except OSError as error:
            reason = f"{run_dir} cannot be locked ({error.strerror or error})"
            raise SetupError(f"{reason}; a run needs a file system with locks: choose one with --output") from error
        try:
            lock.truncate(0)
            os.write(lock.fileno(), str(os.getpid()).encode())  # not buffered, or closing it would fail once more
        except OSError as error:
            raise SetupError(f"{run_dir} cannot be used ({error.strerror or error}); make room there") from error
        yield


@contextlib.contextmanager
def _marked(run_dir: Path, mark: Path) -> Iterator[None]:
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    except FileExistsError as error:
        raise SetupError(f"{_taken(run_dir, mark)}; if it runs no more, delete {mark}") from error
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def _await_number(file: Path, seconds: float = 2) -> None:
    """A process locks first and then writes its number, over that of one that was killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(PermissionError):  # another user's process
            try:
                os.kill(int(file.read_text(encoding="utf-8")), 0)  # sends nothing; raises where no such process runs
            except (ValueError, ProcessLookupError):
                time.sleep(0.01)
                continue
        return


def writer_of(run_dir: Path) -> str:
    """Who writes in a run folder at this moment, as half a sentence; empty where nobody does."""
    file = run_dir / "run.lock"
    if file.with_suffix(".mark").exists():
        return _named(file.with_suffix(".mark"))
    try:
        import fcntl

        with file.open("r+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(file)
    except (ImportError, OSError):  # it was never locked, or cannot be by us
        return ""
    return ""


def _named(file: Path) -> str:
    who = file.read_text(encoding="utf-8").strip()
    return f"process {who}" if who else "another process"


def _taken(run_dir: Path, file: Path) -> str:
    return f"{run_dir} is being written by {_named(file)}; wait until that is done, or end it, and try again"


def write_text(path: Path, text: str) -> None:
    """Writes a file so that a kill leaves the old or the new one, never half of it; an OSError names the file."""
    draft = path.with_name(path.name + ".tmp")
    try:
        # What cannot be encoded is from the command line, or of a component: half a character must not cost everything.
        draft.write_text(text, encoding="utf-8", errors="replace")
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
