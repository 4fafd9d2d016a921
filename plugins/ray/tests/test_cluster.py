"""Several Ray nodes on this machine that simulate several machines, and a Ray that a run starts for itself."""

# ruff: noqa: E402  Ray may not be installed, which is said before anything else is imported.

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fedplug_ray", reason="fedplug-ray is not installed: make test installs it")
ray = pytest.importorskip("ray", reason="Ray is not installed: make test installs it")

import fedplug
from ended import gone
from fedplug.api.errors import SetupError
from fedplug.engines.base import Job
from fedplug.recipe.catalog import Entry
from fedplug.recipe.recipe import Recipe
from fedplug_ray.actor import require_shared
from fedplug_ray.cluster import Cluster, room
from fedplug_ray.engine import RayEngine
from fedplug_runs.checkpoint import Checkpoints, StateFiles
from fedplug_std import pool
from ray.cluster_utils import Cluster as Nodes
from ray_actors import Anywhere, actors, pids
from toy_components import recipe_of, toy_catalog
from toy_protocol import build, read_saved, run_protocol

pytestmark = pytest.mark.xdist_group("ray")
SECONDS = 20
"""Enough for a worker to start on a busy machine."""
RECIPE = """\
name: two-rounds
seed: 1
rounds: 40
data: {use: std.digits, clients: 4, partition: std.iid}
model: {use: std.mlp, hidden: []}
train: {use: std.sgd, epochs: 1}
negotiate_mask: {use: std.single_zone, zone: encrypted}
protect: {encrypted: [{use: std.bfv, key_holder: key_server}]}
aggregate: std.mean
postprocess: {encrypted: [std.bfv]}
"""


# ---- without Ray


def test_the_address_of_a_ray_client_is_refused() -> None:
    with pytest.raises(SetupError, match=r"address='ray://h:1' is for a Ray client"):
        Cluster("ray://h:1", 1)


def test_an_address_at_which_nobody_answers_is_refused_at_once() -> None:
    with pytest.raises(SetupError, match=r"cannot use a Ray at 127.0.0.1:1: .*refused; .* ray start --head"):
        Cluster("127.0.0.1:1", 1)
    assert not ray.is_initialized()


def test_a_run_folder_that_is_another_one_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(SetupError, match=f"does not see the run folder {re.escape(str(tmp_path))}.*--output"):
        require_shared(mark, "this one")
    mark.write_text("another one")
    with pytest.raises(SetupError, match="does not see the run folder"):
        require_shared(mark, "this one")
    mark.write_text("this one")
    require_shared(mark, "this one")


@pytest.mark.parametrize(
    ("job", "cpus", "gpus", "there", "expected"),
    [
        ({"workers": None}, 1, None, {"CPU": 3}, (3, 0.0)),
        ({"workers": None}, 2, None, {"CPU": 3}, (1, 0.0)),
        ({"workers": None}, 1, None, {"CPU": 64}, (4, 0.0)),
        ({"workers": 2}, 0.5, None, {"CPU": 1}, (2, 0.0)),
        ({"workers": None}, 1, 0.25, {"CPU": 8, "GPU": 1}, (4, 0.25)),
        ({"workers": None}, 1, 1, {"CPU": 8, "GPU": 2}, (2, 1)),
        ({"workers": 3, "device": "cuda:0"}, 1, None, {"CPU": 8, "GPU": 1}, (3, 0.3333)),
        ({"workers": 2, "device": "cuda"}, 1, None, {"CPU": 8, "GPU": 8}, (2, 1.0)),
        ({"workers": 3}, 1, None, {"CPU": 2}, "3 workers with 1 CPUs each need 3, but this Ray has 2"),
        ({"workers": 3}, 1, 0.5, {"CPU": 3, "GPU": 1}, "3 workers with 0.5 GPUs each need 1.5, but this Ray has 1"),
        ({"device": "cuda"}, 1, None, {"CPU": 2}, "--device cuda: this Ray has no GPU"),
    ],
)
def test_workers_are_as_many_as_there_is_room_for(
    job: dict[str, Any], cpus: float, gpus: float | None, there: dict[str, float], expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    given = Job(recipe_of(), **job)
    if isinstance(expected, str):
        with pytest.raises(SetupError, match=expected):
            room(given, cpus, gpus)
    else:
        assert room(given, cpus, gpus) == expected


# ---- several nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """A head with one CPU. Tests add nodes to it."""
    folder = tempfile.mkdtemp(prefix="nodes-", dir="/tmp")  # it contains sockets, whose paths must be short
    found = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "temp_dir": folder})
    try:
        yield found
    finally:
        ray.shutdown()
        found.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def joined(nodes: Nodes, **options: Any) -> Any:
    """Makes the engine of a job that joins these nodes."""
    given = RayEngine.Options(address=nodes.address, **options)
    return lambda job: RayEngine(job.__class__(**{**vars(job), "options": given}))


def raylet(pid: int) -> str:
    """The Ray process that is the parent of an actor: there is one per node."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]


def end(nodes: Nodes, node: Any, engine: Any) -> None:
    """Ends a node and waits until its actors have ended with it."""
    theirs = str(node.all_processes["raylet"][0].process.pid)
    there = [pid for pid in pids(engine).values() if raylet(pid) == theirs]
    assert there
    nodes.remove_node(node, allow_graceful=False)
    assert gone(there)


@pytest.mark.slow
def test_two_nodes_give_the_model_of_local_and_a_third_takes_over_from_one_that_dies(
    nodes: Nodes, tmp_path: Path
) -> None:
    second = nodes.add_node(num_cpus=1)
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=3)
    local = run_protocol(plain)
    protocol, engine, _ = build(plain, joined(nodes))
    checkpoints = Checkpoints(tmp_path)
    try:
        where = [raylet(pid) for pid in pids(engine).values()]
        assert len(set(where[:2])) == 2, "two workers, each on a separate node"
        protocol.setup()
        checkpoints.write(0, protocol.state(), engine)
        protocol.round(0)
        checkpoints.write(1, protocol.state(), engine)
        nodes.add_node(num_cpus=1)
        end(nodes, second, engine)
        protocol.round(1)
        checkpoints.write(2, protocol.state(), engine)
        protocol.round(2)
        protocol.finish()
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        vectors, _ = read_saved(tmp_path / "end")
    finally:
        engine.close()
    answered = [row.clients.answered for row in protocol.rows]
    assert answered[0] == answered[2] == 4, [row.clients.dropped for row in protocol.rows]
    assert answered[1] in (2, 4), "4 if the engine noticed the death before the round began"
    if answered[1] == 4:
        assert np.array_equal(vectors[0], local.vector)
    assert all(np.array_equal(vectors[0], vectors[client_id]) for client_id in range(4))
    assert not ray.is_initialized(), "the engine must join the Ray and leave it"


@pytest.mark.slow
def test_where_there_is_no_room_after_a_death_the_run_ends(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = nodes.add_node(num_cpus=1)
    protocol, engine, _ = build(recipe_of(), joined(nodes), timeout=SECONDS)
    try:
        protocol.setup()
        Checkpoints(tmp_path).write(0, protocol.state(), engine)
        end(nodes, second, engine)
        monkeypatch.setattr(pool, "_LEAST", float(SECONDS))

        def go_on() -> None:
            protocol.round(0)  # the engine may notice the death only now
            engine.save(tmp_path)

        with pytest.raises(SetupError, match=rf"worker-\d did not start within {SECONDS} seconds; the cluster has no"):
            go_on()
    finally:
        engine.close()


@pytest.mark.slow
def test_two_workers_share_a_gpu(nodes: Nodes) -> None:
    """Ray assumes a GPU that does not exist. The model of this recipe does not look for it."""
    nodes.add_node(num_cpus=2, num_gpus=1)
    catalog = toy_catalog()
    entry = Entry("toy.anywhere", "model", "ray_actors:Anywhere", "toys", "0", Anywhere)
    catalog.groups["model"][entry.name] = entry
    plain = Recipe.from_plain(recipe_of(model={"use": "toy.anywhere", "hidden": []}), catalog).to_plain()
    engine = joined(nodes, gpus=0.5)(Job(plain, workers=2, catalog=catalog))
    try:
        for actor in actors(engine).values():
            assert ray.get(actor.__ray_call__.remote(lambda _: os.environ["CUDA_VISIBLE_DEVICES"])) == "0"
        assert ray.available_resources().get("GPU", 0) == 0
    finally:
        engine.close()
    with pytest.raises(SetupError, match=r"worker-0 could not start: .*(cuda|CUDA)"):
        joined(nodes, gpus=0.5)(Job(recipe_of(), workers=1, catalog=toy_catalog()))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can hide a folder")
def test_a_node_that_does_not_see_the_run_folder_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    """On the second node, another folder has the path of the run folder, as on another machine."""
    run_dir, other = tmp_path / "run", tmp_path / "other"
    run_dir.mkdir()
    other.mkdir()
    start = f"{Path(sys.executable).parent / 'ray'} start --address={nodes.address} --num-cpus=1 --block"
    second = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"mount --bind {other} {run_dir} && exec {start}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        ray.init(nodes.address, log_to_driver=False)
        deadline = time.monotonic() + 300
        while ray.cluster_resources()["CPU"] < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        with pytest.raises(SetupError, match=rf"worker-\d could not start: .*does not see the run folder {run_dir}"):
            RayEngine(Job(recipe_of(), workers=2, catalog=toy_catalog(), store=StateFiles(run_dir)))
        assert not list(run_dir.iterdir())
    finally:
        os.killpg(second.pid, signal.SIGTERM)
        second.wait(300)


# ---- the command


@pytest.mark.slow
def test_ctrl_c_ends_everything_and_the_run_goes_on_where_it_was(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    common = ["--engine", "ray", "--workers", "2", "--cpus", "0.5", "--quiet"]
    program = [sys.executable, "-m", "fedplug"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    process = subprocess.Popen(
        [*program, "run", str(recipe), "--output", str(tmp_path / "runs"), *common],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("runs/*/checkpoint/round-0002")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "Interrupted" in output
    assert not left_of(process.pid)
    (run,) = (tmp_path / "runs").iterdir()
    resumed = [*program, "resume", str(run), *common]
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    whole = fedplug.run(recipe, output=tmp_path / "local", quiet=True)
    rows = fedplug.open_run(run).metrics
    assert [row.loss for row in rows] == [row.loss for row in whole.metrics]
    mine, theirs = (found.model.state_dict() for found in (fedplug.open_run(run), whole))
    assert all(bool((mine[name] == theirs[name]).all()) for name in theirs)
    assert json.loads((run / "summary.json").read_text())["engine"] == "ray"


@pytest.mark.slow
def test_ctrl_c_while_ray_is_being_started_leaves_nothing_behind(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    words = ["run", str(recipe), "--engine", "ray", "--output", str(tmp_path / "runs"), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "fedplug", *words], start_new_session=True)
    deadline = time.monotonic() + 300
    while not any("gcs_server" in line for line in left_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(300) == 130
    assert not left_of(process.pid)


@pytest.mark.slow
def test_the_trial_runs_on_two_nodes_and_compares(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    command = [sys.executable, "-m", "fedplug_ray.trial", str(recipe), "--set", "rounds=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the two models are equal, bit for bit" in done.stdout
    assert "raylet" not in done.stdout


def left_of(session: int) -> list[str]:
    """The command lines of the remaining processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, theirs = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(theirs) == session and state != "Z":
                found.append((path / "cmdline").read_text().replace("\0", " "))
    return found
