"""What attacks share that come in two forms: one that knows which entries are hidden, and one that takes them for 0."""

from __future__ import annotations

from typing import Literal, Self

import fedplug


class Formed(fedplug.Attack):
    """An attack whose option `form` says which of the two it is."""

    @property
    def form(self) -> Literal["adaptive", "naive"]:
        """As its options say."""
        form: Literal["adaptive", "naive"] = self.options.form
        return form

    def in_form(self, form: Literal["adaptive", "naive"]) -> Self:
        """The same attack, and the same options but for the form."""
        return type(self)(self.options.model_copy(update={"form": form}))
