"""The complete sources of a session's definitions."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from fedplug_runs.session_source import NotWhole, whole_source
from notebook_cells import Notebook, notebook
from torch.nn.functional import cross_entropy


def run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "kept", "exec"), names)
    return names


def source(*cells: str, name: str) -> str:
    made = Notebook()
    for cell in cells:
        made.cell(cell)
    return whole_source(name, made[name])


def test_imports_numbers_and_functions_come_along() -> None:
    text = whole_source("Net", notebook()["Net"])
    assert text.startswith("import numpy as np\nimport torch.nn as nn\nimport torch.nn.functional as F\n\nHIDDEN = 8\n")
    assert "focal" not in text
    assert run(text)["Net"]((1, 2, 2), 3).first.out_features == 16


def test_names_of_classes_decorators_and_bases() -> None:
    text = source(
        "import functools\nfrom collections import OrderedDict as Ordered\n",
        "class Base(Ordered):\n    def kind(self):\n        return 2\n",
        "def twice(f):\n    @functools.wraps(f)\n    def g(*a):\n        return 2 * f(*a)\n    return g\n",
        "@twice\ndef half(x):\n    return x / 2\n",
        "class Made(Base):\n    part = half(3)\n    def f(self):\n        return half(1)\n",
        name="Made",
    )
    assert "from collections import OrderedDict as Ordered" in text
    made = run(text)["Made"]
    assert made.part == 3
    assert made().f() == 1


def test_functions_that_call_each_other_and_other_names_for_them() -> None:
    text = source(
        "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n > 0 and even(n - 1)\nsame = odd\n",
        "def asked(n):\n    return same(n), even(n)\n",
        name="asked",
    )
    assert run(text)["asked"](3) == (True, False)


def test_annotations_are_as_they_were() -> None:
    text = source("from __future__ import annotations\ndef f(x: Unknown) -> None:\n    return x\n", name="f")
    assert run(text)["f"](1) == 1


def test_what_a_package_has_is_imported() -> None:
    assert whole_source("cross_entropy", cross_entropy) == "from torch.nn.functional import cross_entropy\n"
    text = source("from torch import relu\ndef f(x):\n    return relu(x)\n", name="f")
    assert "from torch" in text


def test_a_class_of_a_cell_that_has_no_function() -> None:
    text = source(
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    width: int = 7\n",
        "@dataclass\nclass Config:\n    width: int = 8\n",
        "def width():\n    return Config().width\n",
        name="width",
    )
    assert text.startswith("from dataclasses import dataclass\n\n@dataclass\nclass Config:\n    width: int = 8\n")
    assert run(text)["width"]() == 8


def test_a_class_of_a_file_that_has_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_bases.py").write_text("N = 2\nclass Bare:\n    n = N\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("own_bases")
    assert whole_source("Bare", module.Bare) == "N = 2\n\nclass Bare:\n    n = N\n"


def test_what_is_nothing_without_the_session() -> None:
    made = notebook()
    made.cell("weights = torch.ones(2)\ndef f(x):\n    return weights * x\n")
    with pytest.raises(NotWhole, match="it needs weights, a Tensor"):
        whole_source("f", made["f"])
    made.cell("def outer(n):\n    def inner(x):\n        return n * x\n    return inner\ninner = outer(2)\n")
    with pytest.raises(NotWhole, match="inner is not defined at the top of its file or cell"):
        whole_source("inner", made["inner"])
    made.cell("def gone(x):\n    return x\n", kept=False)
    with pytest.raises(NotWhole, match="the source of gone cannot be found"):
        whole_source("gone", made["gone"])
    made.cell("import notebook_cells\ndef g(x):\n    return notebook_cells.arrays()\n")
    with pytest.raises(NotWhole, match="it needs notebook_cells, a module that is not installed"):
        whole_source("g", made["g"])
    made.cell("def place():\n    return __file__\n")
    with pytest.raises(NotWhole, match="where its file is"):
        whole_source("place", made["place"])


def test_two_things_of_a_name() -> None:
    one, other = Notebook(), Notebook()
    one.cell("N = 1\ndef f():\n    return N\n")
    other.names["f"] = one["f"]
    other.cell("N = 2\ndef g():\n    return f() + N\n")
    with pytest.raises(NotWhole, match="two different things are named N"):
        whole_source("g", other["g"])
