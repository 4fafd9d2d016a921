"""Clusters: similar clients together, none too small, noise as stated in the ledger, and bad input refused."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Client, Facts, GroundTruth, Layout, Server, gaussian_delta
from fedplug.api.errors import ProtectionError, TooFewClients
from fedplug.api.links import ballot_states
from fedplug.api.parties import ServerMemory
from fedplug.mechanisms.execution import release
from fedplug_kit.static import check_component
from fedplug_ledger.charging import releases_of
from fedplug_sensecrypt import affinity
from fedplug_sensecrypt.affinity import cluster, distances, merge_small, silhouette
from fedplug_sensecrypt.clusters import Clusters, clip
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.metrics import adjusted_rand_score

RUN = Facts(0, 5, Layout(()), ("clear",), 3, 3, 3, "digest")


def blobs(sizes: list[int], dimensions: int = 50, spread: float = 0.1, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    """Clients of several kinds, and the kind of each."""
    rng = np.random.default_rng(seed)
    centres = rng.random((len(sizes), dimensions))
    truth = [kind for kind, size in enumerate(sizes) for _ in range(size)]
    return (centres[truth] + spread * rng.random((len(truth), dimensions))).astype(np.float32), truth


@dataclasses.dataclass
class FakeClient:
    """The parts of a client that the component needs."""

    scores_by = fedplug.Client.scores_by

    client_id: int
    scores: dict[str, np.ndarray]
    facts: Any
    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    log: dict[str, float] = dataclasses.field(default_factory=dict)

    def memory(self, component: Any) -> dict[str, Any]:
        return self.state

    def release(self, component: Any, values: Any) -> np.ndarray:
        party = Client(client_id=self.client_id)
        party.facts = dataclasses.replace(RUN, round=self.facts.round)
        sent = release(component, component.ballots(party.facts), values, party, party.facts)
        self.log.update(party.log)
        return sent


class FakeCohort:
    """Runs asks at once. Some clients give invalid answers, or none."""

    def __init__(self, clients: list[FakeClient], nonsense: dict[int, Any] | None = None) -> None:
        self.clients, self.nonsense, self.server = clients, nonsense or {}, Server()
        self.sent: dict[int, Any] = {}
        self.dropped: dict[int, str] = {}
        self.groups: dict[str, list[int]] = {}
        self.asked = 0

    def ask(self, method: Any) -> dict[int, Any]:
        self.asked += 1
        self.sent = {client.client_id: method(client) for client in self.clients} | self.nonsense
        self.sent = {client_id: vector for client_id, vector in self.sent.items() if vector is not None}
        return dict(self.sent)

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped[client_id] = reason

    def regroup(self, groups: dict[str, list[int]]) -> None:
        members = sorted(client_id for ids in groups.values() for client_id in ids)
        assert members == list(range(len(self.clients)))
        self.groups = groups


def form(
    vectors: np.ndarray, *, nonsense: dict[int, Any] | None = None, round: int = 0, **options: Any
) -> tuple[FakeCohort, dict[str, float], Clusters]:
    """Runs form_groups. Returns the cohort, the server's log and the component."""
    component = Clusters(Clusters.Options(**options))
    component.name = "sensecrypt.clusters"
    layout = SimpleNamespace(size=vectors.shape[1])
    facts = SimpleNamespace(round=round, layout=layout, num_clients=len(vectors), seed=3)
    clients = [FakeClient(k, {"sensecrypt.sensitivity": vector}, facts) for k, vector in enumerate(vectors)]
    cohort = FakeCohort(clients, nonsense)
    component.form_groups(cohort, facts)  # type: ignore[arg-type]
    return cohort, cohort.server.log, component


def test_conforms() -> None:
    check_component("sensecrypt.clusters")


def test_like_clients_share_a_cluster() -> None:
    vectors, _ = blobs([5, 5, 5, 5])
    cohort, log, _ = form(vectors, epsilon=None, norm=None)
    assert cohort.groups == {f"cluster-{k + 1}": list(range(5 * k, 5 * k + 5)) for k in range(4)}
    assert log["sensecrypt.clusters.clusters"] == 4
    assert log["sensecrypt.clusters.converged"] == 1
    assert log["sensecrypt.clusters.silhouette"] > 0.5
    np.testing.assert_array_equal(cohort.sent[7], vectors[7])  # no noise, no clip


def test_clipping_leaves_the_directions() -> None:
    """A client's progress scales its whole vector. If G is below all norms, it removes that scale."""
    vectors, truth = blobs([5, 5, 5, 5])
    vectors *= np.random.default_rng(1).uniform(0.1, 3, (20, 1)).astype(np.float32)
    labels = []
    for norm in (None, 0.001):
        cohort, _, _ = form(vectors, epsilon=None, norm=norm)
        found = {client_id: name for name, ids in cohort.groups.items() for client_id in ids}
        labels.append([found[k] for k in range(20)])
    assert adjusted_rand_score(truth, labels[0]) < 0.9
    assert adjusted_rand_score(truth, labels[1]) == 1


def test_the_printed_similarity_does_not_find_them() -> None:
    """Maximising the distance, as Sec. 3.1 prints it, misses them. The negative squared distance does not."""
    vectors, truth = blobs([5, 5, 5, 5])
    found = cluster(distances(list(vectors)), 3, as_published=True)
    assert adjusted_rand_score(truth, found.labels) < 0.6
    assert adjusted_rand_score(truth, cluster(distances(list(vectors)), 3).labels) == 1
    form(vectors, epsilon=None, similarity="distance")


@settings(max_examples=60, deadline=None)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=20), least=st.integers(3, 5), seed=st.integers(0, 1000))
def test_no_cluster_is_too_small(labels: list[int], least: int, seed: int) -> None:
    """Item 37: merged clusters are unions of the old ones, and have three members or more."""
    apart = distances(list(np.random.default_rng(seed).random((len(labels), 3))))
    merged = merge_small(np.array(labels), apart, least)
    assert list(dict.fromkeys(merged.tolist())) == list(range(merged.max() + 1))  # numbered by first point
    sizes = np.bincount(merged)
    assert len(sizes) == 1 or sizes.min() >= least
    for label in set(labels):
        assert len({int(m) for m, mine in zip(merged, labels, strict=True) if mine == label}) == 1
    if all(labels.count(label) >= least for label in labels):
        assert adjusted_rand_score(labels, merged) == 1  # nothing to merge


def test_small_clusters_join_the_nearest() -> None:
    places = np.array([0, 0.1, 0.2, 5, 5.1, 9, 9.1, 9.2])  # the pair at 5 is nearer to 9 than to 0
    merged = merge_small(np.array([4, 4, 4, 1, 1, 2, 2, 2]), distances(list(places[:, None])), 3)
    assert merged.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    alone = merge_small(np.array([0, 1]), distances([np.zeros(1), np.ones(1)]), 3)
    assert alone.tolist() == [0, 0]  # two clients are one cluster; min_clients decides whether that suffices


def test_a_lone_client_joins_the_nearest_cluster() -> None:
    """A cluster of one (bad input of the issue)."""
    vectors, _ = blobs([5, 1, 5])
    cohort, log, _ = form(vectors, epsilon=None, norm=100)
    assert len(cohort.groups) == 2
    assert min(map(len, cohort.groups.values())) >= 3
    assert log["sensecrypt.clusters.clusters_before_merging"] > log["sensecrypt.clusters.clusters"]


def test_without_rest_all_are_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_ITERATIONS", 1)
    vectors, _ = blobs([5, 5])
    cohort, log, _ = form(vectors, epsilon=None)
    assert cohort.groups == {"cluster-1": list(range(10))}
    assert log["sensecrypt.clusters.converged"] == 0
    assert "sensecrypt.clusters.silhouette" not in log


def test_equal_clients_are_one_cluster() -> None:
    cohort, log, _ = form(np.ones((6, 4), np.float32), epsilon=None)
    assert cohort.groups == {"cluster-1": list(range(6))}
    assert log["sensecrypt.clusters.converged"] == 1


def test_only_in_the_first_round() -> None:
    cohort, _, _ = form(blobs([3, 3])[0], round=1)
    assert cohort.asked == 0
    assert cohort.groups == {}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (np.zeros(50, np.float64), "float64[50], which must be float32[50]"),
        (np.zeros(7, np.float32), "float32[7], which must be float32[50]"),
        ("all", "is str, which must be"),
        (np.full(50, np.nan, np.float32), "NaN or infinite"),
    ],
)
def test_a_vector_that_cannot_be_costs_its_client_the_round(wrong: Any, reason: str) -> None:
    """The others are clustered. From then on the client belongs to the largest cluster."""
    cohort, log, _ = form(blobs([5, 4, 4])[0], nonsense={12: wrong}, epsilon=None, norm=100)
    assert list(cohort.dropped) == [12]
    assert reason in cohort.dropped[12]
    assert cohort.groups == {"cluster-1": [0, 1, 2, 3, 4, 12], "cluster-2": [5, 6, 7, 8], "cluster-3": [9, 10, 11]}
    assert log["sensecrypt.clusters.unclustered_clients"] == 1


def test_scores_of_layers_cannot_be_clustered() -> None:
    wrong = dict.fromkeys(range(4), np.ones(2, np.float32))
    with pytest.raises(TooFewClients, match=r"must be float32\[50\]\); the scorer must give one a scalar"):
        form(blobs([4])[0], nonsense=wrong, epsilon=None, norm=100)


def test_a_client_that_does_not_answer_joins_the_largest_cluster() -> None:
    cohort, _, _ = form(blobs([5, 4, 4])[0], nonsense={8: None}, epsilon=None, norm=100)
    assert 8 in cohort.groups["cluster-1"]
    assert not cohort.dropped


# -- noise, Alg. 2 -----------------------------------------------------------------------------------------------------


@given(scale=st.floats(1e-3, 1e3), norm=st.floats(0.01, 100), seed=st.integers(0, 1000))
def test_clipped_vectors_are_no_longer_than_the_bound(scale: float, norm: float, seed: int) -> None:
    """Item 17, Alg. 2, line 2."""
    gamma = (scale * np.random.default_rng(seed).random(30)).astype(np.float32)
    clipped, length = clip(gamma, norm), float(np.linalg.norm(gamma.astype(np.float64)))
    assert clipped.dtype == np.float32
    assert np.linalg.norm(clipped.astype(np.float64)) <= norm
    np.testing.assert_allclose(clipped, gamma / max(1, length / norm), rtol=1e-5)
    if length <= norm:
        np.testing.assert_array_equal(clipped, gamma)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_analytic_noise_is_exact_for_a_replaced_client(epsilon: float) -> None:
    """A replaced client moves the vector by 2G. The delta at epsilon is exactly the requested one."""
    component = Clusters(Clusters.Options(norm=3.0, epsilon=epsilon))
    assert gaussian_delta(epsilon, component.stddev() / (2 * 3.0)) == pytest.approx(1e-5, rel=1e-6)


def test_literal_noise_is_the_printed_formula() -> None:
    """App. G: sqrt(2 ln(1.25/delta)) / epsilon, for sensitivity G; 48.45 at epsilon 0.1."""
    component = Clusters(Clusters.Options(norm=2.0, epsilon=0.1, calibration="classical"))
    assert component.stddev() / 2.0 == pytest.approx(48.45, abs=0.005)
    assert Clusters(Clusters.Options(norm=1.0, epsilon=0.1)).stddev() == pytest.approx(2 * 30.75, abs=0.01)
    stated = release_of(component)
    assert stated.as_published
    assert stated.noise_multiplier == pytest.approx(48.45, abs=0.005)


def release_of(component: Clusters) -> Any:
    """The release of round 1's vectors in the ledger."""
    made, _ = ballot_states("vectors", component.ballots(RUN), RUN)
    (found,) = releases_of("vectors", made)
    return found


def test_what_is_sent_carries_the_noise_of_the_ledger() -> None:
    """Items 18 and 40: the standard deviation on the wire is multiplier times norm."""
    vectors = np.random.default_rng(0).random((3, 20_000)).astype(np.float32)
    cohort, _, component = form(vectors, epsilon=4.0, norm=0.5)
    stated = release_of(component)
    assert (stated.mechanism, stated.trust, stated.source) == ("gaussian", "local", "secure")
    assert component.ballots(RUN.at(1)) == ()
    std = stated.noise_multiplier * stated.clipping_norm
    noise = np.stack([cohort.sent[k].astype(np.float64) - clip(vectors[k], 0.5) for k in range(3)])
    assert all(cohort.sent[k].dtype == np.float32 for k in range(3))
    # chi-square of 60,000 samples: a relative standard deviation of 1/sqrt(120,000) = 0.3%
    assert noise.std() == pytest.approx(std, rel=0.02)
    assert abs(np.corrcoef(noise)[np.triu_indices(3, 1)]).max() < 0.05


def test_without_noise_vectors_cost_nothing_that_can_be_counted_and_void_every_guarantee() -> None:
    component = Clusters(Clusters.Options(epsilon=None))
    assert component.ballots(RUN) == ()
    shown = {each.what: each for each in component.reveals(None)}  # type: ignore[arg-type]
    assert {what: (each.covered_by, each.voids) for what, each in shown.items()} == {
        "sensitivity vectors": (None, True), "clusters": (None, False),
    }  # fmt: skip
    assert shown["sensitivity vectors"].asked == ("vector",)
    noised = Clusters(Clusters.Options()).reveals(None)  # type: ignore[arg-type]
    assert {each.what: (each.covered_by, each.voids) for each in noised} == {
        "noised sensitivity vectors": ("epsilon", False), "clusters": ("epsilon", False),
    }  # fmt: skip
    assert noised[0].asked == ("vector",)


def test_a_vector_is_sent_once() -> None:
    """A server that asks again could average the noise away."""
    component = Clusters(Clusters.Options())
    component.name = "sensecrypt.clusters"
    client = FakeClient(0, {"s": np.ones(4, np.float32)}, SimpleNamespace(round=0))
    component.vector(client)  # type: ignore[arg-type]
    with pytest.raises(ProtectionError, match="once, in round 1"):
        component.vector(client)  # type: ignore[arg-type]
    late = FakeClient(1, {"s": np.ones(4, np.float32)}, SimpleNamespace(round=1))
    with pytest.raises(ProtectionError, match="once, in round 1"):
        component.vector(late)  # type: ignore[arg-type]


def test_a_diverged_client_says_so() -> None:
    with pytest.raises(ProtectionError, match="lower lr"):
        clip(np.array([1, np.inf], np.float32), 1.0)


# -- facts and options -------------------------------------------------------------------------------------------------


def test_adjusted_rand_index_against_the_truth() -> None:
    component = Clusters(Clusters.Options())
    component.name = "c"
    groups = {"cluster-1": [0, 1, 2], "cluster-2": [3, 4, 5]}
    server = Server(state={"c": {"facts": {"clusters": 2.0}}}, remembered=ServerMemory(groups=groups))
    right, wrong, unknown = (
        GroundTruth(classes=[], examples={}, categories=categories)
        for categories in ([7, 7, 7, 2, 2, 2], [0, 1, 0, 1, 0, 1], None)
    )
    assert component.assess(server, right) == {"clusters": 2.0, "adjusted_rand_index": 1.0}
    assert component.assess(server, wrong)["adjusted_rand_index"] < 0.1
    assert component.assess(server, unknown) == {"clusters": 2.0}
    assert component.assess(Server(), right) == {}


def test_silhouette_is_that_of_the_paper() -> None:
    """Eq. 10 by hand: two pairs on a line."""
    apart = distances([np.array([x]) for x in (0.0, 1.0, 10.0, 12.0)])
    expected = np.mean([(11 - 1) / 11, (10 - 1) / 10, (9.5 - 2) / 9.5, (11.5 - 2) / 11.5])
    assert silhouette(apart, np.array([0, 0, 1, 1])) == pytest.approx(expected)
    assert silhouette(apart, np.zeros(4, np.int64)) is None
    assert silhouette(apart, np.arange(4)) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_cluster": 2}, "min_cluster=2 must be 3 or more"),
        ({"epsilon": 0}, "greater than 0"),
        ({"norm": 0}, "greater than 0"),
        ({"norm": None}, "noise is scaled to a norm: write norm: 0.001, or epsilon: null"),
        ({"delta": 1}, "less than 1"),
        ({"damping": 0.4}, "greater than or equal to 0.5"),
    ],
)
def test_options_have_bounds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Clusters.Options(**options)


def test_recipes_that_cannot_work_are_refused() -> None:
    def problems(**changes: Any) -> list[str]:
        plain = {"score_parameters": [SimpleNamespace(name="s")], "clients": 20, "min_clients": 3, "sampling": None}
        return Clusters(Clusters.Options(by=changes.pop("by", None))).check(SimpleNamespace(**{**plain, **changes}))

    assert problems() == []
    assert "add score_parameters" in problems(score_parameters=[])[0]
    assert "'x' is not a scorer" in problems(by="x")[0]
    assert "min_clients=2 must be 3 or more" in problems(min_clients=2)[0]
    assert "fewer than min_cluster=3" in problems(clients=2)[0]
    assert "remove sampling" in problems(sampling=object())[0]
    assert math.isclose(Clusters(Clusters.Options(epsilon=None)).stddev(), 0)
