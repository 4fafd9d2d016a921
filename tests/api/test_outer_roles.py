"""The roles around the rounds: what they leave to their author, and what they answer by default."""

from __future__ import annotations

import types
from typing import Any

import fedplug
import pytest
from fedplug.api import outer_roles
from fedplug.api.members import members, undecided
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import View


@pytest.mark.parametrize(
    ("role", "wanted"),
    [
        ("DataSource", ["load(root)"]), ("Partition", ["assign(labels, num_clients, rng)"]),
        ("ModelSource", ["build(shape, num_classes, seed, device)"]),
        ("Accountant", ["epsilon(releases, delta, adjacency)"]), ("Attack", ["finds", "attack(view, ctx)"]),
        ("Metric", ["measures", "score(found, truth)"]), ("Extension", []),
    ],
)  # fmt: skip
def test_an_author_is_told_what_a_role_leaves_open(role: str, wanted: list[str]) -> None:
    found = type("Odd", (getattr(outer_roles, role),), {})
    assert [name for _, name in undecided(found)] == wanted
    assert bool(found.__abstractmethods__) == bool(wanted)


def bare(role: Any) -> Any:
    """A component of an author who wrote nothing, as if nothing were left open."""
    found: Any = type("Bare", (role,), {})
    found.__abstractmethods__ = frozenset()
    return found(None)


def test_what_nobody_wrote_is_absent() -> None:
    assert bare(fedplug.Partition).categories(3) is None
    assert bare(fedplug.ModelSource).figures({"hits": 3.0}) == {}
    assert bare(fedplug.Accountant).compose([("laplace", 1.0, 1.0, 2)], 1e-5, "zero_out") is None
    attack = bare(fedplug.Attack)
    assert (attack.form, attack.in_form("naive")) == (None, None)
    extension = bare(fedplug.Extension)
    assert (extension.every_run, extension.hears, extension.observe(None)) == (False, (), None)


def test_views_and_reports_have_what_the_role_says_of_every_view_and_answer() -> None:
    pairs = (outer_roles.AttackView, View("server")), (outer_roles.AttackAnswer, AttackReport("failed"))
    for promised, found in pairs:
        names = members(promised)
        assert names
        assert [name for name in names if not hasattr(found, name)] == []


def test_an_attack_that_names_its_types_is_an_attack_like_any_other() -> None:
    found = type("Odd", (fedplug.Attack,), {})
    typed = types.new_class("Typed", (fedplug.Attack[View, AttackReport],))
    assert [name for _, name in undecided(typed)] == [name for _, name in undecided(found)]
    with pytest.raises(TypeError, match=r"attack\(self, seen\) has other arguments"):
        types.new_class("Wrong", (fedplug.Attack[View, AttackReport],), {}, lambda body: body.update(attack=_wrong))


def _wrong(self: Any, seen: Any) -> None:
    """A hook with other arguments than the role's."""
