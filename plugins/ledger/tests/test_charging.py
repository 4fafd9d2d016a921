"""The cost of uploads: every client that was asked pays, even for lost and repeated rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from charge_toys import NOISE, Killed, noised, paid
from fedplug.api.errors import TooFewClients
from fedplug.api.events import Released
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.charging import Charging
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from toy_components import paraaegis, recipe_of, toy_catalog


def start_and_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_in: list[int], plain: dict[str, Any] | None = None
) -> Path:
    """Starts a run that is cut off in round `kill_in[0]`, resumes it, cuts it off again, ..., until it ends."""
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    charge = Charging._released
    kills = list(kill_in)

    def killed(self: Charging, event: Released) -> None:
        if kills and event.round == kills[0]:
            kills.pop(0)
            raise Killed  # the uploads have arrived, and nothing has been written since
        charge(self, event)

    monkeypatch.setattr(Charging, "_released", killed)
    with pytest.raises(Killed):
        execution.start(Recipe.from_plain(plain or noised(), catalog), settings, catalog)
    (folder,) = tmp_path.iterdir()
    for _ in kill_in[1:]:
        with pytest.raises(Killed):
            execution.resume(folder, settings, catalog=catalog)
    assert execution.resume(folder, settings, catalog=catalog) == 0
    return folder


def test_a_round_that_is_cut_off_after_its_uploads_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paid(start_and_kill(tmp_path, monkeypatch, [2])) == [1, 2, 3, 3, 4]


def test_a_round_that_is_cut_off_twice_is_paid_for_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paid(start_and_kill(tmp_path, monkeypatch, [2, 2])) == [1, 2, 3, 3, 3, 4]


def test_cuts_in_different_rounds_are_all_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paid(start_and_kill(tmp_path, monkeypatch, [0, 1, 3])) == [1, 1, 2, 2, 3, 4, 4]


def test_a_zone_that_was_empty_before_the_cut_counts_as_the_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In round 1 everything is encrypted; the noised zone of the lost upload of round 2 must not be free."""
    plain = paraaegis(1.0, decay=0.9, noised=[{"use": "std.clip", "norm": 1.0}, NOISE], rounds=3)
    folder = start_and_kill(tmp_path, monkeypatch, [1], plain)
    ledger = json.loads((folder / "ledger.json").read_text())
    sizes = [entry["zones"].get("noised", {"size": 0})["size"] for entry in ledger["log"]]
    assert [entry["round"] for entry in ledger["log"]] == [1, 2, 2, 3]
    assert sizes == [0, 650, 65, 124]
    assert ledger["zones"]["noised"]["rounds_with_noise"] == 3


def test_uploads_of_a_round_that_fails_are_in_the_ledger_and_paid_once_more_on_resuming(tmp_path: Path) -> None:
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    plain = noised(min_clients=3)
    plain["protect"]["noised"].append({"use": "toy.fail", "clients": [0, 1], "rounds": [1, 2, 3]})
    with pytest.raises(TooFewClients):
        execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
    (folder,) = tmp_path.iterdir()
    assert paid(folder) == [1, 2, 3, 4]
    with pytest.raises(TooFewClients):
        execution.resume(folder, settings, catalog=catalog)
    assert paid(folder) == [1, 2, 3, 4, 4]


def test_a_first_round_that_fails_counts_every_zone(tmp_path: Path) -> None:
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    fail = {"use": "toy.fail", "clients": [0, 1], "rounds": [0]}
    plain = recipe_of("clear", [fail], min_clients=3, rounds=1)
    with pytest.raises(TooFewClients):
        execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "ledger.json").read_text())["verdict"]["status"] == "no_protection"


def test_another_delta_than_the_ledgers_is_pointed_out(tmp_path: Path) -> None:
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    warned = []
    for delta in (1e-5, 1e-6):
        plain = noised() | {"rounds": 1}
        plain["protect"]["noised"][1] = {"use": "std.gaussian", "epsilon": 8, "delta": delta}
        _, folder = execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
        warned.append(json.loads((folder / "ledger.json").read_text())["warnings"])
    assert warned[0] == []
    assert "its noise for delta=1e-06, but the ledger states epsilon at delta=1e-05" in warned[1][0]


def test_going_back_pays_for_the_rounds_that_are_run_again(tmp_path: Path) -> None:
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    _, folder = execution.start(Recipe.from_plain(noised(), catalog), settings, catalog)
    before = json.loads((folder / "ledger.json").read_text())
    assert execution.resume(folder, settings, 3, catalog) == 0
    assert paid(folder) == [1, 2, 3, 4, 4]
    after = json.loads((folder / "ledger.json").read_text())
    assert max(after["epsilons"]["zero_out"].values()) > max(before["epsilons"]["zero_out"].values())


def test_reproducible_noise_is_the_same_upload_and_paid_once(tmp_path: Path) -> None:
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    plain = noised()
    plain["protect"]["noised"][1] = {**NOISE, "source": "reproducible"}
    _, folder = execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
    assert execution.resume(folder, settings, 3, catalog) == 0
    assert paid(folder) == [1, 2, 3, 4]
