"""Attacks of a site on its own uploads, after a run whose other parties are elsewhere: the service `attacks_at_home`.

The default set is made on every round that the site kept. An adversary that sees only sums over clients is left out: a
site cannot attack a sum alone, and a failure would mean nothing.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedplug.api.errors import ViewError
from fedplug.recipe.composition import Composition
from fedplug.round.steps import needs_key_server
from fedplug_ledger.verdict_words import named
from fedplug_runs.files import private_process
from fedplug_runs.machine import resolve_device
from fedplug_runs.own_files import with_files
from fedplug_runs.trust import RUNS
from fedplug_runs.units import many

from fedplug_attacks.api.told import tellings
from fedplug_attacks.views.home import AtHome
from fedplug_attacks.views.probe import OneBatch
from fedplug_attacks.workshop.command import execute, with_section
from fedplug_attacks.workshop.default_set import default_sections
from fedplug_attacks.workshop.stage import Stage
from fedplug_attacks.workshop.words import who_words

if TYPE_CHECKING:
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.world import World
    from fedplug_runs.settings import Settings


@dataclasses.dataclass
class Made:
    """What a site attacked.

    Attributes:
        rounds: the attacked rounds, from 1.
        left_out: who or what was not attacked, each with the reason.
    """

    rounds: list[int] = dataclasses.field(default_factory=list)
    left_out: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def attacks_at_home(
    recipe: Recipe, client_id: int, kept: Path, folder: Path, world: World, settings: Settings
) -> Made | None:  # fmt: skip
    """Attacks the uploads of one client; None after an interruption. Finished targets are not attacked again.

    Args:
        recipe: of the run.
        client_id: the client.
        kept: the rounds that its party kept, with the layout of a run folder.
        folder: where to write `attacks/` and `attacks.html`.
        world: of the recipe, with this client's data.
        settings: of this machine.

    Raises:
        CheckpointError, ViewError: what was kept is damaged.
    """
    made, stages = Made(), list[Stage]()
    home = AtHome(recipe, client_id, kept, resolve_device(settings.device), world)
    seen = {round: who for round in home.rounds if (who := _readers(home, round, made))}
    made.rounds = [round + 1 for round in seen]
    if needs_key_server(Composition(recipe)):
        made.left_out.append((who_words("key_server"), f"it sees nothing but {_SUMS}"))
    if not home.ended:
        made.left_out.append((who_words("released"), "the run has not ended at this site, which has no last model"))
    if not seen and not home.ended:
        home.close()
        return made
    catalog = with_files(None, settings.plugins, RUNS)
    asked = {"targets": [client_id], "protected_links": _protected(recipe)}

    def choose(stage: Stage) -> Sequence[Recipe]:
        stages.append(stage)
        scopes = [{**asked, "adversaries": who, "rounds": [round + 1]} for round, who in seen.items()]
        scopes += [{**asked, "adversaries": ["released"]}] if home.ended else []
        sections = [section for scope in scopes for section in default_sections(stage, scope)]
        return [with_section(recipe, folder / "recipe", catalog, section, ()) for section in sections]

    again = shlex.join(["fedplug", *sys.argv[1:]])
    with private_process():
        if execute(choose, recipe, folder, settings, catalog, again, world, home):
            return None
    if left := sum(len(stage.left) for stage in stages):
        total = many(stages[0].total, "target")
        made.left_out.append((f"{left} of {total}", "time was up; the same command attacks them"))
    return made


_SUMS = "sums over clients, and a site cannot attack these alone"


def _readers(home: AtHome, round: int, made: Made) -> list[str]:
    """The adversaries that see something of this client alone in a round (0-based); notes what they do not see."""
    closing, when = home.closing(round), f"round {round + 1}"
    outside = ["eavesdropper", *(["client"] if home.recipe.data.clients > 1 else [])]
    readers = ["server", *outside]
    if _protected(home.recipe):
        readers = ["server"]
        why = "the recipe says that links are protected, so it reads no message of this site"
        made.left_out += [(f"{who_words(who)}, {when}", why) for who in outside]
    opens = {who: ("", "clients") if who == "client" else ("",) for who in readers}
    hidden = {who: [zone for zone, to in closing.items() if to not in opens[who]] for who in readers}
    for who, zones in hidden.items():
        if zones:
            which = f"the {named(zones)} zone{'s' if len(zones) > 1 else ''}"
            why = f"of {which} it sees nothing but ciphertexts and {_SUMS}"
            made.left_out.append((f"{who_words(who)}, {when}", why))
    if all(len(zones) == len(closing) for zones in hidden.values()) and not home.asks(round):
        return []
    try:
        heard = tellings(home.probe(round, OneBatch(1)).messages, weakref.WeakKeyDictionary())
    except ViewError as error:
        made.left_out.append((f"everybody who reads messages, {when}", str(error)))
        return []
    told = any(not each.zone and each.scalars(home.layout) is not None for each in heard)
    return [who for who, zones in hidden.items() if told or len(zones) < len(closing)]


def _protected(recipe: Recipe) -> bool:
    """Whether the recipe says that outsiders cannot read messages."""
    return bool(recipe.to_plain().get("attack", {}).get("protected_links"))
