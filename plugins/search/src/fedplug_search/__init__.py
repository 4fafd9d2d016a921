"""`fedplug search`: looks for options of a recipe with which a protocol meets constraints, and which no other beats.

Optuna chooses what to try; runs, their numbers and the look of the page are those of `fedplug_lab`. Optuna is imported
where a search begins, and nowhere before.

    from fedplug_search import search

    answer = search("recipe.yaml", {"train.lr": "1e-3..1e-1:log", "rounds": [10, 20]}, min={"accuracy": 0.9})
    print(answer.found[0].values, answer.found[0].recipe, answer.privacy())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedplug_runs.settings import Settings

    from fedplug_search.answer import Answer


def search(
    recipe: Path | str,
    over: Mapping[str, Any],
    *,
    min: Mapping[str, Any] | None = None,
    max: Mapping[str, Any] | None = None,
    objectives: Sequence[str] = (),
    seeds: Sequence[int] = (),
    sets: Iterable[str] | Mapping[str, Any] = (),
    trials: int = 20,
    jobs: int | None = 1,
    timeout: float | None = None,
    prune: str = "all",
    search_seed: int = 0,
    private: str = "",
    output: Path | str | None = None,
    settings: Settings | None = None,
    plugins: Sequence[Path | str] = (),
    quiet: bool = True,
) -> Answer:
    """`fedplug search` for scripts. Both use the same folder, and either continues the other's search.

    Args:
        recipe: the file that is varied.
        over: what may be chosen, by path of the recipe: a range as text, `0.05..0.5`, or a list of values.
        min, max: bounds, by measure: numbers, or texts with units such as `100MB`.
        objectives: by what protocols are weighed, each perhaps with `=min` or `=max` behind it, which a figure needs
            whose model declares no direction; accuracy and what the bounds name if empty.
        seeds: every trial is run with each; the recipe's own if empty.
        sets: changes of the recipe for every trial, as `fedplug.run` takes them.
        trials: how many in all; a larger number continues a search.
        jobs: how many at a time, each in a separate process; None: as many as this machine has cores and memory for,
            in a script that guards its own start with `if __name__ == "__main__"`. Up to four make the same choices.
        timeout: seconds after which no trial begins.
        prune: `all`, `certain` (without the rule for a hopeless figure), or `none`.
        search_seed: of what is chosen.
        private: the law by which the number of trials is drawn, with mean `trials`: `geometric`, `logarithmic`,
            `poisson`, or an eta; empty: there are `trials`.
        output: folder of the search; `search-RECIPE` in the folder of runs if None.
        settings: of this machine; by default those of the user's config file.
        plugins: Python files whose components count as installed.
        quiet: print nothing but warnings.

    Returns:
        The answer. `found` has the trials of the Pareto front, `trials` all of them, `privacy()` and `unlike` what a
        reader must know of the numbers, `page` the page. After an interruption `complete` is False, and the same call
        continues.

    Raises:
        RecipeError: what is asked is wrong; `problems` has every mistake. Nothing has run.
        SetupError: this machine lacks something, or the folder holds another search. Nothing has run.
    """
    from fedplug.api.errors import SetupError
    from fedplug.recipe.catalog import Catalog
    from fedplug_runs.settings import Settings

    from fedplug_search.question import Asked, assignments
    from fedplug_search.searching import find

    def texts(given: Iterable[str] | Mapping[str, Any]) -> list[str]:
        if not isinstance(given, Mapping):
            return list(given)
        return [f"{k}={v}" if isinstance(v, str) else assignments({k: v})[0] for k, v in given.items()]

    for name, count in (("trials", trials), ("jobs", jobs)):
        if count is not None and count < 1:
            raise SetupError(f"{name}={count} must be >= 1")
    file, chosen = Path(recipe), settings or Settings.load()
    chosen = chosen.replace(
        {
            "output": Path(output) if output else chosen.output / f"search-{file.stem}",
            "quiet": quiet,
            "plugins": (*chosen.plugins, *map(str, plugins)),
        }
    )
    asked = Asked(texts(over), texts(min or {}), texts(max or {}), objectives, texts(sets), seeds, None, trials, jobs,
                  search_seed, prune, timeout, private=private)  # fmt: skip
    return find(file, chosen, asked, Catalog.discover())
