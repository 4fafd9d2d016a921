"""The results of attacks in words and numbers, for the report and the display alike.

First come the words for one target. Then come the results in brief: a conclusion that counts examples, and a row for
each question.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping

from fedplug_lab.words import capital
from fedplug_ledger.verdict_words import named
from fedplug_runs import units

from fedplug_attacks.workshop.records import (
    AttackSummary,
    Averaged,
    Guesses,
    Outcome,
    Ranking,
    Success,
    SummaryRow,
    TargetResult,
)
from fedplug_attacks.workshop.results import stronger

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
    """The forms that were tried, the stronger one first, each with its outcome."""
    return {form: result.forms[form] for form in sorted(result.forms, key=lambda form: form != result.headline)}


def target_line(result: TargetResult) -> str:
    """A finished target in a line: its key and its outcomes."""
    return f"{result.key}: {outcomes(result)}"


def outcomes(result: TargetResult) -> str:
    """The outcomes of a target: its forms, the stronger first, each with number, trivial guess and time."""
    if result.same_as:
        return f"saw what {who_words(result.same_as)} saw, with the same result"
    said, tried = dict[str, list[str]](), forms(result)  # forms with the same result share a line
    for form in tried:
        said.setdefault(_outcome_words(result, form), []).append(form)
    parts = [
        f"{' and '.join(names)} {words}, {units.duration(sum(tried[form].seconds for form in names))}"
        for words, names in said.items()
    ]
    return "; ".join(parts) or "no form was tried"


def _outcome_words(result: TargetResult, form: str) -> str:
    """The outcome of a form: `success, MSE 1.00e-06 (mean image 0.080)`, or why there is no number."""
    outcome, metric = result.forms[form], result.ranking.metric
    said = outcome.status.replace("_", " ")
    if metric in outcome.metrics:
        best = best_guess(result.baselines, result.ranking)
        guess = f" ({best[0]} {metric_number(metric, best[1])})" if best else ""
        said += f", {metric_words(metric, outcome.metrics[metric])}{guess}"
    return f"{said}: {outcome.reason}" if outcome.reason else said


def success_words(rule: Success) -> str:
    """The criterion of success: `MSE ≤ 0.001`."""
    sign = {"<=": "≤", ">=": "≥"}[rule.relation]
    return f"{metric_title(rule.metric)} {sign} {metric_number(rule.metric, rule.threshold)}"


def when_words(adversary: str, round: int) -> str:
    """`round 3`; of a released model `after round 20`, since it is attacked as it is before the round that follows."""
    return f"after round {round - 1}" if adversary == "released" else f"round {round}"


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


def best_guess(guesses: Guesses, ranking: Ranking) -> tuple[str, float] | None:
    """The trivial guess that an attack has to beat, and its value; None without one."""
    reached = trivial_guesses(guesses, ranking.metric)
    best = stronger(reached, ranking.better)
    return None if best is None else (best, reached[best])


def mean_words(metric: str, value: Averaged) -> str:
    """`MSE 1.00e-06 ± 2.00e-07`: a mean over targets with its standard deviation."""
    return metric_words(metric, value.mean) + (f" ± {metric_number(metric, value.std)}" if value.std > 0 else "")


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
    if numbers := [name.partition(":")[2] for name in names if ":" in name]:
        several = "client" if len(numbers) == 1 else "clients"
        names = [*(name for name in names if ":" not in name), f"{several} {', '.join(numbers)}"]
    return " with ".join([names[0], " and ".join(names[1:])]) if len(names) > 1 else names[0]


SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE = "succeeded", "inconclusive", "failed", "not applicable"
STATES = {"success": SUCCEEDED, "inconclusive": INCONCLUSIVE, "failed": FAILED, "not_applicable": NOT_APPLICABLE}
"""The outcomes of a row in words, by status; most important first."""
HEADER = ("who", "what", "found", "best guess that looks at nothing", "status")
"""Header of a table of findings."""
SEARCHES = ("attacks.dager", "attacks.exact_batch", "attacks.inverting")
"""The attacks of the default set that take long, and that the others do not replace."""
MOST_LEFT = 6
"""Largest number of things that a sentence on what is left lists."""
_SOUGHT = {
    "images": "the {of}s behind {where}", "texts": "the texts behind {where}",
    "attribute": "how many of the examples behind {where} have the attribute",
    "tokens": "which tokens are behind {where}", "members": "who was in the data",
    "presence_auc": "which classes a client has", "labels": "how often each class is behind {where}",
}  # fmt: skip
"""What an attack looks for, or what ranks it -> the question; the first that an attack has."""
_CAVEAT = "That proves nothing about other attacks."


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the table: a question of an adversary, by the attack that found most, in its stronger form.

    Attributes:
        who: the adversary, in words.
        sought: the target information, in words.
        when: the round, in words.
        found: the result in words and numbers; a dash if the attack did not apply.
        guess: the result of the best guess that looks at nothing; a dash without one.
        state: one of the words of `STATES`.
        remark: if no attack applies, why, and the adversary or the option with which one would; else why it is
            inconclusive, or the number of inconclusive targets.
        attack: its name.
        people: number of recovered examples.
    """

    who: str
    sought: str
    when: str
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
        return self.who, f"{self.sought}, {self.when}", self.found, self.guess, self.status


def findings(summary: AttackSummary) -> list[Finding]:
    """A row for each question of each adversary on each round, by the attack that found most; successes first.

    Questions to which nothing applies, for any adversary of this run, are left out; see `idle`.
    """
    answered, questions = _answered(summary), dict[tuple[str, str, str], list[SummaryRow]]()
    for row in summary.rows:
        if row.headline and (sought := _sought(row)) in answered:
            questions.setdefault((row.adversary, sought, when_words(row.adversary, row.round)), []).append(row)
    found = [finding(max(rows, key=_told), summary.left) for rows in questions.values()]
    return sorted(found, key=lambda one: [*STATES.values()].index(one.state))


def idle(summary: AttackSummary) -> list[str]:
    """Questions to which no attack applies, for any adversary of this run, a sentence for each attack."""
    answered = _answered(summary)
    told = {row.attack: f"{row.attack} does not apply to this run: {_first(row.reasons)}." for row in summary.rows
            if _sought(row) not in answered and row.reasons}  # fmt: skip
    return list(told.values())


def left(summary: AttackSummary) -> list[str]:
    """What there was no time for, in a sentence; nothing if all was made."""
    counted = Counter(summary.left.values())
    listed = [f"{said} ({units.many(count, 'target')})" for said, count in counted.most_common(MOST_LEFT)]
    listed += [f"{len(counted) - MOST_LEFT} more"] if len(counted) > MOST_LEFT else []
    return [f"Not attacked for want of time: {'; '.join(listed)}."] if listed else []


def conclusion(summary: AttackSummary) -> str:
    """The conclusion from all attacks, in sentences; empty if none was made.

    People come first: everybody with an image recovered by any attack of any adversary.
    """
    found, people, parts = findings(summary), summary.people, list[str]()
    if people.recovered:
        whose = f"{people.recovered} of {examples(people.attacked)}"
        said = f"{capital(people.of)}s of {whose} were" if people.recovered > 1 else f"The {people.of} of {whose} was"
        ordered = sorted(people.by.items(), key=lambda pair: -pair[1])
        by = ", ".join(f"{who_words(adversary)} {count}" for adversary, count in ordered)
        parts.append(f"{said} recovered: by {by}.")
    others = dict[tuple[str, str], list[Finding]]()
    for one in found:
        if one.state == SUCCEEDED and not one.people:
            others.setdefault((one.sought, one.found), []).append(one)
    asked = Counter(sought for sought, _ in others)
    for (sought, seen), ones in others.items():
        who, when = dict.fromkeys(one.who for one in ones), dict.fromkeys(one.when for one in ones)
        where = f", {named(when)}" if asked[sought] > 1 else ""  # else the same sentence comes again with other numbers
        parts.append(f"{capital(named(who))} found {sought}{where} ({seen}).")
    nothing = bool(found) and not parts
    if nothing and people.attacked:
        parts.append(f"No {people.of} of {examples(people.attacked)} was recovered, and no other attack succeeded.")
    elif nothing:
        parts.append("No attack that was made succeeded.")
    states = Counter(one.state for one in found)
    counted = [f"{states[state]} {state}" for state in STATES.values() if states[state]]
    parts += [f"All questions, each of one adversary: {', '.join(counted)}."] if found else idle(summary)
    return " ".join([*parts, *summary.unseen, *left(summary), *([_CAVEAT] if nothing else [])])


def state_of(row: SummaryRow) -> str:
    """The outcome of a row; of a summary of an earlier version, by its counts of targets."""
    if row.judged is not None:
        return STATES.get(row.judged.state, INCONCLUSIVE)
    if row.people.recovered or row.succeeded:
        return SUCCEEDED
    if not row.applicable:
        return NOT_APPLICABLE
    return INCONCLUSIVE if row.inconclusive == row.applicable else FAILED


def finding(row: SummaryRow, left: Mapping[str, str]) -> Finding:
    """A row in words, given what there was no time for."""
    who, state, remark = who_words(row.adversary), state_of(row), _remark(row)
    found, guess, best = units.NOTHING, units.NOTHING, best_guess(row.baselines, row.ranking)
    if state != NOT_APPLICABLE:
        found = _found(row)
        guess = f"{metric_words(row.ranking.metric, best[1])} ({best[0]})" if best else guess
    if row.judged is not None and row.judged.metric not in ("", row.ranking.metric):
        guess = f"{metric_words(row.judged.metric, row.judged.guess)} (random guess)"
    by = by_words(row.adversary, row.round, row.probe_batch_size)
    others = [name for name in SEARCHES if f"{name} {by}" in left.values()]
    if others and state in (FAILED, NOT_APPLICABLE) and {"images", "texts", "tokens"} & {*row.finds}:
        state, remark = INCONCLUSIVE, f"no time for {', '.join(others)}"  # a search might have found them
    when = when_words(row.adversary, row.round)
    return Finding(who, _sought(row), when, found, guess, state, remark, row.attack, row.people.recovered)


def _sought(row: SummaryRow) -> str:
    size = row.probe_batch_size
    where = "an update" if size is None else f"one step on {examples(size)}"
    asked = {*row.finds, row.ranking.metric}
    question = next((words for what, words in _SOUGHT.items() if what in asked), "what is behind {where}")
    return question.format(of=row.people.of, where=where)


def _told(row: SummaryRow) -> tuple[int, int, bool]:
    """How much a row tells: its state, the recovered people, and who would get further."""
    return -[*STATES.values()].index(state_of(row)), row.people.recovered, bool(row.remedies)


def _found(row: SummaryRow) -> str:
    """`8 of 24 images, MSE 0.039`, or the measure with its interval."""
    one, number, targets = row.judged, row.metrics.get(row.ranking.metric), units.many(row.applicable, "target")
    if one is None or not one.metric:
        people = f"{row.people.recovered} of {units.many(row.people.attacked, row.people.of)}"
        share = people if row.people.attacked else f"{row.succeeded} of {targets}"
        return f"{share}, {metric_words(row.ranking.metric, number.mean)}" if number else share
    within = min(one.value, one.guess) >= 0 and max(one.value, one.guess) <= 1  # nearly all measures are
    ends = [min(max(end, 0.0), 1.0) if within else end for end in (one.low, one.high)]
    shown = " to ".join(metric_number(one.metric, end) for end in ends)
    return f"{metric_words(one.metric, one.value)} ({shown}), {targets}"


def _remark(row: SummaryRow) -> str:
    if not row.applicable:
        return "; ".join(filter(None, [_first(row.reasons), _first(row.remedies)]))
    state, parts = state_of(row), list[str]()
    measured = row.judged is not None and bool(row.judged.metric)
    if measured and state == FAILED:
        parts.append("no more than a guess")
    if measured and state == INCONCLUSIVE and sum(row.reasons.values()) <= row.not_applicable:
        parts.append("too few targets or candidates to tell it from a guess")
    elif state == INCONCLUSIVE:
        parts.append(_first(row.reasons))
    if not measured and 0 < row.inconclusive < row.applicable:  # else the status of a single target says little
        parts.append(f"{row.inconclusive} inconclusive")
    parts += [f"{row.not_applicable} not applicable"] if row.not_applicable else []
    return ", ".join(filter(None, parts))


def _first(counted: Mapping[str, int]) -> str:
    """The most frequent sentence; empty where there is none."""
    return max(counted, key=lambda said: counted[said], default="")


def _answered(summary: AttackSummary) -> set[str]:
    """The questions to which an attack applies, for an adversary of the run or another one."""
    return {_sought(row) for row in summary.rows
            if row.applicable or any("--" in said for said in row.remedies)}  # fmt: skip
