"""Tokens read off an embedding, and rows of a table read off a first layer: in small, and in whole runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug import Facts
from fedplug.api.errors import MetricError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks import _low_rank
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.tokens import Tokens, TokensFound
from fedplug_attacks.workshop.default_set import SEARCH, TOKENS
from fedplug_kit.static import check_component
from fedplug_std.models import Gpt
from fedplug_terminal.main import main

TEXT = np.array([[1, 4, 4, 9, 2], [7, 1, 9, 9, 3]])
THERE = {1, 2, 3, 4, 7, 9}


def found(noise: float = 0.0, sigma: float = 0.0, vocabulary: int = 12) -> AttackReport:
    model: Any = Gpt(Gpt.Options(width=16, heads=2)).build((5,), 12, 0, "cpu")
    outputs = model.module(torch.from_numpy(TEXT))
    loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), torch.from_numpy(TEXT).flatten())
    parts = torch.autograd.grad(loss, model.parameters)
    vector = torch.cat([part.reshape(-1) for part in parts]).numpy()
    vector = vector + noise * np.random.default_rng(1).normal(size=vector.shape).astype(np.float32)
    observed = all_clear(0, 0, model.layout, vector, Meaning(examples=2), None, sigma)
    view = View("server", update=observed, num_classes=vocabulary, shape=(5,), mean=(), std=(), seed=2)
    attacker = Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, ""))
    return Tokens(Tokens.Options()).attack(view, attacker)


@pytest.mark.parametrize("name", ["attacks.tokens", "attacks.tokens_found", "attacks.rows"])
def test_conform(name: str) -> None:
    check_component(name)


def test_tokens_are_the_rows_that_move() -> None:
    report = found()
    assert report.tokens is not None
    assert set(report.tokens.tolist()) == THERE
    truth = Truth(TEXT.astype(np.float32), np.zeros(2, int), 12, tokens=np.unique(TEXT))
    assert set(TokensFound(TokensFound.Options()).score(report, truth).values()) == {1.0}
    some = AttackReport("finished", tokens=np.array([1, 2, 0]))
    assert TokensFound(TokensFound.Options()).score(some, truth) == pytest.approx(
        {"tokens_recovered": 2 / 6, "tokens_right": 2 / 3, "token_f1": 4 / 9}
    )
    with pytest.raises(MetricError, match="there are none here"):
        TokensFound(TokensFound.Options()).score(report, Truth(TEXT.astype(np.float32), np.zeros(2, int), 12))


def test_noise_hides_them_and_no_row_counts_for_its_noise() -> None:
    little, much = found(1e-4, 1e-4).tokens, found(10.0, 10.0).tokens
    assert little is not None
    assert set(little.tolist()) == THERE
    assert much is not None
    assert not set(much.tolist()) >= THERE


def test_a_first_layer_that_is_no_embedding_is_not_applicable() -> None:
    report = found(vocabulary=50)
    assert (report.status, report.tokens) == ("not_applicable", None)
    assert report.reason.startswith("the first parameter is a matrix of 12 rows, but an embedding has a row for each")


IN_THE_CLEAR = {
    "name": "clear", "seed": 1, "rounds": 1, "data": {"use": "std.breast_cancer", "clients": 3},
    "model": {"use": "std.mlp", "hidden": [16]}, "train": {"use": "std.sgd", "batch_size": 16, "lr": 0.1},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
    "aggregate": {"use": "std.mean"},
}  # fmt: skip


@pytest.fixture
def attacked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, dict[str, Any]]]:
    # Behind so few rows exact batches are not found, however long each of the searches takes.
    monkeypatch.setattr(_low_rank, "_STEPS", 3)
    monkeypatch.setitem(SEARCH, "iterations", 10)  # for what the closed forms leave, which is of no interest here

    def attacked(plain: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        data = plain["data"] | {"partition": {"use": "std.iid"}}
        run = fedplug.run(Recipe.from_plain(plain | {"data": data}), output=tmp_path / "runs", quiet=True)
        monkeypatch.setattr(sys, "argv", ["fedplug", "attack", str(run.folder), "--adversary", "server"])
        assert not main()
        return capsys.readouterr().out, json.loads((run.folder / "attacks" / "summary.json").read_text())

    return attacked


def test_the_default_set_recovers_rows_of_a_table_in_the_clear_and_says_so(
    attacked: Callable[..., tuple[str, dict[str, Any]]],
) -> None:
    said, summary = attacked(IN_THE_CLEAR)
    (leak, *_) = [row for row in summary["rows"] if row["attack"] == "attacks.linear_leak"]
    assert (leak["targets"], leak["succeeded"], leak["people"]["of"]) == (3, 3, "row")
    (rows,) = re.findall(r"Rows of (\d+) of ", said)
    assert int(rows) >= 3  # of batches some are found as well
    assert "attacks.linear_leak does not apply" not in said


def test_the_default_set_finds_the_tokens_of_texts(
    tmp_path: Path, attacked: Callable[..., tuple[str, dict[str, Any]]]
) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and looked at the dog. " * 60, encoding="utf-8")
    data = {"use": "std.text", "file": str(tmp_path / "text.txt"), "context": 12, "clients": 3}
    plain = {**IN_THE_CLEAR, "data": data, "model": {"use": "std.gpt", "width": 16, "layers": 1}}
    said, summary = attacked(plain)
    rows = [row for row in summary["rows"] if row["attack"] == TOKENS["use"]]
    assert {(row["targets"], row["succeeded"]) for row in rows} == {(3, 3)}
    assert "found which tokens are behind one step on 8 examples (token f1 1.000" in " ".join(said.split())
