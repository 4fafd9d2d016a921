"""What shells complete, asked as they ask: through variables of the environment, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import GOOD, LIGHT
from fedplug.cli import completion

PROGRAM = "import sys\nsys.argv = ['fedplug']\nfrom fedplug.cli.main import main\ncode = main()\n" + LIGHT


def ask(shell: str, line: str, folder: Path) -> str:
    """What the program answers when somebody presses the key at the end of a line."""
    number = len(line.split()) - (0 if line.endswith(" ") else 1)
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(number)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=folder,
        env=os.environ | asked | {"_FEDPLUG_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("recipes/a.yaml", "recipes/more/b.yml", "recipes/notes.txt", "runs/x/recipe.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(GOOD)
    return tmp_path


def test_bash_completes_commands_recipes_and_keys_without_torch(folder: Path) -> None:
    assert {"run", "list", "compare"} <= set(ask("bash", "fedplug ", folder).splitlines())
    assert ask("bash", "fedplug run rec", folder).splitlines() == ["recipes/a.yaml", "recipes/more/"]
    keys = ask("bash", "fedplug run recipes/a.yaml --set protect.noised.0.n", folder).splitlines()
    assert keys == ["protect.noised.0.name=std.clip", "protect.noised.0.norm=1.0"]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [("zsh", "_arguments '*: :((\"std.gaussian\":\"Add Gaussian noise"), ("fish", "std.gaussian\tAdd Gaussian noise")],
)
def test_zsh_and_fish_complete_components_with_their_summaries(folder: Path, shell: str, expected: str) -> None:
    answer = ask(shell, "fedplug show std.gaus", folder)
    assert answer.startswith(expected)
    assert "\n" not in answer, "a second line would be another answer"


def test_a_plugins_command_completes_too(folder: Path) -> None:
    assert ask("bash", "fedplug report ru", folder) == "runs/x"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_takes_the_script(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "fedplug"
    script = subprocess.run([program, "--show-completion", "bash"], capture_output=True, text=True, check=False,
                            env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})  # fmt: skip
    assert script.returncode == 0, script.stderr
    press = f'COMP_WORDS=(fedplug sho); COMP_CWORD=1; _fedplug_completion "{program}"; echo "$COMPREPLY"'
    asked = f"{script.stdout}\n{press}"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "show", done.stderr


def test_one_folder_alone_is_not_the_end_of_the_word(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert list(completion.recipes("")) == ["recipes/", "runs/"]
    assert list(completion.recipes("recipes/m")) == ["recipes/more/b.yml"]
    assert list(completion.recipes("nowhere/")) == []
    assert list(completion.runs("")) == ["recipes/", "runs/"]
    assert list(completion.runs("r")) == ["recipes/", "runs/"]
    assert list(completion.runs("ru")) == ["runs/x"]
    assert list(completion.runs_and_recipes("ru")) == ["runs/x/recipe.yaml", "runs/x"]
    absolute = [f"{folder}/recipes/a.yaml", f"{folder}/recipes/more/"]
    assert list(completion.recipes(f"{folder}/rec")) == absolute


def test_keys_are_those_of_the_recipe_on_the_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", f"fedplug run {folder}/recipes/a.yaml --set tr")
    keys = [str(key).partition("=")[0] for key in completion.values("tr")]
    assert "train.lr" in keys, "the only key is followed"
    assert list(completion.values("rou")) == ["rounds=2"]
    assert list(completion.values("nothing")) == []
    monkeypatch.setenv("COMP_WORDS", "fedplug run nowhere.yaml --set tr")
    assert list(completion.values("tr")) == []


def test_names_of_what_is_installed() -> None:
    assert ("protect", "hook") in list(completion.words("pro"))
    assert ("fedplug-std", "plugin") in list(completion.words("fed"))
    assert [name for name, _ in completion.engines("pro")] == ["processes"]  # type: ignore[misc]
    assert "lab.report" in [name for name, _ in completion.extensions("lab")]  # type: ignore[misc]
    assert all(len(help) <= 70 for _, help in completion.components("std."))  # type: ignore[misc]
    assert "protect" in list(completion.hooks())
    assert "cpu" in list(completion.devices())
