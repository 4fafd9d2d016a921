"""The Borda negotiation: conformance, a worked example, properties, and one real run of its recipe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from fedplug import Layout
from fedplug.recipe import load_recipe
from fedplug.run_command import start
from fedplug.settings import Settings
from fedplug.testing import check_component
from hypothesis import given
from hypothesis import strategies as st

from fedplug_borda.layers import Layers, borda_points, choose, layer_means, layer_sizes

RECIPE = Path(__file__).parents[1] / "recipes" / "borda-layers.yaml"


def test_the_component_conforms() -> None:
    check_component("borda.layers")


def test_borda_counts_match_the_worked_example() -> None:
    # Three clients rank three layers: 0 first twice and last once -> 2 + 2 + 0, and so on.
    rankings = [np.array([0, 1, 2]), np.array([0, 2, 1]), np.array([2, 1, 0])]
    assert borda_points(rankings, 3).tolist() == [4, 2, 3]


def test_a_ballot_that_is_no_ranking_gives_no_points() -> None:
    assert borda_points([np.array([1, 1, 1]), np.array([2, 1, 0])], 3).tolist() == [0, 1, 2]


def test_a_layer_that_does_not_fit_is_passed_over_for_the_next() -> None:
    points, sizes = np.array([9, 5, 1]), np.array([80, 15, 5])
    assert choose(points, sizes, 0.2).tolist() == [1, 2]


def test_layer_means_by_hand() -> None:
    layout = Layout.of([("a.weight", (2,)), ("a.bias", (1,)), ("b.weight", (2, 1))])
    assert layer_sizes(layout).tolist() == [3, 2]
    assert layer_means(np.array([1, 2, 3, 4, 6], np.float32), layout).tolist() == [2.0, 5.0]
    assert layer_means(np.array([7, 8], np.float32), layout).tolist() == [7.0, 8.0]  # scores a layer stay as they are


@given(st.data())
def test_the_encrypted_share_never_exceeds_the_ratio(data: st.DataObject) -> None:
    sizes = np.array(data.draw(st.lists(st.integers(1, 1000), min_size=1, max_size=12)))
    rankings = data.draw(st.lists(st.permutations(range(len(sizes))), min_size=1, max_size=6))
    ratio = data.draw(st.floats(0.01, 0.99))
    points = borda_points([np.array(ranking) for ranking in rankings], len(sizes))
    chosen = choose(points, sizes, ratio)
    assert points.sum() == len(rankings) * len(sizes) * (len(sizes) - 1) // 2
    assert len(set(chosen.tolist())) == len(chosen)
    assert sizes[chosen].sum() <= ratio * sizes.sum() + 1e-6


def test_its_recipe_runs_and_encrypts_whole_layers_only(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE, ["rounds=2", "data.clients=4", "train.epochs=1"])
    code, run_dir = start(recipe, Settings(output=tmp_path, quiet=True, device="cpu"))
    assert code == 0
    row = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    sizes = np.array([64 * 128 + 128, 128 * 64 + 64, 64 * 10 + 10])  # of the MLP 64-128-64-10
    possible = {round(float(sizes[list(pick)].sum() / sizes.sum()), 9) for pick in ([0], [1], [2], [0, 2], [1, 2])}
    assert round(row["zones"]["encrypted"], 9) in possible


def test_the_rankings_are_listed_as_a_side_channel() -> None:
    component = Layers(Layers.Options(ratio=0.5))
    assert "layer rankings" in [channel.what for channel in component.side_channels(None)]
