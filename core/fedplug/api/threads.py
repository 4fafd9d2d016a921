"""How many threads the parties of this process compute with: a setting of the machine, which components read.

One, unless somebody asks for more: a library that splits a sum over threads may round it otherwise, and then results
depend on the machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_threads = 1


def of_a_party() -> int:
    """The number of threads."""
    return _threads


def set_of_a_party(count: int) -> None:
    """From here on parties of this process compute with this many threads; for a process that has no other use."""
    global _threads
    _threads = count


@contextlib.contextmanager
def parties_compute_with(count: int) -> Iterator[None]:
    """Inside, parties compute with this many threads. Afterwards torch has as many as before, and so has a notebook.

    torch is imported already, or is so inside; then it has as many as it begins with.
    """
    import torch  # here, since what needs no parties must not wait for it

    before, torchs = _threads, torch.get_num_threads()
    set_of_a_party(count)
    try:
        yield
    finally:
        set_of_a_party(before)
        torch.set_num_threads(torchs)
