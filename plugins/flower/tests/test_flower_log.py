"""The strategy on the page "Attack your own federation": it keeps what Flower's server receives."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

PAGE = Path(__file__).parents[3] / "docs" / "attack-your-own.md"


def test_the_strategy_keeps_models_and_updates_by_client_and_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.search(r"<!-- file: flower_log.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    summed: list[Any] = []
    monkeypatch.setattr(FedAvg, "aggregate_train", lambda self, round, replies: summed.extend(replies))
    monkeypatch.setattr(FedAvg, "configure_train", lambda self, *asked: [])
    net = torch.nn.Linear(3, 2)
    arrays = ArrayRecord(net.state_dict())
    replies = [
        SimpleNamespace(content=RecordDict({"arrays": arrays}), metadata=SimpleNamespace(src_node_id=node))
        for node in (7, 8)
    ]
    strategy = names["Logged"]()
    strategy.configure_train(1, arrays, None, None)
    strategy.aggregate_train(1, iter(replies))
    assert summed == replies
    for file in ("global/0001.npz", "updates/7/0001.npz", "updates/8/0001.npz"):
        with np.load(file) as kept:
            assert np.array_equal(kept["weight"], net.weight.detach().numpy())
            assert list(kept) == ["weight", "bias"]
