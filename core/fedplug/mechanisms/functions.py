"""Calls a plugin's functions, and looks at what they give as at anything that comes from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedplug.api.blocks import Block
from fedplug.api.blocks import block_problem as fields_problem
from fedplug.api.errors import FedplugError, PluginError, ProtectionError, cause_of
from fedplug.api.links import Link
from fedplug.api.operations import Operation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def called(link: Link, operation: Operation, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a plugin's function.

    Raises:
        PluginError: it fails; names the component, the hook and the operation.
    """
    try:
        return function(*arguments)
    except FedplugError:
        raise
    # A component that calls sys.exit() fails as any other does; it must not end the program without a word.
    except (Exception, SystemExit) as error:
        raise PluginError(f"{place(link, operation)}: {cause_of(error)}") from error


def place(link: Link, operation: Operation) -> str:
    return f"component {link.name}, hook {link.hook}, zone {link.zone}, {type(operation).__name__}"


def refusal(link: Link, operation: Operation, problem: str) -> ProtectionError:
    return ProtectionError(f"{place(link, operation)}: {problem}")


def shape_problem(given: Any, zone: str) -> str:
    """What keeps something from being a block of a zone; empty if it is one."""
    if not isinstance(given, Block):
        what = f"an array {given.dtype}{list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
        return f"it gave {what}; it must give a Block (block.replace(values=...) makes one)"
    if given.zone != zone:
        return f"it gave a block of zone {given.zone}; a link gives the zone that it is handed"
    if given.values is None and given.sealed_by is None:
        return "it gave a block without values that nobody has closed"
    return fields_problem(given)


def not_finite(block: Block) -> int:
    """How many plain values of a block are NaN or infinite."""
    return 0 if block.values is None else int(np.count_nonzero(~np.isfinite(block.values)))


def float32(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return cast("NDArray[np.float32]", values.astype(np.float32))
