"""Device profiles in a recipe: every party has one at most, and mistakes are refused with their place."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.overlay import load_recipe
from fedplug_sensecrypt.devices import by_party, profiles_of

TEXT = """\
name: timed
seed: 1
rounds: 1
data: {use: std.digits, clients: 4, partition: {use: std.iid}}
model: {use: std.mlp}
train: {use: std.sgd, lr: 0.05}
negotiate_mask: {use: std.single_zone}
protect: {clear: []}
aggregate: {use: std.mean}
profiles:
  - {of: [0, 1], cpus: 24, bandwidth: 50}
  - {of: [2, 3, server], cpus: 8, bandwidth: 30}
"""


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    file = tmp_path / "timed.yaml"
    file.write_text(TEXT)
    return file


def problems_of(file: Path, sets: list[str]) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, sets)
    return [problem.removeprefix(f"{file.parent}/") for problem in caught.value.problems]


def test_profiles_are_part_of_the_recipe(timed: Path, tmp_path: Path) -> None:
    recipe = load_recipe(timed)
    plain = recipe.to_plain()
    assert plain["profiles"][1] == {"of": [2, 3, "server"], "cpus": 8.0, "bandwidth": 30.0}
    again = Recipe.from_plain(json.loads(json.dumps(plain)))
    assert again == recipe
    assert again.digest == recipe.digest
    faster = load_recipe(timed, ["profiles.1.cpus=9"])
    assert (profiles_of(faster)[1].cpus, faster.digest != recipe.digest) == (9, True)
    devices = by_party(profiles_of(recipe))
    assert [devices[party].cpus for party in (0, 1, 2, 3, "server", "key_server")] == [24, 24, 8, 8, 8, 1]
    assert devices["key_server"].bandwidth == math.inf
    child = tmp_path / "child.yaml"
    child.write_text("extends: timed.yaml\nprofiles: [{of: [0, 1, 2, 3], cpus: 2, bandwidth: 3}]\n")
    assert [profile.cpus for profile in profiles_of(load_recipe(child))] == [2]  # a list is replaced
    assert profiles_of(load_recipe(timed, ["profiles=[]"])) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[0, 1]", "[0, 1, 4]"), "timed.yaml:11:17: there is no client 4 (data.clients=4: 0 to 3); remove it"),
        (("[0, 1]", "[0, -1]"), "timed.yaml:11:14: there is no client -1"),
        (("[0, 1]", "[0, 1, 3]"), "timed.yaml:12:14: client 3 is listed under profiles.0 already; every party has one"),
        (("[0, 1]", "[0, 1, 1]"), "timed.yaml:11:17: client 1 is listed twice"),
        (("[0, 1]", "[0, 1, server]"), "timed.yaml:12:17: server is listed under profiles.0 already"),
        (("[0, 1]", "[1]"), "timed.yaml:11:3: no profile for client 0; give every client a profile, or write"),
        (("[0, 1]", "[sever]"), "timed.yaml:11:10: profiles.0.of=['sever']: 'sever' is not a party; write client ids"),
        (("[0, 1]", "[1.5]"), "timed.yaml:11:10: profiles.0.of=[1.5]: 1.5 is not a party"),
        (("[0, 1]", "[true]"), "timed.yaml:11:10: profiles.0.of=[True]"),
        (("[0, 1]", "[]"), "timed.yaml:11:10: profiles.0.of=[]: must be a list of parties, such as [0, 1, server]"),
        (("[0, 1]", "0"), "timed.yaml:11:10: profiles.0.of=0: must be a list of parties"),
        (("cpus: 24", "cpus: 0"), "timed.yaml:11:24: profiles.0.cpus=0 must be > 0"),
        (("cpus: 24", "cpus: .inf"), "timed.yaml:11:24: profiles.0.cpus=inf must be a finite number"),
        (("width: 50", "width: -1"), "timed.yaml:11:39: profiles.0.bandwidth=-1 must be > 0 (MB/s"),
        (("cpus: 24", "cpu: 24"), "timed.yaml:11:18: unknown option 'cpu'; did you mean cpus?"),
        ((", bandwidth: 50", ""), "timed.yaml:11:5: profiles.0 needs 'bandwidth' (MB/s"),
        (("profiles", "profile"), "timed.yaml:10:1: unknown key 'profile'; did you mean profiles?"),
    ],
)
def test_wrong_profiles_are_refused_with_their_place(timed: Path, change: tuple[str, str], message: str) -> None:
    timed.write_text(TEXT.replace(*change, 1))
    found = problems_of(timed, [])
    assert any(problem.startswith(message) for problem in found), found


def test_many_clients_without_a_profile_are_one_short_message(timed: Path) -> None:
    (problem,) = problems_of(timed, ["data.clients=100"])
    assert "no profile for client 4, 5, 6, 7, 8 and 91 more;" in problem
    (problem,) = problems_of(timed, ["profiles=[{of: [server], cpus: 1, bandwidth: 1}]"])
    assert "no profile for client 0, 1, 2, 3;" in problem
