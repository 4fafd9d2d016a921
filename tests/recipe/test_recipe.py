"""Recipes: YAML with positions, names and references, extends, --set, the digest, and every complaint at its place."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fedplug import Aggregator, Field, Negotiation, Options, hookimpl
from fedplug.api.errors import RecipeError
from fedplug.recipe import yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe, load_recipe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GOOD = """\
name: two-zones
description: for the tests
seed: 7
rounds: 3
data: {use: std.digits, clients: 4, partition: {use: dirichlet, alpha: 0.5}}
model: {use: std.mlp, hidden: [16, 8]}
train: std.sgd
score_parameters: [{use: std.size}]
negotiate_mask: {use: acme.vote, ratio: 0.25}
protect:
  encrypted: [{use: std.ckks}]
  noised:    [{use: std.clip, norm: 1e-2}, {use: std.gaussian, epsilon: 8}]
aggregate: std.mean
postprocess: {encrypted: [std.ckks]}
"""


def write(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def problems(path: Path, catalog: Catalog, *sets: str) -> list[str]:
    """The problems of a recipe file, with the folder cut off."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, sets, catalog)
    return [problem.replace(f"{path.parent}/", "") for problem in caught.value.problems]


def changed(plain: dict[str, Any], catalog: Catalog, **changes: Any) -> list[str]:
    """The problems of plain data with some sections replaced."""
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain | changes, catalog)
    return caught.value.problems


# YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        ("1e5", 1e5),
        ("-2E+3", -2000.0),
        (".5", 0.5),
        ("5.", 5.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+7", 7),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("2020-01-01", "2020-01-01"),
        ("'1'", "1"),
        ("=", "="),
        ("!!str 5", "5"),
        ("", None),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    source = yaml_source.read_text(f"x: {text}", "f")
    assert source.problems == []
    assert source.data == {"x": value}
    assert type(source.data["x"]) is type(value)


def test_positions_of_keys_and_values() -> None:
    source = yaml_source.read_text("a: 1\nb:\n  - x\n  - {c: d}\n", "f")
    assert str(source.where(("a",), key=True)) == "f:1:1"
    assert str(source.where(("a",))) == "f:1:4"
    assert str(source.where(("b", 1))) == "f:4:5"
    assert str(source.where(("b", 1, "c"), key=True)) == "f:4:6"
    assert str(source.where(("b", 1, "c"))) == "f:4:9"
    assert str(source.where(("b", 1, "absent"))) == "f:4:5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", r"f:3:1: duplicate key 'a', first given at f:1:1"),
        ("a: {b: 1, b: 2}", r"f:1:11: duplicate key 'b'"),
        ("a: [1\nb: 2", r"f:2:1: not YAML: .*did not find expected|f:2:\d: not YAML"),
        ("a: 'x", r"f:1:\d+: not YAML: .*end of stream"),
        ("a:\n\t- 1", r"f:2:1: not YAML: .*'\\t'"),
        ("a: \x01", r"f:1:4: not YAML: special characters"),
        ("a: !!python/object:os.system x", r"f:1:4: the tag .*python/object.* is not supported"),
        ("a: !secret x", r"f:1:4: the tag !secret is not supported"),
        ("a: &x [*x]", r"f:1:4: an alias refers to the value that contains it"),
        ("1: x", r"f:1:1: a key must be text, not '1'"),
        ("? [a]\n: x", r"f:1:3: a key must be text, not a list"),
        ("b: &b {x: 1}\nc: {<<: *b}", r"f:2:5: merge keys"),
        ("a: 1\n---\nb: 2", r"f:2:1: not YAML: .*another document"),
        ("a: !!int x", r"f:1:4: 'x' cannot be read as int"),
        ("a: *nope", r"f:1:4: not YAML: found undefined alias"),
        ("[" * 5000, r"f: nested too deeply"),
    ],
)
def test_bad_yaml_is_refused_with_its_position(text: str, expected: str) -> None:
    found = [str(problem) for problem in yaml_source.read_text(text, "f").problems]
    assert len(found) == 1
    assert re.match(expected, found[0]), found


def test_aliases_are_understood_but_may_not_explode() -> None:
    assert yaml_source.read_text("a: &x {b: 1}\nc: *x", "f").data == {"a": {"b": 1}, "c": {"b": 1}}
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    assert "use fewer aliases" in str(yaml_source.read_text(bomb, "f").problems[0])


PLAIN_DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\ufeff")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz_.<1e5 ", max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1), PLAIN_DATA, max_size=4))
def test_what_dump_writes_reads_back_unchanged(data: dict[str, Any]) -> None:
    if "'<<'" not in repr(data):  # a merge key is refused, in whatever quotes
        source = yaml_source.read_text(yaml_source.dump(data), "f")
        assert source.problems == []
        assert source.data == data
        assert repr(source.data) == repr(data)  # 1 is not 1.0, and not True


# Names, references, defaults


def test_a_recipe_is_typed(tmp_path: Path, fake_catalog: Catalog) -> None:
    recipe = load_recipe(write(tmp_path, GOOD), (), fake_catalog)
    assert (recipe.name, recipe.rounds, recipe.clients, recipe.min_clients) == ("two-zones", 3, 4, 2)
    assert recipe.partition.use == "std.dirichlet"
    assert recipe.train.options.model_dump() == {"lr": 0.1}
    assert recipe.protect["noised"][0].options.model_dump() == {"norm": 0.01}
    assert recipe.zones == ("encrypted", "noised", "retained", "clear")
    assert (recipe.sampling, recipe.accountant, recipe.buffers, recipe.delta) == (None, None, "local", 1e-5)
    (opener,) = recipe.postprocess["encrypted"]
    assert (opener.name, opener.is_reference) == ("std.ckks", True)
    assert [use.name for use in recipe.uses()] == [*list(recipe.components)[:10], "std.ckks"]


def test_names_are_automatic_unique_and_independent_of_the_order_of_zones(
    plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8}]
    sealed = [{"use": "std.clip", "norm": 2.0}, {"use": "std.ckks"}]
    one = Recipe.from_plain(plain_recipe | {"protect": {"noised": chain, "encrypted": sealed}}, fake_catalog)
    two = Recipe.from_plain(plain_recipe | {"protect": {"encrypted": sealed, "noised": chain}}, fake_catalog)
    assert one.digest == two.digest
    assert [use.name for use in one.protect["encrypted"]] == ["std.clip", "std.ckks"]
    assert [use.name for use in one.protect["noised"]] == ["std.clip@noised", "std.gaussian"]
    # A written name goes first, wherever it stands.
    chain[0]["name"] = "std.clip"
    named = Recipe.from_plain(plain_recipe | {"protect": {"encrypted": sealed, "noised": chain}}, fake_catalog)
    assert [named.protect[zone][0].name for zone in ("encrypted", "noised")] == ["std.clip@encrypted", "std.clip"]
    same_zone = [{"use": "std.clip", "norm": 1.0}, *({"use": "std.clip", "norm": n} for n in (2.0, 3.0))]
    (problem,) = changed(plain_recipe, fake_catalog, protect=plain_recipe["protect"] | {"noised": same_zone})
    assert (
        problem == "recipe.protect.noised.2: another component is named std.clip@noised already; add name: to this one"
    )


def test_plain_data_gives_the_recipe_back(tmp_path: Path, fake_catalog: Catalog) -> None:
    recipe = load_recipe(write(tmp_path, GOOD), ["sampling={rate: 1}", "extensions=[std.spy]"], fake_catalog)
    again = Recipe.from_plain(recipe.to_plain(), fake_catalog)
    assert again == recipe
    assert again.digest == recipe.digest
    path = write(tmp_path, yaml_source.dump(recipe.to_plain()), "resolved.yaml")
    assert load_recipe(path, (), fake_catalog).digest == recipe.digest


def test_the_digest_depends_on_everything_but_the_description(tmp_path: Path, fake_catalog: Catalog) -> None:
    path = write(tmp_path, GOOD)
    digest = load_recipe(path, (), fake_catalog).digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    for same in ("description=other", "train={use: std.sgd, lr: 0.1}", "min_clients=2", "protect.noised.0.norm=0.010"):
        assert load_recipe(path, [same], fake_catalog).digest == digest, same
    for other in ("seed=8", "name=x", "train={use: std.sgd, lr: 0.2}", "protect.noised.0.norm=0.011", "delta=1e-6"):
        assert load_recipe(path, [other], fake_catalog).digest != digest, other


def test_the_digest_is_the_same_in_every_process() -> None:
    # Sets have another order in every process, unless somebody sorts them.
    code = """
from fedplug import Options, Field
from fedplug.recipe.parts import Use
class O(Options):
    names: frozenset[str] = Field(frozenset("abcdefgh"), description="x")
print(Use("a", "a", "protect", O()).to_plain())
"""
    run = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": h}
        )
        for h in "12"
    ]
    assert run[0].stdout == run[1].stdout != ""


# extends and --set


def test_extends_merges_mappings_and_replaces_lists(tmp_path: Path, fake_catalog: Catalog) -> None:
    write(tmp_path, GOOD, "base.yaml")
    (tmp_path / "sub").mkdir()
    child = """
        extends: ../base.yaml
        rounds: 9
        data: {use: std.other, clients: 6}
        model: {use: std.small}
        protect: {noised: [{use: std.clip, norm: 2}]}
    """
    classes = {entry.name: entry.load() for entry in fake_catalog}
    fake_catalog.groups["dataset"] |= Catalog.of({"dataset": {"std.other": classes["std.digits"]}}).groups["dataset"]
    fake_catalog.groups["model"] |= Catalog.of({"model": {"std.small": classes["std.digits"]}}).groups["model"]
    path = write(tmp_path / "sub", child)
    found = problems(path, fake_catalog)
    assert found == [
        "r.yaml:5:8: component std.small is no ModelSource; write class Data(fedplug.ModelSource)"
    ]
    recipe = load_recipe(path, ["model={use: std.mlp}"], fake_catalog)
    assert recipe.rounds == 9
    assert recipe.seed == 7
    assert (recipe.data.use, recipe.clients, recipe.partition.use) == ("std.other", 6, "std.dirichlet")
    assert [use.name for use in recipe.protect["noised"]] == ["std.clip"]
    assert [use.name for use in recipe.protect["encrypted"]] == ["std.ckks"]
    # The parent's hidden: [16, 8] belonged to its std.mlp, which the child had replaced.
    assert recipe.model.options.model_dump() == {"hidden": [8]}


def test_extends_points_into_the_file_that_is_wrong(tmp_path: Path, fake_catalog: Catalog) -> None:
    write(tmp_path, GOOD.replace("ratio: 0.25", "ratio: 1.25"), "base.yaml")
    assert problems(write(tmp_path, "extends: base.yaml\nrunds: 3\n"), fake_catalog) == [
        "r.yaml:2:1: unknown key 'runds'; did you mean rounds?",
        "base.yaml:9:41: acme.vote: ratio=1.25 must be <= 1 (share that is encrypted)",
    ]
    (missing,) = problems(write(tmp_path, "extends: nope.yaml\n"), fake_catalog)[:1]
    assert missing == "r.yaml:1:10: nope.yaml: cannot read the recipe: there is no such file"
    write(tmp_path, "extends: base.yaml\n", "middle.yaml")
    assert "only one level" in problems(write(tmp_path, "extends: middle.yaml\n"), fake_catalog)[0]
    assert "must be the path" in problems(write(tmp_path, "extends: [a]\n"), fake_catalog)[0]


def test_extends_may_drop_a_zone_with_null(tmp_path: Path, fake_catalog: Catalog) -> None:
    write(tmp_path, GOOD, "base.yaml")
    child = (
        "extends: base.yaml\nnegotiate_mask: {use: std.single_zone, zone: noised}\n"
        "protect: {encrypted: null}\npostprocess: {}\n"
    )
    found = problems(write(tmp_path, child), fake_catalog)
    assert found == ["base.yaml:14:15: zone encrypted is not under protect; zones here: noised"]
    recipe = load_recipe(write(tmp_path, child.replace("{}", "{encrypted: null}")), (), fake_catalog)
    assert list(recipe.protect) == ["noised"]


def test_set_reaches_into_lists_and_makes_mappings(tmp_path: Path, fake_catalog: Catalog) -> None:
    sets = [
        "rounds=5",
        "protect.noised.1.epsilon=2e0",
        "sampling.rate=0.5",
        "protect.clear=[]",
        "negotiate_mask={use: std.single_zone, zone: noised}",
        "protect.encrypted=null",
        "postprocess=",
        "protect.clear=null",
    ]
    path = write(tmp_path, GOOD.replace("postprocess: {encrypted: [std.ckks]}\n", ""))
    recipe = load_recipe(path, [s for s in sets if s != "postprocess="], fake_catalog)
    assert recipe.rounds == 5
    assert recipe.protect["noised"][1].options.model_dump() == {"epsilon": 2.0}
    assert recipe.sampling is not None
    assert (recipe.sampling.scheme, recipe.sampling.rate) == ("poisson", 0.5)


def test_bad_sets_are_reported_under_their_own_text(tmp_path: Path, fake_catalog: Catalog) -> None:
    found = problems(
        write(tmp_path, GOOD),
        fake_catalog,
        "rounds=0",
        "protect.noised.7.norm=1",
        "nokey",
        "train.lr=1",
        "x.y=1",
        "protect.noised.0.norm=[",
    )
    assert len(found) == 6
    assert any(problem.startswith("--set x.y: unknown key 'x'; there is name, ") for problem in found)
    assert any(problem.startswith("--set protect.noised.0.norm: not YAML: ") for problem in found)
    assert set(found) >= {
        "--set rounds: rounds=0 must be >= 1 (number of rounds, T)",
        "--set protect.noised.7.norm: '7' is no item of the list protect.noised; items are 0 to 1",
        "--set nokey: write path=value, not 'nokey'; for instance --set rounds=5",
        "--set train.lr: train is 'std.sgd', not a mapping; set it as a whole, for instance --set 'train={use: ...}'",
    }


# Mistakes


def test_three_mistakes_are_three_problems_with_place_and_remedy(tmp_path: Path, fake_catalog: Catalog) -> None:
    text = GOOD.replace("ratio: 0.25", "ratio: 1.2").replace("epsilon: 8", "epsilon: 0").replace("std.mean", "std.maen")
    assert problems(write(tmp_path, text), fake_catalog) == [
        "r.yaml:9:41: acme.vote: ratio=1.2 must be <= 1 (share that is encrypted)",
        "r.yaml:12:73: std.gaussian: epsilon=0 must be > 0; to switch the noise off, write noised: []",
        "r.yaml:13:12: unknown aggregate component 'std.maen'; did you mean std.mean?",
    ]


def test_mistakes_of_one_part_and_between_parts_come_together(tmp_path: Path, fake_catalog: Catalog) -> None:
    text = GOOD.replace("alpha: 0.5", "alfa: 0.5").replace("seed: 7\n", "min_clients: 9\nseed: 7\n")
    text = text.replace("postprocess: {encrypted: [std.ckks]}\n", "")
    assert problems(write(tmp_path, text), fake_catalog) == [
        "r.yaml:3:14: min_clients=9 must be <= data.clients=4; lower it, or split the data among more",
        "r.yaml:6:65: unknown option 'alfa' of std.dirichlet; did you mean alpha?",
        "r.yaml:12:3: std.ckks protects the zone encrypted, but nothing opens the sum; "
        "write postprocess: {encrypted: [std.ckks]}",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ronds": 3}, "recipe.ronds: unknown key 'ronds'; did you mean rounds?"),
        (
            {"engine": "local"},
            "recipe.engine: unknown key 'engine'; it is a setting of the run, not of the protocol: --engine",
        ),
        (
            {"record_wire": True},
            "recipe.record_wire: unknown key 'record_wire'; it is a setting of the run, not of the "
            "protocol: --record-wire",
        ),
        ({"rounds": "many"}, "recipe.rounds: rounds='many' must be a valid integer"),
        ({"seed": -1}, "recipe.seed: seed=-1 must be >= 0"),
        ({"name": "a/b"}, "recipe.name: name='a/b' must be text of the form"),
        ({"buffers": "men"}, "recipe.buffers: buffers='men' must be 'local' or 'mean'; did you mean mean?"),
        ({"delta": 1}, "recipe.delta: delta=1 must be < 1"),
        (
            {"sampling": {"rate": 0.5, "sheme": "fixed"}},
            "recipe.sampling.sheme: unknown option 'sheme'; did you mean scheme?",
        ),
        ({"sampling": {"scheme": "fixed"}}, "recipe.sampling: the recipe needs 'rate' (share of the clients"),
        (
            {"sampling": {"rate": 0.25}},
            "recipe.sampling.rate: rate=0.25 gives 1 of 4 clients a round, fewer than "
            "min_clients=2; raise it to 0.5 or more",
        ),
        ({"train": None}, "recipe.train: train must name a component, not null"),
        ({"train": 3}, "recipe.train: a component is written {use: name, option: value} or as a name, not 3"),
        ({"train": {"lr": 1}}, "recipe.train: train needs 'use'; for trainer there is std.sgd"),
        (
            {"train": {"use": "std.clip", "norm": 1}},
            "recipe.train.use: unknown trainer component 'std.clip'; it is a protect "
            "component; for trainer there is std.sgd",
        ),
        ({"train": {"use": "std.sgd", "lr": [1]}}, "recipe.train.lr: std.sgd: lr=[1] must be a valid number"),
        ({"train": {"use": "std.sgd", "name": "a b"}}, "recipe.train.name: name='a b' must be letters"),
        ({"train": {"use": "std.sgd", "name": "fedplug"}}, "recipe.train.name: name='fedplug' must be letters"),
        (
            {"train": {"use": "std.sgd", "name": "x"}, "model": {"use": "std.mlp", "name": "x"}},
            "recipe.train.name: name 'x' is given twice",
        ),
        (
            {"model": {"use": "std.mlp", "hidden": [8, "x"]}},
            "recipe.model.hidden.1: std.mlp: hidden.1='x' must be a valid",
        ),
        ({"data": "std.digits"}, "recipe.data: data must be a mapping"),
        (
            {"data": {"use": "std.digits", "clients": 0, "partition": "dirichlet"}},
            "recipe.data.clients: data: clients=0 must be >= 1",
        ),
        (
            {"data": {"use": "std.digits", "clients": True, "partition": "dirichlet"}},
            "recipe.data.clients: data: clients=true must be a whole number",
        ),
        ({"data": {"use": "std.digits", "partition": "dirichlet"}}, "recipe.data: data needs 'clients'"),
        ({"data": {"use": "std.digits", "clients": 4}}, "recipe.data: data needs 'partition', for instance"),
        (
            {"score_parameters": "std.size"},
            "recipe.score_parameters: score_parameters must be a list: put the component",
        ),
        ({"protect": []}, "recipe.protect: protect must be a mapping from zones to lists"),
        ({"protect": {"Noised": []}}, "recipe.protect.Noised: zone 'Noised' must be lower-case"),
        (
            {"accountant": "fedre.x"},
            "recipe.accountant: unknown accountant component 'fedre.x'; no installed plugin offers fedre.*",
        ),
    ],
)
def test_each_mistake_is_named(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any], expected: str
) -> None:
    found = changed(plain_recipe, fake_catalog, **change)
    assert any(problem.startswith(expected) for problem in found), found


@pytest.mark.parametrize(
    "key", ["name", "seed", "rounds", "data", "model", "train", "negotiate_mask", "protect", "aggregate"]
)
def test_required_keys(plain_recipe: dict[str, Any], fake_catalog: Catalog, key: str) -> None:
    del plain_recipe[key]
    assert f"recipe: the recipe needs {key!r}" in " ".join(changed(plain_recipe, fake_catalog))


def test_files_that_are_no_recipe(tmp_path: Path, fake_catalog: Catalog) -> None:
    assert "there is no such file" in problems(tmp_path / "absent.yaml", fake_catalog)[0]
    assert "Is a directory" in problems(tmp_path, fake_catalog)[0]
    assert "this one is empty" in problems(write(tmp_path, ""), fake_catalog, "rounds=3")[0]
    assert "this one is a list" in problems(write(tmp_path, "[1]"), fake_catalog)[0]
    (tmp_path / "latin").write_bytes(b"name: \xe9")
    assert "not UTF-8" in problems(tmp_path / "latin", fake_catalog)[0]


PATHS = st.sampled_from(
    [
        "name",
        "seed",
        "rounds",
        "data",
        "data.clients",
        "data.partition",
        "data.partition.alpha",
        "model",
        "model.use",
        "train",
        "negotiate_mask",
        "negotiate_mask.ratio",
        "protect",
        "protect.encrypted",
        "protect.encrypted.0",
        "protect.noised",
        "protect.noised.0",
        "protect.noised.0.norm",
        "protect.noised.1.use",
        "aggregate",
        "postprocess",
        "postprocess.encrypted",
        "postprocess.encrypted.0",
        "sampling",
        "sampling.rate",
        "min_clients",
        "buffers",
        "delta",
        "attack",
        "extensions",
        "accountant",
        "score_parameters",
        "extends",
        "x.y",
        "0",
    ]
)
WORDS = st.sampled_from(
    ["std.clip", "std.ckks", "clip", "acme.vote", "std.spy", "", "@", "{use: std.clip}", "[std.ckks]"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(PATHS, WORDS | PLAIN_DATA.map(yaml_source.dump)), min_size=1, max_size=3))
def test_no_input_is_answered_with_a_traceback(
    fake_catalog: Catalog, tmp_path: Path, changes: list[tuple[str, str]]
) -> None:
    path = tmp_path / "r.yaml"
    if not path.exists():
        path.write_text(GOOD)
    try:
        recipe = load_recipe(path, [f"{where}={value}" for where, value in changes], fake_catalog)
    except RecipeError as error:
        refused = error.problems
    else:
        assert Recipe.from_plain(recipe.to_plain(), fake_catalog).digest == recipe.digest
        refused = ["nothing: it is a valid recipe"]
    assert refused
    assert all(": " in problem for problem in refused)


# Rules between the parts


def zones(plain: dict[str, Any], **chains: Any) -> dict[str, Any]:
    return {"protect": plain["protect"] | chains}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"protect": {"noised": []}, "postprocess": {}},
            "recipe.protect: plans of acme.vote can hold zone encrypted, which nothing covers; write encrypted: "
            "[{use: ...}], or "
            "encrypted: [] to send it unprotected",
        ),
        (
            {"negotiate_mask": "std.single_zone", "protect": {}, "postprocess": {}},
            "recipe.protect: plans of std.single_zone can hold zone clear, which nothing covers; write clear: [] "
            "to send it in "
            "the clear",
        ),
        (
            {"protect": {"encrypted": [], "noised": [], "noiced": []}, "postprocess": {}},
            "recipe.protect.noiced: no plan of acme.vote can hold zone noiced; did you mean noised?",
        ),
        (
            {"protect": {"encrypted": [], "noised": [], "clear": []}, "postprocess": {}},
            "recipe.protect.clear: no plan of acme.vote can hold zone clear; remove it (zones here: encrypted, noised)",
        ),
        (
            {"protect": {"encrypted": [], "noised": [], "retained": []}, "postprocess": {}},
            "recipe.protect.retained: zone retained never leaves the client; remove it from protect",
        ),
        (
            {"postprocess": {"encrypted": ["std.ckks"], "clear": []}},
            "recipe.postprocess.clear: zone clear is not under protect; zones here: encrypted, noised",
        ),
        (
            {"postprocess": {}},
            "recipe.protect.encrypted: std.ckks protects the zone encrypted, but nothing opens the sum; write "
            "postprocess: "
            "{encrypted: [std.ckks]}",
        ),
        (
            {"postprocess": {"encrypted": ["std.ckks"], "noised": ["std.ckks"]}},
            "recipe.postprocess.noised.0: std.ckks does not protect the zone noised, so it cannot open it; remove it",
        ),
        (
            {"postprocess": {"encrypted": [{"use": "std.ckks"}]}},
            "recipe.postprocess.encrypted.0: std.ckks@encrypted does not protect the zone encrypted, so it cannot "
            "open it; "
            "refer to it by its name",
        ),
        (
            {"postprocess": {"encrypted": ["std.ckks", "std.clip"]}},
            "recipe.postprocess.encrypted.1: std.clip (std.clip) cannot stand under postprocess: it is no Opener; "
            "name a component of the group postprocess",
        ),
        (
            {"aggregate": "std.ckks"},
            "recipe.aggregate: std.ckks (std.ckks) cannot stand under aggregate: it is no Aggregator; name a "
            "component of the group aggregate",
        ),
    ],
)
def test_zones_and_undoing(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any], expected: str
) -> None:
    assert changed(plain_recipe, fake_catalog, **change) == [expected]


def test_two_seals_are_opened_in_reverse_order(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    protect = {"encrypted": ["std.ckks", "std.outer"], "noised": []}
    found = changed(plain_recipe, fake_catalog, protect=protect, postprocess={"encrypted": ["std.ckks", "std.outer"]})
    assert found == [
        "recipe.postprocess.encrypted: the zone encrypted must be opened in the reverse order of its protection; "
        "write postprocess: {encrypted: [std.outer, std.ckks]}"
    ]
    right = plain_recipe | {"protect": protect, "postprocess": {"encrypted": ["std.outer", "std.ckks"]}}
    assert Recipe.from_plain(right, fake_catalog).postprocess["encrypted"][0].is_reference


CLIP, NOISE, SEAL = {"use": "std.clip", "norm": 1}, {"use": "std.gaussian", "epsilon": 1}, {"use": "std.ckks"}


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (
            [NOISE],
            [
                "std.gaussian needs a bound of the L2 norm earlier in the chain of zone encrypted; "
                "put {use: std.clip, norm: 1.0} before it"
            ],
        ),
        (
            [NOISE, CLIP],
            [
                "std.gaussian needs a bound of the L2 norm earlier in the chain of zone encrypted; "
                "put {use: std.clip, norm: 1.0} before it"
            ],
        ),
        (
            [CLIP, NOISE, CLIP | {"name": "b"}],
            ["b must not come after noise in the chain of zone encrypted; put the clip first"],
        ),
        (
            [SEAL, CLIP],
            [
                "std.clip must not come after encryption in the chain of zone encrypted; put the clip before the "
                "encryption"
            ],
        ),
        ([CLIP, NOISE], []),
        ([CLIP, NOISE, SEAL], []),
        ([], []),
    ],
)
def test_order_rules_that_components_declare(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, chain: list[Any], expected: list[str]
) -> None:
    post = {"encrypted": ["std.ckks"] if SEAL in chain else []}
    change = {"protect": {"encrypted": chain, "noised": []}, "postprocess": post}
    if not expected:
        assert Recipe.from_plain(plain_recipe | change, fake_catalog).protect["noised"] == ()
        return
    assert [problem.partition(": ")[2] for problem in changed(plain_recipe, fake_catalog, **change)] == expected


def test_order_rules_follow_the_block_into_postprocess(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    sealed = {"protect": {"encrypted": [CLIP, SEAL], "noised": []}}
    Recipe.from_plain(plain_recipe | sealed | {"postprocess": {"encrypted": ["std.ckks", "std.central"]}}, fake_catalog)
    too_early = changed(plain_recipe, fake_catalog, **sealed, postprocess={"encrypted": ["std.central", "std.ckks"]})
    assert len(too_early) == 1
    assert "must not come after encryption in the chain of zone encrypted; open the sum first" in too_early[0]
    unclipped = {
        "protect": {"encrypted": [SEAL], "noised": []},
        "postprocess": {"encrypted": ["std.ckks", "std.central"]},
    }
    assert "clip at the clients" in changed(plain_recipe, fake_catalog, **unclipped)[0]


def test_one_noise_component_may_not_serve_two_zones(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    protect = {"encrypted": [CLIP, NOISE], "noised": ["std.clip", "std.gaussian"]}
    (problem,) = changed(plain_recipe, fake_catalog, protect=protect, postprocess={})
    assert "std.gaussian draws the noise of zone encrypted already; write {use: std.gaussian, ...}" in problem


def with_component(classes: dict[str, dict[str, type]], group: str, name: str, found: type) -> Catalog:
    classes[group][name] = found
    return Catalog.of(classes)


class Odd(Aggregator):
    """A component with a fault that a subclass adds."""

    @hookimpl
    def aggregate(self, blocks: Any, weights: Any, ctx: Any) -> Any: ...


class DefaultArgument(Odd):
    """Gives a default, which pluggy takes for a wish to be left alone."""

    @hookimpl
    def aggregate(self, blocks: Any, weights: Any = None, ctx: Any = None) -> Any: ...


class UnknownHook(Odd):
    """Marks what nobody calls."""

    @hookimpl
    def combine(self, blocks: Any) -> None: ...


class NoHook(Aggregator):
    """Forgot the marker."""

    def aggregate(self, blocks: Any, weights: Any, ctx: Any) -> Any: ...


class Unfinished(Aggregator):
    """Forgot the method."""


class RoleMissing:
    """Inherits from nothing."""

    class Options(Options):
        """No options."""


class Raises(Odd):
    """Cannot be built."""

    def __init__(self, options: Any) -> None:
        raise RuntimeError("no luck")


class Complains(Odd):
    """Has an opinion of the whole recipe."""

    def check(self, recipe: Recipe) -> list[str]:
        return [f"{recipe.clients} clients are too few"]


class CheckFails(Complains):
    """Its check is broken."""

    def check(self, recipe: Recipe) -> list[str]:
        raise KeyError("x")


class NoOptions(Odd):
    """Has options of another kind."""

    Options = dict  # type: ignore[assignment]


class TakenWord(Odd):
    """Has an option that recipes reserve."""

    class Options(Options):
        name: str = Field("x", description="x")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            DefaultArgument,
            "component odd implements aggregate with a default for weights, ctx, which then never gets a value",
        ),
        (UnknownHook, "component odd marks combine with @hookimpl, but there is no such hook; there is score_"),
        (NoHook, "component odd does not implement aggregate; mark a method of that name with @hookimpl"),
        (Unfinished, "component odd has no aggregate(blocks, weights, ctx), which an Aggregator must have"),
        (RoleMissing, "plugin test: odd is no component; its class must inherit from its role, such as "
                      "fedplug.Aggregator"),
        (Raises, "component odd (odd) cannot be built: RuntimeError: no luck"),
        (Complains, "odd: 4 clients are too few"),
        (CheckFails, "component odd: its check fails: KeyError: 'x'"),
        (NoOptions, "plugin test: odd has no nested class Options(fedplug.Options)"),
        (TakenWord, "plugin test: odd has an option named name, which recipes reserve"),
    ],
)
def test_faulty_components_are_named(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]], found: type, expected: str
) -> None:
    catalog = with_component(fake_classes, "aggregate", "odd", found)
    problem = changed(plain_recipe, catalog, aggregate="odd")[0]
    assert problem.partition(": ")[2].startswith(expected)


def test_a_negotiation_must_say_which_zones_it_uses(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    class Silent(Negotiation):
        """Says nothing of zones."""

        @hookimpl
        def negotiate_mask(self, cohort: Any, ctx: Any) -> None: ...

    catalog = with_component(fake_classes, "negotiate_mask", "odd", Silent)
    expected = "recipe.negotiate_mask: component odd has no plans, which a Negotiation must have"
    assert changed(plain_recipe, catalog, negotiate_mask="odd") == [expected]


def test_a_recipe_of_the_design_document_is_understood(tmp_path: Path) -> None:
    text = """
        name: paraaegis-dynamic
        seed: 7
        rounds: 20
        data: {use: std.digits, clients: 10, partition: {use: dirichlet, alpha: 0.5}}
        model: {use: std.mlp, hidden: [256, 128]}
        train: {use: std.sgd, epochs: 5, batch_size: 32, lr: 0.05}
        score_parameters:
          - {use: paraaegis.magnitude}
        negotiate_mask: {use: paraaegis.vote, ratio: 0.3, decay: 0.9}
        protect:
          encrypted: [{use: std.ckks, key_holder: clients}]
          noised:    [{use: std.clip, norm: 1.0}, {use: std.gaussian, epsilon: 8, delta: 1.0e-5}]
        aggregate: {use: std.mean}
        postprocess: {encrypted: [std.ckks]}
    """
    recipe = load_recipe(write(tmp_path, text))
    assert isinstance(recipe.protect, Mapping)
    assert recipe.partition.use == "std.dirichlet"
    assert recipe.components["std.gaussian"].options.model_dump()["delta"] == 1e-5
