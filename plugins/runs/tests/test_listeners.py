"""Extensions that observe a run: requested on the command line, in the config file, by a recipe; and their rights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import fedplug
import pytest
from fedplug import Extension, FedplugError, Settings, hookimpl
from fedplug.api.errors import SetupError
from fedplug.api.events import Asking, Event, ReplyArrived, RoundStarted, ZoneOpened
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from fedplug_runs.events import RowComplete, RowMade, RunFinished, RunStarted, RunStopped
from fedplug_runs.execution import resume, start
from fedplug_runs.folder import read_rows
from fedplug_terminal.main import main
from toy_components import recipe_of

RECIPE = recipe_of(rounds=2) | {"data": {"use": "std.digits", "clients": 2, "train_size": 100, "partition": "std.iid"}}


NOISED = {
    "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
    "protect": {"noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}]},
}


class Ear(Extension):
    """Remember the events."""

    class Options(fedplug.Options):
        pass

    log: ClassVar[list[Event]] = []

    def __init__(self, options: Options) -> None:
        self.options = options

    def observe(self, event: Event) -> None:
        self.log.append(event)


class Everywhere(Ear):
    """The same, of every run."""

    every_run = True
    log: ClassVar[list[Event]] = []


class Clumsy(Ear):
    """Fail at the first row."""

    def observe(self, event: Event) -> None:
        if isinstance(event, RowComplete):
            raise ValueError("no space left")


class Rewriter(Ear):
    """Change everything in an event that can be changed."""

    log: ClassVar[list[Event]] = []

    def observe(self, event: Event) -> None:
        self.log.append(event)
        if isinstance(event, ZoneOpened) and event.block.values is not None:
            event.block.values[:] = 7.0
        if isinstance(event, ReplyArrived):
            event.reports.seconds.clear()
            event.reports.evaluation = {}
        if isinstance(event, RowMade | RowComplete):
            event.row.accuracy = 1.0
            event.row.bytes.up.zones.clear()


class Shows(Ear):
    """Show something."""

    def reveals(self, facts: fedplug.Facts) -> list[fedplug.Reveals]:
        return [fedplug.Reveals("losses on a web page", ("released_model",), voids=True, note="everybody reads them")]


class Sulky(Ear):
    """Stop the run, and raise at its end as well."""

    def observe(self, event: Event) -> None:
        if isinstance(event, Asking):
            raise FedplugError("the real reason")
        if isinstance(event, RunStopped):
            raise FedplugError("another reason")


class Rows(Ear):
    """Hear rows alone."""

    hears = (RowComplete,)
    log: ClassVar[list[Event]] = []


class Budget(Ear):
    """Allow one round."""

    class Options(fedplug.Options):
        rounds: int = 0

    def observe(self, event: Event) -> None:
        if isinstance(event, Asking) and event.round >= self.options.rounds:  # type: ignore[attr-defined]
            raise FedplugError("the budget is spent; ask its owner")


class Choosy(Ear):
    """Complain about recipes of two rounds."""

    def check(self, recipe: Recipe) -> list[str]:
        return ["two rounds are too few; run more"] if recipe.rounds == 2 else []


class Wraps(Ear):
    """Wrap a hook."""

    @hookimpl(wrapper=True)
    def protect(self, block: fedplug.Block) -> Any:
        return (yield)


EARS: dict[str, type] = {
    "ear.one": Ear, "ear.every": Everywhere, "ear.clumsy": Clumsy, "ear.budget": Budget, "ear.wraps": Wraps,
    "ear.choosy": Choosy, "ear.rewriter": Rewriter, "ear.rows": Rows, "ear.shows": Shows, "ear.sulky": Sulky,
}  # fmt: skip


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """What is installed, with the extensions above; no user config in sight."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    found = Catalog.discover()
    for name, ear in EARS.items():
        found.groups["extension"][name] = Entry(name, "extension", f"{__name__}:{ear.__name__}", "ears", "0", ear)
    for heard in (Ear.log, Everywhere.log, Rewriter.log, Rows.log):
        heard.clear()
    return found


def run(catalog: Catalog, *listeners: str, muted: tuple[str, ...] = (), **changes: Any) -> Path:
    """Runs the recipe. Returns its folder."""
    settings = Settings(device="cpu", output=Path("runs"), quiet=True, listeners=listeners, muted=muted)
    code, folder = start(Recipe.from_plain(RECIPE | changes, catalog), settings, catalog)
    assert code == 0
    return folder


# ---- who hears


def test_events_come_in_order_and_once(catalog: Catalog) -> None:
    folder = run(catalog, "ear.one")
    kinds = [type(event) for event in Ear.log]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunFinished
    assert [event.round for event in Ear.log if isinstance(event, RoundStarted)] == [0, 1]
    assert [event.row.round for event in Ear.log if isinstance(event, RowComplete)] == [1, 2]
    finished = Ear.log[-1]
    assert isinstance(finished, RunFinished)
    assert finished.folder == folder


def test_what_an_extension_does_to_an_event_does_not_reach_the_run(catalog: Catalog) -> None:
    rows = [read_rows(run(catalog, *names)) for names in ((), ("ear.rewriter",))]
    assert any(isinstance(event, ZoneOpened) for event in Rewriter.log)
    told = [[(row.accuracy, row.loss, row.train_loss, row.bytes) for row in found] for found in rows]
    assert told[0] == told[1]


def test_an_extension_may_say_what_it_hears(catalog: Catalog) -> None:
    run(catalog, "ear.rows")
    assert [type(event) for event in Rows.log] == [RowComplete, RowComplete]


def test_one_that_the_recipe_names_hears_a_run_once(catalog: Catalog) -> None:
    run(catalog, extensions=["ear.every"])
    assert [type(event) for event in Everywhere.log].count(RunFinished) == 1


def test_a_recipe_names_a_listener(catalog: Catalog) -> None:
    run(catalog, extensions=["ear.one"])
    assert any(isinstance(event, RunFinished) for event in Ear.log)


def test_one_for_every_run_hears_it_unless_it_is_sent_away(catalog: Catalog) -> None:
    run(catalog, rounds=1)
    assert len([event for event in Everywhere.log if isinstance(event, RowComplete)]) == 1
    Everywhere.log.clear()
    run(catalog, muted=("ear.every",), rounds=1)
    assert not Everywhere.log


@pytest.mark.parametrize(
    ("listeners", "muted", "complaint"),
    [
        (["ear.on"], [], "--with ear.on: there is no such extension; did you mean ear.one"),
        (["{use: ear.budget, round: 2}"], [], "round.*did you mean rounds"),
        (["{use: ear.budget, rounds: many}"], [], "rounds='many'"),
        (["{use: "], [], r"with=.{use: . must be the name of a component, or {use: NAME, option: value}"),
        (["[ear.one]"], [], "there is no such extension; did you mean ear.one"),
        (["ear.choosy"], [], "--with ear.choosy: two rounds are too few; run more"),
        (["ear.wraps"], [], r"write extensions: \[ear.wraps\] into the recipe"),
        (["ear.shows"], [], r"it shows something.*write extensions: \[ear.shows\] into the recipe"),
        ([], ["ear.evry"], "--without ear.evry: there is no such extension; did you mean ear.every"),
    ],
)
def test_what_cannot_listen_is_refused_before_anything_runs(
    catalog: Catalog, listeners: list[str], muted: list[str], complaint: str
) -> None:
    with pytest.raises(SetupError, match=complaint):
        run(catalog, *listeners, muted=tuple(muted))
    assert not list(Path("runs").iterdir())


def test_the_verdict_names_listeners_that_the_recipe_does_not(catalog: Catalog) -> None:
    def words(folder: Path) -> list[str]:
        stated: list[str] = json.loads((folder / "ledger.json").read_text("utf-8"))["words"]
        return [word for word in stated if word.startswith("extension")]

    folder = run(catalog, "ear.one", rounds=1)
    assert words(folder) == ["extension component ear.every", "extension component ear.one"]
    assert words(run(catalog, rounds=1, muted=("ear.every",))) == []
    resume(folder, Settings(device="cpu", quiet=True, listeners=("ear.rows",), muted=("ear.every",)), 0, catalog)
    assert words(folder) == [f"extension component ear.{name}" for name in ("every", "one", "rows")]


# ---- what listeners may do


def test_one_that_fails_is_noted_once_and_the_run_goes_on(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(catalog, "ear.clumsy", "ear.one")
    shown = capsys.readouterr().out
    assert shown.count("extension ear.clumsy has stopped: ValueError: no space left") == 1
    assert [event.row.round for event in Ear.log if isinstance(event, RowComplete)] == [1, 2]
    log = (folder / "errors.log").read_text()
    assert "-- extension ear.clumsy, RowComplete" in log
    assert log.count("ValueError: no space left") == 1


def test_one_that_nobody_asked_for_and_that_is_broken_disturbs_no_run(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog.groups["extension"]["ear.broken"] = Entry("ear.broken", "extension", "there.is:None", "broken", "0")
    run(catalog, rounds=1)
    assert "extension component ear.broken (there.is:None) cannot be imported" in capsys.readouterr().out
    with pytest.raises(FedplugError, match="cannot be imported"):
        run(catalog, "ear.broken", rounds=1)


def test_the_end_of_a_run_is_not_hidden_by_what_hears_it(catalog: Catalog) -> None:
    with pytest.raises(FedplugError, match="the real reason"):
        run(catalog, "ear.sulky")


@pytest.mark.parametrize("by", ["listener", "recipe"])
def test_one_that_refuses_stops_the_run_before_anything_is_charged(catalog: Catalog, by: str) -> None:
    extra: dict[str, Any] = {"extensions": ["ear.budget"]} if by == "recipe" else {}
    with pytest.raises(FedplugError, match="the budget is spent"):
        run(catalog, "ear.one", *(["ear.budget"] if by == "listener" else []), **NOISED, **extra)
    (folder,) = Path("runs").iterdir()
    charged = folder / "charging.jsonl"
    assert not charged.exists() or not charged.read_text()
    ledger = json.loads((folder / "ledger.json").read_text())
    assert ledger["log"] == []
    assert ledger["verdict"] == {"status": "nothing_run"}
    stopped = Ear.log[-1]
    assert isinstance(stopped, RunStopped)
    assert "the budget is spent" in str(stopped.error)


def test_a_refused_run_goes_on_once_it_is_allowed_and_pays_once(catalog: Catalog) -> None:
    with pytest.raises(FedplugError, match="fedplug resume"):
        run(catalog, "{use: ear.budget, rounds: 1}")
    (folder,) = Path("runs").iterdir()
    assert len((folder / "charging.jsonl").read_text().splitlines()) == 1
    assert resume(folder, Settings(device="cpu", quiet=True), catalog=catalog) == 0
    rounds = [json.loads(line)["round"] for line in (folder / "charging.jsonl").read_text().splitlines()]
    assert rounds == [0, 1]


# ---- the command line and the config file


@pytest.fixture
def words(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `fedplug run` on the recipe with these words. Returns the run folder."""
    monkeypatch.setattr(Catalog, "discover", lambda: catalog)
    Path("r.yaml").write_text(json.dumps(RECIPE), encoding="utf-8")

    def call(*words: str) -> Path:
        before = set(tmp_path.glob("runs/*"))
        monkeypatch.setattr(sys, "argv", ["fedplug", "run", "r.yaml", "--set", "rounds=1", "-q", *words])
        assert main() == 0
        (folder,) = set(tmp_path.glob("runs/*")) - before
        return folder

    return call


@pytest.mark.usefixtures("reports")
def test_with_and_without_at_the_command_line(words: Any) -> None:
    assert (words("--with", "ear.one") / "report.html").is_file()
    assert isinstance(Ear.log[-1], RunFinished)
    assert not (words("--without", "lab.report", "--without", "ear.every") / "report.html").exists()
    assert len([event for event in Everywhere.log if isinstance(event, RunFinished)]) == 1


def test_with_and_without_in_the_config_file(words: Any, tmp_path: Path) -> None:
    config = tmp_path / "config/fedplug/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('with = ["ear.one", "{use: rowlog.csv, file: rows.csv}"]\nwithout = ["ear.every"]\n')
    words()
    assert isinstance(Ear.log[-1], RunFinished)
    assert not Everywhere.log
    assert len(Path("rows.csv").read_text().splitlines()) == 2
    words("--with", "{use: rowlog.csv, file: more.csv}")  # in addition to those of the config file
    assert len(Path("rows.csv").read_text().splitlines()) == 3
    assert len(Path("more.csv").read_text().splitlines()) == 2
    config.write_text('with = "ear.one"\n')
    with pytest.raises(SetupError, match="must be a list of texts"):
        Settings.load()
