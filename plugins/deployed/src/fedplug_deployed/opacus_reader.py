"""DP-SGD by Opacus in the text of a job: the noise and the clip that its engine is told."""

from __future__ import annotations

import ast
from typing import Any

from fedplug_deployed.draft import Draft
from fedplug_deployed.python_reader import Source, Unknown

CALIBRATED = "make_private_with_epsilon"


def read_opacus(draft: Draft, source: Source) -> None:
    """Takes DP-SGD over, or says why not.

    An epsilon that the engine is told is for the epochs of that engine, which jobs make anew in each round. As the
    epsilon of `baselines.dp_sgd`, which is for all rounds, it would promise more than the job keeps: it is left out. So
    are batches that no coins draw and clips of another kind, and several engines, of which one trains.
    """
    calls = list(source.calls("make_private", CALIBRATED))
    if not calls and source.imports("opacus"):
        draft.note(f"{source.path.name} imports Opacus, for DP-SGD, which is not in the recipe: add baselines.dp_sgd")
    if len({ast.dump(call) for _, call in calls}) > 1:
        lines = ", ".join(str(call.lineno) for _, call in calls)
        draft.note(f"{source.path.name}: engines of Opacus in the lines {lines} differ; DP-SGD is not in the recipe")
        return
    for name, call in calls[:1]:
        where, told = f"{source.path.name}:{call.lineno}", source.arguments(call, ())
        if other := _other(source, told):
            draft.note(f"{where}: {name} with {other}; baselines.dp_sgd draws batches by Poisson sampling and clips "
                       "each gradient to one norm, so DP-SGD is not in the recipe")  # fmt: skip
            continue
        if name == CALIBRATED:
            draft.note(f"{where}: {name}: its epsilon is for the epochs of one engine, and that of baselines.dp_sgd "
                       "for all rounds; DP-SGD is not in the recipe")  # fmt: skip
            continue
        try:
            noise, clip = (_number(source, told, key) for key in ("noise_multiplier", "max_grad_norm"))
        except Unknown as error:
            draft.note(f"{where}: {name}: the value of {error} is not known from the text; DP-SGD is not in the recipe")
            continue
        draft.note_condition(where, name, source.condition(call))
        draft.train |= {"use": "baselines.dp_sgd", "noise_multiplier": noise, "clipping_norm": clip}
        draft.note(f"{where}: {name}: DP-SGD as baselines.dp_sgd, with the epochs and batches of the recipe")


_OURS = {"poisson_sampling": True, "clipping": "flat"}
"""What `baselines.dp_sgd` does, under Opacus' names; its defaults too."""


def _other(source: Source, told: dict[str, ast.expr]) -> str:
    """An argument that makes another algorithm of it, as text; empty if there is none."""
    for name, ours in _OURS.items():
        if name in told:
            try:
                same = source.value(told[name]) == ours
            except Unknown:
                same = False
            if not same:
                return f"{name}={ast.unparse(told[name])}"
    return ""


def _number(source: Source, told: dict[str, ast.expr], key: str) -> Any:
    if key not in told:
        raise Unknown(key)
    value = source.value(told[key])
    if not isinstance(value, int | float) or value < 0:
        raise Unknown(f"{key}={value!r}")
    return float(value)
