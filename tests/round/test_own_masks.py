"""Clients that differ: personal models, individual masks, groups with a negotiation each, noisy ballots."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import (
    Ballots,
    Block,
    Client,
    Clip,
    Cohort,
    Facts,
    Layout,
    Noise,
    Operations,
    Plan,
    Reveals,
    at_client,
)
from fedplug.api import codec
from fedplug.api.blocks import CLEAR, ENCRYPTED, NOISED, RETAINED, meet, share_divisors
from fedplug.api.errors import RecipeError, TooFewClients
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_runs.checkpoint import read_file
from fedplug_runs.execution import resume, start
from fedplug_runs.settings import Settings
from fedplug_std.single_zone import SingleZone
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_components import TOYS, pushed, recipe_of, toy_catalog
from toy_negotiations import WIDTH
from toy_protocol import initial_vector, read_clients, run_protocol, weights_of

PUSH = {"use": "toy.push"}
PERSONAL = recipe_of(train=PUSH, negotiate_mask={"use": "toy.own"}, postprocess={RETAINED: [{"use": "toy.keep"}]})


def personal_models(files: dict[str, bytes], folder: Path) -> dict[int, np.ndarray]:
    """The clients' own models in what an engine has saved."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    found = {}
    for client_id, saved in read_clients(folder).items():
        found[client_id] = codec.decode(read_file(folder / saved["personal"]))
    return found


# -- personal models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_personal_model_holds_local_values_where_they_were_retained(engine: str, tmp_path: Path) -> None:
    outcome = run_protocol(PERSONAL, engine)
    vector, weights, size = initial_vector(PERSONAL), weights_of(outcome), outcome.vector.size
    own = dict.fromkeys(weights, vector)
    for round in range(2):
        total, divisor, local = np.zeros(size), np.zeros(size), {}
        for client_id, weight in weights.items():
            # The toy trainer moves from the global model; the update counts from where training started.
            local[client_id] = vector + pushed(vector, 7, client_id, round)
            sent = np.arange(size) % 4 != client_id
            total[sent] += weight * (local[client_id] - own[client_id])[sent].astype(np.float64)
            divisor[sent] += weight
        vector = vector + (total / divisor).astype(np.float32)
        for client_id in weights:
            kept = np.arange(size) % 4 == client_id
            own[client_id] = np.where(kept, local[client_id], vector)
    assert np.allclose(outcome.vector, vector, atol=1e-6)
    models = personal_models(outcome.files, tmp_path)
    for client_id, model in own.items():
        assert np.allclose(models[client_id], model, atol=1e-6)


def test_training_starts_from_the_personal_model_and_its_accuracy_is_reported() -> None:
    plain = PERSONAL | {"train": {"use": "std.sgd", "epochs": 2, "lr": 0.1}, "rounds": 3}
    outcome, reference = run_protocol(plain), run_protocol(plain | {"postprocess": {}})
    assert not np.array_equal(outcome.vector, reference.vector)
    row = outcome.rows[-1]
    assert list(row.personal_accuracy) == list(row.personal_public_accuracy) == [0, 1, 2, 3]
    assert all(0 <= value <= 1 for value in row.personal_accuracy.values())
    assert row.personal_accuracy != row.client_accuracy
    assert not reference.rows[-1].personal_accuracy


def test_a_resumed_run_keeps_the_personal_models(tmp_path: Path) -> None:
    settings = Settings.load().replace({"engine": "local", "output": tmp_path, "quiet": True})
    recipe = Recipe.from_plain(PERSONAL | {"rounds": 3}, toy_catalog())
    _, folder = start(recipe, settings, toy_catalog())
    rows = (folder / "metrics.jsonl").read_text()
    assert resume(folder, settings, 2, toy_catalog()) == 0
    again = (folder / "metrics.jsonl").read_text()
    kept = [[json.loads(line)["personal_accuracy"] for line in text.splitlines()] for text in (rows, again)]
    assert kept[0] == kept[1]


def test_retained_values_of_a_personal_model_are_in_no_message() -> None:
    outcome = run_protocol(PERSONAL | {"rounds": 1})
    wire = b"".join(message.data for message in outcome.wire.messages)
    update = pushed(initial_vector(PERSONAL), 7, 2, 0)
    local = initial_vector(PERSONAL) + update
    kept = np.arange(len(update)) % 4 == 2
    assert not any(value.tobytes() in wire for value in (*update[kept][:40], *local[kept][:40]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"postprocess": {RETAINED: [{"use": "std.central_gaussian", "noise_multiplier": 1, "norm": 1}]}},
            "std.central_gaussian cannot be here: zone retained never leaves the client",
        ),
        (
            {"negotiate_mask": {"use": "std.single_zone", "zone": CLEAR}},
            "postprocess.retained: no plan of std.single_zone can hold zone retained; remove it",
        ),
        ({"protect": {CLEAR: [], RETAINED: []}}, "zone retained never leaves the client; remove it from protect"),
    ],
)
def test_what_cannot_be_done_with_retained_values_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem.replace(".", r"\.")):
        Recipe.from_plain(PERSONAL | change, toy_catalog())


# -- individual masks --------------------------------------------------------------------------------------------------


def facts_with(size: int, zones: tuple[str, ...]) -> Facts:
    return Facts(0, 1, Layout.of([("w", (size,))]), zones, 2, 2, 7, "digest")


def test_an_encrypted_zone_takes_in_the_clear_scalars_of_its_blocks_and_no_others() -> None:
    facts = facts_with(10, (ENCRYPTED, NOISED, RETAINED, CLEAR))
    plan = Plan.of(facts, CLEAR, encrypted=[1, 9], noised=[2], retained=[8])
    wider = plan.widened(ENCRYPTED, 4)
    assert wider.positions(ENCRYPTED).tolist() == [0, 1, 3, 9]
    assert (wider.positions(NOISED).tolist(), wider.positions(RETAINED).tolist()) == ([2], [8])
    assert plan.widened(ENCRYPTED, 1).labels.tolist() == plan.labels.tolist()


@given(st.integers(1, 40), st.integers(1, 50), st.data())
def test_widening_covers_every_touched_block(size: int, width: int, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    wider = Plan.of(facts_with(size, (ENCRYPTED, CLEAR)), CLEAR, encrypted=mask).widened(ENCRYPTED, width)
    blocks = np.arange(size) // width
    assert wider.positions(ENCRYPTED).tolist() == np.flatnonzero(np.isin(blocks, blocks[mask])).tolist()


def scattered(zone: str, positions: list[int], values: list[float], divisor: list[float], least: int = 2) -> Block:
    where = np.array(positions, np.uint32)
    return Block(zone, len(where), np.array(values, np.float32), where, divisor=np.array(divisor), contributors=least)


def test_positions_in_two_zones_are_divided_by_all_who_sent_them() -> None:
    # Weights 1 and 2 encrypted position 3, weight 4 sent it plain: 6.0 + 8.0 over 7.
    sealed = scattered(ENCRYPTED, [1, 3], [3.0, 6.0], [3.0, 3.0])
    plain = scattered(CLEAR, [0, 3], [14.0, 8.0], [7.0, 4.0])
    shared = share_divisors({ENCRYPTED: sealed, CLEAR: plain})
    assert np.allclose(shared[ENCRYPTED].mean(), [1.0, 6 / 7])
    assert np.allclose(shared[CLEAR].mean(), [2.0, 8 / 7])
    met = meet([sealed, plain])
    assert met.positions is not None
    assert met.positions.tolist() == [0, 1, 3]
    assert np.allclose(met.mean(), [2.0, 1.0, 2.0])
    assert share_divisors({CLEAR: plain})[CLEAR] is plain


def test_parts_that_do_not_overlap_stay_as_they_are() -> None:
    one, other = scattered(ENCRYPTED, [0], [1.0], [2.0]), scattered(CLEAR, [1], [3.0], [4.0])
    shared = share_divisors({ENCRYPTED: one, CLEAR: other})
    assert (shared[ENCRYPTED].mean(), shared[CLEAR].mean()) == (0.5, 0.75)
    assert share_divisors({CLEAR: scattered(CLEAR, [], [], [])})[CLEAR].size == 0
    by_all = {ENCRYPTED: one.replace(divisor=4.0), CLEAR: one.replace(divisor=4.0)}
    assert [block.divisor for block in share_divisors(by_all).values()] == [4.0, 4.0]


@functools.cache
def plain_mean(**aggregate: str) -> NDArray[np.float32]:
    """The model after a round of averages in the clear."""
    return run_protocol(recipe_of(train=PUSH, rounds=1, aggregate={"use": "std.mean", **aggregate})).vector


MASKS = recipe_of(
    train=PUSH,
    negotiate_mask={"use": "toy.masks"},
    protect={ENCRYPTED: [{"use": "toy.narrow_bfv", "range": 0.1}], CLEAR: []},
    postprocess={ENCRYPTED: ["toy.narrow_bfv"]},
)


@pytest.mark.parametrize("options", [{}, {"sums_visible_to": "clients"}, {"key_holder": "clients"}], ids=str)
@pytest.mark.parametrize("engine", ["local", "processes"])
def test_encrypted_and_plain_parts_meet_in_the_weighted_mean(options: dict[str, Any], engine: str) -> None:
    chain = [{"use": "toy.narrow_bfv", "range": 0.1} | options]
    outcome = run_protocol(MASKS | {"rounds": 1, "protect": {ENCRYPTED: chain, CLEAR: []}}, engine)
    assert outcome.notes == []
    assert np.allclose(outcome.vector, plain_mean(), atol=1e-6)


@pytest.mark.parametrize("options", [
    {}, pytest.param({"sums_visible_to": "clients"}, marks=pytest.mark.slow), {"key_holder": "clients"},
], ids=str)  # fmt: skip
def test_two_encrypted_zones_that_overlap_give_the_weighted_mean(options: dict[str, Any]) -> None:
    plain = MASKS | {
        "rounds": 1, "negotiate_mask": {"use": "toy.masks", "other_zone": "second"},
        "protect": {ENCRYPTED: [{"use": "toy.narrow_bfv", "range": 0.1} | options], "second": ["toy.narrow_bfv"]},
        "postprocess": {ENCRYPTED: ["toy.narrow_bfv"], "second": ["toy.narrow_bfv"]},
    }
    outcome = run_protocol(plain)
    assert outcome.notes == []
    assert np.allclose(outcome.vector, plain_mean(), atol=1e-6)


@pytest.mark.parametrize("answer", ["server", "clients"])
def test_parts_that_are_divided_by_all_clients_are_so_once(answer: str) -> None:
    """All clients send every position, so that the division by K, which SelectiveShield prints, gives the mean."""
    plain = MASKS | {
        "rounds": 1,
        "protect": {ENCRYPTED: [{"use": "toy.narrow_bfv", "range": 0.1, "sums_visible_to": answer}], CLEAR: []},
        "aggregate": {"use": "selectiveshield.two_server", "divide_by": "clients"},
    }
    assert np.allclose(run_protocol(plain).vector, plain_mean(weighting="uniform"), atol=1e-6)


def test_positions_that_only_one_client_encrypts_are_not_opened() -> None:
    # Two clients encrypt each ten of positions; three are wanted.
    plain = MASKS | {"min_clients": 3, "rounds": 1}
    outcome = run_protocol(plain)
    vector, weights = initial_vector(plain), weights_of(outcome)
    size = len(vector)
    total, divisor = np.zeros(size), np.zeros(size)
    for client_id, weight in weights.items():
        clear = ~np.isin((np.arange(size) // WIDTH - client_id) % 4, (0, 1))
        total[clear] += weight * pushed(vector, 7, client_id, 0)[clear].astype(np.float64)
        divisor[clear] += weight
    assert np.allclose(outcome.vector, vector + total / divisor, atol=1e-6)


def test_the_key_server_is_sent_sums_and_no_upload() -> None:
    outcome = run_protocol(MASKS)
    uploads = [m.decode()["value"] for m in outcome.wire.messages if m.phase == "upload" and m.receiver == "server"]
    single = {c for upload in uploads for c in upload["blocks"][ENCRYPTED].ciphertexts}
    asked = [call[4][1] for m in outcome.sent("key_server") if m.round >= 0 for call in m.decode()["calls"]]
    summed = {c for block in asked for c in block.ciphertexts}
    assert len(single) > len(summed) > 0
    assert not single & summed
    assert all(block.contributors >= 2 for block in asked)


def test_a_key_server_that_answers_clients_shows_the_server_nothing() -> None:
    start = initial_vector(MASKS)
    for answer in ("server", "clients"):
        chain = [{"use": "std.bfv", "range": 0.1, "sums_visible_to": answer}]
        plain = recipe_of(ENCRYPTED, chain, train=PUSH, rounds=1)
        outcome = run_protocol(plain)
        replies = b"".join(message.data for message in outcome.sent(sender="key_server", round=0))
        told = b"".join(message.data for message in outcome.sent(sender="server", round=1))
        moved = outcome.vector - start
        seen = [value.tobytes() in wire for wire in (replies, told) for value in moved[:20]]
        opened = [m.decode()["value"] for m in outcome.sent(sender="key_server", round=0)]
        assert [block.values is None for block in opened] == [answer == "clients"]
        assert any(seen) <= (answer == "server")


def test_only_a_key_server_can_answer_clients() -> None:
    chain = [{"use": "std.bfv", "key_holder": "clients", "sums_visible_to": "clients"}]
    with pytest.raises(RecipeError, match="sums_visible_to: clients needs a key server"):
        Recipe.from_plain(recipe_of(ENCRYPTED, chain))


# -- groups ------------------------------------------------------------------------------------------------------------


def test_groups_are_formed_before_each_negotiates_for_itself() -> None:
    plain = recipe_of(train=PUSH, groups={"use": "toy.halves"}, rounds=2)
    outcome = run_protocol(plain)
    assert sorted(outcome.rows[-1].groups) == ["even", "odd"]
    assert outcome.rows[-1].group_members == {"even": [0, 2], "odd": [1, 3]}
    assert not np.allclose(outcome.vectors[0], outcome.vectors[1], atol=1e-4)
    assert np.array_equal(outcome.vectors[0], outcome.vectors[2])


def test_groups_cannot_change_once_their_models_differ() -> None:
    def move(protocol: Any, engine: Any) -> None:
        def at_end(rounds: int) -> None:
            protocol.office.begin_round(rounds)
            cohort = protocol.cohort(protocol.client_ids)
            cohort.regroup({"even": [0, 2], "odd": [1, 3]})  # the same again
            with pytest.raises(ValueError, match="groups cannot change in round 2"):
                cohort.regroup({"even": [0, 1], "odd": [2, 3]})

        protocol.after_each_round(at_end)

    run_protocol(recipe_of(train=PUSH, groups={"use": "toy.halves"}, rounds=1), prepare=move)


def test_each_group_votes_for_itself() -> None:
    plain = recipe_of(
        groups={"use": "toy.halves"},
        score_parameters=[{"use": "paraaegis.magnitude"}],
        negotiate_mask={"use": "paraaegis.vote", "ratio": 0.2, "other_zone": "clear"},
        protect={"encrypted": [{"use": "std.bfv"}], "clear": []},
        postprocess={"encrypted": ["std.bfv"]},
    )
    outcome = run_protocol(plain)
    assert outcome.notes == []
    assert outcome.rows[0].zones["encrypted"] == pytest.approx(0.2, abs=1e-3)
    assert outcome.rows[0].clients.answered == 4


def test_ballots_with_noise_are_paid_for() -> None:
    outcome = run_protocol(recipe_of(train=PUSH, groups={"use": "toy.halves"}, rounds=2))
    ledger = outcome.protocol.ledger
    assert [list(entry.zones) for entry in ledger.log] == [["ballots of toy.halves"], ["clear"], ["clear"]]
    assert not any("repeated" in warning for warning in ledger.report().warnings)
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(2.0, 1e-5))


class Bare(SingleZone):
    """Asks every client for the sign of its update, and states that epsilon covers the answers."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.bit)
        super().negotiate_mask(cohort, facts)

    @at_client
    def bit(self, client: Client) -> bool:
        return bool(client.update[0] > 0)

    def reveals(self, facts: Facts) -> list[Reveals]:
        note = "the same for all"
        return [Reveals("a bit", ("server",), covered_by="epsilon", asked=("bit",), note=note)]


class Charged(Bare, Ballots):
    """The same, under the noise of its ballots."""

    @at_client
    def bit(self, client: Client) -> Any:
        return client.release(self, [client.update[0] > 0])

    def ballots(self, facts: Facts) -> Operations:
        return Clip(1.0), Noise.gaussian(2.0)


class Hides(Charged):
    """Has ballots with noise, but answers with values without it."""

    @at_client
    def bit(self, client: Client) -> Any:
        client.release(self, [1.0])
        return bool(client.update[0] > 0)


def test_replies_without_noise_are_unaccounted_whatever_is_said_to_cover_them(monkeypatch: pytest.MonkeyPatch) -> None:
    noised = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}]
    ledgers = {}
    for name, found in {"toy.bare": Bare, "toy.charged": Charged}.items():
        monkeypatch.setitem(TOYS["negotiate_mask"], name, found)
        plain = recipe_of("noised", noised, train=PUSH, negotiate_mask={"use": name, "zone": "noised"})
        ledgers[name] = run_protocol(plain).protocol.ledger
    charged, bare = ({shown.what: shown for shown in ledger.reveals}["a bit"] for ledger in reversed(ledgers.values()))
    assert charged.covered_by == "epsilon"
    toward = ledgers["toy.charged"].verdict().toward("server")
    assert toward.state == "guaranteed"
    assert "a bit" not in toward.not_covered
    assert bare.covered_by is None
    assert bare.note == (
        "the same for all; not covered by epsilon, as toy.bare says: its replies are no ballots with noise"
    )
    found = {line.party: line.reason for line in ledgers["toy.bare"].verdict().lines if line.state == "none"}
    assert found == dict.fromkeys(
        ("server", "client", "client_and_server", "released_model"),
        "toy.bare has answers sent that no statement covers",
    )


def test_an_answer_that_epsilon_is_said_to_cover_is_the_one_that_was_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS["negotiate_mask"], "toy.hides", Hides)
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.hides", "zone": "clear"})
    said = r"toy\.hides: its ballots have noise, and bit answers with values that did not pass through it; answer with"
    with pytest.raises(TooFewClients, match=said):
        run_protocol(plain)


@pytest.mark.parametrize(("source", "times"), [("secure", 2), ("reproducible", 1)])
def test_ballots_that_were_sent_twice_are_paid_for_twice(source: str, times: int, tmp_path: Path) -> None:
    settings = Settings.load().replace({"engine": "local", "output": tmp_path, "quiet": True})
    plain = recipe_of(train=PUSH, groups={"use": "toy.halves", "source": source}, rounds=1)
    _, folder = start(Recipe.from_plain(plain, toy_catalog()), settings, toy_catalog())
    charges = [json.loads(line) for line in (folder / "charging.jsonl").read_text().splitlines()]
    assert [charge["what"] for charge in charges] == ["ballots", "upload"]
    assert resume(folder, settings, 0, toy_catalog()) == 0  # round 1 again, with other noise if it is secret
    log = json.loads((folder / "ledger.json").read_text())["log"]
    assert sum("ballots of toy.halves" in entry["zones"] for entry in log) == times


def test_a_server_adds_no_noise_to_a_sum_that_it_relays_unread() -> None:
    relayed = {"use": "std.bfv", "key_holder": "key_server", "sums_visible_to": "clients"}
    chain = [{"use": "std.clip", "norm": 1.0}, relayed]
    noise = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}
    plain = recipe_of("encrypted", chain, postprocess={"encrypted": ["std.bfv", noise]})
    with pytest.raises(RecipeError, match="which relays the encrypted sum and cannot read it"):
        Recipe.from_plain(plain, toy_catalog())
