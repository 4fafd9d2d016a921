"""The default set: the attacks that `fedplug attack RUN` makes where neither the recipe nor the command names any.

A table of questions. Each is asked by every adversary that the run has. The settings are small: the set ends within two
minutes on two cores, and what it had no time for is left to the next call.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.round.checkpoint import Checkpoints

from fedplug_attacks.api.needs import FIRST_WEIGHT, role
from fedplug_attacks.workshop.scorer import are_tokens

if TYPE_CHECKING:
    from fedplug_attacks.workshop.stage import Stage

Attack = Mapping[str, Any]
"""As a recipe writes it."""

LEAK: Attack = {"use": "attacks.linear_leak"}
EXACT: Attack = {"use": "attacks.exact_batch"}
TOKENS: Attack = {"use": "attacks.tokens"}
TEXTS: Attack = {"use": "attacks.dager"}
SEARCH: Attack = {"use": "attacks.inverting", "iterations": 300}
READERS = ("server", "eavesdropper", "client", "key_server")
"""Who reads messages. One that the run does not have is left out."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What an attacker wants to know of a client.

    Attributes:
        asks: the question, for people.
        who: asks it.
        attacks: that answer it; `images` stands for the linear leak where the model begins with a fully connected
            layer over the image or the row of a table, else for a short search; of texts for their tokens.
        clients: how many of them are attacked, the first ones.
        batch: examples of the batch that each is probed for; None: no probe.
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
"""Every question, what takes least time first."""
BUDGET = 110.0
"""Seconds after which no further target is begun: large models leave some for the next call."""


def default_sections(stage: Stage, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The default set for a run: sections `attack`, one for each question that somebody can ask there.

    Of each attack by each adversary one target is drawn, and after `BUDGET` no further one is begun.

    Args:
        stage: the run.
        asked: what the recipe and the command line say of the scope; it replaces what the set says. A probe's size
            changes that of the probes, and makes none where there is none.
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
            section["rounds"] = [max(Checkpoints(stage.run_dir).rounds(), default=0) + 1]
        sections.append(section)
    return sections


def _who(question: Question, stage: Stage, named: list[str] | None) -> list[str]:
    """Those who ask, of the ones that the run has; with names on the command line, these."""
    if named is not None:
        released = "released" in question.who
        return [name for name in named if (name == "released") == released]
    absent = set() if stage.key_server else {"key_server"}
    absent |= {"client"} if stage.ran.data.clients < 2 else set()
    return [name for name in question.who if name not in absent]


def _attack(attack: Attack | str, stage: Stage) -> dict[str, Any]:
    """As a recipe writes it; `images` by what the inputs are and what the model begins with."""
    if isinstance(attack, Mapping):
        return dict(attack)
    data = stage.rewound.client(0).data
    if are_tokens(data.train):
        return dict(TOKENS)
    layout = stage.model.layout
    name = role(layout, FIRST_WEIGHT)
    shapes = {parameter.name: parameter.shape for parameter in layout.parameters}
    inputs = int(np.prod(data.shape))
    return dict(LEAK if name is not None and shapes[name][1] == inputs else SEARCH)
