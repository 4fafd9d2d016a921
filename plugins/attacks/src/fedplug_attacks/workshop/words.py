"""The results of attacks in words and numbers, for the report and both displays alike.

First come the words for one target. Then come the results in brief: a conclusion that counts examples, and a row for
each question.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedplug_runs import units

from fedplug_attacks.workshop.records import (
    AttackSummary,
    Averaged,
    Guesses,
    Outcome,
    People,
    Ranking,
    Success,
    SummaryRow,
    TargetResult,
)
from fedplug_attacks.workshop.results import stronger

FORMS = ("naive", "adaptive")
"""The order of the forms: first the zero-filling attacker, then the one that knows the mask."""

_TITLES = {
    "mse": "MSE", "psnr": "PSNR", "ssim": "SSIM", "mssim": "MSSIM", "ms_ssim": "MS-SSIM", "vifp": "VIFp",
    "lpips": "LPIPS", "le_acc": "label existence accuracy (LeAcc)",
    "ln_acc": "label number accuracy (LnAcc)", "presence_auc": "presence AUC",
    "membership_auc": "membership AUC", "tpr_at_1_fpr": "TPR at 1% FPR",
    "tpr_at_01_fpr": "TPR at 0.1% FPR",
}  # fmt: skip
_DECIBELS = "psnr"


def metric_title(name: str) -> str:
    """`mse` is `MSE`, `mse_inside` is `MSE inside`; for a component's name, the part after the dot."""
    last = name.rpartition(".")[2]
    known = last if last in _TITLES else last.partition("_")[0]
    return " ".join([_TITLES.get(known, known), *filter(None, last[len(known) :].split("_"))])


def metric_number(name: str, value: float) -> str:
    """The number in readable form, with its unit; a dash for NaN: it diverged, or no target has it."""
    if math.isnan(value):
        return units.NOTHING
    if name.rpartition(".")[2].startswith(_DECIBELS) and math.isfinite(value):
        return f"{value:.1f} dB"
    if 10 <= abs(value) < 1e6 and value == int(value):
        return str(int(value))  # a count
    return units.number(0.0 if abs(value) < 1e-15 else value)


def metric_words(name: str, value: float) -> str:
    """`PSNR 28.8 dB`."""
    return f"{metric_title(name)} {metric_number(name, value)}"


def forms(result: TargetResult) -> dict[str, Outcome]:
    """The forms that were tried, the naive one first, each with its outcome."""
    ordered = [*(form for form in FORMS if form in result.forms), *(form for form in result.forms if form not in FORMS)]
    return {form: result.forms[form] for form in ordered}


def target_line(result: TargetResult) -> str:
    """A finished target in a line: its forms, the stronger first, each with number, trivial guess and time."""
    tried = forms(result)
    if result.same_as:
        return f"{result.key}: saw what {who_words(result.same_as)} saw, with the same result"
    said = dict[str, list[str]]()  # forms with the same result share a line
    for form in sorted(tried, key=lambda form: form != result.headline):
        said.setdefault(outcome_words(result, form), []).append(form)
    parts = [
        f"{' and '.join(names)} {words}, {units.duration(sum(tried[form].seconds for form in names))}"
        for words, names in said.items()
    ]
    return f"{result.key}: {'; '.join(parts) or 'no form was tried'}"


def interruption(done: int, total: int, folder: Path) -> str:
    """A sentence on the finished targets after an interruption."""
    return f"Interrupted; {done} of {total} targets are finished and kept in {folder}."


def status_words(outcome: Outcome) -> str:
    """`success`, `failed`, `diverged`, `not applicable`."""
    return outcome.status.replace("_", " ")


def success_words(rule: Success | None) -> str:
    """The criterion of success: `MSE ≤ 0.001`; empty if no number decides."""
    if rule is None:
        return ""
    sign = {"<=": "≤", ">=": "≥"}[rule.relation]
    unit = " dB" if metric_number(rule.metric, rule.threshold).endswith(" dB") else ""
    return f"{metric_title(rule.metric)} {sign} {rule.threshold:g}{unit}"


def when_words(adversary: str, round: int) -> str:
    """`round 3`; of a released model `after round 20`, since it is attacked as it is before the round that follows."""
    return f"after round {round - 1}" if adversary == "released" else f"round {round}"


def target_words(result: TargetResult) -> str:
    """`server, round 1, client 3, probe 1 with 8 examples`."""
    parts = [result.adversary, when_words(result.adversary, result.round), f"client {result.client}"]
    if result.probe is not None:
        parts.append(f"probe {result.probe.batch} with {examples(result.probe.batch_size)}")
    return ", ".join(parts)


def examples(count: int) -> str:
    """`1 example`, `8 examples`."""
    return units.many(count, "example")


def shares_words(states: Mapping[str, float]) -> str:
    """The share of the entries that the adversary saw in each state: `clear 90.0%, encrypted 10.0%`.

    Scrambled bytes that are not proved to hide values get a remark.
    """
    doubts = {"scrambled": " (nothing proves that it hides them)"}
    return ", ".join(f"{state} {units.percent(share)}{doubts.get(state, '')}" for state, share in states.items()
                     if share > 0)  # fmt: skip


def trivial_guesses(guesses: Guesses, metric: str) -> dict[str, float]:
    """Each trivial guess's value of that number, by name of the guess; finite numbers only."""
    reached = {name: numbers.get(metric, math.nan) for name, numbers in guesses.items()}
    return {name: value for name, value in reached.items() if math.isfinite(value)}


def metric_names(metrics: Mapping[str, object], first: str) -> list[str]:
    """Names of the numbers: `first`, then those that papers report, then the rest.

    The ends of an interval, `x_low` and `x_high` for `x`, are left out.
    """
    ends = {f"{name}{end}" for name in metrics for end in ("_low", "_high")}
    return sorted((name for name in metrics if name not in ends), key=lambda name: (name != first, name not in _TITLES))


def guess_words(guesses: Guesses, ranking: Ranking) -> str:
    """` (mean image 0.080)`: the trivial guess that an attack has to beat."""
    best = best_guess(guesses, ranking)
    return f" ({best[0]} {metric_number(ranking.metric, best[1])})" if best else ""


def best_guess(guesses: Guesses, ranking: Ranking) -> tuple[str, float] | None:
    """The trivial guess that an attack has to beat, and its value; None without one."""
    reached = trivial_guesses(guesses, ranking.metric)
    best = stronger(reached, ranking.better)
    return None if best is None else (best, reached[best])


def mean_words(metric: str, value: Averaged) -> str:
    """`MSE 1.00e-06 ± 2.00e-07`: a mean over targets with its standard deviation."""
    beside = f" ± {metric_number(metric, value.std)}" if value.std > 0 else ""
    return f"{metric_words(metric, value.mean)}{beside}"


def outcome_words(result: TargetResult, form: str) -> str:
    """The outcome of a form: `success, MSE 1.00e-06 (mean image 0.080)`, or why there is no number."""
    outcome, metric = result.forms[form], result.ranking.metric
    said = status_words(outcome)
    if metric in outcome.metrics:
        said += f", {metric_words(metric, outcome.metrics[metric])}{guess_words(result.baselines, result.ranking)}"
    return f"{said}: {outcome.reason}" if outcome.reason else said


def by_words(adversary: str, round: int, batch_size: int | None) -> str:
    """`by the server, round 3, 8 examples`."""
    size = "" if batch_size is None else f", {examples(batch_size)}"
    return f"by {who_words(adversary)}, {when_words(adversary, round)}{size}"


_WHO = {
    "server": "the server", "eavesdropper": "an eavesdropper", "client": "another client",
    "key_server": "the key server", "released": "anybody who gets the model",
    "malicious_server": "a malicious server",
}  # fmt: skip


def who_words(adversary: str) -> str:
    """`the server with another client` for `server+client`; clients who are named by number are listed."""
    names = [_WHO.get(role) or role for role in adversary.split("+")]
    numbers = [name.partition(":")[2] for name in names if ":" in name]
    names = [name for name in names if ":" not in name]
    if numbers:
        names.append(f"{'client' if len(numbers) == 1 else 'clients'} {', '.join(numbers)}")
    return " with ".join([names[0], " and ".join(names[1:])]) if len(names) > 1 else names[0]


SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE = "succeeded", "inconclusive", "failed", "not applicable"
STATES = (SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE)
"""The possible outcomes of a row, most important first."""
HEADER = ("who", "what", "found", "best guess that looks at nothing", "status")
"""Header of a table of findings."""
SEARCHES = ("attacks.exact_batch", "attacks.inverting", "attacks.dager")
"""The attacks of the default set that take long, and that the others do not replace."""
MOST_LEFT = 6
"""Largest number of things that a sentence on what is left lists."""
_WORDS = {"success": SUCCEEDED, "inconclusive": INCONCLUSIVE, "failed": FAILED, "not_applicable": NOT_APPLICABLE}
_CAVEAT = "That proves nothing about other attacks."


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the table: a question of an adversary, by the attack that found most, in its stronger form.

    Attributes:
        who: the adversary, in words.
        what: the target information, in words.
        found: the result in words and numbers; a dash if the attack did not apply.
        guess: the result of the best guess that looks at nothing; a dash without one.
        state: one of `STATES`.
        remark: if no attack applies, why, and the adversary or the option with which one would; else why it is
            inconclusive, or the number of inconclusive targets.
        attack: its name.
        people: number of recovered examples.
    """

    who: str
    what: str
    found: str
    guess: str
    state: str
    remark: str
    attack: str
    people: int = 0

    @property
    def status(self) -> str:
        """The state, followed by the remark."""
        return f"{self.state}; {self.remark}" if self.remark else self.state

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells in the order of `HEADER`."""
        return self.who, self.what, self.found, self.guess, self.status


def findings(summary: AttackSummary) -> list[Finding]:
    """A row for each question of each adversary on each round, by the attack that found most; successes first.

    Questions to which nothing applies, for any adversary of this run, are left out; see `idle`.
    """
    idle_ones, questions = _idle(summary), dict[tuple[str, str], list[SummaryRow]]()
    for row in summary.rows:
        if row.headline and _sought(row) not in idle_ones:
            questions.setdefault((row.adversary, _what(row)), []).append(row)
    found = [_less_what_is_left(_finding(row), row, summary.left) for row in (
        max(rows, key=_told) for rows in questions.values()
    )]  # fmt: skip
    return sorted(found, key=lambda one: STATES.index(one.state))


def summary_lines(summary: AttackSummary) -> list[str]:
    """The results of all targets: a row for each question of each adversary, and the conclusion below them."""
    rows = [HEADER, *(finding.cells for finding in findings(summary))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]  # fmt: skip
    return [*lines, *idle(summary), conclusion(summary)] if len(rows) > 1 else [conclusion(summary)]


def _less_what_is_left(found: Finding, row: SummaryRow, left: Mapping[str, str]) -> Finding:
    """A search for these images that there was no time for might have found them."""
    by = by_words(row.adversary, row.round, row.probe_batch_size)
    others = sorted({said.removesuffix(f" {by}") for said in left.values() if said.endswith(f" {by}")} & {*SEARCHES})
    if found.state in (SUCCEEDED, INCONCLUSIVE) or not others or not {"images", "texts", "tokens"} & {*row.finds}:
        return found
    return dataclasses.replace(found, state=INCONCLUSIVE, remark=f"no time for {', '.join(others)}")


def _told(row: SummaryRow) -> tuple[int, int, bool]:
    """How much a row tells: its state, the recovered people, and who would get further."""
    return -STATES.index(state_of(row)), row.people.recovered, bool(row.remedies)


def idle(summary: AttackSummary) -> list[str]:
    """Questions to which no attack applies, for any adversary of this run, a sentence for each attack."""
    unanswered = _idle(summary)
    told = {row.attack: f"{row.attack} does not apply to this run: {_first(row.reasons)}." for row in summary.rows
            if _sought(row) in unanswered and row.reasons}  # fmt: skip
    return list(told.values())


def left(summary: AttackSummary) -> list[str]:
    """What there was no time for, in a sentence; nothing if all was made."""
    counted = Counter(summary.left.values())
    listed = [f"{said} ({units.many(count, 'target')})" for said, count in counted.most_common(MOST_LEFT)]
    more = len(counted) - len(listed)
    listed += [f"{more} more"] if more > 0 else []
    return [f"Not attacked for want of time: {'; '.join(listed)}."] if listed else []


def conclusion(summary: AttackSummary) -> str:
    """The conclusion from all attacks, in sentences; empty if none was made.

    People come first: everybody with an image recovered by any attack of any adversary.
    """
    found = findings(summary)
    if not found:
        return " ".join([*idle(summary), *summary.unseen, *left(summary)])
    people, parts = summary.people, list[str]()
    if people.recovered:
        whose = f"{people.recovered} of {examples(people.attacked)}"
        one = people.of
        said = f"{_capital(one)}s of {whose} were" if people.recovered > 1 else f"The {one} of {whose} was"
        parts.append(f"{said} recovered: {_by(people)}.")
    others = [one for one in found if one.state == SUCCEEDED and not one.people]
    for sought in dict.fromkeys((one.what.rpartition(", ")[0], one.found) for one in others):
        who = dict.fromkeys(one.who for one in others if (one.what.rpartition(", ")[0], one.found) == sought)
        parts.append(f"{_capital(_listed([*who]))} found {sought[0]} ({sought[1]}).")
    states = Counter(one.state for one in found)
    counted = [f"{states[state]} {state}" for state in STATES if states[state]]
    if not parts:
        nobody = f"No {people.of} of {examples(people.attacked)} was recovered" if people.attacked else ""
        parts.append(f"{nobody}, and no other attack succeeded." if nobody else "No attack that was made succeeded.")
    parts.append(f"All questions, each of one adversary: {', '.join(counted)}.")
    parts += [*summary.unseen, *left(summary)]
    return " ".join([*parts, *([] if people.recovered or others else [_CAVEAT])])


def state_of(row: SummaryRow) -> str:
    """The outcome of a row; of a summary of an earlier version, by its counts of targets."""
    if row.judged is not None:
        return _WORDS[row.judged.state]
    if row.people.recovered or row.succeeded:
        return SUCCEEDED
    if not row.applicable:
        return NOT_APPLICABLE
    return INCONCLUSIVE if row.inconclusive == row.applicable else FAILED


def _finding(row: SummaryRow) -> Finding:
    state = state_of(row)
    applies = state != NOT_APPLICABLE
    best = best_guess(row.baselines, row.ranking)
    guess = f"{metric_words(row.ranking.metric, best[1])} ({best[0]})" if applies and best else units.NOTHING
    if row.judged is not None and row.judged.metric not in ("", row.ranking.metric):
        guess = f"{metric_words(row.judged.metric, row.judged.guess)} (random guess)"
    return Finding(
        who_words(row.adversary), _what(row), _found(row) if applies else units.NOTHING, guess, state, _remark(row),
        row.attack, row.people.recovered,
    )  # fmt: skip


def _what(row: SummaryRow) -> str:
    size = row.probe_batch_size
    where = "an update" if size is None else f"one step on {examples(size)}"
    if "images" in row.finds:
        sought = f"the {row.people.of}s behind {where}"
    elif "texts" in row.finds:
        sought = f"the texts behind {where}"
    elif "attribute" in row.finds:
        sought = f"how many of the examples behind {where} have the attribute"
    elif "tokens" in row.finds:
        sought = f"which tokens are behind {where}"
    elif "members" in row.finds:
        sought = "who was in the data"
    elif row.ranking.metric == "presence_auc":
        sought = "which classes a client has"
    elif "labels" in row.finds:
        sought = f"how often each class is behind {where}"
    else:
        sought = f"what is behind {where}"
    return f"{sought}, {when_words(row.adversary, row.round)}"


def _sought(row: SummaryRow) -> str:
    return _what(row).rpartition(", ")[0]


def _found(row: SummaryRow) -> str:
    """`8 of 24 images, MSE 0.039`, or the measure with its interval."""
    one, number = row.judged, row.metrics.get(row.ranking.metric)
    if one is None or not one.metric:
        return ", ".join([_share(row), *([metric_words(row.ranking.metric, number.mean)] if number else [])])
    share = min(one.value, one.guess) >= 0 and max(one.value, one.guess) <= 1  # nearly all measures are
    ends = [min(max(end, 0.0), 1.0) if share else end for end in (one.low, one.high)]
    shown = " to ".join(metric_number(one.metric, end) for end in ends)
    return f"{metric_words(one.metric, one.value)} ({shown}), {units.many(row.applicable, 'target')}"


def _share(row: SummaryRow) -> str:
    if row.people.attacked:
        return f"{row.people.recovered} of {units.many(row.people.attacked, row.people.of)}"
    return f"{row.succeeded} of {units.many(row.applicable, 'target')}"


def _remark(row: SummaryRow) -> str:
    if not row.applicable:
        return "; ".join(filter(None, [_first(row.reasons), _first(row.remedies)]))
    state, one = state_of(row), row.judged
    parts = []
    if one is not None and one.metric and state == FAILED:
        parts.append("no more than a guess")
    if state == INCONCLUSIVE and one is not None and one.metric and sum(row.reasons.values()) <= row.not_applicable:
        parts.append("too few targets or candidates to tell it from a guess")
    if state == INCONCLUSIVE and not parts and row.reasons:
        parts.append(_first(row.reasons))
    by_count = one is None or not one.metric  # else the status of a single target says little
    parts += [f"{row.inconclusive} inconclusive"] if 0 < row.inconclusive < row.applicable and by_count else []
    parts += [f"{row.not_applicable} not applicable"] if row.not_applicable else []
    return ", ".join(parts)


def _by(people: People) -> str:
    """`the server 3, another client 2`."""
    ordered = sorted(people.by.items(), key=lambda pair: -pair[1])
    return "by " + ", ".join(f"{who_words(adversary)} {count}" for adversary, count in ordered)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _first(counted: Mapping[str, int]) -> str:
    """The most frequent sentence; empty where there is none."""
    return max(counted, key=lambda said: counted[said], default="")


def _idle(summary: AttackSummary) -> set[str]:
    """The questions to which no attack applies, for any adversary of the run or another one."""
    applies = {_sought(row) for row in summary.rows
               if row.applicable or any("--" in said for said in row.remedies)}  # fmt: skip
    return {_sought(row) for row in summary.rows} - applies


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
