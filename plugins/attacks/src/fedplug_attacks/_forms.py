"""Bases of attacks: on a view to which they may not apply, and in two forms.

One form knows which entries are hidden, the other treats them as 0.
"""

from __future__ import annotations

import abc
from typing import Literal, Self

import fedplug
from fedplug import Field
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, View

Form = Literal["adaptive", "naive"]


class OnView(fedplug.Attack):
    """An attack that does not apply to a view on which `learn` raises `ViewError`."""

    @abc.abstractmethod
    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """What it finds.

        Raises:
            ViewError: it does not apply to this view.
        """

    def attack(self, view: View, attacker: Attacker) -> AttackReport:
        """What it finds; not applicable, with the reason, where it cannot be made on this view."""
        try:
            return self.learn(view, attacker)
        except ViewError as error:
            return AttackReport("not_applicable", reason=str(error))


class Formed(OnView):
    """An attack whose option `form` selects one of the two forms."""

    class Options(fedplug.Options):
        """How hidden entries are treated."""

        form: Form = Field(
            "adaptive", description="adaptive: only visible entries are used; naive: hidden ones are treated as 0"
        )

    @property
    def form(self) -> Form:
        """The form in the options."""
        form: Form = self.options.form
        return form

    def in_form(self, form: Form) -> Self:
        """The same attack with the same options in the other form."""
        return type(self)(self.options.model_copy(update={"form": form}))


class SearchOptions(Formed.Options):
    """How hidden entries are treated, and where a search for inputs starts."""

    init: Literal["normal", "uniform", "public_mean"] = Field(
        "normal",
        description="where a search starts: normal (noise around the mean pixel), uniform (random pixels), public_mean "
        "(mean of the public examples and a little noise; without public examples the same as normal)",
    )
