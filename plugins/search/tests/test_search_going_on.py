"""`fedplug search`: what an interrupted one goes on with, and the command line."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import fedplug
import fedplug_search
import pytest
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.round.protocol import Protocol
from fedplug_lab.api import SweepWatch, Wanted, at_work, attempt
from fedplug_runs.settings import Settings
from fedplug_search import searching
from fedplug_search.answer import Told
from fedplug_search.question import Asked, read_question
from fedplug_search.searching import search
from fedplug_search.store import FILE, Store
from fedplug_terminal.main import main
from own_file_toys import HALVE
from run_toys import stopped
from search_toys import RECIPES, compared, trials_of, written

# ---- going on


def test_an_interrupted_search_makes_the_same_trials_as_one_that_was_not(
    pushed: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    over = ["protect.noised.1.noise_multiplier=0.5..20:log", "train.scale=[0.01, 0.1]"]
    asked = Asked(over, (), ["epsilon=8"], trials=5, search_seed=3)
    assert search(pushed, settings, asked, catalog) == 0
    again = settings.replace({"output": settings.output.with_name("again")})
    rounds = itertools.count()
    capsys.readouterr()
    with stopped(lambda *_: next(rounds) == 4):
        assert search(pushed, again, asked, catalog) == 130
    shown = capsys.readouterr().out
    begun = len(list(again.output.glob("*/recipe.yaml")))
    ended = len(trials_of(again.output))
    assert ended == begun - 1
    said = f"Interrupted; {ended} of 5 trials have ended, and what the others have is kept. The same command goes on"
    assert said in shown
    # A kill while the last line was written.
    with (again.output / FILE).open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    assert search(pushed, again, asked, catalog) == 0
    assert compared(again.output) == compared(settings.output)
    assert len(list(again.output.glob("*/recipe.yaml"))) == 5, "the run that was cut off went on"
    # More trials go on from these.
    more = Asked(over, (), ["epsilon=8"], trials=6, search_seed=3)
    assert search(pushed, again, more, catalog) == 0
    assert compared(again.output)[:5] == compared(settings.output)
    assert len(trials_of(again.output)) == 6


def test_a_folder_has_one_search_and_one_process(
    recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "round", lambda *_: pytest.fail("something ran"))
    with at_work(settings.output, "search"), pytest.raises(SetupError, match="another fedplug search is at work in"):
        search(recipe, settings, Asked(["rounds=[1, 2]"]), catalog)
    question = read_question(recipe, Asked(["rounds=[1, 2]"], ["accuracy=0.5"]), catalog)
    Store(settings.output, question, {"--search-seed": 0, "--prune": "all"})
    with pytest.raises(SetupError, match=r"holds another search: what may be chosen \(--over\), constraints differ"):
        search(recipe, settings, Asked(["rounds=[1, 3]"]), catalog)
    (settings.output / FILE).write_text("nonsense\nmore nonsense\n")
    with pytest.raises(SetupError, match="is damaged"):
        search(recipe, settings, Asked(["rounds=[1, 2]"], ["accuracy=0.5"]), catalog)


def test_trials_that_all_fail_for_one_reason_end_the_search_and_are_tried_again(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(["rounds=[1, 2, 3, 4, 5]"])
    with stopped(lambda *_: True, SetupError("the disk is full")):
        assert search(recipe, settings, asked, catalog) == 1
    shown = capsys.readouterr()
    assert "Stopped: 3 trials in a row failed for the same reason." in shown.out
    assert "3 trials failed; the same command tries them again" in shown.err
    assert search(recipe, settings, asked, catalog) == 0
    met = [trial["values"]["rounds"] for trial in trials_of(settings.output) if trial["status"] == "met"]
    assert met == [1, 2, 3, 4, 5]


def test_a_file_that_changes_between_calls_is_refused(
    tmp_path: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trials before and after would not be of one component."""
    (tmp_path / "mine.py").write_text(HALVE)
    recipe = written(tmp_path, zone="noised", chain=[{"use": "mine.Halve"}], rounds=1)
    chosen = settings.replace({"plugins": (str(tmp_path / "mine.py"),)})
    asked = Asked(["protect.noised.0.factor=[0.5, 1]"], trials=1)
    assert search(recipe, chosen, asked, catalog) == 0
    assert (settings.output / "mine.py").read_text() == HALVE
    inside = written(tmp_path, rounds=1)
    other = Asked(["protect.clear=[[], ['mine.py:Halve']]"])
    chosen = settings.replace({"output": settings.output.with_name("other")})
    assert search(inside, chosen, other, catalog) == 0
    (tmp_path / "mine.py").write_text(HALVE + "# changed\n")
    with pytest.raises(SetupError, match=r"trial 2 of .*other was of another recipe than the same values make now"):
        search(inside, chosen, other, catalog)


def test_the_function_is_the_command(recipe: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe.parent)
    recipe.write_text((RECIPES / "small.yaml").read_text())
    answer = fedplug_search.search(
        recipe, {"train.lr": [1e-6, 0.05], "rounds": "1..2"}, min={"accuracy": 0.3}, max={"bytes": "1MB"}, trials=4,
        output=settings.output, settings=settings,
    )  # fmt: skip
    assert answer.complete
    assert [trial.number for trial in answer.trials] == [1, 2, 3, 4]
    best = answer.found[0]
    assert best.values["train.lr"] == 0.05
    assert best.numbers["accuracy"] == max(trial.numbers["accuracy"] for trial in answer.trials)
    assert best.recipe is not None
    assert fedplug.check(best.recipe).digest == fedplug.open_run(best.runs[0]).recipe.digest
    assert answer.page.is_file()
    assert answer.unlike == []
    # What the function began, the command goes on with.
    words = ["--over", "train.lr=[1e-6, 0.05]", "--over", "rounds=1..2", "--min", "accuracy=0.3", "--max", "bytes=1MB"]
    assert call(monkeypatch, str(recipe), *words, "--trials", "4", "--output", str(settings.output), "-q") == 0
    with pytest.raises(SetupError, match="trials=0 must be >= 1"):
        fedplug_search.search(recipe, {"rounds": [1, 2]}, trials=0)


def test_one_at_a_time_chooses_as_several_do_in_whatever_order_they_end(
    pushed: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_a_time(ask: Callable[[], Wanted | None], catalog: Catalog, most: int, quiet: bool) -> bool:
        going = list[Wanted]()
        while True:
            while len(going) < count and (wanted := ask()):
                going.append(wanted)
            if not going:
                return True
            most_at_once.append(len(going))
            last = going.pop()
            watch = SweepWatch(sys.stdout, last.title, 0, quiet)
            last.take(attempt(last.job, catalog, watch), 0.1, watch)

    monkeypatch.setattr(searching, "make_runs", at_a_time)
    # Of fifteen combinations; those that are spread meet again, and chance or TPE chooses in their place.
    over = ["protect.noised.1.noise_multiplier=[0.5, 1, 2, 4, 8]", "rounds=1..3"]
    asked, made = Asked(over, (), ["epsilon=8"], trials=13, jobs=None), []
    for count in (1, 20):
        most_at_once = list[int]()
        chosen = settings.replace({"output": settings.output / str(count)})
        search(pushed, chosen, asked, catalog)
        made.append(compared(chosen.output))
        assert max(most_at_once) == 1 if count == 1 else 4 <= max(most_at_once) < 10
    assert made[0] == made[1]
    assert len(made[0]) == 13


@pytest.mark.slow
def test_several_at_a_time_make_the_same_choices_however_long_each_takes(
    pushed: Path, settings: Settings, catalog: Catalog
) -> None:
    asked = Asked(["protect.noised.1.noise_multiplier=0.5..20:log", "rounds=1..4"], (), ["epsilon=8"],
                  trials=5, jobs=2)  # fmt: skip
    search(pushed, settings, asked, catalog)
    again = settings.replace({"output": settings.output.with_name("again")})
    again.output.mkdir()
    for folder in settings.output.glob("*/recipe.yaml"):
        if "rounds=4" in folder.parent.name:  # these take no time now
            shutil.copytree(folder.parent, again.output / folder.parent.name)
    search(pushed, again, asked, catalog)
    assert compared(again.output) == compared(settings.output)


# ---- the command line


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["fedplug", "search", *words])
    return main()


def test_every_mistake_is_reported_at_once_and_nothing_runs(
    shell: Path, recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell / "space.yaml").write_text("over: {train.epochs: 0..2, seed: [1, 2]}\nmax: {byte: 3MB}\nnonsense: 1\n")
    words = [
        "toy.yaml", "--space", "space.yaml", "--over", "train.lrr=0.1..0.2", "--over", "train.lr=5..2",
        "--over", "rounds=1.5..3", "--over", "min_clients=2", "--over", "data.partition.alpha=0.5-5",
        "--min", "acuracy=0.9", "--min", "accuracy=90", "--max", "epsilon=eight", "--min", "bytes=5MB",
        "--max", "bytes=3MB", "--objective", "loss",
    ]  # fmt: skip
    assert call(monkeypatch, *words) == 1
    said = capsys.readouterr().err
    for line in (
        "space.yaml:1:22: std.sgd: epochs=0 must be >= 1",
        "space.yaml:1:34: a seed is not searched",
        "space.yaml:2:13: there is no measure 'byte'; did you mean bytes?",
        "space.yaml:3:1: unknown key 'nonsense'; there is over, min, max, objectives",
        "--over train.lrr: unknown option 'lrr' of std.sgd; did you mean lr?",
        "--over train.lr: 5 is above 2; write 2..5",
        "--over rounds: rounds takes whole numbers; write for instance 2..3",
        "--over min_clients: 2 is one value; write a range",
        "--over data.partition.alpha: 0.5-5 is one value",
        "--min acuracy: there is no measure 'acuracy'; did you mean accuracy?",
        "--min accuracy: 90 must be a share of 1, such as 0.9 or 90%",
        "--max epsilon: 'eight' must be a number",
        "--min bytes: 5.0 MB is above --max bytes, 3.0 MB",
        "--objective: there is no measure 'loss'",
    ):
        assert line in said
    assert not (shell / "runs").exists()


def test_the_command_line(
    shell: Path, recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["toy.yaml", "--over", "train.lr=1e-3..1e-1:log", "--min", "accuracy=10%", "--seeds", "1", "2"]
    assert call(monkeypatch, *words, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        "choose train.lr: 0.001..0.1:log",
        "require accuracy >= 0.100",
        "weigh accuracy: more is better",
        "weigh bytes: less is better",
        "try 20 of countless combinations, each with seed 1, 2; a trial ends when it is certain to miss a constraint, "
        "or when what leads, such as accuracy, is hopeless",
    ]
    assert call(monkeypatch, *words, "--trials", "1", "--timeout", "1h", "-q") == 0
    shown = capsys.readouterr().out
    assert "recipe: runs/search-toy/best.yaml" in shown
    assert "page: runs/search-toy/search.html" in shown
    assert call(monkeypatch, "toy.yaml", "--over", "rounds=[1, 2]", "--timeout", "soon") == 1
    assert "--timeout: 'soon' must be a number, perhaps with a unit: s, min, h" in capsys.readouterr().err
    assert call(monkeypatch, "toy.yaml", "--over", "rounds=[1, 2]", "--prune", "al") == 1
    assert "--prune al: did you mean all?" in capsys.readouterr().err
    assert call(monkeypatch, "toy.yaml", "--over", "rounds=[1, 2]", "--timeout", "0", "--output", "none") == 1
    assert "Stopped: the time of --timeout is over." in capsys.readouterr().out


def test_what_is_told_of_a_trial_is_a_record() -> None:
    with pytest.raises(ValueError, match="status"):
        Told.from_json("{}")
