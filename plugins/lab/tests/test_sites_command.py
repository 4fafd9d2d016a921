"""`fedplug sites`: folders for a trial with data at sites, from a data set that is split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cli_calls import call
from fedplug.recipe.composition import Composition
from fedplug.round.world import World
from fedplug_runs.overlay import load_recipe
from own_file_toys import HALVE

SPLIT = """
name: split
seed: 7
rounds: 1
data: {use: std.digits, clients: 3, train_size: 90, partition: {use: dirichlet, alpha: 0.5}}
model: {use: std.mlp, hidden: []}
train: {use: std.sgd, epochs: 1, lr: 0.05}
negotiate_mask: {use: std.single_zone, zone: clear}
protect: {clear: []}
aggregate: {use: std.mean}
"""


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    path = tmp_path / "split.yaml"
    path.write_text(SPLIT)
    return path


def world_of(path: Path, root: Path | None = None) -> World:
    recipe = load_recipe(path)
    return World(recipe, Composition(recipe), root and str(root))


def test_each_client_has_at_its_site_what_it_would_be_dealt(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    trial = tmp_path / "trial"
    assert call(monkeypatch, "sites", str(split), "--out", str(trial)) == 0
    out = capsys.readouterr().out
    dealt = world_of(split).holdings([0, 1, 2])
    assert f"{trial / 'client-0'}: {len(dealt[0].data.train)} training examples" in out
    written = yaml.safe_load(out[out.index("data:") :])
    assert written["data"]["agreed"]["shape"] == [1, 8, 8]
    at_sites = tmp_path / "sites.yaml"
    at_sites.write_text(yaml.safe_dump(yaml.safe_load(SPLIT) | written))
    found = world_of(at_sites, trial).holdings([0, 1, 2])
    for client_id, held in dealt.items():
        there = found[client_id].data
        assert np.array_equal(there.train.inputs, held.data.train.inputs)
        assert np.array_equal(there.own_test.labels, held.data.own_test.labels)
        assert (there.classes, there.mean, there.std) == (held.data.classes, held.data.mean, held.data.std)
    # The same, for a recipe that has its data at sites already.
    again = tmp_path / "again"
    data = "{use: std.digits, train_size: 90, partition: {use: dirichlet, alpha: 0.5}}"
    assert call(monkeypatch, "sites", str(at_sites), "--out", str(again), "--from", data) == 0
    assert f"fedplug run {at_sites} --data {again}" in capsys.readouterr().out
    assert np.array_equal(world_of(at_sites, again).holdings([1])[1].data.train.inputs, dealt[1].data.train.inputs)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sites.yaml", "--out", "new"], "sites.yaml has its data at sites, so there is nothing to split"),
        (["split.yaml", "--out", "."], "holds something already; name a folder that is empty"),
        (["sites.yaml", "--out", "new", "--from", "{use: std.digits}"], "--from: data needs 'partition'"),
        (["sites.yaml", "--out", "new", "--from", "[std.digits]"], "unknown dataset component '[std.digits]'"),
        (["sites.yaml", "--out", "new", "--from", "{partition: std.iid}"],
         "--from='{partition: std.iid}' must be the name of a component, or {use: NAME, option: value}"),
        (
            ["sites.yaml", "--out", "new", "--from", "{use: std.digits, partition: std.iid}", "--set",
             "data.agreed.shape=[1, 9, 9]"],
            "this is not what sites.yaml says of the data at sites: training and test inputs have the shape [1, 8, 8]",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_with_a_remedy(
    split: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], said: str
) -> None:
    monkeypatch.chdir(split.parent)
    agreed = {"shape": [1, 8, 8], "classes": list("0123456789"), "mean": [0.5], "std": [0.25]}
    data = {"use": "std.arrays", "at": "sites", "clients": 3, "agreed": agreed}
    Path("sites.yaml").write_text(yaml.safe_dump(yaml.safe_load(SPLIT) | {"data": data}))
    assert call(monkeypatch, "sites", *words) == 1
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert not Path("new").exists()


def test_a_recipe_with_a_component_of_a_file_is_split_too(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(HALVE)
    words = ["sites", str(split), "--set", "protect.clear=[mine.Halve]", "--out", str(tmp_path / "trial")]
    assert call(monkeypatch, *words) == 1
    assert call(monkeypatch, *words, "--plugin", str(tmp_path / "mine.py"), "--trust") == 0
    assert (tmp_path / "trial/client-2/data.npz").is_file()


def test_a_table_keeps_its_columns_and_its_answers_at_sites(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    table = yaml.safe_load(SPLIT)
    table["data"] = {"use": "std.diabetes", "clients": 3, "partition": {"use": "iid"}}
    split.write_text(yaml.safe_dump(table))
    assert call(monkeypatch, "sites", str(split), "--out", str(tmp_path / "trial")) == 0
    out = capsys.readouterr().out
    written = yaml.safe_load(out[out.index("data:") :])
    at_sites = tmp_path / "sites.yaml"
    at_sites.write_text(yaml.safe_dump(table | written))
    dealt, found = world_of(split).holdings([1])[1].data, world_of(at_sites, tmp_path / "trial").holdings([1])[1].data
    assert np.array_equal(found.train.inputs, dealt.train.inputs)
    assert np.array_equal(found.train.answers, dealt.train.answers)
    assert found.mean == dealt.mean
    assert found.task is not None


def test_texts_run_at_sites_by_the_section_that_is_printed(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    texts = yaml.safe_load(SPLIT) | {"model": {"use": "std.gpt", "width": 8, "layers": 1, "heads": 1}}
    source = {"use": "std.text", "file": str(tmp_path / "a.txt"), "context": 16}
    texts["data"] = {**source, "clients": 3, "partition": {"use": "iid"}}
    split.write_text(yaml.safe_dump(texts))
    assert call(monkeypatch, "sites", str(split), "--out", str(tmp_path / "trial")) == 0
    out = capsys.readouterr().out
    at_sites = tmp_path / "sites.yaml"
    at_sites.write_text(yaml.safe_dump(texts | yaml.safe_load(out[out.index("data:") :])))
    assert call(monkeypatch, "run", str(at_sites), "--data", str(tmp_path / "trial"), "--output", str(tmp_path)) == 0


def test_the_section_that_is_printed_runs_where_the_recipe_reads_a_table_at_its_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The folders hold arrays, so the recipe itself would look for its table there in vain."""
    rows = "".join(f"{i},{'fm'[i % 2]},{'' if i % 5 == 0 else i},{'ill' if i > 30 else 'well'}\n" for i in range(60))
    (tmp_path / "visits.csv").write_text("age,sex,crp,outcome\n" + rows)
    columns = {"answer": "outcome", "categories": {"sex": ["f", "m"]}, "missing_indicators": ["crp"]}
    table = {"use": "std.table", "file": str(tmp_path / "visits.csv"), **columns}
    agreed = {"shape": [5], "classes": ["ill", "well"], "mean": [], "std": []}
    recipe = yaml.safe_load(SPLIT)
    recipe["model"] = "std.logistic"
    at_sites = table | {"file": "visits.csv", "features": ["age", "sex", "crp"], "at": "sites", "agreed": agreed}
    path = tmp_path / "sites.yaml"
    path.write_text(yaml.safe_dump(recipe | {"data": at_sites | {"clients": 3}}))
    source = json.dumps(table | {"partition": "std.iid"})
    assert call(monkeypatch, "sites", str(path), "--out", str(tmp_path / "trial"), "--from", source) == 0
    out = capsys.readouterr().out
    assert "fedplug run" not in out
    path.write_text(yaml.safe_dump(recipe | yaml.safe_load(out[out.index("data:") :])))
    found = world_of(path, tmp_path / "trial").holdings([0, 1, 2])
    assert sum(len(held.data.train) + len(held.data.own_test) for held in found.values()) == 60
    assert found[0].data.train.inputs.shape[1:] == (5,)
