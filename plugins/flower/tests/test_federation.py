"""A federation of real processes: Flower's SuperLink and SuperNodes, relays, and a program for each party."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fedplug
import pytest

pytest.importorskip("flwr", reason="flwr is not installed; make test installs it")

from fedplug.api import codec
from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_flower import trial
from fedplug_flower.certificates import make_node_key
from fedplug_flower.engine import FlowerEngine
from fedplug_flower.programs import Programs, descendants, free_ports, processes
from fedplug_flower.trial import Federation, federation, start_node
from fedplug_party.sockets import folder_name
from fedplug_runs import functions
from fedplug_runs.checkpoint import read_file
from fedplug_runs.wire_record import read_wire
from fedplug_std.he_contexts import RingContext
from forked import Program, server_with


def recipe_of(rounds: int, **changes: Any) -> Recipe:
    """Two clients and a key server with a clip, reproducible noise and BFV, on digits."""
    noise = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5, "source": "reproducible"}
    chain = [{"use": "std.clip", "norm": 1.0}, noise, {"use": "std.bfv", "key_holder": "key_server"}]
    plain = {
        "name": "small", "seed": 7, "rounds": rounds, "min_clients": 2,
        "data": {"use": "std.digits", "clients": 2, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
        "model": {"use": "std.mlp", "hidden": [16]},
        "train": {"use": "std.sgd", "epochs": 1, "lr": 0.05},
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": chain},
        "aggregate": {"use": "std.mean"},
        "postprocess": {"encrypted": ["std.bfv"]},
        **changes,
    }  # fmt: skip
    return Recipe.from_plain(plain)


def holds(pid: int, pieces: list[bytes]) -> bool:
    """Whether the writable memory of a process has one of these pieces of at most 64 bytes.

    It is read into one buffer, behind the last bytes before: a new one for each part would take most of the time.
    """
    maps = Path(f"/proc/{pid}/maps").read_text()
    handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    buffer = bytearray(64 + (1 << 22))
    try:
        for begin, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", maps, re.MULTILINE):
            at, until = int(begin, 16), int(end, 16)
            buffer[:64] = bytes(64)
            while at < until:
                with memoryview(buffer) as view:
                    try:
                        count = os.preadv(handle, [view[64 : 64 + until - at]], at)
                    except (OSError, OverflowError):  # the kernel's own memory, or gone in the meantime
                        count = 0
                if any(buffer.find(piece, 0, 64 + count) >= 0 for piece in pieces):
                    return True
                buffer[:64] = buffer[count : count + 64] if count else bytes(64)
                at += count or 4096
    finally:
        os.close(handle)
    return False


def secret_pieces(folder: Path) -> list[bytes]:
    """Parts of the secret key, from the key server's checkpoint."""
    (state,) = folder.glob("key-server/checkpoint/round-0000*/key_server.state")
    key = RingContext.load(codec.decode(read_file(state))["state"]["std.bfv"]["context"]).secret_key
    assert len(key) > 1000
    return [key[begin : begin + 48] for begin in (len(key) // 3, 2 * len(key) // 3)]


def named(running: Federation) -> dict[int, str]:
    """Every process of a federation with its name, such as `node-client-0`, or the command line of a descendant."""
    found = {pid: name for name, pid in running.programs.pids().items()}
    for pid in descendants(set(found)):
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def fingerprints(run: Path) -> list[tuple[str, bytes]]:
    """The clients' messages about their final models, from the recording."""
    messages = read_wire(sorted((run / "wire").glob("*.wire"))[-1])
    askers = {
        message.receiver for message in messages
        if message.sender == "server" and any(call.method == "fingerprint" for call in message.asked())
    }  # fmt: skip
    answers = {message.sender: message.answered() for message in messages if message.sender in askers}
    return sorted((sender, answer.value) for sender, answer in answers.items() if answer is not None)


def local_run(recipe: Recipe, folder: Path) -> Path:
    return functions.run(recipe, output=folder, engine="local", record_wire=True, quiet=True).folder


def sizes(run: Path) -> list[tuple[int, ...]]:
    """Bytes of each round without ciphertexts, because these are compressed and differ with every key."""
    rows = functions.open_run(run).metrics
    ways = [(row.bytes.up, row.bytes.down) for row in rows]
    return [tuple(way.total - way.zones.get("encrypted", 0) for way in both) for both in ways]


def the_run(lines: Iterable[str]) -> Path:
    (found,) = {line.partition("run folder: ")[2] for line in lines if line.startswith("run folder: ")}
    return Path(found)


def while_it_runs(running: Federation, begun: str, do: Callable[[], None], config: dict[str, Any]) -> list[str]:
    """Runs the recipe, and acts once when a line begins with the given text; returns the lines."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if line.startswith(begun) and sum(each.startswith(begun) for each in lines) == 1:
            do()

    running.run(config, say)
    return lines


def config_of(tmp_path: Path) -> dict[str, Any]:
    return {"output": str(tmp_path / "runs"), "record-wire": True, "patience": 60}


PAUSING = """
import pathlib, sys, time
from fedplug_terminal.main import main
from fedplug_party.party import Party

folder, pattern, answer = pathlib.Path(sys.argv[1]), sys.argv[2], Party.answer
del sys.argv[1:3]


def pausing(self, data, engine):
    reply = answer(self, data, engine)
    if any(folder.glob(pattern)):
        (folder / "paused").touch()
        while not (folder / "go-on").exists():
            time.sleep(0.05)
    return reply


Party.answer = pausing
sys.exit(main())
"""
"""A party that keeps its answer back from the moment at which a file is in a folder, until another one is there. A test
that watched the folder could look too late.
"""


LIBRARIES = (
    "fedplug.round.parties", "fedplug_flower.commands", "fedplug_flower.worker", "fedplug_party.commands",
    "fedplug_party.program", "fedplug_terminal.main", "flwr.supernode.cli", "flwr.supernode.start_client_internal",
    "sklearn.datasets", "tenseal", "torch",
)  # fmt: skip
"""Modules that the programs of parties take seconds to import, each."""
INSTALLED = """
import importlib.metadata, sys

(found,) = importlib.metadata.entry_points(group="console_scripts", name=sys.argv[1])
del sys.argv[0]
sys.exit(found.load()())
"""
"""A program of this environment by its name."""
HASTY = """
import time, types
from flwr.supernode import start_client_internal as loop

loop.time = types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(seconds / 5)})
"""
"""Before a SuperNode: it waits a fifth as long, which is three seconds each time."""


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs of parties in the next federation are forked from one that has imported what they need, and soon
    answer.
    """
    alone = Programs.start
    monkeypatch.setitem(trial.ENVIRONMENT, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "1")
    with server_with(LIBRARIES, trial.ENVIRONMENT) as server:

        def start(self: Programs, name: str, *command: str) -> None:
            if name == "superlink":  # there is one, which starts while the others' libraries are imported
                alone(self, name, *command)
                return
            if command[:2] == (sys.executable, "-c"):
                code, *words = command[2:]
            else:
                code, words = INSTALLED, [*command]
                code = HASTY * (command[0] == "flower-supernode") + code
            log = self._folder / f"{name}.log"
            running: Any = Program(code, *words, log=log, environ=self._environ, server=server)
            self._running[name] = running

        monkeypatch.setattr(Programs, "start", start)
        yield


def pause(party: str, folder: Path, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a party of the next federation pause once a file of this pattern is in a folder; see `paused`."""
    start = Programs.start

    def pausing(self: Programs, name: str, *command: str) -> None:
        if name == party:
            command = (sys.executable, "-c", PAUSING, str(folder), pattern, *command[1:])
        start(self, name, *command)

    monkeypatch.setattr(Programs, "start", pausing)


@contextlib.contextmanager
def paused(folder: Path) -> Iterator[None]:
    """Inside, the party pauses."""
    while not (folder / "paused").exists():
        time.sleep(0.05)
    try:
        yield
    finally:
        (folder / "go-on").touch()


@pytest.mark.usefixtures("forking")
def test_a_federation_gives_what_one_process_gives_and_no_secret_key_leaves_the_key_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(rounds=1)
    folder = tmp_path / "f"
    folder.mkdir()
    owners, read = set[str](), set[str]()
    seen = set[str]()  # including those that the kernel hides from their own user at Flower's request
    pause("party-key-server", folder, "key-server/openings/*", monkeypatch)

    def scan() -> None:
        """Looks at all processes after the key server has opened a sum and before the server gets it."""
        with paused(folder):
            look()

    def look() -> None:
        pieces = secret_pieces(folder)
        for pid, name in sorted(named(running).items(), key=lambda each: "serverapp" not in each[1]):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with contextlib.suppress(PermissionError):
                    if holds(pid, pieces):
                        owners.add(name)
                    read.add(name)
                seen.add(name)

    scanning = threading.Thread(target=scan, daemon=True)
    with federation(recipe, folder, None, print) as running:
        lines = while_it_runs(running, "recipe small", scanning.start, config_of(tmp_path))
        assert (folder / "paused").exists()
        scanning.join()
        everyone = named(running)
    run = the_run(lines)

    # A scan that finds nothing shows nothing. So it must read each kind of process, and find the key where it belongs.
    kinds = ("superlink", "flower-superexec", "flwr-serverapp", "node-key-server", "relay-key-server", "party-client-1")
    assert all(any(kind in name for name in seen) for kind in kinds), seen
    if "party-key-server" in read:  # in a user namespace, nobody may read it
        assert owners == {"party-key-server"}
    assert owners <= {"party-key-server"}
    pieces = secret_pieces(folder)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    with_key = {path.relative_to(folder).parts[0] for path in files if any(p in path.read_bytes() for p in pieces)}
    assert with_key == {"key-server"}
    assert any("flwr" in path.parts for path in files)

    local = local_run(recipe, tmp_path / "local")
    assert fingerprints(run) == fingerprints(local)
    assert len(fingerprints(run)) == 2
    assert sizes(run) == sizes(local)
    carried = functions.open_run(run).summary.carried
    assert carried.keys() == {"messages", "requests to parties", "Flower"}
    assert 0 < carried["Flower"] < 0.2 * carried["messages"]
    assert any(line.startswith("carried: ") for line in lines)

    deadline = time.monotonic() + 120
    while (left := everyone.keys() & processes().keys()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not {everyone[pid] for pid in left}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Federation]:
    """A federation for three rounds."""
    folder = tmp_path / "f"
    folder.mkdir()
    with federation(recipe_of(rounds=3), folder, None, print) as running:
        yield running


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on_while_the_parties_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies after its checkpoint of round 1, while a client trains. Round 2 opened no sum, so it is repeated. The
    settings of the command that is printed then continue it.
    """
    config, recipe, folder = config_of(tmp_path), recipe_of(rounds=3), tmp_path / "f"
    folder.mkdir()
    pause("party-client-0", tmp_path, "runs/*/checkpoint/round-0001", monkeypatch)

    def kill() -> None:
        with paused(tmp_path):
            (server,) = [pid for pid, name in named(running).items() if "flwr-serverapp" in name]
            os.kill(server, signal.SIGKILL)

    killing = threading.Thread(target=kill, daemon=True)
    with federation(recipe, folder, None, print) as running:
        with pytest.raises(SetupError, match="the run"):
            while_it_runs(running, "recipe small", killing.start, config)
        (run,) = (tmp_path / "runs").iterdir()
        lines: list[str] = []
        *_, said = shlex.split(FlowerEngine.continued_by(run, None))
        running.run({**config, **tomllib.loads(said)}, lines.append)
    assert any(line.startswith("round 3/3") for line in lines)
    assert fingerprints(run) == fingerprints(local_run(recipe, tmp_path / "local"))


@pytest.mark.slow
def test_a_node_that_nobody_registered_is_refused(small: Federation, tmp_path: Path) -> None:
    """It has the certificate and even the folder of a party, but no registered key."""
    key, _ = make_node_key(tmp_path, "stranger")
    log = small.folder / "superlink.log"
    until = time.monotonic() + 300
    while log.read_text().count("Activated node_id") < 3 and time.monotonic() < until:
        time.sleep(0.2)
    small.programs.start(
        "stranger", "flower-supernode", "--superlink", f"127.0.0.1:{small.port}",
        "--root-certificates", str(small.folder / "ca.crt"), "--auth-supernode-private-key", str(key),
        "--port", str(free_ports(1)[0]), "--node-config", f'state="{small.folder / "client-0"}"', "--max-retries", "1",
    )  # fmt: skip
    until = time.monotonic() + 300
    while small.programs.pids()["stranger"] in processes() and time.monotonic() < until:
        time.sleep(0.5)
    assert small.programs.pids()["stranger"] not in processes()
    assert "Failed to activate SuperNode" in (small.folder / "stranger.log").read_text()
    assert log.read_text().count("Activated node_id") == 3


@pytest.mark.slow
def test_a_party_refuses_what_was_made_under_another_recipe(small: Federation, tmp_path: Path) -> None:
    lines: list[str] = []
    honest, small.recipe = small.recipe, recipe_of(rounds=2)
    with pytest.raises(SetupError, match="the run failed"):
        small.run(config_of(tmp_path), lines.append)
    (error,) = [line for line in lines if line.startswith("error: ")]
    assert f"it was started with recipe {honest.digest[:12]}" in error
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_a_node_that_is_killed_costs_its_client_rounds_and_comes_back_with_its_key(tmp_path: Path) -> None:
    """The SuperLink admits the same key again a minute after the last sign of the node."""
    folder = tmp_path / "f"
    folder.mkdir()
    plain = recipe_of(rounds=10).to_plain()
    plain["data"]["clients"] = 3

    def kill() -> None:
        os.kill(running.programs.pids()["node-client-2"], signal.SIGKILL)
        threading.Timer(75, again).start()

    def again() -> None:
        key = folder / "client-2.key"
        start_node(running.programs, folder, "client:2", key, running.port, running.ports["client:2"])

    with federation(Recipe.from_plain(plain), folder, None, print) as running:
        lines = while_it_runs(running, "round 1/10", kill, {**config_of(tmp_path), "timeout": 20})
    rows = functions.open_run(the_run(lines)).metrics
    answered = [row.clients.answered for row in rows]
    assert answered[0] == 3
    assert 2 in answered[1:], answered
    assert answered[-1] == 3, answered
    assert {client for row in rows for client in row.clients.dropped} == {2}


@pytest.mark.slow
def test_flowers_own_commands_run_the_app_folder_with_a_client_app_for_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a user's own federation: `flwr run`, and a SuperNode that loads the app."""
    recipe, folder = recipe_of(rounds=1), tmp_path / "f"
    folder.mkdir()

    def plain_node(started: Any, at: Path, address: str, key: Path, port: int, own: int) -> None:
        started.start(
            f"node-{folder_name(address)}", "flower-supernode", "--superlink", f"127.0.0.1:{port}",
            "--root-certificates", str(at / "ca.crt"), "--auth-supernode-private-key", str(key),
            "--port", str(own), "--node-config", f'state="{at / folder_name(address)}"',
        )  # fmt: skip

    monkeypatch.setattr(trial, "start_node", plain_node)
    monkeypatch.setattr(trial, "_start_relay", lambda *_: None)
    with federation(recipe, folder, None, print) as running:
        (tmp_path / "recipe.yaml").write_text((folder / "recipe.yaml").read_text())
        program = str(Path(sys.executable).parent)
        environ = {**os.environ, **trial.ENVIRONMENT, "FLWR_HOME": str(folder / "flwr")}
        app = tmp_path / "app"
        written = [f"{program}/fedplug", "federation-app", str(tmp_path / "recipe.yaml"), str(app)]
        subprocess.run(written, check=True)
        (folder / "flwr").mkdir(exist_ok=True)
        (folder / "flwr/config.toml").write_text(
            f'[superlink.here]\naddress = "127.0.0.1:{running.port}"\nroot-certificates = "{folder / "ca.crt"}"\n'
        )
        done = subprocess.run(
            [f"{program}/flwr", "run", str(app), "here", "--stream", "--run-config",
             f'output="{tmp_path / "runs"}" record-wire=true'],
            env=environ, capture_output=True, text=True,
        )  # fmt: skip
        print(done.stdout, done.stderr)
    (run,) = (tmp_path / "runs").iterdir()
    assert fingerprints(run) == fingerprints(local_run(recipe, tmp_path / "local"))


@pytest.mark.slow
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    from fedplug_runs import yaml_source

    file.write_text(yaml_source.dump(recipe_of(rounds=50).to_plain()))
    program = str(Path(sys.executable).parent / "fedplug")
    command = [program, "federation-try", str(file), "--output", str(tmp_path / "r")]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round 1/50"):
            break
    below = descendants({process.pid})
    assert len(below) > 9
    process.send_signal(signal.SIGINT)
    said = process.stdout.read()
    assert process.wait(300) == 130
    assert "everything has stopped" in said
    assert "Traceback" not in said
    assert not below.keys() & processes().keys()
    assert not list(tmp_path.glob("fedplug-*"))
    assert fedplug.open_run(next((tmp_path / "r").iterdir())).metrics
