"""The objects that a separate process builds to hold parties."""

from __future__ import annotations

from fedplug.api.parties import KEY_SERVER
from fedplug.engines.base import Job, host_of
from toy_components import recipe_of, toy_catalog


def test_the_host_of_some_clients_and_that_of_the_key_server() -> None:
    job = Job(recipe_of(), catalog=toy_catalog())
    assert host_of(job, [1, 3]).addresses == ["client:1", "client:3"]
    assert host_of(job, None).addresses == [KEY_SERVER]
