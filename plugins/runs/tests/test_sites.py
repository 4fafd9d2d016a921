"""Data at sites: each client has the data of its site, the server has none, and data that does not fit is refused."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_components
from fedplug import Dataset, Examples
from fedplug.api.errors import DataError, SetupError
from fedplug.api.events import ReplyArrived
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Agreed
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import World
from fedplug_runs.sites import misfits
from site_toys import AGREED, CLASSES, SIZES, Noted, at_sites, write_sites
from toy_components import toy_catalog
from toy_protocol import run_protocol


def world_of(root: Path | None, plain: dict[str, Any] | None = None, site: int | None = None) -> World:
    recipe = Recipe.from_plain(plain or at_sites(), toy_catalog())
    return World(recipe, Composition(recipe), root and str(root), site)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(toy_components.TOYS, "dataset", {"toy.noted": Noted})


def test_the_server_loads_nothing_and_each_client_its_own_folder(tmp_path: Path, noted: None) -> None:
    write_sites(tmp_path)
    world = world_of(tmp_path, at_sites("toy.noted"))
    assert (world.data, world.public, len(world.assignment)) == (None, None, 0)
    assert world.model("cpu").layout.size == 2 * 16 + 2
    assert not (tmp_path / "loads.txt").exists()
    held = world.holdings([2, 0])
    assert [len(held[client_id].data.train) for client_id in (2, 0)] == [SIZES[2], SIZES[0]]
    assert held[2].folder == str(tmp_path / "client-2")
    assert (tmp_path / "loads.txt").read_text().split()[1::2] == ["client-2", "client-0"]
    data = held[0].data
    assert (data.classes, data.mean, data.std) == (tuple(CLASSES), (0.5,), (0.25,))
    assert data.own_test is data.shared_test
    with pytest.raises(ValueError, match="read-only"):
        data.train.inputs[0] = 0


def test_no_process_but_a_clients_own_reads_what_lies_at_its_site(tmp_path: Path, noted: None) -> None:
    write_sites(tmp_path)
    apart = run_protocol(at_sites("toy.noted"), "processes", workers=2, data_root=str(tmp_path))
    loads = [line.split() for line in (tmp_path / "loads.txt").read_text().splitlines()]
    assert sorted(folder for _, folder in loads) == ["client-0", "client-1", "client-2"]
    assert len({pid for pid, _ in loads}) == 2
    assert str(os.getpid()) not in {pid for pid, _ in loads}
    together = run_protocol(at_sites("toy.noted"), data_root=str(tmp_path))
    assert np.array_equal(apart.vector, together.vector)
    assert [row.accuracy for row in apart.rows] == [row.accuracy for row in together.rows]


def test_missing_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"client-0, client-1 and so on: --data DIR"):
        world_of(None).holdings([0])
    write_sites(tmp_path, SIZES[:1])
    with pytest.raises(DataError, match=r"client-1, \S*client-2 are missing: .* --data DIR"):
        world_of(tmp_path).holdings([0, 1, 2])


def test_a_process_that_holds_one_client_reads_the_folder_itself(tmp_path: Path) -> None:
    write_sites(tmp_path)
    world = world_of(tmp_path / "client-1", site=1)
    assert len(world.holdings([1])[1].data.train) == SIZES[1]


def test_every_site_that_does_not_fit_is_told_apart(tmp_path: Path) -> None:
    write_sites(tmp_path)
    write_sites(tmp_path, SIZES[:1], classes=["low", "lower"])
    (tmp_path / "client-2" / "data.npz").write_bytes(b"nothing")
    with pytest.raises(DataError) as caught:
        world_of(tmp_path).holdings([0, 1, 2])
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"client 0: the data in {tmp_path / 'client-0'} is not what the recipe says: ")
    assert "classes are low, lower, and data.agreed.classes says low, high" in first
    assert second.startswith(f"client 2: {tmp_path / 'client-2' / 'data.npz'} cannot be read")


def test_a_site_whose_whole_numbers_the_model_cannot_take_is_told_so(tmp_path: Path) -> None:
    """Whole numbers are tokens. It said `mat1 and mat2 must have the same dtype` in the first round."""
    for client, kind in enumerate(("int64", "float32", "float64")):
        (tmp_path / f"client-{client}").mkdir()
        table = np.arange(24).reshape(8, 3).astype(kind)
        rows = {"train_inputs": table, "test_inputs": table}
        labels = np.array(["low", "high"] * 4)
        np.savez(tmp_path / f"client-{client}" / "data.npz", train_labels=labels, test_labels=labels, **rows)
    plain = at_sites("std.arrays", agreed={"shape": [3], "classes": ["low", "high"], "mean": [], "std": []})
    world = world_of(tmp_path, plain)
    world.model("cpu")
    with pytest.raises(DataError) as caught:
        world.holdings([0, 1, 2])
    (line,) = str(caught.value).splitlines()
    assert f"std.arrays of client 0, in {tmp_path / 'client-0'}, whose inputs are int64" in line
    assert "give a table as floats" in line


def test_labels_go_by_the_names_of_classes_of_which_a_site_may_lack_some(tmp_path: Path) -> None:
    write_sites(tmp_path, SIZES[:1], classes=["high", "low"])
    plain = at_sites(agreed={"classes": ["none", "low", "high"]})
    data = world_of(tmp_path, plain).holdings([0])[0].data
    assert data.classes == ("none", "low", "high")
    assert data.train.labels.tolist() == [2, 1] * (SIZES[0] // 2)
    assert data.own_test.labels.tolist() == [2, 1, 2, 1]


def test_a_run_over_processes_says_which_site_does_not_fit(tmp_path: Path) -> None:
    write_sites(tmp_path)
    plain = at_sites(agreed={"shape": [1, 5, 5]})
    with pytest.raises(SetupError, match=r"client 0: .* shape \[1, 4, 4\], and data.agreed.shape says \[1, 5, 5\]"):
        run_protocol(plain, "processes", workers=1, data_root=str(tmp_path))


def dataset(**changes: Any) -> Dataset:
    examples = Examples(np.zeros((4, 1, 4, 4), np.uint8), np.array([0, 1, 0, 1]))
    return dataclasses.replace(Dataset(examples, examples, classes=tuple(CLASSES), mean=(0.1,), std=(1.0,)), **changes)


def examples(**changes: Any) -> dict[str, Examples]:
    return {"train": dataclasses.replace(dataset().train, **changes)}


PIXELS = np.zeros((4, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("changes", "agreed", "expected"),
    [
        ({}, {}, []),
        ({"mean": (0.9,)}, {}, []),  # the recipe's value counts
        ({"kinds": ("a",)}, {}, ["kinds are a, and data.agreed.kinds says none"]),
        ({"region_names": ("face",)}, {}, ["regions are face, and data.agreed.regions says none"]),
        ({"train": dataset().train.take(slice(0))}, {}, ["there are no training examples"]),
        ({"test": dataset().test.take(slice(0))}, {}, []),
        (examples(targets=PIXELS), {}, ["training examples have a class for every pixel, and by data.agreed.kinds"]),
        (
            examples(targets=PIXELS + 2) | {"kinds": ("a", "b")}, {"kinds": ["a", "b"]},
            ["training targets go up to 2, and there are 2 classes", "test examples have no class for every pixel"],
        ),
        ({}, {"shape": [1, 2, 2]}, ["training and test inputs have the shape [1, 4, 4], and data.agreed.shape says"]),
    ],
)  # fmt: skip
def test_what_does_not_fit(changes: dict[str, Any], agreed: dict[str, Any], expected: list[str]) -> None:
    found = list(misfits(dataset(**changes), Agreed.model_validate(AGREED | agreed)))
    assert len(found) == len(expected), found
    assert all(problem.startswith(start) for problem, start in zip(found, expected, strict=True)), found


def test_accuracy_is_over_what_sites_hold_out_by_the_weights_of_the_protocol(tmp_path: Path) -> None:
    write_sites(tmp_path)
    counted: set[tuple[float, float]] = set()

    def hear(event: ReplyArrived) -> None:
        if found := event.reports.evaluation:
            counted.add((found["count"], found["own_count"]))

    for weighting, weights in (("examples", SIZES), ("uniform", (1, 1, 1))):
        plain = at_sites(aggregate={"use": "std.mean", "weighting": weighting})
        listen = lambda protocol, _: protocol.events.subscribe(ReplyArrived, hear)  # noqa: E731
        rows = run_protocol(plain, data_root=str(tmp_path), prepare=listen).rows
        assert len(rows) == 2
        for row in rows:
            shares = [row.client_accuracy[client_id] for client_id in range(3)]
            assert row.accuracy == pytest.approx(np.average(shares, weights=weights))
    assert counted == {(1.0, 1.0)}  # nobody is told of how many examples these are shares


def told(root: Path) -> tuple[dict[int, list[int]], list[str]]:
    """The counts of classes that the server received, and their entry in its ledger."""
    protocol = run_protocol(at_sites(rounds=1), data_root=str(root)).protocol
    said = [shown.note for shown in protocol.ledger.reveals if shown.what == "class counts"]
    return protocol.server.remembered.classes, said


def test_a_site_tells_its_classes_only_if_it_says_so(tmp_path: Path) -> None:
    write_sites(tmp_path)
    assert told(tmp_path) == ({}, [])
    (tmp_path / "client-1" / "site.toml").write_text('tell = ["classes"]\n')
    (tmp_path / "client-2" / "site.toml").write_text("# nothing\n")
    counts, (said,) = told(tmp_path)
    assert counts == {1: [15, 15]}
    assert said.endswith("told by 1 of 3 sites")


@pytest.mark.parametrize("text", ["tell = 'classes'", 'tell = ["sizes"]', "tall = []", "tell ="])
def test_what_a_site_cannot_say_is_refused(tmp_path: Path, text: str) -> None:
    write_sites(tmp_path)
    (tmp_path / "client-1" / "site.toml").write_text(text)
    with pytest.raises(DataError, match=r"client 1: .*site\.toml (can say tell = |cannot be read)"):
        world_of(tmp_path).holdings([0, 1])


def test_public_examples_are_a_separate_data_set(tmp_path: Path) -> None:
    write_sites(tmp_path)
    plain = at_sites(public={"use": "std.arrays", "name": "open", "file": "client-0/data.npz"})
    world = world_of(tmp_path, plain)
    assert world.public is not None
    assert len(world.public.examples) == SIZES[0]
    with pytest.raises(DataError, match=r"std.digits has the shape \(1, 8, 8\), data: std.arrays has \(1, 4, 4\)"):
        world_of(tmp_path, at_sites(public={"use": "std.digits"}))
