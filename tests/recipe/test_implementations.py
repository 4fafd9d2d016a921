"""The hooks that a class implements, and what is wrong with it in a group."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, hookimpl
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.implementations import Witness, hook_problems
from fedplug.recipe.recipe import Recipe


def test_an_extension_must_be_a_wrapper_or_it_would_answer_in_a_components_place(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    class Usurper(fedplug.Extension):
        """Answers itself."""

        @hookimpl
        def protect(self, block: Block) -> Block:
            return block

    class Wraps(fedplug.Extension):
        """As it should be."""

        @hookimpl(wrapper=True)
        def protect(self, block: Block) -> Generator[None, Block, Block]:
            return (yield)

    class WrapsAsProtector(fedplug.Protector):
        """Wraps, but claims to protect."""

        @hookimpl(wrapper=True)
        def protect(self, block: Block, client: Any, ctx: Any) -> Generator[None, Block, Block]:
            return (yield)

    class WrapsNothing(fedplug.Extension):
        """Nothing."""

    class WrapsWrongly(fedplug.Extension):
        """An argument that the hook does not have."""

        @hookimpl(wrapper=True)
        def protect(self, blocks: Block) -> Generator[None, Block, Block]:
            return (yield)

    assert "must be a wrapper" in hook_problems(Usurper, "extension")[0]
    assert "must not be a wrapper" in hook_problems(WrapsAsProtector, "protect")[0]
    assert hook_problems(Wraps, "extension") == []
    assert "wraps no hook" in hook_problems(WrapsNothing, "extension")[0]
    (problem,) = hook_problems(WrapsWrongly, "extension")
    assert problem == "implements protect with the argument blocks; the hook is protect(block, client, ctx)"
    fake_classes["extension"]["acme.usurper"] = Usurper
    with pytest.raises(Exception, match="must be a wrapper"):
        Recipe.from_plain(plain_recipe | {"extensions": ["acme.usurper"]}, Catalog.of(fake_classes))


def test_a_class_has_what_its_role_leaves_open() -> None:
    class Splits(fedplug.Partition):
        """Forgets how."""

    class HalfASeal(fedplug.Sealer):
        """Cannot add."""

        @hookimpl
        def protect(self, block: Block, client: Any, ctx: Any) -> Block:
            return block

        @hookimpl
        def postprocess(self, block: Block, ctx: Any) -> Block:
            return block

    (problem,) = hook_problems(Splits, "partition")
    assert problem == "has no assign(labels, num_clients, rng), which a Partition must have"
    (problem,) = hook_problems(Splits, "trainer")
    assert problem == "is not a Trainer; write class Splits(fedplug.Trainer)"
    for group in ("protect", "postprocess"):
        (problem,) = hook_problems(HalfASeal, group)
        assert problem == "has no add_blocks(blocks, ctx), which a Sealer must have"


def block(*values: float) -> Block:
    return Block("noised", len(values), np.array(values, np.float32))


@pytest.mark.parametrize(
    "arguments",
    [{"block": block(1, 3)}, {"block": block(1, 2).replace(divisor=2.0)}, {"block": block(1, 2), "weights": {0: 0.5}}],
)
def test_a_digest_sees_values_divisors_and_weights(arguments: dict[str, Any]) -> None:
    assert Witness.digest({"block": block(1, 2)}) == Witness.digest({"block": block(1, 2), "ctx": object()})
    assert Witness.digest({"block": block(1, 2)}) != Witness.digest(arguments)


def test_it_notes_what_was_handed_before_it_can_be_changed() -> None:
    witness, given = Witness(), block(1, 2)
    steps = witness.protect(given)
    next(steps)
    assert given.values is not None
    given.values[0] = 9  # in place, as a careless extension or component may
    with pytest.raises(StopIteration) as end:
        steps.send(block(5, 6))
    assert witness.handed == Witness.digest({"block": block(1, 2)})
    assert witness.given == Witness.digest(block(5, 6))
    assert end.value.value.plain().tolist() == [5, 6]


@dataclasses.dataclass(frozen=True)
class Report:
    status: str
    images: Any = None


def test_what_an_attack_found_is_witnessed_too() -> None:
    found = Report("finished", np.ones(3, np.float32))
    assert Witness.digest(found) == Witness.digest(found) != b""
    assert Witness.digest(found) != Witness.digest(dataclasses.replace(found, images=np.zeros(3, np.float32)))
    assert "attack" in Witness.HOOKS
