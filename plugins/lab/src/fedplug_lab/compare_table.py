"""The table of a comparison: a row for each protocol, every number a mean over its runs, every gap with its reason.

Epsilons and verdicts are those of the ledgers; of several runs the largest epsilon stands, since each run is a promise
of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedplug.api import units

from fedplug_lab.compared import Compared, OneRun
from fedplug_lab.intervals import LEVEL, Difference, paired, spread_of
from fedplug_lab.leakage import worst_of
from fedplug_lab.words import VIEWS


@dataclasses.dataclass(frozen=True)
class Cell:
    """What stands in one place of the table.

    Attributes:
        text: for people.
        values: for programs, by what is behind the column's name there; `` for the number itself.
        why: where there is no number, why not.
    """

    text: str
    values: Mapping[str, Any]
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: its name for programs.
        title: for people.
        cells: one for each protocol.
        brief: whether it is in the narrow table of a terminal or a paper too.
        text: whether it holds words.
    """

    key: str
    title: str
    cells: Sequence[Cell]
    brief: bool = True
    text: bool = False


Read = Callable[[OneRun], float | None]


def columns(everyone: Sequence[Compared], baseline: Compared) -> list[Column]:
    """The whole table; columns without any number are left out, unless their lack says something."""
    found = [
        Column("protocol", "protocol", [Cell(each.name, {"": each.name}) for each in everyone], text=True),
        Column("seeds", "seeds", [_seeds(each) for each in everyone], text=True),
        Column("accuracy", "accuracy", [_accuracy(each) for each in everyone]),
        Column("difference", f"against {baseline.name}", [_against(each, baseline) for each in everyone]),
        *_figures(everyone),
        Column("epsilon", "epsilon", [_epsilon(each) for each in everyone]),
        *(Column(f"epsilon_{view}", f"ε {title}", [_of_view(each, view) for each in everyone],
                 brief=view in ("aggregator", "released_model")) for view, title in VIEWS.items()),
        *_levels(everyone),
        *_leakage(everyone),
        *_volumes(everyone),
        *_seconds(everyone),
        *_memory(everyone),
    ]  # fmt: skip
    verdicts = [Cell(" / ".join(verdicts_of(each)) or units.NOTHING, {"": " / ".join(verdicts_of(each))},
                     "" if verdicts_of(each) else "its ledger holds none") for each in everyone]  # fmt: skip
    return [*found, Column("verdict", "verdict", verdicts, brief=False, text=True)]


def reasons(table: Sequence[Column]) -> list[str]:
    """Why there are dashes, a sentence for each column and reason."""
    said: dict[tuple[str, str], list[str]] = {}
    names = [cell.text for cell in table[0].cells]
    for column in table:
        for name, cell in zip(names, column.cells, strict=True):
            if cell.why:
                said.setdefault((column.title, cell.why), []).append(name)
    return [f"{title}, {', '.join(who)}: {why}" for (title, why), who in said.items()]


def verdicts_of(each: Compared) -> list[str]:
    """What the ledgers of its runs say, word for word, each once."""
    return list(dict.fromkeys(run.ledger.verdict for run in each.runs if run.ledger.verdict))


def view_epsilon(run: OneRun, view: str) -> float | None:
    """Zero-out epsilon that a run's ledger states for a view; None where it states none."""
    found = run.ledger.views.get(view)
    return found.epsilon if found else None


def worst_epsilon(each: Compared, view: str) -> float | None:
    """The largest over its runs; None where one of them states none."""
    known = [view_epsilon(run, view) for run in each.runs]
    stated = [epsilon for epsilon in known if epsilon is not None]
    return max(stated) if len(stated) == len(known) else None


def accuracies(each: Compared) -> dict[int, float | None]:
    """Accuracy after the last round, by seed."""
    return {seed: run.result.accuracy for seed, run in each.by_seed.items()}


# ---- columns


def _seeds(each: Compared) -> Cell:
    seeds = sorted(each.by_seed)
    text = ", ".join(map(str, seeds)) if len(seeds) <= 5 else f"{len(seeds)}"
    return Cell(text, {"": len(seeds), "list": " ".join(map(str, seeds))})


def _accuracy(each: Compared) -> Cell:
    return _mean([run.result.accuracy for run in each.runs], units.number, "no client evaluated the global model")


def _against(each: Compared, baseline: Compared) -> Cell:
    if each is baseline:
        return Cell("baseline", {"mean": 0.0, "n": len(each.runs)})
    found = paired(accuracies(each), accuracies(baseline))
    values = {"mean": found.mean, "low": found.low, "high": found.high, "n": found.count}
    return Cell(difference_words(found), values, _no_interval(found))


def difference_words(found: Difference) -> str:
    """`-0.012 [-0.020, -0.004] n=3`: the mean, the interval at `LEVEL`, and over how many seeds."""
    if found.mean is None:
        return units.NOTHING
    interval = f" [{found.low:+.3f}, {found.high:+.3f}]" if found.low is not None and found.high is not None else ""
    return f"{found.mean:+.3f}{interval} n={found.count}"


def _no_interval(found: Difference) -> str:
    if found.low is not None:
        return ""
    if found.mean is None:
        return "no seed has an accuracy for both"
    if found.count > 1:
        return "all differences are alike, from which no interval can be claimed"
    return f"one seed in common, so that no {LEVEL:.0%} interval is claimed"


def _figures(everyone: Sequence[Compared]) -> list[Column]:
    """Of the task; where groups have models, on test data like each client's own; and personal models."""
    titles = _names(everyone, lambda run: run.result.figures)
    of_task = [
        _column(everyone, f"figure_{title}", title, lambda run, title=title: run.result.figures.get(title),  # type: ignore[misc]
                units.number, "its task has no such figure")
        for title in titles
    ]  # fmt: skip
    if any(run.result.group_accuracy for each in everyone for run in each.runs):  # one model for all competes too
        own: Read = lambda run: run.result.client_accuracy.mean if run.result.client_accuracy else None  # noqa: E731
        of_task.append(_column(everyone, "client_accuracy", "accuracy on own data", own, units.number,
                               "no client evaluated its model on data like its own"))  # fmt: skip
    personal: Read = lambda run: run.result.personal_accuracy.mean if run.result.personal_accuracy else None  # noqa: E731
    if any(personal(run) is not None for each in everyone for run in each.runs):
        of_task.append(_column(everyone, "personal_accuracy", "personal models", personal, units.number,
                               "its clients have no models of their own"))  # fmt: skip
    return of_task


def _epsilon(each: Compared) -> Cell:
    known = [run.result.epsilon for run in each.runs]
    stated = [epsilon for epsilon in known if epsilon is not None and not math.isnan(epsilon)]
    if len(stated) < len(known):
        return Cell(units.NOTHING, {}, "its ledger prices nothing, since no zone has noise that counts")
    parts = sorted({run.rows[-1].epsilon_prices for run in each.runs} - {""})
    priced = f" ({', '.join(parts)})" if parts else ""
    return Cell(f"{units.number(max(stated))}{priced}", {"": max(stated), "prices": ", ".join(parts)})


def _of_view(each: Compared, view: str) -> Cell:
    if (worst := worst_epsilon(each, view)) is not None:
        return Cell(units.number(worst), {"": worst})
    views = [run.ledger.views[view] for run in each.runs if view in run.ledger.views]
    why = next((found.reason for found in views if found.epsilon is None), "")
    return Cell(units.NOTHING, {}, why or "its ledger says nothing of this view")


def _levels(everyone: Sequence[Compared]) -> list[Column]:
    return [
        _column(everyone, f"epsilon_of_{level}", f"ε of a {level}",
                lambda run, level=level: run.result.level_epsilons.get(level),  # type: ignore[misc]
                units.number, "none of its components keeps that account", worst=True)
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
    return [Column("leakage", "best attack succeeded", cells), Column("leaked", "it reached (trivial guess)", numbers)]


def _volumes(everyone: Sequence[Compared]) -> list[Column]:
    def of(way: str, title: str, read: Read) -> Column:
        return _column(everyone, f"bytes_{way}", title, read, lambda value: f"{value / 1e6:.2f}", "")

    made = [
        of("up", "MB up", lambda run: run.result.bytes.up),
        of("down", "MB down", lambda run: run.result.bytes.down),
    ]
    if any(run.result.bytes.key_server for each in everyone for run in each.runs):
        made.append(of("key_server", "MB key server", lambda run: run.result.bytes.key_server))
    return made


def _seconds(everyone: Sequence[Compared]) -> list[Column]:
    shown = lambda value: f"{value:.1f}" if value >= 1 else f"{value:.3f}"  # noqa: E731
    made = [_column(everyone, "seconds", "seconds", lambda run: run.result.wall_seconds, shown, "")]
    if any(run.result.cpu_seconds is not None for each in everyone for run in each.runs):
        made.append(_column(everyone, "seconds_cpu", "CPU s", lambda run: run.result.cpu_seconds, shown,
                            "its run did not count them"))  # fmt: skip
    made += [
        dataclasses.replace(
            _column(everyone, f"seconds_{phase}", f"s {phase}",
                    lambda run, phase=phase: run.result.seconds.get(phase),  # type: ignore[misc]
                    shown, "its rounds have no such phase"),
            brief=False,
        )
        for phase in _names(everyone, lambda run: run.result.seconds)
    ]  # fmt: skip
    if any(run.result.simulated_seconds is not None for each in everyone for run in each.runs):
        made.append(_column(everyone, "seconds_simulated", "simulated s", lambda run: run.result.simulated_seconds,
                            shown, "its recipe describes no devices"))  # fmt: skip
    return made


def _memory(everyone: Sequence[Compared]) -> list[Column]:
    """Of the server's process; with the engine `local` of all parties."""
    read: Read = lambda run: run.summary.peak_memory  # noqa: E731
    if all(read(run) is None for each in everyone for run in each.runs):
        return []
    column = _column(everyone, "peak_memory", "MB memory", read, lambda value: f"{value / 1e6:.0f}",
                     "the system did not tell", worst=True)  # fmt: skip
    return [dataclasses.replace(column, brief=False)]


# ---- parts


def _column(
    everyone: Sequence[Compared], key: str, title: str, read: Read, shown: Callable[[float], str], why: str,
    worst: bool = False,
) -> Column:  # fmt: skip
    make = _largest if worst else _mean
    return Column(key, title, [make([read(run) for run in each.runs], shown, why) for each in everyone])


def _mean(values: Sequence[float | None], shown: Callable[[float], str], why: str) -> Cell:
    found = spread_of(values)
    if found is None:
        return Cell(units.NOTHING, {}, why)
    text = shown(found.mean)
    if found.deviation is not None and shown(found.deviation) != shown(0.0):
        text += f" ± {shown(found.deviation)}"
    if found.count < len(values):
        text += f" (of {found.count})"
    return Cell(text, {"mean": found.mean, "sd": found.deviation, "n": found.count})


def _largest(values: Sequence[float | None], shown: Callable[[float], str], why: str) -> Cell:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell(units.NOTHING, {}, why)
    return Cell(shown(max(known)), {"": max(known)})


def _names(everyone: Sequence[Compared], read: Callable[[OneRun], Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for each in everyone for run in each.runs for name in read(run)))
