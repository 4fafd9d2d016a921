"""Attacks compute on the device they are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from attack_toys import Runs, results
from fedplug_attacks.workshop.command import attack
from fedplug_runs.settings import Settings
from toy_components import recipe_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["attacks.inverting", "attacks.idlg", "attacks.ilrg"])
def test_an_attack_on_a_cuda_device_finds_about_what_it_finds_on_a_processor(runs: Runs, name: str) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    folder: Path = runs.of(recipe_of(rounds=1, model={"use": "std.lenet5", "variant": "dlg", "activation": "sigmoid"}))
    scope = {"targets": [0], "probe": {"batch_size": 1}}
    found = {}
    for device in ("cpu", "cuda"):
        assert attack(folder, Settings(quiet=True, device=device), [name], [], scope) == 0
        (result,) = [each for key, each in results(folder).items() if name in key]
        found[device] = result["forms"]["adaptive"]
        for file in (folder / "attacks").iterdir():
            file.unlink()
    assert found["cpu"]["status"] == found["cuda"]["status"]
