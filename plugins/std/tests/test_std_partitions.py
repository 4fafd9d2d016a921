"""Partitions are disjoint and complete, leave nobody empty, and have the skew their options promise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import DataError
from fedplug_std.partitions import ByUser, Categories, ClassesPerClient, Dirichlet, Iid
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError


def labels_of(counts: list[int], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def assign(component: Any, labels: np.ndarray[Any, Any], clients: int, seed: int = 0, **options: Any) -> list[Any]:
    parts = component(component.Options(**options)).assign(labels, clients, np.random.default_rng(seed))
    return list(parts)


def check_complete(parts: list[Any], count: int, clients: int) -> None:
    assert len(parts) == clients
    assert all(len(part) and part.dtype == np.int64 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(count))


@settings(max_examples=examples(60), deadline=None)
@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(lambda c: sum(c) > 0),
    clients=st.integers(1, 30),
    seed=st.integers(0, 2**32),
    alpha=st.sampled_from([1e-3, 0.1, 0.5, 10.0, 1e6]),
    need=st.integers(1, 12),
)
def test_iid_and_dirichlet_are_partitions(counts: list[int], clients: int, seed: int, alpha: float, need: int) -> None:
    labels = labels_of(counts)
    if len(labels) < clients:
        with pytest.raises(DataError, match="fewer clients"):
            assign(Iid, labels, clients, seed)
        return
    parts = assign(Iid, labels, clients, seed)
    check_complete(parts, len(labels), clients)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    if len(labels) < clients * need:
        with pytest.raises(DataError, match="fewer clients"):
            assign(Dirichlet, labels, clients, seed, alpha=alpha, min_examples=need)
        return
    parts = assign(Dirichlet, labels, clients, seed, alpha=alpha, min_examples=need)
    check_complete(parts, len(labels), clients)
    assert min(map(len, parts)) >= need


def test_partitions_follow_their_generator_alone() -> None:
    labels = labels_of([100] * 10)
    for component in (Iid, Dirichlet, ClassesPerClient):
        one, two, other = (assign(component, labels, 10, seed) for seed in (1, 1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_dirichlet_skew_follows_alpha() -> None:
    """A client's share of a class is Beta(alpha, (K-1) alpha): variance (K-1) / (K^2 (K alpha + 1))."""
    labels, clients = labels_of([2000] * 10), 10
    for alpha in (0.5, 5.0, 500.0):
        shares = np.concatenate(
            [
                np.bincount(labels[part], minlength=10) / 2000
                for seed in range(12)
                for part in assign(Dirichlet, labels, clients, seed, alpha=alpha, min_examples=1)
            ]
        )
        assert shares.mean() == pytest.approx(0.1)
        expected = (clients - 1) / (clients**2 * (clients * alpha + 1))
        assert shares.var() == pytest.approx(expected, rel=0.2)


def test_dirichlet_repairs_what_no_draw_achieves() -> None:
    labels = labels_of([300, 300])
    parts = assign(Dirichlet, labels, 60, alpha=1e-3, min_examples=10)  # exactly 10 each is the only solution
    check_complete(parts, 600, 60)
    assert {len(part) for part in parts} == {10}


@settings(max_examples=examples(60), deadline=None)
@given(classes=st.integers(1, 10), clients=st.integers(1, 20), k=st.integers(1, 10), seed=st.integers(0, 2**32))
def test_classes_per_client(classes: int, clients: int, k: int, seed: int) -> None:
    labels = labels_of([40] * classes) * 3  # labels need not be 0, 1, 2, ...
    if k > classes or clients * k < classes:
        with pytest.raises(DataError, match="at most"):
            assign(ClassesPerClient, labels, clients, seed, k=k)
        return
    parts = assign(ClassesPerClient, labels, clients, seed, k=k)
    check_complete(parts, len(labels), clients)
    held = [np.unique(labels[part]) for part in parts]
    assert all(len(own) == k for own in held)
    holders = np.unique(np.concatenate(held), return_counts=True)[1]
    assert holders.max() - holders.min() <= 1


def test_classes_per_client_says_who_gets_nothing() -> None:
    with pytest.raises(DataError, match=r"clients \[[\d, ]+\] get no example"):
        assign(ClassesPerClient, labels_of([1, 50]), 5, k=1)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_classes_per_client_may_leave_a_few_examples_of_every_other_class(k: int) -> None:
    labels = labels_of([60] * 5)
    parts = assign(ClassesPerClient, labels, 10, k=k, others=2)
    check_complete(parts, len(labels), 10)
    counts = np.array([np.bincount(labels[part], minlength=5) for part in parts])
    assert (np.sort(counts)[:, : 5 - k] == 2).all()
    holders = 2 * k  # of each class
    assert (np.sort(counts, axis=0)[-holders:].sum(0) == 60 - 2 * (10 - holders)).all()
    with pytest.raises(DataError, match=r"class 1 has 9 examples, but others=1 gives 1 to each of 8 .* lower others"):
        assign(ClassesPerClient, labels_of([60, 9, 60, 60, 60]), 10, k=1, others=1)


@pytest.mark.parametrize(
    ("component", "options"),
    [(Dirichlet, {"alpha": 0}), (Dirichlet, {"min_examples": 0}), (ClassesPerClient, {"k": 0}), (Iid, {"alpha": 1})],
)
def test_options_out_of_range_are_refused(component: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        component.Options(**options)


@settings(max_examples=examples(60), deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=10),
    categories=st.integers(1, 5),
    each=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_categories_share_no_class_and_are_iid_inside(counts: list[int], categories: int, each: int, seed: int) -> None:
    labels, clients = labels_of(counts), categories * each
    if len(counts) < categories:
        with pytest.raises(DataError, match="lower categories"):
            assign(Categories, labels, clients, seed, categories=categories)
        return
    if min(sum(part) for part in np.array_split(counts, categories)) < each:
        with pytest.raises(DataError, match="fewer clients"):
            assign(Categories, labels, clients, seed, categories=categories)
        return
    parts = assign(Categories, labels, clients, seed, categories=categories)
    check_complete(parts, len(labels), clients)
    truth = Categories(Categories.Options(categories=categories)).categories(clients)
    assert [truth.count(category) for category in range(categories)] == [each] * categories
    held = [
        {int(label) for client in range(clients) if truth[client] == category for label in labels[parts[client]]}
        for category in range(categories)
    ]
    assert sum(map(len, held)) == len(set().union(*held)) == len(counts)  # every class in exactly one category
    for category in range(categories):
        sizes = [len(parts[client]) for client in range(clients) if truth[client] == category]
        assert max(sizes) - min(sizes) <= 1


def test_categories_of_the_paper() -> None:
    """Sec. 4.1: 20 clients in 4 categories; of ten equal classes each client has its category's in equal parts."""
    labels = labels_of([500] * 10)
    parts = assign(Categories, labels, 20, categories=4)
    truth = Categories(Categories.Options(categories=4)).categories(20)
    assert truth == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    assert np.unique(labels[parts[0]]).tolist() == [0, 1, 2]
    assert np.unique(labels[parts[19]]).tolist() == [8, 9]
    mix = np.bincount(labels[parts[0]], minlength=10)[:3]
    np.testing.assert_allclose(mix, 100, atol=30)  # iid: about a fifth of each class


def test_categories_must_divide_the_clients() -> None:
    with pytest.raises(DataError, match=r"10 clients do not divide into categories=4 equal ones; .* \[1, 2, 5, 10\]"):
        assign(Categories, labels_of([50] * 10), 10, categories=4)
    problems = Categories(Categories.Options(categories=4)).check(SimpleNamespace(clients=10))
    assert len(problems) == 1
    assert "or clients to 12" in problems[0]
    assert Categories(Categories.Options(categories=4)).check(SimpleNamespace(clients=12)) == []
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Categories.Options(categories=0)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99)
)
@settings(max_examples=examples(60), deadline=None)
def test_the_examples_of_a_user_are_at_as_few_clients_as_is_said(
    users: list[int], clients: int, most: int, seed: int
) -> None:
    labels = np.array(users, np.int64)
    split = ByUser(ByUser.Options(clients_per_user=most))
    if len({*users}) < clients:
        with pytest.raises(DataError, match="users are too few"):
            split.assign(labels, clients, np.random.default_rng(seed))
        return
    parts = split.assign(labels, clients, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(users)))
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts)
    homes = [{client for client, part in enumerate(parts) if user in labels[part]} for user in {*users}]
    assert max(map(len, homes)) <= most
    again = split.assign(labels, clients, np.random.default_rng(seed))
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


def test_users_that_nobody_named_cannot_be_kept_together() -> None:
    with pytest.raises(DataError, match="give train_users with the arrays"):
        ByUser(ByUser.Options()).assign(None, 2, np.random.default_rng(0))
