"""Discovery through entry points, on packages made for the test and on the plugins that are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import Catalog
from fedplug_runs.docstrings import package_folders, summary

RULE = '''"""A module that must not run when it is listed."""
raise RuntimeError("imported")


class Rule(dict[str, int]):  # a comment
    """Choose by rule [x].

    More.
    """

    class Inner:
        "Choose inside."
'''


def distribution(folder: Path, name: str, entry_points: str, **modules: str) -> None:
    """Writes an installed distribution: its metadata, and a package of the same name."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    package = folder / name
    package.mkdir()
    for module, text in ({"__init__": "raise RuntimeError('imported')\n"} | modules).items():
        (package / f"{module}.py").write_text(text)


def test_listing_reads_names_versions_and_summaries_without_importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = (
        "[fedplug.negotiate_mask]\nacmeone.rule = acmeone.rule:Rule\nacmeone.inner = acmeone.rule:Rule.Inner\n"
        "acmeone.again = acmeone.front:Again\nacmeone.gone = acmeone.absent:Nothing\n[fedplug.typo]\nx = y:Z\n"
    )
    distribution(tmp_path, "acmeone", points, rule=RULE, front="from .rule import Rule as Again\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = Catalog.discover()
    found = {e.name: (summary(e), e.distribution, e.version) for e in catalog if e.name.startswith("acmeone.")}
    assert found == {
        "acmeone.again": ("Choose by rule [x].", "acmeone", "1.2"),
        "acmeone.gone": ("", "acmeone", "1.2"),
        "acmeone.inner": ("Choose inside.", "acmeone", "1.2"),
        "acmeone.rule": ("Choose by rule [x].", "acmeone", "1.2"),
    }
    assert catalog.strays == ("fedplug.typo x (acmeone)",)
    assert not any(name.startswith("acmeone") for name in sys.modules)


def test_what_is_installed_or_removed_while_the_program_runs_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Catalog.discover().get("attack", "acmelate.x") is None
    distribution(tmp_path, "acmelate", "[fedplug.attack]\nacmelate.x = acmelate:X\n")
    assert Catalog.discover().get("attack", "acmelate.x")
    shutil.rmtree(tmp_path / "acmelate-1.2.dist-info")
    assert Catalog.discover().get("attack", "acmelate.x") is None


def test_a_failing_import_names_plugin_component_and_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("[fedplug.protect]", *(f"acmetwo.{name} = acmetwo.{name}:f" for name in ("bad", "exits", "odd")), "")
    points = "\n".join(lines)
    modules = {"__init__": "", "bad": "import no_such_library\n", "exits": "raise SystemExit(3)\n", "odd": "f = 1\n"}
    distribution(tmp_path, "acmetwo", points, **modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = Catalog.discover()
    for name, cause in (
        ("bad", "No module named 'no_such_library'"),
        ("exits", "SystemExit: 3"),
        ("odd", "is not a class"),
    ):
        entry = catalog.get("protect", f"acmetwo.{name}")
        assert entry is not None
        with pytest.raises(PluginError, match=cause) as caught:
            entry.load()
        assert "plugin acmetwo 1.2" in str(caught.value)
        assert f"acmetwo.{name}" in str(caught.value)


def test_a_name_offered_twice_names_both_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acmethree", "acmefour"):
        distribution(
            tmp_path, name, f"[fedplug.protect]\nshared.clip = {name}:Clip\n[fedplug.attack]\n{name}.x = {name}:X\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError) as caught:
        Catalog.discover()
    assert all(part in str(caught.value) for part in ("shared.clip", "acmethree 1.2", "acmefour 1.2", "uninstall"))


def test_one_distribution_may_offer_a_name_in_several_groups(fake_catalog: Catalog) -> None:
    assert [entry.group for entry in fake_catalog.named("std.ckks")] == ["protect", "postprocess"]
    loaded = {entry.load() for entry in fake_catalog.named("std.ckks")}
    assert len(loaded) == 1


def test_a_catalog_made_for_a_test_holds_what_it_was_given_and_nothing_installed() -> None:
    class Thing:
        """Does it."""

    catalog = Catalog.of({"protect": {"x.thing": Thing}})
    assert [(entry.name, summary(entry), entry.load()) for entry in catalog] == [("x.thing", "Does it.", Thing)]
    with pytest.raises(PluginError, match=r"protekt.*protect"):
        Catalog.of({"protekt": {"x.thing": Thing}})


def test_listing_imports_neither_numpy_nor_torch_nor_pydantic_nor_a_plugin() -> None:
    code = (
        "import sys; from fedplug.recipe.catalog import Catalog; from fedplug_runs.docstrings import summary\n"
        "names = [summary(e) for e in Catalog.discover()]\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "bad = tops & {'numpy', 'torch', 'pydantic', 'pluggy', 'yaml'} | {t for t in tops if "
        "t.startswith('fedplug_')} - {'fedplug_runs'}\n"
        "assert names and not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SHARED = {
    f"fedplug_{name}"
    for name in ("ledger", "runs", "terminal", "std", "kit", "lab", "attacks", "party", "evidence", "analytics")
}


def test_the_core_imports_no_plugin_and_plugins_nothing_private_of_another() -> None:
    root = Path(__file__).parents[2]
    line = re.compile(r"^ *(?:from|import) (fedplug_\w+)(?:\.(\w+))?(?: import (.+))?$", re.MULTILINE)
    sources = [*root.glob("core/fedplug/**/*.py"), *root.glob("plugins*/*/src/*/**/*.py")]
    assert len(sources) > 100
    for path in sources:
        for plugin, module, names in line.findall(path.read_text(encoding="utf-8")):
            assert "core" not in path.relative_to(root).parts, f"{path}: the core imports {plugin}"
            if plugin not in path.parts:
                # Modules that others build on, and nothing else.
                used = [module, *(names or "").split(", ")] if plugin in SHARED else [f"_{plugin}"]
                assert not [name for name in used if name.startswith("_")], f"{path}: {plugin} {module} {names}"


def test_the_folder_of_a_package_is_found_without_importing_what_is_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "acmefolder", "")
    (tmp_path / "acmefolder/recipes/deep").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folders("acmefolder.recipes.deep") == [tmp_path / "acmefolder/recipes/deep"]
    assert package_folders("acmefolder.absent") == []
    assert package_folders("acmenowhere.recipes") == []
    assert "acmefolder" not in sys.modules
