"""The engine of a run, and the options that only this engine has."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
from fedplug.api.errors import SetupError
from fedplug.engines.local import LocalEngine
from fedplug.recipe.catalog import Catalog
from fedplug_runs.choice import engine_entry, options_class, options_of


class Far:
    """An engine elsewhere."""

    class Options(fedplug.Options):
        """Where."""

        host: str = fedplug.Field("here", description="which machine")
        cores: float = fedplug.Field(1, gt=0, description="how much of it")


def test_an_engine_is_found_among_those_given_and_those_installed() -> None:
    catalog = Catalog.of({"engine": {"toy.far": Far}})
    assert engine_entry("toy.far", catalog).load() is Far
    assert engine_entry("local", catalog).load() is LocalEngine
    with pytest.raises(SetupError, match="there is no engine 'procesess'; did you mean processes"):
        engine_entry("procesess")


def test_options_come_from_text_as_well_as_from_values() -> None:
    assert options_class(Far) is Far.Options
    assert options_of("toy.far", Far, {}) == Far.Options()
    assert options_of("toy.far", Far, {"cores": "0.5"}) == options_of("toy.far", Far, {"cores": 0.5})


@pytest.mark.parametrize(
    ("engine", "given", "complaints"),
    [
        (Far, {"hots": "x", "cores": 0}, ["unknown option 'hots' of engine e; did you mean host?", "cores=0 must"]),
        (LocalEngine, {"host": "x"}, ["engine e has no options: leave out host"]),
    ],
    ids=["wrong ones", "of an engine without"],
)  # fmt: skip
def test_every_option_that_cannot_be_is_named(engine: type, given: dict[str, Any], complaints: list[str]) -> None:
    with pytest.raises(SetupError) as caught:
        options_of("engine e", engine, given)
    assert all(complaint in str(caught.value) for complaint in complaints)
    assert len(str(caught.value).splitlines()) == len(complaints)
