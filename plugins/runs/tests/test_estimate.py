"""What a run will take, against what it took: epsilon to the last digit, bytes nearly, time by a part of it."""

from __future__ import annotations

import dataclasses
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import FedplugError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug_runs import estimate as estimating
from fedplug_runs.estimate import _at_most, _Late, estimate, in_short
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.settings import Settings
from fedplug_std.training import Sgd
from run_toys import start
from toy_components import paraaegis, recipe_of, toy_catalog

SETTINGS = Settings(device="cpu", quiet=True)
NOISE = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}
CLIP = {"use": "std.clip", "norm": 1.0}


def measured(plain: dict[str, Any], limit: float = 600.0) -> estimating.Estimate:
    """A busy machine may take long for two rounds."""
    return estimate(Recipe.from_plain(plain, toy_catalog()), SETTINGS, toy_catalog(), limit)


@pytest.mark.parametrize(
    "plain",
    [
        recipe_of(rounds=5),
        recipe_of("noised", [CLIP, NOISE], rounds=7),
        recipe_of("noised", [CLIP, NOISE], rounds=6, min_clients=2,
                  sampling={"scheme": "fixed", "rate": 0.8, "source": "reproducible"}),
        paraaegis(rounds=5),
        recipe_of(rounds=4, train={"use": "baselines.dp_sgd", "lr": 0.1, "clipping_norm": 1.0, "epsilon": 3.0,
                                   "delta": 1e-4, "batch_size": 8},
                  data={"use": "std.digits", "clients": 4, "train_size": 200, "partition": {"use": "std.iid"}}),
    ],
    ids=["clear", "noised", "sampled", "votes", "dp_sgd"],
)  # fmt: skip
def test_the_verdict_is_that_of_the_whole_run(plain: dict[str, Any], tmp_path: Path) -> None:
    found = measured(plain)
    folder = start(tmp_path, plain, device="cpu")
    verdict = read_ledger(folder).verdict
    assert found.verdict is not None
    assert found.verdict.text() == verdict.text()
    assert [line.value for line in found.verdict.lines] == pytest.approx([line.value for line in verdict.lines])
    rows = read_rows(folder)
    assert found.rounds == len(rows)
    assert found.up == pytest.approx(sum(row.bytes.up.total for row in rows), rel=0.3)
    assert found.down == pytest.approx(sum(row.bytes.down.total for row in rows), rel=0.3)
    assert list(tmp_path.iterdir()) == [folder], "a measurement writes nothing"


def test_clients_that_take_part_in_turn_get_the_sums_of_all_rounds(tmp_path: Path) -> None:
    """A client asked in every eighth round gets eight sums at a time."""
    data = {"use": "std.digits", "clients": 16, "partition": {"use": "std.iid"}}
    plain = recipe_of(rounds=6, data=data, min_clients=2, sampling={"scheme": "cyclic", "rate": 0.125})
    found, rows = measured(plain), read_rows(start(tmp_path, plain, device="cpu"))
    assert found.down == pytest.approx(sum(row.bytes.down.total for row in rows), rel=0.3)
    assert found.up == pytest.approx(sum(row.bytes.up.total for row in rows), rel=0.3)


def test_a_round_that_takes_long_is_reckoned_by_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three clients have trained when the time is over, and the third still does."""
    whole, trained = Sgd.train, list[float]()

    def slow(trainer: Sgd, client: Any, facts: Any) -> dict[str, float]:
        trained.append(time.perf_counter())
        if len(trained) == 3:
            time.sleep(60)
        return whole(trainer, client, facts)

    monkeypatch.setattr(Sgd, "train", slow)
    plain = recipe_of(rounds=10, train={"use": "std.sgd"})
    plain["data"]["clients"] = 3
    found = measured(plain, limit=2.0)
    spent = time.perf_counter() - trained[0]
    assert found.round_seconds == pytest.approx(spent / (2 / 3), rel=0.3)
    assert found.seconds == pytest.approx(10 * found.round_seconds, rel=0.2)
    assert "66.7% of a round measured here in 2.0 s" in found.measured
    assert found.up is None
    assert "bytes: not measured" in "\n".join(found.text())
    assert found.verdict is not None


def test_a_set_up_that_takes_long_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "setup", lambda protocol: time.sleep(30))
    found = measured(recipe_of(), limit=0.05)
    assert (found.seconds, found.up, found.verdict) == (None, None, None)
    assert found.measured == "50 ms here, after which the set-up was not over"
    assert "epsilon: not known before the set-up is over" in "\n".join(found.text())
    found = dataclasses.replace(found, memory=10**9)
    assert in_short(found) == "time unknown, bytes unknown, 1.0 GB of memory, epsilon unknown"


def test_what_would_stop_the_run_is_said() -> None:
    plain = recipe_of(rounds=2)
    plain["score_parameters"] = [{"use": "toy.fail", "clients": [0, 1, 2, 3, 4, 5], "rounds": [0]}]
    with pytest.raises(FedplugError, match="the toy broke"):
        measured(plain)


def test_the_engine_of_the_run_is_named() -> None:
    said = measured(recipe_of(rounds=3)).text("processes")
    assert said[0].startswith("estimate for 3 rounds, from two rounds measured here, with the engine local; the engine")
    assert said[1].startswith("  time: about ")
    assert said[4] == "by the ledger, after 3 rounds:"


def test_data_at_sites_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    recipe = Recipe.from_plain(recipe_of(), toy_catalog())
    away = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, agreed=object()))
    with pytest.raises(SetupError, match="the data of this recipe are at its sites"):
        estimate(away, SETTINGS, toy_catalog())


def test_the_end_of_the_time_comes_even_where_python_drops_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Inside a callback of a weak reference, Python drops an exception and prints it."""

    class Thing:
        pass

    def wait(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    things = [Thing()]
    kept = weakref.ref(things[0], lambda _: wait(0.3))

    def work() -> None:
        with _at_most(0.1):
            things.clear()
            wait(30)

    with pytest.raises(_Late):
        work()
    assert kept() is None
    assert not capsys.readouterr().err
