"""Attacks on a finished run: forms, headlines, results that are kept, and attacks that misbehave."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import Echo, Runs, attack_catalog, attacked, machinery, results, seen
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.view import View
from fedplug_attacks.workshop import results as attack_results
from fedplug_attacks.workshop.command import attack
from fedplug_lab import sweep
from fedplug_lab.records import Line, result_of
from fedplug_lab.sweep import columns_of
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from target_toys import a_target, an_outcome
from toy_components import paraaegis, recipe_of

UNIFORM = recipe_of(rounds=1)
MASKED = recipe_of(
    rounds=1, negotiate_mask={"use": "toy.own"}, protect={"clear": []},
    postprocess={"retained": [{"use": "toy.keep"}]},
)  # fmt: skip
QUICK = ['attack.attacks.0.finds=["labels"]']
"""No images: their pictures take longer than everything else here."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def folder(tmp_path: Path, runs: Runs) -> Path:
    """A copy of a run in the clear, without attacks."""
    return copied(runs.of(UNIFORM), tmp_path)


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("attacks")))


def deed(does: str, *at: int) -> list[str]:
    return [f"attack.attacks.0.does={does}", f"attack.attacks.0.at={list(at)}"]


def run_attacks(folder: Path, *sets: str, **scope: Any) -> tuple[int, str]:
    """Exit code and what was printed."""
    out, settings = io.StringIO(), Settings(quiet=True)
    metrics = ("toy.distance", "toy.count_error")
    with contextlib.redirect_stdout(out):
        code = attack(folder, settings, ["toy.echo"], metrics, scope, [*QUICK, *sets], attack_catalog())
    return code, out.getvalue()


# -- forms -------------------------------------------------------------------------------------------------------------


def test_both_forms_run_where_entries_are_hidden_and_the_stronger_is_the_headline(runs: Runs, tmp_path: Path) -> None:
    folder = copied(runs.of(MASKED), tmp_path)
    for level, best in ((0.35, "adaptive"), (0.65, "naive")):  # the naive form is darker by 0.2; the truth is about 0.3
        found = attacked(
            folder, "toy.echo", adversaries=["server"], targets=[1], probe={"batch_size": 2},
            sets=[f"attack.attacks.0.grey={level}"],
        )  # fmt: skip
        result = found["toy.echo-server-round1-client1-probe2.1"]
        assert set(result["forms"]) == {"adaptive", "naive"}
        distance = {form: entry["metrics"]["toy_distance"] for form, entry in result["forms"].items()}
        assert result["headline"] == best == min(distance, key=lambda form: distance[form])
        rows = {row["form"]: row for row in found["summary"]["rows"]}
        assert rows[best]["headline"]
        assert sum(row["headline"] for row in rows.values()) == 1
        assert [view.update.visible.all() for view, _ in Echo.heard if view.update] == [False, False]
    assert (folder / "attacks" / result["picture"]).stat().st_size > 1000


def test_one_form_runs_where_nothing_is_hidden_or_only_one_is_wanted(runs: Runs, folder: Path, tmp_path: Path) -> None:
    scope: dict[str, Any] = {"adversaries": ["server"], "targets": [0]}
    clear = attacked(folder, "toy.echo", sets=QUICK, **scope)["toy.echo-server-round1-client0"]
    assert set(clear["forms"]) == {"adaptive"}
    masked = copied(runs.of(MASKED), tmp_path / "masked")
    one = attacked(masked, "toy.echo", sets=QUICK, compare_forms=False, **scope)["toy.echo-server-round1-client0"]
    assert set(one["forms"]) == {"adaptive"}
    naive = attacked(masked, "toy.echo", sets=[*QUICK, "attack.attacks.0.form=naive"], compare_forms=False, **scope)
    assert set(naive["toy.echo-server-round1-client0"]["forms"]) == {"naive"}
    both = attacked(masked, "toy.echo", sets=[*QUICK, "attack.attacks.0.form=naive"], **scope)
    assert set(both["toy.echo-server-round1-client0"]["forms"]) == {"adaptive", "naive"}


def test_an_attack_that_works_in_place_spoils_nothing_for_others(runs: Runs, tmp_path: Path) -> None:
    folder = copied(runs.of(MASKED), tmp_path)
    found = attacked(folder, "toy.echo", sets=[*QUICK, *deed("spoil", 0, 1, 2, 3)], adversaries=["server"])
    spoilt = [found[f"toy.echo-server-round1-client{target}"] for target in range(4)]
    for result in spoilt:
        for entry in result["forms"].values():
            assert entry["metrics"]["toy_agreement"] == 0  # of what was observed with the truth: the scorer's is whole
    again = attacked(folder, "toy.echo", sets=QUICK, adversaries=["server"])
    for view, _ in Echo.heard:
        assert view.vector is not None
        assert view.update is not None
        assert not (view.vector == 7).any()
        assert not (view.update.values == 7).any()
        assert np.array_equal(view.model.get_vector(), view.vector)
    assert len(Echo.heard) == 8
    assert {key: result["states"] for key, result in again.items() if key != "summary"} == {
        f"toy.echo-server-round1-client{target}": result["states"] for target, result in enumerate(spoilt)
    }


def test_an_attack_that_declares_nothing_runs(folder: Path) -> None:
    result = attacked(folder, "toy.bare", adversaries=["server"], targets=[0])["toy.bare-server-round1-client0"]
    entry = result["forms"]["adaptive"]
    assert entry["status"] == "finished"
    assert entry["own"]["messages"] > 0
    assert result["picture"] is None


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_result_says_what_was_attacked_and_how(folder: Path) -> None:
    metrics = ("toy.distance", "toy.undefined", "toy.broken", "toy.not_a_number", "toy.count_error")
    found = attacked(folder, "toy.echo", metrics=metrics, adversaries=["server"], targets=[2], rounds=[1])
    assert set(found) == {"summary", "toy.echo-server-round1-client2"}
    result = found["toy.echo-server-round1-client2"]
    assert (result["attack"], result["adversary"], result["round"], result["client"]) == ("toy.echo", "server", 1, 2)
    assert result["states"]["clear"] == 1
    entry = result["forms"]["adaptive"]
    assert entry["gradient_evaluations"] == 3
    assert entry["losses"] == [2.0, 1.0]
    assert entry["seed"] == Echo.heard[0][0].seed
    assert entry["metrics"]["toy_nan"] is None  # JSON has no NaN
    assert entry["metrics"]["toy_infinite"] == "inf"
    assert "odd count" in entry["undefined"]["toy.undefined"]
    assert "looked too far" in entry["undefined"]["toy.broken"]
    assert sum(result["truth"]["counts"]) == len(result["truth"]["labels"])
    assert "random guess" in result["baselines"]
    assert found["summary"]["adversaries"]["server"].startswith("the aggregation server")


def test_a_challenge_asks_about_as_many_strangers_as_members(folder: Path) -> None:
    sets = ['attack.attacks.0.finds=["members"]']
    found = attacked(folder, "toy.echo", sets=sets, adversaries=["released"], targets=[1], candidates=40)
    ((view, _),) = Echo.heard
    assert view.candidates is not None
    assert len(view.candidates) == 40
    assert view.update is None
    result = found["toy.echo-released-round2-client1"]  # the final model of a run of one round
    assert 0 <= result["forms"]["adaptive"]["metrics"]["toy_hits"] <= 1
    with machinery(folder, adversaries=["released"], candidates=40) as run:
        examples, members = run.truths.challenge(1, view.seed, run.scope.candidates)
        mine = {image.tobytes() for image in run.rewound.client(1).data.train.inputs}
        drawn = [run.truths.challenge(1, seed, run.scope.candidates) for seed in range(40)]
        common = np.mean([run.truths.common(1, one.labels[~own]) for one, own in drawn])
    strangers = [{image.tobytes() for image in one.inputs[~own]} for one, own in drawn]
    assert np.mean([len(a & b) / len(a) for a, b in itertools.pairwise(strangers)]) == pytest.approx(common, abs=0.03)
    assert int(members.sum()) == 20
    assert [image.tobytes() in mine for image in examples.inputs] == members.tolist()
    classes = [np.bincount(examples.labels[members == told], minlength=10) for told in (True, False)]
    assert np.abs(classes[0] - classes[1]).max() <= 1


def test_finished_targets_are_not_attacked_again_unless_an_option_changes(folder: Path) -> None:
    scope: dict[str, Any] = {"adversaries": ["server"], "targets": [0, 1]}
    first = attacked(folder, "toy.echo", sets=QUICK, **scope)
    assert len(Echo.heard) == 2
    assert attacked(folder, "toy.echo", sets=QUICK, **scope) == first
    assert not Echo.heard
    attacked(folder, "toy.echo", sets=QUICK, **scope | {"targets": [0, 1, 2]})
    assert [view.target for view, _ in Echo.heard] == [2]
    attacked(folder, "toy.echo", sets=[*QUICK, "attack.attacks.0.grey=0.4"], **scope)
    assert len(Echo.heard) == 2
    attacked(folder, "toy.echo", sets=[*QUICK, "attack.attacks.0.grey=0.4"], metrics=["toy.count_error"], **scope)
    assert len(Echo.heard) == 2
    (folder / "attacks" / "toy.echo-server-round1-client1.json").write_text('{"cut o')
    attacked(folder, "toy.echo", sets=[*QUICK, "attack.attacks.0.grey=0.4"], metrics=["toy.count_error"], **scope)
    assert [view.target for view, _ in Echo.heard] == [1]


@pytest.mark.usefixtures("reports")
def test_an_interruption_keeps_what_is_finished_and_the_same_command_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Echo.heard.clear()
    code, said = run_attacks(folder, *deed("interrupt", 2))
    assert code == 130
    assert "Interrupted; 2 of 4 targets are finished" in said
    assert set(results(folder)) == {"summary", *(f"toy.echo-server-round1-client{target}" for target in (0, 1))}
    assert results(folder)["summary"]["rows"][0]["targets"] == 2
    assert "toy.echo" in (folder / "report.html").read_text(encoding="utf-8")
    Echo.heard.clear()
    assert run_attacks(folder, *deed("interrupt", 2))[0] == 130
    assert [view.target for view, _ in Echo.heard] == [2]  # those before are kept
    monkeypatch.setattr(Echo, "_deed", lambda self, report, view: report)  # nobody presses Ctrl-C this time
    Echo.heard.clear()
    assert run_attacks(folder, *deed("interrupt", 2))[0] == 0
    assert [view.target for view, _ in Echo.heard] == [2, 3]
    assert results(folder)["summary"]["rows"][0]["targets"] == 4


# -- attacks that misbehave --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "status", "reason"),
    [
        ("raise", "inconclusive", "the attack stopped with an error: ZeroDivisionError: the toy divided ("),
        ("refuse", "not_applicable", "the toy wants none of this"),
        ("diverge", "inconclusive", "the loss became NaN at step 3"),
        ("dictionary", "inconclusive", "the attack gave a dict, not an AttackReport"),
        ("text", "inconclusive", "the attack gave 'no number' for what, which is not a number"),
    ],
)
def test_an_attack_that_misbehaves_costs_its_own_target_only(folder: Path, does: str, status: str, reason: str) -> None:
    code, _ = run_attacks(folder, *deed(does, 1), adversaries=["server"], targets=[0, 1, 2])
    assert code == 0
    found = results(folder)
    entries = [found[f"toy.echo-server-round1-client{target}"]["forms"]["adaptive"] for target in range(3)]
    assert entries[1]["status"] == status
    assert entries[1]["reason"].startswith(reason)
    assert entries[1]["metrics"] == {}
    assert entries[0]["metrics"]["toy_count_error"] > 0
    assert entries[2]["metrics"]["toy_count_error"] > 0
    (row,) = found["summary"]["rows"]
    assert row["targets"] == 3
    assert row["reasons"] == {entries[1]["reason"]: 1}
    assert row["inconclusive"] == (status == "inconclusive")
    assert row["not_applicable"] == (status == "not_applicable")


def test_answers_with_nan_and_with_numbers_of_numpy_can_be_written(folder: Path) -> None:
    scope: dict[str, Any] = {"adversaries": ["server"], "targets": [0]}
    images = ['attack.attacks.0.finds=["images"]']
    name = "toy.echo-server-round1-client0"
    nan = attacked(folder, "toy.echo", sets=[*images, *deed("nan_images", 0)], **scope)[name]["forms"]["adaptive"]
    assert nan["status"] == "inconclusive"
    assert nan["losses"] == [None]
    odd = attacked(folder, "toy.echo", sets=[*QUICK, *deed("strange_numbers", 0)], **scope)[name]["forms"]["adaptive"]
    assert odd["losses"] == [1.5, None]
    assert odd["own"] == {"of numpy": 2.5, "infinite": "inf"}
    assert (odd["seed"], odd["gradient_evaluations"]) == (5, 7)


def test_targets_that_cannot_be_attacked_say_why(runs: Runs, tmp_path: Path) -> None:
    sampling = {"scheme": "fixed", "rate": 0.5, "source": "reproducible"}
    folder = copied(runs.of(recipe_of(rounds=1, sampling=sampling, min_clients=2)), tmp_path)
    found = attacked(folder, "toy.echo", sets=QUICK, adversaries=["server", "client:1"], targets=[0, 1, 2, 3])
    entries = {key: result["forms"]["adaptive"] for key, result in found.items() if key != "summary"}
    reasons = {key: entry["reason"] for key, entry in entries.items() if entry["status"] == "not_applicable"}
    assert reasons.pop("toy.echo-client_1-round1-client1") == "the adversary is the target itself"
    assert len(reasons) in (3, 4)  # two clients were not asked, and one of them may be client 1
    assert {reason.partition(" sees no")[0] for reason in reasons.values()} <= {
        "the adversary server", "the adversary client:1"
    }  # fmt: skip


# -- from a recipe, and in a sweep -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("reports")
def test_a_recipe_with_attacks_makes_them_at_the_end_of_its_run(tmp_path: Path) -> None:
    section = {"attacks": [{"use": "toy.echo", "finds": ["labels"]}], "metrics": [{"use": "toy.count_error"}],
               "targets": [0], "rounds": [1]}  # fmt: skip
    catalog = attack_catalog()
    recipe = Recipe.from_plain(recipe_of(rounds=3, attack=section), catalog)
    code, folder = execution.start(recipe, Settings(output=tmp_path, quiet=True), catalog)
    assert code == 0
    assert "toy.echo-server-round1-client0" in results(folder)
    assert (folder / "checkpoint" / "round-0000").is_dir()  # kept for attacks on early rounds
    assert sorted(path.name for path in (folder / "wire").iterdir())[0] == "round-0000.wire"
    assert "toy.echo" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_sweep_shows_what_attacks_reached_beside_the_guess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = attack_catalog()
    monkeypatch.setattr(Catalog, "discover", staticmethod(lambda: catalog))
    section = {"attacks": [{"use": "toy.echo", "finds": ["images"]}], "targets": [0], "probe": {"batch_size": 2},
               "metrics": [{"use": "toy.distance"}]}  # fmt: skip
    (tmp_path / "r.yaml").write_text(json.dumps(MASKED | {"attack": section}))
    (tmp_path / "g.yaml").write_text(json.dumps({"parameters": {"train.lr": [0.05]}}))
    out = tmp_path / "out"
    assert sweep.sweep(tmp_path / "r.yaml", tmp_path / "g.yaml", Settings(output=out, quiet=True), [], [1], False) == 0
    line = Line.from_json((out / "sweep.jsonl").read_text())
    assert line.result is not None
    entry = line.result.added["attacks"]["toy.echo server probe 2"]
    assert set(entry) == {"ranking", "stronger", "guesses", "forms", "adversary"}
    assert entry["ranking"] == {"metric": "toy_distance", "better": "low"}
    assert entry["stronger"] in entry["forms"].keys() == {"adaptive", "naive"}
    (run,) = (path.parent for path in out.glob("*/recipe.yaml"))
    assert result_of(run) == line.result
    titles = {column.title: column.cells for column in columns_of([line])}
    for name in ("adaptive", "naive", "mean image"):
        assert titles[f"echo server probe 2 toy_distance {name}"][0] not in ("", "-")


def test_sums_are_no_single_updates(runs: Runs, tmp_path: Path) -> None:
    with machinery(runs.of(paraaegis(seal={"use": "std.bfv", "key_holder": "key_server"})),
                   adversaries=["key_server"]) as run:  # fmt: skip
        known, _ = seen(run, "key_server", 0)
    view = View("key_server", update=known.update, num_classes=10)
    assert Needs(model=False).unmet(view) == "the visible part is a sum of 4 updates, not a single one"


def test_by_default_released_models_are_the_final_ones_and_updates_those_of_round_1(runs: Runs) -> None:
    folder = runs.of(recipe_of(rounds=2))
    with machinery(folder, adversaries=["server", "released"], targets=[1]) as run:
        assert run.occasions.rounds() == [(0, ["server"]), (run.recipe.rounds, ["released"])]


def test_results_under_other_options_are_rows_of_their_own(tmp_path: Path) -> None:
    for target, settings in enumerate(("x", "x", "y")):
        result = a_target(key=f"a-{target}", settings=settings, forms={"adaptive": an_outcome()})
        attack_results.write_result(tmp_path, result)
    rows = attack_results.write_summary(tmp_path, {}).rows
    assert sorted(row.targets for row in rows) == [1, 2]
