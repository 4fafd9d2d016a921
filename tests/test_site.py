"""The documentation as a site: every page has a place, nothing is fetched, pictures and tables follow from numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from scripts import script

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LONGEST = 600


class Settings(yaml.SafeLoader):
    """Reads mkdocs.yml, in which a function of a package may be named."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)  # type: ignore[no-untyped-call]


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Settings)
    return found


NOWHERE = "has no entry under nav in mkdocs.yml, so nobody finds it on the site; add one"


def entries(nav: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(nav, str):
        yield nav
    for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from entries(inner)


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    return script(DOCS / "draw.py")


# ---- pages


def test_every_page_has_a_place_in_the_navigation() -> None:
    named = [*entries(settings()["nav"])]
    for page in PAGES:
        path = page.relative_to(DOCS).as_posix()
        assert path in named, f"docs/{path} {NOWHERE}"
    assert len(named) == len(set(named)), "a page is listed twice under nav in mkdocs.yml"
    missing = [path for path in named if not (DOCS / path).is_file()]
    assert not missing, f"nav in mkdocs.yml names {missing}, which are not there"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_no_page_is_long_and_none_leaves_the_site(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines, looked_up = text.count("\n"), page.is_relative_to(DOCS / "reference")  # where one goes by a name
    too_long = f"{ids(page)} has {lines} lines; above {LONGEST} nobody finds anything: split it"
    assert looked_up or lines <= LONGEST, too_long
    assert len(re.findall(r"^# ", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.MULTILINE)) == 1
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s#]+)", prose) + re.findall(r'(?:src|href)="([^"#]+)"', prose):
        if link.startswith(("http://", "https://")):
            continue
        inside = (page.parent / link).resolve().is_relative_to(DOCS)
        assert inside, f"{ids(page)} links to {link}, which is not on the site; write `path` in place of a link"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_nothing_is_fetched_to_read_a_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```mermaid" not in text, f"{ids(page)}: readers would fetch mermaid from a network; draw an SVG instead"
    fetched = re.findall(r"!\[[^\]]*\]\((https?:[^)]*)\)|src=\"(https?:[^\"]*)\"", text)
    assert not fetched, f"{ids(page)} shows pictures from a network: {fetched}"


def test_nothing_is_fetched_to_open_the_site() -> None:
    found = settings()
    assert found["theme"]["font"] is False
    assert found["use_directory_urls"] is False  # without a server, a folder does not open its index.html
    assert "offline" in found["plugins"]
    ours = [*found["extra_css"], *found.get("extra_javascript", [])]
    look = ROOT / found["theme"]["custom_dir"]
    sources = [path.read_text(encoding="utf-8") for path in look.rglob("*.*")]
    assert not [path for path in ours if path.startswith("http")]
    assert all((DOCS / path).is_file() for path in ours)
    assert not [text for text in sources if re.search(r"(?:src|href|import|url)\W{1,3}https?:", text)]
    # The builder's own template asks GitHub for stars and forks.
    assert 'data-md-component="source"' not in (look / "partials/source.html").read_text(encoding="utf-8")
    # The builder's template would load a script from a network, to search pages that are opened as files.
    assert "block libs" in (look / "main.html").read_text(encoding="utf-8")


def test_what_python_leaves_in_the_folder_is_not_on_the_site() -> None:
    """Otherwise drawing the pictures before building would put compiled files on the site."""
    assert {"*.py", "__pycache__/"} <= set(settings()["exclude_docs"].split())


def test_the_readme_is_short_and_has_two_pictures() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 100
    shown = re.findall(r'(?:<img src="|!\[[^\]]*\]\()([^")]+)', text)
    assert shown == ["docs/pictures/both-wishes.svg", "docs/pictures/run.svg"]


# ---- numbers and pictures


def test_every_file_of_numbers_is_on_a_page_and_every_picture_too() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = set(re.findall(r"<!-- numbers: ([\w-]+) -->", text))
    assert {path.stem for path in (DOCS / "numbers").glob("*.csv")} == shown
    for picture in (DOCS / "pictures").iterdir():
        on = re.search(rf'pictures/{re.escape(picture.name)}[)"]', text)
        assert on, f"docs/pictures/{picture.name} is on no page"


def test_pictures_are_drawn_from_the_numbers_as_they_are(draw: ModuleType) -> None:
    stale = [name for name in draw.DRAWN if draw.mark_of(name) not in _picture(name)]
    assert not stale, f"stale: {stale}; run: python docs/draw.py"
    drawn = [path for path in (DOCS / "pictures").glob("*.svg") if "drawn by docs/draw.py" in path.read_text("utf-8")]
    assert {path.stem for path in drawn} == set(draw.DRAWN)


def test_another_number_makes_a_picture_stale(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (DOCS / "numbers").glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(draw, "NUMBERS", tmp_path)
    assert draw.mark_of("fedre") in _picture("fedre")
    file = tmp_path / "fedre-receipts.csv"
    file.write_text(file.read_text(encoding="utf-8").replace("0.209", "0.309"), encoding="utf-8")
    assert draw.mark_of("fedre") not in _picture("fedre")
    assert draw.mark_of("fas") in _picture("fas")


def test_the_numbers_of_a_comparison_are_taken_from_its_folder(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, numbers = tmp_path / "compare-two", tmp_path / "numbers"
    folder.mkdir()
    numbers.mkdir()
    monkeypatch.setattr(draw, "NUMBERS", numbers)
    with pytest.raises(SystemExit, match="fedplug compare"):
        draw.take(folder)
    (folder / "compare.csv").write_text(
        "protocol,seeds_list,accuracy_mean,accuracy_sd,bytes_up_mean,bytes_down_mean,seconds_mean,epsilon_server\n"
        "a,1 2,0.95648,0.0042,40749660.0,40726300.0,2.71,\nb,1 2,0.5,0.1,1000000,1000000,5,7.9999\n"
    )
    assert draw.take(folder) == "two"
    assert (numbers / "two.csv").read_text() == (
        "protocol,seeds,accuracy,accuracy sd,MB,seconds,epsilon of the server's view\n"
        "a,1 2,0.956,0.004,81.5,2.7,\nb,1 2,0.500,0.100,2.0,5.0,8.00\n"
    )


@pytest.mark.slow
def test_a_picture_is_the_same_each_time(draw: ModuleType) -> None:
    assert draw.draw("fas") == draw.draw("fas")


def _picture(name: str) -> str:
    return (DOCS / f"pictures/{name}.svg").read_text(encoding="utf-8")


def test_tables_join_a_number_with_its_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = script(DOCS / "generate.py")
    monkeypatch.setattr(generate, "NUMBERS", tmp_path)
    (tmp_path / "some.csv").write_text("of,x,x sd,y,y ratio\na|b,0.84,0.001,3,\nc,–,,4,2.0\n")
    table = generate.numbers_table("some", tmp_path / "page.md")
    assert table.splitlines()[2:4] == [r"| a\|b | 0.84 ± 0.001 | 3 |", "| c | – | 4 (x2.0) |"]
    assert "[Data](some.csv)" in table
    with pytest.raises(SystemExit, match=r"page\.md shows the numbers of other, and .*other\.csv is not there"):
        generate.numbers_table("other", tmp_path / "page.md")


def test_the_reference_is_not_made_of_half_the_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = script(DOCS / "generate.py")
    assert generate.absent() == []
    (tmp_path / "plugins/far").mkdir(parents=True)
    (tmp_path / "plugins/far/pyproject.toml").write_text('[project]\nname = "fedplug-far"\n')
    monkeypatch.setattr(generate, "DOCS", tmp_path / "docs")
    assert generate.absent() == ["fedplug-far"]
