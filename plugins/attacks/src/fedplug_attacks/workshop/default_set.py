"""The default set: the attacks that `fedplug attack RUN` makes if neither the recipe nor the command names any.

It is a table of questions. Every adversary of the run asks each of them. The settings are small: the set ends within
two minutes on two cores, and the next call makes the remaining attacks.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
            layer over the image or the row of a table, a search for tokens for texts, and else a short search.
        clients: number of attacked clients, from the first.
        batch: examples of the probed batch; None: no probe.
    """

    asks: str
    who: tuple[str, ...]
    attacks: tuple[Attack | str, ...]
    clients: int = 3
    batch: int | None = None


DEFAULT_SET = (
    Question("was this person in the data?", ("released",), ({"use": "attacks.membership"},), clients=10),
    Question("which classes does the client have?", READERS, ({"use": "attacks.negotiation"},), clients=10, batch=8),
    Question("what did a single image look like?", READERS, ("images",), batch=1),
    Question(
        "what did the images of a small batch look like, and which labels did they have?",
        READERS, ("images", {"use": "attacks.ilrg"}), batch=8,
    ),
)  # fmt: skip
"""Every question, fastest first."""
BUDGET = 110.0
"""Seconds after which no further target is started: with large models some are left for the next call."""


def default_sections(stage: Stage, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The default set for a run: sections `attack`, one for each question that an adversary of the run can ask.

    One target of each attack by each adversary is drawn as a picture, and after `BUDGET` no further target is started.

    Args:
        stage: the run.
        asked: the scope from the recipe and the command line; it replaces that of the set. A probe's size changes the
            size of the set's probes, but adds none.
    """
    sections = []
    stage.pictures, stage.deadline = 1, time.monotonic() + BUDGET
    for question in DEFAULT_SET:
        who = _who(question, stage, asked.get("adversaries"))
        if not who:
            continue
        targets = list(range(min(question.clients, stage.ran.data.clients)))
        section: dict[str, Any] = {"targets": targets, **asked, "adversaries": who}
        section["attacks"] = [_attack(attack, stage) for attack in question.attacks]
        if question.batch != 1 and LEAK in section["attacks"]:
            section["attacks"].append(dict(EXACT))
        if TOKENS in section["attacks"]:
            section["attacks"].append(dict(TEXTS))
        section.pop("probe", None)
        if question.batch is not None:
            section["probe"] = {"batch_size": question.batch} | (asked.get("probe") or {})
        else:
            section["rounds"] = [max(stage.rewound.checkpoints.rounds(), default=0) + 1]
        sections.append(section)
    return sections


def _who(question: Question, stage: Stage, named: list[str] | None) -> list[str]:
    """The question's adversaries that the run has; or those named on the command line."""
    if named is not None:
        released = "released" in question.who
        return [name for name in named if (name == "released") == released]
    absent = set() if stage.key_server else {"key_server"}
    absent |= {"client"} if stage.ran.data.clients < 2 else set()
    return [name for name in question.who if name not in absent]


def _attack(attack: Attack | str, stage: Stage) -> dict[str, Any]:
    """In the form of a recipe; `images` is resolved by the inputs and the model's first layer."""
    if isinstance(attack, Mapping):
        return dict(attack)
    data = stage.rewound.somebody().data
    if are_tokens(data.train):
        return dict(TOKENS)
    return dict(LEAK if takes_inputs(stage.model.layout, data.shape) else SEARCH)
