"""Shared code of attacks with two forms: one knows which entries are hidden, the other treats them as 0."""

from __future__ import annotations

from typing import Literal, Self

import fedplug


class Formed(fedplug.Attack):
    """An attack whose option `form` selects one of the two forms."""

    @property
    def form(self) -> Literal["adaptive", "naive"]:
        """The form in the options."""
        form: Literal["adaptive", "naive"] = self.options.form
        return form

    def in_form(self, form: Literal["adaptive", "naive"]) -> Self:
        """The same attack with the same options in the other form."""
        return type(self)(self.options.model_copy(update={"form": form}))
