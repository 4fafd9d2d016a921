"""Every recipe of the repository is valid, and those that fit a test really run."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from fedplug.api.blocks import Layout
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug_lab.grid import combinations, read_contest, read_grid, runs_of
from fedplug_lab.sites import write_sites
from fedplug_ledger.charging import reveals_of
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.rows import Row
from fedplug_runs.settings import Settings

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "recipes/paper/paraaegis"
TOP = sorted((ROOT / "recipes").glob("*.yaml"))
SMALL = sorted((PAPER / "fashion-mnist").glob("*.yaml"))
FOLDERS = ("recipes", "plugins/*/recipes", "plugins-contrib/*/src/*/recipes")
FILES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.yaml"))
GRIDS = [path for path in FILES if path.name.endswith(".grid.yaml")]
COMPARISONS = [path for path in FILES if path.parent.name == "comparisons"]
ALL = [path for path in FILES if path not in (*GRIDS, *COMPARISONS)]
BASELINES = sorted((ROOT / "recipes/baselines").glob("*.yaml"))
SHIELD = sorted((ROOT / "recipes/paper/selectiveshield").glob("*[a-z].yaml"))
FAS = [path for path in sorted((ROOT / "recipes/paper/fas").glob("*.yaml")) if path not in GRIDS]
CATEGORIES = sorted((ROOT / "recipes/paper/sensecrypt").glob("*-small.yaml"))
IMAGENETTE, FASHION_MNIST = "imagenette", "fashion-mnist"


@functools.cache
def installed() -> Catalog:
    """The installed components, read once."""
    return Catalog.discover()


def loaded(path: Path, sets: Sequence[str] = ()) -> Recipe:
    return load_recipe(path, sets, installed())


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def row(folder: str, name: str) -> Recipe:
    return loaded(PAPER / folder / f"{name}.yaml")


def test_sensecrypts_models_have_as_many_parameters_as_the_paper_prints() -> None:
    folder = ROOT / "recipes/paper/sensecrypt"
    for name, shape, count in (("cifar10-both", (3, 32, 32), 124_534), ("both", (1, 28, 28), 50_890)):
        use = loaded(folder / f"{name}.yaml").model
        entry = installed().get("model", use.use)
        assert entry is not None
        assert entry.load()(use.options).build(shape, 10, 0, "cpu").layout.size == count


@pytest.mark.parametrize("path", [path for path in ALL if "serial" in path.name], ids=ids)
def test_serial_recipes_hold_their_noise(path: Path) -> None:
    """The range is such that the ledger credits the noise of all clients."""
    recipe = loaded(path)
    clip, noise, seal = (use.options for use in recipe.protect["encrypted"])
    assert seal.range >= clip.norm * (1 + 9 * noise.multiplier(0, recipe.rounds))  # type: ignore[attr-defined]


# -- the files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=ids)
def test_is_right(path: Path) -> None:
    recipe = loaded(path)
    in_paper = PAPER in path.parents or path.parent.parent == PAPER.parent
    assert recipe.name == (f"{path.parent.name}-{path.stem}" if in_paper else path.stem)


def test_every_negotiation_says_who_sees_its_plans() -> None:
    """The ledger adds a separate line for those that do not. None of ours needs it."""
    seen = set()
    for recipe in map(loaded, ALL):
        composition = Composition(recipe)
        facts = facts_of(composition, Layout.of([("weight", (1000,))]), 0)
        assert "plans of clients" not in [shown.what for shown in reveals_of(recipe, composition, facts)], recipe.name
        if not facts.plans_are_public:
            seen.add(recipe.negotiate_mask.use)
    assert {"paraaegis.vote", "selectiveshield.consensus", "sensecrypt.select", "baselines.maskcrypt"} <= seen


RARE_GRIDS = {f"{name}.grid.yaml" for name in ("cifar10", "cifar100", "fashion-mnist", "stl10", "svhn")}
"""Grids that differ from another one of the paper in the data set, and in numbers."""


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.slow if p.name in RARE_GRIDS else (), id=ids(p)) for p in GRIDS]
)
def test_every_combination_of_a_grid_is_right(path: Path) -> None:
    recipe = path.with_name(path.name.replace(".grid.yaml", ".yaml"))
    found = combinations(recipe, read_grid(path, [1]), (), installed())
    assert len({one.recipe.digest for one in found}) == len(found)
    assert len(found) > 1
    for stated in re.findall(r"^#.*?(\d+) runs", path.read_text(), re.MULTILINE):
        assert int(stated) == len(found)


@pytest.mark.parametrize("path", COMPARISONS, ids=ids)
def test_every_comparison_asks_a_question_of_recipes_that_are_right(path: Path) -> None:
    """With one seed: the others give the same recipes but for a number."""
    contest = read_contest(path)
    assert contest.question.endswith("?")
    for runs in runs_of(dataclasses.replace(contest, seeds=contest.seeds[:1]), (), installed()):
        assert contest.baseline in {one.case for one in runs}
        assert len(runs) == len(contest.entries)


@pytest.mark.parametrize("path", [*ALL, *COMPARISONS], ids=ids)
def test_begins_with_what_it_shows(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > 120]
    comment = " ".join(lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))])
    if path.parent.parent == PAPER and path.stem != "base":
        assert re.match(r"# Table [123], ", comment)
    else:
        assert "Expect: " in comment
        assert "Change: " in comment


# -- ParaAegis' tables -------------------------------------------------------------------------------------------------


def test_both_folders_hold_the_same_rows() -> None:
    rows = {folder: {path.stem for path in (PAPER / folder).glob("*.yaml")} for folder in (IMAGENETTE, FASHION_MNIST)}
    assert rows[IMAGENETTE] == rows[FASHION_MNIST]
    kinds = [name.partition("-")[0] for name in rows[IMAGENETTE]]
    assert {kind: kinds.count(kind) for kind in ("static", "dynamic", "strategy", "clip", "clients")} == {
        "static": 4, "dynamic": 4, "strategy": 3, "clip": 4, "clients": 4,
    }  # fmt: skip


def test_the_readme_names_every_row_once() -> None:
    text = (PAPER / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    named = [name for row in rows for name in re.findall(r"`([\w.-]+\.yaml)`", row)]
    assert sorted(named) == sorted(path.name for path in (PAPER / IMAGENETTE).glob("*.yaml") if path.stem != "base")


@pytest.mark.parametrize("path", sorted(PAPER.glob("*/*.yaml")), ids=ids)
def test_a_row_is_what_its_name_says(path: Path) -> None:
    """All else is as the paper prints: batch 32, learning rate 0.01, clipping threshold 1, one epsilon everywhere."""
    recipe = loaded(path)
    numbers = {key: float(value) for key, value in re.findall(r"-(p|g)?([\d.]+)", path.stem)}
    kind, found = path.stem.partition("-")[0], recipe.components
    assert (recipe.train.options.batch_size, recipe.train.options.lr) == (32, 0.01)  # type: ignore[attr-defined]
    clips = [use.options.norm for use in found.values() if use.use == "std.clip"]  # type: ignore[attr-defined]
    assert clips in ([], [numbers[""] if kind == "clip" else 1.0])
    noises = [use.options for use in found.values() if use.use in ("std.gaussian", "baselines.lwe", "baselines.nbafl")]
    assert len(noises) == len(clips) + (kind == "nbafl")
    for noise in noises:
        assert noise.epsilon == 8  # type: ignore[attr-defined]
        assert getattr(noise, "decay", 1.0) == (0.9 if kind == "varying" else 1.0)
    clients = {IMAGENETTE: 10, FASHION_MNIST: 20}[path.parent.name]
    assert recipe.clients == (numbers[""] if kind == "clients" else clients)
    if "paraaegis.vote" in found:
        vote, scorer = found["paraaegis.vote"].options, found["paraaegis.magnitude"].options
        expected = (numbers.get("p", 0.1), numbers.get("g", 1.0))
        assert (vote.ratio, vote.decay) == expected  # type: ignore[attr-defined]
        strategy = path.stem.partition("-")[2] if kind == "strategy" else "max"
        assert scorer.strategy == strategy  # type: ignore[attr-defined]
    else:
        zone = {"fedavg": "clear", "dp": "noised", "varying": "noised", "ckks": "encrypted", "serial": "encrypted",
                "nbafl": "noised", "stevens": "encrypted"}  # fmt: skip
        assert list(recipe.protect) == [zone[kind]]


def test_the_data_is_the_papers() -> None:
    assert (row(IMAGENETTE, "base").data.use, row(IMAGENETTE, "base").model.use) == ("std.imagenette", "std.resnet18")
    assert (row(FASHION_MNIST, "base").data.use, row(FASHION_MNIST, "base").model.use) == (
        "std.fashion_mnist", "std.mlp",
    )  # fmt: skip


@pytest.mark.parametrize("setting", ["data.partition={use: std.iid}", "data.partition.alpha=1"])
def test_the_other_partitions_of_table_1_are_one_setting(setting: str) -> None:
    for folder in (IMAGENETTE, FASHION_MNIST):
        recipe = loaded(PAPER / folder / "static-p0.1.yaml", [setting])
        assert recipe.data.partition.to_plain() != row(folder, "static-p0.1").data.partition.to_plain()


# -- runs --------------------------------------------------------------------------------------------------------------


FEW_DOCUMENTS = [
    "data.size=48", "data.test_count=8", "data.train_count=80", "data.clients=3", "score_parameters.0.samples=1",
    "aggregate.samples=1",
]  # fmt: skip
"""For a U-Net, which is slow."""


FEW_CLIENTS = [
    "data={use: std.digits, clients: 12, partition: {use: std.iid}, features: oriented_gradients}", "min_clients=10"
]  # fmt: skip
"""For masks with neighbours, on the data that is bundled."""
FEATURES = (
    "{use: features.projection, size: 20, length: 5, clients: 12, partition: {use: std.iid}, "
    "of: {use: features.scattering, of: {use: std.digits, train_size: 200, test_size: 100}}}"
)


FEW_PIECES = ["data.train_size=80", "data.test_size=20"]
"""Of a text."""


def run_small(path: Path, folder: Path, *sets: str) -> tuple[Recipe, list[Row]]:
    once = ["train.epochs=1"] if hasattr(loaded(path).train.options, "epochs") else []
    recipe = loaded(path, ["rounds=2", *once, *sets])
    code, run_folder = execution.start(recipe, Settings(output=folder, device="cpu", quiet=True), installed())
    assert code == 0
    return recipe, read_rows(run_folder)


def assert_sound(recipe: Recipe, rows: list[Row]) -> None:
    assert [row.round for row in rows] == [1, 2]
    for number, row in enumerate(rows):
        assert row.clients.answered == row.clients.asked
        assert row.leading is not None
        assert 0 <= row.leading <= (1 if row.leads.name == "accuracy" else 260)  # RMSE, perplexity of bytes
        share = row.zones["encrypted"]
        vote = recipe.components.get("paraaegis.vote")
        if vote is not None:
            expected = vote.options.ratio * vote.options.decay**number  # type: ignore[attr-defined]
            assert share == pytest.approx(expected, abs=3e-3)  # whole scalars, of a few hundred
        elif "encrypted" not in recipe.protect:
            assert share == 0
        elif recipe.negotiate_mask.use in ("std.single_zone", "baselines.batchcrypt"):
            assert share == 1
        elif recipe.negotiate_mask.use == "sensecrypt.select":  # individual masks touch every block of a small model
            assert share == 1 or (0 < share < 1 and "std.bfv" not in recipe.components)
        else:  # the clients' masks decide
            assert 0 < share < 1


MARKS = {"chest-xray-labels": pytest.mark.data, "breast-cancer-dp-sgd": pytest.mark.slow}
"""Recipes of the first folder whose data is not bundled, or that `plugins/std/tests/test_std_tasks.py` runs too."""


@pytest.mark.parametrize("path", [pytest.param(path, marks=MARKS.get(path.stem, ()), id=ids(path)) for path in TOP])
def test_runs(path: Path, tmp_path: Path) -> None:
    # Scalar Paillier takes 15 ms per scalar.
    few = {
        "sensecrypt-phe": ["model.hidden=[]", "negotiate_mask.budget=0.02"],
        "fedre": FEW_DOCUMENTS,
        "secagg-digits": FEW_CLIENTS,
        "secagg-distributed-dp": FEW_CLIENTS,
        "secagg-ten-thousand": FEW_CLIENTS,
        "public-features": [f"data={FEATURES}", "min_clients=10"],
        "public-features-hundred": [f"data={FEATURES}", "min_clients=10"],
        "dp-ftrl": ["data={use: std.digits, clients: 20, partition: {use: std.iid}}", "min_clients=2"],
        "bandmf": [
            "data={use: std.digits, clients: 20, partition: {use: std.iid}}", "min_clients=2", "sampling.rate=0.25",
        ],
        "gpt-base": ["model.width=16", "model.heads=2", *FEW_PIECES],
        "gpt-lora-central-dp": [*FEW_PIECES, "data.clients=20"],
        "gpt-lora-vote-bfv": FEW_PIECES,
        "threshold-distributed-dp": [],
        "user-dp-sgd": [],
        "trimmed-mean": [*FEW_CLIENTS, "aggregate.f=1"],
        "chest-xray-labels": ["data.image_size=16", "data.train_size=90", "data.test_size=45"],
    }.get(path.stem, ["model.hidden=[32]"])
    assert_sound(*run_small(path, tmp_path, *few))


@pytest.mark.parametrize(
    "path",
    # The tests of DP-SGD itself run its recipe too.
    [pytest.param(path, marks=pytest.mark.slow) if path.stem == "dp-sgd" else path for path in BASELINES],
    ids=ids,
)
def test_baselines_run(path: Path, tmp_path: Path) -> None:
    hidden = [] if path.stem in ("batchcrypt", "paillier-fedavg") else [16]  # Paillier takes 15 ms for some scalars
    assert_sound(*run_small(path, tmp_path, f"model.hidden={hidden}"))


ON_DIGITS = [*SMALL, *FAS, *(path for path in SHIELD if "." not in path.stem)]
ATTACKED = [path for path in ON_DIGITS if re.search("attack|insider", path.stem)]  # attacks have separate tests
ALIKE = [path for path in SMALL if path.stem.partition("-")[0] in ("static", "dynamic", "clip", "clients")]
"""Rows that differ in a number from others of their kind."""
FIRST = {path.stem.partition("-")[0]: path for path in reversed(ALIKE)}
RARELY = [*ATTACKED, *(path for path in ALIKE if path not in FIRST.values())]


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.slow if path in RARELY else (), id=ids(path)) for path in ON_DIGITS]
)
def test_runs_on_digits(path: Path, tmp_path: Path) -> None:
    data = "data={use: std.digits, clients: 3, train_size: 300, partition: {use: std.iid}}"
    few = [data, "model={use: std.mlp, hidden: [16]}"]
    if path.stem == "stevens":  # its shares are those of sixteen clients
        few += ["min_clients=3", "protect.encrypted.1.threshold=2", "protect.encrypted.1.packing=1"]
    assert_sound(*run_small(path, tmp_path, *few))


def test_the_task_of_fedre_runs_without_a_data_folder(tmp_path: Path) -> None:
    _, rows = run_small(ROOT / "recipes/paper/fedre/documents.yaml", tmp_path, *FEW_DOCUMENTS[:4])
    assert list(rows[-1].figures) == ["IoU", "precision", "recall", "F-score"]


@pytest.mark.parametrize("path", CATEGORIES, ids=ids)
def test_scenarios_run_on_digits(path: Path, tmp_path: Path) -> None:
    clients, partition = loaded(path).clients, loaded(path).data.partition
    data = f"data={{use: std.digits, clients: {clients}, partition: {json.dumps(partition.to_plain())}}}"
    assert_sound(*run_small(path, tmp_path, data, "model.hidden=[16]"))


FEDERATION = sorted((ROOT / "recipes/federation").glob("*.yaml"))
HOSPITALS = "{use: std.pneumonia_mnist, train_size: 60, test_size: 40, partition: std.iid}"


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory, data_root: str) -> Path:
    """The chest X-rays as five hospitals have them, each in its own folder."""
    folder = tmp_path_factory.mktemp("hospitals")
    list(write_sites(FEDERATION[0], folder, HOSPITALS, (), Settings(data=Path(data_root))))
    return folder


@pytest.mark.data
@pytest.mark.parametrize("path", FEDERATION, ids=ids)
def test_federations_run_on_one_machine(path: Path, hospitals: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path, ["rounds=2", "train.epochs=1", "model={use: std.mlp, hidden: [16]}"])
    settings = Settings(output=tmp_path, device="cpu", quiet=True, data=hospitals)
    code, folder = execution.start(recipe, settings)
    assert code == 0
    assert_sound(recipe, read_rows(folder))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["class_distribution"] == {"classes": ["normal", "pneumonia"], "clients": {}}
