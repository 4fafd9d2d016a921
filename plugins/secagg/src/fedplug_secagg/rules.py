"""Rules for recipes (`fedplug.rules`): rounds that go on with fewer clients than their shares open."""

from __future__ import annotations

import sys
from typing import Any

from fedplug.api.errors import ProtectionError

Complaint = tuple[tuple[str | int, ...], str]
"""A place in the recipe, and what is wrong there."""


def notes(rules: Any) -> list[str]:
    """That `min_clients` is below the threshold: a round with so few ends the run instead of going on."""
    general, clients, found = rules.draft.general, rules.num_clients, []
    module = sys.modules.get("fedplug_secagg.bonawitz")  # where it was not imported, no recipe names what is in it
    for use, part in rules.defined:
        if module is None or not isinstance(part, module.Bonawitz) or general is None or clients is None:
            continue
        try:
            needed = part.parameters(clients).threshold
        except ProtectionError:
            continue  # a complaint of the component
        if general.min_clients < needed:
            found.append(
                f"min_clients={general.min_clients} is below the {needed} clients that open a sum with {use.use}: a "
                f"round of fewer cannot be opened, and the run stops there; write min_clients: {needed}, or lower "
                "threshold"
            )
    return found


def problems(rules: Any) -> list[Complaint]:
    """None: each component says what is wrong with its own options."""
    return []
