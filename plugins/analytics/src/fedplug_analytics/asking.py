"""Runs a recipe of statistics for its answers: `fedplug ask`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import fedplug
from fedplug import RecipeError, Settings
from fedplug_terminal.as_json import document

from fedplug_analytics.answering import Answers, AnswersSection, lines


def ask(recipe: Path, sets: Sequence[str], settings: Settings, as_json: bool) -> int:
    """Runs a recipe in a run folder, and prints its answers with the lines of the verdict.

    Args:
        recipe: the file.
        sets: changes of it, `PATH=VALUE`.
        settings: of this machine.
        as_json: print one object of JSON with `answers`, `verdict` and `folder` instead.

    Returns:
        0; 1 where there are no answers, since sums were not opened, or are wrong.

    Raises:
        RecipeError: the recipe is wrong, or asks no statistics.
        FedplugError: the run failed.
    """
    checked = fedplug.check(recipe, sets, plugins=settings.plugins, trust=settings.trust)
    if AnswersSection.of(checked) is None:
        raise RecipeError([f"{recipe}: it has no section answers; write answers: {{}}, and statistics for model"])
    run = fedplug.run(checked, settings=settings.replace({"quiet": True}))
    found, verdict = Answers.among(run.metrics), run.ledger.verdict.text()
    problem = "no sums were opened: see the notes of the run" if found is None else found.problem
    if as_json:
        facts = {} if found is None else found.to_plain(for_json=True)
        print(document("ask", [problem] if problem else [], **facts, verdict=verdict, folder=str(run.folder)))
    else:
        print("\n".join([*(lines(found) if found else [f"no answers: {problem}"]), *verdict]))
        print(f"run folder: {run.folder}")
    return 1 if problem else 0
