"""The hooks that a class implements, and what is wrong with it in a group."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import fedplug
import pytest
from fedplug import Block, hookimpl
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.implementations import hook_problems
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
