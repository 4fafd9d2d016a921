"""benchmarks/set_up.py: what is done once is counted, and nothing else is run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from fedplug.round.protocol import Protocol

ROOT = Path(__file__).parent.parent


def test_scores_that_hold_for_a_run_are_counted_and_no_round_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "benchmarks/set_up.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(Protocol, "round", lambda *_: pytest.fail("a round was run"))
    setup = Protocol.setup
    clear, scored = (
        module.seconds(ROOT / "recipes" / recipe, {}) for recipe in ("fedavg.yaml", "baselines/fedml-he.yaml")
    )
    assert 0 <= clear < scored
    assert Protocol.setup is setup
