"""A run that is killed and resumed, whose sums open with shares: a repeated round costs what it has released."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from fedplug.recipe.recipe import Recipe
from fedplug.round.sums import Sums
from fedplug_ledger.charging import Charging
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from shares_toys import shared_recipe
from toy_components import toy_catalog

SEALERS = ["secagg.bonawitz", "threshold.bfv"]
ALIKE = ["secagg.bonawitz", pytest.param("threshold.bfv", marks=pytest.mark.slow)]  # the same charges


def repeated(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, **changes: Any
) -> Path:
    """The folder of a run that died in its second round, when this method was called, and that was resumed."""
    settings = Settings.load().replace({"engine": "local", "output": tmp_path / "runs", "quiet": True})
    chain = [{"use": "std.clip", "norm": 8.0}, {"use": "std.distributed_gaussian", "noise_multiplier": 2.0}, use]
    plain = shared_recipe(use, rounds=3, protect={"encrypted": chain}, **changes)
    real, catalog, calls = getattr(owner, method), toy_catalog(), itertools.count()

    def killed(self: Any, *given: Any, **named: Any) -> Any:
        if next(calls) == 1:
            raise ZeroDivisionError
        return real(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, killed)
        with pytest.raises(ZeroDivisionError):
            execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
    (folder,) = (tmp_path / "runs").iterdir()
    assert execution.resume(folder, settings, None, catalog) == 0
    return folder


@pytest.mark.parametrize("use", SEALERS)
def test_a_round_that_died_after_its_sum_was_opened_is_paid_for_as_a_sum(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repeated(use, tmp_path, monkeypatch, Charging, "_released")
    ledger = json.loads((folder / "ledger.json").read_text())
    entries = [(entry["round"], entry["zones"]["encrypted"]) for entry in ledger["log"]]
    assert [round for round, _ in entries] == [1, 2, 2, 3]
    assert not any(zone.get("closed") for _, zone in entries[:2])
    assert entries[1][1]["sum_factor"] == pytest.approx(6**0.5)
    assert entries[2][1]["closed"]  # clients open one sum a round, so that of the second attempt stays closed
    assert "round 2 was repeated; zone encrypted was not opened a second time" in ledger["warnings"]


@pytest.mark.parametrize("use", ALIKE)
def test_a_repeated_round_of_clients_that_weigh_unequally_gets_no_more_credit_than_another(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of heavy clients is a smaller part of the sum than that of as many equal ones."""
    weighted = {"aggregate": {"use": "std.mean"}}
    folder = repeated(use, tmp_path, monkeypatch, Charging, "_released", **weighted)
    ledger = json.loads((folder / "ledger.json").read_text())
    usual, lost = (entry["zones"]["encrypted"]["sum_factor"] for entry in ledger["log"][:2])
    assert lost == pytest.approx(usual)
    assert lost < 6**0.5 - 0.05


@pytest.mark.parametrize("use", ALIKE)
def test_a_round_that_died_before_anybody_was_asked_for_shares_released_nothing(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repeated(use, tmp_path, monkeypatch, Sums, "open")
    ledger = json.loads((folder / "ledger.json").read_text())
    closed = [(entry["round"], bool(entry["zones"]["encrypted"].get("closed"))) for entry in ledger["log"]]
    noted = [json.loads(line)["what"] for line in (folder / "charging.jsonl").read_text().splitlines()]
    assert (noted.count("upload"), noted.count("opening")) == (4, 3)
    assert closed == [(1, False), (2, True), (2, False), (3, False)]
