"""Only the owner can access a finished run's folder, for every umask and every writer."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import call

RECIPE = """\
name: modes
seed: 1
rounds: 2
data: {use: std.digits, clients: 3, partition: std.iid, train_size: 90, test_size: 20}
model: {use: std.mlp, hidden: [4]}
train: std.sgd
negotiate_mask: {use: std.single_zone, zone: noised}
protect: {noised: [{use: std.clip, norm: 1.0}, {use: std.gaussian, epsilon: 8, delta: 1e-5}]}
aggregate: std.mean
attack: {attacks: [attacks.ilrg], adversaries: [server], rounds: [1]}
"""


# A file that is private under 000 is so under every other: umasks only take rights away. Of single writers,
# tests/api/test_files.py tries others too.
@pytest.fixture(params=["000", pytest.param("022", marks=pytest.mark.slow)])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(int(request.param, 8))
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """By path, the modes of everything that others could reach. There must be none."""
    found = [folder, *folder.rglob("*")]
    modes = {str(path.relative_to(folder.parent)): stat.S_IMODE(path.lstat().st_mode) for path in found}
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_nobody_else_reads_a_run(
    engine: str, umask: None, reports: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    out = tmp_path / "runs"
    words = [str(tmp_path / "recipe.yaml"), "--output", str(out), "--record-wire", "--quiet", "--engine", engine]
    assert call(monkeypatch, "run", *words) == 0
    (run,) = out.iterdir()
    names = {path.name for path in run.rglob("*")}
    assert {"report.html", "charging.jsonl", "metrics.jsonl", "attacks", "checkpoint", "wire", "run.lock"} <= names
    assert any(name.startswith("attacks.ilrg") and name.endswith(".json") for name in names)
    assert not open_to_others(run)
    (run / "report.html").chmod(0o644)
    run.chmod(0o755)
    assert call(monkeypatch, "resume", str(run), "--round", "1", "--quiet") == 0
    assert not open_to_others(run)
