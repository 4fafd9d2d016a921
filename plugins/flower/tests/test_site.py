"""The relay of a party, and the folder that `fedplug federation-app` writes."""

from __future__ import annotations

import http.server
import math
import os
import runpy
import stat
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed; make test installs it")

from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug.engines.base import Job
from fedplug_flower import letters
from fedplug_flower.app_folder import write_app
from fedplug_flower.certificates import make_certificates, make_node_key
from fedplug_flower.engine import FlowerEngine
from fedplug_flower.programs import descendants, processes, programs
from fedplug_flower.relaying import app, relay
from fedplug_flower.server import CONFIG
from fedplug_flower.worker import work
from fedplug_party.line import Listening
from fedplug_runs.overlay import load_recipe
from flwr.app import Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.supercore.task_identity import TaskIdentity
from own_file_toys import HALVE
from own_file_toys import RECIPE as WITH_FILE

RECIPE = Path(__file__).parents[3] / "recipes/bfv-fedavg.yaml"


@pytest.fixture(autouse=True)
def _a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower creates messages only in a process that runs a task for it."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 2)
    monkeypatch.setattr(TaskIdentity, "_task_id", 3)


def context(**config: Any) -> Context:
    return Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={}, series_id=3)


def question(data: bytes, seconds: float = 5.0) -> Message:
    message = Message(letters.request(data, seconds), 2, letters.KIND)
    message.metadata.__dict__["_message_id"] = "m"
    return message


@pytest.fixture
def party(tmp_path: Path) -> Iterator[Path]:
    """A party that returns the bytes reversed."""
    listening = Listening(tmp_path, lambda data, _: data[::-1])
    yield tmp_path
    listening.close()


@pytest.mark.parametrize("in_client_app", [False, True])
def test_the_relay_hands_bytes_over_and_back(party: Path, in_client_app: bool) -> None:
    for data in (b"", b"abc", os.urandom(1 << 20)):
        message = question(data, math.inf)
        if in_client_app:
            answer = app(message, context(state=str(party)))
        else:
            answer = Message(relay(message, party), reply_to=message)
        assert letters.data_of(answer) == data[::-1]
        assert answer.metadata.reply_to_message_id == "m"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "this node's configuration names no party"),
        ({"state": 3}, "this node's configuration names no party"),
        ({"state": "/nowhere"}, "no party listens at /nowhere/party.sock"),
    ],
)
def test_the_relay_says_why_there_is_no_answer(config: dict[str, Any], why: str) -> None:
    answer = app(question(b"x"), context(**config))
    assert why in str(answer.content.config_records["failure"]["reason"])


def test_the_relay_refuses_what_another_app_sends(party: Path) -> None:
    message = Message(RecordDict(), 2, letters.KIND)
    assert "a message of another app" in str(relay(message, party).config_records["failure"]["reason"])


def test_the_relay_program_needs_the_secret_of_its_node(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="start the SuperNode with the same file"):
        work("127.0.0.1:1", tmp_path / "missing", tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(SetupError, match="must not be empty"):
        work("127.0.0.1:1", tmp_path / "empty", tmp_path)


def test_a_node_that_gives_out_no_tasks_is_named(tmp_path: Path) -> None:
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    (tmp_path / "secret").write_bytes(b"secret")
    with http.server.HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(SetupError, match=r"refuses to give out tasks \(HTTP 401\).*--isolation process"):
            work(f"127.0.0.1:{server.server_port}", tmp_path / "secret", tmp_path)
        server.shutdown()


def test_an_app_folder_is_what_flower_wants(tmp_path: Path) -> None:
    folder = write_app(load_recipe(RECIPE), tmp_path / "app", {"timeout": 7})
    config, warnings = load_and_validate(folder / "pyproject.toml")
    assert not warnings
    assert build_fab_from_disk(folder)
    plain = tomllib.loads((folder / "pyproject.toml").read_text())
    assert plain == config
    assert plain["tool"]["flwr"]["app"]["config"] == {**CONFIG, "timeout": 7}
    written = load_recipe(folder / "fedplug_app/recipe.yaml")
    assert written.digest == load_recipe(RECIPE).digest
    for side, kind in (("server_app", ServerApp), ("client_app", ClientApp)):
        assert isinstance(runpy.run_path(str(folder / f"fedplug_app/{side}.py"))["app"], kind)


def test_the_command_writes_it_and_refuses_a_folder_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "federation-app", str(RECIPE), str(tmp_path / "app"), "--set", "rounds=3") == 0
    digest = load_recipe(tmp_path / "app/fedplug_app/recipe.yaml").digest
    assert digest in capsys.readouterr().out
    assert digest != load_recipe(RECIPE).digest
    assert call(monkeypatch, "federation-app", str(RECIPE), str(tmp_path / "app")) == 1
    assert "is not empty" in capsys.readouterr().err


def test_components_of_a_file_travel_in_the_app_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halve.py").write_text(HALVE)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(WITH_FILE.replace("own/halve.py:Halve", "halve.Halve"))
    words = [str(recipe), str(tmp_path / "app"), "--plugin", str(tmp_path / "halve.py"), "--trust"]
    assert call(monkeypatch, "federation-app", *words) == 0
    (tmp_path / "halve.py").unlink()
    written = load_recipe(tmp_path / "app/fedplug_app/recipe.yaml")
    assert [own.name for own in written.own_files] == ["halve.py"]


def test_outside_a_federation_the_engine_says_what_to_do() -> None:
    with pytest.raises(SetupError, match="fedplug federation-try starts a federation on this machine"):
        FlowerEngine(Job({"data": {"clients": 2}}))


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    key, public = make_node_key(tmp_path, "node")
    for path in (tmp_path / "server.key", key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert public.startswith(b"ecdsa-sha2-nistp384 ")
    assert (tmp_path / "node.pub").read_bytes() == public
    names = ["ca.crt", "node", "node.pub", "server.key", "server.pem"]  # without the root's key nobody can sign more
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    checked = subprocess.run(
        ["openssl", "verify", "-CAfile", "ca.crt", "-verify_ip", "127.0.0.1", "server.pem"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_programs_end_with_all_that_they_have_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ignores SIGTERM and has started another one in a separate session."""
    monkeypatch.setattr("fedplug_flower.programs._STOP_SECONDS", 0.5)
    script = "trap '' TERM; setsid sleep 600 & echo $MARK; while :; do sleep 1; done"
    with programs(tmp_path, {"MARK": "here"}) as started:
        started.start("stubborn", "bash", "-c", script)
        pid = started.pids()["stubborn"]
        until = time.monotonic() + 120
        while len(descendants({pid})) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        below = descendants({pid})
        assert len(below) == 2
        started.require()
        assert started.tail("stubborn") == "here"
    until = time.monotonic() + 120  # the system takes a moment to end killed processes
    while {pid, *below} & processes().keys() and time.monotonic() < until:
        time.sleep(0.05)
    assert not {pid, *below} & processes().keys()


def test_a_program_that_ends_early_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    with programs(tmp_path, {}) as started:
        started.start("short", "bash", "-c", "printf '\\033[91mERROR \\033[0m: no port\\n'; exit 3")
        with pytest.raises(SetupError, match="short ended with code 3; its log says: ERROR : no port"):
            started.await_port("short", 1, 120.0)
        with pytest.raises(SetupError, match="no-such-program cannot be started"):
            started.start("missing", "no-such-program")
