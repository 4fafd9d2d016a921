"""Runs that finish, fail, are interrupted, resumed and set back, as the libraries' own readers show them."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import fedplug
import pytest
from fedplug import FedplugError, Settings
from fedplug.api.errors import RecipeError, SetupError
from fedplug_kit import check_component
from fedplug_trackers.said import flat
from fedplug_trackers.to_mlflow import Mlflow
from fedplug_trackers.tracker import Memory
from tracker_toys import RECIPE, STOP, history, records, scalars, texts

QUIET = Settings(quiet=True, device="cpu", muted=("lab.report",))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate folder with the file that stops runs, and no access to the network."""
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    Path("stop.py").write_text(STOP, encoding="utf-8")
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> Any:
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"), address
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take seconds to create."""
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


def run(*listeners: Any, stop: str = "", **values: Any) -> Path:
    """Runs the recipe until it ends or stops; returns its folder."""
    if stop:
        Path("stop").write_text(stop, encoding="utf-8")
    try:
        fedplug.run(RECIPE | values, settings=QUIET, listeners=listeners)
    except KeyboardInterrupt:
        assert stop == "ctrl-c"
    except FedplugError:
        assert stop not in ("", "ctrl-c")
    return max(Path("runs").glob("tracked-*"))


def resume(folder: Path, *listeners: Any, round: int | None = None) -> None:
    fedplug.resume(folder, round, settings=QUIET, listeners=listeners)


def id_of(folder: Path, name: str) -> str:
    return str(json.loads((folder / "trackers" / f"trackers.{name}.json").read_text())["id"])


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "wandb"])
def test_conforms(name: str) -> None:
    check_component(f"trackers.{name}")


def test_an_interrupted_run_is_the_same_run_in_mlflow_when_it_goes_on(database: Path) -> None:
    from mlflow import MlflowClient

    Path("runs").mkdir()
    shutil.copy(database, "runs/mlflow.db")
    folder = run({"use": "trackers.mlflow", "tags": {"team": "red"}}, stop="ctrl-c")
    client = MlflowClient(tracking_uri=f"sqlite:///{Path('runs/mlflow.db').absolute()}")
    begun = client.get_run(id_of(folder, "mlflow"))
    assert begun.info.status == "KILLED"
    assert begun.info.run_name == folder.name
    assert [one.step for one in client.get_metric_history(begun.info.run_id, "accuracy")] == [1]
    # A process was killed between sending a round and recording it. The server knows its rounds.
    memory = Path(folder / "trackers/trackers.mlflow.json")
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "rounds": 0}))
    resume(folder, {"use": "trackers.mlflow"})
    found = client.get_run(id_of(folder, "mlflow"))
    assert found.info.run_id == begun.info.run_id
    assert found.info.status == "FINISHED"
    ran = fedplug.open_run(folder)
    for name in ("accuracy", "loss", "epsilon"):
        points = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, name)]
        assert points == [(row.round, pytest.approx(getattr(row, name))) for row in ran.metrics]
    assert found.data.metrics["bytes/up"] == ran.metrics[-1].bytes.up.total
    assert found.data.metrics["epsilon/server"] == pytest.approx(ran.ledger.views["server"].epsilon)
    assert found.data.metrics["final_epsilon/server"] == pytest.approx(ran.ledger.views["server"].epsilon)
    assert found.data.params["protect.noised.0.norm"] == "1.0"
    assert found.data.params["seed"] == "5"
    assert found.data.tags["fedplug.digest"] == ran.summary.digest
    assert found.data.tags["fedplug.verdict"] == str(ran.ledger.verdict)
    assert found.data.tags["team"] == "red"
    assert "fedplug.version.fedplug-std" in found.data.tags
    assert "recipe.yaml" in [one.path for one in client.list_artifacts(found.info.run_id)]
    # Back to an earlier round: the tracked run stays unchanged, and another run begins.
    resume(folder, {"use": "trackers.mlflow"}, round=2)
    again = client.get_run(id_of(folder, "mlflow"))
    assert again.data.tags["fedplug.instead_of"] == found.info.run_id
    assert client.get_run(found.info.run_id).data.tags["fedplug.state"] == "superseded"
    assert [one.step for one in client.get_metric_history(again.info.run_id, "accuracy")] == [1, 2, 3]


def test_a_failed_run_is_one_in_mlflow_and_a_server_that_is_not_there_is_said_at_once(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{database}"
    folder = run({"use": "trackers.mlflow", "uri": uri, "experiment": "own", "run_name": "a"}, stop="no power")
    found = MlflowClient(tracking_uri=uri).get_run(id_of(folder, "mlflow"))
    assert (found.info.status, found.info.run_name) == ("FAILED", "a")
    assert found.data.tags["fedplug.error"].startswith("no power")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(SetupError, match=r"trackers.mlflow cannot start: .*127\.0\.0\.1"):
        fedplug.run(RECIPE, settings=QUIET, listeners=[{"use": "trackers.mlflow", "uri": "http://127.0.0.1:9"}])
    assert len(list(Path("runs").glob("tracked-*"))) == 1  # the second run left nothing


def test_passwords_of_a_server_stay_out_of_the_run_folder(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options appear in the summary, the report and other trackers. Nothing from the environment is kept."""
    secret = "http://me:geheim@127.0.0.1:9"
    with pytest.raises(SetupError, match=r"trackers\.mlflow: uri: it contains a password.*MLFLOW_TRACKING_USERNAME"):
        fedplug.run(RECIPE, settings=QUIET, listeners=[{"use": "trackers.mlflow", "uri": secret}])
    assert not list(Path("runs").glob("tracked-*"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
    with pytest.raises(SetupError, match=r"http://me:\*\*\*@127") as caught:
        fedplug.run(RECIPE, settings=QUIET, listeners=["trackers.mlflow"])
    assert "geheim" not in str(caught.value)
    monkeypatch.setattr(Mlflow, "_uri", lambda *_: f"sqlite:///{database}")
    monkeypatch.setattr(Mlflow, "place", lambda *_: secret)

    def gone(self: Any, round: int, values: Any) -> None:
        raise OSError(f"nobody at {secret}")

    from fedplug_trackers import to_mlflow

    monkeypatch.setattr(to_mlflow._Run, "row", gone)
    folder = run("trackers.mlflow")
    kept = [file for file in folder.rglob("*") if file.is_file() and b"geheim" in file.read_bytes()]
    assert not kept


def test_runs_of_one_name_do_not_share_a_folder_of_tensorboard() -> None:
    pytest.importorskip("tensorboard")
    board = {"use": "trackers.tensorboard", "folder": "boards", "run_name": "first"}
    first, second = run(board), run(board)
    assert sorted(found.name for found in Path("boards").iterdir()) == ["first", "first-2"]
    for name in ("first", "first-2"):
        assert [step for step, _ in scalars(Path("boards") / name)["loss"]] == [1, 2, 3]
    assert first != second
    # Going back to an earlier round makes another run too.
    resume(second, board, round=2)
    assert [step for step, _ in scalars(Path("boards/first-3"))["loss"]] == [1, 2, 3]
    assert id_of(second, "tensorboard") == "first-3"


def test_tensorboard_shows_each_round_once_and_notes_and_the_end() -> None:
    pytest.importorskip("tensorboard")
    folder = run("trackers.tensorboard", stop="ctrl-c", extensions=["stop.py:Stop", "stop.py:Clumsy"])
    assert [step for step, _ in scalars(folder / "tensorboard")["accuracy"]] == [1]
    # A process was killed before it could remember the rounds that it had written.
    memory = Memory.of(folder, "trackers.tensorboard", "the run folder")
    memory.rounds = 0
    memory.keep()
    resume(folder, "trackers.tensorboard")
    found, ran = scalars(folder / "tensorboard"), fedplug.open_run(folder)
    assert found["accuracy"] == [(row.round, pytest.approx(row.accuracy)) for row in ran.metrics]
    assert found["final_epsilon/server"] == [(3, pytest.approx(ran.ledger.views["server"].epsilon))]
    said = texts(folder / "tensorboard")
    assert "| protect.noised.0.norm | 1.0 |" in said["recipe"][0]
    assert ran.summary.digest in said["run"][0]
    assert "| state | interrupted |" in said["end"][0]
    assert "| state | finished |" in said["end"][-1]
    assert str(ran.ledger.verdict) in said["end"][-1]
    assert any("a note for everybody" in note for note in said["notes"])
    assert len(said["_hparams_/session_start_info"]) == 1


def test_a_tracker_that_fails_in_the_middle_costs_the_run_nothing_and_gets_the_rest_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    from fedplug_trackers import to_tensorboard

    row = to_tensorboard._Run.row

    def full(self: Any, round: int, values: Any) -> None:
        if round == 2:
            raise OSError(28, "No space left on device")
        row(self, round, values)

    monkeypatch.setattr(to_tensorboard._Run, "row", full)
    folder = run({"use": "trackers.tensorboard", "folder": "boards"})
    said = capsys.readouterr().out
    assert said.count("extension trackers.tensorboard has stopped") == 1
    assert "No space left on device" in said
    assert "rounds sent: 1." in said
    assert [row.round for row in fedplug.open_run(folder).metrics] == [1, 2, 3]
    monkeypatch.setattr(to_tensorboard._Run, "row", row)
    resume(folder, {"use": "trackers.tensorboard", "folder": "boards"})
    assert [step for step, _ in scalars(Path("boards") / folder.name)["loss"]] == [1, 2, 3]


def test_wandb_is_offline_in_the_run_folder_and_keeps_its_id() -> None:
    wandb = pytest.importorskip("wandb")
    folder = run("trackers.wandb", stop="ctrl-c")
    resume(folder, "trackers.wandb")
    wandb.teardown()  # waits until everything is on disk, as the end of the process does
    first, second = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert first.name == second.name == f"run-{id_of(folder, 'wandb')}.wandb"
    ran = fedplug.open_run(folder)
    assert list(history(first)) == [1]
    assert {step: items["accuracy"] for step, items in history(second).items()} == {
        row.round: pytest.approx(row.accuracy) for row in ran.metrics[1:]
    }
    kinds = [record.WhichOneof("record_type") for record in records(second)]
    assert [record.exit.exit_code for record in records(second) if record.WhichOneof("record_type") == "exit"] == [0]
    assert "stats" not in kinds
    assert "output_raw" not in kinds
    summary = {
        item.key or ".".join(item.nested_key): json.loads(item.value_json)
        for record in records(second) if record.WhichOneof("record_type") == "summary" for item in record.summary.update
    }  # fmt: skip
    assert summary["verdict"] == str(ran.ledger.verdict)
    (exit,) = [record.exit for record in records(first) if record.WhichOneof("record_type") == "exit"]
    assert exit.exit_code == 130
    config = {
        item.key or ".".join(item.nested_key): json.loads(item.value_json)
        for record in records(first) if record.WhichOneof("record_type") == "run" for item in record.run.config.update
    }  # fmt: skip
    assert config["protect.noised.0.norm"] == 1.0
    assert config["fedplug.digest"] == ran.summary.digest
    assert (second.parent / "files/recipe.yaml").is_file()


def test_a_library_that_is_missing_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mlflow, "modules", ("not_there_at_all", "socket"))
    why = r"not_there_at_all is not installed; pip install mlflow"
    with pytest.raises(RecipeError, match=why):
        fedplug.check(RECIPE, extensions=["trackers.mlflow"])
    with pytest.raises(SetupError, match=f"--with trackers.mlflow: {why}"):
        fedplug.run(RECIPE, settings=QUIET, listeners=["trackers.mlflow"])
    assert not list(Path("runs").iterdir())


def test_recipes_are_flattened_as_set_writes_paths() -> None:
    plain = {"a": {"b": [{"c": 1}, "d"]}, "none": None, "empty": [], "no": {}}
    assert dict(flat(plain)) == {"a.b.0.c": 1, "a.b.1": "d", "none": None, "empty": [], "no": {}}


@pytest.mark.parametrize(
    ("use", "options"),
    [
        ("mlflow", {"uri": "http://203.0.113.1:5000"}), ("mlflow", {"uri": "sqlite:///../../x.db"}),
        ("tensorboard", {"folder": "../.."}), ("tensorboard", {"folder": "a", "run_name": "../../../x"}),
        ("tensorboard", {"folder": "a", "run_name": "/tmp/x"}),
        ("wandb", {"folder": "/tmp/x"}), ("wandb", {"mode": "online"}),
    ],
)  # fmt: skip
def test_a_recipe_alone_sends_and_writes_nothing_outside_its_run(use: str, options: dict[str, str]) -> None:
    inside = {**RECIPE, "extensions": [{"use": f"trackers.{use}", **options}]}
    with pytest.raises(SetupError, match=r"outside the run folder.*--allow-outside"):
        fedplug.run(inside, settings=QUIET)
    assert not [path for path in Path("runs").rglob("*") if path.is_file()]


def test_a_recipe_may_name_a_folder_in_its_run_and_any_where_the_user_allows_it(tmp_path: Path) -> None:
    board = {"use": "trackers.tensorboard", "folder": "boards"}
    folder = fedplug.run({**RECIPE, "extensions": [board]}, settings=QUIET, rounds=1).folder
    assert scalars(folder / "boards" / folder.name)["loss"]
    outside = {**RECIPE, "extensions": [{**board, "folder": str(tmp_path / "boards")}]}
    folder = fedplug.run(outside, settings=QUIET, rounds=1, allow_outside=True).folder
    assert scalars(tmp_path / "boards" / folder.name)["loss"]
