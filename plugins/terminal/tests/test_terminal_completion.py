"""Shell completion, requested as shells do: through environment variables, in a separate process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import GOOD, LIGHT
from fedplug_terminal import completion
from forked import Program

PROGRAM = "import sys\nsys.argv = ['fedplug']\nfrom fedplug_terminal.main import main\ncode = main()\n"


def environ(shell: str, line: str) -> dict[str, str]:
    """What a shell sets when the user presses the key at the end of a line."""
    number = len(line.split()) - (0 if line.endswith(" ") else 1)
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(number)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    how = {"_FEDPLUG_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return {**os.environ, **asked, **how}


def ask(shell: str, line: str, folder: Path) -> str:
    """The program's answer."""
    done = Program(PROGRAM, cwd=folder, environ=environ(shell, line))
    assert done.wait() == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def ask_alone(shell: str, line: str, folder: Path) -> str:
    """The answer of an interpreter that has imported nothing before, and then no heavy library."""
    words = [sys.executable, "-c", PROGRAM + LIGHT]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=folder, env=environ(shell, line)
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


def test_bash_completes_commands_and_keys_without_torch(folder: Path) -> None:
    assert {"run", "list", "compare"} <= set(ask_alone("bash", "fedplug ", folder).splitlines())
    assert ask("bash", "fedplug run rec", folder) == "", "the shell completes files itself"
    assert ask("bash", "fedplug run recipes/a.yaml --device cp", folder) == "cpu"
    keys = ask_alone("bash", "fedplug run recipes/a.yaml --set protect.noised.0.n", folder).splitlines()
    assert keys == ["protect.noised.0.name=std.clip", "protect.noised.0.norm=1.0"]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [("zsh", "_arguments '*: :((\"std.gaussian\":\"Add Gaussian noise"), ("fish", "std.gaussian\tAdd Gaussian noise")],
)
def test_zsh_and_fish_complete_components_with_their_summaries(folder: Path, shell: str, expected: str) -> None:
    answer = ask_alone(shell, "fedplug show std.gaus", folder)
    assert answer.startswith(expected)
    assert "\n" not in answer, "a second line would be another answer"


def test_a_plugins_command_completes_too(folder: Path) -> None:
    assert ask("bash", "fedplug new mine --role sea", folder) == "sealer"
    assert ask("zsh", "fedplug report re", folder) == "_files"


def test_runs_attacks_and_their_options_are_completed(folder: Path) -> None:
    """Folders that hold runs, the newest first, and no folder that has a recipe and is none."""
    for name in ("runs/y", "runs/sweep/z"):
        (folder / name).mkdir(parents=True)
        (folder / name / "recipe.yaml").write_text(GOOD)
        (folder / name / "run.lock").touch()
    os.utime(folder / "runs/y", (1, 1))
    assert ask("bash", "fedplug report ru", folder).splitlines() == ["runs/sweep/z", "runs/y"]
    assert ask("bash", "fedplug compare runs/y --set rou", folder) == "rounds=2"
    attacks = ask("bash", "fedplug attack runs/y --attack attacks.d", folder).splitlines()
    assert {"attacks.dlg", "attacks.dager"} <= set(attacks)
    keys = ask("bash", "fedplug attack runs/y --attack attacks.dlg --set attack.attacks.0.", folder).splitlines()
    assert any(key.startswith("attack.attacks.0.iterations=") for key in keys), keys


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


def typed_in_zsh(line: str, folder: Path, home: Path) -> str:
    """The display of a zsh without a window after a user types a line and presses the key once."""
    import pty
    import select
    import time

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", HOME=str(home), ZDOTDIR=str(home), COLUMNS="200", PS1="> ")
        os.execvp("zsh", ["zsh", "-i"])

    def shown(until: str, seconds: float = 120) -> str:
        found, end = "", time.monotonic() + seconds
        while time.monotonic() < end and until not in found:
            if select.select([terminal], [], [], 0.2)[0]:
                found += os.read(terminal, 65536).decode(errors="replace")
        return found

    try:
        shown("> ")
        os.write(terminal, line.encode())
        shown(line[-6:])
        os.write(terminal, b"\t")
        return shown(" ")
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it, and a program `fedplug` that is this one."""
    program = tmp_path / "bin/fedplug"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom fedplug_terminal.main import program\nprogram()\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_the_script_for_zsh_answers_when_it_is_read() -> None:
    environ = os.environ | {"_FEDPLUG_COMPLETE": "source_zsh"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environ)
    script = done.stdout
    assert "compdef _fedplug_completion fedplug" in script
    assert script.rstrip().endswith('== loadautofunc ]]; then\n  _fedplug_completion "$@"\nfi')


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@pytest.mark.parametrize(
    ("line", "rest"),
    [("fedplug compa", "re "), ("fedplug run recipes/a", ".yaml "), ("fedplug show std.gaus", "sian "),
     ("fedplug run recipes/a.yaml --engine pro", "cesses "),
     ("fedplug run recipes/a.yaml --set protect.noised.0.nor", "m=1.0 ")],
)  # fmt: skip
def test_zsh_completes_at_the_first_key(line: str, rest: str, folder: Path, home: Path) -> None:
    subprocess.run(["zsh", "-c", "fedplug --install-completion; true"], check=True, capture_output=True)
    assert rest in typed_in_zsh(line, folder, home)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_recipes_components_and_options(folder: Path, home: Path) -> None:
    subprocess.run(["fish", "-c", "fedplug --install-completion; true"], check=True, capture_output=True)
    for line, expected in {
        "fedplug run rec": "recipes/", "fedplug show std.gaus": "std.gaussian\tAdd Gaussian noise",
        "fedplug run recipes/a.yaml --eng": "--engine\t", "fedplug run recipes/a.yaml --engine pro": "processes\t",
        "fedplug run recipes/a.yaml --set protect.noised.0.nor": "protect.noised.0.norm=1.0",
    }.items():  # fmt: skip
        asked = ["fish", "-c", f"complete -C '{line}'"]
        done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(expected), (line, done.stdout)
