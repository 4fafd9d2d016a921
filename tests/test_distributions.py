"""The uploads: a wheel and a sdist of each distribution, and an environment without the checkout."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import fedplug
import pytest
from packaging.requirements import Requirement
from scripts import script

ROOT = Path(__file__).parent.parent
BUILD, VERSION = script(ROOT / "release/build.py"), script(ROOT / "release/version.py")
FOLDERS = BUILD.folders()
ABOUT: dict[Path, Any] = {folder: BUILD.project(folder) for folder in FOLDERS}
RECIPES = Path("plugins/recipes")


def test_versions_and_what_is_said_of_all_move_together() -> None:
    for key in ("version", "requires-python", "license", "authors", "classifiers", "urls"):
        assert len({json.dumps(about[key]) for about in ABOUT.values()}) == 1, key
    version = VERSION.FORM.fullmatch(ABOUT[Path()]["version"])
    for folder, about in ABOUT.items():
        assert len(about["keywords"]) > 3, folder
        text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
        assert VERSION.project_with(text, version) == text
    for path in (path for pattern in VERSION.ASKING for path in ROOT.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        assert VERSION.asking_for(text, version) == text, path
    python = [each.rpartition(" ")[2] for each in ABOUT[Path()]["classifiers"] if re.search(r":: 3\.", each)]
    assert python == ["3.11", "3.12", "3.13"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version[0]}\n" in cited


def test_another_version_is_written_everywhere() -> None:
    text = 'version = "0.1.0"\ndependencies = ["fedplug[exact,torch]>=0.1,<0.2", "fedplug-lab>=0.1,<0.2", "numpy>=1"]\n'
    found = VERSION.project_with(text, VERSION.FORM.fullmatch("1.4.2"))
    assert found == (
        'version = "1.4.2"\ndependencies = ["fedplug[exact,torch]>=1.4,<1.5", "fedplug-lab>=1.4,<1.5", "numpy>=1"]\n'
    )
    early = VERSION.project_with(text, VERSION.FORM.fullmatch("0.2.0rc1"))
    assert '"fedplug-lab>=0.2.0rc1,<0.3"' in early
    cited = VERSION.cited_with("title: x\nversion: 0.1.0\ndate-released: 2026-01-01\n", "0.2.0", "2027-02-03")
    assert cited == "title: x\nversion: 0.2.0\ndate-released: 2027-02-03\n"


def test_one_name_brings_every_distribution() -> None:
    brought = {Requirement(need).name for need in ABOUT[Path()]["optional-dependencies"]["all"]}
    assert brought == {about["name"] for folder, about in ABOUT.items() if folder != Path()}


def test_the_recipes_bring_the_plugins_that_they_use() -> None:
    entries = {
        name: about["name"]
        for about in ABOUT.values()
        for group, points in about.get("entry-points", {}).items()
        for name in points
        if group.startswith("fedplug.") and "." in name
    }
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "recipes").rglob("*.yaml")]
    words = {word for text in texts for word in re.findall(r"[\w]+\.[\w]+", re.sub(r"#.*", "", text))}
    used = {entries[word] for word in words & entries.keys()}
    assert used <= {Requirement(need).name for need in ABOUT[RECIPES]["dependencies"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name or "core")
def test_links_of_a_readme_lead_to_the_repository(folder: Path) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    made = BUILD.absolute(text, folder, "https://example.org/x")
    assert not re.search(r"\]\((?!https?:|#)", made)
    assert not re.search(r'src="(?!https?:)', made)


def test_a_link_to_nothing_is_refused() -> None:
    assert BUILD.absolute('[a](own.md#b) <img src="draw.py">', Path("docs"), "https://x.org") == (
        '[a](https://x.org/blob/main/docs/own.md#b) <img src="https://x.org/raw/main/docs/draw.py">'
    )
    with pytest.raises(SystemExit, match="there is no nowhere"):
        BUILD.absolute("[a](nowhere.md)", Path("docs"), "https://x.org")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for builds, with the recipes' wheel and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    BUILD.build(RECIPES, folder)
    return Path(folder)


def names(archive: Path) -> set[str]:
    """The files of a wheel or a sdist; for the latter without its folder."""
    if archive.suffix == ".whl":
        return set(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def test_the_recipes_are_in_their_wheel_and_the_licence_and_absolute_links(dist: Path) -> None:
    wheel, source = sorted(dist.glob("fedplug_recipes*"))
    below = {path.relative_to(ROOT / "recipes").as_posix() for path in (ROOT / "recipes").rglob("*.yaml")}
    assert len(below) > 150
    assert {f"fedplug_recipes/{path}" for path in below} <= names(wheel)
    assert {"LICENSE", "README.md", *(f"src/fedplug_recipes/{path}" for path in below)} <= names(source)
    about = next(name for name in names(wheel) if name.endswith("METADATA"))
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(about))
    assert metadata["License-File"] == "LICENSE"
    assert f"{about.removesuffix('METADATA')}licenses/LICENSE" in names(wheel)
    assert "](https://" in str(metadata.get_payload())
    assert "Programming Language :: Python :: 3.13" in metadata.get_all("Classifier", [])


def test_the_core_is_built_from_nothing_of_the_others(tmp_path: Path) -> None:
    place = BUILD.stage(Path(), tmp_path / "staged")
    assert {path.name for path in place.iterdir()} == {
        "CHANGELOG.md", "LICENSE", "README.md", "core", "pyproject.toml",
    }  # fmt: skip
    assert "only-include = [" in (place / "pyproject.toml").read_text(encoding="utf-8")


ALONE = """
import importlib.util
from collections import Counter

import fedplug

for other in ("fedplug_std", "fedplug_runs", "fedplug_ledger", "fedplug_terminal"):
    assert importlib.util.find_spec(other) is None, other
recipe = {
    "name": "alone", "rounds": 3, "seed": 1,
    "data": {"use": "acme.points", "clients": 4, "partition": "acme.turns"},
    "model": "acme.linear", "train": "acme.descent", "negotiate_mask": "acme.whole",
    "protect": {"clear": []}, "aggregate": "acme.mean",
}
events = list(fedplug.protocol({**recipe, "extensions": ["acme.console", {"use": "acme.ledger", "uploads": 3}]}))
right = [each.reports.train["right"] for each in events
         if type(each).__name__ == "ReplyArrived" and "right" in each.reports.train]
print(min(right[-4:]), Counter(type(each).__name__ for each in events)["Released"])
told = []
try:
    for event in fedplug.protocol({**recipe, "extensions": [{"use": "acme.ledger", "uploads": 2}]}):
        told.append(type(event).__name__)
except fedplug.FedplugError as error:
    print(error)
print(told.count("Released"))
wrong = {**recipe, "train": {"use": "acme.descent", "lr": "x"}, "model": "acme.liner", "roundz": 3}
try:
    next(fedplug.protocol(wrong))
except fedplug.FedplugError as error:
    print(*error.problems, sep=" | ")
try:
    fedplug.run(recipe)
except ImportError as error:
    print(error)
"""


def test_the_core_and_a_plugin_run_a_protocol_in_memory(tmp_path: Path) -> None:
    """Nothing else of fedplug is there: no run folder, no command, no std; the plugin has a ledger and a console."""
    packages = tmp_path / "packages"
    packages.mkdir()
    link_others(packages)
    BUILD.build(Path(), tmp_path)
    plugin = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(plugin, check=True, cwd=ROOT / "tests/alone", capture_output=True)
    for wheel in tmp_path.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(packages)
    alone = f"import sys; sys.path.insert(0, {str(packages)!r})\n{ALONE}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", alone], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *rounds, right, refused, before, wrong, missing = done.stdout.splitlines()
    assert rounds == [f"round {number}: 4 of 4 clients" for number in (1, 2, 3)]
    assert float(right.split()[0]) > 0.85  # at each client, of two rounds' model on its own examples
    assert right.split()[1] == "3"
    assert refused == "clients [0, 1, 2, 3] have given 2 uploads, and give no more"
    assert before == "2"
    assert wrong.split(" | ") == [
        "recipe.roundz: unknown key 'roundz'; did you mean rounds?",
        "recipe.train.lr: acme.descent: Input should be a valid number, unable to parse string as a number",
        "recipe.model: unknown model component 'acme.liner'; for model there is acme.linear",
    ]
    assert missing == "fedplug.run is of fedplug-runs, which you install as fedplug itself"


@pytest.mark.slow
def test_an_environment_with_the_wheels_runs_the_first_recipe_by_name(tmp_path: Path) -> None:
    """The fast test above examines one wheel. This test installs all.

    Third-party distributions are linked from the environment of the tests one by one, so that no path leads from the
    new environment to the checkout.
    """
    dist = tmp_path / "dist"
    dist.mkdir()
    for folder in FOLDERS:
        BUILD.build(folder, dist)
    core = names(next(dist.glob("fedplug-*.tar.gz")))
    assert {name.partition("/")[0] for name in core} == {
        "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "core", "pyproject.toml",
    }  # fmt: skip
    assert len([*dist.glob("*.whl")]) == len(FOLDERS)
    assert all(any(name.endswith("licenses/LICENSE") for name in names(wheel)) for wheel in dist.glob("*.whl"))
    bin = tmp_path / "venv/bin"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bin.parent], check=True)
    packages = next((bin.parent / "lib").glob("python*")) / "site-packages"
    link_others(packages)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ |= {"HOME": str(tmp_path), "MPLCONFIGDIR": str(tmp_path)}
    install = [sys.executable, "-m", "pip", "--python", bin / "python", "install", "--quiet", "--no-index"]
    wheels = [*dist.glob("*.whl")]
    subprocess.run([*install, "--no-deps", *wheels], check=True, env=environ, cwd=tmp_path)

    def fedplug(*words: str) -> str:
        done = subprocess.run([bin / "fedplug", *words], capture_output=True, text=True, cwd=tmp_path, env=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run([bin / "python", "-c", "import fedplug_std, fedplug; print(fedplug.__file__)"],
                           capture_output=True, text=True, check=True, cwd=tmp_path, env=environ)  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(packages)
    assert "paraaegis-dynamic" in fedplug("recipes")
    assert "no guarantee" in fedplug("run", "paraaegis-dynamic", "--set", "rounds=1")
    (summary,) = tmp_path.glob("runs/*/summary.json")
    version = ABOUT[Path()]["version"]
    written = json.loads(summary.read_text(encoding="utf-8"))
    assert written["origin"] == f"paraaegis-dynamic (fedplug-recipes {version})"
    assert fedplug("recipes", "baselines/lwe", "--copy").startswith("lwe.yaml has baselines/lwe")
    assert "ok" in fedplug("check", "lwe.yaml", "paper/paraaegis/fashion-mnist/fedavg")


def link_others(packages: Path) -> None:
    """Links everything in this environment except fedplug's distributions and the paths to their sources."""
    for folder in site.getsitepackages():
        for path in Path(folder).iterdir():
            if path.suffix != ".pth" and "fedplug" not in path.name:
                (packages / path.name).symlink_to(path)


@pytest.mark.parametrize(("name", "package"), [("run", "fedplug_runs"), ("gaussian_epsilon", "fedplug_ledger")])
def test_a_name_whose_distribution_is_missing_says_what_to_install(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)

    class Missing:
        """Finds nothing of the package."""

        def find_spec(self, wanted: str, *_: Any) -> None:
            if wanted.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.delitem(vars(fedplug), name, raising=False)  # where another test has asked for it
    missing = package.replace("_", "-")
    with pytest.raises(ImportError, match=rf"fedplug\.{name} is of {missing}, which you install as fedplug itself"):
        getattr(fedplug, name)
