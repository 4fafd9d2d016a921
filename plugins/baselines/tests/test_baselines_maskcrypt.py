"""MaskCrypt: its consensus on worked lists, its priorities by hand, and the estimate of what is exposed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug import Block, FixedPoint, Known, Layout, Misplaced, Plan, Seal
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.maskcrypt import MaskCrypt, interleave, proposal_problem
from fedplug_baselines.maskcrypt_priority import MaskCryptPriority
from hypothesis import given, settings
from hypothesis import strategies as st
from link_toys import passed
from toy_components import recipe_of
from toy_protocol import initial_vector, run_protocol, weights_of

PRIORITY = "baselines.maskcrypt_priority"


def recipe(ratio: float = 0.2, *, union: bool = False, by: str = PRIORITY, **changes: Any) -> dict[str, Any]:
    seal = {"use": "std.bfv", "key_holder": "clients"}
    return recipe_of(
        negotiate_mask={"use": "baselines.maskcrypt", "ratio": ratio, "union": union},
        score_parameters=[{"use": by}],
        protect={"encrypted": [seal], "clear": [by] if by == PRIORITY else []},
        postprocess={"encrypted": ["std.bfv"]},
    ) | changes  # fmt: skip


def lists(*proposals: list[int]) -> list[Any]:
    return [np.array(proposal, np.uint32) for proposal in proposals]


# -- consensus ---------------------------------------------------------------------------------------------------------


def test_lists_are_interleaved_and_the_first_distinct_indices_kept() -> None:
    distinct = interleave(lists([5, 3, 1], [3, 4, 5], [9, 5, 3]))
    assert distinct.tolist() == [5, 3, 9, 4, 1]  # from 5 3 9 | 3 4 5 | 1 5 3
    assert distinct[:3].tolist() == [5, 3, 9]


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=12), max_size=5))
def test_interleaving_is_that_of_a_loop(proposals: list[list[int]]) -> None:
    """Lists of any length: empty ones, equal ones, and those that share nothing."""
    expected: list[int] = []
    for rank in range(12):
        for proposal in proposals:
            if rank < len(proposal) and proposal[rank] not in expected:
                expected.append(proposal[rank])
    assert interleave(lists(*proposals)).tolist() == expected


@settings(max_examples=examples(100))
@given(st.integers(1, 6), st.integers(0, 10), st.randoms(use_true_random=False))
def test_the_kept_are_a_prefix_of_the_distinct_and_as_many_as_proposed(clients: int, count: int, chance: Any) -> None:
    """Spec 32: at most `count` of any client, so at least `count` distinct where there is a client."""
    distinct = interleave(lists(*(chance.sample(range(25), count) for _ in range(clients))))
    assert len(distinct[:count]) == count <= len(distinct) <= clients * count
    assert len(np.unique(distinct)) == len(distinct)


def test_equal_proposals_give_that_set() -> None:
    """Spec 32."""
    proposal = [7, 2, 9, 4]
    assert interleave(lists(proposal, proposal, proposal)).tolist() == proposal


def test_a_proposal_of_nothing_one_of_everything_and_one_that_nobody_shares() -> None:
    assert interleave([]).tolist() == interleave(lists([], [])).tolist() == []
    assert interleave(lists([], [3, 1])).tolist() == [3, 1]
    everything = list(range(6))
    assert sorted(interleave(lists(everything, everything[::-1])).tolist()) == everything
    assert interleave(lists([0, 1], [2, 3], [4, 5]))[:2].tolist() == [0, 2]  # the first of the first clients


@pytest.mark.parametrize(("proposal", "problem"), [
    ([0, 1], "not a list of uint32"),
    (np.array([0, 1], np.int64), "not a list of uint32"),
    (np.zeros((2, 1), np.uint32), "not a list of uint32"),
    (np.array([1], np.uint32), "has 1 indices, must be 2"),
    (np.array([1, 8], np.uint32), "index 8 of 8"),
    (np.array([1, 1], np.uint32), "twice"),
    (np.array([1, 7], np.uint32), ""),
])  # fmt: skip
def test_a_proposal_is_checked_before_it_is_used(proposal: Any, problem: str) -> None:
    found = proposal_problem(proposal, 8, 2)
    assert problem in found if problem else found == ""


def test_a_client_proposes_its_highest_scores_in_order(make_client: Any) -> None:
    component = MaskCrypt(MaskCrypt.Options(ratio=0.5))
    scores = np.array([0.1, -3.0, 0.4, 0.4, 7.0, 0.1], np.float32)
    client = make_client(Layout.of([("w", (6,))]), scores={"any": scores})
    assert component.propose(client).tolist() == [4, 2, 3]
    client.scores["any"][2] = np.nan
    with pytest.raises(ProtectionError, match="1 of 6 scores are NaN"):
        component.propose(client)


def test_a_client_may_propose_its_lowest_scores_instead(make_client: Any) -> None:
    client = make_client(Layout.of([("w", (6,))]), scores={PRIORITY: np.array([0.5, -2, 3, 0.5, 9, 0], np.float32)})
    component = MaskCrypt(MaskCrypt.Options(ratio=0.5, by=PRIORITY, order="lowest"))
    assert component.propose(client).tolist() == [1, 5, 0]
    assert "50.0% of the lowest scores" in component.describe()
    assert "lowest" not in MaskCrypt(MaskCrypt.Options()).describe()


def test_scores_of_layers_count_for_their_scalars(make_client: Any) -> None:
    component = MaskCrypt(MaskCrypt.Options(ratio=0.5))
    layout = Layout.of([("a.w", (2,)), ("b.w", (3,)), ("a.bias", (1,))])
    client = make_client(layout, scores={"any": np.array([2.0, 1.0], np.float32)})
    assert component.propose(client).tolist() == [0, 1, 5]


# -- priorities --------------------------------------------------------------------------------------------------------


def priority() -> MaskCryptPriority:
    component = MaskCryptPriority(MaskCryptPriority.Options())
    component.name = PRIORITY
    return component


def test_the_priority_is_the_missing_knowledge_times_the_gradient(make_client: Any, monkeypatch: Any) -> None:
    gradient = np.array([1.0, -2.0, 0.5], np.float32)
    looked_at = []

    def mean_gradient(model: Any, examples: Any, data: Any, *, vector: Any) -> Any:
        looked_at.append(vector)
        return gradient

    monkeypatch.setattr("fedplug_baselines.maskcrypt_priority.mean_gradient", mean_gradient)
    start, update = np.array([1.0, 1.0, 1.0], np.float32), np.array([0.5, 0.25, -1.0], np.float32)
    data = SimpleNamespace(train=None)
    client = make_client(Layout.of([("w", (3,))]), vector=start, update=update, data=data, model=None)
    scores = priority().score_parameters(client, client.facts)
    # Before the first upload the adversary knows the initial model: exposed - latest = -update.
    assert scores.tolist() == [-0.5, 0.5, 0.5]
    assert looked_at[0].tolist() == [1.5, 1.25, 0.0]  # the local model


def test_what_goes_out_in_the_clear_is_exposed_and_then_its_mean(make_client: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("fedplug_baselines.maskcrypt_priority.mean_gradient", lambda *_, **__: np.ones(4, np.float32))
    component, layout = priority(), Layout.of([("w", (4,))])
    client = make_client(layout, data=SimpleNamespace(train=None), model=None)
    rounds = [  # update, encrypted, global model after the round
        ([1, 1, 1, 1], [0], [10, 20, 30, 40]),
        ([2, 2, 2, 2], [1], [11, 21, 31, 41]),
        ([3, 3, 3, 3], [0, 1, 2, 3], [12, 22, 32, 42]),
    ]
    expected = [
        [0, 0, 0, 0],  # the initial model
        [0, 20, 30, 40],  # 0 stays hidden
        [11, 20, 31, 41],  # 1 is known from the round before
        [11, 20, 31, 41],  # all was encrypted
    ]
    known = []
    for round, (update, sealed, after) in enumerate(rounds):
        client.facts = make_client(layout, round=round).facts
        client.update = np.array(update, np.float32)
        scores = component.score_parameters(client, client.facts)
        assert np.array_equal(scores, component.exposed(client) - client.local)
        known.append(component.exposed(client).tolist())
        client.plan = Plan.of(client.facts, "clear", encrypted=np.array(sealed))
        where = client.plan.positions("clear")
        if len(where):
            block = Block("clear", len(where), client.update[where])
            assert passed(block, client, component) is block
            assert component.exposed(client)[where].tolist() == (client.vector + client.update)[where].tolist()
        client.vector, client.update = np.array(after, np.float32), None
    client.facts = make_client(layout, round=3).facts
    known.append(component.exposed(client).tolist())
    assert known == expected


def test_a_client_that_was_away_does_not_take_later_aggregates_for_exposed(make_client: Any) -> None:
    component, layout = priority(), Layout.of([("w", (2,))])
    client = make_client(layout, round=5, vector=np.array([8, 9], np.float32))
    exposed, seen = np.array([1, 2], np.float32), np.packbits(np.array([True, True]))
    client.memory(component).update(exposed=exposed, seen=seen, round=2)
    assert component.exposed(client).tolist() == [1, 2]
    client.memory(component)["round"] = 4
    assert component.exposed(client).tolist() == [8, 9]


def test_scores_need_a_trained_model(make_client: Any) -> None:
    client = make_client(Layout.of([("w", (2,))]))
    with pytest.raises(ValueError, match="has not trained"):
        priority().score_parameters(client, client.facts)


def test_the_recipe_must_let_it_hear_what_is_exposed() -> None:
    chains = {"encrypted": [{"use": "std.bfv"}], "clear": []}
    with pytest.raises(RecipeError, match=r"does not hear what zone clear exposes.*last in protect.clear"):
        Recipe.from_plain(recipe(protect=chains))
    noised = {"encrypted": [{"use": "std.bfv"}], "noised": [PRIORITY, {"use": "std.clip", "norm": 1.0}]}
    negotiation = {"use": "baselines.maskcrypt", "other_zone": "noised"}
    with pytest.raises(RecipeError, match="does not hear what zone noised exposes"):
        Recipe.from_plain(recipe(protect=noised, negotiate_mask=negotiation))


@pytest.mark.parametrize("changes", [
    {"score_parameters": []}, {"negotiate_mask": {"use": "baselines.maskcrypt", "by": "std.random"}},
])  # fmt: skip
def test_something_must_score(changes: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"scores|not a scorer of this recipe"):
        Recipe.from_plain(recipe(by="std.magnitude", **changes))


# -- as a whole --------------------------------------------------------------------------------------------------------


def test_the_sum_is_that_of_fedavg_whatever_is_encrypted() -> None:
    plain = recipe(train={"use": "toy.push"}, rounds=1)
    fedavg = run_protocol(recipe_of(train={"use": "toy.push"}, rounds=1))
    selected = run_protocol(plain)
    assert weights_of(selected) == weights_of(fedavg)
    step = 1 / (2**17 - 1)
    difference = np.abs(selected.vector - fedavg.vector)
    assert 0 < np.count_nonzero(difference > 1e-7) <= 130  # the encrypted ones are rounded, the others are not
    assert difference.max() < 4 * step
    assert np.abs(fedavg.vector - initial_vector(plain)).max() > 100 * step


@pytest.mark.parametrize("union", [False, True])
def test_the_share_is_that_of_the_recipe_unless_all_are_kept(union: bool) -> None:
    outcome = run_protocol(recipe(0.2, union=union))
    sizes = [round(row.zones["encrypted"] * 650) for row in outcome.rows]
    assert all(130 < size < 4 * 130 for size in sizes) if union else sizes == [130, 130]


def test_both_engines_agree() -> None:
    plain = recipe(0.2)
    assert np.array_equal(run_protocol(plain).vector, run_protocol(plain, "processes", workers=1).vector)


def test_proposals_are_covered_by_a_statement_and_the_listener_changes_nothing(make_client: Any) -> None:
    outcome = run_protocol(recipe(0.2, rounds=1))
    assert not outcome.protocol.ledger.uncovered
    known = Known(zone="clear", link=PRIORITY, layers=(6,))
    facts = make_client(Layout(())).facts
    assert known.after(*priority().protect(known, facts)) == known
    sealed = known.after(Seal(scheme="x", opened_by="clients", numbers=FixedPoint(1.0, 0.0)))
    with pytest.raises(Misplaced, match="what is encrypted exposes nothing"):
        priority().protect(sealed, facts)
    assert not outcome.protocol.facts(0).plans_are_public


def test_ratio_0_and_1_ask_nobody() -> None:
    everything = run_protocol(recipe(1.0, by="std.magnitude", protect={"encrypted": [{"use": "std.bfv"}]}))
    sealed = recipe_of("encrypted", [{"use": "std.bfv"}])
    assert np.array_equal(everything.vector, run_protocol(sealed).vector)
    assert not any("propose" in str(m.decode().get("calls")) for m in everything.sent(sender="server"))
