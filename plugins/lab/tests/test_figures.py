"""Charts of rows: a colour for each zone, diverged rounds marked, a line for each group."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import report_toys
import row_toys
from fedplug_lab.canvas import PERSONAL_COLOUR, ZONE_COLOURS
from fedplug_lab.drawing import Chart
from fedplug_lab.figures import charts
from fedplug_runs.folder import Distribution
from fedplug_runs.rows import Row
from row_toys import a_row


def test_figures_use_one_colour_a_zone() -> None:
    drawn = {chart.key: chart for chart in charts([a_row(1), a_row(2)], None)}
    assert set(drawn) == {"accuracy", "loss", "zones", "seconds", "bytes", "epsilon", "churn"}
    for key in ("zones", "bytes"):
        assert ("encrypted", ZONE_COLOURS["encrypted"], "area") in drawn[key].legend
        assert ZONE_COLOURS["encrypted"] in drawn[key].svg
    assert "retained" not in [label for label, _, _ in drawn["zones"].legend], "an empty zone is not in the legend"
    for label in ("round", "accuracy (share of test examples)"):
        assert label in drawn["accuracy"].svg
    assert "bytes per round (MB)" in drawn["bytes"].svg
    assert "loss (nats)" in drawn["loss"].svg


def test_personal_models_of_groups_are_drawn_in_the_panel_of_their_test_data() -> None:
    grouped = {"client_accuracy": {0: 0.5, 1: 0.6}, "group_members": {"a": [0], "b": [1]}}
    rows = [a_row(round, **grouped, personal_public_accuracy={0: 0.7, 1: 0.9}) for round in (1, 2)]
    (svg,) = [chart.svg for chart in charts(rows, None) if chart.key == "accuracy"]
    own, public = (svg.partition(f'url(#accuracy-{panel})')[2].partition("</g>")[0] for panel in (0, 1))
    assert [PERSONAL_COLOUR in panel for panel in (own, public)] == [False, True]


def epsilons(*rows: Row) -> Chart | None:
    return next((chart for chart in charts(rows, None) if chart.key == "epsilon"), None)


def test_epsilon_has_a_line_for_each_party_and_one_for_those_that_spend_the_same() -> None:
    spent = {"server": 2.0, "client": 1.0, "released_model": 1.0}
    chart = epsilons(
        a_row(1, view_epsilons={"server": 1.0, "client": 0.5, "released_model": 0.5}),
        a_row(2, view_epsilons=spent, unprotected=["client_and_server"]),
    )
    assert chart is not None
    assert chart.title == "Epsilon spent, by party"
    assert [label for label, _, _ in chart.legend] == ["toward server", "toward client, model"]
    colours = {colour for _, colour, _ in chart.legend}
    assert len(colours) == 2
    assert all(colour in chart.svg for colour in colours)
    assert chart.alt == "Epsilon after the last round: server 2.000, client 1.000, model 1.000."
    assert chart.note == "No guarantee, and so no line: client + server."


def test_a_chart_of_epsilon_never_says_more_than_the_rows() -> None:
    """Where sampling earns credit only the released model has a line; without a number there is no chart."""
    alone = epsilons(a_row(1))
    assert alone is not None
    assert alone.note == "What it rests on is in the verdict."
    assert epsilons(a_row(1, view_epsilons={}, unprotected=["server"])) is None
    assert epsilons(a_row(1, view_epsilons={"server": 0.0})) is None, "encrypted: nobody spends anything"
    assert epsilons(a_row(1, view_epsilons={"server": math.inf})) is None
    lost = epsilons(a_row(1), a_row(2, view_epsilons={}, unprotected=["released_model"]))
    assert lost is not None
    assert lost.alt == "Epsilon after the last round: none is stated."
    assert lost.note == "No guarantee, and so no line: model."
    unlimited = epsilons(a_row(1), a_row(2, view_epsilons={"released_model": math.inf}))
    assert unlimited is not None
    assert unlimited.alt == "Epsilon after the last round: model ∞."


def test_a_zone_that_a_recipe_added_has_a_colour_of_its_own() -> None:
    rows = [a_row(1, zones={"noised": 0.5, "hushed": 0.3, "bells": 0.2})]
    colours = {label: colour for c in charts(rows, None) if c.key == "zones" for label, colour, _ in c.legend}
    assert set(colours) == {"noised", "hushed", "bells"}
    assert len(set(colours.values())) == 3
    assert not {colours["hushed"], colours["bells"]} & set(ZONE_COLOURS.values())


def test_diverged_rounds_are_marked_not_left_out() -> None:
    rows = [a_row(1), a_row(2, loss=math.nan), a_row(3, loss=None, train_loss=math.inf)]
    loss = next(chart for chart in charts(rows, None) if chart.key == "loss")
    assert "not finite in 2 of 3 rounds" in loss.alt
    assert "not finite: diverged" in [label for label, _, _ in loss.legend]
    unmeasured = next(chart for chart in charts([a_row(1), a_row(2, loss=None)], None) if chart.key == "loss")
    assert "not finite" not in unmeasured.alt, "a loss that is not there yet has not diverged"


def test_loss_over_many_decades_is_logarithmic() -> None:
    rows = [a_row(i, loss=10.0**i) for i in range(1, 7)]
    loss = next(chart for chart in charts(rows, None) if chart.key == "loss")
    assert loss.note == "Logarithmic scale."
    assert "$" not in loss.svg


def test_groups_have_a_line_each() -> None:
    groups = {"g0": {"accuracy": 0.4, "loss": 1.0}, "g1": {"accuracy": 0.6, "loss": 2.0}}
    accuracy = charts([a_row(1, groups=groups), a_row(2, groups=groups)], None)[0]
    assert "each group's model" in [label for label, _, _ in accuracy.legend]
    one = charts([a_row(1, groups={"g0": groups["g0"]})], None)[0]
    assert "each group's model" not in [label for label, _, _ in one.legend]


def test_partition_picture_holds_every_count_and_many_clients() -> None:
    small = charts([], Distribution(["cat", "dog"], {0: [5, 7], 1: [0, 1234]}))[0]
    assert "2 clients hold 12 to 1234 training examples each, of 1 to 2 of 2 classes." in small.alt
    for count in ("5", "7", "1234"):
        assert f">{count}</text>" in small.svg
    clients = {k: [k] * 100 for k in range(50)}
    many = charts([], Distribution([f"class {i}" for i in range(100)], clients))[0]
    assert len(many.svg) < 100_000


def test_a_report_needs_no_library_for_drawing_or_statistics(tmp_path: Path) -> None:
    """Importing one takes longer than a short run with everything else in it; all plugins add their sections."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from pathlib import Path\nfrom report_toys import written\nfrom row_toys import a_row\n"
        "folder = Path(sys.path[0])\nassert 'Figures' in written(folder, [a_row(1), a_row(2)])\n"
        "print({'matplotlib', 'torch', 'PIL', 'scipy', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    places = [str(tmp_path), *(str(Path(found).parent) for found in (row_toys.__file__, report_toys.__file__) if found)]
    result = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
