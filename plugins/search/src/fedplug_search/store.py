"""The memory of a search: a study of Optuna in a file of its folder, from which it continues, whatever ended it.

Every trial is written when it begins, with its values, and when it has ended, with its outcome. Trials are written
in the order of their numbers, so that what Optuna chooses next follows from the file, not from who was faster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import SetupError
from fedplug_runs.files import read_bytes, shorten

from fedplug_search.answer import FAILED, Told, values_of, violations
from fedplug_search.question import Params, Question, Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial

FILE = "study.log"
"""The study, which `optuna-dashboard` shows too."""
_NAME, _DEFINITION, _TOLD = "fedplug search", "definition", "told"


class Store:
    """The study of a search. Only inside `at_work`.

    Args:
        folder: of the search.
        question: what is asked.
        more: what else makes it this search, such as the seed of the sampler.

    Attributes:
        told: the outcome of each trial that has ended, by number.
        open: the values of those that have begun and not ended, by number.

    Raises:
        SetupError: the folder holds another search, or its file is damaged.
    """

    def __init__(self, folder: Path, question: Question, more: Mapping[str, Any]) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.question, self.file = question, folder / FILE
        self._cut()
        (folder / f"{FILE}.lock").unlink(missing_ok=True)  # of a process that was killed: nobody else is at work here
        directions = ["maximize" if better == "higher" else "minimize" for better in question.objectives.values()]
        try:
            self._storage = JournalStorage(JournalFileBackend(str(self.file)))
            self.study: Study = optuna.create_study(
                study_name=_NAME, storage=self._storage, directions=directions, load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(0),
            )  # fmt: skip
            self.told, self.open = dict[int, Told](), dict[int, Params]()
            for trial in self.study.get_trials(deepcopy=False):
                if _TOLD in trial.user_attrs and trial.state.is_finished():
                    self.told[trial.number] = Told.from_json(trial.user_attrs[_TOLD])
                else:
                    self.open[trial.number] = trial.params
            known = self.study.user_attrs.get(_DEFINITION)
        except (ValueError, KeyError, LookupError, TypeError) as error:
            remedy = "remove it, and the same command begins anew with the runs that are there"
            raise SetupError(f"{self.file} is damaged ({type(error).__name__}: {error}); {remedy}") from error
        definition = json.loads(json.dumps({**question.definition(), **more}))
        if known is None:
            self.study.set_user_attr(_DEFINITION, definition)
        elif differ := [key for key in definition if known.get(key) != definition[key]]:
            words = {"recipe": "the recipe or a --set", "--over": "what may be chosen (--over)"}
            raise SetupError(
                f"{folder} holds another search: {', '.join(words.get(key, key) for key in differ)} "
                f"{'differs' if len(differ) == 1 else 'differ'}; take another --output, or repeat its command"
            )

    @property
    def size(self) -> int:
        """How many trials have begun."""
        return len(self.told) + len(self.open)

    def counted(self, now: set[int]) -> int:
        """How many trials count: those that failed at an earlier call do not, since they are tried again."""
        return self.size - sum(told.status == FAILED and number not in now for number, told in self.told.items())

    def history(self, until: int | None = None) -> list[FrozenTrial]:
        """All trials, as Optuna has them; from the number `until` on as if they still went on."""
        trials = self.study.get_trials(deepcopy=False)
        return trials if until is None else [*trials[:until], *(self._going(trial.params) for trial in trials[until:])]

    def _going(self, params: Params) -> FrozenTrial:
        """A trial that has begun and not ended."""
        from optuna.trial import TrialState, create_trial

        distributions = self.question.space.distributions()
        return create_trial(state=TrialState.RUNNING, params=dict(params), distributions=distributions)

    def begin(self, params: Params) -> int:
        """Adds a trial; gives its number."""
        number = self.size
        self.study.add_trial(self._going(params))
        self.open[number] = params
        return number

    def end(self, number: int, told: Told) -> None:
        """Adds the outcome of a trial."""
        from optuna.trial import Trial, TrialState

        question, values = self.question, values_of(told, self.question.objectives)
        study_id = self._storage.get_study_id_from_name(_NAME)
        trial = Trial(self.study, self._storage.get_trial_id_from_study_id_trial_number(study_id, number))
        trial.set_user_attr(_TOLD, told.to_json())
        for key, value in violations(told, question.constraints, question.objectives).items():
            if key not in trial.constraints:  # a kill came between this and the next
                trial.set_constraint(key, value)
        if values is not None:
            self.study.tell(number, values)
        else:
            self.study.tell(number, state=TrialState.FAIL if told.status == FAILED else TrialState.PRUNED)
        self.told[number] = told
        self.open.pop(number)

    def params(self, number: int) -> Params:
        """The values of a trial."""
        return dict(self.study.get_trials(deepcopy=False)[number].params)

    def _cut(self) -> None:
        """Forgets a last line that a kill cut off."""
        if self.file.is_file():
            data = read_bytes(self.file)
            if (whole := data.rfind(b"\n") + 1) < len(data):
                shorten(self.file, whole)


SPREAD = 10
"""Trials that are spread before TPE chooses."""
_CHOSEN, _TRIES = 10, 200
"""So often TPE is asked before chance is, and so often in all, for something that was not tried yet."""


AHEAD = 4
"""A trial is chosen without the outcomes of the last three before it, so that four can go on at the same time."""


def is_foreseen(space: Space, tried: Sequence[Params], seed: int, number: int, trials: int) -> bool:
    """Whether the values of a trial, as `next_params` gives them, follow from no outcome of another."""
    before, size = {space.key(params) for params in tried}, space.size()
    if size is not None and (size <= trials or len(before) >= size):
        return True
    return number < SPREAD and space.key(_spread(space, seed, number)) not in before


def next_params(
    space: Space, directions: Sequence[StudyDirection], history: Sequence[FrozenTrial], tried: Sequence[Params],
    seed: int, number: int, trials: int,
) -> Params | None:  # fmt: skip
    """The values of the next trial; None where everything was tried.

    They follow from the seed, the number of the trial and the history, and from nothing else. Where all
    combinations can be counted and there are trials for all of them, every one is tried, in order. Else Optuna's TPE
    chooses (tree-structured Parzen estimators for several objectives, Ozaki et al. 2022), after ten trials that are
    spread over the space (a Latin hypercube: one in each tenth of every range). TPE knows the constraints, and takes
    trials that still go on for bad ones, so that it does not try the same at once. What was tried is not tried again.

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

    before, size = {space.key(params) for params in tried}, space.size()
    params: Params = {}
    left = (found for found in (space.combinations() if size is not None else ()) if space.key(found) not in before)
    if size is not None and (size <= trials or len(before) >= size):
        return next(left, None)
    if number < SPREAD and space.key(spread := _spread(space, seed, number)) not in before:
        return spread
    for attempt in range(_TRIES):
        own = [seed, number, attempt]
        scratch = optuna.create_study(directions=directions, sampler=_sampler(own, attempt < _CHOSEN))
        scratch.add_trials(history)
        found = scratch.ask(space.distributions()).params
        # Of a number Optuna is to keep what the recipe gets.
        params = {path: value if isinstance(value, str) else space.dimensions[path].value(value)
                  for path, value in found.items()}  # fmt: skip
        if space.key(params) not in before:
            return params
    return next(left, None) if size is not None else params


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
