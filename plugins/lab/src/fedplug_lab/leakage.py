"""What attacks took from the runs that are compared, next to what a trivial guess reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedplug_runs import units

from fedplug_lab.compared import Compared, OneRun
from fedplug_lab.intervals import spread_of
from fedplug_lab.sections import Leak, sections_of_plugins
from fedplug_lab.tables import table, text


def leaks_of(run: OneRun) -> list[Leak]:
    """Every attack on a run that was scored."""
    return [
        leak for section in sections_of_plugins() for leak in section.leaks(run.result.added.get(section.key, {}))
    ]  # fmt: skip


def worst_of(each: Compared) -> Leak | None:
    """The attack that succeeded most often on any of its runs; None where none applied."""
    known = [leak for run in each.runs for leak in leaks_of(run) if leak.succeeded is not None]
    return max(known, key=lambda leak: (leak.succeeded or 0.0, leak.targets), default=None)


def worst_by_adversary(each: Compared) -> dict[str, Leak]:
    """Of each adversary on its runs the attack that succeeded most often; one that applied before one that did not."""
    found: dict[str, Leak] = {}
    for leak in (leak for run in each.runs for leak in leaks_of(run) if leak.adversary):
        before = found.get(leak.adversary)
        if before is None or _took(leak) > _took(before):
            found[leak.adversary] = leak
    return found


def _took(leak: Leak) -> tuple[float, int]:
    return (-1.0 if leak.succeeded is None else leak.succeeded), leak.targets


def sees(leak: Leak) -> str:
    """How much of an update the adversary sees, in words."""
    if not leak.states:
        return "sees no update"
    shares = {state: leak.states.get(state, 0.0) for state in ("clear", "noised")}
    shares["hidden"] = 1 - sum(shares.values())
    words = {"clear": "opened", "noised": "opened, with noise", "hidden": "hidden"}
    kept = [(words[state], share) for state, share in shares.items() if share > 5e-4]
    return kept[0][0] if len(kept) == 1 else ", ".join(f"{share:.0%} {word}" for word, share in kept)


def attacks_on(each: Compared) -> set[str]:
    """The names of the attacks on its runs."""
    return {leak.attack for run in each.runs for leak in leaks_of(run)}


def leakage_tables(everyone: Sequence[Compared], most: int = 5) -> str:
    """The same table for each few protocols, so that it fits on a page."""
    size = math.ceil(len(everyone) / math.ceil(len(everyone) / most))
    return "".join(leakage_table(everyone[start : start + size]) for start in range(0, len(everyone), size))


def leakage_table(everyone: Sequence[Compared]) -> str:
    """A row for each attack, a column for each protocol: the number that counts and the share of successes."""
    by_name = [[{leak.attack: leak for leak in leaks_of(run)} for run in each.runs] for each in everyone]
    names = list(dict.fromkeys(name for runs in by_name for known in runs for name in known))
    body = []
    for name in names:
        row, guesses = [text(name)], list[str]()
        for runs in by_name:
            found = [known[name] for known in runs if name in known]
            row.append(_shown(found))
            guesses += [f"{leak.guessed_by} {leak.guess:.3g}" for leak in found if leak.guess is not None]
        leak = next(known[name] for runs in by_name for known in runs if name in known)
        more = "smaller is worse" if leak.lower_is_worse else "larger is worse"
        row.insert(1, f'{text(leak.metric)}<br><span class="note">{more}</span>')
        row.insert(2, text(guesses[0]) if guesses else units.NOTHING)
        body.append(row)
    caption = (
        "Result of each attack, in the form that took more, as the mean over targets and seeds. Below it: the number "
        "of people of whom an image was recovered, or the share of targets on which the attack succeeded. An attack "
        "that fails proves nothing about stronger ones."
    )
    header = ["attack and adversary", "judged by", "best trivial guess", *(each.name for each in everyone)]
    return table(caption, header, body, numeric=3, whole=True)


def _shown(found: Sequence[Leak]) -> str:
    value, share = spread_of([leak.value for leak in found]), spread_of([leak.succeeded for leak in found])
    if value is None and share is None:
        return f'{units.NOTHING}<br><span class="note">{"it did not apply" if found else "not tried"}</span>'
    number = f"{value.mean:.3g}" if value else units.NOTHING
    gave = units.percent(share.mean) if share else units.NOTHING
    if people := sum(leak.people for leak in found):
        gave = f"{sum(leak.recovered for leak in found)} of {people} people"
    return f'{number}<br><span class="note">{gave}</span>'
