"""A client without its examples: what a function gets that must not read them."""

from __future__ import annotations

import numpy as np
from fedplug import Client, ClientData, Examples


def client() -> Client:
    examples = Examples(np.zeros((3, 1, 1, 1), np.uint8), np.array([0, 1, 1]))
    data = ClientData(examples, examples, examples, classes=("0", "1"), mean=(0.0,), std=(1.0,))
    found = Client(data=data, update=np.ones(2, np.float32))
    found.scores = {"size": np.ones(2, np.float32)}
    return found


def test_it_has_no_examples_and_no_scores_and_its_number_of_examples_is_public() -> None:
    party = client()
    other = party.without_examples()
    data = other.data
    assert (len(data.train), len(data.own_test), len(data.shared_test), other.scores) == (0, 0, 0, {})
    assert other.num_examples == 3
    assert other.memory(Named()) is party.memory(Named())


def test_the_client_itself_keeps_what_it_has() -> None:
    party = client()
    other = party.without_examples()
    other.scores["own"] = np.zeros(2, np.float32)
    assert party.data.train.labels.tolist() == [0, 1, 1]
    assert list(party.scores) == ["size"]
    assert other.without_examples().num_examples == 3


class Named:
    name = "toy"
