"""Random regular graphs, and their degree and threshold next to exact fractions and the authors' own figures."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_secagg import graph
from hypothesis import given, settings
from hypothesis import strategies as st

SEED = bytes(range(32))


@settings(max_examples=examples(60))
@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=60, unique=True), st.integers(1, 40), st.randoms())
def test_a_graph_is_regular_symmetric_and_the_same_for_every_party(ids, half, random):
    drawn = graph.draw(ids, 2 * half, SEED)
    assert graph.draw(random.sample(ids, len(ids)), 2 * half, SEED) == drawn
    assert list(drawn) == sorted(ids)
    for each, neighbours in drawn.items():
        assert len(set(neighbours)) == len(neighbours) == min(2 * half, len(ids) - 1)
        assert each not in neighbours
        assert list(neighbours) == sorted(neighbours)
        assert all(each in drawn[other] for other in neighbours)


def test_another_seed_gives_another_graph_and_neighbours_are_spread_evenly():
    assert graph.draw(range(50), 4, SEED) != graph.draw(range(50), 4, bytes(32))
    counts = np.zeros(50)
    for at in range(1000):
        counts[list(graph.draw(range(50), 6, at.to_bytes(32, "little"))[7])] += 1
    mean = 6 * 1000 / 49
    assert counts[7] == 0
    assert abs(np.delete(counts, 7) - mean).max() < 5 * mean**0.5


def test_the_order_of_a_seed_never_changes():
    # Parties of different versions must compute the same graph.
    pinned = {0: (2, 4), 1: (5, 7), 2: (0, 6), 3: (6, 7), 4: (0, 5), 5: (1, 4), 6: (2, 3), 7: (1, 3)}
    assert graph.draw(range(8), 2, SEED) == pinned


@pytest.mark.parametrize(("degree", "message"), [(3, "must be even"), (0, "must be even and >= 2")])
def test_a_degree_that_no_ring_has(degree, message):
    with pytest.raises(ProtectionError, match=message):
        graph.draw(range(9), degree, SEED)


def test_a_client_named_twice():
    with pytest.raises(ProtectionError, match="named twice"):
        graph.draw([1, 1, 2], 2, SEED)


def _log_tail(population: int, marked: int, draws: int, least: int) -> float:
    ways = sum(math.comb(marked, x) * math.comb(population - marked, draws - x) for x in range(least, draws + 1))
    chance = Fraction(ways, math.comb(population, draws))
    # Logs of big integers, since the fraction may be below the smallest float.
    return math.log(chance.numerator) - math.log(chance.denominator) if chance else -math.inf


@pytest.mark.parametrize(("population", "marked", "draws"), [(99, 30, 40), (20, 0, 5), (20, 20, 5), (500, 3, 100)])
def test_tails_are_those_of_exact_fractions(population, marked, draws):
    found, below = graph._at_least(population, marked, draws), graph._below(population, marked, draws)
    for least in range(draws + 1):
        assert found[least] == pytest.approx(_log_tail(population, marked, draws, least), abs=1e-10)
        # Fewer than `least` marked are more than draws - least unmarked.
        other = _log_tail(population, population - marked, draws, draws - least + 1)
        assert below[least] == pytest.approx(other, abs=1e-10)


def test_tails_of_a_hundred_million_clients():
    hypergeom = pytest.importorskip("scipy.stats").hypergeom
    found = graph._at_least(10**8, 2 * 10**7, 178)
    for least in (40, 60, 92):
        assert found[least] == pytest.approx(float(hypergeom(10**8, 2 * 10**7, 178).logsf(least - 1)), abs=1e-4)


@pytest.mark.parametrize(("clients", "missing", "degree"), [(10, 2, 2), (12, 4, 4), (12, 5, 4), (14, 7, 6)])
def test_the_bound_on_falling_apart_holds_and_is_near(clients, missing, degree):
    ring = {at: {(at + away) % clients for away in range(-degree // 2, degree // 2 + 1)} for at in range(clients)}
    apart = total = 0
    for gone in itertools.combinations(range(clients), missing):
        left = set(range(clients)) - set(gone)
        reached, new = set(), {min(left)}
        while new:
            reached |= new
            new = set().union(*(ring[at] for at in new)) & left - reached
        apart, total = apart + (reached != left), total + 1
    assert (
        apart / total
        <= (1 + 1e-9) * math.exp(graph._disconnected(clients, missing, degree))
        <= 3 * apart / total + 1e-9
    )


def test_no_smaller_degree_and_no_smaller_threshold_would_do():
    found = graph.smallest(200, 0.1, 0.2, 40, 30)
    assert found.log2_insecure <= -40
    assert found.log2_incorrect <= -30
    for degree in range(2, found.degree, 2):
        assert graph._with_degree(200, 20, 40, degree, 40, 30) is None
    tail = _log_tail(199, 20, found.degree, found.threshold) + math.log(200)
    less = _log_tail(199, 20, found.degree, found.threshold - 1) + math.log(200)
    assert tail / math.log(2) <= -40 < less / math.log(2)


# Degree and threshold in fcp/secagg/server/graph_parameter_finder_test.cc of google-parfait/federated-compute, which
# has sigma = 40, eta = 20, splits 2^-sigma evenly between E1 and E2, and draws from n clients and not from the others.
AUTHORS = [
    (100, 0.45, 0.45, 92, 46),
    (1000, 0.45, 0.45, 822, 417),
    (10, 0.33, 0.33, 8, 4),
    (100, 0.33, 0.33, 68, 34),
    (1000, 0.33, 0.33, 286, 150),
    (10**4, 0.33, 0.33, 422, 221),
    (10**5, 0.33, 0.33, 480, 251),
    (10**6, 0.33, 0.33, 518, 270),
    (10**4, 0.05, 0.33, 86, 29),
    (10**6, 0.05, 0.33, 102, 34),
    (10**4, 0.33, 0.05, 92, 70),
    (10**6, 0.33, 0.05, 110, 83),
    (1000, 0.05, 0.05, 30, 17),
    (10**6, 0.05, 0.05, 38, 22),
    (10**4, 0.33, 0.0, 42, 40),
]


@pytest.mark.parametrize(("clients", "corrupt", "dropped", "degree", "threshold"), AUTHORS)
def test_degrees_are_those_of_the_authors_or_a_little_less(clients, corrupt, dropped, degree, threshold):
    found = graph.smallest(clients, corrupt, dropped, 40, 20)
    assert 0.96 * degree <= found.degree <= degree
    assert 0.96 * threshold - 1 <= found.threshold <= threshold


def test_degrees_grow_with_the_logarithm_of_the_clients():
    # A fifth corrupt and a fifth gone.
    degrees = [graph.smallest(10**power, 0.2, 0.2).degree for power in range(3, 9)]
    assert degrees == sorted(degrees)
    assert 100 <= degrees[1] <= 150
    assert degrees[-1] < 300


def test_few_clients_mask_with_all_others():
    found = graph.smallest(10, 0.4, 0.4)
    assert (found.degree, found.threshold) == (9, 5)
    assert found.describe() == "masks with all others, 5 shares open; insecure never, stuck never"
    assert "of 9999 others" in graph.smallest(10**4, 0.2, 0.2).describe()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 1.0, 0.0), "corrupt=1.0 must be a share"),
        ((10, 0.1, -0.1), "dropped=-0.1 must be a share"),
        ((2, 0.0, 0.0), "2 clients cannot hide"),
        ((10, 0.5, 0.4), "fewer than two honest"),
        ((3, 0.0, 0.34), "no threshold t of 2 shares is secure and correct: t >= 2 with 0 corrupt"),
    ],
)
def test_shares_of_clients_with_which_no_graph_holds(arguments, message):
    with pytest.raises(ProtectionError, match=message):
        graph.smallest(*arguments)
