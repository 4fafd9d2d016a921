"""Small recorded runs and their evidence, made once."""

from __future__ import annotations

import functools
from collections.abc import Generator
from pathlib import Path

import pytest
from fedplug_evidence import making
from fedplug_evidence.making import make_evidence
from run_toys import start
from toy_components import paraaegis, recipe_of, toy_catalog


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the user's config files, for the whole session."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture(autouse=True)
def _own_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))


@pytest.fixture(scope="session", autouse=True)
def _versions_once() -> Generator[None]:
    """The versions of what is installed are read once: they take most of the time of a folder, and stay the same."""
    real, once = making._needed, functools.cache(lambda names: real(list(names)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "_needed", lambda names: once(tuple(names)))
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders of several kinds. `sealed` was recorded, the others were not."""
    folder = tmp_path_factory.mktemp("runs")
    sealed = paraaegis(rounds=2, seal={"use": "std.bfv", "key_holder": "key_server"})
    laplace = [{"use": "std.clip_l1", "norm": 1.0}, {"use": "std.laplace", "epsilon": 1.0}]
    sampled = recipe_of(
        "noised", [{"use": "std.clip", "norm": 1.0}], rounds=1, min_clients=1,
        data={"use": "std.digits", "clients": 24, "partition": "std.iid"},
        aggregate={"use": "std.mean", "weighting": "uniform"}, accountant={"use": "std.pld"},
        postprocess={"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}]},
        sampling={"scheme": "poisson", "rate": 0.7},
    )  # fmt: skip
    skellam = {"use": "std.distributed_skellam", "epsilon": 6, "delta": 1e-5, "colluders": 2}
    shared = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": 1.0}, skellam, "secagg.bonawitz"], min_clients=5, rounds=1,
        data={"use": "std.digits", "clients": 6, "partition": "std.iid"},
        aggregate={"use": "std.mean", "weighting": "uniform"}, postprocess={"encrypted": ["secagg.bonawitz"]},
    )  # fmt: skip
    return {
        "shared": start(folder, shared),
        "sealed": start(folder, sealed, record_wire=True),
        "laplace": start(folder, recipe_of("noised", laplace, rounds=1, accountant={"use": "std.pld"})),
        "sampled": start(folder, sampled),
        "clear": start(folder, recipe_of()),
    }


@pytest.fixture(scope="session")
def made(runs: dict[str, Path], home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The evidence of each run. Tests must not change it."""
    folder = tmp_path_factory.mktemp("evidence")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home))
        return {kind: make_evidence(run, folder / kind, catalog=toy_catalog())[0] for kind, run in runs.items()}


@pytest.fixture(scope="session")
def folder(made: dict[str, Path]) -> Path:
    """The evidence of the recorded run. Tests must not change it."""
    return made["sealed"]
