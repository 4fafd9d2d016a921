"""Clients moved out of memory: their data is unchanged and still shared, and runs are the same."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Plan, Settings
from fedplug.api.blocks import unchangeable
from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.execution import resume, start
from fedplug_runs.residents import Residents
from toy_components import paraaegis, recipe_of, toy_catalog

SIZE = 3000


def client(number: int) -> Any:
    """The parts of a client that are moved out of memory."""
    rng = np.random.default_rng(number)
    labels = np.repeat(np.array([0, 1], np.uint8), SIZE)
    update = rng.standard_normal(SIZE).astype(np.float32)
    return SimpleNamespace(
        client_id=number, update=update, trained=update, personal=None,
        plan=Plan(labels, ("noised", "clear")), previous_plan=None,
        scores={"toy": rng.standard_normal(SIZE).astype(np.float32)},
        state={"toy": {"error": rng.standard_normal(SIZE), "few": np.ones(3), "words": [rng.bytes(3)] * 2}},
        remembered=SimpleNamespace(retained=Block("retained", SIZE, np.ones(SIZE, np.float32))),
    )  # fmt: skip


def in_memory(array: np.ndarray) -> bool:
    below: Any = array
    while isinstance(below, np.ndarray):
        below = below.base
    return not isinstance(below, memoryview | mmap.mmap)


def test_a_client_that_is_put_away_holds_what_it_held(tmp_path: Path) -> None:
    residents, first, same = Residents(1, tmp_path), client(0), client(0)
    first.update.flags.writeable = False
    residents.used(first)
    assert in_memory(first.update)
    residents.used(client(1))
    for found, expected in (
        (first.update, same.update), (first.scores["toy"], same.scores["toy"]), (first.plan.labels, same.plan.labels),
        (first.state["toy"]["error"], same.state["toy"]["error"]),
        (first.remembered.retained.values, same.remembered.retained.values),
    ):  # fmt: skip
        assert not in_memory(found)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
    assert not first.update.flags.writeable
    assert in_memory(first.state["toy"]["few"])
    assert first.state["toy"]["words"] == same.state["toy"]["words"]
    first.state["toy"]["error"] += 1  # components write to their own data
    residents.used(first)
    residents.used(client(1))
    assert np.array_equal(first.state["toy"]["error"], same.state["toy"]["error"] + 1)
    assert not list(tmp_path.iterdir())  # the files have no name


def test_what_clients_share_stays_one_array(tmp_path: Path) -> None:
    residents, some = Residents(1, tmp_path), [client(0), client(1)]
    labels = unchangeable(some[0].plan.labels)
    for one in some:
        one.plan = Plan(labels, ("noised", "clear"))
    for one in some:
        residents.used(one)
    assert some[0].plan.labels is some[1].plan.labels


def test_many_clients_share_a_file_that_goes_when_nobody_holds_what_lies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    monkeypatch.setattr("fedplug_runs.residents._FILE", 1 << 20)  # eleven clients
    residents, some, before = Residents(0, tmp_path), [client(number) for number in range(40)], files_open()
    for _ in range(3):  # the clients of a file keep it open until the last of them is elsewhere
        for one in some:
            one.state["toy"]["error"] += 1
            residents.used(one)
    assert files_open() - before <= 2 * 5 + 1  # a file that is mapped is open twice while it is filled
    for one in some:
        expected = client(one.client_id).state["toy"]["error"] + 3
        assert np.allclose(one.state["toy"]["error"], expected, rtol=0, atol=1e-9)


def test_what_a_client_read_from_its_own_file_is_put_away_and_a_shared_plan_is_not(tmp_path: Path) -> None:
    residents, one = Residents(0, tmp_path), client(0)
    one.personal = unchangeable(np.ones(SIZE, np.float32))
    one.state["toy"]["error"] = unchangeable(one.state["toy"]["error"])
    one.plan = Plan(unchangeable(one.plan.labels), ("noised", "clear"))
    residents.loaded(one)
    assert not in_memory(one.personal)
    assert not in_memory(one.state["toy"]["error"])
    assert in_memory(one.plan.labels)


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedplug_runs.residents.mmap.mmap", full)
    residents = Residents(1, tmp_path)
    residents.used(client(0))
    with pytest.raises(SetupError, match=r"No space left.*--max-clients-in-memory 1 asks; free space there, raise"):
        residents.used(client(1))


def accuracies(folder: Path) -> list[str]:
    return [line.split('"accuracy"')[1][:12] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_run_is_the_same_with_one_client_in_memory(engine: str, tmp_path: Path) -> None:
    """Personal models, which clients have between rounds, on both engines, and after a resume."""
    own = {"negotiate_mask": {"use": "toy.own"}, "postprocess": {"retained": ["toy.keep"]}}
    recipe = Recipe.from_plain(recipe_of(rounds=2, **own), toy_catalog())
    settings = Settings(output=tmp_path, engine=engine, quiet=True, workers=None if engine == "local" else 2)
    few = settings.replace({"max_clients_in_memory": 1})
    _, whole = start(recipe, settings, toy_catalog(), folder_name="whole")
    _, put_away = start(recipe, few, toy_catalog(), folder_name="put-away")
    assert accuracies(put_away) == accuracies(whole)
    assert resume(put_away, few, 1, catalog=toy_catalog()) == 0
    assert accuracies(put_away) == accuracies(whole)


def test_scores_and_plans_of_a_vote_are_put_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplug_runs.residents._LEAST", 1)
    recipe = Recipe.from_plain(paraaegis(0.5, rounds=2), toy_catalog())
    _, folder = start(recipe, Settings(output=tmp_path, quiet=True, max_clients_in_memory=1), toy_catalog())
    assert len(accuracies(folder)) == 2
