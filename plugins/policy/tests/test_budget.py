"""The account of a site: studies compose as releases do, and nobody can change or lose a line."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import MessageError, SetupError
from fedplug_ledger.composing import Cost
from fedplug_policy.budget import FILE, Budget, Charge, LevelCost, spent, touching
from gaussian_toys import gaussian
from opacus.accountants import RDPAccountant
from policy_toys import ask_until_refused, charge, guard, recipe


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_two_studies_meet_on_the_same_file_and_no_one_else_can_compare(tmp_path: Path) -> None:
    for name, text in (("a/x.csv", "1,2"), ("a/y.csv", "3"), ("b/renamed.csv", "1,2")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    site, other = Budget(tmp_path / "site"), Budget(tmp_path / "other")
    first = site.identify([tmp_path / "a/x.csv", tmp_path / "a/y.csv"])
    (second,) = site.identify([tmp_path / "b/renamed.csv"])
    assert second in first
    assert second not in other.identify([tmp_path / "b/renamed.csv"])
    assert site.identify([], rows="abc") == site.identify([], rows="abc") != site.identify([], rows="abd")
    charges = [charge("one", second), charge("two", "else")]
    assert [one.study for one in touching(charges, first, everything=False)] == ["one"]
    assert touching(charges, first, everything=True) == charges
    with pytest.raises(SetupError, match=r"away.csv cannot be read .*, so its budget is unknown"):
        site.identify([tmp_path / "away.csv"])


def test_lines_are_kept_in_order_and_none_can_be_changed_or_taken_out(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "budget")
    for study in ("one", "two", "three"):
        with budget.alone():
            budget.append(charge(study, server=Cost(gaussian=1.0)))
    assert [one.study for one in budget.charges()] == ["one", "two", "three"]
    file = tmp_path / "budget" / FILE
    lines = file.read_bytes().splitlines(keepends=True)
    for changed in (
        [lines[0], lines[1].replace(b'"gaussian": 1.0', b'"gaussian": 0.1'), lines[2]],
        [lines[0], lines[2]], [lines[1], lines[0], lines[2]],
    ):  # fmt: skip
        file.write_bytes(b"".join(changed))
        with pytest.raises(SetupError, match="the signature of a line does not fit; restore the file from a copy"):
            budget.charges()
    file.write_bytes(b"".join(lines) + lines[0][:50])  # cut off while it was written, before the site answered
    with budget.alone():
        budget.append(charge("four", server=Cost(gaussian=1.0)))
    assert [one.study for one in budget.charges()] == ["one", "two", "three", "four"]


def test_two_studies_at_once_cannot_both_spend_the_last_of_a_budget_even_if_one_is_killed(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("budget: {epsilon: 4, delta: 1.0e-5, toward: [server]}\n")
    context: Any = multiprocessing.get_context("fork")  # no child computes with torch
    pauses = {"killed": 0.02, "left": 0.0, "right": 0.0}
    processes = {
        name: context.Process(target=ask_until_refused, args=(guard(tmp_path, name), tmp_path, name, pause))
        for name, pause in pauses.items()
    }
    for process in processes.values():
        process.start()
    until = time.monotonic() + 120
    while len([*tmp_path.glob("*.ready")]) < len(processes) and time.monotonic() < until:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    time.sleep(0.05)
    processes["killed"].kill()
    for process in processes.values():
        process.join(60)
    charges = Budget(tmp_path / "budget").charges()
    rounds = {one.study: len(one.rounds) for one in charges}
    most = next(n for n in range(1, 99) if gaussian(4 / math.sqrt(n + 1), 1e-5) > 4)
    assert sum(rounds.values()) == most
    assert spent(charges, "server", "client", 1e-5) == pytest.approx(gaussian(4 / math.sqrt(most), 1e-5), rel=1e-6)
    for name in ("left", "right"):
        said = (tmp_path / f"{name}.refused").read_text()
        assert int(said.split()[0]) == rounds.get(name, 0)
        assert "with this study epsilon reaches 4.0" in said


def test_a_study_that_continues_goes_on_from_what_it_spent(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("budget: {epsilon: 40, delta: 1.0e-5, toward: [server]}\n")
    for attempt, rounds in enumerate(([0, 1], [1, 2])):  # it was started again, and the server repeats round 2
        study = guard(tmp_path, "one")
        for round in rounds:
            study.asked("run", round, attempt, study._upload)
    (found,) = Budget(tmp_path / "budget").charges()
    assert found.rounds == [1, 2, 2, 3]
    assert found.toward["server"].gaussian == pytest.approx(4 / 4**2)
    assert json.loads((tmp_path / "budget" / FILE).read_text().splitlines()[0])["charge"]["rounds"] == [1]


def test_records_compose_as_the_account_of_one_run_with_all_steps() -> None:
    """DP-SGD of two studies is DP-SGD with the steps of both, which Opacus prices as one."""
    first, second = (
        Charge(name, name, "run", 0, [1], ["d"], 1e-5, {}, {"record": LevelCost("baselines.dp_sgd", releases, epsilon)})
        for name, releases, epsilon in (
            ("one", [([1.1, 0.05, 200.0], 2)], 2.0), ("two", [([1.1, 0.05, 300.0], 1)], 1.7),
        )
    )  # fmt: skip
    together = spent([first, second], "server", "record", 1e-5)
    reference = RDPAccountant()
    reference.history = [(1.1, 0.05, 700)]
    assert together == pytest.approx(reference.get_epsilon(1e-5), rel=0.15)
    assert together < reference.get_epsilon(1e-5)  # the loss distribution is exact, Renyi DP a bound
    brought = dataclasses.replace(second, levels={"record": LevelCost("own.py:Keeper", [], 1.7)})
    assert spent([first, brought], "server", "record", 1e-5) == math.inf  # both deltas do not fit into one
    assert spent([first, brought], "server", "record", 2e-5) == pytest.approx(3.7)
    assert spent([first, charge()], "server", "record", 1e-5) == math.inf  # a study without such an account


def test_ballots_that_are_asked_for_again_are_charged_again(tmp_path: Path) -> None:
    """A server that was killed between the ballots and the uploads of a round asks for both once more."""
    (tmp_path / "site.yaml").write_text("budget: {epsilon: 400, delta: 1.0e-5, toward: [released_model]}\n")
    name = "baselines.adaptive_clip"
    use = {"use": name, "noise_multiplier": 2.0}
    study = guard(
        tmp_path, "one", negotiate_mask=use, protect={"noised": [name]}, postprocess={"noised": [name]}
    )  # fmt: skip
    for attempt, questions in enumerate(([f"{name}.is_within"], [f"{name}.is_within", study._upload])):
        for question in questions:
            study.asked("run", 0, attempt, question)
    study.asked("run", 1, 1, f"{name}.is_within")
    study.asked("run", 1, 1, "fedplug.evaluate")
    (found,) = Budget(tmp_path / "budget").charges()
    assert found.rounds == [1, 1, 2]


def test_noise_from_a_known_seed_is_charged_as_no_guarantee(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("budget: {epsilon: 40, delta: 1.0e-5, toward: [server]}\n")
    known = recipe()["protect"]["noised"]
    known = [known[0], known[1] | {"source": "reproducible"}]
    study = guard(tmp_path, "one", protect={"noised": known})
    with pytest.raises(MessageError, match="no guarantee is left"):
        study.asked("run", 0, 0, study._upload)
    assert not Budget(tmp_path / "budget").charges()
