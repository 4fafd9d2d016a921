"""Names and links on the pages exist, tables are complete, and generated parts are fresh."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from pathlib import Path

import fedplug
import pytest
from doc_pages import FENCE, PAGES, ROOT
from fedplug.recipe.catalog import (
    ADAPTER,
    COMMAND,
    DISPLAY,
    EXAMINE,
    RECIPES,
    REPORT,
    RULES,
    SECTION,
    SERVICE,
    Catalog,
)
from scripts import script

PLUGINS = (
    "std", "paraaegis", "selectiveshield", "sensecrypt", "fas", "fedre", "attacks", "baselines", "lab", "altfl",
    "borda", "clover", "llg", "rowlog", "trackers",
)  # fmt: skip


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_names_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    missing = []
    catalog = Catalog.discover()
    for name in set(re.findall(r"`([a-z0-9_]+\.[A-Za-z0-9_.]+?)(?:\.saturated|\(.*?\))?`", prose)):
        plugin, _, rest = name.partition(".")
        # With a third part it is a number that the component logs.
        if plugin in PLUGINS and not rest.endswith("html") and not catalog.named(".".join(name.split(".")[:2])):
            missing.append(f"component {name}")
        if plugin == "fedplug" and "/" not in rest and not exists(name):
            missing.append(f"python name {name}")
    for path in set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?)`", prose)):
        top = path.partition("/")[0]
        if top == "runs":  # a run's output under its own name; present after `make run`
            continue
        if (ROOT / top).is_dir() and not (ROOT / path).exists() and not (page.parent / path).exists():
            missing.append(f"file {path}")
    for link in re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'(?:src|href)="([^"]+)"', prose):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            missing.append(f"link {link}")
        elif anchor and anchor not in anchors(path):
            missing.append(f"anchor {link}")
    assert not missing, sorted(missing)


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, an attribute of one, or an entry-point group."""
    groups = (*Catalog.discover().groups, ADAPTER, COMMAND, DISPLAY, EXAMINE, RECIPES, REPORT, RULES, SECTION, SERVICE)
    if dotted.removeprefix("fedplug.") in groups:
        return True
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_pages_name_no_machine_and_leave_nothing_open(page: Path) -> None:
    found = re.findall(r"/(?:home|root|tmp|work|Users)/\S*|\b(?:TODO|FIXME|TBD)\b", page.read_text(encoding="utf-8"))
    assert not found


def test_the_dependency_table_is_complete() -> None:
    text = (ROOT / "docs/decisions.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \|$", text, re.MULTILINE)
    named = [name for names in rows for name in names.split(", ")]
    assert len({*named}) == len(named), "said twice"
    declared: set[str] = set()
    for path in (".", *(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("plugins/*/pyproject.toml"))):
        project = tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]
        needs = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
        declared |= {re.split(r"[\[<>=~! ]", name)[0] for names in needs for name in names}
    assert {name.strip("`") for name in named} == {name for name in declared if not name.startswith("fedplug")}


def test_the_public_names_are_listed() -> None:
    text = (ROOT / "docs/writing-a-plugin.md").read_text(encoding="utf-8").partition("## What is public")[2]
    listed = set(re.findall(r"`(\w+)`", text.partition("Further:")[0]))
    assert listed == set(fedplug.__all__)


def test_the_recipe_keys_are_listed() -> None:
    from fedplug.recipe.parts import SECTIONS, General

    text = (ROOT / "docs/recipes.md").read_text(encoding="utf-8").partition("## Names and references")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert listed == {*General.model_fields, *SECTIONS, *Catalog.discover().sections, "extends"}


def test_every_command_of_fedplug_is_in_the_reference() -> None:
    from fedplug_terminal.app import app
    from fedplug_terminal.commands import offered

    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        assert f"## fedplug {name}\n" in page, name
    assert not [name for name in offered() if f"## fedplug {name}\n" not in page]


def test_what_is_generated_is_fresh() -> None:
    made = script(ROOT / "docs/generate.py").made()
    assert set(made) >= set((ROOT / "docs/reference").rglob("*.md")), "pages under docs/reference that nothing makes"
    stale = [page.name for page, text in made.items() if not page.is_file() or page.read_text(encoding="utf-8") != text]
    assert not stale, f"{stale} are stale; run: python docs/generate.py"


def test_the_smallest_plugin_of_each_hook_is_shown() -> None:
    templates = ROOT / "plugins/lab/src/fedplug_lab/templates"
    text = (ROOT / "docs/plugins/smallest.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- same: plugins/lab/src/fedplug_lab/templates/(\w+)\.py -->", text)
    assert set(shown) == {path.stem for path in templates.glob("*.py")} - {"dataset", "model", "test"}
    for name in shown:
        lines = (templates / f"{name}.py").read_text(encoding="utf-8").splitlines()
        assert len(list(filter(None, lines))) <= 25, name  # lines of code: blank ones do not count
