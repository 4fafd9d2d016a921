"""benchmarks/paper_costs.py: its settings are existing recipes and grids, and it prints the right sums."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import fedplug
import pytest
from scripts import script

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    return script(ROOT / "benchmarks/paper_costs.py")


def test_every_setting_is_a_recipe_whose_data_are_known(costs: ModuleType) -> None:
    for setting in costs.settings():
        files = list(setting.files())
        assert files, setting.name
        assert all(path.is_file() for path in files)
        data = fedplug.check(costs.RECIPES / setting.recipe, setting.sets).to_plain()["data"]
        assert data["use"] in costs.DATA or {"train_count", "test_count"} <= set(data)


def test_the_small_runs_are_recipes(costs: ModuleType) -> None:
    for setting in costs.settings():
        plain = fedplug.check(costs.RECIPES / setting.recipe, setting.sets).to_plain()
        few = {"data.clients": setting.clients, "data.partition": {"use": "std.iid"}, "rounds": setting.rounds}
        few |= costs._of_devices(plain, setting.clients)
        assert fedplug.check(costs.RECIPES / setting.recipe, {**setting.sets, **setting.small, **few})


def test_scores_of_so_many_samples_find_them_in_either_size(costs: ModuleType) -> None:
    """Otherwise their time would grow with the size, and be counted for every example of a client."""
    limited = 0
    for setting in costs.settings():
        plain = fedplug.check(costs.RECIPES / setting.recipe, setting.sets).to_plain()
        for scorer in plain.get("score_parameters") or []:
            if "samples" in scorer:
                limited += 1
                assert scorer["samples"] <= setting.batches[0] * plain["train"]["batch_size"], setting.name
    assert limited


def test_grids_are_counted_as_their_heads_say(costs: ModuleType) -> None:
    for setting in costs.settings():
        if setting.grid is None:
            continue
        grid = costs.RECIPES / setting.grid
        said = re.search(r"(\d+) runs(?: a seed)?:", grid.read_text(encoding="utf-8"))
        if said:
            assert costs.combinations(grid) == int(said[1]), grid.name


def test_rows_of_table_1_are_all_files_of_the_folder_once(costs: ModuleType) -> None:
    chosen = [setting for setting in costs.settings() if setting.table.startswith("ParaAegis")]
    files = [path.name for setting in chosen for path in setting.files()]
    assert sorted(files) == sorted(
        path.name for path in (costs.RECIPES / "paraaegis/imagenette").glob("*.yaml") if path.name != "base.yaml"
    )


def test_hours_of_a_worked_example(costs: ModuleType) -> None:
    """MNIST, 20 clients of 3,000 examples: 94 batches of 32, five epochs, ten rounds."""
    unit = costs.Costs(
        step=0.001, once=0.1, score=0.0001, upload=0.2, evaluate=0.00001, encrypted=0.1, parameters=1, random=False
    )
    found, how = costs.hours(costs.RECIPES / "selectiveshield/mnist.yaml", {}, unit)
    by_hand = 10 * (20 * (5 * 94 * 0.001 + 3000 * 0.0001 + 0.1 + 0.2) + 10_000 * 0.00001) / 3600
    assert found == pytest.approx(by_hand)
    assert "10 rounds x (20 clients x (470 steps x 0.001 s" in how


def test_a_line_through_two_sizes_parts_what_grows_from_what_does_not(costs: ModuleType) -> None:
    assert costs._line([4, 12], [2 * 0.5 + 4 * 0.25, 2 * 0.5 + 12 * 0.25], 2) == pytest.approx((0.25, 0.5))
    assert costs._line([4, 12], [3.0, 2.0], 2) == (0.0, 1.5)  # noise of the clock costs nothing


def test_five_clients_have_the_devices_of_a_whole_category(costs: ModuleType) -> None:
    plain = fedplug.check(costs.RECIPES / "sensecrypt/both.yaml").to_plain()
    changes = costs._of_devices(plain, 5)
    assert [profile["of"] for profile in changes["profiles"]] == [[0], [1], [2], [3], [4], ["server", "key_server"]]
    assert changes["groups"] is None
    assert costs._of_devices({"profiles": None}, 5) == {}
