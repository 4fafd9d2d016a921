"""NVFlare's choices of layers by name: `ExcludeVars`, and the `encrypt_layers` of `HEModelEncryptor`.

Sources: NVIDIA/NVFlare 2.9.0, nvflare/app_common/filters/exclude_vars.py and nvflare/app_opt/he/model_encryptor.py.
"""

from __future__ import annotations

import abc
import re
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Facts, Field, Plan, Plans
from fedplug.api.blocks import CLEAR, ENCRYPTED, RETAINED
from fedplug.api.errors import SetupError
from pydantic import field_validator

if TYPE_CHECKING:
    from fedplug import Cohort, KeyServerLine


def matching(wanted: str | tuple[str, ...], names: list[str]) -> list[str]:
    """The names that NVFlare takes: those in a list, or those in which a regular expression is found."""
    if isinstance(wanted, str):
        pattern = re.compile(wanted)
        return [name for name in names if pattern.search(name)]
    return [name for name in names if name in wanted]


class _Chosen(fedplug.PublicPlan):
    """Parameters with certain names in one zone, the others in another. The plan is public and the same in all rounds.
    """

    @property
    @abc.abstractmethod
    def wanted(self) -> str | tuple[str, ...]:
        """A regular expression, or names."""

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[str, str]:
        """The zone of the parameters with these names, and that of the others."""

    @property
    def plans(self) -> Plans:
        """Two zones, whatever the clients and the data."""
        return Plans(zones=frozenset(self.parts), fixed=True)

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Checks that the model has parameters with these names, and others that are sent.

        Raises:
            SetupError: it has none.
        """
        names = [parameter.name for parameter in facts.layout.parameters]
        found = matching(self.wanted, names)
        if not found:
            raise SetupError(f"{self.name}: no parameter is called {self.wanted!r}; the model has {', '.join(names)}")
        if len(found) == len(names) and self.parts[0] == RETAINED:
            raise SetupError(f"{self.name}: {self.wanted!r} leaves no parameter to send of {', '.join(names)}")

    def plan(self, facts: Facts) -> Plan:
        """The zones of the names, the same in every round."""
        parameters = facts.layout.parameters
        taken = set(matching(self.wanted, [parameter.name for parameter in parameters]))
        where = np.zeros(facts.layout.size, np.bool_)
        for parameter in parameters:
            where[parameter.slice] = parameter.name in taken
        zone, other = self.parts
        return Plan.of(facts, other, **{zone: where})

    def describe(self) -> str:
        """One line for the plan of the run."""
        zone, other = self.parts
        how = f"names with {self.wanted!r}" if isinstance(self.wanted, str) else ", ".join(self.wanted)
        return f"{how}: {zone}; all others: {other}"


def _right(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not value:
        raise ValueError(f"{value!r} names no parameter; write a regular expression or a list of names")
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from error
    return value


class ExcludeVars(_Chosen):
    """Leave parameters out of what clients send, by name (NVFlare's `ExcludeVars`).

    As in NVFlare 2.9.0: a string is a regular expression, found anywhere in a name; a list has whole names. The server
    never gets these parameters, so the global model keeps its first values there, and clients start each round from
    those. What is sent gets no protection: it follows from the same examples.

    For parameters that stay with each client as it trained them, use `std.by_name`.
    """

    class Options(fedplug.Options):
        """NVFlare's argument, and the zone of what is sent."""

        exclude_vars: str | tuple[str, ...] = Field(
            description="parameters that are not sent: a regular expression, or a list of names"
        )
        other_zone: str = Field(CLEAR, description="zone of all other parameters")

        _right = field_validator("exclude_vars")(_right)

    options: Options

    @property
    def wanted(self) -> str | tuple[str, ...]:
        """The option."""
        return self.options.exclude_vars

    @property
    def parts(self) -> tuple[str, str]:
        """Excluded parameters stay at the client."""
        return RETAINED, self.options.other_zone


class EncryptLayers(_Chosen):
    """Encrypt parameters by name, and send the others in the clear (`encrypt_layers` of NVFlare's `HEModelEncryptor`).

    As in NVFlare 2.9.0: a string is a regular expression, found anywhere in a name; a list has whole names. NVFlare
    encrypts with CKKS, under one key that all clients hold and the server does not. `std.ckks` with
    `key_holder: clients` does so for a part of the model. `baselines.ckks` with `like: nvflare` has NVFlare's
    parameters, and encrypts the whole. The server reads the parameters that are left in the clear. The first layer
    gave it 24 of 24 images, from three batches of 8 (`recipes/deployed/encrypt-layers.yaml`).

    NVFlare multiplies by weights before it encrypts (`weigh_by_local_iter`, `aggregation_weights`); here the core
    multiplies by the weights of `aggregate`, before it encrypts.
    """

    class Options(fedplug.Options):
        """NVFlare's argument, and the two zones."""

        encrypt_layers: str | tuple[str, ...] = Field(
            description="parameters that are encrypted: a regular expression, or a list of names"
        )
        zone: str = Field(ENCRYPTED, description="zone of these parameters")
        other_zone: str = Field(CLEAR, description="zone of all other parameters")

        _right = field_validator("encrypt_layers")(_right)

    options: Options

    @property
    def wanted(self) -> str | tuple[str, ...]:
        """The option."""
        return self.options.encrypt_layers

    @property
    def parts(self) -> tuple[str, str]:
        """As the options name them."""
        return self.options.zone, self.options.other_zone
