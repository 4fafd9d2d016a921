"""The default set: the attacks that `fedplug attack RUN` makes if neither the recipe nor the command names any.

It is a table of questions. Every adversary of the run asks each of them, about a round of each kind that the run sent
(`fedplug_runs.patterns`) and can be rewound to. Cheap attacks come first, and a further attack on images is made where
those before it have not recovered all of them. The set ends after two minutes unless the command allows more; the next
call makes the remaining attacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedplug_runs.patterns import Pattern

from fedplug_attacks.api.needs import takes_inputs
from fedplug_attacks.workshop.scorer import are_tokens

if TYPE_CHECKING:
    from fedplug_attacks.workshop.stage import Stage

Attack = Mapping[str, Any]
"""In the form of a recipe."""

LEAK: Attack = {"use": "attacks.linear_leak"}
EXACT: Attack = {"use": "attacks.exact_batch"}
TOKENS: Attack = {"use": "attacks.tokens"}
TEXTS: Attack = {"use": "attacks.dager"}
SEARCH: Attack = {"use": "attacks.inverting", "iterations": 300}
READERS = ("server", "eavesdropper", "client", "key_server")
"""Adversaries that read messages. Those that the run does not have are left out."""


@dataclasses.dataclass(frozen=True)
class Question:
    """An attacker's question about a client.

    Attributes:
        asks: the question in words.
        who: the adversaries that ask it.
        attacks: the attacks that answer it. `images` means the linear leak if the model begins with a fully connected
            layer over the image or the row of a table, and a search for tokens for texts. `search` means exact batches
            for such a layer and matching of gradients, or whole texts.
        clients: number of attacked clients, from the first; and one of each group that sends something else.
        batch: examples of the probed batch; None: no probe.
    """

    asks: str
    who: tuple[str, ...]
    attacks: tuple[Attack | str, ...]
    clients: int = 3
    batch: int | None = None


_BATCH = "what did the images of a small batch look like, and which labels did they have?"
DEFAULT_SET = (
    Question("was this person in the data?", ("released",), ({"use": "attacks.membership"},), clients=10),
    Question("which classes does the client have?", READERS, ({"use": "attacks.negotiation"},), clients=10, batch=8),
    Question("what did a single image look like?", READERS, ("images", "search"), batch=1),
    Question(_BATCH, READERS, ("images", {"use": "attacks.ilrg"}, {"use": "attacks.labels"}), batch=8),
    Question(_BATCH, READERS, ("search",), batch=8),
)  # fmt: skip
"""Every question, fastest first."""
MINUTES = 2.0
"""Time for the set. The last ten seconds of it are for the report."""
KINDS, OTHERS = 4, 8
"""Largest number of kinds of rounds that are probed, and of clients that are attacked because they send something
else."""


def default_sections(
    stage: Stage, asked: Mapping[str, Any], quick: bool = False, minutes: float | None = None
) -> list[dict[str, Any]]:
    """The default set for a run: sections `attack`, one for each question that an adversary of the run can ask.

    Args:
        stage: the run.
        asked: the scope from the recipe and the command line; it replaces that of the set. A probe's size changes the
            size of the set's probes, but adds none.
        quick: whether to leave out searches.
        minutes: after which no further target is started; None: `MINUTES`.
    """
    sections = []
    stage.timer.allow(MINUTES if minutes is None else minutes)
    stage.ladder = tuple(attack["use"] for attack in (LEAK, EXACT, SEARCH))
    rounds = asked.get("rounds") or rounds_of_each_kind(stage)
    others = {client for round in rounds for client in stage.rewound.unlike(round - 1)}
    for question in DEFAULT_SET:
        who = _who(question, stage, asked.get("adversaries"))
        attacks = [each for attack in question.attacks for each in _attacks(attack, question, stage, quick)]
        if not who or not attacks:
            continue
        count = min(question.clients, stage.ran.data.clients)
        section: dict[str, Any] = {"targets": list(range(count)), **asked, "adversaries": who, "attacks": attacks}
        section.pop("probe", None)
        if question.batch is not None:
            section["probe"] = {"batch_size": question.batch} | (asked.get("probe") or {})
            if "targets" not in asked:
                section["targets"] += sorted(others - {*range(count)})[:OTHERS]
            if rounds:
                section["rounds"] = rounds
        else:
            section["rounds"] = [max(stage.rewound.checkpoints.rounds(), default=0) + 1]
        sections.append(section)
    return sections


def rounds_of_each_kind(stage: Stage) -> list[int]:
    """The first round (from 1) of each kind that the run sent and has a checkpoint of, the least protected first.

    Empty if it has none: the attacks then say so.
    """
    kept, first = stage.rewound.checkpoints.rounds(), dict[Pattern, int]()
    for round, pattern in sorted(stage.rewound.sent.items()):
        if round in kept:
            first.setdefault(pattern, round + 1)
    return [first[pattern] for pattern in sorted(first, key=_protected)[:KINDS]]


def _protected(pattern: Pattern) -> tuple[int, int]:
    """Number of zones that are not in the clear, and minus the number of those that are."""
    clear = sum(not closed and not noise for _, _, closed, noise in pattern)
    return len(pattern) - clear, -clear


def _who(question: Question, stage: Stage, named: list[str] | None) -> list[str]:
    """The question's adversaries that the run has; or those named on the command line."""
    if named is not None:
        released = "released" in question.who
        return [name for name in named if (name == "released") == released]
    absent = set() if stage.key_server else {"key_server"}
    absent |= {"client"} if stage.ran.data.clients < 2 else set()
    return [name for name in question.who if name not in absent]


def _attacks(attack: Attack | str, question: Question, stage: Stage, quick: bool) -> list[dict[str, Any]]:
    """In the form of a recipe; `images` and `search` are resolved by the inputs and the model's first layer."""
    if isinstance(attack, Mapping):
        return [dict(attack)]
    data = stage.rewound.somebody().data
    if are_tokens(data.train):
        return [dict(TOKENS)] if attack == "images" else [] if quick else [dict(TEXTS)]
    closed = takes_inputs(stage.model.layout, data.shape)
    if attack == "images":
        return [dict(LEAK)] if closed else []
    return [] if quick else [*([dict(EXACT)] if closed and question.batch != 1 else []), dict(SEARCH)]
