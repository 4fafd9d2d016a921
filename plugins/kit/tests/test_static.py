"""Checks of a component's class, before anything runs."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from cli_calls import python
from fedplug_kit.static import check_component, import_problems

PLUGIN = '''
"""A plugin with one good component and several faults."""
from __future__ import annotations
{extra}
from fedplug import Field, Negotiation, Options, Plans, at_client

class Good(Negotiation):
    """Vote well."""

    plans = Plans(zones=frozenset({"clear"}))

    class Options(Options):
        ratio: float = Field(0.5, description="share")

    def negotiate_mask(self, cohort, facts):
        cohort.ask(self.nominate)
        cohort.tell(self.adopt, 1)

    def reveals(self, facts):
        return []

    @at_client
    def nominate(self, client): ...

    @at_client
    def adopt(self, client, winners): ...


class Bad(Negotiation):
    class Options(Options):
        name: float = Field(0.5)

    def __init__(self, options, more):
        self.options = options

    def negotiate_mask(self, cohort, facts):
        """Nothing."""

    @at_client
    def adopt(self, party, winners): ...
'''


def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str = "") -> Any:
    (tmp_path / f"{name}.py").write_text(PLUGIN.replace("{extra}", extra))
    monkeypatch.syspath_prepend(str(tmp_path))
    return __import__(name)


def test_the_kit_accepts_a_good_component_and_lists_every_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plugin(tmp_path, monkeypatch, "acmekit")
    check_component(module.Good)
    with pytest.raises(AssertionError) as caught:
        check_component(module.Bad)
    for fault in (
        "needs a docstring",
        "option name needs a description",
        "option name must have another name",
        "must be built from its options alone",
        "adopt is marked @at_client, so its first argument after self must be named client",
        "has no plans, which a Negotiation must have",
    ):
        assert fault in str(caught.value)
    with pytest.raises(AssertionError, match="is not a Protector"):
        check_component(module.Good, group="protect")


def test_the_kit_finds_heavy_imports_and_modules_that_do_not_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A substitute, since the real one takes long to import; here too, so that no other test finds it.
    (tmp_path / "tenseal.py").write_text("")
    monkeypatch.setitem(sys.modules, "tenseal", types.ModuleType("tenseal"))
    heavy = plugin(tmp_path, monkeypatch, "acmeheavy", "import tenseal")
    with pytest.raises(AssertionError, match="imports tenseal; import it inside the methods"):
        check_component(heavy.Good)
    assert "No module named 'acmegone'" in import_problems("acmegone")[0]


def test_a_module_that_prints_or_ends_the_interpreter_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text, said in (
        ("acmeprints", "print('hello')", ""),
        ("acmeexits", "raise SystemExit(3)", "SystemExit: 3"),
        ("acmecrashes", "import os; os.abort()", "it crashes the interpreter"),
        ("acmeimports", "import tenseal", "imports tenseal"),
        ("acmeclean", "import sys; assert 'tenseal' not in sys.modules", ""),
    ):
        (tmp_path / "tenseal.py").write_text("")
        (tmp_path / f"{name}.py").write_text(text)
        found = import_problems(name)
        assert (said in found[0]) if said else not found


def test_the_kit_knows_installed_components_by_name() -> None:
    check_component("std.clip")
    check_component("std.single_zone")
    with pytest.raises(AssertionError, match=r"no component 'std\.absent' is installed"):
        check_component("std.absent")


def test_the_kit_needs_no_pytest() -> None:
    assert python("import sys, fedplug_kit; assert 'pytest' not in sys.modules").returncode == 0
