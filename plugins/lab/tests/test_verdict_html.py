"""The verdict as HTML: a row for each party, its state in a sign and words, and nothing that is not escaped."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from fedplug_lab.glance import legend, lock
from fedplug_lab.page import HELP, verdict_glance, verdict_html
from fedplug_ledger.grades import PARTIES, Grade
from fedplug_ledger.tiers import MARKS, TIERS, Tier
from fedplug_ledger.verdict import Line, Verdict
from fedplug_ledger.verdict_words import STATUSES
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


def test_one_reason_is_said_once() -> None:
    lines = [a_line("server", "none", reason="reads sums"), a_line("client", "none", reason="reads sums"),
             a_line("released_model", "none", reason="reads the model")]  # fmt: skip
    shown = Page(verdict_html(Verdict.of(lines))).visible()
    assert shown.count("reads sums") == 1
    assert shown.count("as for the server") == 1
    assert "reads the model" in shown


def test_a_sentence_says_why_where_one_points_at_a_reason() -> None:
    line = a_line("client", "none", detail="sees sums of it, and why that is")
    titles = [attributes["title"] for _, attributes in Page(verdict_html(a_verdict(client=line))).tags
              if "title" in attributes]  # fmt: skip
    assert len(titles) == 5
    assert titles[2] == "sees sums of it, and why that is"


def of_tier(party: str, tier: Tier) -> Line:
    """A line of a tier."""
    epsilons = {"nothing": 0.0, "strict": 0.4, "moderate": 3.0, "loose": 9.56}
    if tier == "part":
        return a_line(party, "guaranteed", unit="record", epsilons=None, stated={"pld": 0.5})
    if tier in epsilons:
        return a_line(party, "guaranteed", epsilons[tier])
    return a_line(party, cast(Grade, tier))


@pytest.mark.parametrize("tier", TIERS)
def test_no_cell_is_empty_or_a_dash(tier: Tier) -> None:
    verdict = Verdict.of([a_line("server", "none"), *(of_tier(party, tier) for party in [*PARTIES][1:])])
    assert [line.tier for line in verdict.lines] == ["none", *[tier] * 4]
    rows = verdict_html(verdict).partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows.count(f'<tr class="{tier}">') >= 4
    for mark in ("–", "—", ">none<", "<td></td>", "NaN", "epsilons"):
        assert mark not in rows, mark


@pytest.mark.parametrize("status", STATUSES)
def test_each_status_is_a_word_and_never_greener_than_its_lines(status: Any) -> None:
    """A page in which colours are not seen says the same."""
    shown = verdict_html(Verdict(status, [a_line(party, "none") for party in PARTIES]))
    said = re.search(r'<span class="status (\w+) (\w+)">([^<]*)</span>', shown)
    assert said is not None
    assert (said[1], said[3]) == (status, STATUSES[status])
    assert said[2] in ("some", "none", "absent")


@pytest.mark.parametrize(
    ("epsilon", "tier"), [(0.4, "strict"), (3.0, "moderate"), (8.0, "loose"), (10.0, "loose"), (10.5, "weak")]
)
def test_the_verdict_is_a_scale(epsilon: float, tier: str) -> None:
    """Odds of 1.5, 20 and 3,000 look different, and a replace-one epsilon just below 20 is not greener than above."""
    one = a_line("server", "weak") if tier == "weak" else a_line("server", "guaranteed", epsilon)
    verdict = Verdict.of([one, a_line("client", "guaranteed", 0.0)])
    shown = verdict_glance(verdict)
    assert f'<li class="{tier}">' in shown
    assert f'<span class="status {verdict.status} {tier}">' in shown
    assert '<li class="nothing">' in shown
    widths = [float(width) for width in re.findall(r'class="own" style="width:([\d.]+)%"', shown)]
    assert widths[0] > widths[1] == 0.0


def test_the_bars_grow_with_what_is_given_away_and_are_full_where_nothing_is_promised() -> None:
    lines = [a_line("server", "guaranteed", epsilon) for epsilon in (0.0, 0.4, 3.0, 8.0)]
    lines += [a_line("server", "weak"), a_line("server", "beyond"), a_line("server", "none")]
    shown = [verdict_glance(Verdict.of([line])) for line in lines]
    ends = [float(re.findall(r'class="to" style="width:([\d.]+)%"', one)[0]) for one in shown]
    assert ends == sorted(ends)
    assert ends[0] == 0.0
    assert ends[-3:] == [100.0] * 3


def test_a_lock_is_open_where_nothing_is_promised_whatever_the_epsilon() -> None:
    """An epsilon of 1e10 had a lock that was half open, and the words no guarantee next to it."""
    shown = [verdict_glance(Verdict.of([a_line("server", state, 1e10)])) for state in ("beyond", "none")]
    locks = [re.findall(r'<path class="lock" d="([^"]+)"', one) for one in shown]
    assert locks[0] == locks[1] != re.findall(r'<path class="lock" d="([^"]+)"', lock("strict"))
    assert all('<b class="state">open</b>' in one for one in shown)
    assert "no guarantee" in legend([a_line("server", "beyond", 1e10)])


def test_a_guarantee_for_another_unit_is_locked_in_part() -> None:
    line = of_tier("server", "part")
    shown = verdict_glance(Verdict.of([line]))
    assert '<li class="part">' in shown
    assert "locked for each record only" in shown
    assert f'status {Verdict.of([line]).status} part">' in shown
    assert line.mark not in (MARKS["strict"], MARKS["none"])


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
    assert "1 client takes part." in Page(verdict_html(VERDICT, 1)).visible()
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
