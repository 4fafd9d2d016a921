"""What to try next: a function of the seed, the number of the trial and what the study holds, and of nothing else.

Where all combinations can be counted and there are trials for all of them, every one is tried, in order. Else Optuna's
TPE chooses (tree-structured Parzen estimators for several objectives, Ozaki et al. 2022), after ten trials that are
spread over the space (a Latin hypercube: one in each tenth of every range). TPE knows the constraints, and takes trials
that still go on for bad ones, so that it does not try the same at once. What was tried is not tried again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedplug_search.space import Params, Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial

SPREAD = 10
"""Trials that are spread before TPE chooses."""
_CHOSEN, _TRIES = 10, 200
"""So often TPE is asked before chance is, and so often in all, for something that was not tried yet."""


def next_params(
    space: Space, directions: Sequence[StudyDirection], history: Sequence[FrozenTrial], tried: Sequence[Params],
    seed: int, number: int, trials: int,
) -> Params | None:  # fmt: skip
    """The values of the next trial; None where everything was tried.

    Args:
        space: what may be chosen.
        directions: of the objectives.
        history: the trials so far, unfinished ones too.
        tried: the values that are not to come again.
        seed: of the search.
        number: of the trial.
        trials: how many there may be in all.
    """
    import optuna

    before = {key_of(space, params) for params in tried}
    size = space.size()
    if size is not None and (size <= trials or len(before) >= size):
        return next((params for params in space.combinations() if key_of(space, params) not in before), None)
    if number < SPREAD and key_of(space, spread := _spread(space, seed, number)) not in before:
        return spread
    distributions = {path: found.distribution() for path, found in space.dimensions.items()}
    params: Params = {}
    for attempt in range(_TRIES):
        own = [seed, number, attempt]
        scratch = optuna.create_study(directions=directions, sampler=_sampler(own, attempt < _CHOSEN))
        scratch.add_trials(history)
        found = scratch.ask(distributions).params
        params = {path: space.dimensions[path].kept(value) for path, value in found.items()}
        if key_of(space, params) not in before:
            return params
    if size is not None:
        return next((params for params in space.combinations() if key_of(space, params) not in before), None)
    return params


def _sampler(own: Sequence[int], chooses: bool) -> BaseSampler:
    import numpy as np
    import optuna

    seed = int(np.random.SeedSequence(own).generate_state(1)[0])
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=1) if chooses else optuna.samplers.RandomSampler(seed)


def _spread(space: Space, seed: int, number: int) -> Params:
    """One of the trials that are spread over the space."""
    import numpy as np

    params = {}
    for place, (path, dimension) in enumerate(space.dimensions.items()):
        rng = np.random.default_rng([seed, place])
        order, inside = rng.permutation(SPREAD), rng.random(SPREAD)
        params[path] = dimension.at(float((order[number] + inside[number]) / SPREAD))
    return params


def key_of(space: Space, params: Params) -> str:
    """The same for the same values."""
    return json.dumps(space.values(params), sort_keys=True)
