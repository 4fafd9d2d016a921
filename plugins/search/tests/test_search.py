"""`fedplug search`: what it tries, what it makes of constraints, what it leaves; that nothing is lost or run twice."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import fedplug
import fedplug_search
import pytest
from fedplug.api.errors import RecipeError, SetupError
from fedplug.cli.main import main
from fedplug.recipe import yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import load_recipe
from fedplug.round.protocol import Protocol
from fedplug.runs.files import read_ledger, read_rows
from fedplug.runs.settings import Settings
from fedplug_lab.api import at_work
from fedplug_search.question import read_question
from fedplug_search.searching import Asked, search
from fedplug_search.store import FILE, Store
from fedplug_search.trial import Told
from fedplug_search.work import Plan
from own_file_toys import HALVE
from toy_components import recipe_of, toy_catalog

RECIPES = Path(__file__).parent / "recipes"
TIMES = {"seconds", "peak_memory"}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return toy_catalog()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path / "found", device="cpu")


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "toy.yaml"
    file.write_text(yaml_source.dump(recipe_of(**changes)), encoding="utf-8")
    return file


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """FedAvg of a linear model on digits."""
    return written(tmp_path, rounds=1)


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """The same with a push in place of training, and noise that follows from the seed."""
    noise = {"use": "std.gaussian", "noise_multiplier": 1.0, "source": "reproducible"}
    chain = [{"use": "std.clip", "norm": 1.0}, noise]
    return written(tmp_path, zone="noised", chain=chain, rounds=3, train={"use": "toy.push"})


def trials_of(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "trials.json").read_text())["trials"])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rounds that are run from here on, with how many their recipe has."""
    whole, rounds = Protocol.round, list[tuple[int, int]]()

    def watched(protocol: Protocol, round: int) -> None:
        rounds.append((protocol.recipe.rounds, round))
        whole(protocol, round)

    monkeypatch.setattr(Protocol, "round", watched)
    return rounds


# ---- what it finds


def test_the_best_of_a_small_grid_and_all_that_is_left_of_it(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A step of 0.05 learns and one of 1e-6 does not; a second round costs bytes."""
    asked = Asked(["train.lr=[1e-6, 0.05]", "rounds=[1, 2]"], ["accuracy=0.3"], ["bytes=10MB"])
    assert search(recipe, settings, asked, catalog) == 0
    shown = capsys.readouterr().out
    trials = trials_of(settings.output)
    assert len(trials) == 4
    met = {number for number, trial in enumerate(trials, 1) if trial["status"] == "met"}
    assert {trials[number - 1]["values"]["train.lr"] for number in met} == {0.05}
    # The front by brute force: more accuracy or fewer bytes than each other that meets the constraints.
    numbers = {n: (-trials[n - 1]["numbers"]["accuracy"], trials[n - 1]["numbers"]["bytes"]) for n in met}
    best = {n for n, own in numbers.items()
            if not any(o != own and o[0] <= own[0] and o[1] <= own[1] for o in numbers.values())}  # fmt: skip
    front = json.loads((settings.output / "trials.json").read_text())["front"]
    assert set(front) == best
    assert len(front) > 1
    assert numbers[front[0]][0] == min(loss for loss, _ in numbers.values()), "the most accurate first"
    assert f"{len(met)} of 4 trials meet all constraints, and {len(front)} of them are on the Pareto front." in shown
    # Numbers are those of the runs.
    first = trials[front[0] - 1]
    rows = read_rows(settings.output / first["runs"][0]["folder"])
    assert first["numbers"]["accuracy"] == rows[-1].accuracy
    assert first["numbers"]["bytes"] == sum(row.bytes.up.total + row.bytes.down.total for row in rows)
    # Recipes run as they are: they extend the one that was varied, and are the recipes of the runs.
    for place, number in enumerate(front, 1):
        file = settings.output / "front" / f"{place}.yaml"
        assert yaml_source.read(file).data["extends"] == "../../toy.yaml"
        assert load_recipe(file, (), catalog).digest == trials[number - 1]["runs"][0]["digest"]
    best_file = settings.output / "best.yaml"
    assert load_recipe(best_file, (), catalog).digest == first["runs"][0]["digest"]
    assert best_file.read_text().startswith(f"# Trial {front[0]} of 4 of a search in toy.yaml (seed 7): accuracy 0.")
    with (settings.output / "trials.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))
    assert [line["status"] for line in table] == [trial["status"] for trial in trials]
    assert [int(line["trial"]) for line in sorted(table, key=lambda line: line["front"]) if line["front"]] == front
    page = (settings.output / "search.html").read_text()
    assert "accuracy &gt;= 0.300, bytes &lt;= 10.0 MB" in page
    assert 'id="figure-front"' in page
    assert "train.lr" in page
    assert "://" not in page
    # The same command runs nothing again.
    rounds = counted(monkeypatch)
    assert search(recipe, settings, asked, catalog) == 0
    assert not rounds
    assert "4 of 4 trials have ended already" in capsys.readouterr().out
    # A search that lost its study has its runs.
    before = compared(settings.output)
    (settings.output / FILE).unlink()
    assert search(recipe, settings, asked, catalog) == 0
    assert not rounds
    assert compared(settings.output) == before


def test_a_combination_that_is_no_recipe_is_refused_with_its_reason_and_the_others_run(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecipeError, match=r"--over min_clients: .*6"):  # of four clients
        search(recipe, settings, Asked(["min_clients=[2, 6]"]), catalog)
    assert not settings.output.exists()
    assert search(recipe, settings, Asked(["min_clients=[2, 6]", "data.clients=[4, 6]"]), catalog) == 0
    statuses = {(*trial["values"].values(),): trial["status"] for trial in trials_of(settings.output)}
    assert statuses == {(2, 4): "met", (2, 6): "met", (6, 4): "refused", (6, 6): "met"}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("3/4 ")]
    assert line.startswith("3/4 min_clients=6 clients=4: refused: --set min_clients: min_clients=6 ")


def test_where_nothing_meets_the_constraints_it_says_what_is_closest(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(["train.lr=[1e-6, 0.05]"], ["accuracy=0.99"], ["bytes=10MB"])
    assert search(recipe, settings, asked, catalog) == 1
    shown = capsys.readouterr().out
    assert "No trial meets all constraints.\nClosest is trial 2: lr=0.05: accuracy 0." in shown
    assert re.search(r"missed most narrowly is accuracy >= 0\.990: accuracy 0\.\d+ is below 0\.990 in trial 2\.", shown)
    assert not (settings.output / "best.yaml").exists()
    assert "Closest is trial 2" in (settings.output / "search.html").read_text()


def test_a_protocol_without_noise_has_no_epsilon_and_so_misses_a_bound(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(recipe, settings, Asked(["train.lr=[0.05, 0.1]"], (), ["epsilon=8"]), catalog) == 1
    reason = trials_of(settings.output)[0]["reason"]
    assert reason == "epsilon has no number: its ledger prices nothing, since no zone has noise that counts"
    shown = capsys.readouterr().out
    assert "Of 2 runs of this search that released something, none states an epsilon" in shown


def test_epsilons_at_different_deltas_are_said_not_to_compare_and_each_delta_counts(
    pushed: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(["delta=[1.0e-5, 1.0e-3]"], (), ["epsilon=100"], sets=["rounds=1"])
    assert search(pushed, settings, asked, catalog) == 0
    shown = capsys.readouterr().out
    assert "not comparable: delta: 1e-05 in trial 1; 0.001 in trial 2. Epsilons do not compare." in shown
    total = sum(trial["runs"][0]["epsilon"] for trial in trials_of(settings.output))
    assert f"together come to at most epsilon {total:.3f} at delta 0.00101 by naive composition" in shown
    assert "note: Accuracies of the front are those by which it was chosen from 2 trials, with seed 7" in shown
    assert "Not comparable: delta: 1e-05 in trial 1" in (settings.output / "search.html").read_text()


def test_a_seed_without_an_accuracy_is_not_left_out_of_the_mean(
    recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedplug_search import going

    whole = going.open_run

    def without(folder: Path) -> Any:
        run = whole(folder)
        if run.seed == 2:
            run.result.accuracy = None
        return run

    monkeypatch.setattr(going, "open_run", without)
    assert search(recipe, settings, Asked(["rounds=[1, 2]"], ["accuracy=0.1"], seeds=[1, 2]), catalog) == 1
    reasons = [trial["reason"] for trial in trials_of(settings.output)]
    assert reasons == ["accuracy has no number: 1 of its 2 runs states none"] * 2


def test_a_run_that_was_interrupted_or_failed_has_a_price_too(
    pushed: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its clients have uploaded; that nobody used the result takes nothing back."""
    whole, left = Protocol.round, iter([False, False, False, False, True])

    def stops(protocol: Protocol, round: int) -> None:
        if next(left):
            raise KeyboardInterrupt
        whole(protocol, round)

    monkeypatch.setattr(Protocol, "round", stops)
    asked = Asked(["protect.noised.1.noise_multiplier=[10, 20]"])
    assert search(pushed, settings, asked, catalog) == 130
    assert len(trials_of(settings.output)) == 1
    together = json.loads((settings.output / "trials.json").read_text())["together"]
    folders = sorted(file.parent for file in settings.output.glob("*/recipe.yaml"))
    epsilons = [read_ledger(folder).epsilon or 0 for folder in folders]
    assert len(epsilons) == 2
    assert (together["runs"], together["without"]) == (2, 0)
    assert together["epsilon"] == pytest.approx(sum(epsilons))
    assert f"at most epsilon {sum(epsilons):.3f}" in (settings.output / "search.html").read_text()
    assert "Interrupted; 1 of 2 trials have ended" in capsys.readouterr().out


# ---- ending early


def test_a_trial_ends_as_soon_as_its_epsilon_is_above_the_bound(
    pushed: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rounds = counted(monkeypatch)
    path = "protect.noised.1.noise_multiplier"
    asked = Asked([f"{path}=[1, 20]"], (), ["epsilon=3"], objectives=["epsilon", "bytes"])
    assert search(pushed, settings, asked, catalog) == 0
    assert rounds == [(3, 0), (3, 1), (3, 0), (3, 1), (3, 2)], "of the first trial, nobody is asked in the second round"
    first, second = trials_of(settings.output)
    assert first["status"] == "pruned"
    ledger = read_ledger(settings.output / first["runs"][0]["folder"])
    assert first["runs"][0]["rounds"] == 1
    assert first["numbers"]["epsilon"] == ledger.epsilon
    assert ledger.epsilon is not None
    assert first["reason"] == f"epsilon is {ledger.epsilon:.3f} after round 1 of 3, above 3.000, and only grows"
    assert second["status"] == "met"
    total = ledger.epsilon + second["runs"][0]["epsilon"]
    shown = capsys.readouterr().out
    assert f"All 2 runs of this search together come to at most epsilon {total:.3f} at delta 2e-05" in shown
    assert "is a release of its own, which that epsilon does not count" in (settings.output / "best.yaml").read_text(
    ).replace("\n# ", " ") + shown  # fmt: skip
    # Without the rule it runs to its end, and misses the bound all the same.
    ended = settings.replace({"output": settings.output.with_name("whole")})
    whole = Asked(asked.over, (), asked.most, asked.objectives, plan=Plan(prune="none"))
    assert search(pushed, ended, whole, catalog) == 0
    assert [trial["status"] for trial in trials_of(ended.output)] == ["missed", "met"]
    assert len(rounds) == 5 + 6


def test_of_several_seeds_the_mean_counts_and_no_more_run_than_are_needed(
    pushed: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ["rounds=1"]
    asked = Asked(["protect.noised.1.noise_multiplier=[1, 20]"], (), ["bytes=10MB"], ["epsilon", "bytes"], sets, [1, 2])
    assert search(pushed, settings, asked, catalog) == 0
    for trial in trials_of(settings.output):
        runs = [read_rows(settings.output / run["folder"])[-1] for run in trial["runs"]]
        assert [run["seed"] for run in trial["runs"]] == [1, 2]
        assert trial["numbers"]["bytes"] == sum(r.bytes.up.total + r.bytes.down.total for r in runs) / 2
        assert trial["numbers"]["epsilon"] == max(row.epsilon or 0 for row in runs)
        both = trial["numbers"]["bytes"]
    rounds = counted(monkeypatch)
    # All of the bytes that both runs may cost are gone after the first: the second has none left.
    tight = settings.replace({"output": settings.output.with_name("tight")})
    asked = Asked(asked.over, (), [f"bytes={both / 3:.0f}"], asked.objectives, sets, [1, 2])
    assert search(pushed, tight, asked, catalog) == 1
    assert rounds == [(1, 0), (1, 0)], "one seed of each trial"
    for trial in trials_of(tight.output):
        assert trial["status"] == "pruned"
        assert re.fullmatch(r"after seed 1: bytes is .* at least, above .*", trial["reason"])


# ---- going on


def compared(folder: Path) -> list[dict[str, Any]]:
    """What must not depend on when a search was interrupted."""
    return [
        {"values": one["values"], "status": one["status"], "reason": one.get("reason"),
         "numbers": {name: value for name, value in one.get("numbers", {}).items() if name not in TIMES}}
        for one in trials_of(folder)
    ]  # fmt: skip


def test_an_interrupted_search_makes_the_same_trials_as_one_that_was_not(
    pushed: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    over = ["protect.noised.1.noise_multiplier=0.5..20:log", "train.scale=[0.01, 0.1]"]
    asked = Asked(over, (), ["epsilon=8"], plan=Plan(trials=5, seed=3))
    assert search(pushed, settings, asked, catalog) == 0
    again = settings.replace({"output": settings.output.with_name("again")})
    whole, left = Protocol.round, iter([False, False, False, False, True, *[False] * 100])

    def stops(protocol: Protocol, round: int) -> None:
        if next(left):
            raise KeyboardInterrupt
        whole(protocol, round)

    monkeypatch.setattr(Protocol, "round", stops)
    capsys.readouterr()
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
    more = Asked(over, (), ["epsilon=8"], plan=Plan(trials=6, seed=3))
    assert search(pushed, again, more, catalog) == 0
    assert compared(again.output)[:5] == compared(settings.output)
    assert len(trials_of(again.output)) == 6


def test_a_folder_has_one_search_and_one_process(
    recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "round", lambda *_: pytest.fail("something ran"))
    with at_work(settings.output, "search"), pytest.raises(SetupError, match="another fedplug search is at work in"):
        search(recipe, settings, Asked(["rounds=[1, 2]"]), catalog)
    question = read_question(recipe, catalog, ["rounds=[1, 2]"], ["accuracy=0.5"])
    Store(settings.output, question, {"--search-seed": 0, "--prune": "all"})
    with pytest.raises(SetupError, match=r"holds another search: what may be chosen \(--over\), constraints differ"):
        search(recipe, settings, Asked(["rounds=[1, 3]"]), catalog)
    (settings.output / FILE).write_text("nonsense\nmore nonsense\n")
    with pytest.raises(SetupError, match="is damaged"):
        search(recipe, settings, Asked(["rounds=[1, 2]"], ["accuracy=0.5"]), catalog)


def test_trials_that_all_fail_for_one_reason_end_the_search_and_are_tried_again(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def breaks(protocol: Protocol, round: int) -> None:
        raise SetupError("the disk is full")

    asked = Asked(["rounds=[1, 2, 3, 4, 5]"])
    with monkeypatch.context() as broken:
        broken.setattr(Protocol, "round", breaks)
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
    asked = Asked(["protect.noised.0.factor=[0.5, 1]"], plan=Plan(trials=1))
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


@pytest.mark.slow
def test_several_at_a_time_make_the_same_choices_however_long_each_takes(
    pushed: Path, settings: Settings, catalog: Catalog
) -> None:
    asked = Asked(["protect.noised.1.noise_multiplier=0.5..20:log", "rounds=1..4"], (), ["epsilon=8"],
                  plan=Plan(trials=5, jobs=2))  # fmt: skip
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
        "or when its accuracy is hopeless",
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
