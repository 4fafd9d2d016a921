"""The attacker's use of a view's public facts: the noise on each value, and the effect of clips.

A noise size that is not stated can be bounded from above and from below. The median magnitude of a layer is about that
of its noise, or larger. And the excess over the length that a public clip allows can only be noise. If noise prevails
both are about right.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from fedplug.api.blocks import Layout
    from numpy.typing import NDArray

    from fedplug_attacks import ObservedUpdate, TensorView
    from fedplug_attacks.api.observation import Clipped

# The median magnitude of a standard normal variable.
_MIDDLE = 0.6744897501960817


def sigma_of(update: ObservedUpdate) -> NDArray[np.float64]:
    """Standard deviation of the noise on each visible value, (n,): stated, or else estimated.

    There is one estimate a layer, since calibrated noise is calibrated to layers or to the whole model.
    """
    sigma = update.sigma.astype(np.float64)
    unknown = np.isnan(sigma)
    if not unknown.any():
        return sigma
    layer = update.layout.per_scalar(np.arange(len(update.layout.layers)))[update.visible]
    for number in np.unique(layer[unknown]):
        part = unknown & (layer == number)
        finite = np.abs(update.values[part & np.isfinite(update.values)].astype(np.float64))
        sigma[part] = np.median(finite) / _MIDDLE if len(finite) else 0.0
    return sigma


def least_sigma_of(update: ObservedUpdate) -> NDArray[np.float64]:
    """The same if a size is stated; else its lower bound, one a layer, and NaN without a clip."""
    sigma = update.sigma.astype(np.float64)
    unknown = np.isnan(sigma)
    if not unknown.any():
        return sigma
    layers = len(update.layout.layers)
    layer = update.layout.per_scalar(np.arange(layers))
    dense = np.where(update.visible, update.dense(0.0).astype(np.float64), 0.0)
    least = np.full(update.layout.size, np.nan)
    for clip in update.clips:
        group = layer[clip.where]
        counts = np.bincount(group[update.visible[clip.where]], minlength=layers)
        energy = np.bincount(group, np.nan_to_num(dense[clip.where]) ** 2, layers)
        # No norm of order 1 is shorter than the one of order 2; magnitudes are bounded one by one.
        most = np.broadcast_to(np.asarray(clip.norm, np.float64), (layers,)) ** 2
        most = most * counts if np.isinf(clip.order) else most
        with np.errstate(invalid="ignore"):
            left = np.sqrt(np.maximum(np.where(np.isinf(most), 0.0, energy - most), 0.0) / np.maximum(counts, 1))
        least[clip.where] = np.fmax(least[clip.where], left[group])
    return np.where(unknown, least[update.visible], sigma)


def with_noise(update: ObservedUpdate) -> ObservedUpdate:
    """The update with estimates in place of noise of unstated size."""
    return dataclasses.replace(update, sigma=sigma_of(update).astype(np.float32))


def noise_of(tensor: TensorView) -> NDArray[np.float64]:
    """Standard deviation of the noise on each entry of the tensor; 0 where it is hidden or clear."""
    noise = np.zeros(tensor.states.shape)
    noise[tensor.visible] = tensor.sigma
    return noise


def marked(tensor: TensorView, hidden: float = np.nan) -> NDArray[np.float64]:
    """The tensor with `hidden` where nothing is visible, and infinity where a visible value is not finite."""
    values = tensor.dense(hidden)
    found: NDArray[np.float64] = np.where(tensor.visible & ~np.isfinite(values), np.inf, values.astype(np.float64))
    return found


def layer_of(
    update: ObservedUpdate, weight: str, bias: str | None, hidden: float = np.nan
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """A layer's weight (h, d) and bias (h,), `marked`, and the noise on each, stated or estimated.

    Args:
        update: the update that contains it.
        weight, bias: their names; a bias of None is NaN.
        hidden: what stands for hidden entries.
    """
    noised = with_noise(update)
    parts = [noised.tensor(name) for name in (weight, bias) if name]
    values, noise = [marked(part, hidden) for part in parts], [noise_of(part) for part in parts]
    rows = len(values[0])
    return values[0], values[1] if bias else np.full(rows, np.nan), noise[0], noise[1] if bias else np.zeros(rows)


class Clips:
    """Applies the clips of an update to gradients of candidates: (T, P) to (T, P), differentiable.

    Args:
        clips: of the estimate of a gradient, in its units.
        layout: of the model.
        device, dtype: of the gradients.
    """

    def __init__(self, clips: tuple[Clipped, ...], layout: Layout, device: torch.device, dtype: torch.dtype) -> None:
        import torch

        self._clips = []
        layers = layout.per_scalar(np.arange(len(layout.layers)))
        for clip in clips:
            where = torch.from_numpy(np.ascontiguousarray(clip.where, np.int64)).to(device)
            each = isinstance(clip.norm, tuple)
            group = layers[clip.where] if each else np.zeros(len(clip.where), np.int64)
            norms = torch.tensor(clip.norm if each else [clip.norm], device=device, dtype=dtype)
            self._clips.append((where, torch.from_numpy(group.astype(np.int64)).to(device), norms, clip.order))

    def __call__(self, gradients: torch.Tensor) -> torch.Tensor:
        """Gradients as a client would have sent them, without noise."""
        for where, group, norms, order in self._clips:
            part = gradients[:, where]
            if order == float("inf"):
                most = norms[group]
                part = part.clamp(-most, most)
            else:
                sums = part.new_zeros(len(part), len(norms)).index_add(1, group, part.abs() ** order)
                lengths = sums.clamp_min(1e-60 if part.dtype.itemsize == 8 else 1e-30) ** (1 / order)
                part = part * (norms / lengths).clamp(max=1.0)[:, group]
            gradients = part if len(where) == gradients.shape[1] else gradients.index_copy(1, where, part)
        return gradients
