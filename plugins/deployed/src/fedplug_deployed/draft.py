"""A recipe that is made of another framework's job, with a line for each thing that is not in it as it was."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedplug
from fedplug.api.blocks import CLEAR, ENCRYPTED, NOISED
from fedplug.api.errors import RecipeError, SetupError
from fedplug_runs.files import write_bytes

NOISY = frozenset({"deployed.svt_privacy", "deployed.local_dp_mod", "deployed.fixed_clipping"})
ADAPTIVE = "deployed.adaptive_clipping"
_NAME = re.compile(r"(?!(?i:true|false|null|yes|no|on|off|y|n)$)[A-Za-z_][\w./-]*(:\w+)?")
"""Text that YAML reads as text without quotes."""
STAND_IN: dict[str, Any] = {"use": "std.mlp", "hidden": [64]}
"""The model while that of the job is not known, or must not run."""


@dataclasses.dataclass
class Draft:
    """What is known of a job so far.

    Attributes:
        name: of the recipe.
        source: the job, for the recipe's first line.
        rounds, clients: as the job says; None if it does not.
        links: of every update, in order; a name alone where the negotiation has the options.
        plan: the negotiation, of a single zone if None.
        seal: what closes the zone that is sent, or the encrypted one of the plan.
        openers: on the sum, at the server.
        weighting: of clients in the mean.
        sampling: section of the recipe.
        train: options of the trainer.
        model: candidates for the model in files of the job, each a use; the first that fits is taken.
        notes: a line for each thing that is not in the recipe as it was in the job.
    """

    name: str
    source: str
    rounds: int | None = None
    clients: int | None = None
    links: list[dict[str, Any] | str] = dataclasses.field(default_factory=list)
    plan: dict[str, Any] | None = None
    seal: dict[str, Any] | None = None
    openers: list[str] = dataclasses.field(default_factory=list)
    weighting: str = "examples"
    sampling: dict[str, Any] | None = None
    train: dict[str, Any] = dataclasses.field(default_factory=dict)
    model: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def note(self, text: str) -> None:
        """Adds a line, once. Text of the job may break no line: in YAML what follows would be part of the recipe."""
        line = "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
        if line not in self.notes:
            self.notes.append(line)

    def note_condition(self, where: str, what: str, condition: str | None) -> None:
        """Says on what a part of the job depends that is in the recipe in any case."""
        if condition:
            self.note(f"{where}: {what} is in the recipe, and in the job only if {condition}")

    @property
    def zone(self) -> str:
        """The zone of what is sent, or of what is sent in the clear where a part is encrypted."""
        if self.plan is not None and self.plan["use"] == ADAPTIVE:
            return NOISED
        if self.seal is not None and self.plan is None:
            return ENCRYPTED
        return NOISED if any(isinstance(link, dict) and link["use"] in NOISY for link in self.links) else CLEAR

    def recipe(self, dataset: str, model: dict[str, Any]) -> dict[str, Any]:
        """The recipe as plain data, with this data set and this model."""
        zone, sent = self.zone, self.links + ([self.seal] if self.seal else [])
        protect: dict[str, Any] = {zone: self.links}
        if self.plan is None:
            plan: dict[str, Any] = {"use": "std.single_zone", "zone": zone}
            protect = {zone: sent}
        elif self.plan["use"] == "deployed.encrypt_layers":
            plan = {**self.plan, **({} if zone == CLEAR else {"other_zone": zone})}
            protect = {ENCRYPTED: sent, zone: self.links}
        elif self.plan["use"] == ADAPTIVE:
            plan = self.plan
        else:
            plan = {**self.plan, **({} if zone == CLEAR else {"other_zone": zone})}
        opened = ENCRYPTED if self.plan else zone
        postprocess = {opened: [self.seal["use"]]} if self.seal else {}
        if self.openers:
            postprocess[zone] = [*postprocess.get(zone, []), *self.openers]
        made: dict[str, Any] = {
            "name": self.name, "seed": 7, "rounds": self.rounds or 5,
            "data": {"use": dataset, "clients": self.clients or 4, "partition": "std.iid"}, "model": model,
            "train": {"use": "std.sgd", "epochs": 1, "batch_size": 32, "lr": 0.05, **self.train},
            "negotiate_mask": plan, "protect": protect, "aggregate": {"use": "std.mean", "weighting": self.weighting},
        }  # fmt: skip
        if self.seal and self.seal["use"] == "secagg.plus":
            made["min_clients"] = 3  # of a sum of two a client subtracts its own update, and has the other
        if self.sampling:
            made["sampling"] = self.sampling
        if postprocess:
            made["postprocess"] = postprocess
        return made

    def text(self, dataset: str, model: dict[str, Any]) -> str:
        """The recipe as YAML, with its notes as comments."""
        lines = [f"# Made of {self.source}."]
        if self.notes:
            lines.append("# What is not as it was there, and what to know:")
        for note in self.notes:
            lines += textwrap.wrap(note, 117, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False)
        lines += [f"{key}: {_flow(value)}" for key, value in self.recipe(dataset, model).items()]
        return "\n".join([*lines, ""])


def written(draft: Draft, path: Path, dataset: str, trusted: bool) -> list[str]:
    """Writes the recipe to a file and checks it; gives the lines of what is not in it as it was.

    Args:
        draft: what is known of the job.
        path: of the recipe.
        dataset: the data set that stands in for the job's.
        trusted: whether the user has said that the job's code may run, to try its model.

    Raises:
        SetupError: there is such a file already, or no such folder, or the recipe is wrong.
    """
    if path.exists():
        raise SetupError(f"{path} exists, and is not written over; name another file with --to")
    if not path.parent.is_dir():
        raise SetupError(f"there is no folder {path.parent} for {path.name}; make it, or name another file with --to")
    if draft.rounds is None:
        draft.note("rounds: the job does not say how many; the recipe has 5")
    if draft.clients is None:
        draft.clients = max(4, math.ceil(3 / draft.sampling["rate"])) if draft.sampling else 4
        draft.note(f"data.clients: the job does not say how many take part; the recipe has {draft.clients}")
    draft.note(f"data: the job's code loads the data, and was not run; {dataset} stands in: write yours in data")
    model = STAND_IN
    for use in draft.model if trusted else ():
        problems = _problems(draft, path, dataset, use, trusted)
        if not problems:
            model = use
            break
        draft.note(f"model: {use['use']} was tried, and std.mlp stands in for it: {problems[0]}")
    if draft.model and not trusted:
        named = ", ".join(use["use"] for use in draft.model)
        draft.note(f"model: {named} is code of the job, which was not run; std.mlp stands in: --trust tries it")
    elif not draft.model:
        draft.note("model: no class of a torch module was found in the job; std.mlp stands in")
    if problems := _problems(draft, path, dataset, model, trusted):
        raise SetupError("the job gives no recipe that is right: " + "; ".join(problems))
    write_bytes(path, draft.text(dataset, model).encode())
    return draft.notes


def _problems(draft: Draft, path: Path, dataset: str, model: dict[str, Any], trusted: bool) -> list[str]:
    """What is wrong with the recipe with this model, in a file of the folder that is taken away again."""
    trial = path.with_name(f".{path.stem}.trial.yaml")
    try:
        write_bytes(trial, draft.text(dataset, model).encode())
        fedplug.check(trial, trust=trusted)
    except RecipeError as error:
        return [problem.removeprefix(str(trial)).lstrip(":") for problem in error.problems]
    except SetupError as error:
        return [str(error)]
    finally:
        trial.unlink(missing_ok=True)
    return []


_LONG_KEY = 1000


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, dict):
        keys = {_flow(str(key)): each for key, each in value.items()}
        # YAML takes a long text for a key only where that is said.
        parts = (f"{'? ' if len(key) > _LONG_KEY else ''}{key}: {_flow(each)}" for key, each in keys.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _NAME.fullmatch(value):
        return value
    escaped = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
    return f'"{"".join(escaped)}"'


def named(path: Path, base: Path) -> str:
    """A file of the job as a recipe in the folder `base` names it."""
    return Path(os.path.relpath(path, base)).as_posix()


def plain(name: str, other: str) -> str:
    """The name of a job as that of a recipe; `other` if nothing is left of it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or other


def options(words: Sequence[str]) -> dict[str, Any]:
    """The options of a command line by their names in Python, numbers where they are: `--batch_size=16 --lr 0.05`."""
    found: dict[str, Any] = {}
    for word, value in itertools.pairwise([*words, ""]):
        option, equals, given = word.partition("=")
        if option.startswith("--"):
            text = given if equals else value
            try:
                found[option[2:].replace("-", "_")] = float(text)
            except ValueError:
                found[option[2:].replace("-", "_")] = text
    return found


def numbers(words: Sequence[str]) -> dict[str, Any]:
    """Options of the trainer among the arguments of a script: `--epochs 2 --batch_size 16 --lr 0.05`."""
    found: dict[str, Any] = {}
    for option, value in options(words).items():
        trained(found, option, value)
    return found


_TRAINED: dict[str, tuple[str, type]] = {
    **dict.fromkeys(("epochs", "local-epochs", "num-epochs", "local-ep"), ("epochs", int)),
    **dict.fromkeys(("batch-size", "train-batch-size"), ("batch_size", int)),
    **dict.fromkeys(("lr", "learning-rate"), ("lr", float)),
}


def trained(found: dict[str, Any], name: str, value: Any) -> bool:
    """Takes over a number of the training under one of its usual names; whether it is one."""
    option, kind = _TRAINED.get(name.replace("_", "-").lower(), ("", int))
    try:
        if option and 0 < float(value) < math.inf:
            found[option] = kind(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
    return bool(option)
