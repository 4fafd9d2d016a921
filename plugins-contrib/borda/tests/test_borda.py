"""An example of a plugin's tests: conformance, a worked example, properties, and one real run."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

import fedplug
import fedplug_borda.layers
import numpy as np
import pytest
from fedplug import Client, Facts, FedplugError, Layout
from fedplug_borda.layers import Layers, borda_points, choose, layer_means, layer_sizes
from fedplug_kit import conformance
from fedplug_runs.execution import start
from fedplug_runs.folder import read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from hypothesis import given
from hypothesis import strategies as st

RECIPE = Path(__file__).parents[1] / "src/fedplug_borda/recipes/borda-layers.yaml"
LAYOUT = Layout.of([("a.weight", (2, 2)), ("a.bias", (2,)), ("b.weight", (3,)), ("c.weight", (1, 1))])


def component(**options: object) -> Layers:
    made = Layers(Layers.Options.model_validate(options))
    made.name = "borda.layers"
    return made


def client(**scores: Sequence[float]) -> Client:
    made = Client(client_id=0, scores={name: np.array(values, np.float32) for name, values in scores.items()})
    made.facts = Facts(0, 1, LAYOUT, ("encrypted", "noised"), 3, 2, 7, "")
    return made


def ballots(*rankings: list[int]) -> list[np.ndarray]:
    return [np.array(ranking) for ranking in rankings]


def test_conforms() -> None:
    conformance("borda.layers")


def test_uses_the_public_api_only() -> None:
    nodes = list(ast.walk(ast.parse(Path(fedplug_borda.layers.__file__).read_text(encoding="utf-8"))))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    taken = {
        node.module: {alias.name for alias in node.names}
        for node in nodes
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fedplug")
    }
    assert modules == {"fedplug", "numpy"}
    assert list(taken) == ["fedplug"]
    assert taken["fedplug"] <= set(fedplug.__all__)


# -- the count ---------------------------------------------------------------------------------------------------------


def test_a_worked_count() -> None:
    """Four voters, layers 0 to 3: 0>1>2>3 twice, 1>2>3>0, 3>1>0>2."""
    points = borda_points(ballots([0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 0], [3, 1, 0, 2]), 4)
    assert points.tolist() == [3 + 3 + 0 + 1, 2 + 2 + 3 + 2, 1 + 1 + 2 + 0, 0 + 0 + 1 + 3] == [7, 9, 4, 4]


def test_a_worked_choice() -> None:
    """Of 100 scalars 50 may be encrypted: layer 1 (30) fits, 0 (25) no longer does, 2 (15) and 3 (5) do."""
    sizes = np.array([25, 30, 15, 5, 25])
    assert choose(np.array([7, 9, 4, 3, 0]), sizes, 0.5).tolist() == [1, 2, 3]
    assert choose(np.array([4, 0, 4, 4, 4]), sizes, 0.25).tolist() == [0]  # of equal points the first
    assert choose(np.array([1, 2, 0, 0, 0]), sizes, 0.01).tolist() == []


@pytest.mark.parametrize("bad", [[0, 0, 0], [0, 1], [0, 1, 3], [-1, 0, 1]])
def test_what_is_no_ranking_gives_no_points(bad: list[int]) -> None:
    assert borda_points(ballots([2, 1, 0], bad), 3).tolist() == [0, 1, 2]


@given(st.lists(st.permutations(range(5)), min_size=1, max_size=8), st.randoms())
def test_the_count_is_fair(rankings: list[list[int]], random: object) -> None:
    points = borda_points(ballots(*rankings), 5)
    assert points.sum() == len(rankings) * 10  # every ballot gives 4 + 3 + 2 + 1
    assert np.array_equal(points, borda_points(ballots(*reversed(rankings)), 5))  # voters are equal
    renamed = np.array(rankings[0])  # layers are equal: renaming them renames the result
    assert np.array_equal(borda_points([renamed[np.array(r)] for r in rankings], 5)[renamed], points)
    turned = borda_points([np.array(r)[::-1] for r in rankings], 5)
    assert np.array_equal(turned, 4 * len(rankings) - points)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 1000)), min_size=1, max_size=12),
    st.floats(0.01, 0.99),
)
def test_the_choice_fits_and_is_greedy(layers: list[tuple[int, int]], ratio: float) -> None:
    points, sizes = (np.array(column) for column in zip(*layers, strict=True))
    chosen = choose(points, sizes, ratio)
    room = ratio * sizes.sum()
    assert sizes[chosen].sum() <= room
    assert len(set(chosen.tolist())) == len(chosen)
    for layer in set(range(len(sizes))) - set(chosen.tolist()):  # left out only because of layers that rank higher
        before = [c for c in chosen if (-points[c], c) < (-points[layer], layer)]
        assert sizes[before].sum() + sizes[layer] > room


# -- at the client -----------------------------------------------------------------------------------------------------


def test_layers_are_ranked_by_their_mean_score() -> None:
    assert layer_sizes(LAYOUT).tolist() == [6, 3, 1]
    scores = [1, 1, 1, 1, 7, 7, 2, 3, 4, 5]  # means 3, 3, 5
    assert layer_means(np.array(scores, np.float32), LAYOUT).tolist() == [3, 3, 5]
    assert component().rank(client(size=scores)).tolist() == [2, 0, 1]
    assert component(by="other").rank(client(size=scores, other=[0.1, 0.3, 0.2])).tolist() == [1, 2, 0]


def test_the_plan_holds_whole_layers() -> None:
    voter = client()
    component().adopt(voter, np.array([0, 2]))
    assert voter.plan is not None
    assert voter.plan.positions("encrypted").tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert voter.plan.positions("noised").tolist() == [6, 7, 8]


def test_the_ledger_learns_what_the_rankings_show() -> None:
    shown = component().reveals(client().facts)
    assert [(each.what, each.asked) for each in shown] == [("layer rankings", ("rank",)), ("mask", ())]
    assert all("server" in each.to and each.covered_by is None for each in shown)


def test_its_plans_are_alike_everywhere_and_follow_from_data() -> None:
    plans = component(other_zone="clear").plans
    assert plans == fedplug.Plans(zones=frozenset({"encrypted", "clear"}))
    assert component(by="other").reads == fedplug.Reads(by="other", per="any")


# -- the recipe --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("score_parameters=[]", "the ranking needs scores"),
        ("negotiate_mask.by=psi", "'psi' is not a scorer of this recipe"),
        ("negotiate_mask.ratio=1.2", "ratio=1.2"),
    ],
)
def test_wrong_recipes_are_refused(setting: str, message: str) -> None:
    with pytest.raises(FedplugError, match=message):
        load_recipe(RECIPE, [setting])


def test_a_real_run(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE, ["rounds=3", "data.clients=4", "model.hidden=[32, 16]"])
    code, folder = start(recipe, Settings(output=tmp_path, device="cpu", quiet=True))
    assert code == 0
    first, second, last = 64 * 32 + 32, 32 * 16 + 16, 16 * 10 + 10
    for row in read_rows(folder):
        assert row.clients.answered == 4
        # The first layer alone is three quarters of the model, so any ranking has the other layers encrypted.
        assert row.zones["encrypted"] == pytest.approx((second + last) / (first + second + last))
    ledger = json.loads((folder / "ledger.json").read_text())
    assert {"layer rankings", "mask"} <= {shown["what"] for shown in ledger["reveals"]}
    assert ledger["uncovered_messages"] == []


class FakeCohort:
    """Three clients, one of which gives an invalid answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.dropped: dict[int, str] = {}
        self.told: list[np.ndarray] = []

    def ask(self, method: object) -> dict[int, object]:
        return {0: np.array([2, 1, 0]), 1: self.answer, 2: np.array([2, 0, 1])}

    def tell(self, method: object, chosen: np.ndarray) -> None:
        self.told.append(chosen)

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped[client_id] = reason


@pytest.mark.parametrize(
    "answer", [None, "first", np.zeros(3), np.array([[0, 1, 2]]), np.array([0, 0, 1]), [0, 1, 2]], ids=str
)
def test_a_client_that_sends_no_ranking_is_dropped(answer: object) -> None:
    cohort = FakeCohort(answer)
    component(ratio=0.5).negotiate_mask(cohort, client().facts)  # type: ignore[arg-type]
    assert cohort.dropped == {1: "its ranking is not the numbers 0 to 2 in some order"}
    assert cohort.told[0].tolist() == [2, 1]
    fair = FakeCohort(np.array([0, 1, 2]))
    component(ratio=0.5).negotiate_mask(fair, client().facts)  # type: ignore[arg-type]
    assert fair.dropped == {}
