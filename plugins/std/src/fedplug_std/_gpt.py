"""The torch module behind `fedplug_std.models.Gpt`."""

from __future__ import annotations

import math

import torch
from torch import nn


class Gpt(nn.Module):
    """Tokens int64 (n, T) to numbers (n, T, vocabulary); a position does not depend on later ones."""

    def __init__(self, vocabulary: int, positions: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList([_Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The numbers of every token at every position."""
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)  # a row for each example
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        given: torch.Tensor = self.head(self.norm(x))
        return given


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.gather = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, positions, width = x.shape
        parts = self.attend(self.before(x)).view(n, positions, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        behind = torch.ones(positions, positions, dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(behind, -math.inf).softmax(-1) @ value
        x = x + self.gather(seen.transpose(1, 2).reshape(n, positions, width))
        found: torch.Tensor = x + self.narrow(torch.nn.functional.gelu(self.widen(self.between(x))))
        return found
