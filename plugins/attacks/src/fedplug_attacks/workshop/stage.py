"""Shared state of all attacks on a finished run: its restored parties, the attacker's model, the scorer's truth."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from fedplug.api.errors import DataError, ViewError
from fedplug.api.operations import Seal
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_runs.checkpoint import ELSEWHERE

from fedplug_attacks.views.home import AtHome
from fedplug_attacks.views.observer import Observer
from fedplug_attacks.views.rewind import Restored, Rewound
from fedplug_attacks.views.rounds import Shelf
from fedplug_attacks.workshop.display import AttackDisplay

AT_SITES = "let each site attack its own uploads (fedplug party RECIPE --client N --data DIR --state DIR --attack)"
"""The remedy where parties and data are elsewhere."""


class OutOfTime(BaseException):
    """Stops an attack from inside; not an `Exception`, since attacks of plugins may catch these."""


class Timer:
    """The time that a command allows, and the progress of attacks. Attacks have it in hand, so it leads nowhere else.

    Args:
        told: receives progress: steps done, steps in all, and the loss.

    Attributes:
        minutes: time that the command allows; None: no limit.
        deadline: time of `time.monotonic` after which no further target is started.
    """

    def __init__(self, told: Callable[[int, int, float | None], None]) -> None:
        self._told = told
        self.minutes: float | None = None
        self.deadline = math.inf

    def allow(self, minutes: float) -> None:
        """Starts the clock; the last seconds are for the report."""
        self.minutes = minutes
        self.deadline = time.monotonic() + 60 * minutes - min(10, 30 * minutes)

    @property
    def late(self) -> bool:
        """Whether no further target may start."""
        return time.monotonic() > self.deadline

    def progress(self, done: int, total: int, loss: float | None) -> None:
        """Passes on the progress of an attack, and stops one that takes far longer than the time there is.

        Raises:
            OutOfTime: the time was up a quarter of it ago.
        """
        self._told(done, total, loss)
        if self.minutes is not None and time.monotonic() > self.deadline + max(10.0, 15 * self.minutes):
            raise OutOfTime


class Stage:
    """A finished run, ready for any number of attacks. Close it at the end.

    Args:
        ran: the recipe of the run, whose digest the parties know.
        run_dir: the run folder.
        data_root: folder of data sets, or None.
        device: torch device name.
        catalog: the available components; the installed ones if None.
        watch: receives progress.
        world: the world of the run, if this process has it already.
        home: the one client of a site, if no other party is here.

    Raises:
        ViewError: the clients' data, which the scorer needs, are not on this machine.

    Attributes:
        model: the attacker's own model; `initial` and `buffers` are its weights and statistics before round 1.
        rewound: the parties.
        key_server: whether the protocol has one.
        repeats: whether training a client again reproduces its update of the run; False if noise is drawn once.
        observer: reads messages as an adversary would.
        shelf: keeps the observations of many rounds.
        shared_key: whether all clients hold the secret key of an encryption.
        shares: number of clients whose shares open an upload; None if no encryption is opened by shares.
        done, total: targets so far, and in all.
        timer: the time that the command allows; `left` has the key of each target that there is no time for, and what
            it is.
        ladder: attacks on images in the order in which the default set tries them, each only where those before it
            have not recovered everything; empty for attacks that somebody named, which are all made.
    """

    def __init__(
        self,
        ran: Recipe,
        run_dir: Path,
        data_root: str | None,
        device: str,
        catalog: Catalog | None,
        watch: AttackDisplay,
        world: World | None = None,
        home: AtHome | None = None,
    ) -> None:
        self.ran, self.run_dir, self.data_root, self.device, self.watch = ran, run_dir, data_root, device, watch
        self.catalog, composition = catalog or Catalog.discover(), Composition(ran)
        self.key_server = needs_key_server(composition)
        # The attacker has its own model, and only public data; the scorer is outside every party.
        self.world = world = World(ran, composition, data_root) if world is None else world
        self.model = world.model(device)
        self.initial, self.buffers = self.model.get_vector(), self.model.get_buffers()
        if home is None and any((run_dir / "checkpoint").glob(f"*/{ELSEWHERE}")):
            raise ViewError(
                f"the parties of {run_dir} keep their own states and data, so nobody can attack it here; {AT_SITES}"
            )
        self.rewound: Restored
        try:
            self.rewound = home or Rewound(
                ran, catalog, run_dir, data_root, device, self.key_server, self.model, world
            )  # fmt: skip
        except DataError as error:
            if ran.data.at == "here":
                raise
            raise ViewError(
                f"scoring attacks needs the data of the clients, which only the sites have; {AT_SITES}, or attack a "
                f"trial on one machine, whose --data holds a folder for each client. {error}"
            ) from error
        facts = facts_of(composition, self.model.layout, 0, self.rewound.public)
        learns = composition.trainer.learns(facts)
        self.repeats = learns is None or learns.repeats
        self.observer = Observer(
            ran, composition, self.model.layout, self.initial, self.rewound.public, self.model, self.rewound.begun
        )  # fmt: skip
        steps = [step for zone in composition.links for step in facts.steps(zone)]
        seals = [operation for step in steps for operation in step.operations if isinstance(operation, Seal)]
        self.shared_key = any(seal.opened_by == "clients" for seal in seals)
        self.shares = min((seal.opens_with for seal in seals if seal.opened_by == "shares"), default=None)
        self.shelf = Shelf()
        self.done = self.total = 0
        self.timer = Timer(watch.progress)
        self.left: dict[str, str] = {}
        self.ladder: tuple[str, ...] = ()

    def close(self) -> None:
        """Forgets the parties."""
        self.shelf.close()
        self.rewound.close()
