"""`fedplug party` as its user meets it: its question, its refusals, and a real program."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, call
from fedplug import Settings
from fedplug_party import program
from fedplug_party.state import State
from forked import FEDPLUG, Program
from own_file_toys import HALVE
from party_toys import SECONDS, silent

BFV = GOOD.replace("zone: noised", "zone: encrypted").partition("protect:")[0] + (
    "protect: {encrypted: [{use: std.bfv, key_holder: key_server}]}\npostprocess: {encrypted: [std.bfv]}\n"
    "aggregate: std.mean\n"
)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    file = tmp_path / "recipe.yaml"
    file.write_text(GOOD)
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which party to run: fedplug party RECIPE --client N"),
        (["recipe.yaml", "--client", "0"], "say which party to run"),
        (["recipe.yaml", "--state", "s"], "say which party to run"),
        (["recipe.yaml", "--state", "s", "--client", "0", "--key-server"], "say which party to run"),
        (["recipe.yaml", "--state", "s", "--client", "4"], "recipe a has no client:4; it has client:0 to client:3"),
        (["recipe.yaml", "--state", "s", "--key-server"], "recipe a has no key server: nothing in it says"),
        (["recipe.yaml", "--state", "s", "--client", "0"], "there is no terminal to ask whether to join; read"),
        (["recipe.yaml", "--state", "recipe.yaml", "--client", "0"], "recipe.yaml cannot be written"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_joins(
    arguments: list[str], message: str, recipe: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(program, "Party", None)
    assert call(monkeypatch, "party", *arguments) == 1
    assert message in capsys.readouterr().err
    assert not (recipe.parent / "s/party.json").exists()


def test_who_says_no_joins_nothing_and_who_says_yes_is_asked_by_no_flag(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "n")  # type: ignore[func-returns-value]
    assert call(monkeypatch, "party", "recipe.yaml", "--client", "1", "--state", "s") == 1
    assert asked == ["Join? [y/N] "]
    out = capsys.readouterr().out
    assert "Recipe a (" in out
    assert out.rstrip().endswith("did not join")
    assert not (recipe.parent / "s/party.json").exists()

    monkeypatch.setattr(program, "Party", lambda *_: types.SimpleNamespace(over=True))
    assert call(monkeypatch, "party", "recipe.yaml", "--client", "1", "--state", "s", "--yes") == 0
    assert asked == ["Join? [y/N] "]
    belongs = State(recipe.parent / "s").belongs
    assert belongs is not None
    assert (belongs.party, belongs.run) == ("client:1", "")


@pytest.mark.parametrize(("answers", "runs"), [("n", False), ("yn", True), ("yy", True)])
def test_code_that_a_recipe_brings_runs_once_the_owner_of_the_site_says_so(
    answers: str, runs: bool, recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before that the recipe and the files are shown, and nothing of them runs; afterwards the whole agreement is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(recipe.parent / "state"))
    mark, own = recipe.parent / "ran", recipe.parent / "halve.py"
    own.write_text(f"{HALVE}\nimport pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    recipe.write_text(GOOD.replace("[{use: std.clip", "[{use: halve.py:Halve}, {use: std.clip"))
    shown: list[str] = []
    left = iter(answers)

    def answer(question: str) -> str:
        shown.append(capsys.readouterr().out)
        assert mark.exists() is (question == "Join? [y/N] ")
        return next(left)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(program, "Party", lambda *_: types.SimpleNamespace(over=True))
    code = call(monkeypatch, "party", "recipe.yaml", "--client", "1", "--state", "s")
    assert (code, mark.exists(), len(shown)) == (int("n" in answers), runs, len(answers))
    assert "Recipe a: 2 rounds, 4 clients.\n" in shown[0]
    assert "  protect.noised.0  halve.py:Halve  code that the recipe brings\n" in shown[0]
    assert "  protect.noised.1  std.clip  clip to L2 norm 1\n" in shown[0]
    assert f"  {own}  sha256 {hashlib.sha256(own.read_bytes()).hexdigest()}\n" in shown[0]
    assert all("What leaves this site:" in text for text in shown[1:])


def test_a_file_that_changes_after_it_was_shown_does_not_run(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(recipe.parent / "state"))
    own, mark = recipe.parent / "halve.py", recipe.parent / "ran"
    own.write_text(f"{HALVE}\n# {recipe}\n")
    recipe.write_text(GOOD.replace("[{use: std.clip", "[{use: halve.py:Halve}, {use: std.clip"))

    def change(question: str) -> str:
        own.write_text(f"{HALVE}\nimport pathlib\npathlib.Path({str(mark)!r}).touch()\n")
        return "y"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", change)
    assert call(monkeypatch, "party", "recipe.yaml", "--client", "1", "--state", "s") == 1
    assert "has not run here before" in capsys.readouterr().err
    assert not mark.exists()


def test_status_of_a_party_that_does_not_run(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "party", "--status", "s") == 1
    assert "no party listens at s/party.sock; start it" in capsys.readouterr().out


def test_a_whole_federation_from_the_command_line(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key server is a program, then `fedplug run` prints its summary.

    The clients are threads of this process, because a program takes seconds to import its libraries. Callers that say
    nothing keep neither the server nor a request for the status from being heard.
    """
    recipe.write_text(BFV.replace("clients: 4", "clients: 3"))
    words = ["party", "recipe.yaml", "--key-server", "--state", "p/key-server", "--yes"]
    outcomes: list[Any] = []

    def client(number: int) -> None:
        state = Path(f"p/client-{number}")
        outcomes.append(program.be_party(recipe, None, f"client:{number}", state, Settings(device="cpu"), 3, True))

    key_server = Program(FEDPLUG, *words)
    try:
        threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + SECONDS
        for name in ("key-server", "client-0", "client-1", "client-2"):
            while call(monkeypatch, "party", "--status", f"p/{name}"):
                assert key_server.poll() is None, key_server.stderr
                assert time.monotonic() < until
                time.sleep(0.1)
        said = capsys.readouterr().out
        assert "party:        key_server" in said
        assert "server:       not connected" in said
        with silent(Path("p/key-server"), 200), silent(Path("p/client-0"), 200):
            assert call(monkeypatch, "party", "--status", "p/key-server") == 0
            assert call(monkeypatch, "run", "recipe.yaml", "--engine", "parties", "--parties", "p", "--quiet") == 0
        for thread in threads:
            thread.join(SECONDS)
        assert outcomes == [0, 0, 0]
        assert key_server.wait(SECONDS) == 0, key_server.stderr
    finally:
        key_server.kill()
    out = capsys.readouterr().out
    assert "accuracy" in out
    assert "round 2: answered fedplug.protect" in out
    assert "the run is over" in out
    (run,) = (recipe.parent / "runs").iterdir()
    assert (run / "parties.run").is_file()

    # A site then attacks its own uploads, and its report is part of the evidence.
    assert call(monkeypatch, "party", "recipe.yaml", "--client", "1", "--state", "p/client-1", "--attack") == 0
    said = capsys.readouterr().out
    assert "not attacked: the key server: it sees nothing but sums over clients" in said
    printed = said[said.index("fedplug evidence RUN --site") :].split()
    assert printed[:4] == ["fedplug", "evidence", "RUN", "--site"]
    monkeypatch.chdir("p/client-1")
    assert call(monkeypatch, "evidence", str(run), *printed[3:]) == 0
    assert call(monkeypatch, "verify", str(run / "evidence")) == 0
    assert "site-1.json is of this recipe, run and client" in capsys.readouterr().out
    assert call(monkeypatch, "attack", str(run)) == 1
    assert "let each site attack its own uploads (fedplug party RECIPE --client N" in capsys.readouterr().err
