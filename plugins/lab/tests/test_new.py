"""`fedplug new`: what it writes passes the kit and runs, for each role, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import HOOK_GROUPS, Catalog, Entry
from fedplug_kit import conformance
from fedplug_lab.new import example_of, files, roles, write
from fedplug_runs.execution import start
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a plugin of the name demo, whose package is importable and forgotten afterwards."""
    folder = tmp_path / "demo"
    monkeypatch.syspath_prepend(str(folder / "src"))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedplug_demo"]:
        del sys.modules[name]


def with_plugin(folder: Path) -> Catalog:
    """What is installed, and the plugin in this folder, as its entry points say."""
    catalog = Catalog.discover()
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for group, points in project["entry-points"].items():
        for name, value in points.items() if group != "fedplug.recipes" else ():
            kind = group.removeprefix("fedplug.")
            catalog.groups[kind][name] = Entry(name, kind, value, project["name"], project["version"])
    return catalog


@pytest.mark.parametrize("role", roles())
def test_a_new_plugin_passes_the_kit_and_runs(role: str, package: Path) -> None:
    write("demo", role, package)
    catalog = with_plugin(package)
    assert all(catalog.get(group, "demo.thing") for group in roles()[role])
    entry = catalog.named("demo.thing")[0]
    conformance(entry.load())
    recipe = load_recipe(package / "src/fedplug_demo/recipes/demo.yaml", ["rounds=1"], catalog)
    settings = Settings(output=package / "runs", quiet=True, muted=("lab.report",))
    code, run = start(recipe, settings, catalog)
    assert code == 0
    assert (run / "summary.json").is_file()
    assert not [path for path, text in files("demo", role).items() if "sketch" in f"{path}{text}".lower()]


@pytest.mark.slow
def test_a_new_plugin_installs_and_passes_its_own_tests(tmp_path: Path) -> None:
    """In a separate environment, over the packages of this one."""
    folder = write("demo", "negotiation", tmp_path / "demo")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = next((tmp_path / "venv").glob("*/python"))
    (packages,) = (tmp_path / "venv").glob("lib/*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})\n" for path in sys.path if path.endswith("site-packages")]
    (packages / "here.pth").write_text("".join(lines), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation", "-e",
         folder],
        check=True,
    )  # fmt: skip
    done = subprocess.run([python, "-m", "pytest", "-q", folder / "tests"], cwd=folder, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "new", "my_own", "--role", "Protector") == 0
    assert capsys.readouterr().out.startswith("fedplug-my-own has the plugin")
    text = (tmp_path / "fedplug-my-own/pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert project["name"] == "fedplug-my-own"
    assert project["entry-points"]["fedplug.protect"] == {"my_own.thing": "fedplug_my_own.thing:Thing"}


def test_words_for_a_role() -> None:
    words = {
        "negotiation": "negotiate_mask", "Scorer": "score_parameters", "data": "dataset", "model": "model",
        "PublicPlan": "public_plan", "public_plan": "public_plan", "opener": "postprocess", "Sealer": "sealer",
    }  # fmt: skip
    assert {word: example_of(word) for word in words} == words
    assert set(roles()) == {*HOOK_GROUPS, "dataset", "model", "public_plan", "sealer"}


def test_help_names_every_role(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert call(monkeypatch, "new", "--help") == 0
    assert f"Role of its component: {', '.join(roles())}." in capsys.readouterr().out


@pytest.mark.parametrize("hook", HOOK_GROUPS)
def test_the_smallest_plugin_of_each_hook_fits_on_one_screen(hook: str) -> None:
    text = files("demo", hook)["src/fedplug_demo/thing.py"]
    assert len(text.splitlines()) <= 25


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no example of that; there are examples of aggregate, "):
        write("demo", "trainer", tmp_path / "demo")
    with pytest.raises(SetupError, match="did you mean negotiation"):
        write("demo", "negotation", tmp_path / "demo")
    for name in ("My-Own", "std", "1st", ""):
        with pytest.raises(SetupError, match="must be lower-case letters, digits and underscores"):
            write(name, "protect", tmp_path / "demo")
    (tmp_path / "there").write_text("something")
    with pytest.raises(SetupError, match="is not empty; name a folder that is"):
        write("demo", "protect", tmp_path)

