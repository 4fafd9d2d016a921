"""A lie costs the liar its round and nothing else; `benchmarks/fuzz.py` has the long version."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import fedplug
import pytest
from account_toys import Labels
from examples import examples
from fedplug.api import codec
from fedplug.api.errors import MessageError
from fedplug.api.parties import KEY_SERVER
from fedplug.recipe.recipe import Recipe
from fedplug.wire.calls import read_reply
from fedplug_kit.lies import Lies
from scripts import script
from toy_components import TOYS, UNANIMOUS, paraaegis, recipe_of, toy_catalog

hostile = script(Path(__file__).parents[3] / "benchmarks/hostile.py")

WITH_A_KEY_SERVER = paraaegis(
    rounds=2, min_clients=2, score_parameters=[UNANIMOUS], seal={"use": "std.bfv", "key_holder": "key_server"}
)
RECIPES: dict[str, Any] = {"clear": recipe_of(rounds=2, min_clients=2), "key server": WITH_A_KEY_SERVER}


@pytest.fixture(scope="module")
def staged() -> dict[str, Lies]:
    return {name: Lies(Recipe.from_plain(plain, toy_catalog()), toy_catalog()) for name, plain in RECIPES.items()}


@pytest.mark.parametrize("name", RECIPES)
def test_no_lie_of_one_party_costs_more_than_its_own_part(name: str, staged: dict[str, Lies]) -> None:
    lies = staged[name]
    told = [place for place in lies.told() if place[0].before is not None]
    honest = [act.answers[address][number] for act, address, number in told]
    for seed in range(examples(80)):
        rng = random.Random(f"{name}-{seed}")
        act, address, number = rng.choice(told)
        message = hostile.altered(act.answers[address][number], rng, honest)
        assert lies.lie(act, address, number, message) == "", (seed, act.name, address)


def test_honest_answers_played_back_leave_nobody_out(staged: dict[str, Lies]) -> None:
    """Otherwise a liar's exclusion would prove nothing."""
    for lies in staged.values():
        for act in lies.acts[1:]:
            assert lies._played(act, {}) == set()


@pytest.mark.parametrize(
    "message", [b"", b"FPM1", codec.frame(b"\xc1"), codec.frame(codec.encode({"done": 0, "saved": 0, "reports": []}))]
)
def test_a_key_server_that_answers_nonsense_costs_the_zone_its_sum(message: bytes, staged: dict[str, Lies]) -> None:
    lies = staged["key server"]
    notes: list[str] = []
    lies._books.protocol.events.note = notes.append  # type: ignore[method-assign]
    assert lies.lie(lies.acts[1], KEY_SERVER, 0, message) == ""
    assert any("zone encrypted is skipped: the key server's answer cannot be used" in note for note in notes)


class Trusting(Labels):
    """Believes every client, and cannot reckon with all that it believes."""

    release_problem = fedplug.AccountKeeper.release_problem


@pytest.mark.parametrize(("kind", "comes_of_it"), [(Labels, ""), (Trusting, "toy.labels, epsilon_of: ZeroDivision")])
def test_a_lying_account_is_played_until_it_is_reckoned_with(
    kind: type[Labels], comes_of_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.labels", kind)
    plain = recipe_of(chain=[{"use": "toy.labels"}], rounds=1, min_clients=2)
    lies = Lies(Recipe.from_plain(plain, toy_catalog()), toy_catalog())
    set_up = lies.acts[0]
    honest = codec.decode(codec.unframe(set_up.answers["client:1"][0]))
    forged = codec.encode({**honest, "value": {**honest["value"], "accounts": {"label": [[1.0]]}}})
    found = lies.lie(set_up, "client:1", 0, codec.frame(forged))
    assert comes_of_it in found if comes_of_it else found == ""
    assert lies.lie(set_up, "client:1", 0, set_up.answers["client:1"][0]) == ""


def test_a_client_that_reports_names_with_control_characters_is_left_out(staged: dict[str, Lies]) -> None:
    lies = staged["clear"]
    act = lies.acts[1]
    honest = codec.decode(codec.unframe(act.answers["client:1"][0]))
    forged = {**honest, "reports": {**honest["reports"], "log": {"\x1b[2Jx": 1.0}}}
    message = codec.frame(codec.encode(forged))
    with pytest.raises(MessageError, match=r"log.* is '\\x1b\[2Jx': string should match") as caught:
        read_reply(message)
    assert str(caught.value).isprintable()
    assert lies._played(act, {("client:1", 0): message}) == {1}
