"""Grids of a sweep, as files."""

from __future__ import annotations

from pathlib import Path

GRID = "parameters: {train.scale: [0.01, 0.5], data.partition.alpha: [0.5, 5]}"


def grid_of(folder: Path, text: str) -> Path:
    file = folder / "grid.yaml"
    file.write_text(text, encoding="utf-8")
    return file
