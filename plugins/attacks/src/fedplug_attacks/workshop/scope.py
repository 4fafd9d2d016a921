"""The section `attack` of a recipe: the attacks, and their adversaries, targets, rounds and batches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from fedplug.api.component import Options
from fedplug.api.roles import Opener
from fedplug.recipe.sections import Around, Section
from pydantic import Field, field_validator

from fedplug_attacks.views.adversaries import MALICIOUS, plants
from fedplug_attacks.workshop.attributes import Asked

if TYPE_CHECKING:
    from fedplug.recipe.parts import Use
    from fedplug.recipe.source import KeyPath

ROLES = ("server", "eavesdropper", "client", "key_server", "released", MALICIOUS)
_ROLE = re.compile(rf"{MALICIOUS}|server|eavesdropper|client(:\d+)?|key_server|released")


class Probe(Options):
    """A probe of a finished run: the clients' uploads for a single batch.

    The parties are restored from the checkpoint before the round and train one step on one batch instead of their data.
    They score, negotiate and protect it through the same hooks; scorers use all of a client's data, as usual. Nobody
    adopts a result, and the run does not change. These messages were never sent, so the ledger does not charge them.
    """

    batch_size: int = Field(ge=1, le=100_000, description="examples in the batch; a client with fewer takes all it has")
    batches: int = Field(1, ge=1, le=1000, description="number of batches for each target, one after another")
    classes: int | None = Field(
        None, ge=1, description="draw the batch from this many classes only, at random (skewed data); null: from all"
    )
    rounds: int = Field(
        1, ge=1, le=100_000,
        description="number of rounds up to the attacked one with the same batch, like a client whose few data are all "
        "in one step; 1: earlier rounds show other examples. It needs a checkpoint of each round, which --record-wire "
        "keeps",
    )  # fmt: skip


class AttackScope(Options):
    """Adversaries, targets and rounds of a recipe's attacks."""

    adversaries: list[str] = Field(
        ["server"],
        min_length=1,
        description="each is server, eavesdropper, client, key_server, released, or several that collude: "
        "server+client; malicious_server plants a model in a probe; client:2 names a client, client is one that is not "
        "the target; several clients may collude: server+client:1+client:2",
    )
    targets: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, min_length=1, description="attacked clients; null: every client that took part"
    )
    rounds: list[Annotated[int, Field(ge=1)]] | None = Field(
        None,
        min_length=1,
        description="rounds whose updates are attacked, from 1; for a probe, or released, one more than the last means "
        "the final model; null: the first (for probes the first that has a checkpoint), for released models the final "
        "one",
    )
    probe: Probe | None = Field(None, description="attack single batches instead of the updates of the run itself")
    compare_forms: bool = Field(
        True, description="run attacks in both forms, adaptive and naive (zero-filled), if entries are hidden"
    )
    protected_links: bool = Field(
        False,
        description="true: links are encrypted in transit (TLS), so an eavesdropper sees lengths only, and a client "
        "its own messages only; false: anyone who listens sees every message",
    )
    candidates: int = Field(
        400, ge=2, le=100_000, description="examples of a membership challenge, half of them the target's own"
    )

    truth: Asked | None = Field(
        None, description="an attribute of the targets' examples for attacks.property; null: none"
    )

    @property
    def batches(self) -> int:
        """The number of batches to attack in a round; 1 without a probe."""
        return self.probe.batches if self.probe else 1

    @property
    def repeats(self) -> int:
        """The number of rounds that use the same batch; 1 without a probe."""
        return self.probe.rounds if self.probe else 1

    @field_validator("targets", "rounds")
    @classmethod
    def _once(cls, numbers: list[int] | None) -> list[int] | None:
        if numbers and (twice := [number for number in numbers if numbers.count(number) > 1]):
            raise ValueError(f"{twice[0]} is named twice")
        return numbers

    @field_validator("adversaries")
    @classmethod
    def _known(cls, adversaries: list[str]) -> list[str]:
        for adversary in adversaries:
            roles = adversary.split("+")
            if wrong := [role for role in roles if not _ROLE.fullmatch(role)]:
                raise ValueError(f"there is no adversary {wrong[0]!r}; there is {', '.join(ROLES)}, joined by +")
            if MALICIOUS in roles and "server" in roles:
                raise ValueError(f"{adversary}: there is one server, and it is malicious or not; name one of the two")
            if "released" in roles and len(roles) > 1:
                raise ValueError(f"{adversary}: released cannot collude; it sees the published models only")
            kinds = [role.partition(":")[0] for role in roles]
            if twice := next((role for role in roles if roles.count(role) > 1), None):
                raise ValueError(f"{adversary} names {twice} twice; name other clients by number, client:1+client:2")
            if twice := next((kind for kind in kinds if kind != "client" and kinds.count(kind) > 1), None):
                raise ValueError(f"{adversary} names {twice} twice; there is one of them")
        if len({frozenset(adversary.split("+")) for adversary in adversaries}) < len(adversaries):
            raise ValueError("an adversary is named twice")
        return adversaries


def scope_problems(scope: AttackScope, rounds: int, clients: int) -> list[str]:
    """The conflicts of a scope with its recipe, as sentences; empty if there are none."""
    found = []
    if scope.probe is None and any(plants(adversary) for adversary in scope.adversaries):
        found.append(
            f"adversary {MALICIOUS}: it plants a model in a probe, but there is none: write probe: {{batch_size: 8}}, "
            "or --probe 8; updates of the run itself were made from honest models"
        )
    there_are = f"there are {clients}: 0 to {clients - 1}"
    for target in scope.targets or ():
        if target >= clients:
            found.append(f"targets names client {target}, but {there_are}")
    for adversary in scope.adversaries:
        for role in adversary.split("+"):
            number = role.partition(":")[2]
            if number and int(number) >= clients:
                found.append(f"adversary {adversary}: there is no client {number}; {there_are}")
            if scope.targets == [int(number or -1)]:
                found.append(f"adversary {adversary} is the only target itself; name another client of either")
    extra = scope.probe is not None or set(scope.adversaries) == {"released"}
    for round in scope.rounds or ():
        if round > rounds + extra:
            final = f", and {rounds + 1} means the final model" if extra else ""
            found.append(f"rounds names round {round}, but the recipe has {rounds}{final}")
    if clients < 2 and any("client" in adversary.split("+") for adversary in scope.adversaries):
        found.append("adversary client: with one client there is no other one to attack it")
    return found


class AskedAttacks(Section):
    """Attacks on what crossed the wire, after the last round: who makes them is `workshop.section.AttackSection`."""

    Options = AttackScope
    lists: ClassVar = {"attacks": "attack", "metrics": "metric"}
    example = "[{use: attacks.ilrg}]"

    keeps_messages = True

    @property
    def scope(self) -> AttackScope:
        """Who attacks whom."""
        scope: AttackScope = self.options
        return scope

    @property
    def attacks(self) -> tuple[Use, ...]:
        """The attacks to make."""
        return self.uses["attacks"]

    @property
    def metrics(self) -> tuple[Use, ...]:
        """The metrics to compute; none means all usual ones."""
        return self.uses["metrics"]

    def check(self, around: Around) -> Iterator[tuple[KeyPath, str]]:
        """Adversaries, targets and rounds exist."""
        recipe = around.recipe
        if recipe is None:
            return
        opened_by = [around.parts.get(use.name) for chain in recipe.postprocess.values() for use in chain]
        there = any(isinstance(part, Opener) and part.site == "key_server" for part in opened_by)
        for adversary in self.scope.adversaries:
            if "key_server" in adversary.split("+") and not there:
                yield (), f"adversary {adversary}: this protocol has no key server"
        for message in scope_problems(self.scope, recipe.rounds, recipe.data.clients):
            yield (), message

    def describe(self) -> str:
        """Who attacks whom."""
        scope = self.scope
        probe = f", probed with batches of {scope.probe.batch_size}" if scope.probe else ""
        targets = "every client" if scope.targets is None else f"clients {', '.join(map(str, scope.targets))}"
        return f"by {', '.join(scope.adversaries)} on {targets}{probe}"
