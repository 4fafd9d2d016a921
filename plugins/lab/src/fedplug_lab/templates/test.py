"""The component does what it says, and its recipe runs."""

from pathlib import Path

import fedplug
from fedplug_kit import conformance


def test_conforms() -> None:
    conformance("sketch.thing")


def test_the_recipe_runs(tmp_path: Path) -> None:
    run = fedplug.run("sketch", rounds=1, output=tmp_path, quiet=True, muted=["lab.report"])
    assert len(run.metrics) == 1
