"""The verdict as HTML: a row for each party, its state in a sign and words, and nothing that is not escaped."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug_lab.page import HELP, verdict_html
from fedplug_ledger.grades import PARTIES, Grade
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.verdict_words import MARKS, STATUSES
from report_toys import HOSTILE, VERDICT, Page
from row_toys import a_line, a_verdict


def test_it_has_a_status_a_plain_sentence_and_five_rows_in_order() -> None:
    page = Page(verdict_html(VERDICT))
    shown = page.visible()
    assert shown.index(VERDICT.opening) < shown.index(VERDICT.headline) < shown.index("Who looks")
    assert [said for tag, said in page.texts if tag == "th"][4:] == list(PARTIES.values())
    assert [said for tag, said in page.texts if tag == "span" and said in MARKS.values()] == ["✓", "○", "✗", "!", "✗"]
    for line in VERDICT.lines:
        assert line.guarantee in shown
        assert line.reason in shown
        assert line.sees in shown
    assert "Rests on:\nnoise that fedplug itself adds" in shown
    assert "Not covered:\nmask" in shown
    assert VERDICT.lines[0].terms in shown
    assert HELP in shown
    assert page.count("table") == page.count("caption") == 1
    assert all(attributes.get("scope") for tag, attributes in page.tags if tag == "th")


def test_a_sentence_says_why_where_one_points_at_a_reason() -> None:
    line = a_line("client", "none", detail="sees sums of it, and why that is")
    titles = [attributes["title"] for _, attributes in Page(verdict_html(a_verdict(client=line))).tags
              if "title" in attributes]  # fmt: skip
    assert len(titles) == 5
    assert titles[2] == "sees sums of it, and why that is"


@pytest.mark.parametrize("grade", MARKS)
def test_no_cell_is_empty_or_a_dash(grade: Grade) -> None:
    verdict = Verdict.of([a_line("server", "none"), *(a_line(party, grade) for party in [*PARTIES][1:])])
    rows = verdict_html(verdict).partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows.count(f'<tr class="{grade}">') >= 4
    for mark in ("–", "—", ">none<", "<td></td>", "NaN", "epsilons"):
        assert mark not in rows, mark


@pytest.mark.parametrize("status", STATUSES)
def test_each_status_is_a_word_and_a_class(status: Any) -> None:
    """A page in which colours are not seen says the same."""
    shown = verdict_html(Verdict(status, [a_line(party, "none") for party in PARTIES]))
    assert f'<span class="status {status}">{STATUSES[status]}</span>' in shown


def test_coalitions_that_no_line_judges_follow_the_table() -> None:
    verdict = Verdict.of(VERDICT.lines, ["the server together with <b> can decrypt every upload"])
    shown = verdict_html(verdict)
    told = "Not judged: the server together with &lt;b&gt; can decrypt every upload."
    assert shown.index("</table>") < shown.index(told)
    assert "Not judged" not in verdict_html(VERDICT)


def test_of_nothing_there_is_no_table() -> None:
    shown = verdict_html(Verdict("nothing_run"))
    assert "<table" not in shown
    assert HELP not in shown
    assert "No round was recorded, so nothing was released." in shown


def test_it_says_how_many_clients_take_part_where_that_is_known() -> None:
    assert "7 clients take part." in Page(verdict_html(VERDICT, 7)).visible()
    assert "clients take part" not in verdict_html(VERDICT)


def test_every_word_is_escaped() -> None:
    words: dict[str, Any] = {"reason": HOSTILE, "detail": HOSTILE, "sees": HOSTILE}
    verdict = Verdict.of([
        a_line(HOSTILE, "none", **words),
        a_line("client", "guaranteed", detail=HOSTILE, sees=HOSTILE, unit=HOSTILE, adjacency=HOSTILE,
               stated={HOSTILE: 2.0}, rests_on=[HOSTILE], not_covered=[HOSTILE]),
    ])  # fmt: skip
    shown = verdict_html(verdict)
    page = Page(shown)
    assert page.count("script") == 0
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert shown.count("&lt;script&gt;alert") >= 9
    assert [a.get("title") for _, a in page.tags if "title" in a] == [HOSTILE, HOSTILE]
