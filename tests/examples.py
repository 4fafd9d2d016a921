"""The number of examples for property tests with slow examples."""

from __future__ import annotations

ALL = False
"""Whether slow tests run too, as in `make test-all`; `conftest.py` says so."""


def examples(all_of_them: int) -> int:
    """All of them together with slow tests, otherwise a quarter."""
    return all_of_them if ALL else all_of_them // 4
