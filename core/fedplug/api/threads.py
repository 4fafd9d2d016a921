"""How many threads the parties of this process compute with: a setting of the machine, which components read.

One, unless somebody asks for more: a library that splits a sum over threads may round it otherwise, and then results
depend on the machine.
"""

from __future__ import annotations

_threads = 1


def of_a_party() -> int:
    """The number of threads."""
    return _threads


def set_of_a_party(count: int) -> None:
    """From here on parties of this process compute with this many threads; for a process that has no other use."""
    global _threads
    _threads = count
