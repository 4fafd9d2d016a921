"""Notes on recipes (`fedplug.rules`): on whose word the size of a lie is bounded."""

from __future__ import annotations

from typing import Any

from fedplug import Clip, Seal


def problems(rules: Any) -> tuple[()]:
    """None that the section and the aggregators do not say themselves."""
    return ()


def notes(rules: Any) -> list[str]:
    """A clip is at clients, and one that lies may leave it out."""
    found = []
    for zone in rules.foldable if "poison" in rules.draft.sections else ():
        steps = [step for step in rules.steps(zone) if step.link.hook == "protect"]
        clips = [step.link.name for step in steps if step.has(Clip)]
        sealed = [step.link.name for step in steps if step.has(Seal)]
        if clips and sealed:
            found.append(
                f"poison: {clips[0]} bounds a lie in zone {zone} on the word of the client that lies, since nobody "
                f"reads what {sealed[0]} closes; robust.leave_out shows what follows"
            )
        elif clips and not rules.recipe.aggregate.use.startswith("robust."):
            found.append(
                f"poison: {clips[0]} bounds a lie in zone {zone} on the word of the client that lies; the server, "
                "which reads updates there, can bound it: aggregate: {use: robust.norm_bound}"
            )
    return found
