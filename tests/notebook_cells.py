"""Cells of a notebook: the arguments of `fedplug.run` are defined in cells, whose text Python knows."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Notebook:
    """A session of cells. `names` are their definitions."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._cells = 0

    def cell(self, text: str, kept: bool = True) -> None:
        """Runs a cell as a notebook does, with its text where tracebacks find it unless it is not `kept`."""
        self._cells += 1
        name = f"<cell {id(self)} {self._cells}>"
        if kept:
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", dont_inherit=True), self.names)

    def __getitem__(self, name: str) -> Any:
        return self.names[name]


IMPORTS = "import numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\nHIDDEN = 8\n"
NET = '''
def width(n):
    return n * 2


class Net(nn.Module):
    """Two layers."""

    def __init__(self, shape, num_classes, hidden: int = HIDDEN):
        super().__init__()
        self.first = nn.Linear(int(np.prod(shape)), width(hidden))
        self.last = nn.Linear(width(hidden), num_classes)

    def forward(self, images):
        return self.last(F.relu(self.first(images.flatten(1))))
'''
FOCAL = '''
def focal(outputs, answers):
    """Examples that are right already count less."""
    cross_entropy = F.cross_entropy(outputs, answers, reduction="none")
    return ((1 - torch.exp(-cross_entropy)) ** 2 * cross_entropy).mean()
'''


def notebook() -> Notebook:
    """One that has a model and a loss."""
    made = Notebook()
    for text in (IMPORTS, NET, FOCAL):
        made.cell(text)
    return made


def arrays(seed: int = 0) -> tuple[NDArray[Any], ...]:
    """Pictures that are bright above (0) or below (1)."""
    labels = np.arange(120) % 2
    images = np.random.default_rng(seed).integers(0, 100, (120, 8, 8)).astype(np.uint8)
    images[labels == 0, :4] += 100
    images[labels == 1, 4:] += 100
    return images[40:], labels[40:], images[:40], labels[:40]
