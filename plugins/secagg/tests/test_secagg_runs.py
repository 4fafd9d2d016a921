"""Whole rounds under masks: exact sums, clients that drop out in every phase, and which parties can open what."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from fedplug import Client, Misplaced, Seal, Sealed, at_client
from fedplug.api.errors import OpenedBefore, ProtectionError, TooFewClients
from fedplug.mechanisms.closing import Closing
from fedplug.round.protocol import sample
from fedplug_secagg import masked
from fedplug_secagg.bonawitz import Bonawitz
from fedplug_secagg.fixed_point import FixedPoint
from secagg_toys import CLIENTS, EVERYBODY, NORM, away, expected, recipe
from toy_components import pushed
from toy_protocol import calls_of, initial_vector, run_protocol

SUMS: list[tuple[Any, int]] = [
    ("secagg.bonawitz", 32), ("secagg.plus", 32),
    ({"use": "secagg.bonawitz", "bits": 64}, 64), ({"use": "secagg.bonawitz", "bits": 27}, 27),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "use", "bits"), [
    *(("local", *each) for each in SUMS), *(("processes", *each) for each in SUMS[:2]),
    *(pytest.param("processes", *each, marks=pytest.mark.slow) for each in SUMS[2:]),  # other numbers alone
])  # fmt: skip
def test_a_sum_is_the_plain_fixed_point_sum_to_the_bit(engine: str, use: Any, bits: int) -> None:
    plain = recipe(use)
    outcome = run_protocol(plain, engine)
    assert outcome.notes == []
    assert np.array_equal(outcome.vectors[0], expected(plain, [EVERYBODY] * 2, bits))


@pytest.mark.parametrize(("when", "inside"), [
    ("round", [0, 1, 3, 5]),  # before their keys
    ("upload", [0, 1, 3, 5]),  # after they shared them: their key removes their masks
    ("opening", EVERYBODY),  # their updates are in the sum, and others open it
])  # fmt: skip
@pytest.mark.parametrize("use", ["secagg.bonawitz", "secagg.plus"])
def test_clients_may_drop_out_in_every_phase(tmp_path: Any, use: str, when: str, inside: list[int]) -> None:
    options: Any = {"threshold": 3} if use == "secagg.bonawitz" else {"dropped": 0.4, "corrupt": 0.1}
    plain = recipe({"use": use, **options}, min_clients=4, availability=away(tmp_path, when, (1, 2), (1, 4)))
    outcome = run_protocol(plain)
    assert all("dropped out: is away" in note for note in outcome.notes)
    assert sorted(outcome.rows[0].clients.dropped) == [2, 4]
    assert np.array_equal(outcome.vectors[0], expected(plain, [inside, EVERYBODY]))


def test_with_too_few_shares_the_sum_stays_closed_and_costs_nothing(tmp_path: Any) -> None:
    gone = away(tmp_path, "opening", *((1, client) for client in range(3)))
    outcome = run_protocol(recipe(availability=gone))
    (said,) = (note for note in outcome.notes if "skipped" in note)
    assert "zone encrypted is skipped: 3 clients answered with a share of client" in said
    assert "and 4 open it" in said
    assert [entry.zones["encrypted"].closed for entry in outcome.protocol.ledger.log] == [True, False]


def test_where_more_drop_out_than_the_graph_allows_for_nobody_is_asked_for_shares(tmp_path: Any) -> None:
    gone = away(tmp_path, "upload", (1, 2), (1, 4))
    plain = recipe({"use": "secagg.plus", "dropped": 0.2}, availability=gone)
    outcome = run_protocol(plain)
    assert any("2 of 6 clients are missing from the encrypted sum, and secagg.plus allows for 1" in note
               for note in outcome.notes)  # fmt: skip
    assert [entry.zones["encrypted"].closed for entry in outcome.protocol.ledger.log] == [True, False]
    told = [m for m in outcome.wire.messages if m.receiver.startswith("client") and m.round == 0]
    assert "secagg.plus.unmask" not in [call for message in told for call in calls_of(message)]


@pytest.mark.parametrize(("use", "rate"), [
    ("secagg.plus", 0.6), pytest.param("secagg.plus", 0.95, marks=pytest.mark.slow), ("secagg.bonawitz", 0.525),
])  # fmt: skip
def test_clients_that_are_drawn_have_neighbours_that_are_drawn(use: str, rate: float) -> None:
    """Neighbours among all clients would be too few to open a sum; of 40 clients, 21 would be asked for 21 others'."""
    drawing = {"scheme": "fixed", "rate": rate, "source": "reproducible"}
    plain = recipe(use, clients=40, min_clients=20, sampling=drawing)
    outcome = run_protocol(plain)
    drawn = [sample(outcome.protocol.recipe, range(40), round) for round in range(2)]
    assert outcome.notes == []
    assert [len(each) for each in drawn] == [rate * 40] * 2
    assert np.array_equal(outcome.vectors[0], expected(plain, drawn, clients=40))


@pytest.mark.parametrize(("count", "opens"), [(2, False), (3, True)])
def test_the_shares_of_as_many_clients_as_stated_open_an_upload_and_fewer_do_not(count: int, opens: bool) -> None:
    plain = recipe({"use": "secagg.bonawitz", "threshold": 3}, rounds=1)
    held: list[Any] = []
    outcome = run_protocol(plain, prepare=lambda protocol, engine: held.append((protocol, engine)))
    ((protocol, engine),) = held
    clients = {client.client_id: client for client in engine.clients.clients.values()}
    closing = Closing.of("encrypted", protocol.facts(0, "all"))
    upload = next(
        message.answered().blocks["encrypted"] for message in outcome.wire.messages
        if message.sender == "client:5" and (message.round, message.phase) == (0, "upload")
    )  # fmt: skip
    for client in clients.values():
        client.facts = dataclasses.replace(client.facts, round=0)
    opened = closing.open_upload(upload, 5, [protocol.server, *(clients[c] for c in range(count))])
    assert (opened is not None) == opens
    assert closing.open_upload(upload, 5, [clients[c] for c in range(5)]) is None  # they lack the others' keys
    if opened is not None:
        vector = initial_vector(plain)
        update = pushed(vector, plain["seed"], 5, 0)
        assert np.abs(opened.plain() - update).max() <= FixedPoint(NORM, CLIENTS, 32).step / 2


def prepared(monkeypatch: pytest.MonkeyPatch) -> tuple[Bonawitz, dict[int, Client]]:
    """Clients that have uploaded, with the component, before any client answers with shares."""
    held: list[Any] = []

    def stop(self: Any, *_: Any) -> Any:
        raise ProtectionError("stop here")

    with monkeypatch.context() as patch:
        patch.setattr(masked.Masked, "open", stop)
        run_protocol(recipe(rounds=1), prepare=lambda protocol, engine: held.append((protocol, engine)))
    protocol, engine = held[0]
    clients: dict[int, Client] = {client.client_id: client for client in engine.clients.clients.values()}
    for client in clients.values():
        client.facts = dataclasses.replace(client.facts, round=0)
    return protocol.composition.components["secagg.bonawitz"], clients


def test_a_client_never_gives_both_shares_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    component, clients = prepared(monkeypatch)
    asked = clients[0]
    with pytest.raises(ProtectionError, match="both shares of client 2 were asked for"):
        component.unmask(asked, ([1, 2, 3, 4], [2, 5]))
    with pytest.raises(ProtectionError, match="a share of client 9 was asked for"):
        component.unmask(asked, ([1, 2, 3, 4], [9]))
    with pytest.raises(ProtectionError, match="2 neighbours are said to be in the sum; below 4"):
        component.unmask(asked, ([1, 2], [3, 4, 5]))
    shares = component.unmask(asked, ([1, 2, 3, 4], [5]))
    assert len(set(shares)) == 5
    assert component.unmask(asked, ([4, 3, 2, 1], [5])) == shares  # the same again
    for inside, gone in (([1, 2, 3, 5], [4]), ([1, 2, 3, 4, 5], []), ([1, 2, 3, 4], [])):
        with pytest.raises(OpenedBefore):
            component.unmask(asked, (inside, gone))
    with pytest.raises(ProtectionError, match="has shared its keys of this round; it does so once"):
        component.share_keys(asked, (CLIENTS, {}))
    letters = asked.memory(component)["letters"]
    component.take_shares(asked, dict(letters))
    with pytest.raises(ProtectionError, match="has its letters of this round; it takes them once"):
        component.take_shares(asked, {sender: letters[sender] for sender in (1, 2, 3, 4)})


def test_a_client_holds_the_server_to_min_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    component, clients = prepared(monkeypatch)
    me = clients[0]
    me.facts = dataclasses.replace(me.facts, min_clients=6)
    with pytest.raises(ProtectionError, match="is said to be of 5 clients; client 0 helps to open none of fewer"):
        component.unmask(me, ([1, 2, 3, 4, 4, 4], [5]))
    assert len(component.unmask(me, ([1, 2, 3, 4, 5], []))) == 5


def test_in_a_sparse_graph_a_client_holds_the_server_to_min_clients_as_far_as_it_sees() -> None:
    """It takes the clients that are not its neighbours as present."""
    held: list[Any] = []
    plain = recipe("secagg.plus", clients=30, rounds=1)
    run_protocol(plain, prepare=lambda protocol, engine: held.append((protocol, engine)))
    ((protocol, engine),) = held
    component, me = protocol.composition.components["secagg.plus"], engine.clients.clients["client:0"]
    neighbours = protocol.server.memory(component)["neighbours"][0]
    assert me.memory(component)["unseen"] == 29 - len(neighbours) > 0
    me.facts = dataclasses.replace(me.facts, round=0, min_clients=30)
    component._require_enough(me, {*neighbours})
    with pytest.raises(ProtectionError, match="is said to be of 29 clients at most; client 0 helps to"):
        component._require_enough(me, {*neighbours[1:]})


def test_a_sum_holds_more_updates_than_shares_open(tmp_path: Any) -> None:
    """So too few colluders to open an upload cannot isolate a single upload by subtracting their own."""
    use = {"use": "secagg.bonawitz", "threshold": 4}
    for gone, inside in (([5], 5), ([4, 5], 4)):
        plain = recipe(use, availability=away(tmp_path, "upload", *((1, each) for each in gone)))
        opened = not any("zone encrypted is skipped: 0 clients answered" in note for note in run_protocol(plain).notes)
        assert opened == (inside > 4)


def test_a_wrong_share_is_noticed_and_the_round_goes_on_without_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    real = masked.shamir.part

    def lies(share: bytes, which: int) -> bytes:
        found = real(share, which)
        return bytes([found[0] ^ 1]) + found[1:]

    calls = itertools.count()
    monkeypatch.setattr(masked.shamir, "part", lambda *a: (lies if next(calls) == 7 else real)(*a))
    outcome = run_protocol(recipe())
    (said,) = outcome.notes
    assert "round 1: zone encrypted is skipped: the shares of clients" in said
    assert "do not belong together: at least one of them is wrong" in said


def test_the_verdict_states_the_fewest_shares_of_any_round_and_a_server_cannot_lower_them() -> None:
    """In a sampled round the graph has fewer clients than the run, and fewer shares would open."""
    held: list[Any] = []
    plain = recipe("secagg.plus", clients=44, rounds=1, min_clients=40)
    run_protocol(plain, prepare=lambda protocol, engine: held.append((protocol, engine)))
    ((protocol, engine),) = held
    component, facts = protocol.composition.components["secagg.plus"], protocol.server.facts
    (seal,) = (one for step in facts.steps("encrypted") for one in step.operations if isinstance(one, Seal))
    assert seal.opens_with == component.parameters(40).threshold <= component.threshold(44, facts)
    assert component.threshold(10, facts) == seal.opens_with > component.parameters(10).threshold
    client = next(iter(engine.clients.clients.values()))
    client.memory(component)["own"] = b""
    client.facts = dataclasses.replace(client.facts, round=0)
    few = {other: bytes(32) for other in range(50, 50 + seal.opens_with - 1)}
    with pytest.raises(ProtectionError, match=f"the shares of {seal.opens_with} open a secret"):
        component.share_keys(client, (10, few))


def aggregators(outcome: Any) -> float:
    epsilon = outcome.protocol.ledger.report().views["server"].epsilon
    assert epsilon is not None
    return float(epsilon)


NOISED = {"protect": {"encrypted": [
    {"use": "std.clip", "norm": NORM}, {"use": "std.distributed_gaussian", "noise_multiplier": 2.0}, "secagg.bonawitz",
]}}  # fmt: skip


@pytest.fixture(scope="module")
def honest() -> float:
    """What a round of honest clients costs."""
    return aggregators(run_protocol(recipe(rounds=1, min_clients=CLIENTS, **NOISED)))


@pytest.mark.parametrize("how", ["wrong shares", "an upload beyond the bound"])
def test_a_sum_that_the_server_had_in_hand_is_paid_for_though_it_is_not_used(
    how: str, honest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = recipe(rounds=1, min_clients=CLIENTS, **NOISED)
    honestly, seal = Bonawitz.unmask, Bonawitz.seal

    @at_client
    def unmask(self: Bonawitz, client: Client, asked: Any) -> list[bytes]:
        shares = honestly(self, client, asked)
        return [bytes([share[0] ^ 1]) + share[1:] for share in shares] if client.client_id == 5 else shares

    def too_large(self: Bonawitz, words: Any, client: Client, facts: Any) -> Sealed:
        sealed = seal(self, words, client, facts)
        masked = np.frombuffer(sealed.parts[0], "<u4").copy()
        masked[:1] += np.uint32(2**31 if client.client_id == 5 else 0)
        return Sealed((masked.tobytes(),))

    monkeypatch.setattr(*((Bonawitz, "unmask", unmask) if how == "wrong shares" else (Bonawitz, "seal", too_large)))
    outcome = run_protocol(plain)
    assert any("zone encrypted is skipped" in note for note in outcome.notes)
    assert aggregators(outcome) == honest > 1


def test_of_groups_the_sum_that_stayed_closed_counts_where_another_was_opened(tmp_path: Any) -> None:
    """Four clients and three. Client 5, of the three, does not help, and may have kept its shares for the server."""
    plain = recipe(clients=7, groups="toy.halves", availability=away(tmp_path, "opening", (1, 5)), **NOISED)
    outcome = run_protocol(plain)
    entered = [entry.zones for entry in outcome.protocol.ledger.log]
    factors = [zones["encrypted"].peer_factor for zones in entered if "encrypted" in zones]
    assert factors[0] == pytest.approx(2**0.5)  # of three, one of whom looks


def test_a_group_that_is_too_small_to_be_opened_sits_out_and_the_others_go_on() -> None:
    """Four clients and three, where shares of three others open."""
    use = {"use": "secagg.bonawitz", "threshold": 3}
    outcome = run_protocol(recipe(use, clients=7, rounds=1, groups="toy.halves", min_clients=4))
    (row,) = outcome.protocol.rows
    assert (row.clients.answered, len(row.clients.dropped)) == (4, 3)
    assert all("round 1: 3 clients are in a graph of secagg.bonawitz" in why for why in row.clients.dropped.values())
    assert all("form larger groups" in why for why in row.clients.dropped.values())


def test_more_shares_than_clients_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bonawitz, "stated", lambda self, facts: 1000)
    with pytest.raises(Misplaced, match="the shares of 1000 clients open zone encrypted, and there are 6"):
        run_protocol(recipe())


def test_every_round_has_fresh_masks() -> None:
    # Nothing but masks, and so many that chance keeps to the bounds below: they are six standard errors and more.
    outcome = run_protocol(recipe(train={"use": "toy.push", "scale": 0.0}, model={"use": "std.mlp", "hidden": [128]}))
    uploads = [
        np.frombuffer(message.answered().blocks["encrypted"].ciphertexts[0], "<u4")
        for message in outcome.wire.messages
        if message.phase == "upload" and message.sender.startswith("client")
    ]
    assert len(uploads) == 2 * CLIENTS
    for one, other in itertools.combinations(uploads, 2):
        assert np.mean(one == other) < 0.01
    shares = np.concatenate(uploads) / 2**32
    assert len(shares) > (6 * 12**-0.5 / 0.01) ** 2
    assert abs(float(shares.mean()) - 0.5) < 0.01
    assert abs(float(shares.std()) - 12**-0.5) < 0.01


@pytest.mark.parametrize(("plain", "problem"), [
    (recipe(min_clients=2), "raise it to 3 or more"),
    (recipe({"use": "secagg.bonawitz", "threshold": CLIENTS}), "below the number of clients, 6"),
    (recipe({"use": "secagg.bonawitz", "threshold": 3}, 7, groups="toy.halves"), "lower threshold to 2 or less"),
    (recipe({"use": "secagg.bonawitz", "bits": 8, "range": 1.0}, clients=200), "bits=8 hold no sum of 200 clients"),
    (recipe({"use": "secagg.plus", "corrupt": 0.5, "dropped": 0.5}), "lower corrupt or dropped"),
    (recipe({"use": "secagg.plus", "dropped": 0.5, "sigma": 0.01, "eta": 0.5}, 12, min_clients=6), "raise sigma"),
    (recipe() | {"protect": {"encrypted": ["secagg.bonawitz"]}}, "nothing bounds the encrypted values"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_the_run(plain: dict[str, Any], problem: str) -> None:
    from fedplug.api.errors import RecipeError

    with pytest.raises((RecipeError, TooFewClients), match=problem):
        run_protocol(plain)


# -- sums that may wrap ------------------------------------------------------------------------------------------------


def wrapping(**options: Any) -> dict[str, Any]:
    """Skellam noise with a standard deviation of 3.5 of 8 steps per client, rotated, modulo 2^bits."""
    noise = {"use": "std.distributed_skellam", "noise_multiplier": 1.0, "grid": 2.0**-5}
    chain = [{"use": "std.clip", "norm": NORM}, "std.rotate", noise, {"use": "secagg.bonawitz", **options}]
    return recipe(rounds=1, protect={"encrypted": chain}, postprocess={"encrypted": ["secagg.bonawitz", "std.rotate"]})


def test_an_upload_of_a_sum_that_may_wrap_has_as_many_bits_as_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_protocol(wrapping(bits=12, wraps=3))
    sent = [message.answered().blocks["encrypted"] for message in outcome.wire.messages
            if message.phase == "upload" and message.sender.startswith("client")]  # fmt: skip
    assert {len(block.ciphertexts[0]) for block in sent} == {(650 * 12 + 7) // 8}
    (entry,) = outcome.protocol.ledger.log
    assert entry.zones["encrypted"].uncredited == ""
    scheme = outcome.protocol.ledger.report().encryption["encrypted"].parameters
    assert "standard deviations of a sum of 650 scalars fit, and " in scheme


def test_a_modulus_that_holds_too_little_is_refused_with_what_would_do() -> None:
    with pytest.raises(ProtectionError, match=r"and wraps=4 asks for more; raise bits to 1\d, or give the noise a "):
        run_protocol(wrapping(bits=8, wraps=4))
    plain = recipe(protect={"encrypted": [{"use": "std.clip", "norm": NORM}, {"use": "secagg.bonawitz", "wraps": 4}]})
    with pytest.raises(Exception, match="the encrypted values before it are no whole numbers with noise"):
        run_protocol(plain)
    with pytest.raises(Exception, match="wraps=4 lets sums wrap, and range=1 has none do so; write one"):
        run_protocol(wrapping(wraps=4, range=1.0))


def test_wrong_shares_of_a_sum_that_may_wrap_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong share of a mask leaves noise that fills the modulus."""
    honestly = Bonawitz.unmask

    @at_client
    def unmask(self: Bonawitz, client: Client, asked: Any) -> list[bytes]:
        shares = honestly(self, client, asked)
        return [bytes([share[0] ^ 1]) + share[1:] for share in shares] if client.client_id == 5 else shares

    monkeypatch.setattr(Bonawitz, "unmask", unmask)
    outcome = run_protocol(wrapping(bits=16, wraps=4))
    assert any("zone encrypted is skipped" in note for note in outcome.notes), outcome.notes


def test_colluders_open_an_upload_of_a_sum_that_may_wrap() -> None:
    held: list[Any] = []
    outcome = run_protocol(wrapping(bits=16, wraps=4), prepare=lambda protocol, engine: held.append((protocol, engine)))
    ((protocol, engine),) = held
    clients = list(engine.clients.clients.values())
    for client in clients:
        client.facts = dataclasses.replace(client.facts, round=0)
    upload = next(message.answered().blocks["encrypted"] for message in outcome.wire.messages
                  if message.sender == "client:5" and message.phase == "upload")  # fmt: skip
    closing = Closing.of("encrypted", protocol.facts(0, "all"))
    opened = closing.open_upload(upload, 5, [protocol.server, *clients[:5]])
    assert opened is not None
    assert np.array_equal(opened.plain() * 32, np.rint(opened.plain() * 32))
    assert np.abs(opened.plain()).max() < 12 * 8.0
