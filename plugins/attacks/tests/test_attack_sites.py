"""Attacks where data is at sites: a trial with all folders can be attacked, a run whose sites are elsewhere cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attack_toys import attack_catalog, attacked
from fedplug.api.errors import ViewError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.workshop.command import attack
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from site_toys import at_sites, write_sites

SCOPE: dict[str, Any] = {"adversaries": ["server"], "targets": [1]}


def test_a_trial_can_be_attacked_and_a_run_whose_sites_are_elsewhere_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, catalog = write_sites(tmp_path / "sites"), attack_catalog()
    recipe = Recipe.from_plain(at_sites(rounds=1), catalog)
    settings = Settings(output=tmp_path / "runs", data=sites, record_wire=True, quiet=True, device="cpu")
    code, folder = execution.start(recipe, settings, catalog)
    assert code == 0
    monkeypatch.setenv("FEDPLUG_DATA", str(sites))
    found = attacked(folder, "toy.echo", sets=['attack.attacks.0.finds=["labels"]'], **SCOPE)
    assert found["toy.echo-server-round1-client1"]["forms"]
    monkeypatch.delenv("FEDPLUG_DATA")
    with pytest.raises(ViewError, match=r"which only the sites have; let each site .*--attack\), or attack a trial"):
        attack(folder, Settings(quiet=True), ["toy.echo"], (), SCOPE, (), catalog)
