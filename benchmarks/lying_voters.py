"""What clients that lie about their scores do to the masks of the others, in the five papers' protocols.

    python benchmarks/lying_voters.py

Each recipe runs for one round, in which none, 10%, 30% and 50% of the clients say that what matters most matters least,
or that all matters alike (`robust.scores`). Prints, as a share of what an honest client encrypts where nobody lies,
what it leaves out of the encrypted zone then, and what it puts in; and how many honest clients share a model with
others than before. FAS has no scores to lie about. FedRE encrypts nothing: its noised zone is counted.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.blocks import ENCRYPTED, NOISED
from fedplug.api.events import Events, Watcher
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_robust.poison import PoisonSection
from fedplug_runs.overlay import load_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
PROTOCOLS = {
    "ParaAegis": "paraaegis-dynamic.yaml", "SelectiveShield": "selectiveshield.yaml", "FedRE": "fedre-digits.yaml",
    "SenseCrypt": "sensecrypt.yaml",
}  # fmt: skip
SAID = {"reversed": "the opposite", "equal": "all alike"}
SHARES = ("10%", "30%", "50%")


def after_one_round(recipe: Recipe) -> tuple[dict[int, Any], dict[int, frozenset[int]]]:
    """By client, the positions of the zone that protects most, and who shares a model with it."""
    composition, world = Composition(recipe), World(recipe, Composition(recipe), None)
    model = world.model("cpu")
    engine = LocalEngine(Job(recipe.to_plain(), key_server=needs_key_server(composition), world=world,
                             layout=model.layout, catalog=Catalog.discover()))  # fmt: skip
    protocol = Protocol(recipe, composition, engine, model.layout, Watcher(), Events(), model, world.public)
    protocol.setup()
    protocol.round(0)
    zone = ENCRYPTED if ENCRYPTED in recipe.protect else NOISED
    clients = engine.clients.clients.values()
    plans = {client.client_id: {*client.plan.positions(zone).tolist()} for client in clients if client.plan}
    groups = protocol.server.groups or {"all": [*plans]}
    together = {client_id: frozenset(ids) for ids in groups.values() for client_id in ids}
    return plans, together


def found(file: str, say: str, share: str) -> str:
    """What so many liars do to what honest clients encrypt: less, more, and who shares a model with others."""
    plain = load_recipe(RECIPES / file).to_plain() | {"rounds": 1}
    poison = {"clients": share, "use": "robust.scores", "say": say}
    lying = Recipe.from_plain(plain | {"poison": poison})
    section = PoisonSection.of(lying)
    assert section is not None
    liars = {*section.liars(lying.seed, lying.clients)}
    (honest, together), (moved, apart) = (after_one_round(each) for each in (Recipe.from_plain(plain), lying))
    others = [client_id for client_id in honest if client_id not in liars]
    less, more = (
        np.mean([len(one[c] - other[c]) / max(1, len(honest[c])) for c in others])
        for one, other in ((honest, moved), (moved, honest))
    )
    regrouped = sum((together[c] - liars) != (apart[c] - liars) for c in others)
    apart_from = f", {regrouped} of {len(others)} clients in other groups" if regrouped else ""
    return f"{less:.1%} out, {more:.1%} in{apart_from}"


def main() -> None:
    """Prints the table, as docs/numbers/lying-voters.csv has it."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["protocol", "liars say", *(f"{share} lie" for share in SHARES)])
    for name, file in PROTOCOLS.items():
        for say, words in SAID.items():
            writer.writerow([name, words, *(found(file, say, share) for share in SHARES)])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
