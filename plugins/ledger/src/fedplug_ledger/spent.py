"""What the metrics say after every round: epsilons spent so far. The verdict comes last."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedplug_ledger.book import Book
from fedplug_ledger.costs import Spent
from fedplug_ledger.grades import quoted
from fedplug_ledger.views import Guarantee, _of_values, guaranteed, levels, voided, why_not_amplified
from fedplug_ledger.wording import Nothing, listed


def level_epsilons(ledger: Book) -> dict[str, float]:
    """Epsilon spent, at the worst client, of each level of which a component keeps account."""
    return {level: quoted(stated) for level, stated in levels(ledger).items()}


def view_epsilons(ledger: Book, headline: float | None) -> dict[str, float]:
    """Epsilon spent, zero-out, of each view that has a guarantee; cheap enough for every round.

    Where sampling earns credit, of the released model alone, which is the `headline`: what the others have spent
    follows from who was asked, which is secret, and the report states it for everybody.
    """
    if headline is not None and why_not_amplified(ledger) is None:
        return {} if voided(ledger, "released_model") else {"released_model": headline}
    epsilons: dict[str, float] = {}
    seen: dict[str, Spent] = {}
    for name, view in guaranteed(ledger).items():
        if isinstance(view, Nothing) or (ledger.so_far.reproducible and view.zero_out.any()):
            continue
        same = next((other for other, spent in seen.items() if spent.same(view.zero_out)), None)  # as in most views
        epsilons[name] = epsilons[same] if same else quoted(ledger.epsilons_of(view.zero_out))
        seen[name] = view.zero_out
    return epsilons


def unprotected(ledger: Book, of_levels: Mapping[str, float]) -> list[str]:
    """The parties for which no epsilon is stated so far, given those of levels; cheap enough for every round."""
    kept = any(map(math.isfinite, of_levels.values()))
    found: list[str] = []
    for party, view in guaranteed(ledger).items():
        known = ledger.so_far.reproducible and isinstance(view, Guarantee) and view.zero_out.any()
        lost = isinstance(view, Nothing) and not view.absent
        if (lost or known) and not (kept and not voided(ledger, party)):
            found.append(party)
    return found


def headline_voided(ledger: Book) -> str:
    """What takes the guarantee of somebody toward whom the noise is priced, as a clause; empty where nothing does.

    A party that is trusted, or reads values without noise, has no guarantee to lose.
    """
    for name, view in _of_values(ledger).items():
        if isinstance(view, Guarantee) and (why := voided(ledger, name)):
            return why.detail
    return ""


def priced_part(ledger: Book) -> str:
    """Which part of what was released the headline prices: the zones with noise, where that is not everything.

    Empty where it prices everything that was released of the updates, and the aggregation server's view costs no more.
    """
    noised, bare = ledger.noised, ledger.bare
    if noised and (bare or ledger.feedback.any() or voided(ledger, "server") or headline_voided(ledger)):
        return listed(noised)
    return ""
