"""How many examples a property test tries whose examples take long."""

from __future__ import annotations

ALL = False
"""Whether slow tests run too, as in `make test-all`; `conftest.py` says so."""


def examples(all_of_them: int) -> int:
    """All of them beside slow tests, and a quarter otherwise."""
    return all_of_them if ALL else all_of_them // 4
