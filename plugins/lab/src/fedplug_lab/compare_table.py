"""The numbers of a comparison, in groups: accuracy, privacy, traffic, time; every gap has its reason.

Each number is a mean over a protocol's runs. Of guarantees the worst of its runs is the one that is stated, since each
run is a separate promise. A best value is marked, with all that the seeds do not distinguish from it. In the end plain
sentences: who is most accurate, protects from whom, and costs most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedplug.api.data import ACCURACY as LEADS_ELSE
from fedplug.api.data import Better, Figure
from fedplug.api.operations import Party
from fedplug_ledger.grades import PARTIES
from fedplug_ledger.tiers import FROM_BEST, Tier
from fedplug_ledger.verdict import EXECUTED, Line
from fedplug_ledger.verdict_words import named, number
from fedplug_runs import units
from fedplug_runs.by_class import OWN_MODELS, figure_named

from fedplug_lab.comparable import ACCURACY, PRIVACY, TIME, TRAFFIC
from fedplug_lab.intervals import LEVEL, Difference, paired, spread_of
from fedplug_lab.records import Compared, OneRun, sees, worst_by_adversary, worst_of
from fedplug_lab.sections import Leak, Result, Spread
from fedplug_lab.words import NOUNS


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of one protocol.

    Attributes:
        text: for people.
        values: for programs, by what is behind the column's name there; `` for the number itself.
        why: where there is no number, or no guarantee, why not.
        note: a few words that people read behind the text.
        best: whether it is the best of its row, or the seeds do not tell it from the best.
        tier: of a guarantee, its place on the scale, for colours.
    """

    text: str
    values: Mapping[str, Any]
    why: str = ""
    note: str = ""
    best: bool = False
    tier: Tier | None = None


@dataclasses.dataclass(frozen=True)
class Column:
    """One number of all protocols: a column for programs, a row where people read.

    Attributes:
        key: its name for programs.
        title: for people, with its unit.
        cells: one for each protocol.
        group: one of `comparable.GROUPS`; empty for what heads the table.
        brief: whether it is in the table of a terminal or a paper too.
        text: whether it holds words.
    """

    key: str
    title: str
    cells: Sequence[Cell]
    group: str = ""
    brief: bool = True
    text: bool = False


Read = Callable[[OneRun], float | None]


def columns(everyone: Sequence[Compared], baseline: Compared, spoiled: Collection[str] = ()) -> list[Column]:
    """The whole table; numbers that nobody has are left out, unless their lack says something.

    Args:
        everyone: what is compared.
        baseline: the one of them that the others are compared with.
        spoiled: groups of numbers that do not compare, so that none of them is called the best.
    """
    goal = goal_of(everyone)
    name, read = goal[:2] if goal else ("accuracy", lambda run: run.result.accuracy)
    figures = _figures(everyone)
    leading = [_with_doubt(everyone, column) for column in figures if column.key == f"figure_{name}"]
    accuracy = _column(everyone, "accuracy", "accuracy", lambda run: run.result.accuracy, units.number,
                       "no client evaluated the global model", ACCURACY, "higher")  # fmt: skip
    has_none = leading and all(run.result.accuracy is None for each in everyone for run in each.runs)
    guess = _column(everyone, "guess", f"{name} of a guess", lambda run: run.result.guess.get(name), units.number,
                    "its runs do not say", ACCURACY, None)  # fmt: skip
    known = any(cell.values for cell in guess.cells)
    found = [
        Column("protocol", "protocol", [Cell(each.name, {"": each.name}) for each in everyone], text=True),
        Column("seeds", "seeds", [_seeds(each) for each in everyone], text=True),
        *leading,
        *([] if leading else [_with_doubt(everyone, accuracy)] if not has_none else []),
        *([guess] if known else []),
        *([accuracy] if leading and not has_none else []),
        Column("difference", f"{name} against {baseline.name}",
               [_against(each, baseline, name, read) for each in everyone], ACCURACY),
        *(column for column in figures if column.key != f"figure_{name}"),
        *(Column(f"epsilon_{party}", who, _marked_guarantees([_of_party(each, party) for each in everyone]), PRIVACY)
          for party, who in PARTIES.items()),
        *_levels(everyone),
        *_leakage(everyone),
        Column("epsilon", "epsilon of what is priced", [_epsilon(each) for each in everyone], PRIVACY, brief=False),
        *_volumes(everyone),
        *_seconds(everyone),
        *_memory(everyone),
    ]  # fmt: skip
    verdicts = [Cell(" / ".join(verdicts_of(each)), {"": " / ".join(verdicts_of(each))}) for each in everyone]
    whole = [*found, Column("verdict", "verdict", verdicts, brief=False, text=True)]
    return [dataclasses.replace(column, cells=[dataclasses.replace(cell, best=False) for cell in column.cells])
            if column.group in spoiled else column for column in whole]  # fmt: skip


def reasons(table: Sequence[Column]) -> list[str]:
    """Why there are dashes, a sentence for each number and reason."""
    said: dict[tuple[str, str], list[str]] = {}
    names = [cell.text for cell in table[0].cells]
    for column in table:
        for name, cell in zip(names, column.cells, strict=True):
            if cell.why:
                title = f"no guarantee toward {column.title}" if column.group == PRIVACY and cell.note else column.title
                said.setdefault((title, cell.why), []).append(name)
    return [f"{title}, {', '.join(who)}: {why}" for (title, why), who in said.items()]


def verdicts_of(each: Compared) -> list[str]:
    """The sentences of the ledgers of its runs, each once."""
    return list(dict.fromkeys(f"{v.opening}. {v.headline}" for v in (run.ledger.verdict for run in each.runs)))


def line_of(each: Compared, party: str) -> Line | None:
    """What that party may learn in the run that promises least; None where one of its runs recorded no round."""
    lines = [line for run in each.runs for line in run.ledger.verdict.lines if line.party == party]
    if len(lines) < len(each.runs):
        return None
    return max(lines, key=lambda line: (FROM_BEST.index(line.tier), line.value or 0.0))


def worst_epsilon(each: Compared, party: str) -> float | None:
    """The largest epsilon of a client that its runs guarantee toward a party; None where one guarantees none."""
    line = line_of(each, party)
    return line.epsilon if line and line.state == "guaranteed" else None


def by_seed(each: Compared, read: Read) -> dict[int, float | None]:
    """A number of each of its runs."""
    return {seed: read(run) for seed, run in each.by_seed.items()}


def figure_better(everyone: Sequence[Compared], name: str) -> Better | None:
    """Which of two of a task's figure is the better one; None where a run does not declare it, or two disagree."""
    declared = {found.better if (found := figure_named(name, run.summary.figures)) else None
                for each in everyone for run in each.runs if name in run.result.figures}  # fmt: skip
    return declared.pop() if len(declared) == 1 else None


def goal_of(everyone: Sequence[Compared]) -> tuple[str, Read, Better] | None:
    """By what the protocols are judged: its name, the number of a run, and which way it is better.

    The figure that leads in all of them. Where that is not one figure, or no run has it, accuracy, and else the first
    figure of which the task says which way it is better.
    """
    names = dict.fromkeys(name for each in everyone for run in each.runs for name in run.result.figures)
    figures: list[tuple[str, Read, Better]] = [
        (name, lambda run, name=name: run.result.figures.get(name), better)  # type: ignore[misc]
        for name in names if (better := figure_better(everyone, name))
    ]  # fmt: skip
    asked: list[tuple[str, Read, Better]] = [("accuracy", lambda run: run.result.accuracy, "higher"), *figures]
    if len(leads := {run.result.leads for each in everyone for run in each.runs}) == 1:
        (leading,) = leads
        asked = [(leading.name, lambda run: run.result.leading, leading.better), *asked]
    return next((goal for goal in asked if any(mean_of(each, goal[1]) is not None for each in everyone)), None)


def mean_of(each: Compared, read: Read) -> float | None:
    """Mean over the seeds of a number of its runs; None where no run has it."""
    found = spread_of([*by_seed(each, read).values()])
    return found.mean if found else None


def leaders(values: Sequence[Mapping[int, float | None]], better: Better) -> set[int]:
    """The places of the best mean, and of all that the seeds do not distinguish from it: their interval holds 0.

    With one seed each, those that are equal.

    Args:
        values: of each protocol its numbers by seed.
        better: which of two is the better one.
    """
    sign = 1 if better == "higher" else -1
    means = {place: sign * found.mean for place, own in enumerate(values) if (found := spread_of([*own.values()]))}
    if not means:
        return set()
    first = max(means, key=lambda place: means[place])
    return {place for place in means if place == first or not _apart(paired(values[place], values[first]))}


def _apart(found: Difference) -> bool:
    if found.low is not None and found.high is not None:
        return not found.low <= 0 <= found.high
    return bool(found.mean)


# ---- columns


def _seeds(each: Compared) -> Cell:
    seeds = sorted(each.by_seed)
    text = ", ".join(map(str, seeds)) if len(seeds) <= 5 else f"{len(seeds)}"
    return Cell(text, {"": len(seeds), "list": " ".join(map(str, seeds))})


def _against(each: Compared, baseline: Compared, name: str, read: Read) -> Cell:
    if each is baseline:
        return Cell("baseline", {"mean": 0.0, "n": len(each.runs)})
    found = paired(by_seed(each, read), by_seed(baseline, read))
    values = {"mean": found.mean, "low": found.low, "high": found.high, "n": found.count}
    return Cell(difference_words(found), values, _no_interval(found, name))


def difference_words(found: Difference) -> str:
    """`-0.012 [-0.020, -0.004] n=3`: the mean, the interval at `LEVEL`, and over how many seeds."""
    if found.mean is None:
        return units.NOTHING
    interval = f" [{found.low:+.3f}, {found.high:+.3f}]" if found.low is not None and found.high is not None else ""
    return f"{found.mean:+.3f}{interval} n={found.count}"


def _no_interval(found: Difference, name: str) -> str:
    if found.low is not None:
        return ""
    if found.mean is None:
        return f"no seed has {'an accuracy' if name == 'accuracy' else name} for both"
    if found.count > 1:
        return "all differences are alike, from which no interval can be claimed"
    return f"one seed in common, so that no {LEVEL:.0%} interval is claimed"


def _figures(everyone: Sequence[Compared]) -> list[Column]:
    """Columns of the task: where groups have models, on test data like each client's own, and of personal models."""
    of_task = []
    for name in _names(everyone, lambda run: run.result.figures):
        declared = [found for each in everyone for run in each.runs
                    if (found := figure_named(name, run.summary.figures))]  # fmt: skip
        title = f"{name} ({declared[0].unit})" if declared and declared[0].unit else name
        read: Read = lambda run, name=name: run.result.figures.get(name)  # type: ignore[misc]  # noqa: E731
        better = figure_better(everyone, name)
        lack = "its task has no such figure" if OWN_MODELS not in name else "its clients have no personal models"
        of_task.append(_column(everyone, f"figure_{name}", title, read, units.number, lack, ACCURACY, better))
    leads = leading_of(everyone)
    of_clients: list[tuple[str, str, Callable[[Result], Spread | None], Callable[[Result], object], str]] = [
        ("client", "on own data", lambda result: result.of_clients, lambda result: result.tuned or result.of_groups,
         "no client evaluated its model on data like its own"),
        ("personal", "of personal models", lambda result: result.of_personal, lambda result: result.of_personal,
         "its clients have no personal models"),
        ("tuned", "fine-tuned at each client", lambda result: result.tuned, lambda result: result.tuned,
         "its recipe has no fine_tune"),
    ]  # fmt: skip
    for key, where, over_clients, matters, why in of_clients:
        if any(matters(run.result) for each in everyone for run in each.runs):
            # Runs that another figure leads have none.
            mean: Read = lambda run, over=over_clients: (  # type: ignore[misc]  # noqa: E731
                clients.mean if run.result.leads == leads and (clients := over(run.result)) else None)
            of_task.append(_column(everyone, f"{key}_{leads.name.replace(' ', '_')}", f"{leads.name} {where}", mean,
                                   units.number, why, ACCURACY, leads.better))  # fmt: skip
    for name in _names(everyone, lambda run: run.result.clusters):
        of: Read = lambda run, name=name: run.result.clusters.get(name)  # type: ignore[misc]  # noqa: E731
        of_task.append(_column(everyone, f"cluster_{name}", f"{leads.name} of cluster {name}", of, units.number,
                               "its recipe has no such cluster", ACCURACY, leads.better))  # fmt: skip
    return of_task


def leading_of(everyone: Sequence[Compared]) -> Figure:
    """The figure that leads in all of them; accuracy where that is not one."""
    leads = {run.result.leads for each in everyone for run in each.runs}
    return leads.pop() if len(leads) == 1 else LEADS_ELSE


def guesses(each: Compared) -> bool:
    """Whether a protocol is no better than a guess that looks at no input: in each of its runs, or in their mean."""
    if all(run.result.no_better for run in each.runs):
        return True
    (leads, *others) = dict.fromkeys(run.result.leads for run in each.runs)
    pair = [mean_of(each, read) for read in (lambda run: run.result.leading, lambda run: run.result.guessed)]
    if others or pair[0] is None or pair[1] is None:
        return False
    return pair[0] <= pair[1] if leads.better == "higher" else pair[0] >= pair[1]


def _gets_for_nothing(each: Compared, name: str, better: Better) -> bool:
    """Whether a guess gets as much of a figure as a protocol that is no better than a guess: it is the best of no row.
    """
    least = mean_of(each, lambda run: run.result.guess.get(name))
    value = mean_of(each, lambda run: run.result.number_of(Figure(name, better)))
    if least is None or value is None or not guesses(each):
        return False
    return value <= least + 1e-9 if better == "higher" else value >= least - 1e-9


def _with_doubt(everyone: Sequence[Compared], column: Column) -> Column:
    """A column of what leads, with a word for protocols that are no better than a guess."""
    cells = [dataclasses.replace(cell, note="no better than a guess") if cell.values and guesses(each) else cell
             for each, cell in zip(everyone, column.cells, strict=True)]  # fmt: skip
    return dataclasses.replace(column, cells=cells)


def _of_party(each: Compared, party: str) -> Cell:
    """A guarantee, or that there is none and why, in the words of the verdict."""
    line = line_of(each, party)
    if line is None:
        return Cell("nothing to judge", {"state": "nothing_run"}, note="no round was recorded")
    values = {"": line.value, "state": line.grade, "delta": line.delta, "unit": line.unit}
    if line.state != "guaranteed":
        why = line.detail if line.state != "absent" else ""
        return Cell(line.guarantee, values, why, line.reason, tier=line.tier)
    delta = [] if line.nothing else [f"delta {line.delta:g}"]
    given = [words for words in line.rests_on if words != EXECUTED]
    return Cell(line.guarantee, values, note=", ".join([*delta, *given]), tier=line.tier)


def _marked_guarantees(cells: Sequence[Cell]) -> list[Cell]:
    """With the smallest epsilon of a client marked, where all guarantees are of one kind."""
    given = {place: cell.values[""] for place, cell in enumerate(cells)
             if cell.values.get("state") in ("guaranteed", "weak") and cell.values[""] is not None}  # fmt: skip
    kinds = {(cells[place].values["unit"], cells[place].values["delta"]) for place in given}
    if len(kinds) != 1 or {unit for unit, _ in kinds} != {"client"}:
        return [*cells]
    return _marked(cells, {place for place, epsilon in given.items() if epsilon == min(given.values())})


def _epsilon(each: Compared) -> Cell:
    known = [run.result.epsilon for run in each.runs]
    stated = [epsilon for epsilon in known if epsilon is not None and epsilon == epsilon]
    if len(stated) < len(known):
        return Cell(units.NOTHING, {}, "its ledger prices nothing, since no zone has noise that counts")
    parts = sorted({run.rows[-1].epsilon_prices for run in each.runs} - {""})
    priced = f" ({', '.join(parts)})" if parts else ""
    return Cell(f"{units.number(max(stated))}{priced}", {"": max(stated), "prices": ", ".join(parts)})


def _levels(everyone: Sequence[Compared]) -> list[Column]:
    return [
        _column(everyone, f"epsilon_of_{level}", f"epsilon of a {level}",
                lambda run, level=level: run.result.level_epsilons.get(level),  # type: ignore[misc]
                units.number, "none of its components keeps that account", PRIVACY, "lower", worst=True)
        for level in _names(everyone, lambda run: run.result.level_epsilons)
    ]  # fmt: skip


def _leakage(everyone: Sequence[Compared]) -> list[Column]:
    found = [worst_of(each) for each in everyone]
    if not any(found):
        return []
    cells = [
        Cell(f"{leak.share} by {leak.attack}",
             {"": leak.succeeded, "attack": leak.attack, "metric": leak.metric, "value": leak.value,
              "guess": leak.guess, "people": leak.people, "recovered": leak.recovered})
        if leak else Cell(units.NOTHING, {}, "no attack was made on it that applied, which proves nothing")
        for leak in found
    ]  # fmt: skip
    numbers = [
        Cell(f"{leak.metric} {leak.value:.3g}" + (f" ({leak.guessed_by} {leak.guess:.3g})" if leak.guess else ""), {})
        if leak and leak.value is not None else Cell(units.NOTHING, {}) for leak in found
    ]  # fmt: skip
    return [Column("leakage", "best attack succeeded", cells, PRIVACY),
            Column("leaked", "it reached (trivial guess)", numbers, PRIVACY), *_by_adversary(everyone)]  # fmt: skip


def _by_adversary(everyone: Sequence[Compared]) -> list[Column]:
    """A row for each adversary, where there are several: what it sees of an update, and what it took; fewest first."""
    found = [worst_by_adversary(each) for each in everyone]
    who = {name: leak.who for known in found for name, leak in known.items()}
    if len(who) < 2:
        return []
    return [
        Column(f"leakage_{name}", f"updates seen by {who[name]}", [_of_adversary(known.get(name)) for known in found],
               PRIVACY)
        for name in sorted(who, key=lambda name: name.count("+"))
    ]  # fmt: skip


def _of_adversary(leak: Leak | None) -> Cell:
    if leak is None:
        return Cell(units.NOTHING, {}, "there is no such party, or it was not tried")
    applied = leak.succeeded is not None
    values = {"": leak.succeeded, "sees": sees(leak), "attack": leak.attack, "metric": leak.metric,
              "value": leak.value, "people": leak.people, "recovered": leak.recovered}  # fmt: skip
    return Cell(f"{sees(leak)}; {leak.share}" if applied else sees(leak), values)


def _volumes(everyone: Sequence[Compared]) -> list[Column]:
    def of(way: str, title: str, read: Read) -> Column:
        shown = lambda value: f"{value / 1e6:.2f}"  # noqa: E731
        return _column(everyone, f"bytes_{way}", title, read, shown, "", TRAFFIC, "lower")

    made = [
        of("up", "MB from the clients", lambda run: run.result.bytes.up),
        of("down", "MB to the clients", lambda run: run.result.bytes.down),
    ]
    if any(run.result.bytes.key_server for each in everyone for run in each.runs):
        made.append(of("key_server", "MB to and from the key server", lambda run: run.result.bytes.key_server))
    return made


def _seconds(everyone: Sequence[Compared]) -> list[Column]:
    shown = lambda value: f"{value:.1f}" if value >= 1 else f"{value:.3f}"  # noqa: E731

    def of(key: str, title: str, read: Read, why: str = "", better: Better | None = "lower") -> Column:
        return _column(everyone, f"seconds{key}", title, read, shown, why, TIME, better)

    made = [of("", "seconds of the rounds", lambda run: run.result.wall_seconds)]
    if any(run.result.cpu_seconds is not None for each in everyone for run in each.runs):
        made.append(of("_cpu", "CPU seconds", lambda run: run.result.cpu_seconds, "its run did not count them"))
    made += [
        dataclasses.replace(
            of(f"_{phase}", f"{NOUNS.get(phase, phase)} (s)",
               lambda run, phase=phase: run.result.seconds.get(phase),  # type: ignore[misc]
               "its rounds have no such phase", None),
            brief=False,
        )
        for phase in _names(everyone, lambda run: run.result.seconds)
    ]  # fmt: skip
    if any(run.result.simulated_seconds is not None for each in everyone for run in each.runs):
        made.append(of("_simulated", "simulated seconds", lambda run: run.result.simulated_seconds,
                       "its recipe describes no devices"))  # fmt: skip
    return made


def _memory(everyone: Sequence[Compared]) -> list[Column]:
    """Of the server's process; with the engine `local` of all parties."""
    read: Read = lambda run: run.summary.peak_memory  # noqa: E731
    if all(read(run) is None for each in everyone for run in each.runs):
        return []
    column = _column(everyone, "peak_memory", "MB of memory", read, lambda value: f"{value / 1e6:.0f}",
                     "the system did not tell", TIME, "lower", worst=True)  # fmt: skip
    return [dataclasses.replace(column, brief=False)]


# ---- parts


def _column(
    everyone: Sequence[Compared], key: str, title: str, read: Read, shown: Callable[[float], str], why: str,
    group: str, better: Better | None, worst: bool = False,
) -> Column:  # fmt: skip
    make = _largest if worst else _mean
    cells = [make([read(run) for run in each.runs], shown, why) for each in everyone]
    if better is not None:
        ranked = [place for place, each in enumerate(everyone)
                  if group != ACCURACY or not _gets_for_nothing(each, key.removeprefix("figure_"), better)]  # fmt: skip
        found = leaders([by_seed(everyone[place], read) for place in ranked], better)
        best = {cells[ranked[place]].text for place in found}
        cells = _marked(cells, {place for place in ranked if cells[place].text in best})
    return Column(key, title, cells, group)


def _marked(cells: Sequence[Cell], best: Collection[int]) -> list[Cell]:
    """With the best ones marked; none where all of several are."""
    if len(best) == len(cells):
        return [*cells]
    return [dataclasses.replace(cell, best=place in best) for place, cell in enumerate(cells)]


def _mean(values: Sequence[float | None], shown: Callable[[float], str], why: str) -> Cell:
    found = spread_of(values)
    if found is None:
        return Cell(units.NOTHING, {}, why)
    some = f" (of {found.count})" if found.count < len(values) else ""
    return Cell(found.text(shown) + some, {"mean": found.mean, "sd": found.deviation, "n": found.count})


def _largest(values: Sequence[float | None], shown: Callable[[float], str], why: str) -> Cell:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell(units.NOTHING, {}, why)
    return Cell(shown(max(known)), {"": max(known)})


def _names(everyone: Sequence[Compared], read: Callable[[OneRun], Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for each in everyone for run in each.runs for name in read(run)))


BYTES = ("bytes_up", "bytes_down", "bytes_key_server")
"""What `bytes` is the sum of: all messages, all ways."""


class Stated(NamedTuple):
    """A number of a protocol: over its runs, as in the table of a comparison.

    Attributes:
        value: None where its runs state none.
        why: in that case, why not.
        prices: of an epsilon, the zones that it prices where that is not everything.
    """

    value: float | None
    why: str = ""
    prices: str = ""


def numbers_of(each: Compared) -> dict[str, Stated]:
    """Every number of the table of a comparison, by the name of its column in `compare.csv`; and `bytes`, their sum.

    Means are over the runs; of epsilons and of memory it is the largest. Where one run states none, there is none: a
    mean over the others would leave out those that failed.
    """
    found = {column.key: _stated(column, len(each.runs)) for column in columns([each], each) if not column.text}
    found.pop("difference", None)
    found["bytes"] = Stated(sum(found[way].value or 0.0 for way in BYTES if way in found))
    return found


def _stated(column: Column, runs: int) -> Stated:
    (cell,) = column.cells
    if cell.values.get("n", runs) < runs:
        return Stated(None, f"{runs - cell.values['n']} of its {runs} runs states none")
    value = cell.values.get("mean", cell.values.get(""))
    return Stated(value, "" if value is not None else cell.why or cell.note, str(cell.values.get("prices", "")))


_ABOUT = 1.05  # costs within this factor are about the same
_NOT_ALIKE = {ACCURACY: "figures", PRIVACY: "epsilons", TRAFFIC: "bytes", TIME: "seconds"}


def all_bytes(run: OneRun) -> float:
    """Of all messages, all ways."""
    return float(run.result.bytes.up + run.result.bytes.down + run.result.bytes.key_server)


def summary_of(everyone: Sequence[Compared], spoiled: Collection[str]) -> list[str]:
    """The sentences. A difference that the seeds may explain is called none; groups that do not compare are named.

    Args:
        everyone: what is compared.
        spoiled: groups of numbers that do not compare.
    """
    said = []
    if ACCURACY not in spoiled:
        said += _most_accurate(everyone)
    said += [_protection(everyone)]
    costs = []
    if TRAFFIC not in spoiled:
        costs += _costs(everyone, all_bytes, "send", "most", "as much", "least", units.size)
    if TIME not in spoiled:
        clock: Read = lambda run: run.result.wall_seconds  # noqa: E731
        costs += _costs(everyone, clock, "take", "longest", "as long", "least", units.duration)
    said += [f"{words}." for words in costs]
    if missing := [word for group, word in _NOT_ALIKE.items() if group in spoiled]:
        said.append(f"The {named(missing)} of these runs do not compare: what differs is listed with the warnings.")
    return said


def _most_accurate(everyone: Sequence[Compared]) -> list[str]:
    goal = goal_of(everyone)
    if goal is None:
        return []
    name, read, better = goal
    if guessing := [each for each in everyone if guesses(each)]:
        said = _no_better(guessing, name, read)
        rest = [each for each in everyone if each not in guessing]
        if len(rest) == 1 and (value := mean_of(rest[0], read)) is not None:
            most = "the most accurate" if name == "accuracy" else f"the best in {name}"
            return [said, f"{rest[0].name} is {most} ({units.number(value)})."]
        return [said, *(_most_accurate(rest) if rest else [])]
    values = [by_seed(each, read) for each in everyone]
    places = leaders(values, better)
    spreads = {place: found for place in places if (found := spread_of([*values[place].values()]))}
    ordered = sorted(spreads, key=lambda place: spreads[place].mean, reverse=better == "higher")
    first, best = ordered[0], spreads[ordered[0]]
    equal = [place for place in ordered if paired(values[place], values[first]).mean == 0]
    close = [place for place in ordered if place not in equal]
    shown = best.text(units.number)
    most = "the most accurate" if name == "accuracy" else f"the best in {name}"
    who = named(everyone[place].name for place in equal)
    several = len(equal) > 1
    said = f"{who} {'are' if several else 'is'} {most} ({shown}{' each' if several else ''})"
    seeds = max(len(each.runs) for each in everyone)
    if len(equal) == len(everyone):
        return [f"All are equally accurate ({shown})." if name == "accuracy" else f"All are equal in {name} ({shown})."]
    if seeds == 1:
        return [f"{said}; with one seed each, part of a difference may be luck."]
    if close:
        others, them = named(everyone[place].name for place in close), "them" if several else "it"
        return [f"{said}, but the spread over {seeds} seeds does not tell {others} from {them}."]
    return [f"{said}, by more than the spread over {seeds} seeds explains."]


def _no_better(guessing: Sequence[Compared], name: str, read: Read) -> str:
    """Who learnt nothing that a guess would not get, by the figure that shows it."""
    shown = dict.fromkeys([*(run.result.no_better for each in guessing for run in each.runs if run.result.no_better)])
    what = next(iter(shown), name)
    of: Read = lambda run: run.result.accuracy if what == "accuracy" else run.result.figures.get(what)  # noqa: E731
    reached = " and ".join(dict.fromkeys(units.number(mean_of(each, of)) for each in guessing))
    least = mean_of(guessing[0], lambda run: run.result.guess.get(what))
    verb = "is" if len(guessing) == 1 else "are"
    return (
        f"{named(each.name for each in guessing)} {verb} no better than a guess ({what} {reached}; a guess "
        f"{units.number(least)})."
    )


class Kept(NamedTuple):
    """From whom a protocol protects, in the run that promises least.

    Attributes:
        unit: whose data: a client's, where that is promised toward anybody, else those of another unit. Empty where
            nothing is promised.
        weak: whether a guarantee of these is weak.
        parties: from whom.
        whole: whether these are all parties that there are.
        most: the largest epsilon.
    """

    unit: str
    weak: bool
    parties: tuple[Party, ...]
    whole: bool
    most: float

    @property
    def whose(self) -> str:
        """Whose data are protected, or a client's are not."""
        return "a client" if self.unit in ("client", "") else f"each {self.unit}, and no client as a whole,"

    @property
    def words(self) -> str:
        """`weakly from everybody (epsilon 8.00 at most)`, `from nobody`."""
        if not self.parties:
            return "from nobody"
        whom = "everybody" if self.whole else f"{named(PARTIES[party] for party in self.parties)} alone"
        most = f" (epsilon {number(self.most)} at most)" if self.most > 0 else ""
        return f"{'weakly ' if self.weak else ''}from {whom}{most}"


def kept_by(each: Compared) -> Kept:
    """From whom a protocol protects a client; another unit counts where no client is protected from anybody."""
    lines = {party: line for party in PARTIES if (line := line_of(each, party)) and line.state != "absent"}
    safe = {party: line for party, line in lines.items() if line.state == "guaranteed"}
    unit = "client" if any(line.unit == "client" for line in safe.values()) else next(
        (line.unit for line in safe.values()), "")  # fmt: skip
    own = {party: line for party, line in safe.items() if line.unit == unit}
    weak, most = any(line.weak for line in own.values()), max((line.value or 0.0 for line in own.values()), default=0.0)
    return Kept(unit, weak, tuple(own), len(own) == len(lines), most)


def _protection(everyone: Sequence[Compared]) -> str:
    """Who protects a client from whom: protocols with the same parties together, the most protected ones first.

    Those that protect another unit alone follow.
    """
    kinds: dict[tuple[str, bool, bool, tuple[Party, ...]], list[tuple[str, Kept]]] = {}
    for each in everyone:
        kept = kept_by(each)
        kinds.setdefault((kept.unit, kept.whole, kept.weak, kept.parties), []).append((each.name, kept))
    units_from_best = {"client": 0, "": 2}

    def rank(kind: tuple[str, bool, bool, tuple[Party, ...]]) -> tuple[int, bool, int, bool]:
        unit, whole, weak, parties = kind
        return units_from_best.get(unit, 1), not whole, -len(parties), weak

    said, whose = list[str](), ""
    for kind in sorted(kinds, key=rank):
        members = kinds[kind]
        worst = max((kept for _, kept in members), key=lambda kept: kept.most)
        verb = f"protect{'' if len(members) > 1 else 's'} {worst.whose} " if worst.whose != whose else ""
        whose = worst.whose
        said.append(f"{named(name for name, _ in members)} {verb}{worst.words}")
    return f"{'; '.join(said)}."


def _costs(
    everyone: Sequence[Compared], read: Read, verb: str, most: str, as_much: str, least: str,
    show: Callable[[float], str],
) -> list[str]:  # fmt: skip
    """Who costs most, and how much less the cheapest costs; nothing where the seeds do not tell the two apart."""
    found = {place: mean for place, each in enumerate(everyone) if (mean := mean_of(each, read)) is not None}
    if len(found) < 2 or min(found.values()) <= 0:
        return []
    low, high = (everyone[pick(found, key=lambda place: found[place])] for pick in (min, max))
    dear, cheap = max(found.values()), min(found.values())
    if dear < _ABOUT * cheap:
        return [f"All {verb} about {as_much} ({show(dear)})"]
    if 0 in leaders([by_seed(high, read), by_seed(low, read)], "lower"):
        return []
    times = f"{dear / cheap:.1f}" if dear < 10 * cheap else f"{dear / cheap:.0f}"
    return [f"{high.name} {verb}s {most} ({show(dear)}), {times} times {as_much} as {low.name}, which {verb}s {least}"]
