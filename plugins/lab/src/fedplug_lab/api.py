"""What other plugins may use of this one: to run many recipes, read their results, and draw pages of one look.

    from fedplug_lab.api import Job, Wanted, make_runs, numbers_of, write_page

A page is made of sections (`write_page`, `table`, `figures`); a figure is a `Chart` around a `Drawing`. What a plugin
adds to reports and tables is in `fedplug_lab.sections`.
"""

from __future__ import annotations

from fedplug_lab.canvas import Point, Scale, draw_front, front_of, front_panels, height_axis
from fedplug_lab.commands import Jobs, WithSeeds
from fedplug_lab.comparable import unlike
from fedplug_lab.compare_figures import colour_of
from fedplug_lab.compare_table import Stated, numbers_of, verdicts_of
from fedplug_lab.drawing import Chart
from fedplug_lab.glance import legend, lock, state_of
from fedplug_lab.grid import assignment, distinct, seed_problems, short_names, shown
from fedplug_lab.page import (
    figures,
    glossary,
    page_html,
    verdict_glance,
    verdict_html,
    verdict_lines,
    write_page,
)
from fedplug_lab.panel import MUTED, Panel
from fedplug_lab.records import Compared, OneRun, at_work, csv_text, open_run
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.study import Enough, Job, Outcome, Shelf, SweepWatch, Wanted, at_once, attempt, make_runs
from fedplug_lab.tables import again, bullets, report_link, sentence, table, text, zone_label
from fedplug_lab.together import Price, Spent, price_of, spent_in

__all__ = [
    "MUTED", "Chart", "Compared", "Enough", "Job", "Jobs", "OneRun", "Outcome", "Panel", "Point", "Price", "Scale",
    "Shelf", "Spent", "Stated", "SweepWatch", "Wanted", "WithSeeds", "again", "assignment", "at_once", "at_work",
    "attempt", "bullets", "colour_of", "csv_text", "distinct", "draw_front", "figures", "front_of", "front_panels",
    "glossary", "height_axis", "legend", "lock", "make_runs", "numbers_of", "open_run", "page_html", "price_of",
    "report_link", "sections_of_plugins", "seed_problems", "sentence", "short_names", "shown", "spent_in", "state_of",
    "table", "text", "unlike", "verdict_glance", "verdict_html", "verdict_lines", "verdicts_of", "write_page",
    "zone_label",
]  # fmt: skip
