"""`fedplug party --attack`: what a site writes of the attacks on its own uploads, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attack_toys import attack_catalog
from cli_calls import GOOD, call
from fedplug import Settings
from fedplug.recipe import catalog
from fedplug.recipe.catalog import Catalog
from fedplug_attacks import _low_rank
from fedplug_attacks.workshop.default_set import SEARCH
from fedplug_evidence.sites import SiteReport, read_signed
from fedplug_party import program
from fedplug_party.state import State
from party_toys import Beside
from test_kept import MASKED, VOTE, federated
from toy_components import recipe_of

LOCAL = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 1, "delta": 1e-5}]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toys = attack_catalog()
    monkeypatch.setattr(Catalog, "discover", staticmethod(lambda: toys))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(_low_rank, "_STEPS", 3)  # what exact batches and searches find is of no interest here
    monkeypatch.setitem(SEARCH, "iterations", 2)


def reported(beside: Beside, client: int = 1) -> tuple[Path, SiteReport]:
    """The report of a site, and its folder."""
    site = beside.places[f"client:{client}"]
    beside.kill(site.address)
    folder = beside.folder / f"client-{client}"
    state = State(folder)
    try:
        assert program.attack_at_home(site, state, Settings(device="cpu", quiet=True), None) == 0
    finally:
        state.close()
    return folder, read_signed((folder / "leakage.json").read_bytes(), "leakage.json").report


def by(report: SiteReport, adversary: str, attack: str) -> list[Any]:
    return [one for one in report.tried if one.adversary == adversary and attack in one.attack]


def test_clear_uploads_give_their_images_away_and_the_file_that_leaves_has_no_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = federated(tmp_path, recipe_of())
    folder, report = reported(beside)
    (one,) = by(report, "server", "linear_leak server round 1 probe 1")
    assert (one.succeeded, one.targets) == (1.0, 1)
    assert one.value < 1e-6 < one.guess
    assert "Images of 3 of 8 examples were recovered: by another client 3" in report.found
    belongs = json.loads((folder / "party.json").read_text())
    assert (report.recipe, report.run) == (belongs["recipe"], belongs["run"])
    assert (report.client, report.rounds) == (1, [1])
    assert report.left_out == []
    numbers = [number for each in report.tried for number in (each.value, each.guess) if number is not None]
    assert [*numbers] == [float(f"{number:.3g}") for number in numbers], "all digits would confirm a guess"
    said = capsys.readouterr().out
    assert said.index("figures and sentences only, no example, picture or label") < said.index("wrote ")
    data = (folder / "leakage.json").read_text()
    assert not {"labels", "counts", "recovered", "people", "picture"} & set(data.replace('"', " ").split())
    assert len(data) < 20_000
    # A second call repeats nothing and says the same.
    before = {path: path.stat().st_mtime_ns for path in (folder / "attacks").glob("*client1*.json")}
    assert reported(beside)[1] == report
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "attacks").glob("*client1*.json")}


def test_masked_uploads_are_not_attacked_and_nothing_is_said_to_have_failed(tmp_path: Path) -> None:
    _, report = reported(federated(tmp_path, MASKED))
    assert {one.adversary for one in report.tried} == {"released"}
    assert report.rounds == []
    said = dict(report.left_out)
    for who in ("the server, round 1", "an eavesdropper, round 1", "another client, round 1"):
        assert said[who].endswith("nothing but ciphertexts and sums over clients, and a site cannot attack these alone")


def test_who_shares_the_key_is_attacked_as_such_and_others_see_the_clear_zone_alone(tmp_path: Path) -> None:
    plain = VOTE | {"rounds": 1}
    _, report = reported(federated(tmp_path, plain))
    assert [who for who, _ in report.left_out] == ["the server, round 1", "an eavesdropper, round 1"]
    assert all("of the encrypted zone it sees nothing" in why for _, why in report.left_out)
    assert by(report, "client", "linear_leak")[0].succeeded is not None


def test_noise_of_the_client_itself_protects_a_single_image(tmp_path: Path) -> None:
    _, report = reported(federated(tmp_path, recipe_of("noised", LOCAL, rounds=1)))
    (one,) = by(report, "server", "linear_leak server round 1 probe 1")
    assert one.succeeded == 0.0
    assert one.value > 1e-3


def test_rounds_are_not_told_where_nobody_may_know_who_took_part(tmp_path: Path) -> None:
    sampling = {"scheme": "fixed", "rate": 1.0}
    _, report = reported(federated(tmp_path, recipe_of(rounds=1, sampling=sampling)))
    assert report.rounds == []
    assert report.tried
    assert not any("round " in text for text in (report.found, *(one.attack for one in report.tried)))


def test_before_a_round_has_ended_there_is_nothing_to_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(GOOD)
    words = ["party", "recipe.yaml", "--client", "0", "--state", "s", "--attack"]
    assert call(monkeypatch, *words) == 1
    assert "s holds no state of a run; name the --state folder that client:0 used" in capsys.readouterr().err
    assert not Path("s").exists()

    beside = Beside(tmp_path / "parties", recipe_of())
    site = beside.places["client:0"]
    with pytest.raises(program.SetupError, match="holds no round to attack: no round in which client:0 sent an update"):
        program.attack_at_home(site, beside.parties["client:0"].state, Settings(device="cpu"), None)

    monkeypatch.setattr(program, "service", lambda name: None)
    with pytest.raises(program.SetupError, match=r"--attack needs fedplug-attacks and fedplug-evidence: .*pip install"):
        program.attack_at_home(site, beside.parties["client:0"].state, Settings(device="cpu"), None)
    assert catalog.service("attacks_at_home")


def test_damaged_messages_are_named_with_the_remedy(tmp_path: Path) -> None:
    beside = federated(tmp_path, recipe_of(rounds=1))
    wire = beside.folder / "client-1" / "kept" / "wire" / "round-0001.wire"
    wire.write_bytes(wire.read_bytes()[:-7])
    _, report = reported(beside)
    ((who, why),) = report.left_out
    assert who == "everybody who reads messages, round 1"
    assert why.startswith("kept/wire/round-0001.wire is damaged")
    assert "restore it from a copy" in why
