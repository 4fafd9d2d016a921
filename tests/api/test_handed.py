"""A function does not get facts that it must not read. They are back afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug import Client, ClientData, Examples, Server
from fedplug.api.errors import ProtectionError
from fedplug.api.links import without


def client() -> Client:
    examples = Examples(np.zeros((3, 1, 1, 1), np.uint8), np.array([0, 1, 1]))
    data = ClientData(examples, examples, examples, classes=("0", "1"), mean=(0.0,), std=(1.0,))
    found = Client(data=data, update=np.ones(2, np.float32), personal=np.ones(2, np.float32))
    found.scores = {"size": np.ones(2, np.float32)}
    return found


def test_inside_there_is_no_data_and_how_many_examples_there_are_is_public() -> None:
    party = client()
    with without(party, "it is not handed; ask"):
        assert party.num_examples == len(party.data.train) == 3
        assert len(party.data.shared_test) == 3  # shared by all
        for reads in (
            lambda: party.data.train.inputs, lambda: party.data.own_test.labels, lambda: party.scores["size"],
            lambda: party.scores_by(None), lambda: party.update[0], lambda: np.asarray(party.update),
            lambda: party.update + 1, lambda: 2 * party.personal, lambda: list(party.scores), lambda: party.local,
        ):  # fmt: skip
            with pytest.raises(ProtectionError, match="it is not handed; ask"):
                reads()
    assert party.data.train.labels.tolist() == [0, 1, 1]
    assert party.update is not None
    assert party.scores_by("size").tolist() == [1, 1]


def test_what_is_left_to_it_is_there() -> None:
    party = client()
    with without(party, "not handed", scores=True, update=True):
        assert party.scores_by("size").tolist() == [1, 1]
        assert party.update is not None
        assert party.update.tolist() == [1, 1]
        with pytest.raises(ProtectionError, match="not handed"):
            party.data.train.inputs.sum()


def test_it_is_given_back_where_the_function_fails() -> None:
    party = client()
    with pytest.raises(KeyError), without(party, "not handed"):
        raise KeyError
    assert len(party.data.train.inputs) == 3


def test_what_is_not_there_stays_so_and_other_parties_have_nothing_to_take() -> None:
    empty = Client(update=None)
    with without(empty, "not handed"):
        assert empty.update is None
    server = Server()
    with without(server, "not handed"):
        assert server.uploads == {}
