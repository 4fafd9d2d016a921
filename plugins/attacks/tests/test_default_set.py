"""`fedplug attack RUN` without another word: it works on what a run keeps anyhow, and what it shows fits on a page."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from attack_toys import Runs, attack_catalog, results
from fedplug.recipe.catalog import Catalog
from fedplug_attacks import _low_rank
from fedplug_attacks.views.rewind import Rewound
from fedplug_attacks.workshop import default_set
from fedplug_attacks.workshop.report_section import ATTACKS, ROWS, TILES
from fedplug_attacks.workshop.results import read_summary
from fedplug_attacks.workshop.stage import OutOfTime, Timer
from fedplug_attacks.workshop.words import findings
from fedplug_terminal.main import main
from report_toys import Page
from toy_components import recipe_of

PLAIN = recipe_of(rounds=1, model={"use": "std.mlp", "hidden": [16]})
SAID = pytest.CaptureFixture[str]
ITERATIONS = default_set.SEARCH["iterations"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    catalog = attack_catalog()
    monkeypatch.setattr(Catalog, "discover", staticmethod(lambda: catalog))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    # Behind so few rows exact batches are not found, however long each of the searches takes.
    monkeypatch.setattr(_low_rank, "_STEPS", 3)
    monkeypatch.setitem(default_set.SEARCH, "iterations", 10)  # one test is of what a search finds


@pytest.fixture
def folder(runs: Runs, tmp_path: Path) -> Path:
    """A finished run that recorded no message, as `fedplug run` makes it."""
    return Path(shutil.copytree(runs.of(PLAIN, record=False), tmp_path / "run"))


def attacked(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedplug", "attack", str(folder), *map(str, words)])
    return int(main() or 0)


@pytest.fixture(scope="module")
def made() -> list[tuple[Path, str]]:
    """What `finished` makes once for all tests."""
    return []


@pytest.fixture
def finished(
    made: list[tuple[Path, str]], folder: Path, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch, capsys: SAID,
) -> tuple[Path, str]:
    """A run on which the whole set was made, and what was said of that."""
    if not made:
        assert attacked(monkeypatch, folder) == 0
        made.append((shutil.copytree(folder, tmp_path_factory.mktemp("finished") / "run"), capsys.readouterr().out))
    ((kept, said),) = made
    return Path(shutil.copytree(kept, folder, dirs_exist_ok=True)), said


def unfolded(html: str) -> str:
    """What is seen of a page without opening anything."""
    inner = re.compile(r"<details[^>]*>(?:(?!<details|</details>).)*</details>", re.DOTALL)
    while (shorter := inner.sub("", html)) != html:
        html = shorter
    return html


def test_it_works_on_a_run_that_recorded_nothing_and_a_second_call_repeats_nothing(
    finished: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    folder, said = finished
    assert "of 24 examples" in said
    assert "anybody who gets the model" in said
    found = results(folder)
    assert {name.split("-")[1] for name in found if name != "summary"} == {
        "server", "eavesdropper", "client", "released"
    }  # fmt: skip
    people = found["summary"]["people"]
    assert people["attacked"] == 24
    assert people["recovered"] >= 3  # nothing protects single images
    assert all(row["success"] for row in found["summary"]["rows"])
    # With two classes iLRG finds less than a guess, where one layer's gradient has the counts.
    counted = {row["attack"] for row in found["summary"]["rows"] if row["ranking"]["metric"] == "ln_acc"}
    assert counted == {"attacks.ilrg", "attacks.labels"}

    def asked(*_: Any) -> None:
        raise AssertionError("the parties were asked again")

    monkeypatch.setattr(Rewound, "probe", asked)
    monkeypatch.setattr(Rewound, "before", asked)
    assert attacked(monkeypatch, folder) == 0
    assert capsys.readouterr().out.count("finished before") == len(found) - 1


def test_the_page_opens_with_the_conclusion_and_pictures_and_stays_short(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    html = (folder / "attacks.html").read_text(encoding="utf-8")
    seen = unfolded(html)
    section = seen[seen.index('<section id="attacks">') :]
    assert section.index('class="conclusion"') < section.index('class="strip"') < section.index("<table")
    page = Page(section[: section.index("</section>")] + "</section>")
    assert page.count("table") == 1
    assert 1 < page.count("tr") <= ROWS + 1
    # Two rows of pictures at most, and of text: a row of the table has three lines of about 20 pixels and its padding.
    widths = [int(str(attributes["width"])) for tag, attributes in page.tags if tag == "img"]
    assert 0 < sum(widths) <= TILES * 80
    assert 400 + 72 * page.count("tr") + 1200 < 6000
    assert "of 24 examples were recovered" in str(ATTACKS.headline(folder))


def test_adversaries_targets_and_sizes_of_the_command_replace_those_of_the_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacked(monkeypatch, folder, "--adversary", "server", "--target", 1, "--probe", 2, "-q") == 0
    names = set(results(folder)) - {"summary"}
    assert names
    assert all("-server-round1-client1-probe2.1" in name for name in names)


def test_what_does_not_apply_names_who_would_get_further(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is at the clients: any of them opens what the server cannot."""
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "clients"}], rounds=1)
    folder = Path(shutil.copytree(runs.of(plain, record=False), tmp_path / "sealed"))
    assert attacked(monkeypatch, folder, "--adversary", "server", "--adversary", "client", "--target", 0, "-q") == 0
    rows = [row for row in results(folder)["summary"]["rows"] if row["attack"] == "attacks.linear_leak"]
    for row in rows:
        if row["adversary"] == "client":
            assert row["people"]["recovered"] == (row["probe_batch_size"] == 1)
        else:
            assert row["not_applicable"] == 1
            assert row["remedies"] == {"it applies to another client": 1}


def test_what_there_is_no_time_for_is_named_and_left_to_the_next_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    monkeypatch.setattr(default_set, "MINUTES", 0.0)
    assert attacked(monkeypatch, folder, "--adversary", "server") == 0
    said = capsys.readouterr().out
    total = re.search(r"(\d+) of (\d+) targets are left because time is up", said)
    assert total is not None
    assert total[1] == total[2]
    assert "Not attacked for want of time: " in said
    assert "attacks.linear_leak by the server, round 1, 1 example (3 targets);" in said
    assert set(results(folder)) == {"summary"}
    assert attacked(monkeypatch, folder, "--adversary", "server", "--minutes", 15, "-q") == 0
    found = results(folder)
    assert found["summary"].get("left", {}) == {}
    # Exact batches and matching are needless where the closed form has all images.
    searches = {name for name in found if name.startswith(("attacks.inverting", "attacks.exact_batch"))}
    assert len(found) - 1 <= int(total[2])
    assert len(searches) < 9


def test_an_attack_that_takes_far_longer_than_the_time_is_stopped_and_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    def slow(self: Any, done: int, total: int, loss: float | None) -> None:
        raise OutOfTime

    monkeypatch.setattr(Timer, "progress", slow)
    assert attacked(monkeypatch, folder, "--adversary", "released", "--target", 0) == 0
    assert "1 of 1 targets are left because time is up" in capsys.readouterr().out


def in_turn(*zones: str, first: str | None = None, **changes: Any) -> dict[str, Any]:
    """Rounds that send one zone or another; what is encrypted only the clients open."""
    seal = {"use": "std.bfv", "key_holder": "clients"}
    return recipe_of(
        negotiate_mask={"use": "toy.in_turn", "zones": list(zones), "first": first},
        protect={"encrypted": [seal], "clear": []}, postprocess={"encrypted": ["std.bfv"]},
        model={"use": "std.mlp", "hidden": [64, 32] if first else [16]},
        data={"use": "std.digits", "clients": 4, "public": 100, "partition": {"use": "std.iid"}}, **changes,
    )  # fmt: skip


QUICK = ("--quick", "--adversary", "server", "--target", 0)


def test_a_round_of_each_kind_is_attacked_not_the_last_alone(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    made = runs.of(in_turn("clear", "encrypted", rounds=4), record=False)
    folder = Path(shutil.copytree(made, tmp_path / "turns"))
    assert attacked(monkeypatch, folder, *QUICK) == 0
    rows = [row for row in results(folder)["summary"]["rows"] if row["attack"] == "attacks.linear_leak"]
    assert {(row["round"], row.get("people", {}).get("recovered", 0) > 0) for row in rows} == {(1, True), (4, False)}
    said = capsys.readouterr().out
    assert "The image of 1 of" in said or "Images of" in said
    assert "Not attacked: round" not in said
    assert "Not attacked: the opened sum of zone encrypted; each attack took what one client sent." in said


def test_what_cannot_be_rewound_to_is_said_not_passed_over(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    """As in folders of earlier versions, which kept the last two checkpoints whatever was sent before."""
    made = runs.of(in_turn("clear", "encrypted", rounds=4), record=False)
    folder = Path(shutil.copytree(made, tmp_path / "turns"))
    shutil.rmtree(folder / "checkpoint" / "round-0000")
    assert attacked(monkeypatch, folder, *QUICK) == 0
    said = capsys.readouterr().out
    sentence = "Not attacked: round 1 sent the zone clear in the clear."
    assert said.count(sentence) >= 1
    assert sentence in str(ATTACKS.headline(folder))
    assert sentence in (folder / "attacks.html").read_text(encoding="utf-8")


def test_matching_is_tried_where_no_closed_form_applies(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encrypted first layer leaves nothing to the linear leak, and the rest of the gradient shows the image."""
    monkeypatch.setitem(default_set.SEARCH, "iterations", ITERATIONS)
    made = runs.of(in_turn("clear", first="encrypted", rounds=1), record=False)
    folder = Path(shutil.copytree(made, tmp_path / "first"))
    assert attacked(monkeypatch, folder, "--adversary", "server", "--target", 0, "--probe", 1, "-q") == 0
    rows = {row["attack"]: row for row in results(folder)["summary"]["rows"] if row["headline"]}
    assert rows["attacks.linear_leak"]["not_applicable"] == 1
    assert rows["attacks.inverting"].get("not_applicable", 0) == 0
    (found,) = [one for one in findings(read_summary(folder / "attacks")) if one.sought.startswith("the image")]
    assert found.attack == "attacks.inverting"
    assert (found.state, found.people) == ("succeeded", 1)


def test_who_saw_the_same_has_the_same_result_without_another_search(finished: tuple[Path, str]) -> None:
    folder, said = finished
    found = results(folder)
    server = {name: one for name, one in found.items() if "linear_leak-server" in name}
    assert server
    for name, one in server.items():
        other = found[name.replace("-server-", "-eavesdropper-")]
        assert other["same_as"] == "server"
        assert [form["recovered"] for form in other["forms"].values() if "recovered" in form] == [
            form["recovered"] for form in one["forms"].values() if "recovered" in form
        ]  # fmt: skip
    assert "saw what the server saw" in said


@pytest.mark.parametrize(("words", "named"), [(("--quick",), "--quick"), (("--minutes", 3), "--minutes 3")])
def test_options_of_the_set_are_refused_for_attacks_that_are_named(
    words: tuple[Any, ...], named: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    assert attacked(monkeypatch, folder, "--attack", "ilrg", *words) == 1
    assert f"{named} is for the default set of attacks" in capsys.readouterr().err


def test_the_documentation_has_every_question_of_the_set() -> None:
    text = (Path(__file__).parents[3] / "docs" / "attacking.md").read_text(encoding="utf-8")
    for question in default_set.DEFAULT_SET:
        assert question.asks in text
        for attack in question.attacks:
            named = {"images": "attacks.linear_leak", "search": "attacks.inverting"}
            name = named[attack] if isinstance(attack, str) else str(attack["use"])
            assert name in text
