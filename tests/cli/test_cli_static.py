"""The commands that run nothing: list, show, check, schema, help; settings; and how main ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import SetupError
from fedplug.cli import main as cli
from fedplug.runs.settings import Settings
from fedplug.testing.static import check_component, import_problems

GOOD = """\
name: a
seed: 1
rounds: 2
data: {use: std.digits, clients: 4, partition: std.iid}
model: std.mlp
train: std.sgd
negotiate_mask: {use: std.single_zone, zone: noised}
protect: {noised: [{use: std.clip, norm: 1.0}, {use: std.gaussian, epsilon: 8, delta: 1e-5}]}
aggregate: std.mean
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedplug", *arguments])
    return cli.main()


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


MAIN = "import sys; from fedplug.cli.main import main; code = main()\n"
LIGHT = "heavy = {'torch', 'torchvision', 'tenseal', 'opacus', 'sklearn'} & set(sys.modules); assert not heavy, heavy\n"


def test_list_is_grouped_in_the_order_of_a_round(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["hook", "component", "plugin", "version", "summary"]
    row = next(line.split() for line in lines if line.split()[1] == "std.clip")
    assert row[:4] == ["protect", "std.clip", "fedplug-std", "0.1.0"]
    groups = list(dict.fromkeys(line.split()[0] for line in lines[1:]))
    assert groups[:5] == ["score_parameters", "negotiate_mask", "protect", "aggregate", "postprocess"]


def test_list_as_json(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    vote = next(row for row in rows if row["name"] == "paraaegis.vote")
    assert vote["group"] == "negotiate_mask"
    assert vote["plugin"] == "fedplug-paraaegis"
    assert vote["summary"].endswith(".")


def test_list_verify_names_the_plugin_that_cannot_be_imported(tmp_path: Path) -> None:
    info = tmp_path / "acmebroken-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acmebroken\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[fedplug.attack]\nacmebroken.x = acmebroken:X\n")
    (tmp_path / "acmebroken.py").write_text("import no_such_library\n")
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from fedplug.cli.main import main; sys.exit(main())"
    listed = python(start, "list")
    assert listed.returncode == 0
    assert "acmebroken.x" in listed.stdout
    assert listed.stderr == ""
    verified = python(start, "list", "--verify")
    assert verified.returncode == 1
    assert "plugin acmebroken 3.1: attack component acmebroken.x" in verified.stderr
    assert "No module named 'no_such_library'" in verified.stderr


def test_list_imports_no_plugin_and_none_of_the_heavy_libraries() -> None:
    # How long it takes is measured by benchmarks/startup.py.
    result = python(
        MAIN + "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "bad = tops & {'numpy', 'torch', 'pydantic'} | {t for t in tops if t.startswith('fedplug_')}\n"
        "assert code == 0 and not bad, bad", "list",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_show_prints_documentation_options_and_origin_without_torch() -> None:
    result = python(MAIN + LIGHT + "sys.exit(code)", "show", "std.gaussian")
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert "Add Gaussian noise" in out
    assert "fedplug-std 0.1.0" in out
    assert "gaussian.py:" in out
    row = next(line for line in out.splitlines() if line.startswith("decay"))
    assert row.split()[1:3] == ["float", "1.0"]
    assert "> 0, <= 1" in row
    assert "'secure' | 'exact' | 'reproducible'" in out


def test_show_of_a_component_with_several_hooks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "show", "bfv") == 0
    assert "std.bfv  (protect, postprocess)" in capsys.readouterr().out


def test_show_of_something_unknown_suggests_the_nearest(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "show", "std.gausian") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean std.gaussian" in captured.err


def test_check_prints_ok_with_the_digest_and_every_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, good: Path
) -> None:
    assert call(monkeypatch, "check", str(good)) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{good}: ok (")
    assert len(out.partition("(")[2].strip()) == 13
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("epsilon: 8", "epsilon: 0").replace("std.mean", "std.maen") + "x: [y]\n")
    assert call(monkeypatch, "check", str(good), str(bad), str(tmp_path / "none.yaml")) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith(f"{good}: ok")
    assert lines[1:] == [
        f"{bad}:8:77: std.gaussian: epsilon=0 must be > 0; to switch the noise off, write noised: []",
        f"{bad}:9:12: unknown aggregate component 'std.maen'; did you mean std.mean?",
        lines[3],
        f"{tmp_path}/none.yaml: cannot read the recipe: there is no such file",
    ]
    assert lines[3].startswith(f"{bad}:10:1: unknown key 'x'")
    assert "4 problems" in captured.err
    assert call(monkeypatch, "check", str(good), "--set", "rounds=0") == 1
    assert "--set rounds: rounds=0 must be >= 1" in capsys.readouterr().out


def test_check_imports_no_torch(good: Path) -> None:
    result = python(MAIN + LIGHT + "sys.exit(code)", "check", str(good))
    assert result.returncode == 0, result.stderr


def test_schema_is_json(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "fedplug recipe"


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


def test_help_shows_an_example_of_every_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for command in ("run", "resume", "list", "show", "check", "schema"):
        assert call(monkeypatch, command, "--help") == 0
        assert f"Example: fedplug {command}" in capsys.readouterr().out


def fake_runs(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> list[Any]:
    """Puts a stand-in in the place of the functions that run things; gives the list of its calls."""
    calls: list[Any] = []

    def act(*arguments: Any, settings: Settings, display: str) -> Any:
        assert display == "terminal"
        calls.append((*arguments, settings))
        if isinstance(outcome, BaseException):
            raise outcome
        return types.SimpleNamespace(exit_code=outcome)

    monkeypatch.setattr("fedplug.runs.functions.run", act)
    monkeypatch.setattr("fedplug.runs.functions.resume", act)
    return calls


def test_run_and_resume_hand_over_what_was_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    calls = fake_runs(monkeypatch, 7)
    options = (
        "--set rounds=2 --set seed=3 --engine processes --workers 2 --device cpu --output o --data d --record-wire -q"
    )
    assert call(monkeypatch, "run", "r.yaml", *options.split()) == 7
    assert call(monkeypatch, "resume", "runs/x", "--round", "5", "--no-record-wire") == 7
    assert calls == [
        (Path("r.yaml"), ["rounds=2", "seed=3"],
         Settings("processes", 2, "cpu", Path("o"), Path("d"), record_wire=True, quiet=True)),
        (Path("runs/x"), 5, Settings()),
    ]  # fmt: skip


def test_how_main_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake_runs(monkeypatch, SetupError("no such device; use --device cpu"))
    assert call(monkeypatch, "run", "r.yaml") == 1
    assert capsys.readouterr().err == "error: no such device; use --device cpu\n"
    fake_runs(monkeypatch, KeyboardInterrupt())
    assert call(monkeypatch, "run", "r.yaml") == 130
    fake_runs(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):  # a fault of the program is not dressed up as the user's
        call(monkeypatch, "run", "r.yaml")


def test_settings_come_from_the_config_file_then_the_environment_then_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    assert Settings.load() == Settings()
    (tmp_path / "fedplug").mkdir()
    config = tmp_path / "fedplug" / "config.toml"
    config.write_text('device = "cpu"\nworkers = 3\noutput = "~/r"\ndata = "/a"\nrecord_wire = true\n')
    loaded = Settings.load()
    assert loaded == Settings("local", 3, "cpu", Path.home() / "r", Path("/a"), True)
    monkeypatch.setenv("FEDPLUG_DATA", "/b")
    assert Settings.load().data == Path("/b")
    assert Settings.load().replace({"data": Path("/c"), "device": None}).data == Path("/c")
    for text, complaint in (
        ("divice = 'x'", "unknown key 'divice'; did you mean device?"),
        ("workers = 'x'", "workers='x' must be a whole number"),
        ("workers = true", "workers=True must be a whole number"),
        ("workers = 0", "workers=0 must be >= 1"),
        ("= 1", "cannot be read"),
    ):
        config.write_text(text)
        with pytest.raises(SetupError, match=complaint.replace("?", r"\?")):
            Settings.load()
    with pytest.raises(SetupError, match="cannot be read"):
        Settings.load(tmp_path / "absent.toml")


# The conformance kit

PLUGIN = '''
"""A plugin with one good component and several faults."""
from __future__ import annotations
{extra}
from fedplug import Field, Negotiation, Options, Plans, at_client, hookimpl

class Good(Negotiation):
    """Vote well."""

    plans = Plans(zones=frozenset({"clear"}))

    class Options(Options):
        ratio: float = Field(0.5, description="share")

    @hookimpl
    def negotiate_mask(self, cohort, ctx):
        cohort.ask(self.nominate)
        cohort.tell(self.adopt, 1)

    @at_client
    def nominate(self, client): ...

    @at_client
    def adopt(self, client, winners): ...


class Bad(Negotiation):
    class Options(Options):
        name: float = Field(0.5)

    def __init__(self, options, more):
        self.options = options

    @hookimpl
    def negotiate_mask(self, cohort, ctx):
        cohort.ask(self.nominate)
        cohort.tell(self.absent)

    def nominate(self, client): ...

    @at_client
    def adopt(self, party, winners): ...
'''


def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str = "") -> Any:
    (tmp_path / f"{name}.py").write_text(PLUGIN.replace("{extra}", extra))
    monkeypatch.syspath_prepend(str(tmp_path))
    return __import__(name)


def test_the_kit_accepts_a_good_component_and_lists_every_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plugin(tmp_path, monkeypatch, "acmekit")
    check_component(module.Good)
    with pytest.raises(AssertionError) as caught:
        check_component(module.Bad)
    for fault in (
        "needs a docstring",
        "option name needs a description",
        "option name must have another name",
        "must be built from its options alone",
        "asks for self.absent, which does not exist",
        "nominate runs at another party, so it must be marked",
        "adopt is marked @at_client, so its first argument after self must be named client",
        "has no plans, which a Negotiation must have",
    ):
        assert fault in str(caught.value)
    with pytest.raises(AssertionError, match="is no Protector"):
        check_component(module.Good, group="protect")


def test_the_kit_finds_heavy_imports_and_modules_that_do_not_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in, as the real one takes long to import; here too, so that no other test finds it.
    (tmp_path / "tenseal.py").write_text("")
    monkeypatch.setitem(sys.modules, "tenseal", types.ModuleType("tenseal"))
    heavy = plugin(tmp_path, monkeypatch, "acmeheavy", "import tenseal")
    with pytest.raises(AssertionError, match="imports tenseal; import it inside the methods"):
        check_component(heavy.Good)
    assert "No module named 'acmegone'" in import_problems("acmegone")[0]


def test_the_kit_knows_installed_components_by_name() -> None:
    check_component("std.clip")
    check_component("std.single_zone")
    with pytest.raises(AssertionError, match=r"no component 'std\.absent' is installed"):
        check_component("std.absent")


def test_the_kit_needs_no_pytest() -> None:
    assert python("import sys, fedplug.testing; assert 'pytest' not in sys.modules").returncode == 0


def test_the_console_script_ends_with_mains_code(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "fedplug"
    result = subprocess.run([script, "check", str(tmp_path / "no.yaml")], capture_output=True, text=True, check=False,
                            env=os.environ | {"COLUMNS": "100"})  # fmt: skip
    assert result.returncode == 1
    assert "there is no such file" in result.stdout


# What a person may get wrong


@pytest.mark.parametrize("name", ["local", "processes"])
def test_show_of_an_engine(monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str) -> None:
    assert call(monkeypatch, "show", name) == 0
    assert capsys.readouterr().out.endswith("It has no options.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["show", "std.clip"], ["schema"]])
def test_a_full_disk_is_an_error_without_a_traceback(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        script = "import sys; from fedplug.cli.main import main; sys.exit(main())"
        result = subprocess.run([sys.executable, "-c", script, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "error: No space left on device: perhaps of the standard output\n"


def test_python_dash_m(good: Path) -> None:
    result = subprocess.run([sys.executable, "-m", "fedplug", "check", str(good)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{good}: ok (")


def test_every_missing_key_is_a_problem_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    file = tmp_path / "missing.yaml"
    file.write_text("".join(GOOD.splitlines(keepends=True)[3:]))
    assert call(monkeypatch, "check", str(file)) == 1
    captured = capsys.readouterr()
    needs = [line.partition(" needs ")[2].split()[0] for line in captured.out.splitlines()]
    assert needs == ["'name'", "'seed'", "'rounds'"]
    assert captured.err == "3 problems\n"


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("extends=nonexistent.yaml", "--set extends: extends takes effect in a file only"),
        ("rounds=true", "rounds=true must be a whole number"),
        ("seed=false", "seed=false must be a whole number"),
        ("min_clients=true", "min_clients=true must be a whole number"),
        ("data.clients=true", "clients=True must be a whole number"),
        ("model={use: std.mlp, hidden: [true]}", "hidden=[True] must be a whole number"),
        ("train={use: std.sgd, lr: true}", "std.sgd: lr=true must be a number"),
        ("rounds=1e23", "rounds=1e+23 is too large"),
        ("rounds=2000000", "rounds=2000000 must be <= 1000000"),
    ],
)
def test_values_that_cannot_be_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, good: Path, assignment: str, complaint: str
) -> None:
    assert call(monkeypatch, "check", str(good), "--set", assignment) == 1
    assert complaint in capsys.readouterr().out


@pytest.mark.parametrize("assignment", ["rounds=1e5", "protect.noised.0.norm=1", "model={use: std.mlp, hidden: [1e1]}"])
def test_whole_numbers_and_numbers_may_be_written_as_each_other(
    monkeypatch: pytest.MonkeyPatch, good: Path, assignment: str
) -> None:
    assert call(monkeypatch, "check", str(good), "--set", assignment) == 0


def test_options_that_are_true_or_false_stay_so(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    """Also where another type is allowed beside bool."""
    assert call(monkeypatch, "check", str(good), "--set", "model={use: std.resnet18, small_input: true}") == 0


def test_a_recipe_that_never_ends_or_is_far_too_long_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    big = tmp_path / "big.yaml"
    big.write_text(GOOD + "#" * 1_000_000)
    assert call(monkeypatch, "check", "/dev/zero", str(big)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "/dev/zero: cannot read the recipe: it is no regular file",
        f"{big}: cannot read the recipe: it has more than 1,000,000 bytes, and no recipe is that long",
    ]


def test_options_that_would_change_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    calls = fake_runs(monkeypatch, 0)
    assert call(monkeypatch, "run", "r.yaml", "--workers", "2") == 1
    assert "--workers 2 changes nothing with --engine local" in capsys.readouterr().err
    assert call(monkeypatch, "resume", "runs/x", "--output", "o") == 2
    assert not calls
