"""A protocol as people read it."""

from __future__ import annotations

from fedplug.recipe.composition import Composition
from fedplug.recipe.sections import Resolved


def plan_of(recipe: Resolved, composition: Composition) -> list[tuple[str, str, str]]:
    """The protocol as people read it: (hook, component, what it does here), in the order in which it happens."""

    def line(hook: str, name: str) -> tuple[str, str, str]:
        return hook, name, composition.components[name].describe()

    plan = [line("data", recipe.data.name)]
    if recipe.data.partition is not None:
        plan.append(line("partition", recipe.data.partition.name))
    else:
        plan.append(("sites", "–", _sites(recipe)))
    if recipe.public:
        plan.append(line("public", recipe.public.name))
    elif recipe.data.public:
        plan.append(("public", recipe.data.name, f"{recipe.data.public} training examples set aside for everybody"))
    if recipe.task:
        plan.append(line("task", recipe.task.name))
    plan += [line("model", recipe.model.name), line("train", recipe.train.name)]
    if recipe.fine_tune:
        plan.append(line("fine_tune", recipe.fine_tune.name))
    if recipe.clusters:
        plan.append(("clusters", "–", f"figures of {', '.join(recipe.clusters)}; training stays as it is"))
    plan += [line("score_parameters", use.name) for use in recipe.score_parameters]
    if recipe.groups:
        plan.append(line("groups", recipe.groups.name))
    plan.append(line("negotiate_mask", recipe.negotiate_mask.name))
    for zone in recipe.zones:
        if zone in recipe.protect and not recipe.protect[zone]:
            plan.append((f"protect {zone}", "–", "sent as it is"))
        plan += [line(f"protect {zone}", use.name) for use in recipe.protect.get(zone, ())]
    plan.append(line("aggregate", recipe.aggregate.name))
    plan += [line(f"postprocess {zone}", use.name) for zone, chain in recipe.postprocess.items() for use in chain]
    for key, section in recipe.sections.items():
        if text := section.describe():
            plan.append((key, "–", text))
        plan += [line(key, use.name) for use in section.main]
    return plan


def _sites(recipe: Resolved) -> str:
    """The facts on which the sites have agreed."""
    agreed = recipe.data.agreed
    assert agreed is not None  # whatever is not split is at sites
    shape, mean, std = "x".join(map(str, agreed.shape)), agreed.mean, agreed.std
    scaled = "" if not mean else (
        f", mean {', '.join(f'{each:g}' for each in mean)}, std {', '.join(f'{each:g}' for each in std)}"
    )  # fmt: skip
    who = "the client has" if recipe.clients == 1 else f"each of {recipe.clients} clients has"
    return (
        f"{who} what lies at its site, the server nothing; inputs {shape}, {len(agreed.classes)} classes{scaled}"
    )
