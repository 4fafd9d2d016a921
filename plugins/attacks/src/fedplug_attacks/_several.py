"""The gradients of several rounds, matched as one: each at its own model, with its own mask and noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedplug_attacks._matching import Matcher
from fedplug_attacks.api.view import View


class SeveralRounds(Matcher):
    """A matcher of the gradients of many rounds, laid one after the other: (T, P) becomes (T, R P).

    It measures distances like a `Matcher`, and takes no prior. A squared distance is the mean of those of the rounds,
    each relative to its own gradient's energy and weighted by how many entries it shows; where noise is most of that
    energy, rounds count by the inverse of its variance. A cosine is that of all rounds in one vector.

    Args:
        views: of the rounds, the attacked one last; each with the model that the update was made from.
        form, batch, device, double: as of a `Matcher`.

    Raises:
        ViewError: the gradient cannot be estimated from the update of a round.
    """

    def __init__(self, views: Sequence[View], form: str, batch: int, device: str, double: bool = False) -> None:
        super().__init__(views[-1], form, batch, device, double)
        self.parts = [Matcher(view, form, batch, device, double) for view in views]
        shown = torch.tensor([float((part.weight > 0).sum()) for part in self.parts])
        shares = (shown / shown.sum()).tolist()
        self.target = torch.cat([part.target for part in self.parts])
        scales = [share / float(part._norm) for share, part in zip(shares, self.parts, strict=True)]
        self.weight = torch.cat([part.weight * scale for part, scale in zip(self.parts, scales, strict=True)])
        self._norm = (self.weight * self.target.square()).sum()
        self.floor = sum(share * part.floor for share, part in zip(shares, self.parts, strict=True))
        self.local = None  # each round repeats its own steps

    def gradients(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients (T, R P) in every round's model, and (T,) the sum of the distances of batch statistics there."""
        self.evaluations += len(inputs) * len(self.parts)
        found = [part.gradients(inputs, labels) for part in self.parts]
        return torch.cat([part for part, _ in found], dim=1), torch.stack([penalty for _, penalty in found]).sum(0)

    def _sent(self, gradients: torch.Tensor) -> torch.Tensor:
        each = torch.split(gradients, [len(part.target) for part in self.parts], dim=1)
        return torch.cat([part._sent(one) for part, one in zip(self.parts, each, strict=True)], dim=1)
