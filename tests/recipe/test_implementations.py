"""The hooks that a class implements, and its problems in a group."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import fedplug
import pytest
from fedplug import Operations, hookimpl
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import hook_problems
from fedplug.recipe.recipe import Recipe


def test_an_extension_must_be_a_wrapper_or_it_would_answer_in_a_components_place(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    class Usurper(fedplug.Extension):
        """Answers itself."""

        @hookimpl
        def protect(self) -> Operations:
            return ()

    class Wraps(fedplug.Extension):
        """As it should be."""

        @hookimpl(wrapper=True)
        def protect(self) -> Generator[None, Operations, Operations]:
            return (yield)

    class WrapsNothing(fedplug.Extension):
        """Nothing."""

    class WrapsWrongly(fedplug.Extension):
        """An argument that the hook does not have, and a default."""

        @hookimpl(wrapper=True)
        def protect(self, block: Any, facts: Any = None) -> Generator[None, Operations, Operations]:
            return (yield)

    class WrapsAnother(fedplug.Extension):
        """A hook that nobody calls."""

        @hookimpl(wrapper=True)
        def combine(self, known: Any) -> Generator[None, Operations, Operations]:
            return (yield)

    assert [*hook_problems(Usurper, "extension")] == [
        "implements protect, which an extension must wrap: @hookimpl(wrapper=True)"
    ]
    assert hook_problems(Wraps, "extension") == ()
    assert "wraps no hook" in hook_problems(WrapsNothing, "extension")[0]
    assert [*hook_problems(WrapsWrongly, "extension")] == [
        "wraps protect with the argument block; the hook is protect(known, facts)",
        "wraps protect with a default for facts, which then never gets a value",
    ]
    (problem,) = hook_problems(WrapsAnother, "extension")
    assert problem.startswith("marks combine with @hookimpl, but there is no such hook; there is score_parameters, ")
    fake_classes["extension"]["acme.usurper"] = Usurper
    with pytest.raises(RecipeError, match="which an extension must wrap"):
        Recipe.from_plain(plain_recipe | {"extensions": ["acme.usurper"]}, Catalog.of(fake_classes))


def test_a_class_has_what_its_role_leaves_open() -> None:
    class Splits(fedplug.Partition):
        """Forgets how."""

    class HalfASeal(fedplug.Sealer):
        """Cannot add, and says nothing of what it shows."""

        def protect(self, known: Any, facts: Any) -> Operations:
            return ()

        def seal(self, words: Any, client: Any, facts: Any) -> Any:
            return words

        def open(self, total: Any, party: Any, facts: Any) -> Any:
            return total

    (problem,) = hook_problems(Splits, "partition")
    assert problem == "has no assign(labels, num_clients, rng), which a Partition must have"
    (problem,) = hook_problems(Splits, "trainer")
    assert problem == "is not a Trainer; write class Splits(fedplug.Trainer)"
    for group in ("protect", "postprocess"):
        assert [*hook_problems(HalfASeal, group)] == [
            "has no reveals(facts), which a Sealer must have",
            "has no add(uploads, server, facts), which a Sealer must have",
        ]
