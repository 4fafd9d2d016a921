"""Rounds that a party keeps for an attack at home: which, and that a site then sees what the adversaries saw."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import USUAL, attack_catalog, observed, seen
from engine_toys import Checked, plain_of
from fedplug.api.errors import ViewError
from fedplug_attacks.views.adversaries import read_client
from fedplug_attacks.views.home import AtHome
from fedplug_attacks.views.probe import OneBatch
from fedplug_attacks.workshop.command import wanted, with_section
from fedplug_attacks.workshop.display import AttackDisplay
from fedplug_attacks.workshop.run import AttackRun
from fedplug_attacks.workshop.stage import Stage
from fedplug_party.kept import KEPT
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.wire_record import file_of, read_wire, recordings
from party_toys import Beside
from run_toys import start
from toy_components import UNANIMOUS, paraaegis, recipe_of
from toy_protocol import run_protocol

VOTE = paraaegis(rounds=2, score_parameters=[UNANIMOUS])
TURNS = {"use": "altfl.alternating", "cycle": ["clear", "encrypted"], "epochs": 1, "batch_size": 32, "lr": 0.05}
IN_TURN = recipe_of(
    train=TURNS, negotiate_mask="altfl.alternating", rounds=4, postprocess={"encrypted": ["std.bfv"]},
    protect={"clear": [], "encrypted": [{"use": "std.bfv", "key_holder": "clients"}]},
)  # fmt: skip
MASKED = recipe_of("encrypted", [{"use": "std.clip", "norm": 1.0}, "secagg.bonawitz"], rounds=1, min_clients=3,
                   postprocess={"encrypted": ["secagg.bonawitz"]})  # fmt: skip


def federated(folder: Path, plain: dict[str, Any]) -> Beside:
    """A federation that has ended; each party has its folder."""
    beside = Beside(folder / "parties", plain)
    checked = Checked(plain, beside.engine, folder / "server")
    checked.set_up()
    checked.protocol.run()
    checked.engine.close()
    return beside


@contextlib.contextmanager
def at_home(beside: Beside, client: int, scratch: Path, **scope: Any) -> Iterator[AttackRun]:
    """The attacks of a site on itself, built and not yet executed."""
    site, catalog = beside.places[f"client:{client}"], attack_catalog()
    kept = beside.folder / f"client-{client}" / KEPT
    ran = beside.recipe
    section = wanted(ran, catalog, ["toy.echo"], USUAL, {"targets": [client], **scope}, ())
    recipe = with_section(ran, scratch / "recipe", catalog, section, ())
    home = AtHome(ran, client, kept, "cpu", site.world)
    stage = Stage(ran, scratch, None, "cpu", catalog, AttackDisplay(io.StringIO(), quiet=True), site.world, home)
    try:
        yield AttackRun(recipe, stage)
    finally:
        stage.close()


def kept_rounds(beside: Beside, client: int = 1) -> list[int]:
    return Checkpoints(beside.folder / f"client-{client}" / KEPT).rounds()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Beside, Path]]:
    """The sites of a federation, and the folder of the same run with all parties on one machine and all messages."""

    @functools.cache
    def made(name: str) -> tuple[Beside, Path]:
        folder = tmp_path_factory.mktemp(name)
        return federated(folder, PLAIN[name]), start(folder, PLAIN[name], record_wire=True)

    return made


PLAIN = {"clear": recipe_of(), "vote": VOTE, "in turn": IN_TURN}


@pytest.mark.parametrize(
    ("name", "adversary", "round"),
    [
        ("clear", "server", 1), ("vote", "server", 1), ("vote", "client", 1), ("vote", "eavesdropper", 1),
        ("in turn", "server", 1), ("in turn", "server", 2), ("in turn", "client", 2),
    ],
)  # fmt: skip
def test_a_site_sees_entry_by_entry_what_the_adversary_saw(
    both: Callable[[str], tuple[Beside, Path]], name: str, adversary: str, round: int, tmp_path: Path
) -> None:
    scope: dict[str, Any] = {"adversaries": [adversary], "rounds": [round], "probe": {"batch_size": 4}}
    sites, reference = both(name)
    with at_home(sites, 1, tmp_path, **scope) as run:
        ours, truth = seen(run, adversary, 1)
    theirs, known = observed(reference, adversary, 1, round, probe={"batch_size": 4})
    assert ours.update is not None
    assert theirs.update is not None
    assert np.array_equal(ours.update.states, theirs.update.states)
    assert np.array_equal(ours.update.values, theirs.update.values)
    assert np.array_equal(truth.images, known.images)
    assert (ours.vector is None) == (theirs.vector is None)
    assert ours.vector is None or np.array_equal(ours.vector, theirs.vector)


def test_one_round_of_each_pattern_is_kept_with_the_end_of_the_run(tmp_path: Path) -> None:
    beside = federated(tmp_path, IN_TURN)
    assert kept_rounds(beside) == [0, 1, 4]
    kept = beside.folder / "client-1" / KEPT
    assert {*recordings(kept / "wire")} == {1, 2, 5}
    messages = read_wire(kept / "wire" / file_of(2))
    assert {message.round for message in messages} == {1}
    assert [message.phase for message in messages].count("upload") == 1
    assert not {path.name for path in kept.rglob("*.tmp")}
    assert not beside.said


def test_a_site_has_the_last_model_and_no_data_of_other_clients(tmp_path: Path) -> None:
    beside = federated(tmp_path, recipe_of())
    with at_home(beside, 1, tmp_path, adversaries=["released"]) as run:
        home = run.rewound
        ended = home.before(2)
        assert np.array_equal(read_client(ended.folder, 1).vector, run_protocol(recipe_of()).vector)
        assert {message.receiver for message in ended.messages} == {"client:1", "server"}
        with pytest.raises(ViewError, match="the data of client 0 are at its own site; this is client 1"):
            home.client(0)
        with pytest.raises(ViewError, match="round 2 was not kept at this site; it has: 1, 3"):
            home.probe(1, OneBatch(1))


def test_a_round_without_an_upload_is_not_kept_and_the_next_of_its_pattern_is(tmp_path: Path) -> None:
    plain = plain_of(rounds=3)
    beside = Beside(tmp_path / "parties", plain)
    checked = Checked(plain, beside.engine, tmp_path / "server")
    checked.set_up()
    beside.kill("client:1")
    checked.protocol.after_each_round(lambda done: beside.start("client:1") if done == 1 else None)
    checked.protocol.run()
    checked.engine.close()
    assert kept_rounds(beside, 1)[0] > 0
    assert kept_rounds(beside, 0) == [0, 3]


def test_a_run_that_goes_on_from_before_its_end_has_another_end(tmp_path: Path) -> None:
    beside = federated(tmp_path, recipe_of())
    party, folder = beside.parties["client:1"], beside.folder / "client-1"
    assert kept_rounds(beside) == [0, 2]
    assert party.kept is not None
    party.kept.begin(1, party.state.path(party.state.kept()[0]))
    assert kept_rounds(beside) == [0]
    assert (folder / KEPT / "wire" / file_of(1)).is_file()


def test_a_full_disk_costs_the_kept_round_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(message: Any) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedplug_party.kept.framed", full)
    beside = federated(tmp_path, recipe_of())
    assert kept_rounds(beside) == []
    assert all("cannot be kept for an attack" in line and "No space left" in line for line in beside.said)
    assert beside.said
