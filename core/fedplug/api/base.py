"""The base of all roles: what every component is, whatever it is for."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fedplug.api.component import Options
from fedplug.api.members import add_role, misspelt

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.effects import Reveals
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


add_role(Component)
