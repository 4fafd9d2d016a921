"""Audits of right protocols stay below the claim; of wrong ones they exceed it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from audit_toys import catalog, recipe_of
from fedplug.api.data import Dataset, Examples
from fedplug.api.errors import SetupError
from fedplug.mechanisms import execution as mechanisms
from fedplug.recipe.recipe import Recipe
from fedplug_audit import Audit, Shown, audit
from fedplug_audit.canaries import Canaries
from fedplug_audit.records import CanaryRecords
from fedplug_baselines import dp_sgd
from fedplug_lab.report import rewrite_report
from fedplug_lab.tables import sentence
from fedplug_ledger.accounting import gaussian_noise_multiplier
from fedplug_runs import execution
from fedplug_runs.result import Run
from fedplug_runs.settings import Settings
from fedplug_terminal.app import app
from typer.testing import CliRunner

EPSILON, DELTA = 8.0, 1e-5
MULTIPLIER = gaussian_noise_multiplier(EPSILON, DELTA)
GAUSSIAN = {"use": "std.gaussian", "epsilon": EPSILON, "delta": DELTA}
CENTRAL = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": MULTIPLIER}
MASKED = {
    "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "min_clients": 36,
    "data": {"use": "std.digits", "clients": 40, "partition": "std.iid"},
    "protect": {"encrypted": [
        {"use": "std.clip", "norm": 1.0}, {"use": "std.distributed_gaussian", "epsilon": 8, "delta": DELTA},
        "secagg.bonawitz",
    ]},
    "postprocess": {"encrypted": ["secagg.bonawitz"]},
}  # fmt: skip
CONFIDENCE = 0.9999
"""With which wrong protocols are found."""
SURE = 1 - 1e-7
"""So that a right protocol exceeds its claim once in ten million times."""


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path / "runs", quiet=True)


def audited(
    recipe: dict[str, Any], settings: Settings, confidence: float = CONFIDENCE, **given: Any
) -> dict[str, Shown]:
    found, _ = audit(recipe, settings=settings, catalog=catalog(), confidence=confidence, seed=3, **given)
    return {shown.party: shown for shown in found.parties}


def few(clients: int) -> dict[str, Any]:
    """Where a wrong protocol is far off, or bounds do not matter: runs take as long as they have clients."""
    return {"data": {"use": "std.digits", "clients": clients, "partition": "std.iid"}}


def word(clients: int, **options: Any) -> dict[str, Any]:
    return recipe_of([{"use": "toy.word", "noise_multiplier": MULTIPLIER, **options}], **few(clients))


def test_local_noise_that_is_right_stays_below_its_claim(settings: Settings) -> None:
    server = audited(recipe_of([GAUSSIAN]), settings, runs=2)["server"]
    assert server.claimed == pytest.approx(EPSILON, rel=1e-3)
    assert server.gaussian_counts
    assert not server.exceeds
    assert EPSILON / 3 < server.bound < EPSILON  # the audit sees most of what there is


def test_central_noise_that_is_right_stays_below_its_claim_over_rounds(settings: Settings) -> None:
    shown = audited(recipe_of([], rounds=2, postprocess={"noised": [CENTRAL]}), settings, runs=2)
    model = shown["released_model"]
    assert model.claimed is not None
    assert model.claimed / 3 < model.bound < model.claimed
    assert shown["server"].claimed is None  # it reads uploads as they are, and nobody says otherwise
    assert not shown["server"].exceeds


@pytest.mark.slow
def test_distributed_noise_under_masks_stays_below_its_claim(settings: Settings) -> None:
    server = audited(recipe_of([], **MASKED), settings, runs=2)["server"]
    assert server.canaries == 80
    assert server.gaussian_counts
    assert not server.exceeds
    assert server.right > 46  # of 80; a guess gives 40, and the audit 63 with a standard deviation of 3


@pytest.mark.parametrize(("share", "clients"), [(0.25, 60), (0.001, 30)], ids=["a quarter", "forgotten"])
def test_noise_that_is_less_than_it_says_is_found(share: float, clients: int, settings: Settings) -> None:
    server = audited(word(clients, share=share), settings)["server"]
    assert server.claimed == pytest.approx(EPSILON, rel=1e-3)
    assert server.exceeds


def test_the_toy_that_tells_the_truth_is_not_found(settings: Settings) -> None:
    assert not any(shown.exceeds for shown in audited(word(60), settings, SURE, replay=True).values())


def test_noise_from_a_known_seed_is_found_by_a_replay(settings: Settings) -> None:
    assert not audited(word(30, fixed=True), settings)["released_model"].exceeds  # it looks like noise
    model = audited(word(30, fixed=True), settings, replay=True)["released_model"]
    assert model.exceeds
    assert model.scored == "models, less a replay"


def test_noise_that_all_clients_draw_alike_is_found_without_a_replay(settings: Settings) -> None:
    """Each upload looks like noise; their differences do not."""
    server = audited(word(30, equal=True), settings)["server"]
    assert server.exceeds
    assert server.scored == "differences"


def test_a_mechanism_of_the_core_that_adds_half_would_be_found(settings: Settings) -> None:
    whole = mechanisms.add_noise

    def half(values: Any, std: float, *rest: Any) -> Any:
        return whole(values, std / 2, *rest)

    with mock.patch.object(mechanisms, "add_noise", half):
        shown = audited(recipe_of([], postprocess={"noised": [CENTRAL]}), settings)
    assert shown["released_model"].exceeds


@pytest.mark.slow
def test_distributed_noise_that_is_a_quarter_would_be_found_behind_the_masks(settings: Settings) -> None:
    whole = mechanisms.add_noise

    def quarter(values: Any, std: float, *rest: Any) -> Any:
        return whole(values, std / 4, *rest)

    with mock.patch.object(mechanisms, "add_noise", quarter):
        found, _ = audit(recipe_of([], **MASKED), settings=settings, catalog=catalog(), runs=2)
    shown = {shown.party: shown for shown in found.parties}
    assert shown["server"].exceeds
    assert shown["released_model"].exceeds
    assert any("THE CLAIM DOES NOT HOLD: toward the server" in line for line in found.text())


def test_the_ledger_of_an_audit_is_that_of_the_recipe(settings: Settings) -> None:
    plain = recipe_of([GAUSSIAN], **few(12))
    offered = catalog()
    found, folder = audit(plain, settings=settings, catalog=offered, canaries=10)
    _, usual = execution.start(Recipe.from_plain(plain, offered), settings, offered)
    lines, others = Run(folder, settings).ledger.verdict.lines, Run(usual, settings).ledger.verdict.lines
    assert [(line.party, line.state, line.value, line.delta) for line in lines] == [
        (line.party, line.state, line.value, line.delta) for line in others
    ]
    assert found.digest == Run(usual, settings).recipe.digest
    assert Audit.from_json((folder / "audit.json").read_text()).to_plain() == found.to_plain()
    assert sorted(found.inside[0] + found.outside[0]) == list(range(2, 12))


def test_directions_are_orthogonal_and_of_length_one() -> None:
    canaries = Canaries(tuple(range(30)), seed=5)
    canaries.initial = np.zeros(200, np.float32)
    frame = np.array([canaries.direction(client_id) for client_id in range(30)])
    assert np.allclose(frame @ frame.T, np.eye(30), atol=1e-5)
    assert 5 < canaries.inside.sum() < 25
    other = Canaries(tuple(range(30)), seed=6)
    assert (canaries.inside != other.inside).any()


def test_laplace_noise_is_audited_along_single_scalars_and_by_the_theorem_alone(settings: Settings) -> None:
    chain = [{"use": "std.clip_l1", "norm": 1.0}, {"use": "std.laplace", "epsilon": 4.0}]
    recipe = recipe_of([], protect={"noised": chain}, **few(60))
    server = audited(recipe, settings)["server"]
    assert not server.gaussian_counts
    assert server.right / server.guesses > 0.75  # where random directions would be lost in L1 noise
    assert not server.exceeds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"canaries": 201}, "canaries=201 must be from 1 to 200"),
        ({"canaries": 0}, "canaries=0 must be from 1 to 200"),
        ({"records": 0}, "records=0 must be >= 1"),
        ({"records": 20, "canaries": 20}, "leave one out"),
        ({"canaries": 4, "runs": 2}, "--runs 3"),
        ({"runs": 0}, "runs=0 must be >= 1"),
        ({"confidence": 1.0}, "confidence=1.0 must be"),
    ],
)
def test_what_cannot_be_audited_is_refused(given: dict[str, Any], said: str, settings: Settings) -> None:
    with pytest.raises(SetupError, match=said):
        audit(recipe_of([GAUSSIAN]), settings=settings, catalog=catalog(), **given)


def test_another_engine_is_refused(settings: Settings) -> None:
    with pytest.raises(SetupError, match="engine=processes: an audit runs all parties in this process"):
        audit(recipe_of([GAUSSIAN]), settings=settings.replace({"engine": "processes"}), catalog=catalog())


def test_the_command_prints_the_table_and_fails_where_a_claim_does(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text(json.dumps(recipe_of([GAUSSIAN], **few(40))))
    words = ["--output", str(tmp_path / "runs"), "--quiet", "--confidence", str(SURE)]
    result = CliRunner().invoke(app, ["audit", str(file), *words])
    assert result.exit_code == 0, result.output
    assert "who looks" in result.output
    assert "No claim is refuted" in result.output
    result = CliRunner().invoke(app, ["audit", str(file), *words, "--json"])
    found = json.loads(result.stdout)
    assert (result.exit_code, found["schema"], found["ok"], found["problems"]) == (0, "fedplug/audit/1", True, [])
    named = {line["party"] for line in found["verdict"]["lines"]}
    assert {party["party"] for party in found["audit"]["parties"]} <= named


DP_SGD = {
    "name": "records", "seed": 7, "rounds": 3,
    "data": {"use": "std.digits", "clients": 10, "partition": "std.iid"},
    "model": {"use": "std.mlp", "hidden": []},
    "train": {"use": "baselines.dp_sgd", "epochs": 2, "batch_size": 32, "lr": 2.0, "clipping_norm": 1.0,
              "noise_multiplier": 14.0},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
    "aggregate": {"use": "std.mean"},
}  # fmt: skip


@pytest.mark.slow
def test_records_under_dp_sgd_stay_below_its_claim(settings: Settings) -> None:
    server = audited(DP_SGD, settings, records=400)["server"]
    assert server.unit == "record"
    assert server.claimed == pytest.approx(0.33, abs=0.05)
    assert server.canaries == 400
    assert not server.exceeds


def test_dp_sgd_that_forgets_its_noise_is_found(settings: Settings) -> None:
    with mock.patch.object(dp_sgd, "add_noise", lambda values, *_: values):
        found, _ = audit(DP_SGD, settings=settings, records=400, seed=3)
    shown = {shown.party: shown for shown in found.parties}["server"]
    assert shown.exceeds
    assert shown.bound > 1
    assert not shown.gaussian_counts


def test_records_that_are_out_are_nobodys_and_the_others_stay() -> None:
    canaries = CanaryRecords(tuple(range(20)), seed=4)
    examples = Examples(np.arange(100, dtype=np.uint8).reshape(100, 1), np.zeros(100, np.int64))
    planted = canaries.planted(Dataset(examples, examples, classes=("a", "b"), mean=(0.0,), std=(1.0,)))
    kept = np.concatenate(canaries.split([np.arange(50), np.arange(50, 100)]))
    assert len(kept) == len(set(kept)) == 80 + canaries.inside.sum()
    gone = np.setdiff1d(np.arange(100), kept)
    assert {*planted.train.inputs[gone, 0]} <= {0, 49, 99}  # the least, the mean, the largest: only canaries are gone
    canaries.all_out = True
    assert len(np.concatenate(canaries.split([np.arange(100)]))) == 80


@pytest.mark.parametrize(
    ("changes", "records", "said"),
    [
        ({"train": {"use": "std.sgd"}}, 20, "std.sgd keeps no account of single records"),
        ({}, 1000, "records=1000 must be at most 718"),
        ({"data": {"use": "std.digits", "clients": 10, "partition": "std.iid", "public": 50}}, 20, "data.public"),
    ],
)
def test_records_that_cannot_be_audited_are_refused(
    changes: dict[str, Any], records: int, said: str, settings: Settings
) -> None:
    with pytest.raises(SetupError, match=said):
        audit(DP_SGD | changes, settings=settings, records=records)


def test_a_key_server_is_scored_on_the_sums_that_it_opens(settings: Settings) -> None:
    encrypted = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": [
            {"use": "std.clip", "norm": 1.0}, {"use": "std.bfv", "key_holder": "key_server", "range": 4},
        ]},
        "postprocess": {"encrypted": ["std.bfv"]},
    }  # fmt: skip
    shown = audited(recipe_of([], **encrypted, **few(30)), settings)
    assert shown["key_holder"].scored == "sums"
    assert shown["key_holder"].claimed is None
    assert shown["key_holder"].gaussian > 100  # nothing hides a client from it


def test_the_audit_of_a_run_is_in_its_report_with_the_verdict(tmp_path: Path, settings: Settings) -> None:
    plain = recipe_of([GAUSSIAN], **few(80))
    code, folder = execution.start(Recipe.from_plain(plain, catalog()), settings, catalog(), "audited")
    assert code == 0
    found, _ = audit(folder, settings=settings, catalog=catalog(), seed=3)
    server = next(shown for shown in found.parties if shown.party == "server")
    assert Audit.from_json((folder / "audit.json").read_text()) == found
    page = rewrite_report(folder).read_text()
    assert re.sub("<[^>]*>", "", sentence(found.words()["server"])) in re.sub("<[^>]*>", "", page)
    assert f"epsilon is at least {server.bound:.2f}" in re.sub("<[^>]*>", "", page)
    said = Run(folder, settings, 0, catalog()).ledger.verdict.text(found.words())
    assert any(f"epsilon is at least {server.bound:.2f}" in line for line in said)
    with pytest.raises(SetupError, match="audited as it ran"):
        audit(folder, ["rounds=3"], settings=settings, catalog=catalog())
