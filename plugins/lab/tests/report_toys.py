"""A page as a parser sees it, and a report written from rows."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fedplug_lab.report import write_report
from fedplug_ledger.grades import Epsilons
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs.rows import Row
from row_toys import a_ledger, a_line, a_summary, a_verdict

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "<script>alert('x')</script>\" onload=\"boom"


class Page(HTMLParser):
    """What a browser would make of the page; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # (innermost tag, text)
        self.nested_tables = 0
        self.feed(re.sub(r'<span class="whole">([^<]*)</span>', r"\1", text))  # it only says where no line ends
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.nested_tables += tag == "table" and "table" in self.open
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def count(self, tag: str) -> int:
        """How many there are; of the two drawings of a figure the one for pages with room, and no locks."""
        return sum(
            name == tag and attributes.get("class") != "slim" and "aria-hidden" not in attributes
            for name, attributes in self.tags
        )

    def visible(self) -> str:
        return "\n".join(text for tag, text in self.texts if tag != "style")


def priced(zero_out: float) -> dict[str, Any]:
    return {"zero_out": {"epsilon_exact": zero_out}, "replace_one": {"epsilon_exact": 2 * zero_out}}


def a_zone(**changes: Any) -> dict[str, Any]:
    return {
        "largest_size": 9.0, "largest_share": 0.5, "encrypted": False, "rounds_with_noise": 3,
        "rounds_without_noise": 0, "mechanism": ["gaussian"], "clipping_norm": [1.0], "std": [None],
        "noise_multiplier": [3.5], "epsilons": None, **changes,
    }  # fmt: skip


VERDICT = a_verdict(
    server=a_line("server", "guaranteed", not_covered=["mask"]),
    client=a_line("client", "none", reason="sees sums over clients of the encrypted zone, without noise"),
    client_and_server=a_line("client_and_server", "beyond", 90.0),
    released_model=a_line("released_model", "none", epsilons=Epsilons({"exact": math.inf}, {"exact": math.inf})),
)
LEDGER = a_ledger(
    verdict=VERDICT, warnings=["mask is not covered"],
    zones={"noised": a_zone(epsilons=priced(1.0)), "encrypted": a_zone(encrypted=True, noise_multiplier=[math.nan])},
    reveals=[{"what": "mask", "to": ["server", "client"], "covered_by": None, "asked": [], "voids": False,
              "note": ""}],
    noise=[{"zone": "noised", "mechanism": "gaussian", "trust": "local", "source": "exact", "as_published": False,
            "note": "", "dtype": "float32"}],
    log=[{"round": 1, "charged": list(range(100, 130)), "total": 36, "zones": {"noised": {
        "size": 9.0, "releases": [{"mechanism": "gaussian", "noise_multiplier": 3.5, "clipping_norm": 1.0}]}}}],
)  # fmt: skip


NOBODY: dict[str, Any] = {"classes": [], "clients": {}}
"""A class distribution of no clients, of which no picture is drawn."""


def written(folder: Path, rows: list[Row], ledger: LedgerReport = LEDGER, **changes: Any) -> str:
    path = write_report(folder, rows, ledger, a_summary(**changes))
    assert path == folder / "report.html"
    assert [each.name for each in folder.iterdir()] == ["report.html"], "no draft is left behind"
    return path.read_text("utf-8")
