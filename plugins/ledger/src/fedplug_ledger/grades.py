"""Who is judged and how: the parties, the grades of a line, the status of a verdict, and what an epsilon is."""

from __future__ import annotations

from typing import Literal

from fedplug.api.operations import Party
from fedplug.api.records import Number, Record, Text

PARTIES: dict[Party, str] = {
    "server": "the server",
    "key_holder": "the key server",
    "client": "another client",
    "client_and_server": "a client together with the server",
    "released_model": "anybody who gets the model",
}
"""Who looks, in the order of the lines."""
Status = Literal[
    "protected_from_all", "weakly_protected_from_all", "protected_from_some", "weakly_protected_from_some",
    "no_meaningful_guarantee", "no_protection", "nothing_run",
]  # fmt: skip
State = Literal["guaranteed", "beyond", "none", "absent"]
Grade = State | Literal["weak"]
LARGEST_MEANINGFUL = 20.0
"""Epsilon above which no line is a guarantee; a guarantee whose replace-one epsilon is above it is weak.

The odds of a right guess about a client may then change by a factor of e^20 = 5e8: who guessed one client in a million
knows. No theorem: see docs/edges/differential-privacy.md."""


Methods = dict[Text, Number]
"""By method of accounting, what it states; the first is the one to quote."""


def quoted(stated: Methods) -> float:
    """The one to quote."""
    return next(iter(stated.values()))


class Epsilons(Record):
    """Epsilon of the worst client under both adjacencies, by method."""

    zero_out: Methods
    replace_one: Methods

    @property
    def epsilon(self) -> float:
        """Add-or-remove, by the first method."""
        return quoted(self.zero_out)


class Priced:
    """What has an epsilon, or none.

    Attributes:
        epsilons: None where there is no guarantee.
    """

    epsilons: Epsilons | None

    @property
    def epsilon(self) -> float | None:
        """Add-or-remove, by the first method; None where there is no guarantee."""
        return None if self.epsilons is None else self.epsilons.epsilon


class Graded(Priced):
    """What is graded by its state and its epsilons. See `fedplug_ledger.verdict.Line` for the fields."""

    state: State
    stated: Methods

    @property
    def value(self) -> float | None:
        """The epsilon to quote, of the line's unit; None where nothing is stated."""
        return quoted(self.stated) if self.stated else self.epsilon

    @property
    def weak(self) -> bool:
        """Whether the guarantee promises nothing useful under replace-one: its epsilon there is above 20."""
        if self.state != "guaranteed" or self.epsilons is None or self.stated:
            return False
        return quoted(self.epsilons.replace_one) > LARGEST_MEANINGFUL

    @property
    def grade(self) -> Grade:
        """The state, or `weak`: by this a line is shown and compared."""
        return "weak" if self.weak else self.state
