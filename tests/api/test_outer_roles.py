"""The roles around the rounds: the methods left to the author, and the defaults."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
from fedplug.api import roles as outer_roles
from fedplug_runs.members import undecided


@pytest.mark.parametrize(
    ("role", "wanted"),
    [
        ("DataSource", ["load(root)"]), ("Partition", ["assign(labels, num_clients, rng)"]),
        ("ModelSource", ["build(shape, num_classes, seed, device)"]),
        ("Accountant", ["compose(releases, delta, adjacency)"]), ("Attack", ["finds", "attack(view, attacker)"]),
        ("Metric", ["measures", "score(found, truth)"]), ("Extension", []),
    ],
)  # fmt: skip
def test_an_author_is_told_what_a_role_leaves_open(role: str, wanted: list[str]) -> None:
    found = type("Odd", (getattr(outer_roles, role),), {})
    assert [name for _, name in undecided(found)] == wanted
    assert bool(found.__abstractmethods__) == bool(wanted)


def bare(role: Any) -> Any:
    """A component whose author wrote nothing, made as if no method were missing."""
    found: Any = type("Bare", (role,), {})
    found.__abstractmethods__ = frozenset()
    return found(None)


def test_what_nobody_wrote_is_absent() -> None:
    assert bare(fedplug.Partition).categories(3) is None
    assert bare(fedplug.ModelSource).figures({"hits": 3.0}) == {}
    assert bare(fedplug.ModelSource).refuses((1, 2, 2), 2, "example") is None
    assert bare(fedplug.DataSource).declares == fedplug.Declares(shape=None, num_classes=None)
    attack = bare(fedplug.Attack)
    assert (attack.form, attack.in_form("naive")) == (None, None)
    extension = bare(fedplug.Extension)
    assert (extension.every_run, extension.hears, extension.observe(None)) == (False, (), None)
