"""The layers over a recipe file: `extends` and `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import Source
from fedplug_runs.overlay import Change, extend, load_recipe, override
from recipe_texts import GOOD, problems, write


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
        "r.yaml:5:8: component std.small is not a ModelSource; write class Data(fedplug.ModelSource)"
    ]
    recipe = load_recipe(path, ["model={use: std.mlp}"], fake_catalog)
    assert recipe.rounds == 9
    assert recipe.seed == 7
    assert (recipe.data.use, recipe.clients, recipe.data.partition.use) == ("std.other", 6, "std.dirichlet")
    assert [use.name for use in recipe.protect["noised"]] == ["std.clip"]
    assert [use.name for use in recipe.protect["encrypted"]] == ["std.ckks"]
    # The parent's hidden: [16, 8] belonged to its std.mlp, which the child had replaced.
    assert recipe.model.options.model_dump() == {"hidden": [8]}


def test_options_that_went_with_another_component_are_noted(tmp_path: Path, fake_catalog: Catalog) -> None:
    write(tmp_path, GOOD, "base.yaml")
    (mlp,) = (entry.load() for entry in fake_catalog if entry.name == "std.mlp")
    fake_catalog.groups["model"] |= Catalog.of({"model": {"std.small": mlp}}).groups["model"]

    def notes(line: str, *sets: str) -> list[str]:
        path = write(tmp_path, f"extends: base.yaml\n{line}\n")
        return [note.replace(f"{tmp_path}/", "") for note in load_recipe(path, sets, fake_catalog).notes]

    for use in ("{use: std.small}", "{use: mlp}", "std.mlp"):
        (note,) = notes(f"model: {use}")
        assert note.startswith("r.yaml:2:8: std.")
        assert note.endswith("the options of std.mlp: hidden is [8], not [16, 8]; set the ones that you need")
        assert not notes(f"model: {use}", "model={use: std.mlp, hidden: [8]}")
    assert not notes("model: {use: std.small, hidden: [4]}")
    assert not notes("model: {use: std.small}", "model.hidden=[8]")
    assert not notes("model: {use: std.mlp, hidden: [4]}")
    assert not notes("aggregate: {use: std.mean}")
    assert not notes("data: {use: std.digits}")
    # Options unknown to the new component belonged to the replaced one.
    assert not notes("negotiate_mask: {use: std.single_zone, zone: noised}\nprotect: {encrypted: null}\n"
                     "postprocess: {encrypted: null}")  # fmt: skip


def test_set_of_use_drops_the_options_of_the_old_component(tmp_path: Path, fake_catalog: Catalog) -> None:
    (mlp,) = (entry.load() for entry in fake_catalog if entry.name == "std.mlp")
    fake_catalog.groups["model"] |= Catalog.of({"model": {"std.small": mlp}}).groups["model"]
    path = write(tmp_path, GOOD)

    def model(*sets: Change) -> tuple[str, list[int]]:
        recipe = load_recipe(path, sets, fake_catalog)
        assert recipe.model is not None
        return recipe.model.use, recipe.model.options.model_dump()["hidden"]

    assert model() == ("std.mlp", [16, 8])
    assert model("model.use=std.small") == model(("model.use", "std.small")) == ("std.small", [8])
    assert model("model.use=std.mlp") == ("std.mlp", [16, 8])
    # What the command line gives stays, in either order.
    assert model("model.use=std.small", "model.hidden=[4]") == ("std.small", [4])
    assert model("model.hidden=[4]", "model.use=std.small") == ("std.small", [4])
    assert model("model={use: std.mlp, hidden: [4]}", "model.use=std.small") == ("std.small", [8])
    (note,) = load_recipe(path, ["model.use=std.small"], fake_catalog).notes
    assert "std.small does not take over the options of std.mlp: hidden is [8], not [16, 8]; set" in note
    # A name alone is short for a mapping.
    write(tmp_path, GOOD.replace("model: {use: std.mlp, hidden: [16, 8]}", "model: std.mlp"))
    assert model("model.use=std.small", "model.hidden=[4]") == ("std.small", [4])


def test_set_of_use_keeps_what_belongs_to_the_recipe() -> None:
    source = Source("r", {"data": {"use": "a.set", "size": 3, "clients": 2}, "protect": {"noised": [
        {"use": "a.clip", "norm": 1}, {"use": "a.noise", "scale": 2}]}})  # fmt: skip
    override(source, ["data.use=b.set", "protect.noised.1.use=b.noise"])
    assert source.data["data"] == {"use": "b.set", "clients": 2}
    assert source.data["protect"]["noised"] == [{"use": "a.clip", "norm": 1}, {"use": "b.noise"}]
    assert source.dropped[("protect", "noised", 1)] == {"use": "a.noise", "scale": 2}


def test_extends_points_into_the_file_that_is_wrong(tmp_path: Path, fake_catalog: Catalog) -> None:
    write(tmp_path, GOOD.replace("ratio: 0.25", "ratio: 1.25"), "base.yaml")
    assert problems(write(tmp_path, "extends: base.yaml\nrunds: 3\n"), fake_catalog) == [
        "r.yaml:2:1: unknown key 'runds'; did you mean rounds?",
        "base.yaml:9:41: acme.vote: ratio=1.25 must be <= 1 (share that is encrypted)",
    ]
    (missing,) = problems(write(tmp_path, "extends: nope.yaml\n"), fake_catalog)[:1]
    assert missing == "r.yaml:1:10: nope.yaml: cannot read the recipe: there is no such file"
    assert "must be the path" in problems(write(tmp_path, "extends: [a]\n"), fake_catalog)[0]
    write(tmp_path, "- a list\n", "list.yaml")
    assert "list.yaml is not a recipe" in problems(write(tmp_path, "extends: list.yaml\n"), fake_catalog)[0]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("root:x:0:0:swordfish\ndaemon: y:1: swordfish\n", "2"),
        ("password: swordfish\n", "1"),
        ("model: swordfish\npassword: 3\n", "1"),
        ("swordfish: 1\nswordfish: 2\n", "2"),
        ("swordfish\n", ""),
        ("[swordfish, 2]\n", ""),
        ("name: swordfish\nextends: [swordfish]\npin: 1234\n", "2"),
        ("name: !swordfish x\npin: 1234\n", "1"),
    ],
)
def test_the_lines_of_any_other_file_are_not_shown(
    text: str, place: str, tmp_path: Path, fake_catalog: Catalog
) -> None:
    """A recipe from somebody else can name any file; the messages are shown to others."""
    (tmp_path / "r/deep").mkdir(parents=True)
    write(tmp_path, text, "secret")
    write(tmp_path / "r", "extends: ../../secret\nname: a\n", "deep/middle.yaml")
    middle = write(tmp_path / "r", "extends: deep/middle.yaml\nseed: x\nname: b\npassword.x: 1\n")
    for path in (middle, write(tmp_path / "r", "extends: ../secret\nseed: x\npin: {x: 1}\n", "s.yaml")):
        for sets in ([], ["password.x=1", "model.x=1"]):
            with pytest.raises(RecipeError) as caught:
                load_recipe(path, sets, fake_catalog)
            said = str(caught.value)
            assert "swordfish" not in said
            assert "1234" not in said
            assert "secret" in said
            assert f"secret:{place}:" in said or not place


def test_of_a_recipe_elsewhere_all_is_shown(tmp_path: Path, fake_catalog: Catalog) -> None:
    (tmp_path / "r").mkdir()
    write(tmp_path, GOOD.replace("ratio: 0.25", "ratio: 1.25"), "base.yaml")
    (found,) = problems(write(tmp_path / "r", "extends: ../base.yaml\n"), fake_catalog)
    assert found.endswith("acme.vote: ratio=1.25 must be <= 1 (share that is encrypted)")


def test_a_recipe_extends_through_several_files(tmp_path: Path, fake_catalog: Catalog) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path, GOOD, "base.yaml")
    write(tmp_path, "extends: ../base.yaml\nrounds: 5\nseed: 5\n", "deep/middle.yaml")
    path = write(tmp_path, "extends: deep/middle.yaml\nseed: 6\n")
    plain = load_recipe(path, (), fake_catalog).to_plain()
    base = load_recipe(tmp_path / "base.yaml", (), fake_catalog).to_plain()
    assert plain == {**base, "rounds": 5, "seed": 6}
    write(tmp_path, "extends: ../base.yaml\nrunds: 5\n", "deep/middle.yaml")
    assert problems(path, fake_catalog) == ["deep/middle.yaml:2:1: unknown key 'runds'; did you mean rounds?"]
    write(tmp_path, "extends: nope.yaml\n", "deep/middle.yaml")
    assert problems(path, fake_catalog)[0].startswith("deep/middle.yaml:1:10: deep/nope.yaml: cannot read")
    write(tmp_path, "extends: ../r.yaml\n", "deep/middle.yaml")
    assert problems(path, fake_catalog) == [
        "deep/middle.yaml:1:10: a recipe cannot extend itself: r.yaml extends middle.yaml extends r.yaml; leave one of "
        "these out"
    ]


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
        "--set protect.noised.7.norm: '7' is not an item of the list protect.noised; items are 0 to 1",
        "--set nokey: write path=value, not 'nokey'; for instance --set rounds=5",
        "--set train.lr: train is a str, not a mapping; set it as a whole, for instance --set 'train={use: ...}'",
    }


def test_another_data_set_keeps_what_sites_have_agreed_on() -> None:
    agreed = {"shape": [1, 2, 2]}
    parent = Source("parent", {"data": {"use": "a.set", "size": 3, "at": "sites", "clients": 2, "agreed": agreed}})
    child = extend(parent, Source("child", {"data": {"use": "b.set"}}))
    assert child.data == {"data": {"use": "b.set", "at": "sites", "clients": 2, "agreed": agreed}}
