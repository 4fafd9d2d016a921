"""What all attacks on a finished run share: its parties taken back, the attacker's model, the scorer's truth."""

from __future__ import annotations

import math
import time
from pathlib import Path

from fedplug.api.errors import DataError, ViewError
from fedplug.api.operations import Seal
from fedplug.api.parties import Server
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import make_context
from fedplug.round.world import World

from fedplug_attacks.views.observer import Observer
from fedplug_attacks.views.rewind import Rewound
from fedplug_attacks.views.rounds import Shelf
from fedplug_attacks.workshop.display import AttackDisplay


class Stage:
    """A finished run, ready to be attacked, as often as one likes. Close it at the end.

    Args:
        ran: the recipe as it ran, whose digest the parties know.
        run_dir: the run folder.
        data_root: folder of data sets, or None.
        device: torch device name.
        key_server: whether the protocol has one.
        catalog: the available components; the installed ones if None.
        watch: told of progress.
        world: of the run, where this process has it already.

    Raises:
        ViewError: the data of the clients, which the scorer needs, are not here.

    Attributes:
        model: of the attacker's own; `initial` and `buffers` are its weights and statistics before round 1.
        rewound: the parties.
        repeats: whether training a client once more gives its update of the run; not so where noise is drawn once.
        observer: reads messages as an adversary would.
        shelf: keeps what is observed of many rounds.
        shared_key: whether all clients hold the secret key of an encryption.
        shares: of how many clients the shares open an upload; None where no encryption is opened by shares.
        done, total: targets so far, and in all.
        pictures: how many targets of each attack by each adversary in each round are drawn; drawing takes longer than
            most attacks do.
        deadline: of `time.monotonic`, after which no further target is begun; `left` counts those.
    """

    def __init__(
        self,
        ran: Recipe,
        run_dir: Path,
        data_root: str | None,
        device: str,
        key_server: bool,
        catalog: Catalog | None,
        watch: AttackDisplay,
        world: World | None = None,
    ) -> None:
        self.data_root = data_root
        self.ran, self.run_dir, self.device, self.watch, self.key_server = ran, run_dir, device, watch, key_server
        self.catalog = catalog or Catalog.discover()
        composition = Composition(ran)
        # The attacker has a model of its own, and no data but what is public; the scorer stands outside every party.
        self.world = world = World(ran, composition, data_root) if world is None else world
        self.model = world.model(device)
        self.initial, self.buffers = self.model.get_vector(), self.model.get_buffers()
        try:
            self.rewound = Rewound(ran, catalog, run_dir, data_root, device, key_server, self.model, world)
        except DataError as error:
            if ran.data.at == "here":
                raise
            raise ViewError(
                "attacks are judged by the data of the clients, which with data at sites only the sites have; attack a "
                f"trial on one machine, whose --data holds a folder for each client. {error}"
            ) from error
        ctx = make_context(ran, composition, self.model.layout, 0, Server(), self.rewound.public)
        learns = composition.trainer.learns(ctx)
        self.repeats = learns is None or learns.repeats
        self.observer = Observer(ran, composition, self.model.layout, self.initial, self.rewound.public, self.model)
        seals = [
            operation
            for zone in composition.links
            for step in ctx.steps(zone)
            for operation in step.operations
            if isinstance(operation, Seal)
        ]
        self.shared_key = any(seal.opened_by == "clients" for seal in seals)
        self.shares = min((seal.opens_with for seal in seals if seal.opened_by == "shares"), default=None)
        self.shelf = Shelf()
        self.done = self.total = 0
        self.pictures = self.deadline = math.inf
        self.left = 0

    @property
    def late(self) -> bool:
        """Whether no further target is to be begun."""
        return time.monotonic() > self.deadline

    def close(self) -> None:
        """Forgets the parties."""
        self.shelf.__exit__()
        self.rewound.__exit__()
