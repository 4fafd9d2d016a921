"""The documentation is run: commands, recipes and Python blocks work, and numbers are those of a run.

Comments above a fenced block say what to do with it:

    <!-- file: NAME -->     the block is a file that the commands of this page can use
    <!-- images: FOLDER --> the block's recipe reads a folder of images, which the test makes
    <!-- wrong -->          a recipe with mistakes, on purpose
    <!-- grid -->           the grid of a sweep, or a comparison, not a recipe
    <!-- exit: 1 -->        the exit code of the block's commands; else 0
    <!-- set: rounds=1 -->  changes, added to a block's commands but `fedplug attack`, to save time
    <!-- same: PATH -->     the block is that file's text; a recipe only has to mean the same
    <!-- needs: MODULE -->  a library that only an extra brings; the block runs where it is installed
    <!-- session: NAME -->  blocks of one session run from top to bottom in one folder: files are written when it is
                            their turn, and `cd`, `pip install -e` and `pytest` do what they do in a shell

In expected output `...` matches anything. Digits of a run's output are not compared, since its noise is secret.
Every recipe runs for a round. Commands without output, in indented blocks and blocks of text, run as far as they can
here; `NOT_RUN` in `doc_pages.py` lists those that no test runs, with the reasons.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import linecache
import math
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import FENCE, NOT_RUN, PAGES, ROOT, Commands, plain_commands
from fedplug import gaussian_epsilon, gaussian_noise_multiplier
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.workshop import default_set
from fedplug_lab import compare
from fedplug_lab.grid import Contest, read_contest
from fedplug_lab.sites import write_sites
from fedplug_lab.study import Study
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_terminal import main as cli
from PIL import Image
from scripts import script

_PARTS = ("writing-a-plugin", "plugins/links", "plugins/learning", "plugins/around")
TUTORIAL = [ROOT / f"docs/{name}.md" for name in _PARTS]
"""The pages on the example plugin, in the order in which they define its files."""

# Pages show the output of a run, including its report.
pytestmark = pytest.mark.usefixtures("reports", "_short_attacks")


@dataclasses.dataclass(frozen=True)
class Fenced:
    """A fenced block: its place, its language, its text, and the comments above it."""

    page: Path
    line: int
    language: str
    text: str
    directives: dict[str, str]

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fenced_blocks(page: Path) -> list[Fenced]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        said = re.findall(r"<!--\s*(\w+)(?::\s*(.*?))?\s*-->", match[1])
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Fenced(page, line, match[2], match[3], dict(said)))
    return found


ALL = [block for page in PAGES for block in fenced_blocks(page)]
BLOCKS = [block for block in ALL if "session" not in block.directives]
SESSIONS = sorted({block.directives["session"] for block in ALL if "session" in block.directives})
RECIPES = [b for b in BLOCKS if b.language == "yaml" and not {"wrong", "grid"} & b.directives.keys()]
CONSOLES = [block for block in BLOCKS if block.language == "console"]


PLAIN = [found for page in PAGES if page.name != "cli.md" for found in plain_commands(page)]


def params(blocks: list[Any]) -> Any:
    return [pytest.param(block, id=block.id) for block in blocks]


# -- a place in which a page's commands run ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe that `make run` runs, with one epoch in a round."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = ROOT / "recipes/paraaegis-dynamic.yaml"
    command = f"fedplug run {shlex.quote(str(recipe))} --set train.epochs=1 --output {shlex.quote(str(folder))}"
    code, output = call(command)
    assert code == 0, output
    (run,) = folder.iterdir()
    (run / "output.txt").write_text(output.replace(str(folder), "runs"), encoding="utf-8")
    return run


@pytest.fixture
def _short_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default set starts no further target after half a second, where it says how many it left, and searches are
    short.
    """
    monkeypatch.setattr(default_set, "MINUTES", 1 / 120)
    monkeypatch.setitem(default_set.SEARCH, "iterations", 10)


SHIPPED = ("recipes", "plugins-contrib")


def texts_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the repository's recipes and example plugins, in which nothing that a page shows writes."""
    folder = tmp_path_factory.mktemp("shipped")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    before = texts_in(folder)
    yield folder
    assert texts_in(folder) == before


@pytest.fixture
def workspace(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nothing but the repository's recipes and example plugins, in which the test runs."""
    for name in SHIPPED:
        (tmp_path / name).symlink_to(shipped / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    # MLflow takes seconds to make the tables of a database; the tests of its tracker have one.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tmp_path


def lay_out(page: Path, folder: Path) -> None:
    """Writes the files that a page's blocks define."""
    for block in BLOCKS:
        if block.page == page and "file" in block.directives:
            write_file(block, folder)
            if images := block.directives.get("images"):
                write_images(folder / images)


def write_images(folder: Path) -> None:
    """Two classes of ten grey images each."""
    for shade, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (32, 32), 100 * shade + number).save(folder / name / f"{number}.png")


def write_file(block: Fenced, folder: Path) -> None:
    path = folder / block.directives["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a plugin importable, with metadata and entry points, as `pip install -e` would."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "src" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in members.items())
        for group, members in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(str(folder / "src"))


def forget(package: str) -> None:
    """Another test has different modules under these names."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def acme(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The plugin of the tutorial as pip would install it: importable, with metadata and entry points."""
    for page in TUTORIAL:
        lay_out(page, workspace)
    (workspace / "src/acme/__init__.py").touch()
    install(workspace, monkeypatch)
    yield workspace
    forget("acme")


def call(command: str) -> tuple[int, str]:
    """Runs a `fedplug ...` command in this process. Returns the exit code and the output."""
    words = shlex.split(command)
    assert words[0] == "fedplug"
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, words
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main()
    finally:
        sys.argv = before
    return code, out.getvalue() + err.getvalue()


# -- commands ----------------------------------------------------------------------------------------------------------


def commands(block: Fenced) -> list[tuple[str, list[str]]]:
    """The `$ ` lines of a console block, each with the lines expected below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            assert found, f"{block.id}: output before the first command"
            found[-1][1].append(line.rstrip())
    return found


def pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("..."))


def without_numbers(line: str) -> str:
    """Replaces numbers with their units by one sign, and spaces between columns, which depend on names, by one."""
    line = re.sub(r"(?<=\S) +", " ", line)
    line = re.sub(r"\d+ (?:min|h) (?=\d\d)", "", line)  # a busy machine takes minutes where it took seconds
    return re.sub(r"\d[\d.,]*(?:e[+-]?\d+)?(?:\s(?:B|[kMG]B|ms|s|min))?(?!\w)", "#", line)


def matches(expected: list[str], printed: str, block: Fenced) -> str:
    """Why the output differs from the page; empty if it does not."""
    lines = [line.rstrip() for line in printed.splitlines()]
    body = "\n".join(".*" if line == "..." else pattern(line) for line in expected)
    # A separate line "..." matches any number of lines, even none.
    body = body.replace("\n.*\n", "\n(?:.*\n)*?").removesuffix("\n.*")
    if re.match(body, "\n".join(lines)):
        return ""
    return f"{block.id} expects\n" + "\n".join(expected) + "\n--- printed\n" + "\n".join(lines)


def matches_run(expected: list[str], printed: str, block: Fenced) -> str:
    """The same for a run, whose numbers differ: every line of the page is a line of the output, except for numbers."""
    lines = [line.rstrip() for line in printed.splitlines()]
    for line in expected:
        if line == "...":
            continue
        if not any(re.fullmatch(pattern(without_numbers(line)), without_numbers(found)) for found in lines):
            return f"{block.id} expects\n{line}\n--- printed\n" + "\n".join(lines)
    return ""


@pytest.mark.parametrize("block", params([block for block in CONSOLES if block.page not in TUTORIAL]))
def test_commands_print_what_the_page_says(block: Fenced, workspace: Path, plain_run: Path) -> None:
    lay_out(block.page, workspace)
    check_commands(block, plain_run)


@pytest.mark.parametrize("block", params([block for block in CONSOLES if block.page in TUTORIAL]))
def test_commands_with_the_example_plugin_installed(block: Fenced, acme: Path) -> None:
    check_commands(block, None)


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_runs_from_top_to_bottom(session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, ["src", os.environ.get("PYTHONPATH")])))
    packages = []
    for block in ALL:
        if block.directives.get("session") != session:
            continue
        if "file" in block.directives:
            write_file(block, Path())
            continue
        for command, expected in commands(block):
            for package in packages:  # a file may have been rewritten
                forget(package)
            if command.startswith("cd "):
                monkeypatch.chdir(command.removeprefix("cd "))
            elif command.startswith("pip install "):
                install(Path.cwd(), monkeypatch)
                packages += [path.name for path in Path("src").iterdir()]
            elif command == "pytest":
                assert pytest.main(["-q", "-p", "no:cacheprovider"]) == 0
            else:
                check_command(command, expected, block, None)


def without_shell(command: str) -> str:
    """A command without the shell's handling of the output."""
    return re.split(r" [>|] ", command)[0]


def check_commands(block: Fenced, plain_run: Path | None) -> None:
    fedplug_commands = [(command, expected) for command, expected in commands(block) if command.startswith("fedplug ")]
    assert fedplug_commands, f"{block.id} shows no fedplug command; write it as a plain block"
    for command, expected in fedplug_commands:
        check_command(without_shell(command), expected, block, plain_run)


def check_command(command: str, expected: list[str], block: Fenced, plain_run: Path | None) -> None:
    if re.fullmatch(r"fedplug run (recipes/)?paraaegis-dynamic(\.yaml)?", command) and plain_run:
        why = matches_run(expected, (plain_run / "output.txt").read_text(encoding="utf-8"), block)
        assert not why, why
        return
    running = re.match(r"fedplug (?:run|resume|attack|compare|search) ", command) is not None
    if (extra := block.directives.get("set")) and not command.startswith("fedplug attack "):
        command += "".join(f" --set {shlex.quote(change)}" for change in extra.split())
    if re.match(r"fedplug (compare|sweep) ", command) and "--jobs" not in command:
        command += " --jobs 1"  # in this process, which has imported the libraries; test_compare.py has several
    named = re.search(r"runs/(\S+)-\d{8}-\d{6}", command)
    own = sorted(Path("runs").glob(f"{named[1]}-*")) if named else []
    if own:  # a command before it made this run
        command = re.sub(r"runs/\S+", shlex.quote(str(own[-1])), command)
    elif command.startswith("fedplug attack ") and "--attack" in command and "--target" not in command:
        command += " --target 1"
    if plain_run and not own and command.startswith(("fedplug resume ", "fedplug attack ")):
        command = re.sub(r"runs/\S+", shlex.quote(str(shutil.copytree(plain_run, Path("runs/copy")))), command)
    code, output = call(command)
    assert code == int(block.directives.get("exit", 0)), f"{block.id}: {command} exits with {code}:\n{output}"
    why = matches_run(expected, output, block) if running else matches(expected, output, block)
    assert not (expected and why), why


@pytest.mark.parametrize("block", params(PLAIN))
def test_commands_without_output_run(
    block: Commands, workspace: Path, plain_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow commands run for one round. Commands with many runs, that need data, or whose recipe `test_recipes.py` runs,
    run only as far as the check, and measure no round.
    """
    monkeypatch.setattr(Study, "tell_estimates", lambda study, jobs: None)
    # Of a shipped comparison the first case alone: test_recipes.py checks all of them.
    monkeypatch.setattr(compare, "read_contest", lambda path: with_one_case(read_contest(path)))
    shutil.copy("recipes/paraaegis-dynamic.yaml", "recipe.yaml")
    (grid,) = (one.text for one in BLOCKS if one.directives.get("file") == "grid.yaml")
    Path("grid.yaml").write_text(grid, encoding="utf-8")
    for command in block.commands:
        if command.startswith("cd "):
            os.chdir(command.removeprefix("cd "))
        elif any(re.match(never, command) for never in NOT_RUN):
            for script_file in re.findall(r"[\w./-]+\.py\b", command):
                pages = {one.directives.get("file") for one in BLOCKS}
                assert (workspace / script_file).name in pages | {path.name for path in ROOT.glob("*/*.py")}
        else:
            code, output = call(shortened(without_shell(command), plain_run))
            assert code == 0, f"{block.id}: {command} exits with {code}:\n{output}"


def with_one_case(contest: Contest) -> Contest:
    return dataclasses.replace(contest, cases=contest.cases[:1])


def shortened(command: str, plain_run: Path) -> str:
    """The same, in seconds and without a folder of data."""
    command, needs_data = re.subn(r" --data \S+", "", command)
    verb = command.split()[1]
    if verb in ("sweep", "compare", "search"):
        # With one seed: the others give the same recipes but for a number. test_recipes.py checks shipped grids.
        command = re.sub(r"(--seeds \d+)( \d+)+", r"\1", command)
        return command if "--dry-run" in command else f"{command} --dry-run"
    if verb == "verify":
        return re.sub(r"runs/[^/\s]+", "runs/copy", command)
    if verb == "attack" and "--attack" in command and "--target" not in command:
        command += " --target 1"
    if verb in ("attack", "report", "evidence"):
        return re.sub(r"runs/\S+", shlex.quote(str(shutil.copytree(plain_run, Path("runs/copy")))), command)
    if verb != "run":
        return command
    if needs_data or re.fullmatch(r"fedplug run recipes/(baselines/)?[\w-]+\.yaml( --set \S+)*", command):
        return command.replace("fedplug run", "fedplug check", 1)  # test_recipes.py runs the recipes of these folders
    sets = [word for change in short(load_recipe(Path(command.split()[2]))) for word in ("--set", change)]
    return shlex.join([*shlex.split(command), *sets, "--without", "lab.report"])


FEW_CLIENTS = 12


def short(recipe: Recipe) -> list[str]:
    """Settings that make a run short: one round of one epoch, narrow layers, one sample where scores are means of
    samples, and in an attack one probe of one client and a few steps.
    """
    plain = recipe.to_plain()
    scorers = {f"score_parameters.{n}": each for n, each in enumerate(plain["score_parameters"])}
    sampled = [f"{at}.samples=1" for at, each in scorers.items() if "samples" in each]
    once = ["rounds=1", *(["train.epochs=1"] if "epochs" in plain["train"] else []), *sampled]
    if plain["data"]["use"] in ("fedre.documents", "fedre.receipts"):  # which are drawn
        once += ["data.train_count=48", "data.test_count=8"]
    if plain["model"]["use"] == "std.mlp":
        once.append(f"model.hidden={[16 for _ in plain['model']['hidden']]}")
    meet = plain["min_clients"] > FEW_CLIENTS  # in pairs
    if meet or ("attack" in recipe.sections and plain["data"]["clients"] > FEW_CLIENTS):
        once += [f"data.clients={FEW_CLIENTS}", f"min_clients={min(plain['min_clients'], FEW_CLIENTS - 2)}"]
    if "attack" not in recipe.sections:
        return once
    attack = plain["attack"]
    probe = ["attack.probe.batches=1"] if attack["probe"] else []
    steps = [f"attack.attacks.{n}.iterations=2" for n, each in enumerate(attack["attacks"]) if "iterations" in each]
    return [*once, "attack.rounds=[1]", "attack.targets=[0]", *probe, *steps]


def test_every_reason_not_to_run_a_command_is_needed() -> None:
    shown = [command for block in PLAIN for command in block.commands]
    unused = [never for never in NOT_RUN if not any(re.match(never, command) for command in shown)]
    assert not unused


# -- recipes and Python ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", params([block for block in BLOCKS if "same" in block.directives]))
def test_quoted_files_are_quoted_as_they_are(block: Fenced) -> None:
    if block.language != "yaml":
        assert block.text == (ROOT / block.directives["same"]).read_text(encoding="utf-8")


COPIED = ROOT / "docs/reference/recipes"
"""Pages of shipped recipes, which docs/generate.py copies and test_recipes.py runs."""


@pytest.mark.parametrize(
    "block", params([block for block in RECIPES if block.page not in TUTORIAL and block.page.parent != COPIED])
)
def test_recipes_on_pages_run(block: Fenced, workspace: Path) -> None:
    lay_out(block.page, workspace)  # a recipe may name a file of its page
    path = workspace / "recipe.yaml"
    path.write_text(block.text, encoding="utf-8")
    recipe = run_for_a_round(path)
    if original := block.directives.get("same"):
        assert recipe.digest == load_recipe(workspace / original).digest


def test_every_recipe_of_the_example_plugin_runs(acme: Path) -> None:
    blocks = [block for block in RECIPES if block.page in TUTORIAL]
    assert blocks
    for block in blocks:
        run_for_a_round(acme / block.directives["file"])


def run_for_a_round(path: Path) -> Recipe:
    """Runs a recipe, shortened but otherwise unchanged. Returns the unchanged recipe."""
    recipe = load_recipe(path)
    settings = Settings(output=Path("runs-of-recipes"), device="cpu", quiet=True, muted=("lab.report",))
    if recipe.data.agreed is not None:
        list(write_sites(path, Path("at-sites"), "{use: std.digits, partition: std.iid}", (), Settings()))
        settings = settings.replace({"data": Path("at-sites")})
    code, folder = execution.start(load_recipe(path, short(recipe)), settings)
    assert code == 0
    (row,) = read_rows(folder)
    assert row.clients.answered == row.clients.asked or recipe.sections  # which may have clients drop out
    return recipe


def test_the_example_plugin_passes_its_own_tests(acme: Path) -> None:
    module = script(acme / "tests/test_acme.py")
    for name in module.COMPONENTS:
        module.test_conforms(name)


def test_the_example_negotiation_agrees_on_whole_layers(acme: Path) -> None:
    """Two of three layers are encrypted at every client, and the clients remember their scores."""
    from toy_protocol import read_clients

    code, output = call("fedplug run layers.yaml --output layer-runs")
    assert code == 0, output
    (run,) = Path("layer-runs").iterdir()
    shares = [json.loads(line)["zones"]["encrypted"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    sizes = [64 * 32 + 32, 32 * 16 + 16, 16 * 10 + 10]
    pairs = {(sum(sizes) - size) / sum(sizes) for size in sizes}
    assert len(shares) == 2
    assert all(any(math.isclose(share, pair) for pair in pairs) for share in shares)
    for state in read_clients(run / "checkpoint/round-0002").values():
        assert len(state["state"]["acme.secret_layers"]["moved"]) == len(sizes)


SCRIPTS = [block for block in BLOCKS if block.language == "python" and not {"file", "same"} & set(block.directives)]


@pytest.mark.parametrize("block", params([block for block in SCRIPTS if block.page.name != "python.md"]))
def test_python_on_pages_runs(
    block: Fenced, workspace: Path, plain_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if library := block.directives.get("needs"):
        pytest.importorskip(library, reason=f"only an extra brings {library}")
    shutil.copytree(plain_run, workspace / "runs" / plain_run.name)
    lay_out(block.page, workspace)
    exec(compile(block.text, block.id, "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    # It prints the parts it took from the existing run, or the place of its output.
    assert any(folder.name in shown for folder in (workspace / "runs").iterdir())


def test_the_page_on_python_is_one_session(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, Any] = {"__name__": "__main__"}
    for block in SCRIPTS:
        if block.page.name == "python.md":  # a notebook keeps the text of its cells: `fedplug.run` looks it up there
            text = block.text.replace("rounds=3", "rounds=2")
            linecache.cache[block.id] = (len(text), None, text.splitlines(keepends=True), block.id)
            exec(compile(text, block.id, "exec", dont_inherit=True), session)
    shown = capsys.readouterr().out
    assert "round 2/2" in shown
    assert "No meaningful guarantee" in shown
    assert (session["run"].folder / "report.html").is_file()
    assert "class Net" in (session["own"].folder / "session_model.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=lambda path: path.name)
def test_notebooks_run_and_are_kept_without_outputs(
    path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    session: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], f"cell {number} holds outputs; clear them before you commit"
            assert cell["execution_count"] is None
            source = "".join(cell["source"]).replace("rounds=3", "rounds=1")
            exec(compile(source, f"{path.name}, cell {number}", "exec"), session)
    assert "round 1/1" in capsys.readouterr().out
    assert session["run"]._repr_html_().startswith("<div>")


# -- names, links, tables, numbers -------------------------------------------------------------------------------------


def test_numbers_quoted_from_the_ledger(plain_run: Path) -> None:
    pages = ("edges/differential-privacy", "papers/paraaegis", "reading-a-report", "first-run")
    read = {page: " ".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8").split()) for page in pages}
    text = read["edges/differential-privacy"]
    ledger = json.loads((plain_run / "ledger.json").read_text())
    zone = ledger["epsilons"]["zero_out"]["epsilon_exact"]
    aggregator = ledger["verdict"]["lines"][0]["epsilons"]["zero_out"]["epsilon_exact"]
    assert f"ε = {zone:.2f}, while the server's line says ε = {aggregator:.2f}" in text
    # One round too many, of 30 that were planned for epsilon 8.
    repeated = gaussian_epsilon(gaussian_noise_multiplier(8, 1e-5) * math.sqrt(30 / 31), 1e-5)
    assert f"ended at {repeated:.2f}" in text
    multiplier = ledger["zones"]["noised"]["noise_multiplier"][0]
    size = ledger["log"][0]["zones"]["noised"]["size"]
    assert f"multiplier is {multiplier:.2f}" in text
    assert f"{size:,.0f} noised scalars" in text
    assert f"norm of about {multiplier * math.sqrt(size):.0f}" in text
    summary = json.loads((plain_run / "summary.json").read_text())
    largest = max(sum(counts) for counts in summary["class_distribution"]["clients"].values())
    assert f"({largest} at the largest client)" in read["papers/paraaegis"]
    assert f"ε = {zone:.0f}, the server {aggregator:.2f}" in read["reading-a-report"]
    assert f"is worth ε = {zone:.0f} by itself" in read["first-run"]
    assert f"as much as ε = {aggregator:.2f} allows" in read["first-run"]
