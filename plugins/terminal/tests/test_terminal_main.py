"""How the program ends: exit codes, errors without a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_calls import call, fake_runs
from fedplug.api.errors import SetupError
from fedplug_runs import files
from fedplug_runs.files import write_text
from fedplug_terminal import main


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["--version"], 0),
        (["lst"], 2),
        (["run"], 2),
        (["check", "--nope"], 2),
        ([], 2),
    ],
)
def test_exit_codes_of_usage(monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], code: int) -> None:
    assert call(monkeypatch, *arguments) == code
    assert "Traceback" not in capsys.readouterr().err


def test_how_main_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake_runs(monkeypatch, SetupError("no such device; use --device cpu"))
    assert call(monkeypatch, "run", "r.yaml") == 1
    assert capsys.readouterr().err == "error: no such device; use --device cpu\n"
    for stop, said in (
        (KeyboardInterrupt(), "Interrupted; what was saved before stays.\n"),
        (KeyboardInterrupt("Interrupted; nothing had begun"), "Interrupted; nothing had begun\n"),
        (KeyboardInterrupt("fedplug.resume('r') continues it"), ""),  # the run's display has shown it
    ):
        fake_runs(monkeypatch, stop)
        assert call(monkeypatch, "run", "r.yaml") == 130
        assert capsys.readouterr().err == said
    fake_runs(monkeypatch, OSError(errno.ENOSPC, "No space left on device", "runs/sweep.jsonl"))
    assert call(monkeypatch, "run", "r.yaml") == 1
    assert capsys.readouterr().err == (
        "error: No space left on device: runs/sweep.jsonl; make room there, and repeat the command\n"
    )
    fake_runs(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):  # a fault of the program is not presented as the user's
        call(monkeypatch, "run", "r.yaml")


def test_ctrl_c_is_answered_from_the_first_moment(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Little is imported before `program` runs, and `program` handles errors of the other imports."""
    loaded = "import sys; from fedplug_terminal.main import program; print(*(m for m in sys.modules if 'fedplug' in m))"
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path}; {loaded}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.split() == ["fedplug_terminal", "fedplug_terminal.main"]

    def interrupted() -> int:
        raise KeyboardInterrupt

    codes: list[int] = []
    monkeypatch.setattr(main, "main", interrupted)
    monkeypatch.setattr(main, "_leave", codes.append)
    main.program()
    assert codes == [130]
    assert capsys.readouterr().err == "Interrupted; what was saved before stays.\n"


def test_the_console_script_ends_with_mains_code(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "fedplug"
    result = subprocess.run([script, "check", str(tmp_path / "no.yaml")], capture_output=True, text=True, check=False,
                            env=os.environ | {"COLUMNS": "100"})  # fmt: skip
    assert result.returncode == 1
    assert "there is no such file" in result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ["list"], ["show", "std.clip"], pytest.param(["list", "--json"], marks=pytest.mark.slow),
        pytest.param(["schema"], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_full_disk_is_an_error_without_a_traceback(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        script = "import sys; from fedplug_terminal.main import main; sys.exit(main())"
        result = subprocess.run([sys.executable, "-c", script, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "error: No space left on device: perhaps of the standard output\n"


def test_a_closed_standard_output_is_no_fault(tmp_path: Path) -> None:
    """As in a cron job that ends in `>&-`: the command does its work without printing."""
    command = ["sh", "-c", f'"{sys.executable}" -m fedplug check --help >&-']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a write names none."""

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "page.html").write_text("before")
    monkeypatch.setattr(files, "open_private", full)
    with pytest.raises(OSError, match="No space left") as failed:
        write_text(tmp_path / "page.html", "after")
    assert failed.value.filename == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "before"


def test_the_program_ends_with_everything_said_and_every_last_wish_granted() -> None:
    code = """
import atexit, sys, threading, time
from fedplug_terminal import main as cli
def act():
    print("out", end="")
    print("err", end="", file=sys.stderr)
    threading.Thread(target=lambda: (time.sleep(0.2), print(" later", end=""))).start()
    atexit.register(lambda: print(" last", end=""))
    return 3
cli.main = act
class Never:
    def __del__(self): print(" freed", end="")
never = Never()
cli.program()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (3, "out later last", "err")


def test_a_fault_of_the_program_ends_it_with_a_traceback() -> None:
    code = "from fedplug_terminal import main as cli\ndef act(): return 1 / 0\ncli.main = act; cli.program()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_by_the_program_too() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fedplug", "show", "std.clip"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "error: No space left on device: perhaps of the standard output\n"


def test_python_dash_m(good: Path) -> None:
    result = subprocess.run([sys.executable, "-m", "fedplug", "check", str(good)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{good}: ok (")
