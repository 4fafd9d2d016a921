"""The hooks that a class implements, and its problems in a group."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Clip, Operations, Scale, hookimpl
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Witness, hook_problems
from fedplug.recipe.recipe import Recipe


def test_an_extension_must_be_a_wrapper_or_it_would_answer_in_a_components_place(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    class Usurper(fedplug.Extension):
        """Answers itself."""

        def protect(self) -> Operations:
            return ()

    class Wraps(fedplug.Extension):
        """As it should be."""

        @hookimpl(wrapper=True)
        def protect(self) -> Generator[None, Operations, Operations]:
            return (yield)

    class WrapsAsProtector(fedplug.Protector):
        """Wraps, but claims to protect."""

        @hookimpl(wrapper=True)
        def protect(self, known: Any, facts: Any) -> Generator[None, Operations, Operations]:
            return (yield)

    class WrapsNothing(fedplug.Extension):
        """Nothing."""

    class WrapsWrongly(fedplug.Extension):
        """An argument that the hook does not have."""

        @hookimpl(wrapper=True)
        def protect(self, block: Any) -> Generator[None, Operations, Operations]:
            return (yield)

    assert "must be a wrapper" in hook_problems(Usurper, "extension")[0]
    assert "must not be a wrapper" in hook_problems(WrapsAsProtector, "protect")[0]
    assert hook_problems(Wraps, "extension") == []
    assert "wraps no hook" in hook_problems(WrapsNothing, "extension")[0]
    (problem,) = hook_problems(WrapsWrongly, "extension")
    assert problem == "implements protect with the argument block; the hook is protect(known, facts)"
    fake_classes["extension"]["acme.usurper"] = Usurper
    with pytest.raises(Exception, match="must be a wrapper"):
        Recipe.from_plain(plain_recipe | {"extensions": ["acme.usurper"]}, Catalog.of(fake_classes))


def test_a_class_has_what_its_role_leaves_open() -> None:
    class Splits(fedplug.Partition):
        """Forgets how."""

    class HalfASeal(fedplug.Sealer):
        """Cannot add."""

        def protect(self, known: Any, facts: Any) -> Operations:
            return ()

        def seal(self, block: Any, client: Any, facts: Any) -> Any:
            return block

        def open(self, block: Any, facts: Any) -> Any:
            return block

    (problem,) = hook_problems(Splits, "partition")
    assert problem == "has no assign(labels, num_clients, rng), which a Partition must have"
    (problem,) = hook_problems(Splits, "trainer")
    assert problem == "is not a Trainer; write class Splits(fedplug.Trainer)"
    for group in ("protect", "postprocess"):
        (problem,) = hook_problems(HalfASeal, group)
        assert problem == "has no add_blocks(blocks, facts), which a Sealer must have"


def gave(hook: str, given: Any, result: Any) -> bool:
    """Whether the extensions around a hook return the component's result."""
    witness = Witness()
    steps = getattr(witness, hook)()
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(given)
    assert end.value.value is given
    return witness.gave(result)


def test_what_a_component_gave_comes_out_or_is_found_out() -> None:
    operations: Operations = (Clip(1.0), Scale(0.5))
    for hook in ("protect", "aggregate", "postprocess"):
        assert gave(hook, operations, operations)
        assert not gave(hook, operations, (Clip(1.0),))
        assert not gave(hook, operations, ())


def test_scores_and_reports_are_looked_at_for_changes_in_place() -> None:
    scores = np.ones(3, np.float32)
    witness = Witness()
    steps = witness.score_parameters()
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(scores)
    assert witness.gave(scores)
    scores[0] = 2.0  # as a careless extension may
    assert not witness.gave(scores)
    found = Report("finished", np.ones(3, np.float32))
    assert gave("attack", found, found)
    assert not gave("attack", found, dataclasses.replace(found, images=np.zeros(3, np.float32)))


@dataclasses.dataclass(frozen=True)
class Report:
    status: str
    images: Any = None
