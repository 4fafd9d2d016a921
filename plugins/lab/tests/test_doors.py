"""What other plugins use of this one: the numbers of a comparison by name, and runs that a listener ends on purpose."""

from __future__ import annotations

from pathlib import Path

import fedplug_lab.api as door
import pytest
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug_lab.api import Compared, Enough, Job, attempt, numbers_of, open_run
from fedplug_lab.compare_table import columns
from fedplug_lab.study import Notes
from fedplug_runs.execution import resume
from fedplug_runs.settings import Settings
from toy_components import recipe_of, toy_catalog


def test_the_door_leads_to_what_it_names() -> None:
    assert all(hasattr(door, name) for name in door.__all__)


def test_a_run_that_is_ended_on_purpose_says_why_and_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, whole = toy_catalog(), Protocol.round
    settings = Settings(output=tmp_path, device="cpu", quiet=True)
    recipe = Recipe.from_plain(recipe_of(train={"use": "toy.push"}), catalog)

    def enough(protocol: Protocol, round: int) -> None:
        if round == 1:
            (run_dir,) = tmp_path.iterdir()
            raise Enough("it costs too much", run_dir, {"bytes": 7.0})
        whole(protocol, round)

    job = Job(recipe.to_plain(), "short", None, settings, (), "toy (acme 1.2)")
    with monkeypatch.context() as ended:
        ended.setattr(Protocol, "round", enough)
        outcome = attempt(job, catalog, Notes())
    (run_dir,) = tmp_path.iterdir()
    assert (outcome.early, outcome.run_dir, outcome.known) == ("it costs too much", run_dir, {"bytes": 7.0})
    assert not outcome.error
    assert resume(run_dir, settings, None, catalog, Notes()) == 0

    run = open_run(run_dir)
    assert run.summary.origin == "toy (acme 1.2)", "it has been resumed since"
    numbers = numbers_of(Compared("short", [run]))
    assert numbers["accuracy"].value == run.result.accuracy
    sent = run.result.bytes
    assert numbers["bytes"].value == sent.up + sent.down + sent.key_server > 0
    assert numbers["epsilon"] == (None, "its ledger prices nothing, since no zone has noise that counts", "")
    each = Compared("short", [run])
    stated = {column.key for column in columns([each], each) if not column.text} - {"difference"}
    assert numbers.keys() == stated | {"bytes"}
