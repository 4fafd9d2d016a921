"""fedplug from Python: runs that are returned, what they say, and keywords that are told apart."""

from __future__ import annotations

import dataclasses
import html
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import fedplug
import pytest
import torch
from fedplug import FedplugError, RecipeError, Settings
from fedplug.api.errors import CheckpointError, PluginError, SetupError
from fedplug.runs.files import read_rows
from fedplug.runs.result import LedgerView

PLAIN: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 2,
    "data": {"use": "std.digits", "clients": 4, "train_size": 400, "partition": {"use": "iid"}},
    "model": {"use": "std.mlp", "hidden": [16]},
    "train": {"use": "std.sgd", "epochs": 1, "lr": 0.05},
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.2},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "clients"}],
        "noised": [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}],
    },
    "aggregate": {"use": "std.mean"},
    "postprocess": {"encrypted": ["std.bfv"]},
}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder and no user config in sight."""
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> fedplug.Run:
    """A run that most tests look at."""
    settings = Settings(device="cpu", output=tmp_path_factory.mktemp("runs"), quiet=True)
    return fedplug.run(PLAIN, {"protect.noised.0.norm": 0.2}, settings=settings, rounds=3)


# ---- light


def test_importing_fedplug_imports_nothing_heavy() -> None:
    program = (
        "import sys, fedplug; fedplug.components('protect'); fedplug.run; fedplug.open_run\n"
        "print([name for name in ('torch', 'matplotlib', 'typer', 'rich', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- a run


def test_a_run_says_what_it_came_to(done: fedplug.Run) -> None:
    assert done.complete
    assert done.exit_code == 0
    assert done.recipe.rounds == 3
    assert done.recipe.protect["noised"][0].options.model_dump()["norm"] == 0.2
    assert [row.round for row in done.metrics] == [1, 2, 3]
    last, line = done.metrics[-1], json.loads((done.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last == read_rows(done.folder)[-1]
    assert last.accuracy == line["accuracy"]
    assert last.bytes.up.total == line["bytes"]["up"]["total"]
    assert last.bytes.down.total == line["bytes"]["down"]["total"]
    assert last.wall_seconds == line["wall_seconds"]
    assert last.zones["encrypted"] == pytest.approx(0.2, abs=0.01)
    assert last.clients.answered == 4
    assert last.epsilon == done.ledger.epsilon == pytest.approx(8)
    assert done.ledger.verdict.startswith("NO end-to-end DP")
    assert done.ledger.data["delta"] == done.ledger.delta == 1e-5
    assert done.summary.digest == done.recipe.digest
    assert done.summary.command == ""  # nobody typed one
    assert [row.round for row in done.metrics[1:]] == [2, 3]


def test_a_ledger_without_noise_has_no_epsilon() -> None:
    assert LedgerView({"verdict": "NO DP", "epsilon": None}).epsilon is None
    assert LedgerView({}).epsilon is None  # of a run that stopped before anything could be said


def test_a_run_can_be_opened_again(done: fedplug.Run) -> None:
    again = fedplug.open_run(str(done.folder))
    assert again.metrics[0] == done.metrics[0]
    assert repr(again) == repr(done)


def test_the_model_is_the_one_that_the_last_accuracy_was_measured_on(done: fedplug.Run) -> None:
    from fedplug.api.torch_model import to_tensor
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.composition import Composition
    from fedplug.round.client_data import load_data

    data, _ = load_data(done.recipe, Composition(done.recipe, Catalog.discover()).components, None)
    model = done.model
    assert isinstance(model, torch.nn.Module)
    assert done.model is model  # built once
    with torch.no_grad():
        found = model(to_tensor(data.test.inputs, data.mean, data.std)).argmax(1).numpy()
    assert (found == data.test.labels).mean() == pytest.approx(done.metrics[-1].accuracy)
    one = done.client_model(3).state_dict()
    assert all(torch.equal(value, one[name]) for name, value in model.state_dict().items())
    with pytest.raises(CheckpointError, match="there is no client 4; the run has 0 to 3"):
        done.client_model(4)


def test_groups_have_a_model_each(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedplug.round.hosted import HostedClient

    load = HostedClient.load

    def load_other(self: HostedClient, *arguments: Any) -> None:
        load(self, *arguments)
        self.vector = self.vector + self.client_id

    monkeypatch.setattr(HostedClient, "load", load_other)
    again = fedplug.open_run(done.folder)
    with pytest.raises(CheckpointError, match=r"run\.client_model\(0\)"):
        _ = again.model
    assert isinstance(again.client_model(2), torch.nn.Module)


def test_a_notebook_shows_it_escaped(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = done._repr_html_()
    assert done.recipe.digest[:12] in shown
    assert html.escape(done.ledger.verdict) in shown
    assert shown.count("<tr>") == 4 + 1 + 3  # facts, the head, rounds
    assert "personal mean" not in shown  # no column that is empty
    again = fedplug.open_run(done.folder)
    monkeypatch.setattr(type(again.ledger), "verdict", "<script>alert(1)</script>")
    assert "<script>" not in again._repr_html_()


def test_a_run_that_was_killed_can_still_be_shown(done: fedplug.Run, tmp_path: Path) -> None:
    for name in ("recipe.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((done.folder / name).read_bytes())
    killed = fedplug.open_run(tmp_path)
    assert "the run was killed; resume it" in repr(killed)
    assert "the run was killed; resume it" in killed._repr_html_()
    with pytest.raises(CheckpointError, match="has no checkpoint, and so no model"):
        _ = killed.model


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it has no recipe\.yaml"):
        fedplug.open_run(tmp_path)
    with pytest.raises(CheckpointError, match=r"it has no recipe\.yaml"):
        fedplug.resume(tmp_path)


def test_pandas_is_asked_for_only_where_it_is_used(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match="pip install pandas"):
        done.metrics.to_pandas()
    pandas: Any = types.ModuleType("pandas")
    pandas.json_normalize = lambda rows: rows
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert done.metrics.to_pandas() == [row.to_plain() for row in done.metrics]


@pytest.mark.usefixtures("reports")
def test_a_plugin_draws_the_report(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert done.report() == done.folder / "report.html"
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: ())
    with pytest.raises(SetupError, match="pip install fedplug-lab"):
        done.report()


# ---- what is printed


def test_a_script_sees_a_line_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fedplug.run(PLAIN, output=tmp_path, device="cpu", rounds=1)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("recipe small, clients 4, rounds 1")
    assert second.startswith("round 1/1  accuracy")
    assert run.folder.parent == tmp_path
    fedplug.run(PLAIN, output=tmp_path, device="cpu", rounds=1, quiet=True)
    assert capsys.readouterr().out == ""


def test_an_interrupted_run_is_saved_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedplug.round.protocol import Protocol

    play = Protocol.round

    def stop(self: Protocol, round: int) -> None:
        if round == 1:
            raise KeyboardInterrupt
        play(self, round)

    with monkeypatch.context() as patch:
        patch.setattr(Protocol, "round", stop)
        with pytest.raises(KeyboardInterrupt, match=r"fedplug\.resume"):
            fedplug.run(PLAIN, output=tmp_path, device="cpu")
    (folder,) = tmp_path.glob("small-*")
    assert f"everything up to round 1 is saved. To go on: fedplug.resume({str(folder)!r})" in capsys.readouterr().out
    stopped = fedplug.open_run(folder)
    assert not stopped.complete
    assert isinstance(stopped.model, torch.nn.Module)
    assert fedplug.resume(stopped, quiet=True).complete


# ---- recipes and settings


def test_recipes_come_as_files_as_plain_data_and_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(PLAIN), encoding="utf-8")
    recipe = fedplug.check(PLAIN)
    assert fedplug.check(file) == fedplug.check(str(file)) == fedplug.check(recipe) == recipe
    texts = fedplug.check(file, ["protect.noised.0.norm=0.5", "rounds=7"])
    assert texts == fedplug.check(PLAIN, {"protect.noised.0.norm": 0.5}, rounds=7)
    assert texts == fedplug.check(recipe, {"protect.noised.0.norm": 0.5, "rounds": 1}, rounds=7)
    assert PLAIN["protect"]["noised"][0]["norm"] == 0.1  # the caller's data stay as they are
    assert fedplug.check(PLAIN, data={**PLAIN["data"], "clients": 5}).clients == 5


def test_every_mistake_of_a_recipe_comes_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        fedplug.check(PLAIN, {"train.lr": -1}, rounds=0)
    assert len(caught.value.problems) == 2
    assert "rounds: rounds=0 must be >= 1" in str(caught.value)


def test_the_data_of_the_caller_are_left_alone() -> None:
    noised = [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}]
    fedplug.check(PLAIN, {"protect.noised": noised, "protect.noised.0.norm": 0.5})
    assert noised[0] == {"use": "std.clip", "norm": 0.1}


@pytest.mark.parametrize(
    ("keywords", "complaint"),
    [
        ({"engin": "local"}, "engin: this is neither a setting nor a key of recipes; did you mean engine?"),
        ({"round": 5}, "round: this is neither a setting nor a key of recipes; did you mean rounds?"),
        ({"workers": 2}, "workers=2 changes nothing with engine='local'"),
        ({"engine": "proceses"}, "did you mean processes"),
        ({"display": "live"}, "display='live' must be 'lines', 'terminal'"),
        ({"muted": "lab.report"}, "muted='lab.report' must be a list"),
        ({"settings": {"device": "cpu"}}, "must be a fedplug.Settings"),
        ({"data": "/absent"}, "the folder of data sets /absent does not exist"),
    ],
)
def test_keywords_that_are_wrong_say_so(tmp_path: Path, keywords: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FedplugError, match=complaint.replace("?", r"\?")):
        fedplug.run(PLAIN, **({"output": tmp_path / "runs"} | keywords))
    assert not list(tmp_path.glob("runs/*"))


def test_check_takes_no_settings() -> None:
    with pytest.raises(SetupError, match="quiet: this is no key of recipes"):
        fedplug.check(PLAIN, quiet=True)


def test_components_are_records() -> None:
    (clip,) = [found for found in fedplug.components("protect") if found.name == "std.clip"]
    assert (clip.group, clip.plugin) == ("protect", "fedplug-std")
    assert clip.summary.startswith("Scale a zone's values down")
    assert len(fedplug.components()) > len(fedplug.components("protect"))
    with pytest.raises(PluginError, match="did you mean protect"):
        fedplug.components("protekt")


def test_a_recipe_that_was_changed_is_checked_again() -> None:
    changed = dataclasses.replace(fedplug.check(PLAIN), min_clients=99)
    with pytest.raises(RecipeError, match="min_clients=99 must be <="):
        fedplug.check(changed)
