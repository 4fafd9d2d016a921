"""Operations that name clients: each executes its own, on a grid that float32 holds for its noise."""

from __future__ import annotations

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client, Clip, Facts, Known, Layout, Noise, Operations
from fedplug.api.grids import finest
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.execution import execute

LAYOUT = Layout.of([("a.w", (4000,))])


class Own(fedplug.Protector):
    """Clip and noise, for clients 3 and 5 of their own."""

    class Options(fedplug.Options):
        """The grid of the noise."""

        grid: float | None = None

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Sizes that differ by more than a power of two."""
        noise = Noise.gaussian({3: 2.0, 5: 64.0}, others=0.25, source="reproducible", grid=self.options.grid)
        return Clip({3: 0.5}, others=1.0), noise


def step_of(grid: float | None = None) -> tuple[Step, Facts]:
    part = Own(Own.Options(grid=grid))
    part.name = "own"
    facts = Facts(0, 1, LAYOUT, ("noised",), 8, 2, 7, "", chains={"noised": ()})
    (step,) = fold([Link("noised", "protect", "own", part, "client")], facts)
    return step, facts


@pytest.mark.parametrize(("client_id", "norm", "std"), [(3, 0.5, 2.0), (5, 1.0, 64.0), (0, 1.0, 0.25)])
def test_each_client_adds_noise_of_its_own_size_on_its_own_grid(client_id: int, norm: float, std: float) -> None:
    step, facts = step_of()
    block = Block("noised", 4000, np.zeros(4000, np.float32))
    values = execute(step, block, Client(client_id=client_id, facts=facts), facts).plain()
    grid = finest(norm, std)
    assert np.std(values) == pytest.approx(std, rel=0.1)
    assert np.array_equal(np.round(values / grid) * np.float32(grid), values)
    assert not np.array_equal(np.round(values / (2 * grid)) * np.float32(2 * grid), values)


def test_a_grid_that_is_named_is_that_of_all() -> None:
    step, facts = step_of(2.0**-10)
    noises = [one for c in (0, 3, 5) for one in step.of(c, facts).operations if isinstance(one, Noise)]
    assert [one.grid for one in noises] == [2.0**-10] * 3
