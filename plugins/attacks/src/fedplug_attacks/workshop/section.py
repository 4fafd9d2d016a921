"""The section `attack` of a recipe."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fedplug.api.errors import FedplugError

from fedplug_attacks.workshop.scope import AskedAttacks

if TYPE_CHECKING:
    from fedplug import Run


class AttackSection(AskedAttacks):
    """Attacks on what crossed the wire, after the last round.

    A plain list is its `attacks`, with the default scope.
    """

    def after_run(self, run: Run) -> int:
        """Makes the attacks; the run is kept whatever their outcome."""
        from fedplug_attacks.workshop.command import execute

        again = shlex.join(["fedplug", "attack", str(run.folder)])
        try:
            recipes = [run.recipe]
            return execute(lambda stage: recipes, run.recipe, run.folder, run.settings, run.catalog, again, run.world)
        except FedplugError as error:
            raise type(error)(f"{error}\nThe run itself is complete; attack it again: {again}") from error
