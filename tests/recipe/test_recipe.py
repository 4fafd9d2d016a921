"""Recipes: YAML with positions, names and references, extends, --set, the digest, and every complaint at its place."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_runs import yaml_source
from fedplug_runs.overlay import load_recipe
from recipe_texts import GOOD, write


def test_a_recipe_is_typed(tmp_path: Path, fake_catalog: Catalog) -> None:
    recipe = load_recipe(write(tmp_path, GOOD), (), fake_catalog)
    assert (recipe.name, recipe.rounds, recipe.clients, recipe.min_clients) == ("two-zones", 3, 4, 2)
    assert recipe.data.partition.use == "std.dirichlet"
    assert recipe.train.options.model_dump() == {"lr": 0.1}
    assert recipe.protect["noised"][0].options.model_dump() == {"norm": 0.01}
    assert recipe.zones == ("encrypted", "noised", "retained", "clear")
    assert (recipe.sampling, recipe.accountant, recipe.buffers, recipe.delta) == (None, None, "local", 1e-5)
    (opener,) = recipe.postprocess["encrypted"]
    assert (opener.name, opener.is_reference) == ("std.ckks", True)
    assert [use.name for use in recipe.uses] == [*list(recipe.components)[:10], "std.ckks"]


def test_plain_data_gives_the_recipe_back(tmp_path: Path, fake_catalog: Catalog) -> None:
    recipe = load_recipe(write(tmp_path, GOOD), ["sampling={rate: 1}", "extensions=[std.spy]"], fake_catalog)
    again = Recipe.from_plain(recipe.to_plain(), fake_catalog)
    assert again == recipe
    assert again.digest == recipe.digest
    path = write(tmp_path, yaml_source.dump(recipe.to_plain()), "resolved.yaml")
    assert load_recipe(path, (), fake_catalog).digest == recipe.digest


def test_the_digest_depends_on_everything_but_the_description(tmp_path: Path, fake_catalog: Catalog) -> None:
    path = write(tmp_path, GOOD)
    digest = load_recipe(path, (), fake_catalog).digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    for same in ("description=other", "train={use: std.sgd, lr: 0.1}", "min_clients=2", "protect.noised.0.norm=0.010"):
        assert load_recipe(path, [same], fake_catalog).digest == digest, same
    for other in ("seed=8", "name=x", "train={use: std.sgd, lr: 0.2}", "protect.noised.0.norm=0.011", "delta=1e-6"):
        assert load_recipe(path, [other], fake_catalog).digest != digest, other


def test_the_digest_is_the_same_in_every_process() -> None:
    # Sets have another order in every process, unless somebody sorts them.
    code = """
from fedplug import Options, Field
from fedplug.recipe.parts import Use
class O(Options):
    names: frozenset[str] = Field(frozenset("abcdefgh"), description="x")
print(Use("a", "a", "protect", O()).to_plain())
"""
    run = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": h}
        )
        for h in "12"
    ]
    assert run[0].stdout == run[1].stdout != ""


def test_a_recipe_of_the_design_document_is_understood(tmp_path: Path) -> None:
    text = """
        name: paraaegis-dynamic
        seed: 7
        rounds: 20
        data: {use: std.digits, clients: 10, partition: {use: dirichlet, alpha: 0.5}}
        model: {use: std.mlp, hidden: [256, 128]}
        train: {use: std.sgd, epochs: 5, batch_size: 32, lr: 0.05}
        score_parameters:
          - {use: paraaegis.magnitude}
        negotiate_mask: {use: paraaegis.vote, ratio: 0.3, decay: 0.9}
        protect:
          encrypted: [{use: std.ckks, key_holder: clients}]
          noised:    [{use: std.clip, norm: 1.0}, {use: std.gaussian, epsilon: 8, delta: 1.0e-5}]
        aggregate: {use: std.mean}
        postprocess: {encrypted: [std.ckks]}
    """
    recipe = load_recipe(write(tmp_path, text))
    assert isinstance(recipe.protect, Mapping)
    assert recipe.data.partition.use == "std.dirichlet"
    assert recipe.components["std.gaussian"].options.model_dump()["delta"] == 1e-5


def test_a_new_key_changes_no_digest(tmp_path: Path, fake_catalog: Catalog) -> None:
    """Runs of before could not be resumed: `Resolved.to_plain` leaves a key out where it has its default."""
    assert load_recipe(write(tmp_path, GOOD), (), fake_catalog).digest[:16] == "ee88f61c5067f9f2"
