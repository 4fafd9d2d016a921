"""`fedplug compare`: runs what is not there yet, and sets the runs side by side in a table and a page.

A comparison leaves a folder with `compare.html` and its table as CSV, JSON, LaTeX and Markdown next to the runs. Runs
below the folder of runs that are complete and of the same recipe and seed are used, those that were cut off continue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.data import Better
from fedplug.api.errors import SetupError
from fedplug.api.records import json_ready
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import closest
from fedplug_ledger.grades import PARTIES
from fedplug_ledger.verdict import Line
from fedplug_ledger.verdict_words import BRIEF, number
from fedplug_runs import units
from fedplug_runs.execution import INTERRUPTED
from fedplug_runs.files import private_folder, write_text
from fedplug_runs.machine import command_line, resolve_device
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import Consent
from fedplug_terminal.lines import tell

from fedplug_lab.comparable import ACCURACY, HEADINGS, warnings
from fedplug_lab.compare_figures import charts, colour_of
from fedplug_lab.compare_table import (
    Cell,
    Column,
    Read,
    all_bytes,
    by_seed,
    columns,
    difference_words,
    goal_of,
    kept_by,
    line_of,
    mean_of,
    reasons,
    summary_of,
    verdicts_of,
)
from fedplug_lab.glance import lock, state_of
from fedplug_lab.grid import Contest, is_comparison, of_recipes, read_contest, runs_of, seed_problems
from fedplug_lab.guess import BALANCED, guess_of, guess_words
from fedplug_lab.intervals import LEVEL, paired, spread_of
from fedplug_lab.page import figures, glossary, verdict_html, write_page
from fedplug_lab.records import Compared, OneRun, at_work, csv_text, leaks_of, of_combinations, of_folders
from fedplug_lab.sections import Leak
from fedplug_lab.study import Study
from fedplug_lab.tables import again, bullets, report_link, sentence, table_of_sides, text
from fedplug_lab.tables import table as html_table
from fedplug_lab.together import looked_at
from fedplug_lab.words import capital


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for besides what to compare.

    Attributes:
        baseline: the name of the one that the others are compared with; empty for that of the file, or the first.
        seeds: of all recipes; those of the file, or the recipes' own, if empty.
        sets: `path=value` for every recipe.
        jobs: how many run at a time; None: as many as this machine has cores and memory for.
        dry_run: only checks, says what is missing, and estimates what that would take.
        format: print the table as `csv`, `json`, `latex` or `markdown`; empty: for people.
    """

    baseline: str = ""
    seeds: Sequence[int] = ()
    sets: Sequence[str] = ()
    jobs: int | None = 1
    dry_run: bool = False
    format: str = ""


def compare(what: Sequence[Path], settings: Settings, asked: Asked, catalog: Catalog | None = None) -> int:
    """Compares recipes, the recipes of one comparison file, or runs that are there; gives the exit code.

    Args:
        what: recipes, one comparison file, or run folders.
        settings: of this machine; `output` is where runs are looked for and made.
        asked: the rest of the command line.
        catalog: the components on offer; those installed if None.

    Raises:
        RecipeError: a comparison file, or any recipe, is wrong; nothing has run.
        CheckpointError: a folder holds no run that can be read.
        SetupError: what is given does not go together, or this machine lacks something; nothing has run.
    """
    if asked.format and asked.format not in FORMATS:
        raise SetupError(f"--format {asked.format}: {closest(asked.format, FORMATS)}")
    settings = settings.replace({"quiet": True}) if asked.format else settings
    folders = [path for path in what if path.is_dir()]
    if folders:
        return _of_runs(folders, what, settings, asked)
    contest = _contest(what)
    seeds = tuple(asked.seeds) or contest.seeds
    if problems := seed_problems(seeds, asked.sets):
        raise SetupError("\n".join(problems))
    contest = dataclasses.replace(contest, seeds=seeds, baseline=asked.baseline or contest.baseline)
    catalog = catalog or Catalog.discover()
    consent = Consent(settings.trust or not asked.dry_run, ask=True)
    by_case = runs_of(contest, asked.sets, with_files(catalog, settings.plugins, consent))
    runs = [one for case in by_case for one in case]
    names = list(dict.fromkeys(one.case for one in runs))
    _require_baseline(contest.baseline, names)
    study = Study(runs, settings, catalog)
    if asked.dry_run:
        study.tell()
        study.tell_estimates(asked.jobs)
        return 0
    resolve_device(settings.device)
    with at_work(settings.output / f"compare-{contest.title}", "compare"):
        # With a format, nothing else goes to the standard output.
        with contextlib.redirect_stdout(sys.stderr if asked.format else sys.stdout):
            if not study.run(asked.jobs):
                return INTERRUPTED
        code = study.tell_failures()
        for title, its in zip(contest.titles, by_case, strict=True):
            everyone = of_combinations(its, study.found)
            if len(everyone) < 2 or contest.baseline not in ("", *(each.name for each in everyone)):
                where = f" in {title}" if contest.cases else ""
                raise SetupError(
                    f"there is nothing to compare{where}: that needs a run of the baseline and one of another recipe"
                )
            _show(dataclasses.replace(contest, title=title), everyone, settings, asked)
    return code


def _contest(what: Sequence[Path]) -> Contest:
    """What the arguments say.

    Raises:
        RecipeError: a comparison file is wrong.
        SetupError: a comparison file together with something else, or one recipe alone.
    """
    files = [path for path in what if is_comparison(path)]
    if len(files) == len(what) == 1:
        return read_contest(files[0])
    if files:
        raise SetupError(f"{files[0]} is a whole comparison; give it alone, or recipes without it")
    if len(what) < 2:
        raise SetupError(f"{what[0]} alone cannot be compared; name two recipes or more, or a comparison file")
    return of_recipes(what)


def _of_runs(folders: Sequence[Path], what: Sequence[Path], settings: Settings, asked: Asked) -> int:
    """Compares runs that are there."""
    if others := [path for path in what if path not in folders]:
        raise SetupError(f"{others[0]} is not a folder, and the others are: compare recipes, or runs, not both")
    given = {"--seeds": asked.seeds, "--set": asked.sets, "--dry-run": asked.dry_run}
    if ignored := [name for name, value in given.items() if value]:
        raise SetupError(f"{ignored[0]} changes nothing about runs that are there; leave it out")
    everyone = of_folders(folders)
    if len(everyone) < 2:
        raise SetupError(f"all of these runs are of one protocol, {everyone[0].name}; name runs of two or more")
    names = [each.name for each in everyone]
    _require_baseline(asked.baseline, names)
    title = "-".join(dict.fromkeys(each.one.summary.name for each in everyone))[:60]
    contest = Contest(f"runs-{title}", "", asked.baseline, (), ())
    with at_work(settings.output / f"compare-{contest.title}", "compare"):
        _show(contest, everyone, settings, asked)
    return 0


def _require_baseline(name: str, names: Sequence[str]) -> None:
    if name and name not in names:
        raise SetupError(f"the baseline {name!r} is not among what is compared; {closest(name, names)}")


def _show(contest: Contest, everyone: Sequence[Compared], settings: Settings, asked: Asked) -> None:
    """Prints the table and writes the files."""
    baseline = next((each for each in everyone if each.name == contest.baseline), everyone[0])
    warned = warnings(everyone)
    spoiled = {group for warning in warned for group in warning.spoils}
    table, summary = columns(everyone, baseline, spoiled), summary_of(everyone, spoiled)
    about: Mapping[str, Any] = {
        "title": contest.title, "question": contest.question, "baseline": baseline.name, "summary": summary,
        "warnings": [warning.text for warning in warned], "command": command_line(), "together": looked_at(everyone),
    }  # fmt: skip
    folder = settings.output / f"compare-{contest.title}"
    private_folder(folder)
    for file, write in FORMATS.values():
        write_text(folder / file, write(table, everyone, about))
    page = write_compare_page(folder / "compare.html", everyone, table, about)
    if asked.format:
        print(FORMATS[asked.format][1](table, everyone, about), end="")
        return
    _, _, case = contest.title.partition("/")
    if contest.question or case:
        tell(": ".join(filter(None, (case, contest.question))))
    for said in summary:
        tell(said)
    print()
    print_table(table)
    for warning in warned:
        tell(f"not comparable: {warning.text}")
    for said in about["together"]:
        tell(f"privacy: {said}")
    if not settings.quiet:
        # The table itself says why there is no guarantee.
        for reason in reasons([c for c in brief(table) if not c.cells[0].values.get("state")]):
            tell(f"no number: {reason}")
    print(f"page: {page}")


MOST = 5
"""Protocols in one table: as many as fit side by side on a laptop and on paper."""
BEST = "the best of its row, and all that the spread over seeds does not distinguish from it"
"""The meaning of the mark on a number."""
_WIDEST, _TITLES = 34, 36  # letters of a column, and of the titles


def side_by_side(table: Sequence[Column], most: int = MOST) -> list[list[Column]]:
    """The table in pieces of at most `most` protocols, each about as wide as the others."""
    count = len(table[0].cells)
    size = math.ceil(count / math.ceil(count / most))
    return [
        [dataclasses.replace(column, cells=column.cells[start : start + size]) for column in table]
        for start in range(0, count, size)
    ]


def grouped(table: Sequence[Column]) -> Iterator[tuple[str, list[Column]]]:
    """The numbers under the headings of their groups; what heads the table has none."""
    for group, numbers in itertools.groupby(table[1:], key=lambda column: column.group):
        found = list(numbers)
        # What a task is judged by is called after the figure that leads, which comes first.
        yield capital(found[0].title) if group == ACCURACY else HEADINGS.get(group, ""), found


def brief(table: Sequence[Column]) -> list[Column]:
    """What fits in a terminal or a paper."""
    return [column for column in table if column.brief]


def words(cell: Cell) -> str:
    """All that is said of a number in one line."""
    between = ", " if cell.values.get("state") in ("guaranteed", "weak") else ": "
    return f"{cell.text}{between}{cell.note}" if cell.note else cell.text


def print_table(table: Sequence[Column]) -> None:
    """The brief table, as a terminal shows it: a row for each number, in groups."""
    from rich.text import Text

    from fedplug_lab.terminal import Rows, Whole, console

    room = max(1, (console().width - _TITLES) // _WIDEST)
    for piece in side_by_side(brief(table), min(MOST, room)):
        rows = []
        for heading, numbers in grouped(piece):
            if heading:
                rows.append([Text(heading, "bold")])
            for column in numbers:
                title = Text(f"  {column.title}" if heading else column.title)
                rows.append([title, *map(_in_terminal, column.cells)])
        console().print(Rows(["", *(cell.text for cell in piece[0].cells)], rows, most=_WIDEST), crop=False)
    if any(cell.best for column in brief(table) for cell in column.cells):
        console().print(Whole(Text(f"* {BEST}", "dim")), crop=False)


def _in_terminal(cell: Cell) -> Any:
    from rich.text import Text

    return Text(f"{words(cell)} *", "bold") if cell.best else Text(words(cell))


def to_csv(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """A line for each protocol, a column for each number: `accuracy_mean`, `accuracy_sd`, `accuracy_n`, ..."""

    def named(column: Column, cells: Sequence[Cell]) -> dict[str, Any]:
        pairs = [pair for cell in cells for pair in cell.values.items()]
        return {"_".join(filter(None, [column.key, end])): value for end, value in pairs}

    names = [name for column in table for name in named(column, column.cells)]
    rows = [dict(pair for column in table for pair in named(column, [column.cells[place]]).items())
            for place in range(len(everyone))]  # fmt: skip
    return csv_text(names, rows)


def to_json(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """Everything: sentences, warnings; of each protocol numbers, gaps, best values, and runs with their leaks."""
    protocols = [
        {
            "name": each.name,
            "numbers": {column.key: dict(column.cells[place].values) for column in table[1:]},
            "missing": {column.key: cell.why for column in table if (cell := column.cells[place]).why},
            "best": [column.key for column in table if column.cells[place].best],
            "verdicts": verdicts_of(each),
            "runs": [
                {"seed": run.seed, "folder": str(run.folder), "digest": run.summary.digest,
                 "lines": [line.to_plain(for_json=True) for line in run.ledger.verdict.lines],
                 **run.result.to_plain(for_json=True), "leaks": [vars(leak) for leak in leaks_of(run)]}
                for run in each.runs
            ],
        }
        for place, each in enumerate(everyone)
    ]  # fmt: skip
    return json.dumps(json_ready({**about, "level": LEVEL, "protocols": protocols}), indent=2) + "\n"


def to_markdown(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """The sentences, the brief table in groups, below it verdicts, warnings and why there are dashes."""
    lines = [_in_markdown(sentence) for sentence in about["summary"]]
    for piece in side_by_side(brief(table)):
        rows = [["", *(cell.text for cell in piece[0].cells)], ["---"] * (1 + len(piece[0].cells))]
        for heading, numbers in grouped(piece):
            rows += [[f"**{heading}**", *[""] * len(piece[0].cells)]] if heading else []
            rows += [[column.title, *map(_bold, column.cells)] for column in numbers]
        lines += ["", *("| " + " | ".join(_in_markdown(cell) for cell in row) + " |" for row in rows)]
    lines += ["", f"Bold: {BEST}."] if any(cell.best for column in brief(table) for cell in column.cells) else []
    for title, sentences in _below(table, everyone, about):
        lines += ["", f"{title}:", "", *(f"* {_in_markdown(sentence)}" for sentence in sentences)]
    return "\n".join(lines) + "\n"


def _bold(cell: Cell) -> str:
    return f"**{words(cell)}**" if cell.best else words(cell)


def to_latex(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """The brief table in groups for the package booktabs; the rest as comments. Its columns of words break lines."""
    found: list[tuple[str, Sequence[str]]] = [("In words", about["summary"]), *_below(table, everyone, about)]
    lines = [f"% {_one_line(sentence)}" for title, said in found for sentence in (f"{title}:", *said)]
    for piece in side_by_side(brief(table)):
        count = len(piece[0].cells)
        lines += [
            f"\\begin{{tabular}}{{l*{{{count}}}{{p{{{0.75 / count:.2f}\\textwidth}}}}}}",
            "\\toprule",
            " & ".join(["", *(_in_latex(cell.text) for cell in piece[0].cells)]) + " \\\\",
        ]
        for heading, numbers in grouped(piece):
            over = f"\\multicolumn{{{count + 1}}}{{l}}{{\\textit{{{heading}}}}} \\\\"
            lines += ["\\midrule", over] if heading else []
            rows = [[_in_latex(column.title), *map(_strong, column.cells)] for column in numbers]
            lines += [" & ".join(row) + " \\\\" for row in rows]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _strong(cell: Cell) -> str:
    return f"\\textbf{{{_in_latex(words(cell))}}}" if cell.best else _in_latex(words(cell))


def _below(
    table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]
) -> list[tuple[str, Sequence[str]]]:
    verdicts = [f"{each.name}: {verdict}" for each in everyone for verdict in verdicts_of(each)]
    found: list[tuple[str, Sequence[str]]] = [
        ("Question", [about["question"]] if about["question"] else []), ("Verdicts", verdicts),
        ("Not comparable", about["warnings"]), ("Why numbers and guarantees are missing", reasons(brief(table))),
    ]  # fmt: skip
    return [(title, sentences) for title, sentences in found if sentences]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _in_markdown(text: str) -> str:
    return _one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "ε": r"$\varepsilon$", "–": "--",
    "∞": r"$\infty$", "<": "$<$", ">": "$>$",
}  # fmt: skip


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


Writer = Callable[[Sequence[Column], Sequence[Compared], Mapping[str, Any]], str]
FORMATS: dict[str, tuple[str, Writer]] = {
    "csv": ("compare.csv", to_csv),
    "json": ("compare.json", to_json),
    "latex": ("compare.tex", to_latex),
    "markdown": ("compare.md", to_markdown),
}
"""By name: the file that a comparison writes, and what writes it."""


_TITLED = 3
"""A title has the names of at most so many protocols; the first table has all."""
_ON_TABLE = (
    "Means ± standard deviations over seeds. Differences are taken seed by seed. Brackets hold the "
    f"{LEVEL:.0%} interval of the mean difference by Student's t, which assumes that differences are about normal, and "
    "n is the number of seeds. Several such intervals are less certain together than each alone. Privacy: what each "
    "party may learn about a client, in the run that promises least. The verdicts below state the assumptions of each "
    f"guarantee and what it leaves out. Bold: {BEST}."
)


def write_compare_page(
    path: Path, everyone: Sequence[Compared], table: Sequence[Column], about: Mapping[str, Any]
) -> Path:
    """Writes the page, whole or not at all.

    Args:
        path: of the file.
        everyone: what is compared.
        table: its numbers.
        about: `title`, `question`, `baseline`, `summary`, `warnings`, `together`, and the `command` that does it again.

    Returns:
        The path.
    """
    runs = sum(len(each.runs) for each in everyone)
    marked = ' · <a href="#unlike">▲ not everything here compares</a>' if about["warnings"] else ""
    byline = (
        f'<p class="byline">{units.many(len(everyone), "protocol")} · {units.many(runs, "run")} · baseline '
        f'{text(about["baseline"])}{marked}</p>'
    )
    together = bullets([*map(text, about.get("together", ()))])
    sections = [
        ("numbers", "Numbers", _numbers(table)),
        ("figures", "Figures", figures(charts(everyone))),
        ("privacy", "Privacy, word for word", together + _verdicts(everyone) + glossary()),
        ("leakage", "Leakage", leakage_tables(everyone)),
        ("runs", "Runs", _runs(path.parent, everyone, about)),
    ]
    baseline = next((each for each in everyone if each.name == about["baseline"]), everyone[0])
    names = " · ".join(each.name for each in everyone)
    name = about["question"] or (names if len(everyone) <= _TITLED else f"{len(everyone)} protocols side by side")
    top = [_protocols(path.parent, everyone, baseline), _in_short(about["summary"]), _warned(about["warnings"])]
    return write_page(path, "comparison", name, byline, top, sections)


def _in_short(sentences: Sequence[str]) -> str:
    """A line a sentence."""
    said = "".join(f"<li>{sentence(each)}</li>" for each in sentences)
    return f'<section aria-labelledby="short"><h2 id="short">In short</h2><ul class="short">{said}</ul></section>'


def _protocols(here: Path, everyone: Sequence[Compared], baseline: Compared) -> str:
    """A row a protocol: who is kept out, the leading figure with its interval and what a guess gets, bytes, seconds."""
    goal = goal_of(everyone)
    title = goal[0] if goal else ACCURACY
    rows = "".join(_protocol(here, place, each, baseline, goal) for place, each in enumerate(everyone))
    heads = ("protocol", "who is kept out of a client's data", title, "sent", "time")
    head = "".join(f'<th scope="col">{text(capital(each))}</th>' for each in heads)
    caption = (
        "Shut lock: a guarantee for each client. Hollow lock: a loose or weak one, or one for another unit alone. Open "
        "lock: none. Of several seeds, the run that promises least."
    )
    return (
        '<section aria-labelledby="protocols"><h2 id="protocols" class="unseen">The protocols, a row each</h2>'
        f'<table class="protocols"><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _protocol(
    here: Path, place: int, each: Compared, baseline: Compared, goal: tuple[str, Read, Better] | None
) -> str:  # fmt: skip
    kept = kept_by(each)
    judged = _judged(each, baseline, goal) if goal else units.NOTHING
    sent, took = mean_of(each, all_bytes), spread_of([run.result.wall_seconds for run in each.runs])
    runs = units.many(len(each.runs), "seed")
    name = report_link(each.one.folder, here, text(each.name))
    cells = [
        f'<td>{_badges(each)}</td>', f'<td data-of="{text(goal[0] if goal else ACCURACY)}">{judged}</td>',
        f'<td data-of="sent">{text(units.size(sent))}</td>',
        f'<td data-of="time">{text(units.duration(took.mean if took else None))}</td>',
    ]  # fmt: skip
    return (
        f'<tr><th scope="row"><span class="key" style="--c:{colour_of(place)}"></span>{name}'
        f'<small>{sentence(f"Protects {kept.whose} {kept.words}. {capital(runs)}.")}</small></th>{"".join(cells)}</tr>'
    )


def _badges(each: Compared) -> str:
    """A lock for each party that there is, with its epsilon."""
    found = [line for party in PARTIES if (line := line_of(each, party)) and line.state != "absent"]
    if not found:
        return "no round was recorded"
    badges = "".join(
        f'<li class="{line.tier}">{lock(line.tier)}{text(BRIEF.get(line.party, line.party))}'
        f'<small>{sentence(_brief(line))}</small></li>'
        for line in found
    )
    return f'<ul class="badges">{badges}</ul>'


def _brief(line: Line) -> str:
    """`ε 8.00`, `ε 7.32 a record`; where nothing is guaranteed, the word of its lock."""
    if line.state != "guaranteed":
        return state_of(line)
    unit = "" if line.unit == "client" else f" a {line.unit}"
    return f"ε {number(line.value or 0.0)}{unit}"


def _judged(each: Compared, baseline: Compared, goal: tuple[str, Read, Better]) -> str:
    """The mean with its deviation, the difference from the baseline, and what a guess gets."""
    name, read, _ = goal
    found = spread_of([*by_seed(each, read).values()])
    if found is None:
        return units.NOTHING
    guesses = {words for run in each.runs if (words := guess_words(run.rows[-1], "", name))}
    notes = sorted(guesses, key=len)[-1:]
    if each is not baseline:
        apart = paired(by_seed(each, read), by_seed(baseline, read))
        notes.append(f"{difference_words(apart)} against {baseline.name}")
    guessed = guess_of(each.one.rows[-1], name)
    bar = ""
    if name in (ACCURACY, BALANCED):
        tick = f'<i class="tick" style="left:{100 * guessed:.1f}%"></i>' if guessed is not None else ""
        own = f'<i class="own" style="width:{100 * min(max(found.mean, 0.0), 1.0):.1f}%"></i>'
        bar = f'<span class="scale" aria-hidden="true">{own}{tick}</span>'
    said = "".join(f"<small>{sentence(note)}</small>" for note in notes)
    return f"<b>{text(found.text(units.number))}</b>{bar}{said}"


def _warned(warnings: Sequence[str]) -> str:
    listed = bullets([*map(text, warnings)])
    head = '<div class="banner" id="unlike"><strong>Not everything here compares.</strong>'
    return f"{head}{listed}</div>" if listed else ""


def _numbers(table: Sequence[Column]) -> str:
    """Protocols side by side, a row for each number, in groups; what few look at is folded away."""
    shown = [column for column in table if column.brief]
    rest = [column for column in table[1:] if not column.brief and column.group]
    gaps = "".join(f"<li>{text(reason)}</li>" for reason in reasons(shown))
    why = f"<details><summary>Why numbers and guarantees are missing</summary><ul>{gaps}</ul></details>" if gaps else ""
    more = ""
    if rest:
        tables = _side_by_side([table[0], *rest], "")
        more = f"<details><summary>More numbers: time by phase, memory</summary>{tables}</details>"
    return _side_by_side(shown, _ON_TABLE) + why + more


def _side_by_side(table: Sequence[Column], caption: str) -> str:
    pieces = []
    for piece in side_by_side(table):
        names = [cell.text for cell in piece[0].cells]
        rows: list[str | Sequence[str]] = []
        for heading, numbers in grouped(piece):
            if heading:
                rows.append(f'<tr class="group"><th colspan="{len(names) + 1}">{text(heading)}</th></tr>')
            rows += [[text(column.title), *map(_cell, column.cells)] for column in numbers]
        pieces.append(table_of_sides(caption, names, rows))
        caption = ""  # said once
    return "".join(pieces)


def _cell(cell: Cell) -> str:
    no_guarantee = cell.tier in ("beyond", "none")
    said = f"<b>{sentence(cell.text)}</b>" if cell.best or no_guarantee else sentence(cell.text)
    if cell.tier:
        said = f'<span class="tier {cell.tier}">{said}</span>'
    return f'{said}<br><span class="note">{sentence(cell.note)}</span>' if cell.note else said


def _verdicts(everyone: Sequence[Compared]) -> str:
    """Of each protocol the whole verdict, of several seeds each that differs, folded away below its sentence."""
    parts = []
    for place, each in enumerate(everyone):
        seeds: dict[str, list[OneRun]] = {}
        for run in each.runs:
            seeds.setdefault(str(run.ledger.verdict), []).append(run)
        for runs in seeds.values():
            which = f" (seed {', '.join(str(run.seed) for run in runs)})" if len(seeds) > 1 else ""
            ledger = runs[0].ledger
            warned = bullets([*map(text, dict.fromkeys(said for run in runs for said in run.ledger.warnings))])
            head = f"{_named(place, each.name)}{which}: {sentence(ledger.verdict.headline)}"
            parts.append(f"<details><summary>{head}</summary>{verdict_html(ledger.verdict)}{warned}</details>")
    return "".join(parts)


def _named(place: int, name: str) -> str:
    return f'<span class="zone"><span class="key" style="--c:{colour_of(place)}"></span>{text(name)}</span>'


def _runs(here: Path, everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    body = []
    for place, each in enumerate(everyone):
        for run in each.runs:
            link = report_link(run.folder, here, text(run.folder.name))
            body.append([
                _named(place, each.name), str(run.seed), link, f"<code>{text(run.summary.digest[:12])}</code>",
                f"{text(run.result.leads.name)} {units.number(run.result.leading)}", text(run.ledger.verdict.opening),
                f"{text(run.summary.engine)}, {text(run.summary.device)}",
            ])  # fmt: skip
    header = ["protocol", "seed", "run, with its report", "digest", "leading figure", "privacy", "machine"]
    return html_table("Each run; its report has everything.", header, body, whole=True) + again(about["command"])


# ---- what attacks took, next to what a trivial guess reaches


def leakage_tables(everyone: Sequence[Compared]) -> str:
    """The same table for each few protocols, so that it fits on a page."""
    size = math.ceil(len(everyone) / math.ceil(len(everyone) / MOST))
    return "".join(leakage_table(everyone[start : start + size]) for start in range(0, len(everyone), size))


def leakage_table(everyone: Sequence[Compared]) -> str:
    """A row for each attack, a column for each protocol: the number that counts and the share of successes."""
    by_name = [[{leak.attack: leak for leak in leaks_of(run)} for run in each.runs] for each in everyone]
    names = list(dict.fromkeys(name for runs in by_name for known in runs for name in known))
    body = []
    for name in names:
        row, guesses = [text(name)], list[str]()
        for runs in by_name:
            found = [known[name] for known in runs if name in known]
            row.append(_shown(found))
            guesses += [f"{leak.guessed_by} {leak.guess:.3g}" for leak in found if leak.guess is not None]
        leak = next(known[name] for runs in by_name for known in runs if name in known)
        more = "smaller is worse" if leak.lower_is_worse else "larger is worse"
        row.insert(1, f'{text(leak.metric)}<br><span class="note">{more}</span>')
        row.insert(2, text(guesses[0]) if guesses else units.NOTHING)
        body.append(row)
    caption = (
        "Result of each attack, in the form that took more, as the mean over targets and seeds. Below it: the number "
        "of examples of which an image was recovered, or the share of targets on which the attack succeeded. An attack "
        "that fails proves nothing about stronger ones."
    )
    header = ["attack and adversary", "judged by", "best trivial guess", *(each.name for each in everyone)]
    return html_table(caption, header, body, numeric=3, whole=True)


def _shown(found: Sequence[Leak]) -> str:
    value, share = spread_of([leak.value for leak in found]), spread_of([leak.succeeded for leak in found])
    if value is None and share is None:
        return f'{units.NOTHING}<br><span class="note">{"it did not apply" if found else "not tried"}</span>'
    number = f"{value.mean:.3g}" if value else units.NOTHING
    gave = units.percent(share.mean) if share else units.NOTHING
    if people := sum(leak.people for leak in found):
        gave = f"{sum(leak.recovered for leak in found)} of {people} examples"
    return f'{number}<br><span class="note">{gave}</span>'
