"""What clients or the key server answered that no statement of a component covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedplug.api.component import remote_method
from fedplug.api.events import MessageUncovered
from fedplug.api.roles import Groups, Negotiation

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.recipe.composition import Composition
    from fedplug.wire.post_office import PostOffice


def uncovered(composition: Composition, office: PostOffice, ctx: Context) -> Iterator[MessageUncovered]:
    """Questions of components whose answers none of them says anything about, or that are not paid for."""
    for name, method in sorted(office.told):
        component = composition.components.get(name)
        if component is not None and not any(method in shown.asked for shown in component.reveals(ctx)):
            whom = "clients" if remote_method(component, method, "client") else "the key server"
            yield MessageUncovered(name, method, f"asks {whom} for {method}, and says nowhere what the answers show")
    for name, method in _unpaid(composition, office, ctx):
        what = f"has clients answer {method} more often in a round than its ballots are charged"
        yield MessageUncovered(name, method, what)


def _unpaid(composition: Composition, office: PostOffice, ctx: Context) -> Iterator[tuple[str, str]]:
    """Ballots of which a client gave more in this round than the ledger enters: one where noise is stated."""
    for (name, method), most in office.most_answers().items():
        component = composition.components.get(name)
        if not isinstance(component, Groups | Negotiation):
            continue
        paid = any(shown.covered_by == "epsilon" and method in shown.asked for shown in component.reveals(ctx))
        if paid and most > bool(component.ballots(ctx.round, ctx)):
            yield name, method
