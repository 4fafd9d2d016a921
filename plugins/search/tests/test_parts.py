"""The parts of a search: measures, spaces, what is chosen next, limits, fronts and prices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from fedplug.api.data import Better
from fedplug.api.errors import RecipeError, SetupError
from fedplug.api.events import RoundStarted
from fedplug_kit.static import check_component
from fedplug_lab.api import Enough, Spent, Stated, price_of, spent_in
from fedplug_ledger.grades import PARTIES
from fedplug_runs import yaml_source
from fedplug_runs.events import RowComplete, RowMade, RowsRestored, RunStarted
from fedplug_runs.files import Files
from fedplug_search.answer import Told, closest_of, front, judged, violations
from fedplug_search.limits import Limits, hopeless, so_far
from fedplug_search.measures import MEASURES, Constraint
from fedplug_search.question import Asked, Choices, Question, Range, Space, assignments, read_dimension, read_question
from fedplug_search.store import Store, next_params
from row_toys import a_ledger, a_row
from toy_components import recipe_of, toy_catalog

# ---- measures


def test_measures_have_the_parties_of_the_verdict() -> None:
    assert {f"epsilon_{party}" for party in PARTIES} <= MEASURES.keys()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("bytes", "100MB", 1e8), ("bytes", "1.5 kB", 1500), ("accuracy", "90%", 0.9), ("seconds", "5min", 300),
     ("epsilon", "8", 8), ("epsilon", "1e-1", 0.1), ("leakage", ".2", 0.2)],
)  # fmt: skip
def test_bounds_as_people_write_them(name: str, text: str, value: float) -> None:
    assert MEASURES[name].read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "text"), [("bytes", "3XB"), ("epsilon", "-1"), ("epsilon", "8MB"), ("epsilon", "nan"), ("accuracy", "2")]
)
def test_what_is_no_bound_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        MEASURES[name].read(text)


def test_how_far_a_value_misses_a_bound() -> None:
    least, most = Constraint("accuracy", True, 0.8), Constraint("epsilon", False, 8)
    assert [least.miss(value) for value in (0.9, 0.8, 0.6, None, math.nan)] == pytest.approx([0, 0, 0.25, 1, 1])
    assert [most.miss(value) for value in (1, 8, 10, math.inf)] == pytest.approx([0, 0, 0.25, 1e6])
    assert (str(least), str(most)) == ("accuracy >= 0.800", "epsilon <= 8.000")


# ---- spaces


def test_ranges_and_lists_are_read_as_they_are_meant() -> None:
    recipe = read(["rounds=1..3"]).base
    assert read_dimension("rounds", "10..40:step=15", recipe) == Range(10, 40, True, False, 15)
    assert read_dimension("train.lr", "1..5", recipe) == Range(1, 5), "a step size is no whole number"
    assert read_dimension("x.y", "1..5", None) == Range(1, 5, True), "of what nobody knows, as it is written"
    assert read_dimension("train.lr", "1e-3..1e-1:log", recipe) == Range(0.001, 0.1, log=True)
    assert read_dimension("rounds", "0..10:step=4", recipe) == Range(0, 8, True, False, 4)
    assert read_dimension("protect.clear", "[[], [{use: std.clip, norm: 1}]]", recipe).listed() == [
        "[]", '[{"use": "std.clip", "norm": 1}]',
    ]  # fmt: skip
    for wrong in ("5..2", "3..3", "1..5:lag", "0..5:log", "1..5:step=0", "1..2:step=7", "[1]", "[1, 1]", "7", "1 ..x"):
        with pytest.raises(ValueError, match=r".{20}"):
            read_dimension("rounds", wrong, recipe)


def test_values_keep_few_digits_and_stay_inside() -> None:
    assert Range(0.123456, 0.5).value(0.12348) == 0.1235
    assert Range(0.123456, 0.5).value(0.12346) == 0.1235
    assert Range(0.12344, 0.5).value(0.12344) == 0.12344
    assert Range(0.0, 0.5).value(0.1234567) == 0.1235
    assert Range(1, 9, whole=True).value(3.0) == 3
    space = Space({"a.b": Range(0, 1, step=0.5), "c": Choices((None, [{"use": "x"}]))})
    assert space.size() == 6
    made = [space.values(params) for params in space.combinations()]
    assert made[:3] == [{"a.b": 0.0, "c": None}, {"a.b": 0.0, "c": [{"use": "x"}]}, {"a.b": 0.5, "c": None}]
    for text in assignments(made[1]):
        path, _, value = text.partition("=")
        assert yaml_source.read_text(value, path).data == made[1][path]
    assert space.label(made[2]) == "b=0.5 c=null"
    long = Choices(tuple([{"use": "std.clip", "norm": norm}, {"use": "std.gaussian"}] for norm in (1, 2)))
    assert Space({"p.q": long}).label({"p.q": long.values[1]}) == "q=choice2"
    assert 'choice2: [{"use": "std.clip", "norm": 2}' in str(long)
    assert Space({"a": Range(0, 1)}).size() is None


# ---- what is tried next


def read(over: list[str], **more: Any) -> Question:
    folder = more.pop("folder", None)
    file = (folder or Path(FOLDER)) / "toy.yaml"
    file.write_text(yaml_source.dump(recipe_of(**more.pop("changes", {}))), encoding="utf-8")
    return read_question(file, Asked(over, **more), toy_catalog())


FOLDER = "."


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fill(store: Store, question: Question, count: int, jobs: int = 1) -> list[dict[str, Any]]:
    """Trials whose accuracy is best at 0.3 and whose bytes grow with it; those above 0.7 cost too much."""
    made = []
    while store.size < count:
        params = next_params(
            question.space, store.study.directions, store.history(), [one.params for one in store.history()], 5,
            store.size, count,
        )  # fmt: skip
        assert params is not None
        number = store.begin(params)
        value = float(params["train.lr"])
        made.append(dict(params))
        if number >= jobs - 1:
            numbers = {"accuracy": 1 - abs(value - 0.3), "bytes": 1e6 * value}
            store.end(number - jobs + 1, Told("met" if value < 0.7 else "missed", "", numbers))
    return made


def test_what_is_chosen_follows_from_the_file_and_constraints_count(tmp_path: Path) -> None:
    question = read(["train.lr=0.001..1"], most=["bytes=700kB"])
    whole = fill(Store(tmp_path, question, {}), question, 18)
    parts = tmp_path / "parts"
    parts.mkdir()
    made = []
    for count in (5, 13, 18):  # anew each time
        made += fill(Store(parts, question, {}), question, count)
    assert made == whole
    assert len({one["train.lr"] for one in whole}) == 18
    tenths = [int(10 * (float(one["train.lr"]) - 0.001) / 0.999) for one in whole[:10]]
    assert sorted(tenths) == list(range(10)), "spread over the range"
    late = [float(one["train.lr"]) for one in whole[10:]]
    assert sum(value < 0.7 for value in late) == 8, "chance would have six"
    store = Store(parts, question, {})
    for number, told in store.told.items():
        expected = violations(told, question.constraints, question.objectives)
        assert store.study.trials[number].constraints == pytest.approx(expected)
    assert [trial.state for trial in store.study.trials] == [optuna.trial.TrialState.COMPLETE] * 18
    # Trials that go on count as bad for what comes next, so that two at a time do not try the same.
    other = tmp_path / "two"
    other.mkdir()
    store = Store(other, question, {})
    two = fill(store, question, 13, jobs=2)
    assert len({one["train.lr"] for one in two}) == 13
    assert list(store.open) == [12]


def test_nothing_is_tried_twice_and_a_counted_space_is_tried_whole(tmp_path: Path) -> None:
    question = read(["rounds=1..3", "train.epochs=[1, 2]"])
    directions = [optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE]
    tried: list[Any] = []
    while found := next_params(question.space, directions, [], tried, 0, len(tried), 6):
        tried.append(found)
    assert [question.space.values(one) for one in tried] == [
        {"rounds": rounds, "train.epochs": epochs} for rounds in (1, 2, 3) for epochs in (1, 2)
    ]
    chosen: list[Any] = []
    while found := next_params(question.space, directions, [], chosen, 0, len(chosen), 5):
        chosen.append(found)
    assert len({question.space.key(one) for one in chosen}) == 6


def test_a_kill_between_two_lines_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = read(["train.lr=0.001..1"])
    store = Store(tmp_path, question, {})
    number = store.begin({"train.lr": 0.5})
    told = Told("met", "", {"accuracy": 0.5, "bytes": 1.0})
    with monkeypatch.context() as killed:
        killed.setattr(type(store.study), "tell", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.end(number, told)
    again = Store(tmp_path, question, {})
    assert (again.told, again.open) == ({}, {0: {"train.lr": 0.5}})
    again.end(0, told)
    assert Store(tmp_path, question, {}).told == {0: told}
    with pytest.raises(SetupError, match="holds another search"):
        Store(tmp_path, read(["train.lr=0.001..0.5"]), {})


# ---- limits


def test_the_extension_is_one() -> None:
    check_component("search.limits")


def limits(**options: Any) -> Limits:
    found = Limits(Limits.Options(**options))
    folder = Path("runs/x")
    found.observe(RunStarted([], {"run folder": "runs/x", "rounds": 4}, folder, {}, "", {}, Files(folder)))
    return found


def test_a_run_ends_before_the_round_after_the_one_that_was_too_much() -> None:
    found = limits(epsilon=2.0)
    for number, epsilon in enumerate((1.0, 2.0, 2.5), 1):
        found.observe(RoundStarted(number - 1))
        found.observe(RowMade(number - 1, a_row(round=number, epsilon=epsilon), [], 0.0))
    with pytest.raises(Enough, match=r"^epsilon is 2\.500 after round 3 of 4, above 2\.000, and only grows$") as raised:
        found.observe(RoundStarted(3))
    assert raised.value.run_dir == Path("runs/x")
    assert raised.value.known["epsilon"] == 2.5
    # A run that goes on knows the rounds before.
    later = limits(epsilon=2.0)
    later.observe(RowsRestored([a_row(round=1, epsilon=3.0)]))
    with pytest.raises(Enough):
        later.observe(RoundStarted(1))


def test_bytes_and_seconds_are_sums_over_the_rounds() -> None:
    rows = [a_row(round=number) for number in (1, 2)]
    found = so_far(rows)
    up, down, key_server = (sum(way) for way in zip(*((r.bytes.up.total, r.bytes.down.total, r.bytes.key_server.total)
                                                      for r in rows), strict=True))  # fmt: skip
    assert up > 0
    assert (found["bytes_up"], found["bytes"]) == (up, up + down + key_server)
    assert found["seconds"] == sum(row.wall_seconds for row in rows)
    assert so_far([]) == {}
    over = limits(bytes=up + down + key_server - 1)
    for row in rows:
        over.observe(RowComplete(row))
    assert over.reason().startswith("bytes is ")
    assert not limits().reason()
    said = limits(bytes_up=5e6, leading=0.9).describe()
    assert said == "ends the run where it cannot keep to bytes_up 5.0 MB, leading 0.900"


def test_accuracy_is_hopeless_where_the_best_gain_repeated_does_not_do() -> None:
    assert hopeless([0.1, 0.2, 0.3], 6, 0.7) == pytest.approx(0.6)
    assert hopeless([0.1, 0.2, 0.3], 6, 0.6) is None
    assert hopeless([0.1, 0.1], 3, 0.9) is None, "two rounds say nothing"
    assert hopeless([0.1, 0.1, 0.1], 8, 0.9) is None, "learning may start slowly"
    assert hopeless([0.5, None, 0.4, 0.3], 6, 0.51) == 0.5, "it may recover"


def test_a_figure_of_which_the_lower_is_better_is_hopeless_in_its_direction() -> None:
    assert hopeless([9.0, 8.0, 7.0], 6, 3.0, "lower", None) == pytest.approx(4.0)
    assert hopeless([9.0, 8.0, 7.0], 6, 4.0, "lower", None) is None
    assert hopeless([5.0, None, 6.0, 7.0], 6, 4.9, "lower", None) == 5.0
    found, leads = limits(leading=5.0), {"name": "RMSE", "better": "lower"}
    for round, value in enumerate((9.0, 8.0, 7.0), 1):
        found.observe(RowComplete(a_row(round, accuracy=None, leads=leads, figures={"RMSE": value})))
    assert found.reason().startswith("RMSE can hardly reach 5.000: after round 3 of 4 even the best gain so far")
    assert found.known()["figure_RMSE"] == 7.0


# ---- fronts, what is closest, prices


def test_a_front_is_of_those_that_meet_the_constraints() -> None:
    told = {
        0: Told("met", "", {"accuracy": 0.9, "bytes": 5.0}),
        1: Told("met", "", {"accuracy": 0.8, "bytes": 4.0}),
        2: Told("met", "", {"accuracy": 0.8, "bytes": 5.0}),
        3: Told("missed", "", {"accuracy": 1.0, "bytes": 1.0}),
        4: Told("met", "", {"accuracy": 0.8, "bytes": 4.0}),
        5: Told("pruned", "", {"accuracy": 1.0, "bytes": 1.0}),
    }
    assert front(told, {"accuracy": "higher", "bytes": "lower"}) == [0, 1, 4], "equals are both on it"
    assert front(told, {"bytes": "lower", "accuracy": "higher"}) == [1, 4, 0]
    assert front(told, {"bytes": "higher", "accuracy": "higher"}) == [0]
    bounds = [Constraint("accuracy", True, 0.9), Constraint("bytes", False, 4.0)]
    assert closest_of(told, bounds) == 3
    del told[3]
    assert closest_of(told, bounds) == 1
    assert closest_of({5: told[5]}, bounds) is None


WEIGHED: dict[str, Better] = {"accuracy": "higher", "epsilon": "lower"}


def test_a_pruned_trial_counts_by_what_is_certain() -> None:
    bounds = [Constraint("accuracy", True, 0.9), Constraint("epsilon", False, 8)]
    pruned = Told("pruned", "", {"accuracy": 0.1, "epsilon": 10.0})
    assert violations(pruned, bounds, WEIGHED) == {
        "all numbers": 1.0, "accuracy >= 0.900": 0.0, "epsilon <= 8.000": 0.25
    }  # fmt: skip
    nameless = Told("missed", "", {"accuracy": 0.9})
    assert violations(nameless, bounds, WEIGHED)["epsilon <= 8.000"] == 1.0


def test_the_price_of_a_search_is_the_sum_over_its_runs_each_with_its_own_delta() -> None:
    spent = [Spent(3.0, 1e-5), Spent(4.0, 1e-2, "noised"), Spent(9.0, 1e-5)]
    price = price_of(spent)
    assert (price.runs, price.epsilon, price.without, price.partial) == (3, 16.0, 0, ("noised",))
    assert price.delta == pytest.approx(1e-2 + 2e-5)
    assert price_of([*spent, Spent(None, 1e-5), Spent(math.nan, 1e-5)]).without == 2
    assert price_of([Spent(None)]).epsilon is None


def test_a_run_counts_by_what_its_folder_says_it_has_released(tmp_path: Path) -> None:
    """One that was killed has no ledger, or that of an earlier stop; one that never asked anybody has no price."""
    ledger = a_ledger()
    charge = '{"round": 0, "charged": [0, 1], "what": "upload"}\n'
    for name, written, asked in (("idle", False, ""), ("killed", False, charge), ("again", True, charge)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text("name: toy")
        if written:
            (tmp_path / name / "ledger.json").write_text(ledger.to_json())
        if asked:
            (tmp_path / name / "charging.jsonl").write_text(asked)
    assert spent_in(tmp_path) == [Spent(None), Spent(None)]


PIXELS: dict[str, Any] = {
    "data": {"use": "toy.stripes", "clients": 3, "partition": {"use": "std.iid"}}, "model": {"use": "toy.pixelwise"},
}  # fmt: skip


def test_figures_of_a_task_and_accounts_of_a_component_can_be_asked_for() -> None:
    question = read(["rounds=1..3"], least=["figure_IoU=0.5"], most=["epsilon_of_record=3"])
    assert [str(one) for one in question.constraints] == ["figure_IoU >= 0.500", "epsilon_of_record <= 3.000"]
    assert question.objectives == {"accuracy": "higher", "figure_IoU": "higher", "epsilon_of_record": "lower"}
    with pytest.raises(RecipeError, match=r"no measure 'IoU'; there is accuracy, .*figure_NAME of a task, such as"):
        read(["rounds=1..3"], least=["IoU=0.5"])
    # One that the runs do not state is missed, and those that they do are named.
    stated = {"accuracy": Stated(0.5), "figure_IoU": Stated(0.4), "figure_recall": Stated(0.9)}
    told = judged(stated, [Constraint("figure_iou", True, 0.5)], ("accuracy",), [], [], 0.0)
    assert told.status == "missed"
    assert told.reason == "figure_iou has no number: none of its runs states it, but figure_IoU, figure_recall"
    assert told.numbers == {"accuracy": 0.5, "figure_IoU": 0.4, "figure_recall": 0.9}


def test_which_way_a_figure_is_better_its_model_declares_or_the_search_is_told() -> None:
    def weighed(*objectives: str, **more: Any) -> dict[str, Better]:
        found = read(["rounds=1..3"], objectives=objectives, **more).objectives
        assert isinstance(found, dict)
        return found

    assert weighed("accuracy", "figure_RMSE=min") == {"accuracy": "higher", "figure_RMSE": "lower"}
    assert weighed("accuracy", "figure_R2 = max") == {"accuracy": "higher", "figure_R2": "higher"}
    assert weighed("accuracy", "figure_RMSE", most=["figure_RMSE=3"])["figure_RMSE"] == "lower", "a bound says it too"
    assert weighed(most=["figure_RMSE=3"]) == {"accuracy": "higher", "figure_RMSE": "lower"}
    both = {"least": ["figure_x=-1"], "most": ["figure_x=3"]}
    assert weighed(**both) == {"accuracy": "higher", "bytes": "lower"}
    with pytest.raises(RecipeError, match=r"figure_RMSE: std.mlp does not declare .*; write figure_RMSE=min or"):
        weighed("accuracy", "figure_RMSE")
    with pytest.raises(RecipeError, match=r"figure_RMSE=less: write figure_RMSE=min where less is better"):
        weighed("accuracy", "figure_RMSE=less")
    # What the model declares.
    for name in ("figure_bright seen", "figure_bright seen, own models"):
        assert weighed("bytes", name, changes=PIXELS)[name] == "higher"
    assert weighed("bytes", "figure_bright seen=min", changes=PIXELS)["figure_bright seen"] == "lower"
    # An upper bound of a figure of which more is better is no wish for more of it.
    assert weighed(most=["figure_bright seen=0.5"], changes=PIXELS) == {"accuracy": "higher", "bytes": "lower"}
    with pytest.raises(RecipeError, match=r"declared are figure_bright seen \(higher is better\)"):
        weighed("bytes", "figure_dark seen", changes=PIXELS)


def test_an_error_is_minimised() -> None:
    told = {number: Told("met", "", {"figure_RMSE": error, "bytes": 5.0}) for number, error in ((0, 2.0), (1, 1.0))}
    assert front(told, {"figure_RMSE": "lower", "bytes": "lower"}) == [1]
