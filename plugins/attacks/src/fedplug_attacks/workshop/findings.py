"""The results of attacks in brief: a conclusion that counts examples, and a row for each question.

The report and both displays say the same words.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from fedplug_runs import units

from fedplug_attacks.workshop.records import AttackSummary, People, SummaryRow
from fedplug_attacks.workshop.words import (
    best_guess,
    by_words,
    examples,
    metric_number,
    metric_words,
    when_words,
    who_words,
)

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
