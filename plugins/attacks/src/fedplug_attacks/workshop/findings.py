"""What attacks came to, for somebody who has a minute: a conclusion that counts people, and a row for each question.

The report and both displays say the same words.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from fedplug.api import units

from fedplug_attacks.workshop.records import AttackSummary, People, SummaryRow
from fedplug_attacks.workshop.words import best_guess, examples, metric_words, who_words

SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE = "succeeded", "inconclusive", "failed", "not applicable"
STATES = (SUCCEEDED, INCONCLUSIVE, FAILED, NOT_APPLICABLE)
"""What a row may have come to; what matters most comes first."""
HEADER = ("who", "what", "found", "best guess that looks at nothing", "status")
"""Of a table of findings."""
_CAVEAT = "That proves nothing about other attacks."


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the table: an attack by an adversary, in the form that took more.

    Attributes:
        who: attacks, in words.
        what: was sought, in words.
        found: in words and numbers; a dash where the attack did not apply.
        guess: what the best guess reaches that looks at nothing; a dash where there is none.
        state: one of `STATES`.
        remark: of one that does not apply, who could or with which option; of another how many targets it did not
            settle.
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
        """The state, and the remark behind it."""
        return f"{self.state}; {self.remark}" if self.remark else self.state

    @property
    def cells(self) -> tuple[str, ...]:
        """As `HEADER` names them."""
        return self.who, self.what, self.found, self.guess, self.status


def findings(summary: AttackSummary) -> list[Finding]:
    """A row for each attack by each adversary on each round; successes first."""
    found = [_finding(row) for row in summary.rows if row.headline]
    return sorted(found, key=lambda one: STATES.index(one.state))


def conclusion(summary: AttackSummary) -> str:
    """What all attacks together came to, in sentences; empty where none was made.

    People come first: everybody of whose examples an image was recovered, by any attack of any adversary.
    """
    rows = [row for row in summary.rows if row.headline]
    if not rows:
        return ""
    people, parts = summary.people, list[str]()
    if people.recovered:
        parts.append(f"An image of {people.recovered} of {_counted(people.attacked)} was recovered: {_by(people)}.")
    others = [row for row in rows if row.succeeded and "images" not in row.finds]
    parts += [f"{_capital(who_words(row.adversary))} found {_sought(row)}, {_share(row)}." for row in others]
    states = Counter(state_of(row) for row in rows)
    rest = [f"{states[state]} {state}" for state in STATES[1:] if states[state]]
    if not parts:
        nobody = f"No image of {_counted(people.attacked)} was recovered" if people.attacked else ""
        parts.append(f"{nobody}, and no other attack succeeded." if nobody else "No attack that was made succeeded.")
    if rest:
        parts.append(f"Of {len(rows)} attacks, each by one adversary: {', '.join([*_successes(states), *rest])}.")
    return " ".join([*parts, *([] if people.recovered or others else [_CAVEAT])])


def state_of(row: SummaryRow) -> str:
    """What a row came to: a success on any target is one."""
    if row.succeeded:
        return SUCCEEDED
    if not row.applicable:
        return NOT_APPLICABLE
    return INCONCLUSIVE if row.inconclusive == row.applicable else FAILED


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
        sought = f"the images behind {where}"
    elif "members" in row.finds:
        sought = "who was in the data"
    elif row.ranking.metric == "presence_auc":
        sought = "which classes a client has"
    elif "labels" in row.finds:
        sought = f"how often each class is behind {where}"
    else:
        sought = f"what is behind {where}"
    return f"{sought}, round {row.round}"


def _sought(row: SummaryRow) -> str:
    return _what(row).rpartition(", round ")[0]


def _found(row: SummaryRow) -> str:
    number = row.metrics.get(row.ranking.metric)
    return ", ".join([_share(row), *([metric_words(row.ranking.metric, number.mean)] if number else [])])


def _share(row: SummaryRow) -> str:
    if row.people.attacked:
        return f"{row.people.recovered} of {row.people.attacked} images"
    return f"{row.succeeded} of {row.applicable} {'client' if row.applicable == 1 else 'clients'}"


def _remark(row: SummaryRow) -> str:
    if row.remedies and not row.applicable:
        return max(row.remedies, key=lambda remedy: row.remedies[remedy])
    parts = [f"{row.inconclusive} inconclusive"] if row.inconclusive and row.inconclusive < row.applicable else []
    parts += [f"{row.not_applicable} not applicable"] if row.applicable and row.not_applicable else []
    return ", ".join(parts)


def _counted(number: int) -> str:
    return "1 person" if number == 1 else f"{number} people"


def _by(people: People) -> str:
    """`the server 3, another client 2`."""
    ordered = sorted(people.by.items(), key=lambda pair: -pair[1])
    return "by " + ", ".join(f"{who_words(adversary)} {count}" for adversary, count in ordered)


def _successes(states: Counter[str]) -> Sequence[str]:
    return [f"{states[SUCCEEDED]} succeeded"] if states[SUCCEEDED] else []


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
