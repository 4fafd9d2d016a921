"""The folder of a run, and its lock."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.folder import load_run, locked, write_recipe
from toy_components import recipe_of, toy_catalog


def test_a_file_system_without_locks_is_said_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(SetupError, match=r"cannot be locked \(No locks available\).* --output"), locked(tmp_path):
        raise AssertionError("not locked")


def test_a_folder_without_room_for_the_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    said = rf"{tmp_path} cannot be used \(No space left on device\); make room there"
    with pytest.raises(SetupError, match=said), locked(tmp_path):
        raise AssertionError("it went on")


@pytest.mark.parametrize(
    ("origin", "kept"),
    [("", ""), ("recipes/a.yaml", "recipes/a.yaml"), ("lwe (acme-recipes 1.2)", "lwe (acme-recipes 1.2)"),
     ("a\nb\x07: é.yaml", "a?b?: é.yaml")],
)  # fmt: skip
def test_the_recipe_of_a_run_says_where_it_was_read(tmp_path: Path, origin: str, kept: str) -> None:
    catalog = toy_catalog()
    recipe = dataclasses.replace(Recipe.from_plain(recipe_of(), catalog), origin=origin)
    write_recipe(tmp_path, recipe)
    found = load_run(tmp_path, catalog)
    assert (found.origin, found.digest) == (kept, recipe.digest)
