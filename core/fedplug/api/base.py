"""The base of all roles: what every component is, whatever it is for."""

from __future__ import annotations

import abc
import copy
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedplug.api.component import Options
from fedplug.api.errors import ProtectionError
from fedplug.api.members import add_role, misspelt

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.role_records import Reveals
    from fedplug.recipe.recipe import Recipe
    from fedplug.wire.cohort import Cohort
    from fedplug.wire.key_server_line import KeyServerLine


class Component(abc.ABC):
    """What every component is: built from typed options, named by the run, and answerable for what it shows.

    Attributes:
        name: under which recipes, messages and state refer to it; set by the run.
        options: as validated.
    """

    Options: ClassVar[type[Options]] = Options
    name: str
    options: Any

    def __init__(self, options: Any) -> None:
        self.options = options

    def __init_subclass__(cls, role: bool = False, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if role:
            add_role(cls)
        elif problems := list(misspelt(cls)):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__}: " + "; ".join(problems))

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_frozen"):
            raise ProtectionError(
                f"component {self.name} keeps {name} on itself, where the other clients of its process would find it; "
                "keep it in client.memory(self), or in client.cache where it can be made again"
            )
        super().__setattr__(name, value)

    def freeze(self) -> None:
        """From here on nothing can be kept on the component: it is the same for all clients and in all processes.

        Raises:
            TypeError: it holds a generator of random numbers, which would remember what was drawn.
        """
        for name, value in vars(self).items():
            if hasattr(value, "bit_generator") or hasattr(value, "getrandbits"):
                remedy = "draw from client.rng(self) or ctx.rng(self.name)"
                raise TypeError(f"{name} is a generator of random numbers; {remedy}")
            self.__dict__[name] = _fixed(value)
        self.__dict__["_frozen"] = True

    def varied(self, **changes: Any) -> Self:
        """A copy of the component with other attributes."""
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    @property
    def cohort_secret(self) -> bool:
        """Whether the clients must agree on a secret before round 1 (`client.secret`)."""
        return False

    def check(self, recipe: Recipe) -> Iterable[str]:
        """Further complaints about the recipe as a whole, each a sentence with its remedy."""
        return ()

    def setup(self, cohort: Cohort, key_server: KeyServerLine, ctx: Context) -> None:  # noqa: B027
        """Runs at the server, once, before round 1: keys, parameters."""

    def reveals(self, ctx: Context) -> Sequence[Reveals]:
        """What it makes visible beside the protected values."""
        return ()

    def describe(self) -> str:
        """One line for the plan of the run; by default its options."""
        given = [(key, value) for key, value in self.options if value is not None]
        if given:
            shown = (f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in given)
            return ", ".join(shown)
        return (type(self).__doc__ or "").strip().partition("\n")[0]


def _fixed(value: Any) -> Any:
    """The value, or of a container one with the same in it that cannot be changed."""
    match value:
        case dict():
            return types.MappingProxyType({key: _fixed(inner) for key, inner in value.items()})
        case list():
            return tuple(map(_fixed, value))
        case set():
            return frozenset(value)
    if hasattr(value, "__array_interface__") and value.dtype.kind != "O":
        from fedplug.api.unchangeable import unchangeable  # whoever has an array has imported numpy

        return unchangeable(value)
    return value


add_role(Component)
