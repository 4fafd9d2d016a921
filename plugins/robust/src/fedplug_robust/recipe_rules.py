"""Rules of recipes (`fedplug.rules`) with clients that lie: what they leave out is there, and who bounds a lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedplug import Clip, Noise, Seal

from fedplug_robust.lies import Lie


def problems(rules: Any) -> Iterator[tuple[Any, str]]:
    """Nobody leaves out what no client does: the verdict would speak of noise that nobody counts on."""
    section, zones = rules.draft.sections.get("poison"), rules.foldable
    if section is None or [*zones] != [*rules.readable] or rules.draft.unreadable:
        return  # of what could not be read nobody knows
    protecting = [step for zone in zones for step in rules.steps(zone) if step.link.hook == "protect"]
    for use in section.uses["lies"]:
        lie = rules.parts.get(use.name)
        for kind in lie.leaves_out if isinstance(lie, Lie) else ():
            if not any(step.has(kind) for step in protecting):
                what = {Noise: "noise", Clip: "clip"}.get(kind, kind.__name__)
                yield use.path, f"{use.use} leaves out {what}, and protect has none; add it there, or use another lie"


def notes(rules: Any) -> list[str]:
    """A clip is at clients, and one that lies may leave it out."""
    found = []
    for zone in rules.foldable if rules.recipe is not None and "poison" in rules.draft.sections else ():
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
