"""The report's section on attacks: every number and reason is in it, nothing else, whatever the files hold."""

from __future__ import annotations

import base64
import copy
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import CheckpointError
from fedplug_attacks.workshop import report_section as report_attacks
from fedplug_attacks.workshop.display import AttackDisplay
from fedplug_attacks.workshop.pictures import draw
from fedplug_attacks.workshop.records import AttackSummary, Averaged, Ranking, Success, TargetResult
from fedplug_attacks.workshop.report_section import ATTACKS
from fedplug_attacks.workshop.results import write_result
from fedplug_lab.pictures import Pictures
from fedplug_lab.report import rewrite_report, write_report
from report_toys import HOSTILE, Page
from row_toys import a_ledger, a_row, a_summary
from target_toys import NAIVE, a_summary_row, a_target, an_attack_summary, an_outcome

BIAS = "the first linear layer's bias is encrypted"


def put(run_dir: Path, *results: TargetResult, summary: AttackSummary | None = None) -> Path:
    folder = run_dir / "attacks"
    folder.mkdir(exist_ok=True)
    for result in results:
        write_result(folder, result)
    if summary is not None:
        (folder / "summary.json").write_text(summary.to_json())
    return folder


def picture(folder: Path, result: TargetResult) -> bytes:
    """A picture that takes less time to draw than that of an attack."""
    file = folder / str(result.picture)
    matplotlib.image.imsave(file, np.full((90, 120), result.client), vmin=0, vmax=10)
    return file.read_bytes()


def said(run_dir: Path) -> str:
    return " ".join(Page(ATTACKS.html(run_dir)).visible().split())


def test_a_run_without_attacks_has_no_section(tmp_path: Path) -> None:
    assert ATTACKS.html(tmp_path) == ""
    (tmp_path / "attacks").mkdir()
    assert ATTACKS.html(tmp_path) == ""
    write_report(tmp_path, [a_row(1)], a_ledger(), a_summary())
    assert 'id="attacks"' not in (tmp_path / "report.html").read_text()


def test_the_summary_shows_each_form_beside_trivial_guesses(tmp_path: Path) -> None:
    put(tmp_path, a_target(), summary=an_attack_summary())
    text = said(tmp_path)
    for part in (
        "toy.copy; adaptive; stronger; zero-filling made it look protected; 3.5 s for 1,550 gradients 4 of 5 targets",
        "toy.copy; naive; 3.5 s for 1,550 gradients 0 of 5 targets, MSE 0.210 failed the attack's rule: MSE ≤ 0.001",
        "MSE 1.50e-06 ± 2.00e-07 mean image: 0.080 random guess: 0.120", "PSNR 58.2 dB ± 1.0 dB",
        "server sees every message and holds no key", "toy.vifp images of 8x8 px; it needs 41 px",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("An attack that fails proves nothing about stronger ones.") == 1
    assert "docs/attacking.md" in text
    assert "Damaged" not in text
    assert "There is no summary" not in text


def test_many_numbers_are_folded_behind_those_that_papers_report(tmp_path: Path) -> None:
    means = {"mse": 0.5, "members": 200.0, "a": 1.0, "b": 1.0, "c": 1.0, "recovered": 0.5, "recovered_low": 0.1,
             "ms_ssim": 0.25}  # fmt: skip
    metrics = {name: {"mean": mean, "std": 0.0} for name, mean in means.items()}
    put(tmp_path, summary=an_attack_summary(a_summary_row(metrics=metrics)))
    text = said(tmp_path)
    assert "random guess: 0.120 MS-SSIM 0.250 members 200 a 1.000 3 more b 1.000 c 1.000 recovered 0.500" in text


def test_each_target_is_listed_with_seed_and_what_its_adversary_saw(tmp_path: Path) -> None:
    put(tmp_path, a_target(picture=None), summary=an_attack_summary())
    row = "toy.copy-server-round1-client3-probe8.1: adaptive success, MSE 1.25e-06 (mean image 0.080), 700 ms; naive"
    assert row in said(tmp_path)
    assert "500 ms. Entries it saw: clear 90.0%, encrypted 10.0%. Seeds: 4711, 4712" in said(tmp_path)


def test_a_note_says_where_zero_filling_hid_a_leak(tmp_path: Path) -> None:
    put(tmp_path, summary=an_attack_summary(a_summary_row(succeeded=2), a_summary_row(**{**NAIVE, "succeeded": 1})))
    assert "adaptive; stronger; zero-filling made it look protected" in said(tmp_path)
    put(tmp_path, summary=an_attack_summary(a_summary_row(succeeded=1), a_summary_row(**{**NAIVE, "succeeded": 2})))
    assert "made it look protected" not in said(tmp_path)
    put(tmp_path, summary=an_attack_summary(a_summary_row(), a_summary_row(**{**NAIVE, "succeeded": 4})))
    assert "made it look protected" not in said(tmp_path)
    # Two adversaries are two questions.
    put(tmp_path, summary=an_attack_summary(a_summary_row(), a_summary_row(**{**NAIVE, "adversary": "client"})))
    assert "made it look protected" not in said(tmp_path)


def test_what_did_not_apply_is_told_in_words_and_is_no_failure(tmp_path: Path) -> None:
    rows = [a_summary_row(succeeded=0, not_applicable=5, wilson=[0.0, 1.0], reasons={BIAS: 5}, metrics={}),
            a_summary_row(attack="toy.part", not_applicable=2, inconclusive=1, succeeded=2, wilson=[0.2, 0.9]),
            ]  # fmt: skip
    put(tmp_path, summary=an_attack_summary(*rows))
    text = said(tmp_path)
    assert f"– not applicable {BIAS}; the attack's rule: MSE ≤ 0.001 mean image: 0.080" in text
    assert "2 of 3 targets, MSE 1.50e-06 succeeded 1 inconclusive, 2 not applicable; the attack's rule" in text
    assert "stronger" not in Page(ATTACKS.html(tmp_path)).visible().split("toy.copy")[-1]  # there is one form only


def test_that_nothing_applies_is_told_once_on_the_page_and_in_a_log(tmp_path: Path) -> None:
    row = a_summary_row(succeeded=0, not_applicable=5, wilson=[0.0, 1.0], reasons={BIAS: 5}, metrics={})
    put(tmp_path, summary=an_attack_summary(row))
    log = io.StringIO()
    AttackDisplay(log).finish(an_attack_summary(row), tmp_path, [])
    for told in (said(tmp_path), log.getvalue()):
        assert told.count(f"toy.copy does not apply to this run: {BIAS}.") == 1


def test_pictures_are_embedded_with_their_numbers_in_words(tmp_path: Path) -> None:
    results = [a_target(client) for client in range(3)]
    folder = put(tmp_path, *results, summary=an_attack_summary())
    drawn = [picture(folder, result) for result in results[:2]]
    image = np.zeros((1, 8, 8), np.float32)
    draw(folder / str(results[2].picture), [[image], [None], [image]])
    drawn.append((folder / str(results[2].picture)).read_bytes())
    page = Page(ATTACKS.html(tmp_path))
    found = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(found) == 3 + 3  # the strip at the top has them too
    for attributes, data in zip(found[3:], drawn, strict=True):
        prefix, _, encoded = str(attributes["src"]).partition(",")
        assert prefix == "data:image/png;base64"
        assert base64.b64decode(encoded) == data
        assert "adaptive success, MSE 1.25e-06 (mean image 0.080), 700 ms; naive failed, MSE 0.212" in attributes["alt"]
        assert "Entries it saw: clear 90.0%" in attributes["alt"]
        assert int(attributes["width"] or 0) > 50


def test_of_many_pictures_each_attack_has_some_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_attacks, "SHOWN", 4)
    results = [*(a_target(client) for client in range(6)), a_target(9, "toy.other")]
    folder = put(tmp_path, *results, summary=an_attack_summary())
    for result in results:
        picture(folder, result)
    page = Page(ATTACKS.html(tmp_path))
    assert sum(str(attributes.get("id")).startswith("attack-") for tag, attributes in page.tags if tag == "figure") == 4
    titles = [text for tag, text in page.texts if tag == "h3" and "client" in text]
    assert sum("toy.other" in title for title in titles) == 1
    assert "3 more targets" in page.visible()
    assert f"Picture: {results[5].picture}" in page.visible()


@pytest.mark.parametrize("name", ["../summary.png", "gone.png", "text.png", "x" * 300 + ".png", "a\0.png", ""])
def test_a_picture_elsewhere_or_none_at_all_is_not_embedded(name: str, tmp_path: Path) -> None:
    result = a_target(picture=name)
    folder = put(tmp_path, result, summary=an_attack_summary())
    picture(folder, a_target())
    (tmp_path / "summary.png").write_bytes((folder / str(a_target().picture)).read_bytes())
    (folder / "text.png").write_text("no picture")
    page = Page(ATTACKS.html(tmp_path))
    assert page.count("img") == 0
    assert "is missing or is not a picture" in page.visible()


def test_an_interrupted_attack_shows_what_is_finished(tmp_path: Path) -> None:
    result = a_target()
    result.forms["naive"] = an_outcome("not_applicable", BIAS)
    put(tmp_path, result)
    text = said(tmp_path)
    assert "There is no summary: the attacks were interrupted, or are still going on." in text
    assert "MSE 1.25e-06" in text
    assert f"naive not applicable: {BIAS}" in text
    assert "<details open>" in ATTACKS.html(tmp_path)


def test_everything_is_escaped_and_no_address_is_named(tmp_path: Path) -> None:
    bad = {HOSTILE: 0.5}
    ranking, success = Ranking(HOSTILE, "low"), Success(HOSTILE, "<=", 0.1)
    outcome = an_outcome("success", HOSTILE, metrics=bad, undefined={HOSTILE: HOSTILE}, own=bad)
    result = a_target(
        attack=HOSTILE, use=HOSTILE, adversary=HOSTILE, states=bad, ranking=ranking, success=success,
        better={HOSTILE: "low"}, baselines={HOSTILE: bad}, forms={HOSTILE: outcome}, headline=HOSTILE, picture=HOSTILE,
        key="poisoned",
    )  # fmt: skip
    row = dataclasses.replace(
        a_summary_row(), attack=HOSTILE, adversary=HOSTILE, form=HOSTILE, reasons={HOSTILE: 1}, ranking=ranking,
        success=success, metrics={HOSTILE: Averaged(0.5, 0.1)}, baselines={HOSTILE: bad}, states=bad,
    )  # fmt: skip
    summary = AttackSummary([row, a_summary_row()], {HOSTILE: HOSTILE}, unseen=[HOSTILE], left={HOSTILE: HOSTILE})
    folder = put(tmp_path, result, summary=summary)
    (folder / "unknown.json").write_text(json.dumps({**result.to_plain(), HOSTILE: HOSTILE}))
    (folder / "wrong.json").write_text(json.dumps({**result.to_plain(), "round": HOSTILE}))
    (folder / "<b>.json").write_text("{")
    write_report(tmp_path, [a_row(1)], a_ledger(), a_summary())
    whole = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(whole)
    assert page.count("script") == page.count("b") == 0
    assert all(name != "onload" for _, attributes in page.tags for name in attributes)
    assert not re.search(r"(https?:)?//\w", re.sub(r"base64,[\w+/=]*", "", whole))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert "#attacks" in links
    assert whole.index('<section id="attacks">') < whole.index('<section id="run">')


def test_damaged_files_are_named_and_the_others_shown(tmp_path: Path) -> None:
    folder = put(tmp_path, a_target(), summary=an_attack_summary())
    (folder / "half.json").write_text('{"forms": {')
    (folder / "list.json").write_text("[1]")
    (folder / "bytes.json").write_bytes(b"\xff\xfe")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "other.json").write_text("{}")
    text = said(tmp_path)
    for name in ("half", "list", "bytes", "deep"):
        assert f"{name}.json cannot be read: " in text
    assert "other.json cannot be read: key: field required" in text
    assert "4 of 5" in text
    (folder / "summary.json").write_text("null")
    assert "There is no summary" in said(tmp_path)
    assert "summary.json cannot be read: it is None: input should be" in said(tmp_path)


VALUES = [None, "x", {"x": [1]}, [None, None, 10**400], float("inf")]


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    here = [((*before, key), part) for key, part in inner]
    return [path for path, _ in here] + [path for place, part in here for path in paths(part, place)]


@pytest.mark.parametrize("which", ["result", "summary"])
def test_no_content_of_any_field_breaks_the_page(which: str, tmp_path: Path) -> None:
    whole = a_target(key="one").to_plain() if which == "result" else an_attack_summary().to_plain()
    folder = put(tmp_path, a_target(key="one"), summary=an_attack_summary())
    file = folder / ("one.json" if which == "result" else "summary.json")
    for number, path in enumerate(paths(whole)):
        for value in [VALUES[(number + k) % len(VALUES)] for k in range(max(2, examples(len(VALUES))))]:
            changed = copy.deepcopy(whole)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            file.write_text(json.dumps(changed))
            Page(ATTACKS.html(tmp_path))


def a_finished_run(run_dir: Path) -> Path:
    rows = [a_row(1), a_row(2, loss=float("nan"), epsilon=float("inf"), log={"ε": 1.0})]
    ledger = a_ledger(log=[{"round": 0, "charged": [], "total": 1, "zones": {}}])
    summary = a_summary(recipe={"name": "demo", "rounds": 2})
    kept = Pictures(lambda note: None)
    kept.add("one", {"kind": "histogram", "title": "T", "panels": [{"edges": [0, 1], "counts": [2]}]}, "client 0", 1)
    (run_dir / "metrics.jsonl").write_text("".join(row.to_json() + "\n" for row in rows))
    (run_dir / "ledger.json").write_text(ledger.to_json())
    (run_dir / "summary.json").write_text(summary.to_json())
    (run_dir / "figures.json").write_text(kept.to_json())
    return write_report(run_dir, rows, ledger, summary, kept.kept)


def test_the_report_of_a_finished_run_is_written_again_as_it_was_plus_the_attacks(tmp_path: Path) -> None:
    report = a_finished_run(tmp_path)
    before = report.read_text(encoding="utf-8")
    assert rewrite_report(tmp_path) == report
    assert report.read_text(encoding="utf-8") == before
    put(tmp_path, a_target(), summary=an_attack_summary())
    after = rewrite_report(tmp_path).read_text(encoding="utf-8")
    section = ATTACKS.html(tmp_path)
    assert section in after
    assert len(after) > len(before) + len(section)
    assert 'id="figure-picture-0"' in after


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("summary.json", None, "it has no summary.json"),
        ("ledger.json", b"{", "ledger.json is damaged"),
        ("metrics.jsonl", b'{"rou', r"metrics.jsonl, line 1, is damaged .invalid JSON.* fedplug resume"),
        ("metrics.jsonl", b'{"round": "one"}', r"metrics.jsonl, line 1, is damaged .round is 'one': "),
        ("summary.json", b"{}", r"summary.json is damaged .name: field required"),
        ("metrics.jsonl", b"\xff", "metrics.jsonl cannot be read"),
        ("ledger.json", b"[]", "ledger.json is damaged .it is a list: "),
    ],
)
def test_a_damaged_run_keeps_its_old_report(file: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    report = a_finished_run(tmp_path)
    before = report.read_bytes()
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        rewrite_report(tmp_path)
    assert report.read_bytes() == before
