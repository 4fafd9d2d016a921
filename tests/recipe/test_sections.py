"""Sections that plugins add to recipes: read, checked, in the schema, and in the digest unless they are empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fedplug.recipe.sections
import jsonschema
import pytest
from fedplug import Around, Field, Options, Reveals, Section
from fedplug.api.blocks import Layout
from fedplug.api.errors import PluginError, RecipeError
from fedplug.recipe.catalog import SECTION, Catalog, Entry
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug_attacks.workshop.section import AttackSection
from fedplug_lab.schema import recipe_schema
from fedplug_ledger.charging import reveals_of
from fedplug_runs.overlay import load_recipe
from fedplug_runs.plan import plan_of
from fedplug_sensecrypt.profiles import ProfileSection
from fedplug_terminal.catalog import list_components

RECIPE = """\
name: two-zones
seed: 7
rounds: 3
data: {use: std.digits, clients: 4, partition: std.dirichlet}
model: std.mlp
train: std.sgd
negotiate_mask: acme.vote
protect:
  encrypted: [std.ckks]
  noised: [{use: std.clip, norm: 1.0}, {use: std.gaussian, epsilon: 8}]
aggregate: std.mean
postprocess: {encrypted: [std.ckks]}
"""


class Audit(Section):
    """Looks a run over when it is finished.

    More.
    """

    class Options(Options):
        every: int = Field(10, ge=1, description="rounds between two audits")
        clients: set[str] = Field(set(), description="whose updates are looked at")

    lists: ClassVar = {"books": "accountant", "spies": "extension"}
    example = "[{use: std.book}]"

    def check(self, around: Around) -> Iterator[tuple[Any, str]]:
        """The interval fits."""
        if around.recipe is not None and self.options.every > around.recipe.rounds:
            yield ("every",), f"every={self.options.every} must be <= rounds={around.recipe.rounds}"

    def reveals(self, recipe: Recipe) -> list[Reveals]:
        """The report."""
        return [Reveals("audits", ("server",), note=f"{recipe.rounds // self.options.every} of them")]

    def describe(self) -> str:
        """How often."""
        return f"every {self.options.every} rounds"


class Power(Section):
    """What the devices draw."""

    class Item(Options):
        client: int = Field(ge=0, description="whose device")
        watts: float = Field(gt=0, description="at work")

    def check(self, around: Around) -> Iterator[tuple[Any, str]]:
        """The clients exist."""
        for index, item in enumerate(self.items):
            if around.clients is not None and item.client >= around.clients:
                yield (index, "client"), f"there is no client {item.client}"


class Tone(Section):
    """How a run sounds."""

    class Options(Options):
        loud: bool = Field(False, description="whether it does")


SECTIONS: dict[str, type] = {"audit": Audit, "power": Power, "tone": Tone}


@pytest.fixture
def catalog(fake_classes: dict[str, dict[str, type]]) -> Catalog:
    """The fake components and the sections above."""
    return Catalog.of(fake_classes, SECTIONS)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a recipe that ends in these lines, the first of which is line 13."""

    def written(more: str) -> Path:
        file = tmp_path / "r.yaml"
        file.write_text(RECIPE + more)
        return file

    return written


def problems(file: Path, catalog: Catalog, *sets: str) -> list[str]:
    with pytest.raises(RecipeError) as refused:
        load_recipe(file, sets, catalog)
    return [problem.removeprefix(f"{file.parent}/") for problem in refused.value.problems]


AUDIT = "audit: {every: 3, clients: [b, a], books: [std.book], spies: [{use: std.spy, name: mine}]}\n"
POWER = "power: [{client: 0, watts: 5}, {client: 3, watts: 7.5}]\n"


# -- read and written --------------------------------------------------------------------------------------------------


def test_a_section_of_a_plugin_is_read_and_typed(write: Callable[[str], Path], catalog: Catalog) -> None:
    recipe = load_recipe(write(POWER + AUDIT), (), catalog)
    assert list(recipe.sections) == ["audit", "power"]  # sorted: the order of a file changes nothing
    audit, power = Audit.of(recipe), Power.of(recipe)
    assert audit is not None
    assert power is not None
    assert (audit.key, audit.options.every, audit.options.clients) == ("audit", 3, {"a", "b"})
    assert [use.name for use in audit.uses["books"]] == ["std.book"]
    assert [use.name for use in recipe.uses][-2:] == ["std.book", "mine"]
    assert recipe.components["mine"].section == "audit"
    assert [(item.client, item.watts) for item in power.items] == [(0, 5.0), (3, 7.5)]
    assert Tone.of(recipe) is None


def test_a_section_survives_a_round_trip_and_belongs_to_the_digest(
    write: Callable[[str], Path], catalog: Catalog
) -> None:
    recipe = load_recipe(write(AUDIT + POWER), (), catalog)
    plain = recipe.to_plain()
    assert plain["audit"] | {"spies": 0} == {
        "every": 3, "clients": ["a", "b"], "books": [{"use": "std.book", "name": "std.book"}], "spies": 0,
    }  # fmt: skip
    assert plain["power"] == [{"client": 0, "watts": 5.0}, {"client": 3, "watts": 7.5}]
    again = Recipe.from_plain(plain, catalog)
    assert again == recipe
    assert again.digest == recipe.digest
    digests = {load_recipe(write(AUDIT + POWER), [change], catalog).digest for change in (
        "rounds=3", "audit.every=2", "audit.spies=[]", "power.0.watts=6", "power=[]", "audit=null")}  # fmt: skip
    assert len(digests) == 6


def test_a_plain_list_means_the_first_list(write: Callable[[str], Path], catalog: Catalog) -> None:
    short = load_recipe(write("audit: [std.book]\n"), ["rounds=10"], catalog)
    long = load_recipe(write("audit: {every: 10, books: [{use: std.book}]}\n"), ["rounds=10"], catalog)
    assert short == long
    assert short.digest == long.digest


@pytest.mark.parametrize("nothing", ["audit: null\n", "audit: []\n", "power: []\n", "tone: {}\n", "tone: {loud: no}\n"])
def test_a_section_that_says_nothing_is_no_part_of_the_recipe(
    write: Callable[[str], Path], catalog: Catalog, fake_classes: dict[str, dict[str, type]], nothing: str
) -> None:
    recipe = load_recipe(write(nothing), (), catalog)
    without = load_recipe(write(""), (), Catalog.of(fake_classes, {}))  # where no plugin offers a section
    assert recipe.sections == {}
    assert recipe == without
    assert recipe.digest == without.digest
    assert not {"attack", "profiles", *SECTIONS} & without.to_plain().keys()


def test_extending_and_setting_reach_into_sections(write: Callable[[str], Path], catalog: Catalog) -> None:
    child = write(AUDIT + POWER).with_name("child.yaml")
    child.write_text("extends: r.yaml\naudit: {every: 2}\npower: [{client: 1, watts: 1}]\n")
    recipe = load_recipe(child, ["audit.spies.0.name=other", "power.0.watts=9"], catalog)
    audit, power = Audit.of(recipe), Power.of(recipe)
    assert audit is not None
    assert power is not None
    assert (audit.options.every, audit.uses["spies"][0].name) == (2, "other")
    assert [(item.client, item.watts) for item in power.items] == [(1, 9.0)]


# -- checked -----------------------------------------------------------------------------------------------------------


def test_every_mistake_is_reported_with_its_place(write: Callable[[str], Path], catalog: Catalog) -> None:
    found = problems(write(
        "audit:\n  every: 0\n  evry: 1\n  books: [std.bok]\n  spies: {use: std.spy}\n"
        "power: [{client: 0, watts: 0}, {client: 1}]\ntone: loud\n"
    ), catalog)  # fmt: skip
    assert found == [
        "r.yaml:14:10: audit: every=0 must be >= 1 (rounds between two audits)",
        "r.yaml:15:3: unknown option 'evry' of audit; did you mean every?",
        "r.yaml:16:11: unknown accountant component 'std.bok'; did you mean std.book?",
        "r.yaml:17:10: audit.spies must be a list: put the component in [ ]",
        "r.yaml:18:28: power.0.watts=0 must be > 0 (at work)",
        "r.yaml:18:32: power.1 needs 'watts' (at work)",
        "r.yaml:19:7: tone must be a mapping of options, not 'loud'",
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("audit: {every: 4, books: [std.book]}", "r.yaml:13:16: every=4 must be <= rounds=3"),
        ("audit: {every: 2}", "r.yaml:13:8: audit needs 'books', a list such as [{use: std.book}]"),
        ("audit: x", "r.yaml:13:8: audit must be a list: put the component in [ ]"),
        ("audit: {every: 1, books: [std.clip]}", "r.yaml:13:27: std.clip (std.clip) cannot be under audit: it is"),
        ("power: [{client: 0, watts: 1}, {client: 4, watts: 1}]", "r.yaml:13:41: there is no client 4"),
        ("power: {client: 0}", "r.yaml:13:8: power={'client': 0} must be a list (What the devices draw)"),
    ],
)
def test_a_section_is_checked_against_the_recipe(
    write: Callable[[str], Path], catalog: Catalog, section: str, message: str
) -> None:
    (found,) = problems(write(section + "\n"), catalog)
    assert found.startswith(message)


def test_sections_are_checked_with_the_rest(write: Callable[[str], Path], catalog: Catalog) -> None:
    found = problems(write("power: [{client: 4, watts: 1}]\n"), catalog, "min_clients=5", "train.lr=0")
    assert len(found) == 3, found


def test_a_check_that_fails_names_the_section(
    write: Callable[[str], Path], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Section, around: Around) -> Any:
        raise KeyError("oh")

    monkeypatch.setattr(Tone, "check", fails)
    (found,) = problems(write("tone: {loud: yes}\n"), catalog)
    assert found.endswith("section tone: its check fails: KeyError: 'oh'")


# -- keys that nobody offers, or nobody can ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "hint"),
    [
        ("audit: {books: [{use: ghost.book}]}", "no installed plugin offers the section 'audit'; it uses ghost.*: "
         "install that plugin, by convention fedplug-ghost"),
        ("profiles: [{of: [0]}]", "; no installed plugin offers the section 'profiles'"),
        ("powr: [{client: 0}]", "unknown key 'powr'; did you mean power?"),
        ("powr: 3", "unknown key 'powr'; did you mean power?"),
        ("zzz: 3", "unknown key 'zzz'; there is name, "),
    ],
)  # fmt: skip
def test_a_section_that_no_plugin_offers(
    write: Callable[[str], Path], fake_classes: dict[str, dict[str, type]], section: str, hint: str
) -> None:
    (found,) = problems(write(section + "\n"), Catalog.of(fake_classes, {"power": Power}))
    assert found.startswith("r.yaml:13:1: unknown key ")
    assert hint in found


def gone(key: str) -> Entry:
    return Entry(key, SECTION, "no_such_module:Gone", "fedplug-ghost", "1.2")


def test_a_section_that_cannot_be_imported_names_the_distribution(
    write: Callable[[str], Path], fake_classes: dict[str, dict[str, type]], capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = Catalog(Catalog.of(fake_classes).groups, (), {"ghost": gone("ghost")})
    load_recipe(write(""), (), catalog)  # a recipe without it does not ask
    message = "plugin fedplug-ghost 1.2: section ghost (no_such_module:Gone) cannot be imported: ModuleNotFoundError"
    (found,) = problems(write("ghost: {a: 1}\n"), catalog)
    assert found.startswith(f"r.yaml:13:1: {message}")
    (failure,) = recipe_schema(catalog)[1]
    assert failure.startswith(message)
    assert list_components(catalog, True, True) == 1
    assert message in capsys.readouterr().err


def test_a_class_that_is_no_section_is_refused(
    write: Callable[[str], Path], fake_classes: dict[str, dict[str, type]]
) -> None:
    catalog = Catalog.of(fake_classes, {"odd": dict})
    (found,) = problems(write("odd: {a: 1}\n"), catalog)
    assert "section odd (builtins:dict) is not a section; its class must inherit from fedplug.Section" in found


def test_a_key_of_every_recipe_is_no_name_for_a_section(
    write: Callable[[str], Path], fake_classes: dict[str, dict[str, type]]
) -> None:
    for key in ("rounds", "protect", "extends", "engine"):
        with pytest.raises(PluginError, match=f"plugin test 0: section {key} .* has the name of a key"):
            load_recipe(write(""), (), Catalog.of(fake_classes, {key: Tone}))


def test_a_section_offered_twice_names_both_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acmefive", "acmesix"):
        info = tmp_path / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[fedplug.section]\nshared = {name}:Shared\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match=r"section shared is offered twice, by acme(five|six) 1.2 .* and by acme"):
        Catalog.discover()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"lists": {"books": "bok"}}, "books has the group 'bok'"),
        ({"Options": Tone.Options, "lists": {"loud": "metric"}}, "loud is a key of Options and of lists"),
        ({"Options": Tone.Options, "Item": Power.Item}, "a list of Item has no keys"),
        ({"Options": dict}, "Options must be a subclass of fedplug.Options"),
        ({"Item": 3}, "Item must be a subclass of fedplug.Options"),
    ],
)
def test_a_class_that_contradicts_itself_is_refused_when_it_is_imported(members: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Odd", (Section,), members)


# -- what follows from a section ---------------------------------------------------------------------------------------


def test_sections_are_in_the_schema(write: Callable[[str], Path], catalog: Catalog) -> None:
    schema, failures = recipe_schema(catalog)
    assert failures == []
    jsonschema.Draft202012Validator.check_schema(schema)
    plain = load_recipe(write(AUDIT + POWER), (), catalog).to_plain()

    def errors(**changes: Any) -> list[str]:
        validator = jsonschema.Draft202012Validator(schema)
        return [error.message for error in validator.iter_errors(plain | changes)]

    assert errors() == []
    assert errors(audit=["std.book"], power=[], tone=None) == []
    assert errors(extends="r.yaml", audit={"every": 3}) == []  # the parent has the books
    assert schema["properties"]["audit"]["description"] == "Looks a run over when it is finished"
    for wrong in (
        {"audit": {"every": 3}}, {"audit": {"every": 0, "books": ["std.book"]}}, {"audit": {"evry": 1, "books": []}},
        {"audit": [{"use": "std.clip", "norm": 1}]}, {"power": [{"client": 0}]}, {"power": {}}, {"tone": {"loud": 3}},
        {"profiles": []},
    ):  # fmt: skip
        assert errors(**wrong) != [], wrong


def test_the_plan_and_the_ledger_tell_of_sections(write: Callable[[str], Path], catalog: Catalog) -> None:
    recipe = load_recipe(write(AUDIT + POWER), (), catalog)
    composition = Composition(recipe)
    lines = [line for line in plan_of(recipe, composition) if line[0] in SECTIONS]
    book = composition.components["std.book"].describe()
    assert lines == [("audit", "–", "every 3 rounds"), ("audit", "std.book", book)]
    facts = facts_of(composition, Layout(()), 0)
    assert "audits" in [shown.what for shown in reveals_of(recipe, composition, facts)]


def test_the_installed_sections_are_seen_unless_others_are_given(fake_classes: dict[str, dict[str, type]]) -> None:
    installed = {key: fedplug.recipe.sections.load(entry) for key, entry in Catalog.discover().sections.items()}
    assert installed["attack"] is AttackSection
    assert installed["profiles"] is ProfileSection
    assert Catalog.of(fake_classes).sections.keys() == installed.keys()
    assert Catalog.of(fake_classes, {}).sections == {}


def test_the_core_that_reads_recipes_names_no_section_of_an_application() -> None:
    core = Path(fedplug.__file__).parent
    files = [*core.glob("recipe/*.py"), *core.glob("round/*.py")]
    files += [path for name in ("ledger", "runs") for path in (core.parents[1] / f"plugins/{name}/src").rglob("*.py")]
    assert len(files) > 30
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.findall(r"AttackS|profiles|\.attack\b", text), file
