"""The input of an engine suffices for a party to build itself."""

from __future__ import annotations

from fedplug.engines.base import Job
from toy_components import recipe_of, toy_catalog


def test_the_job_builds_separate_components_for_every_party() -> None:
    job = Job(recipe_of(), catalog=toy_catalog())
    (recipe, one), (again, other) = job.build(), job.build()
    assert recipe.digest == again.digest
    assert one.components.keys() == other.components.keys()
    assert not set(map(id, one.components.values())) & set(map(id, other.components.values()))
