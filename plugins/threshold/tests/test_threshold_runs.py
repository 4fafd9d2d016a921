"""Whole runs under a joint key: exact sums, clients that drop out in every phase, and which parties can open what."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fedplug import Client, Seal, Words, at_client
from fedplug.api.errors import OpenedBefore, ProtectionError, RecipeError, TooFewClients
from fedplug.mechanisms.closing import Closing
from fedplug.round.set_up import SetUp
from fedplug_threshold import bfv
from fedplug_threshold.bfv import SETS, ThresholdBfv
from fedplug_threshold.parameters import choose
from fedplug_threshold.scheme import Scheme
from threshold_toys import CLIENTS, EVERYBODY, NORM, away, expected, recipe
from toy_components import pushed
from toy_protocol import calls_of, initial_vector, run_protocol

SUMS: list[dict[str, Any]] = [
    {}, {"bits": 32, "threshold": 0.9}, {"degree": 8192, "threshold": 4}, {"sums_visible_to": "clients"},
]  # fmt: skip


@pytest.mark.parametrize(("engine", "options"), [
    *(("local", SUMS[each]) for each in (0, 1, 3)), ("processes", SUMS[0]), ("processes", SUMS[3]),
    *(pytest.param("processes", options, marks=pytest.mark.slow) for options in SUMS[1:3]),  # other numbers alone
    pytest.param("local", SUMS[2], marks=pytest.mark.slow),
])  # fmt: skip
def test_a_sum_is_the_plain_fixed_point_sum_to_the_bit(engine: str, options: dict[str, Any]) -> None:
    plain = recipe({"use": "threshold.bfv", **options})
    outcome = run_protocol(plain, engine)
    assert outcome.notes == []
    bits = choose(CLIENTS, 4, 40, options.get("bits"), options.get("degree")).bits
    assert np.array_equal(outcome.vectors[0], expected(plain, [EVERYBODY] * 2, bits))


BITS = choose(CLIENTS, 4).bits
REAL = {name: getattr(ThresholdBfv, name) for name in ("deal", "take_shares", "decrypt_share", "seal")}


def replace(monkeypatch: pytest.MonkeyPatch, name: str, does: Callable[[Any, Client, Any], Any]) -> None:
    """Has clients do something else when this method is called."""
    does.__name__ = name
    monkeypatch.setattr(ThresholdBfv, name, at_client(does))


def fails(monkeypatch: pytest.MonkeyPatch, name: str, *clients: int) -> None:
    """These clients are gone when this method of theirs is called."""

    def gone(self: Any, client: Client, asked: Any) -> Any:
        if client.client_id in clients:
            raise ProtectionError("it is gone")
        return REAL[name](self, client, asked)

    replace(monkeypatch, name, gone)


@pytest.mark.parametrize(("when", "inside"), [
    ("round", [0, 1, 3, 5]), ("upload", [0, 1, 3, 5]), ("opening", EVERYBODY),  # their updates are in the sum
])  # fmt: skip
def test_clients_may_drop_out_in_every_phase(tmp_path: Any, when: str, inside: list[int]) -> None:
    plain = recipe(min_clients=4, availability=away(tmp_path, when, (1, 2), (1, 4)))
    outcome = run_protocol(plain)
    assert all("dropped out: is away" in note for note in outcome.notes)
    assert sorted(outcome.rows[0].clients.dropped) == [2, 4]
    assert np.array_equal(outcome.vectors[0], expected(plain, [inside, EVERYBODY], BITS))


@pytest.mark.parametrize("phase", ["before its share was dealt", "before it took its shares"])
def test_a_client_that_drops_out_of_the_set_up_encrypts_but_opens_nothing(
    phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key comes from the clients that dealt, and is the same at all. A client without a share is not asked to open.

    A run needs every client in its set-up. This test examines the key without that rule.
    """
    fails(monkeypatch, "deal" if "dealt" in phase else "take_shares", 2)
    plain = recipe(rounds=1)
    with pytest.raises(TooFewClients, match="set-up needs every client once; missing: client 2: threshold"):
        run_protocol(plain)
    monkeypatch.setattr(SetUp, "_require", lambda *_: None)
    held: list[Any] = []
    outcome = run_protocol(plain, prepare=lambda protocol, engine: held.append((protocol, engine)))
    assert np.array_equal(outcome.vectors[0], expected(plain, [EVERYBODY], BITS))
    ((protocol, _),) = held
    memory = protocol.server.state["threshold.bfv"]
    assert memory["holders"] == [0, 1, 3, 4, 5]
    assert memory["dealers"] == ([0, 1, 3, 4, 5] if "dealt" in phase else EVERYBODY)
    asked = {
        message.receiver for message in outcome.wire.messages
        if message.receiver.startswith("client") and "threshold.bfv.decrypt_share" in calls_of(message)
    }  # fmt: skip
    assert asked
    assert "client:2" not in asked


@pytest.mark.parametrize("missing", [None, 2])
def test_letters_are_relayed_some_at_a_time(missing: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server holds the letters of one dealer at a time. A client that misses one of them has no share."""
    monkeypatch.setattr(bfv, "_RELAYED_BYTES", 1)
    monkeypatch.setattr(SetUp, "_require", lambda *_: None)
    taken: list[tuple[int, list[int]]] = []

    def take(self: Any, client: Client, letters: dict[int, bytes]) -> bool:
        taken.append((client.client_id, sorted(letters)))
        if client.client_id == missing and 4 in letters:
            raise ProtectionError("it is gone")
        return bool(REAL["take_shares"](self, client, letters))

    replace(monkeypatch, "take_shares", take)
    plain = recipe(rounds=1)
    outcome, protocol, clients, component = held_by(plain)
    assert {len(dealers) for _, dealers in taken} == {1}
    assert np.array_equal(outcome.vectors[0], expected(plain, [EVERYBODY], BITS))
    holders = [client_id for client_id in EVERYBODY if client_id != missing]
    assert protocol.server.memory(component)["holders"] == holders
    assert [c for c in EVERYBODY if "share" in clients[c].memory(component)] == holders


def test_with_fewer_shares_than_open_the_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, "take_shares", 1, 2, 3)
    with pytest.raises(TooFewClients, match="3 clients have a share of the key, and 4 open a sum"):
        run_protocol(recipe())


def test_with_too_few_left_the_sum_stays_closed_and_costs_nothing(tmp_path: Any) -> None:
    gone = away(tmp_path, "opening", *((1, client) for client in range(3)))
    outcome = run_protocol(recipe(availability=gone))
    (said,) = (note for note in outcome.notes if "skipped" in note)
    assert "of the clients in the encrypted sum are left that have a share of the key, and 4 open it" in said
    assert [entry.zones["encrypted"].closed for entry in outcome.protocol.ledger.log] == [True, False]


def test_another_set_opens_where_clients_of_the_first_one_are_gone(tmp_path: Any) -> None:
    gone = away(tmp_path, "opening", (1, 0), (1, 3))
    plain = recipe(availability=gone, rounds=1)
    outcome = run_protocol(plain)
    assert np.array_equal(outcome.vectors[0], expected(plain, [EVERYBODY], BITS))


def test_a_sum_is_not_shown_to_more_than_four_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time one client of the set does not answer."""
    calls: list[int] = []

    def gone(self: Any, client: Client, asked: Any) -> Any:
        if client.facts.round == 0 and client.client_id == asked[2][-1]:
            calls.append(client.client_id)
            raise ProtectionError("it is gone")
        return REAL["decrypt_share"](self, client, asked)

    replace(monkeypatch, "decrypt_share", gone)
    outcome = run_protocol(recipe({"use": "threshold.bfv", "threshold": 5}, 8))
    assert len(calls) == SETS
    assert any("in each of 4 sets of 5 clients one dropped out" in note for note in outcome.notes)


def test_sums_for_the_clients_alone_travel_under_a_pad_that_the_server_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums: list[Any] = []
    gathered = ThresholdBfv.gather

    def look(self: Any, total: Any, server: Any, facts: Any) -> Any:
        sums.append(gathered(self, total, server, facts))
        return sums[-1]

    monkeypatch.setattr(ThresholdBfv, "gather", look)
    plain = recipe({"use": "threshold.bfv", "sums_visible_to": "clients"}, rounds=1)
    outcome, protocol, clients, component = held_by(plain)
    assert all(np.array_equal(c.vector, expected(plain, [EVERYBODY], BITS)) for c in clients.values())
    scheme = component.scheme(protocol.server.facts)
    for total in sums:
        with pytest.raises(ProtectionError, match="does not lie on its grid"):
            scheme.read(scheme.chain.unpack(list(total.parts), ""), total.size)
    views = outcome.protocol.ledger.report().views
    assert views["server"].guarantee == "learns nothing of the updates (epsilon 0)"
    usual = run_protocol(recipe(rounds=1)).protocol.ledger.report().views
    assert usual["server"].guarantee != views["server"].guarantee


def held_by(plain: dict[str, Any]) -> tuple[Any, Any, dict[int, Client], Any]:
    """The outcome, the protocol, the clients in round 1, and the component."""
    held: list[Any] = []
    outcome = run_protocol(plain, prepare=lambda protocol, engine: held.append((protocol, engine)))
    ((protocol, engine),) = held
    clients = {client.client_id: client for client in engine.clients.clients.values()}
    for client in clients.values():
        client.facts = dataclasses.replace(client.facts, round=0)
    return outcome, protocol, clients, protocol.composition.components["threshold.bfv"]


@pytest.fixture(scope="module")
def held() -> tuple[Any, Any, dict[int, Client], Any]:
    """A run of one round; tests must not change it."""
    return held_by(recipe(rounds=1))


@pytest.mark.parametrize("count", [3, 4])
def test_as_many_clients_as_stated_open_an_upload_and_fewer_do_not(count: int, held: Any) -> None:
    plain = recipe(rounds=1)
    outcome, protocol, clients, component = held
    upload = next(
        message.answered().blocks["encrypted"] for message in outcome.wire.messages
        if message.sender == "client:5" and (message.round, message.phase) == (0, "upload")
    )  # fmt: skip
    steps = protocol.server.facts.steps("encrypted")
    (seal,) = (one for step in steps for one in step.operations if isinstance(one, Seal))
    assert (seal.opens_with, seal.range) == (4, NORM)
    assert "4 of 6 clients open a sum; N=4096, log2 q = 106.0 of 106 allowed" in seal.scheme
    closing = Closing.of("encrypted", protocol.server.facts)
    opened = closing.open_upload(upload, 5, [protocol.server, *(clients[c] for c in range(count))])
    if count < seal.opens_with:
        assert opened is None
        # They could still interpolate, as if they were enough.
        scheme = component.scheme(protocol.server.facts)
        shares = {c: scheme.chain.unpack([clients[c].memory(component)["share"]], "")[0] for c in range(count)}
        pairs = scheme.unpack_pairs(upload.ciphertexts, "")
        secret = Scheme(dataclasses.replace(scheme.parameters, threshold=count)).secret(shares)
        with pytest.raises(ProtectionError, match="does not lie on its grid"):
            scheme.decrypt(secret, pairs, upload.size)
        return
    assert opened is not None
    update = pushed(initial_vector(plain), plain["seed"], 5, 0)
    assert np.abs(opened.plain() - update).max() <= seal.step / 2


def test_no_client_has_the_secret_of_another_or_its_own_in_memory(held: Any) -> None:
    """Only shares of the sum of the secrets remain."""
    _, _, clients, component = held
    for client in clients.values():
        memory = client.memory(component)
        kept = {key for key in memory if not key.startswith("letters")}
        assert kept == {"dealers", "dealt", "key", "noise", "nonce", "share"}
        share = component.scheme(client.facts).chain.unpack([memory["share"]], "")
        assert share[0, 0].std() > component.scheme(client.facts).chain.primes[0] / 4  # no ternary polynomial


def test_who_has_dealt_draws_no_other_smudging_secret(held: Any) -> None:
    _, _, clients, component = held
    with pytest.raises(ProtectionError, match="client 0 has dealt shares of its secret, and draws no other nonce"):
        component.draw_nonce(clients[0])


def test_a_client_answers_for_one_sum_a_round_of_enough_updates_and_the_same_each_time() -> None:
    outcome, _, clients, component = held_by(recipe(rounds=1))
    asked = next(
        payload[0] for message in outcome.wire.messages if message.receiver == "client:0" and message.round == 0
        for *_, method, payload in message.decode()["calls"] if method == "decrypt_share"
    )  # fmt: skip
    zone, inside, chosen, c1 = asked
    client = clients[0]
    first = component.decrypt_share(client, asked)
    assert component.decrypt_share(client, asked) == first
    chain = component.scheme(client.facts).chain
    other = chain.pack(chain.uniform(bytes(16), len(c1)))
    with pytest.raises(OpenedBefore):
        component.decrypt_share(client, [zone, inside, chosen, other])
    with pytest.raises(OpenedBefore):
        component.decrypt_share(client, [zone, inside[:-1], inside[:4], c1])
    for wrong, message in (
        ([zone, [0, 1], chosen, c1], "2 clients are said to be in the sum; below 3"),
        ([zone, list(range(8)), chosen, c1], "two sets of them without one"),
        ([zone, inside, [0, 1, 2], c1], "they must be 4 of those in it"),
        ([zone, inside, [1, 2, 3, 4], c1], "client 0 among them"),
        ([zone, inside, [0, 1, 2, 9], c1], "they must be 4 of those in it"),
        (["another name", inside, chosen, c1], "closes no zone 'another name'"),
        ([zone, [0, 0, 1, 2, 3], chosen, c1], "clients 0, 0, 1, 2, 3 are said to be in the sum; they must be"),
        ([zone, [*inside, CLIENTS], chosen, c1], f"they must be among the {CLIENTS} of the run, each named once"),
    ):  # fmt: skip
        with pytest.raises(ProtectionError, match=message):
            component.decrypt_share(client, wrong)
    sets = [[0, 1, 2, 4], [0, 1, 2, 5], [0, 2, 3, 4], [0, 1, 3, 5]]
    before = client.to_plain()
    for each in [each for each in sets if each != chosen][: SETS - 1]:
        assert component.decrypt_share(client, [zone, inside, each, c1]) != first
        client.restore(before)  # a checkpoint takes back its state, and not what it has used
    with pytest.raises(ProtectionError, match="smudging noise of zone encrypted in round 1 was used 4 times"):
        component.decrypt_share(client, [zone, inside, [0, 3, 4, 5], c1])
    assert component.decrypt_share(client, asked) == first
    with pytest.raises(ProtectionError, match="deals shares of a secret once"):
        component.deal(client, {0: client.memory(component)["nonce"]})
    with pytest.raises(ProtectionError, match="has a share of the key already"):
        component.take_shares(client, {})
    with pytest.raises(ProtectionError, match="has another joint key already"):
        component.take_key(client, (bytes(3), bytes(16), EVERYBODY))


def aggregators(outcome: Any) -> float:
    epsilon = outcome.protocol.ledger.report().views["server"].epsilon
    assert epsilon is not None
    return float(epsilon)


NOISED = {"protect": {"encrypted": [
    {"use": "std.clip", "norm": NORM}, {"use": "std.distributed_gaussian", "noise_multiplier": 2.0}, "threshold.bfv",
]}}  # fmt: skip


def test_noise_that_clients_share_out_is_priced_toward_the_server_and_for_the_model() -> None:
    outcome = run_protocol(recipe(rounds=1, min_clients=CLIENTS, **NOISED))
    report = outcome.protocol.ledger.report()
    assert outcome.notes == []
    assert report.views["server"].epsilon == report.views["released_model"].epsilon
    masks = run_protocol(recipe(rounds=1, min_clients=CLIENTS, protect={"encrypted": [
        *NOISED["protect"]["encrypted"][:2], "secagg.bonawitz"
    ]}, postprocess={"encrypted": ["secagg.bonawitz"]}))  # fmt: skip
    assert aggregators(outcome) == pytest.approx(aggregators(masks), rel=1e-6)


@pytest.fixture(scope="module")
def honest() -> float:
    """What a round of honest clients costs."""
    return aggregators(run_protocol(recipe(rounds=1, min_clients=CLIENTS, **NOISED)))


@pytest.mark.parametrize("how", ["a wrong share", "an upload beyond the bound"])
def test_a_wrong_share_or_upload_is_noticed_and_the_sum_is_paid_for(
    how: str, honest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = recipe(rounds=1, min_clients=CLIENTS, **NOISED)

    def lies(self: Any, client: Client, asked: Any) -> list[bytes]:
        parts = REAL["decrypt_share"](self, client, asked)
        if client.client_id == 2:
            chain = self.scheme(client.facts).chain
            polynomials = chain.unpack(parts, "")
            polynomials[:, 1, 17] = chain.primes[1] // 2
            parts = chain.pack(polynomials)
        return parts

    def too_large(self: Any, words: Words, client: Client, facts: Any) -> Any:
        beyond = 7 * Closing.of("encrypted", facts).operation.numbers.largest if client.client_id == 5 else 0
        return REAL["seal"](self, dataclasses.replace(words, values=words.values + beyond), client, facts)

    if how == "a wrong share":
        replace(monkeypatch, "decrypt_share", lies)
    else:
        monkeypatch.setattr(ThresholdBfv, "seal", too_large)
    outcome = run_protocol(plain)
    (said,) = (note for note in outcome.notes if "zone encrypted is skipped" in note)
    assert "a share or an upload was wrong; the sum is not used" in said
    assert aggregators(outcome) == honest > 1


def test_zones_for_which_smudging_was_not_computed_are_not_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfv, "MOST_VALUES", 100)
    with pytest.raises(TooFewClients, match="the leakage under smudging was computed for 100; encrypt a part"):
        run_protocol(recipe())


def test_uploads_of_equal_models_differ_in_every_round() -> None:
    outcome = run_protocol(recipe(train={"use": "toy.push", "scale": 0.0}))
    uploads = [
        np.frombuffer(message.answered().blocks["encrypted"].ciphertexts[0], np.uint8)
        for message in outcome.wire.messages
        if message.phase == "upload" and message.sender.startswith("client")
    ]
    assert len(uploads) == 2 * CLIENTS
    assert all(np.mean(one == other) < 0.01 for one, other in itertools.combinations(uploads, 2))


@pytest.mark.parametrize(("plain", "problem"), [
    (recipe(min_clients=2), "raise it to 3 or more"),
    (recipe({"use": "threshold.bfv", "threshold": 7}), "at most the number of clients, 6"),
    (recipe({"use": "threshold.bfv", "threshold": 4.5}), "must be a whole number of clients"),
    (recipe({"use": "threshold.bfv", "threshold": 3}), "at most half of the 6 clients of a round"),
    (recipe(groups="toy.halves"), "of several groups one can be opened at most; write {use: secagg.bonawitz}"),
    (recipe(sampling={"scheme": "fixed", "rate": 0.5}), "threshold=4 clients open a sum, and 3 of 6 take part"),
    (recipe({"use": "threshold.bfv", "smudging_bits": 30}), "raise smudging_bits to 3[0-9]"),
    (recipe({"use": "threshold.bfv", "bits": 40, "smudging_bits": 64}), "lower bits or smudging_bits"),
    (recipe({"use": "threshold.bfv", "degree": 4095}), "degree.*4096, 8192 or 16384"),
    (recipe() | {"protect": {"encrypted": ["threshold.bfv"]}}, "nothing bounds the encrypted values"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_the_run(plain: dict[str, Any], problem: str) -> None:
    with pytest.raises((RecipeError, TooFewClients), match=problem):
        run_protocol(plain)
