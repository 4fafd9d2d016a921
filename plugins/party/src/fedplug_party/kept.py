"""Rounds that a client keeps, so that its site can attack its own uploads after the run (`fedplug party --attack`).

    STATE/kept/checkpoint/round-0007/   its state before round 8
    STATE/kept/wire/round-0008.wire     the messages of round 8, as the server sent and received them

One round of each pattern is kept: rounds in which the client sends the same zones through the same operations. So is
the end of the run, with the last model. The folder has the layout of a run folder. The program never continues from it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from fedplug.api.blocks import Layout
from fedplug.api.errors import FedplugError
from fedplug.api.parties import SERVER
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug_runs import patterns
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.files import open_private, private_folder, read_bytes, write_bytes
from fedplug_runs.wire_record import Message, file_of, framed

KEPT = "kept"
"""The folder, in that of the state."""
END = "the end of the run"
"""The pattern of what comes after the last round."""


def pattern_of(recipe: Recipe, composition: Composition, layout: Layout, client_id: int, round: int) -> str | None:
    """What a client sends in a round, in kind; None if it sends nothing of its data.

    Args:
        recipe, composition: this party's copy.
        layout: of the model.
        client_id: the client.
        round: 0-based; the number of rounds means the end of the run.
    """
    if round >= recipe.rounds:
        return END
    if client_id in recipe.resting(round):
        return None
    # What follows from what is published in the round is unknown here: such rounds count as alike.
    return repr(sorted(patterns.pattern_of([facts_of(composition, layout, round)], None, client_id)))


class Kept:
    """Keeps rounds of one client.

    Args:
        folder: of the party's state.
        address: of the client.
        pattern: gives the pattern of a round, from 0; None: the round is not worth keeping.
        said: receives a line if a round cannot be kept. The run goes on.
    """

    def __init__(
        self, folder: Path, address: str, pattern: Callable[[int], str | None], said: Callable[[str], None]
    ) -> None:
        self.folder, self._address, self._said = folder / KEPT, address, said
        self._pattern = functools.cache(pattern)
        self._draft: IO[Any] | None = None
        self._round, self._uploaded = -1, False

    def begin(self, round: int, checkpoint: Path) -> None:
        """The party holds the state of a checkpoint, and a round (0-based) comes next."""
        self._drop()
        with self._trying():
            pattern, kept = self._pattern(round), Checkpoints(self.folder)
            for later in (each for each in kept.rounds() if each > round and self._pattern(each) == END):
                shutil.rmtree(kept.path(later))  # the run goes on, to another end
            if pattern is None or pattern in map(self._pattern, kept.rounds()):
                return
            states = private_folder(self.folder / "checkpoint") / "state.tmp"
            shutil.rmtree(states, ignore_errors=True)
            private_folder(states)
            for file in checkpoint.glob("*.state"):
                try:
                    os.link(file, states / file.name)  # the same bytes: nobody changes a checkpoint
                except OSError:  # some file systems have no links
                    write_bytes(states / file.name, read_bytes(file))
            self._draft = open_private(private_folder(self.folder / "wire") / "messages.tmp", "wb")
            self._round, self._uploaded = round, False

    def add(self, round: int, asked: bytes, reply: bytes) -> None:
        """Adds a message and its answer, if the round is kept."""
        if self._draft is None or round != self._round:
            return
        with self._trying():
            for sender, receiver, data in ((SERVER, self._address, asked), (self._address, SERVER, reply)):
                message = Message(sender, receiver, round, "negotiate", data, len(data), {})
                answered = None if sender == SERVER else message.answered()
                if answered is not None and answered.blocks is not None:
                    message, self._uploaded = Message(sender, receiver, round, "upload", data, len(data), {}), True
                self._draft.write(framed(message))

    def end(self) -> None:
        """The round is over: keeps it if the client sent an upload, or if the run is over."""
        if self._draft is None or not (self._uploaded or self._pattern(self._round) == END):
            self._drop()
            return
        with self._trying():
            self._draft.close()
            wire, kept = self.folder / "wire", Checkpoints(self.folder)
            os.replace(wire / "messages.tmp", wire / file_of(self._round + 1))
            os.replace(kept.folder / "state.tmp", kept.path(self._round))  # last: it makes the round known
            self._draft = None
        self._drop()

    def _drop(self) -> None:
        """Forgets the round that is under way."""
        if self._draft is not None:
            self._draft.close()
        self._draft = None
        with contextlib.suppress(OSError):
            (self.folder / "wire" / "messages.tmp").unlink()
        shutil.rmtree(self.folder / "checkpoint" / "state.tmp", ignore_errors=True)

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        """Inside, a failure costs no more than the kept round."""
        try:
            yield
        except (OSError, FedplugError) as error:
            self._drop()
            self._said(f"warning: this round cannot be kept for an attack on this site's uploads ({error})")
