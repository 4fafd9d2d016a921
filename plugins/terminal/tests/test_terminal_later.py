"""Libraries that are imported at their first use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_calls import call, python
from fedplug_terminal.later import put_off

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a part, which says when it is imported."""
    folder = tmp_path / "acmelazy"
    folder.mkdir()
    (folder / "__init__.py").write_text("print('imported')\nfrom acmelazy import part\nanswer = 42\n")
    (folder / "part.py").write_text("half = 21\n")
    (folder / "other.py").write_text("third = 14\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acmelazy", raising=False)
    return "acmelazy"


def test_a_library_is_imported_once_something_of_it_is_wanted(library: str) -> None:
    start = "import sys; sys.path.insert(0, sys.argv[1]); from fedplug_terminal.later import put_off\n"
    start += f"put_off('{library}')\n"
    where = str(Path(sys.path[0]))
    uses = {
        f"import {library} as a; import inspect; inspect.getmodule(inspect)": "",
        f"import {library} as a; print(a.answer, a.answer)": "imported\n42 42\n",
        f"from {library} import answer; print(answer)": "imported\n42\n",
        f"from {library}.other import third; print(third)": "imported\n14\n",
        f"import {library} as a; import {library}.other; print(a.part.half, a.other.third)": "imported\n21 14\n",
        f"import {library} as a\ntry: a.nothing\nexcept AttributeError as error: print(error)":
            "imported\nmodule 'acmelazy' has no attribute 'nothing'\n",
    }  # fmt: skip
    for use, said in uses.items():
        result = python(start + use, where)
        assert (result.stdout, result.stderr) == (said, ""), use


def test_a_library_that_is_there_stays() -> None:
    import numpy

    put_off("numpy")
    assert sys.modules["numpy"] is numpy


def test_a_library_that_does_not_exist_is_missed_where_it_is_used() -> None:
    code = "from fedplug_terminal.later import put_off; put_off('acmenone'); import acmenone as a; a.x"
    assert "ModuleNotFoundError: No module named 'acmenone'" in python(code).stderr


def test_checking_a_recipe_does_without_numpy() -> None:
    code = "import sys; from fedplug_terminal.later import put_off; put_off('numpy')\n" \
           "from fedplug_terminal.main import main; main(); sys.exit('numpy._core' in sys.modules)"  # fmt: skip
    fedavg = next(path for path in RECIPES if path.name == "fedavg.yaml")
    assert python(code, "check", str(fedavg)).returncode == 0
    assert python(code, "show", "std.clip").returncode == 0


def test_recipes_are_found_as_they_are_without_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = RECIPES[::3]
    assert call(monkeypatch, "check", *map(str, some)) == 0
    soon = capsys.readouterr().out
    later = python("from fedplug_terminal.main import program; program()", "check", *map(str, some))
    assert later.stdout == soon
    assert soon.count(": ok (") == len(some) > 10
    assert later.returncode == 0
