"""What is printed to install something works: from where this came, or with a word on where to get it."""

from __future__ import annotations

import json
import types
from pathlib import Path

import pytest
from fedplug_runs import installing
from scripts import script

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("published", "url", "expected"),
    [
        (True, "file:///somewhere", "pip install 'fedplug-std[tables]'"),
        (False, "file:///a%20b/fedplug-0.1.whl", "pip install --find-links '/a b' 'fedplug-std[tables]'"),
        (False, "file:///nowhere", f"in a checkout of {installing.SOURCE}: pip install './plugins/std[tables]'"),
        (False, None, f"in a checkout of {installing.SOURCE}: pip install './plugins/std[tables]'"),
    ],
)
def test_it_comes_from_where_this_came(
    published: bool, url: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = None if url is None else json.dumps({"url": url})
    monkeypatch.setattr(installing, "distribution", lambda _: types.SimpleNamespace(read_text=lambda _: noted))
    monkeypatch.setattr(installing, "PUBLISHED", published)
    assert installing.install("fedplug-std[tables]") == expected


def test_in_a_checkout_the_folder_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = json.dumps({"url": ROOT.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.setattr(installing, "distribution", lambda _: types.SimpleNamespace(read_text=lambda _: noted))
    *command, folder = installing.install("fedplug-search").split()
    assert command == ["pip", "install", "-e"]
    assert (Path(folder) / "pyproject.toml").is_file()


def test_a_release_says_that_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that `release/version.py` replaces is in the file, once."""
    text = (ROOT / "plugins/runs/src/fedplug_runs/installing.py").read_text()
    assert text.count(script(ROOT / "release/version.py").UNPUBLISHED) == 1
