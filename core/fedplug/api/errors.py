"""Errors a user can do something about. The command line prints their message without a traceback."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Self

ERRORS = "errors.log"
"""In the run folder: tracebacks of what went wrong, of all parties."""


class FedplugError(Exception):
    """Base of every error whose message names the place, the value, the rule and the remedy.

    Attributes:
        client_id: the one client whose upload is to blame; the round continues without it. None where nobody is.
        run_folder: of the run that it ended, with what is saved of it; None where nothing is.
    """

    client_id: int | None = None
    run_folder: Path | None = None

    def blame(self, client_id: int) -> Self:
        """Says that this client's upload alone is at fault; for what combines, adds or opens uploads."""
        self.client_id = client_id
        return self


class RecipeError(FedplugError):
    """A recipe that cannot be used.

    Attributes:
        problems: one `file:line:column: message` a mistake, and those of `not_run`.
        not_run: no mistakes, but places that name code which nobody has said may run; `trust` says more.
    """

    def __init__(self, problems: list[str], not_run: list[str] | None = None) -> None:
        self.problems, self.not_run = problems, not_run or []
        super().__init__("\n".join(problems))


class PluginError(FedplugError):
    """A plugin cannot be used: a name offered twice, an import that fails, a hook with the wrong arguments."""


class MessageError(FedplugError):
    """Bytes that are not a message of this protocol: truncated, of another version, or of another recipe."""


class DataError(FedplugError):
    """A data set is missing or unusable."""


class CheckpointError(FedplugError):
    """A checkpoint is missing, corrupted, or of another recipe."""


class ClientError(FedplugError):
    """A client failed; carries its id and the cause as text."""


class Refusal(ClientError):
    """The key server refused one call, or failed at it; it is there, and may do the next.

    Attributes:
        kind: the name of the error's class at the key server.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(message)


class TooFewClients(FedplugError):
    """Fewer clients answered than a round, or what a component does in it, needs; the round is skipped."""


class ProtectionError(FedplugError):
    """A protector refuses: a sum that could overflow, too few contributors, values it cannot represent."""


class OpenedBefore(ProtectionError):
    """Another sum of the same round and zone was opened, as far back as the party that opens remembers.

    A round that is repeated after a resume continues without that sum, whichever party refuses it, and in whatever
    method: a client that raises it stays in the round.

    Attributes:
        zone: of the sum; empty where nobody says.
    """

    zone = ""

    def of(self, zone: str) -> Self:
        """Says of which zone the sum is."""
        self.zone = zone
        return self


class SetupError(FedplugError):
    """Something the machine lacks: a device, a library, a folder that cannot be written."""


class ViewError(FedplugError):
    """An attack was asked of something that no adversary has seen: no recorded messages, an unknown tensor."""


class MetricError(FedplugError):
    """A metric is not defined for what it was given: an image too small, values out of range."""


class PartyLost(FedplugError):
    """The process of a party ended. It is restored from the last checkpoint before it is asked again."""


def cause_of(error: BaseException) -> str:
    """An error that is not fedplug's own, in one line: its type, its message, and the line that raised it.

    Where a user's own file is on the way there, its line, which its author can fix.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    own = [frame for frame in frames if frame.filename.endswith(".py") and not PurePath(frame.filename).is_absolute()]
    frames = own or frames
    where = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{f': {error}' if str(error) else ''}{where}"


def describe(error: BaseException) -> str:
    """The message of an error; for one that is not fedplug's own, its type and where it was raised."""
    return str(error) if isinstance(error, FedplugError) else cause_of(error)


@contextlib.contextmanager
def of_component(name: str, what: str) -> Iterator[None]:
    """Inside, an error that is not fedplug's own becomes one that names the component and what it was to do."""
    try:
        yield
    except FedplugError:
        raise
    # A component that calls sys.exit() fails as any other does; it must not end the program without a word.
    except (Exception, SystemExit) as error:
        raise PluginError(f"component {name}, {what}: {cause_of(error)}") from error


def log_error(run_dir: Path | None, whose: str, error: BaseException) -> None:
    """Appends the traceback of an error to `errors.log` of the run folder, for the author of the code that raised it.

    Args:
        run_dir: None where there is no folder; nothing is written then.
        whose: the party in which it was raised, and what it was doing.
        error: with its causes.
    """
    if run_dir is None or not run_dir.is_dir():
        return
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # a full disk must not hide what went wrong
        handle = os.open(run_dir / ERRORS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(f"-- {whose}\n{text}\n")
