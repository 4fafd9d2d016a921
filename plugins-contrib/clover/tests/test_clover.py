"""Shares of sparse vectors: their sum, what one of them shows, who opens it, and whole runs."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedplug
import fedplug_clover.sparse_shares
import numpy as np
import pytest
import torch
from fedplug import Client, Facts, FedplugError, KeyServer, Layout, Server, Total, Words, gaussian_epsilon
from fedplug.api.errors import MessageError
from fedplug_clover import points
from fedplug_clover.sparse_shares import LETTER, SparseShares, largest
from fedplug_kit import conformance
from hypothesis import given, settings
from hypothesis import strategies as st

ZONE, SIZE, CLIENTS = "encrypted", 8, 3
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL: dict[str, Any] = {
    "rounds": 3, "data.clients": 4, "data.train_size": 400, "model.hidden": [], "train.epochs": 1, "sampling": None,
    "accountant": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Parties:
    """A component with its key server, an aggregation server and clients, in one round of one run."""

    def __init__(self, keep: float = 3 / SIZE, size: int = SIZE) -> None:
        self.component = SparseShares(SparseShares.Options(keep=keep, norm=1.0, noise_multiplier=0))
        self.component.name, self.size = "clover.sparse_shares", size
        self.key_server, self.server, layout = KeyServer(), Server(), Layout.of([("a.w", (size,))])
        published = {self.component.name: {"key": self.component.make_key(self.key_server)}}
        self.facts = Facts(0, 2, layout, (ZONE,), CLIENTS, 2, 7, "", published=published)

    def upload(self, client_id: int, words: Sequence[int] | np.ndarray[Any, Any]) -> Total:
        client = Client(client_id=client_id)
        sealed = self.component.seal(Words(ZONE, np.asarray(words, np.int64)), client, self.facts)
        return Total(ZONE, self.size, sealed.parts, (client_id,), 1)

    def added(self, totals: Sequence[Total]) -> Total:
        clients = tuple(client for total in totals for client in total.clients)
        parts = self.component.add(totals, self.server, self.facts)
        return Total(ZONE, self.size, parts, clients, len(clients))

    def opened(self, total: Total) -> list[int]:
        found = self.component.open(total, self.key_server, self.facts)
        assert found.counts is not None
        assert found.counts.tolist() == [len(total.clients)]
        words: list[int] = found.words.tolist()
        return words


def run(sets: dict[str, Any], recipe: str = "clover-digits", **keys: Any) -> fedplug.Run:
    return fedplug.run(recipe, SMALL | sets, quiet=True, **keys)


def model_of(made: fedplug.Run) -> np.ndarray[Any, Any]:
    return torch.nn.utils.parameters_to_vector(made.model.parameters()).detach().numpy()


def test_conforms() -> None:
    """With all values, since the kit has others sealed than those that sparsification leaves; and few of them."""
    options = {"norm": 1.0, "noise_multiplier": 0, "keep": 1.0}
    conformance("clover.sparse_shares", options, recipe={"model": {"use": "kit.two_layers", "hidden": 2}})


def test_uses_the_public_api_only() -> None:
    nodes = list(ast.walk(ast.parse(Path(fedplug_clover.sparse_shares.__file__).read_text(encoding="utf-8"))))
    taken = {node.module: {alias.name for alias in node.names} for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in taken if str(name).startswith("fedplug")} == {
        "fedplug", "fedplug.api", "fedplug.api.errors", "fedplug_std.gaussian", "fedplug_clover"
    }  # fmt: skip
    assert taken["fedplug"] <= set(fedplug.__all__)


# -- sparse vectors ----------------------------------------------------------------------------------------------------


def test_a_worked_sum() -> None:
    """Of eight values the three largest are sent, each client's own ones: x_1 at 1, 3, 5, and x_2 at 0, 3, 7."""
    parties = Parties()
    one, two = np.array([1, 9, 0, -7, 2, 8, 0, -1], np.float32), np.array([-4, 0, 1, 6, 2, 1, 3, 5], np.float32)
    kept = [parties.component.sparse(each, None) for each in (one, two)]
    assert [each.tolist() for each in kept] == [[0, 9, 0, -7, 0, 8, 0, 0], [-4, 0, 0, 6, 0, 0, 0, 5]]
    uploads = [parties.upload(number, each) for number, each in enumerate(kept)]
    assert parties.opened(parties.added(uploads)) == [-4, 9, 0, -1, 0, 8, 0, 5]


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=30), st.integers(1, 30))
def test_the_largest_values_are_kept(values: list[int], count: int) -> None:
    sizes = np.abs(values)
    chosen = largest(np.array(values), count)
    assert len(set(chosen.tolist())) == min(count, len(values))
    left = np.delete(sizes, chosen)
    assert not left.size or sizes[chosen].min() >= left.max()


@st.composite
def sparse(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    size = draw(st.integers(1, 70))
    positions = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9, unique=True))
    return size, positions, draw(st.lists(INT64, min_size=len(positions), max_size=len(positions)))


@given(sparse())
def test_two_shares_add_up_to_the_vector(vector: tuple[int, list[int], list[int]]) -> None:
    size, positions, words = vector
    count, expected = len(positions), np.zeros(size, np.int64)
    expected[positions] = words
    *seeds, corrections = points.share(np.array(positions), np.array(words, np.int64), size)
    shares = [points.expand(party, seed, corrections, count, size) for party, seed in enumerate(seeds)]
    assert np.array_equal(shares[0] + shares[1], expected)
    assert len(corrections) == points.key_size(count, size)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(-(2**20), 2**20), min_size=SIZE, max_size=SIZE), min_size=2, max_size=CLIENTS))
def test_the_opened_sum_is_the_plain_sum(updates: list[list[int]]) -> None:
    """Also of a sum of sums."""
    parties = Parties()
    words = [parties.component.sparse(np.array(each, np.float32), None).astype(np.int64) for each in updates]
    uploads = [parties.upload(number, each) for number, each in enumerate(words)]
    expected = np.sum(words, axis=0).tolist()
    assert parties.opened(parties.added(uploads)) == expected
    assert parties.opened(parties.added([parties.added(uploads[:1]), parties.added(uploads[1:])])) == expected


# -- what is hidden ----------------------------------------------------------------------------------------------------


def test_one_share_shows_neither_position_nor_word() -> None:
    """Each of its bits is as often 1 as 0, at the position as elsewhere, and so are the corrections' bits."""
    draws, size = 1000, 6
    ones: dict[str, np.ndarray[Any, Any]] = {}
    for _ in range(draws):
        *seeds, corrections = points.share(np.array([4]), np.array([7]), size)
        found = {str(party): points.expand(party, seed, corrections, 1, size) for party, seed in enumerate(seeds)}
        flips = np.frombuffer(corrections, np.uint8)[:-8].reshape(-1, points.NODE + 2)
        words = np.frombuffer(corrections, np.uint8)[-8:].copy()
        bits = {"seeds": np.unpackbits(flips[:, :16], axis=1, bitorder="little")[:, 1:], "last": np.unpackbits(words)}
        bits |= {party: np.unpackbits(share.view(np.uint8)) for party, share in found.items()}
        for name, each in (bits | {"flips": flips[:, 16:]}).items():
            ones[name] = ones.get(name, 0) + each.astype(np.int64)
    for name, count in ones.items():
        assert np.abs(count - draws / 2).max() < 5.5 * draws**0.5 / 2, name


def test_an_upload_is_as_long_whatever_it_holds() -> None:
    """8 k bytes for the words, 18 k for each of log2(n) levels, two seeds, and the box of one of them."""
    parties = Parties(keep=0.01, size=2410)
    full, empty = (parties.upload(0, np.full(2410, value)) for value in (3, 0))
    sizes = [len(part) for part in full.parts]
    assert sizes == [len(part) for part in empty.parts] == [points.SEED, LETTER + 24 * (8 + 18 * 12)]
    assert sum(sizes) < 0.3 * 8 * 2410


def test_the_key_server_alone_opens() -> None:
    parties, others = Parties(), Parties()
    upload = parties.upload(0, np.arange(SIZE))
    found = parties.component.open_upload(upload, [parties.server, parties.key_server], parties.facts)
    assert found is not None  # the two servers together, as the ledger says
    assert found.words.tolist() == [0, 0, 0, 0, 0, 5, 6, 7]
    assert parties.component.open_upload(upload, [parties.server, others.key_server], parties.facts) is None


def test_a_sum_opens_in_its_round_alone() -> None:
    parties = Parties()
    total = parties.added([parties.upload(number, np.arange(SIZE)) for number in range(2)])
    with pytest.raises(MessageError, match="does not open"):
        parties.component.open(total, parties.key_server, parties.facts.at(1))


def test_a_letter_counts_once() -> None:
    """So that a server that adds one upload twice has a sum of one, which the core compares with what it claims."""
    parties = Parties()
    upload = parties.upload(0, np.arange(SIZE))
    counts = parties.component.open(parties.added([upload, upload]), parties.key_server, parties.facts).counts
    assert counts is not None
    assert counts.tolist() == [1]


@pytest.mark.parametrize("part", [0, 1])
def test_a_cut_upload_is_a_fault_of_its_client(part: int) -> None:
    parties = Parties()
    upload = parties.upload(1, np.arange(SIZE))
    parts = tuple(each[: len(each) - (number == part)] for number, each in enumerate(upload.parts))
    with pytest.raises(MessageError, match=r"has \d+ and \d+ bytes"):
        parties.added([upload.replace(parts=parts)])


# -- whole runs --------------------------------------------------------------------------------------------------------


def test_without_noise_and_with_all_values_it_trains_as_plain_averaging() -> None:
    """Up to the grid, and where no clip acts."""
    everything = {"keep": 1.0, "norm": 1024.0, "noise_multiplier": 0.0}
    names = {f"protect.encrypted.0.{name}": value for name, value in everything.items()}
    plain = {"negotiate_mask.zone": "clear"}
    model = {"data.train_size": 200, "model": {"use": "std.mlp", "hidden": []}}
    shared = run(model | names)
    averaged = run(model | plain, protect={"clear": []}, postprocess={})
    assert np.abs(model_of(shared) - model_of(averaged)).max() < 3 * 1024 * 2.0**-20
    assert np.abs(model_of(averaged)).max() > 0.1


def test_a_round_moves_what_somebody_has_sent() -> None:
    """k of 650 values from each of four clients, so no more than 4 k; and others than k, since the clients differ."""
    sets = {"protect.encrypted.0.noise_multiplier": 0.0, "protect.encrypted.0.keep": 0.02}
    first, second = (model_of(run(sets | {"rounds": rounds})) for rounds in (1, 2))
    assert 13 < np.count_nonzero(second - first) <= 4 * 13


def test_noise_is_paid_for() -> None:
    made = run({})
    assert made.metrics[-1].epsilon == pytest.approx(gaussian_epsilon(2 / 3**0.5, 1e-5), rel=1e-4)  # words are rounded
    views = made.ledger.views
    assert {name for name, view in views.items() if view.epsilon is not None} == {"client", "released_model"}
    assert "single values, in the sum without noise" in {shown.what for shown in made.ledger.reveals}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"protect.encrypted.0.keep": 0}, "keep=0"),
        ({"postprocess": {}}, "nothing opens the sum"),
        ({"negotiate_mask.zone": "noised"}, "encrypted"),
    ],
)
def test_wrong_recipes_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(FedplugError, match=message):
        run(setting)
