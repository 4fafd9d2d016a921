"""`fedplug sweep`: runs every combination of a grid, one after the other, and keeps a line for each.

The folder of a sweep holds a run folder for each combination, `sweep.jsonl`, one line a run, and a page, `sweep.html`.
The same command continues where the last one stopped: a run that is complete is not made again, one that was cut off
is resumed from its checkpoint, one that failed is tried again.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedplug.recipe.catalog import Catalog
from fedplug_ledger.verdict_words import BRIEF
from fedplug_runs import units
from fedplug_runs.by_class import WITH_ACCURACY
from fedplug_runs.execution import INTERRUPTED
from fedplug_runs.files import write_text
from fedplug_runs.machine import command_line, resolve_device
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent

from fedplug_lab import sections
from fedplug_lab.comparable import ACCURACY, PRIVACY, TIME, TRAFFIC
from fedplug_lab.grid import combinations, read_grid, short_names
from fedplug_lab.intervals import spread_of
from fedplug_lab.page import glossary, write_page
from fedplug_lab.records import Line, at_work, csv_text
from fedplug_lab.sections import Result
from fedplug_lab.study import Study
from fedplug_lab.tables import again, report_link, sentence, table, text


def sweep(
    recipe: Path,
    grid: Path,
    settings: Settings,
    sets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    dry_run: bool = False,
    catalog: Catalog | None = None,
    jobs: int | None = 1,
) -> int:
    """Runs what is missing of a sweep; gives the exit code.

    Args:
        recipe: the recipe that the grid varies.
        grid: the grid file; see `fedplug_lab.grid`.
        settings: of this machine; `output` is the folder of the sweep.
        sets: `path=value` for every run.
        seeds: each combination is run with each of them; with the recipe's own seed if empty.
        dry_run: only checks all combinations, and says which are missing.
        catalog: the components on offer; those installed if None.
        jobs: how many run at a time; None: as many as this machine has cores and memory for.

    Raises:
        RecipeError: the grid, or any combination of it, is wrong; nothing has run.
        SetupError: the engine, device or data folder is not there; nothing has run.
    """
    catalog = catalog or Catalog.discover()
    consent = Consent(settings.trust or not dry_run, ask=True)
    runs = combinations(recipe, read_grid(grid, seeds, sets), sets, with_files(catalog, settings.plugins, consent))
    study = Study(runs, settings, catalog)
    if dry_run:
        study.tell()
        return 0
    resolve_device(settings.device)
    with at_work(settings.output, "sweep"):
        whole = study.run(jobs, after_each=lambda: _write_lines(study))
        _write_lines(study)
        if lines := study.lines():
            if whole:
                print_table(lines)
            file = settings.output / "sweep.csv"
            write_text(file, to_csv(lines))
            page = write_sweep_page(settings.output, lines, len(runs), command_line())
            if not settings.quiet:
                print(f"table: {file}")
                print(f"page: {page}")
        return study.tell_failures() if whole else INTERRUPTED


def _write_lines(study: Study) -> None:
    text = "".join(line.to_json() + "\n" for line in study.lines())
    write_text(study.settings.output / "sweep.jsonl", text)


class Column(NamedTuple):
    """One column of the table: what each row holds, and to which group a number that was measured belongs.

    `group` is one of `comparable.GROUPS`; empty for what was set. `brief` columns are in the table of a terminal too.
    """

    title: str
    cells: list[str]
    group: str = ""
    brief: bool = True


def print_table(lines: Sequence[Line]) -> None:
    """Prints one row for each case and combination of parameters."""
    from rich.text import Text

    from fedplug_lab.terminal import Rows, console

    columns = [column for column in columns_of(lines) if column.brief]
    rows = [[Text(cell) for cell in cells] for cells in zip(*(column.cells for column in columns), strict=True)]
    right = [place for place, column in enumerate(columns) if column.group]
    console().print(Rows([column.title for column in columns], rows, right), crop=False)


def columns_of(lines: Sequence[Line]) -> list[Column]:
    """The table: cases and parameters as given, numbers as mean ± standard deviation over seeds.

    A row is a case and combination of parameters; columns that hold nothing in any row are left out. Of runs that
    failed, only the count is shown.
    """
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(json.dumps([line.case, line.parameters]), []).append(line)
    heads = [group[0] for group in groups.values()]
    done = [[line.result for line in group if line.result] for group in groups.values()]
    names = short_names(_paths(lines))
    columns = [Column("case", [head.case or units.NOTHING for head in heads])]
    for path, name in names.items():
        columns.append(Column(name, [_as_text(head.parameters.get(path)) for head in heads]))
    counts = zip(done, groups.values(), strict=True)
    runs = [str(len(all_)) if len(good) == len(all_) else f"{len(good)} of {len(all_)}" for good, all_ in counts]
    columns.append(Column("runs", runs))
    for group, measured in _measured([result for results in done for result in results]).items():
        for title, read, shown in measured:
            columns.append(Column(title, [_mean(map(read, results), shown) for results in done], group))
        if group == PRIVACY:
            for party, who in BRIEF.items():
                cells = [_least(results, party) for results in done]
                columns.append(Column(f"toward {who}", cells, group, brief=party in ("server", "released_model")))
    return [column for column in columns if {*column.cells} != {units.NOTHING}]


def _least(results: Sequence[Result], party: str) -> str:
    """The guarantee of all these runs toward a party: the largest of their epsilons, or that one of them has none."""
    stated = [result.guarantees[party] for result in results if party in result.guarantees]
    if not stated:
        return units.NOTHING
    given = [epsilon for epsilon in stated if epsilon is not None]
    return f"ε {units.number(max(given))}" if len(given) == len(stated) else "no guarantee"


def parameter_words(line: Line) -> str:
    """The values that a run sets over its recipe: `epsilon 8, norm 0.5`."""
    names = short_names(_paths([line]))
    return ", ".join(f"{name} {_as_text(line.parameters[path])}" for path, name in names.items())


def _measured(results: Sequence[Result]) -> dict[str, list[sections.Column]]:
    """The columns of numbers, by group."""
    by_accuracy = all(result.leads.name == ACCURACY for result in results)
    figures = dict.fromkeys(title for result in results for title in result.figures
                            if not by_accuracy or title not in WITH_ACCURACY)  # fmt: skip
    used = dict.fromkeys(zone for result in results for zone, share in result.zones.items() if share > 0)
    facts = dict.fromkeys(
        (name, fact) for result in results for name, found in result.assessments.items() for fact in found
    )
    levels = dict.fromkeys(level for result in results for level in result.level_epsilons)
    return {
        ACCURACY: [
            ("accuracy", lambda result: result.accuracy, units.number),
            ("best", lambda result: result.best_accuracy, units.number),
            ("in groups", lambda result: g.mean if (g := result.of_groups) else None, units.number),
            *((title, lambda result, title=title: result.figures.get(title), units.number) for title in figures),
            ("personal mean", lambda result: p.mean if (p := result.of_personal) else None, units.number),
            ("lowest", lambda result: p.min if (p := result.of_personal) else None, units.number),
            ("highest", lambda result: p.max if (p := result.of_personal) else None, units.number),
            ("fine-tuned mean", lambda result: t.mean if (t := result.tuned) else None, units.number),
            *((fact.replace("_", " "), lambda result, name=name, fact=fact: result.assessments.get(name, {}).get(fact),
               "{:.4g}".format) for name, fact in facts),
        ],
        PRIVACY: [
            *((zone, lambda result, zone=zone: result.zones.get(zone), units.percent) for zone in used),
            *((f"ε of a {level}", lambda result, level=level: result.level_epsilons.get(level), units.number)
              for level in levels),
            *(column for section in sections.sections_of_plugins() for column in section.columns(results)),
        ],
        TRAFFIC: [
            ("MB up", lambda result: result.bytes.up / 1e6, "{:.2f}".format),
            ("MB down", lambda result: result.bytes.down / 1e6, "{:.2f}".format),
        ],
        TIME: [
            ("seconds", lambda result: result.wall_seconds, "{:.1f}".format),
            ("simulated (s)", lambda result: result.simulated_seconds, "{:.1f}".format),
        ],
    }  # fmt: skip


def _mean(given: Iterable[float | None], shown: Callable[[float], str]) -> str:
    values = [value for value in given if value is not None and not math.isnan(value)]
    if not all(map(math.isfinite, values)):
        return shown(max(values, key=abs))
    return found.text(shown) if (found := spread_of(values)) else units.NOTHING


def to_csv(lines: Sequence[Line]) -> str:
    """One row a run, one column for every number; nested names are joined by dots."""
    paths = _paths(lines)
    rows = []
    for line in lines:
        plain = line.to_plain()
        given = {path: _as_text(value) for path, value in plain.pop("parameters").items()}
        result = plain.pop("result", {})
        status = "done" if line.result else "failed"
        rows.append({**dict(_flat({"status": status, **plain, **result})), **given})
    return csv_text(["case", *paths, "seed", "status"], rows)


def _flat(line: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value


def _paths(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(path for line in lines for path in line.parameters))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_ON_TABLE = (
    "A row for each case and combination of parameters. Numbers are of the last round: means over seeds, ± standard "
    "deviations where there are several. Privacy: the largest epsilon that is guaranteed for a client toward each "
    "party; read it with the verdicts."
)


def write_sweep_page(folder: Path, lines: Sequence[Line], planned: int, command: str) -> Path:
    """Writes `sweep.html` into the folder of a sweep, whole or not at all.

    Args:
        folder: of the sweep.
        lines: what is known of its runs.
        planned: how many runs it has in all.
        command: that does it again, for a shell; empty where there is none.

    Returns:
        The path.
    """
    failed = [line for line in lines if line.result is None]
    done = f"{len(lines) - len(failed)} of {planned} runs"
    byline = f'<p class="byline">{done}{f" · {len(failed)} failed" if failed else ""}</p>'
    missing = planned - len(lines) + len(failed)
    sections = [
        ("numbers", "Numbers", _numbers(lines)),
        ("runs", "Runs", _runs(folder, lines) + again(command)),
        ("privacy", "Privacy, word for word", _verdicts(lines)),
    ]
    top = [] if not missing else [
        f'<p class="banner"><strong>Not complete.</strong> {missing} of {planned} runs have no numbers. The same '
        "command runs what is missing.</p>"
    ]  # fmt: skip
    return write_page(folder / "sweep.html", "sweep", folder.name, byline, top, sections)


def _numbers(lines: Sequence[Line]) -> str:
    columns = columns_of(lines)
    if not columns:
        return ""
    heads = [column for column in columns if not column.group]
    parts = [_grid(_ON_TABLE, heads)] if len(heads) == len(columns) else []
    for group, measured in itertools.groupby(columns[len(heads) :], key=lambda column: column.group):
        caption = "" if parts else _ON_TABLE  # said once
        parts += [f"<h3>{text(group.capitalize())}</h3>", _grid(caption, [*heads, *measured], len(heads))]
    return "".join(parts)


def _grid(caption: str, columns: Sequence[Column], numeric: int | bool = False) -> str:
    body = [[*map(text, cells)] for cells in zip(*(column.cells for column in columns), strict=True)]
    return table(caption, [column.title for column in columns], body, numeric=numeric, whole=True)


def _runs(folder: Path, lines: Sequence[Line]) -> str:
    body = []
    for line in lines:
        name = f'<span class="whole">{text(line.run or units.NOTHING)}</span>'
        name = report_link(folder / line.run, folder, name) if line.run else name
        found = line.result
        body.append([
            name, text(line.case or units.NOTHING), text(parameter_words(line) or units.NOTHING), str(line.seed),
            text(line.error) if found is None else
            f"{found.leads.name} {units.number(found.leading)}; {text(found.verdict.partition('.')[0])}",
        ])  # fmt: skip
    return table("Each run; its report has everything.", ["run", "case", "parameters", "seed", "outcome"], body)


def _verdicts(lines: Sequence[Line]) -> str:
    """Each verdict once, with the runs whose ledgers say it."""
    said: dict[str, list[Line]] = {}
    for line in lines:
        if line.result is not None:
            said.setdefault(line.result.verdict, []).append(line)
    body = [
        [f"{len(whose)} run{'s' if len(whose) > 1 else ''}", sentence(verdict or "none"), "<br>".join(
            text(", ".join(filter(None, [line.case, parameter_words(line), f"seed {line.seed}"]))) for line in whose)]
        for verdict, whose in said.items()
    ]  # fmt: skip
    listed = table("What the ledgers say, each sentence once.", ["", "verdict", "whose"], body)
    return listed + glossary() if listed else ""
