"""Several rounds of a target for attacks on one: the same examples under many models, with different masks.

    each_round(view)    a view for each round that was made from the same examples
    stacked(view)       one view of a first layer that has the rows of all these rounds

An entry that is hidden in one round is visible in another, so a mask that moves shows everything in the end. Noise that
is drawn afresh in every round averages out. An attack with `Needs(rounds=True)` has the rounds in `View.observations`,
and these functions combine them:

    for one in each_round(view):            # match the gradient of each at its own model
        matcher = Matcher(one, "adaptive", batch, device)
    LinearLeak(options).attack(stacked(view), attacker)
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.blocks import Layout
from fedplug.api.errors import ViewError

from fedplug_attacks.api.needs import FIRST_BIAS, FIRST_WEIGHT, role
from fedplug_attacks.api.observation import Observation, ObservedUpdate, TensorView
from fedplug_attacks.api.planting import parameter
from fedplug_attacks.api.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray


def of_the_same(view: View, most: int | None = None) -> list[int]:
    """Places in `view.observations` of the rounds that show the examples of the attacked update; ascending.

    These are the attacked one, and earlier ones that were made from the same examples only and have visible entries. If
    there are more than `most`, they are evenly spaced and include the last.

    Args:
        view: with observations.
        most: rounds; None: all.
    """
    usable = [
        place for place, seen in enumerate(view.observations)
        if seen.same_examples and len(seen.update.contributors) == 1 and len(seen.update.values)
    ]  # fmt: skip
    if most is None or len(usable) <= most:
        return usable
    return [usable[place] for place in np.linspace(0, len(usable) - 1, most).round().astype(int)] if most > 1 else [
        usable[-1]
    ]  # fmt: skip


def each_round(view: View, most: int | None = None) -> list[View]:
    """A view for each round of the same examples, as if that round were attacked; the attacked one is the last.

    Each has its own model in the state of that round if the adversary knows it; else no model and no vector.

    Args:
        view: with observations; without any the answer is the view alone.
        most: as in `of_the_same`.
    """
    found = [_as_attacked(view, view.observations[place]) for place in of_the_same(view, most)]
    return found or [view]


def _as_attacked(view: View, seen: Observation) -> View:
    model = None
    if seen.vector is not None and view.model is not None:
        model = copy.deepcopy(view.model)
        model.set_vector(seen.vector)
        if seen.buffers:
            model.set_buffers(seen.buffers)
    return dataclasses.replace(
        view, round=seen.round, update=seen.update, vector=seen.vector, model=model, observations=()
    )


def stacked(view: View, most: int | None = None) -> View:
    """A view of one first layer with the rows of all rounds of the same examples.

    The gradient of row i of a first fully connected layer is sum_n g_n[i] x_n, in every round with other g and the same
    inputs x. So the rows of R rounds are those of one layer that is R times as wide and still of rank B. Any attack on
    the gradient of a first layer works on it as on one round. Partly hidden rows stay partly hidden.

    The result has a layout of that layer alone, `view.meaning` of the attacked round, rows in its units (update over
    learning rate), and the rows of the models where the adversary knows all of them; no model, and no clips: these keep
    the direction of a row, and its quotient with the bias.

    Args:
        view: with an update; without observations it alone is stacked.
        most: as in `of_the_same`.

    Raises:
        ViewError: the model begins with no fully connected layer.
    """
    layout = view.observed.layout
    names = role(layout, FIRST_WEIGHT), role(layout, FIRST_BIAS)
    if names[0] is None:
        raise ViewError("the model begins with no fully connected layer, whose rows could be stacked")
    weight, bias = next(p for p in layout.parameters if p.name == names[0]), names[1]
    rounds: Sequence[Observation] = [view.observations[place] for place in of_the_same(view, most)]
    rounds = rounds or [Observation(view.round, view.observed, view.vector, {}, True)]
    parts = [_per_rate(seen.update, view.observed) for seen in rounds]
    tensors = [[part.tensor(name) for part in parts] for name in names if name is not None]
    rows, columns = weight.shape[0] * len(rounds), weight.shape[1]
    shapes = [("first.weight", (rows, columns))] + ([("first.bias", (rows,))] if bias else [])
    wide = ObservedUpdate(
        view.observed.round, view.observed.contributors, Layout.of(shapes), *_joined(tensors), view.observed.meaning
    )
    vector = None
    if all(seen.vector is not None for seen in rounds):
        vectors: list[NDArray[np.float32]] = [seen.vector for seen in rounds if seen.vector is not None]
        vector = np.concatenate([parameter(held, layout, name).ravel() for name in names if name for held in vectors])
    return dataclasses.replace(view, update=wide, vector=vector, model=None, observations=())


def _per_rate(update: ObservedUpdate, attacked: ObservedUpdate) -> ObservedUpdate:
    """An update in the units of another: as large as if both had the same learning rate and number of steps."""
    own, theirs = update.meaning.reach, attacked.meaning.reach
    factor = np.float32(theirs / own if own and theirs else 1.0)
    return dataclasses.replace(update, values=update.values * factor, sigma=update.sigma * factor, clips=())


def _joined(
    tensors: Sequence[Sequence[TensorView]],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """States, values and sigmas of tensors, one after the other, as an observed update has them."""
    flat = [tensor for kind in tensors for tensor in kind]
    states = np.concatenate([tensor.states.reshape(-1) for tensor in flat]).astype(np.uint8)
    values, sigma = (np.concatenate([getattr(tensor, name) for tensor in flat]) for name in ("values", "sigma"))
    return states, values.astype(np.float32), sigma.astype(np.float32)


def coverage(view: View, most: int | None = None) -> float:
    """Share of the entries of the model that some round of the same examples shows, 0 to 1."""
    if view.update is None:
        return 0.0
    shown = view.update.visible
    for place in of_the_same(view, most):
        shown |= view.observations[place].update.visible
    return float(shown.mean())
