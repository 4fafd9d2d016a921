"""How a component is written: typed options, and markers for methods that run elsewhere.

A component is a subclass of its role (`fedplug.api.roles`) with a one-line summary as the first line of its docstring,
a nested `Options` class and, where the role has a hook, a method of its name. The run gives each component instance a
`name` attribute, under which recipes, messages and state refer to it.

Modules that define components must not import torch, tenseal or other heavy libraries at the top: `fedplug check` and
`fedplug show` import them. Import heavy libraries inside the methods that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import pluggy
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

hookimpl = pluggy.HookimplMarker("fedplug")
"""Marks a method of an extension that wraps the hook of the same name: `@hookimpl(wrapper=True)`."""

F = TypeVar("F", bound=Callable[..., Any])


class Options(BaseModel):
    """Base of every component's options: frozen, unknown keys refused, defaults validated.

    Give every field a `description`; `fedplug show` and `fedplug schema` print it. A field that you rename says
    `json_schema_extra={"formerly": "old"}`, and one whose values you rename `{"renamed": {"old": "new"}}`: recipes with
    the old names get an error that says the new ones.
    """

    # Built when first used: a module may hold the options of ten components, of which a recipe names one.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses true and false where numbers are wanted; pydantic alone would take them for 1 and 0."""
        if info.field_name and _holds_bool(value):
            annotation = cls.model_fields[info.field_name].annotation
            if _mentions(annotation, int, float) and not _mentions(annotation, bool, True, False, Any, object):
                kind = "a number" if _mentions(annotation, float) else "a whole number"
                raise PydanticCustomError("bool_as_number", "Input should be {kind}, not true or false", {"kind": kind})
        return value


class File(Options):
    """A file that a component needs, such as weights. In a recipe its path is enough: `base: weights.pt`.

    fedplug looks for it next to the recipe that names it, in the working directory, and among shipped recipes.
    The resolved recipe has its name and its SHA-256; the run folder has a copy, and worker processes are sent it.
    """

    file: str = Field(min_length=1, description="its path")
    sha256: str | None = Field(None, description="of what it holds; filled in when the recipe is read")

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value

    def read(self) -> bytes:
        """The content with which the recipe was resolved.

        Raises:
            SetupError: this process has not read it, nor was it sent it.
        """
        if (held := _HELD.get(self.sha256 or "")) is None:
            from fedplug.api.errors import SetupError

            raise SetupError(f"what {self.file} holds is not here; name it in a recipe, which reads it")
        return held


_HELD: dict[str, bytes] = {}


def hold(sha256: str, content: bytes) -> None:
    """From here on a `File` with this SHA-256 is read as `content`, in this process."""
    _HELD[sha256] = content


def _holds_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_bool, value)))


def _mentions(annotation: Any, *wanted: Any) -> bool:
    """Whether an annotation contains one of these: int in `list[int] | None`, True in `Literal[True]`."""
    return any(annotation is one for one in wanted) or any(_mentions(part, *wanted) for part in get_args(annotation))


def at_client(method: F) -> F:
    """Marks `method(self, client, *payload)` as one that a server may run at clients through `cohort.ask` or `tell`."""
    method.__fedplug_site__ = "client"  # type: ignore[attr-defined]
    return method


def at_key_server(method: F) -> F:
    """Marks `method(self, key_server, *payload)` as one that the server may run at the key server."""
    method.__fedplug_site__ = "key_server"  # type: ignore[attr-defined]
    return method


def named(method: Callable[..., Any]) -> tuple[Any, str]:
    """The component that a bound method belongs to, or None, and the method's name."""
    return getattr(method, "__self__", None), getattr(method, "__name__", str(method))


def site_of(method: Any) -> str | None:
    """The party at which a method is marked to run; None where it is not marked."""
    return getattr(method, "__fedplug_site__", None)


def remote_method(component: Any, name: str, site: str) -> Callable[..., Any] | None:
    """The method that a message names, if the component has it and has marked it for that site."""
    method = getattr(component, name, None)
    return method if site_of(method) == site else None
