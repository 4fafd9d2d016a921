"""The results of attacks in brief: a conclusion that counts examples, and a row for each question.

The report and both displays say the same words.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from fedplug_runs import units

from fedplug_attacks.workshop.records import AttackSummary, People, SummaryRow
from fedplug_attacks.workshop.scorer import GUESSES
from fedplug_attacks.workshop.words import best_guess, examples, metric_words, when_words, who_words

SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE = "succeeded", "inconclusive", "failed", "not applicable"
STATES = (SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE)
"""The possible outcomes of a row, most important first."""
HEADER = ("who", "what", "found", "best guess that looks at nothing", "status")
"""Header of a table of findings."""
SIGNIFICANT = 0.05
"""Largest probability under random guesses at which successes count as more than luck."""
_CAVEAT = "That proves nothing about other attacks."


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the table: an attack by an adversary, in the stronger form.

    Attributes:
        who: the adversary, in words.
        what: the target information, in words.
        found: the result in words and numbers; a dash if the attack did not apply.
        guess: the result of the best guess that looks at nothing; a dash without one.
        state: one of `STATES`.
        remark: if the attack does not apply, the adversary or the option with which it would; else the number of
            inconclusive targets.
        attack: its name.
    """

    who: str
    what: str
    found: str
    guess: str
    state: str
    remark: str
    attack: str

    @property
    def status(self) -> str:
        """The state, followed by the remark."""
        return f"{self.state}; {self.remark}" if self.remark else self.state

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells in the order of `HEADER`."""
        return self.who, self.what, self.found, self.guess, self.status


def findings(summary: AttackSummary) -> list[Finding]:
    """A row for each attack by each adversary on each round; successes first.

    Attacks that apply to no adversary of this run are left out; see `idle`.
    """
    found = [_finding(row) for row in _rows(summary)]
    return sorted(found, key=lambda one: STATES.index(one.state))


def idle(summary: AttackSummary) -> list[str]:
    """Attacks that apply to no adversary in this run, a sentence each."""
    told = {}
    for row in summary.rows:
        if row.attack in _idle(summary) and row.reasons:
            told[row.attack] = f"{row.attack} does not apply to this run: {_first(row.reasons)}."
    return list(told.values())


def conclusion(summary: AttackSummary) -> str:
    """The conclusion from all attacks, in sentences; empty if none was made.

    People come first: everybody with an image recovered by any attack of any adversary.
    """
    rows = _rows(summary)
    if not rows:
        return " ".join(idle(summary))
    people, parts = summary.people, list[str]()
    if people.recovered:
        whose = f"{people.recovered} of {_counted(people.attacked)}"
        one = people.of
        said = f"{_capital(one)}s of {whose} were" if people.recovered > 1 else f"The {one} of {whose} was"
        parts.append(f"{said} recovered: {_by(people)}.")
    others = [row for row in rows if state_of(row) == SUCCEEDED and not row.people.recovered]
    for sought in dict.fromkeys((_sought(row), _share(row)) for row in others):
        who = [who_words(row.adversary) for row in others if (_sought(row), _share(row)) == sought]
        parts.append(f"{_capital(_listed(who))} found {sought[0]} ({sought[1]}).")
    states = Counter(state_of(row) for row in rows)
    counted = [f"{states[state]} {state}" for state in STATES if states[state]]
    if not parts:
        nobody = f"No {people.of} of {_counted(people.attacked)} was recovered" if people.attacked else ""
        parts.append(f"{nobody}, and no other attack succeeded." if nobody else "No attack that was made succeeded.")
    parts.append(f"All attacks, each by one adversary: {', '.join(counted)}.")
    return " ".join([*parts, *([] if people.recovered or others else [_CAVEAT])])


def state_of(row: SummaryRow) -> str:
    """The outcome of a row.

    Any recovered image is a success. Answers about classes and members are right for some targets by luck. They count
    as a success only with more successes than random guesses have, except for one time in 20.
    """
    if row.people.recovered or (row.succeeded and by_luck(row) < SIGNIFICANT):
        return SUCCEEDED
    if not row.applicable:
        return NOT_APPLICABLE
    return INCONCLUSIVE if row.inconclusive == row.applicable else FAILED


def by_luck(row: SummaryRow) -> float:
    """How probable as many successes are, if each target is a random guess."""
    draws = GUESSES * row.applicable
    # One success in two further guesses is added, since a few failed guesses do not prove that all fail.
    luck = ((row.luck if math.isfinite(row.luck) else 0.0) * draws + 1) / (draws + 2)
    few = (math.comb(row.applicable, k) * luck**k * (1 - luck) ** (row.applicable - k) for k in range(row.succeeded))
    return 1 - sum(few)


def _finding(row: SummaryRow) -> Finding:
    state = state_of(row)
    applies = state != NOT_APPLICABLE
    best = best_guess(row.baselines, row.ranking)
    guess = f"{metric_words(row.ranking.metric, best[1])} ({best[0]})" if applies and best else units.NOTHING
    return Finding(
        who_words(row.adversary), _what(row), _found(row) if applies else units.NOTHING, guess, state, _remark(row),
        row.attack,
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
    number = row.metrics.get(row.ranking.metric)
    return ", ".join([_share(row), *([metric_words(row.ranking.metric, number.mean)] if number else [])])


def _share(row: SummaryRow) -> str:
    if row.people.attacked:
        return f"{row.people.recovered} of {row.people.attacked} {row.people.of}s"
    return f"{row.succeeded} of {row.applicable} target{'' if row.applicable == 1 else 's'}"


def _remark(row: SummaryRow) -> str:
    if not row.applicable:
        return _first(row.remedies) or _first(row.reasons)
    lucky = row.succeeded and state_of(row) == FAILED
    parts = ["as many as by luck"] if lucky else []
    parts += [f"{row.inconclusive} inconclusive"] if row.inconclusive and row.inconclusive < row.applicable else []
    parts += [f"{row.not_applicable} not applicable"] if row.applicable and row.not_applicable else []
    return ", ".join(parts)


def _counted(number: int) -> str:
    return examples(number)


def _by(people: People) -> str:
    """`the server 3, another client 2`."""
    ordered = sorted(people.by.items(), key=lambda pair: -pair[1])
    return "by " + ", ".join(f"{who_words(adversary)} {count}" for adversary, count in ordered)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _first(counted: Mapping[str, int]) -> str:
    """The most frequent sentence; empty where there is none."""
    return max(counted, key=lambda said: counted[said], default="")


def _rows(summary: AttackSummary) -> list[SummaryRow]:
    """The stronger form of each attack that applies to an adversary."""
    return [row for row in summary.rows if row.headline and row.attack not in _idle(summary)]


def _idle(summary: AttackSummary) -> set[str]:
    """Names of the attacks that apply to no adversary of the run and to no other one."""
    applies = {row.attack for row in summary.rows if row.applicable or any("--" in said for said in row.remedies)}
    return {row.attack for row in summary.rows} - applies


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
