"""A trial of two rounds: what fails in a run fails in it, it leaves nothing behind, and nobody outside hears of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import FedplugError
from fedplug_runs import functions, trial
from fedplug_runs.fitting import missing_files
from fedplug_runs.settings import Settings
from toy_components import recipe_of

IN_ROUND_2 = """
import torch

def fails(logits, labels):
    fails.calls = getattr(fails, "calls", 0) + 1
    if fails.calls > CLIENTS:
        raise ValueError("the second round is too much")
    return torch.nn.functional.cross_entropy(logits, labels)
"""


def tried(tmp_path: Path, **changes: Any) -> trial.Tried:
    recipe = functions.check(recipe_of(**changes), trust=True)
    return trial.tried(recipe, Settings(output=tmp_path, data=tmp_path, device="cpu"))


def digits(clients: int, **others: Any) -> dict[str, Any]:
    return {"use": "std.digits", "clients": clients, "partition": {"use": "std.iid"}} | others


def test_it_takes_two_rounds_of_few_clients_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    found = tried(tmp_path, rounds=9, data=digits(40))
    assert (found.rounds, found.clients, found.notes) == (2, 6, ())
    assert not list((tmp_path / "temporary").iterdir())
    assert [each.name for each in tmp_path.iterdir()] == ["temporary"]


def test_a_recipe_of_one_round_or_with_sampling_is_tried_as_it_is(tmp_path: Path) -> None:
    assert tried(tmp_path, rounds=1, data=digits(3)).rounds == 1
    found = tried(tmp_path, data=digits(20), sampling={"scheme": "fixed", "rate": 0.5})
    assert found.clients == 20


def test_what_fails_in_the_second_round_fails_in_it(tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text(IN_ROUND_2.replace("CLIENTS", "4"))
    train = {"use": f"{tmp_path}/loss.py:fails", "lr": 0.1}
    with pytest.raises(FedplugError, match=r"(?s)round 2.*the second round is too much") as caught:
        tried(tmp_path, data=digits(4), train=train)
    assert "fedplug resume" not in str(caught.value)


def test_each_client_gets_few_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    from fedplug_std.training import Sgd

    monkeypatch.setattr(Sgd, "train", lambda self, client, facts: seen.append(client.num_examples) or {"loss": 0.0})
    tried(tmp_path, data=digits(3), train={"use": "std.sgd"})
    assert seen == [8] * 6


def test_a_disk_that_would_be_full_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1000})())
    (note,) = tried(tmp_path, rounds=1000, data=digits(3)).notes
    assert "the run folder will take about" in note
    assert "after 1000 rounds" in note
    assert "1.0 kB left" in note


def test_a_file_of_the_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    data = {"use": "std.arrays", "file": "mine.npz", "classes": ["a", "b"], "clients": 2, "partition": "std.iid"}
    recipe = functions.check(recipe_of(data=data))
    (said,) = missing_files(recipe, str(tmp_path))
    assert f"file=mine.npz of std.arrays is not there: {tmp_path}/mine.npz does not exist" in said
    np.savez(tmp_path / "mine.npz", x=np.zeros(1))
    assert list(missing_files(recipe, str(tmp_path))) == []
