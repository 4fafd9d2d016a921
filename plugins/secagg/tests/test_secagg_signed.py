"""Signed keys and one list of the clients in the sum, against a server that lies."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fedplug
import pytest
import toy_base
import toy_components
from fedplug import Client, Clip, Cohort, Facts, Known, Operations
from fedplug.api import secrets
from fedplug.api.errors import MessageError, ProtectionError, RecipeError, TooFewClients
from fedplug.round.uploads import UploadRules
from fedplug_secagg import masked
from fedplug_secagg.bonawitz import Bonawitz
from numpy import array_equal
from secagg_toys import CLIENTS, EVERYBODY, NORM, away, expected, recipe
from toy_protocol import calls_of, run_protocol

SIGNED = {"use": "secagg.bonawitz", "signed": True}
T = 2 * CLIENTS // 3 + 1


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_the_sum_is_the_same_to_the_bit_and_everybody_signs_who_is_in_it(engine: str) -> None:
    plain = recipe(SIGNED, min_clients=4)
    outcome = run_protocol(plain, engine)
    assert outcome.notes == []
    assert array_equal(outcome.vectors[0], expected(plain, [EVERYBODY] * 2))
    asked = [call for m in outcome.wire.messages if m.receiver.startswith("client") for call in calls_of(m)]
    assert asked.count("secagg.bonawitz.agree") == asked.count("secagg.bonawitz.unmask") == 2 * CLIENTS


@pytest.mark.parametrize("when", ["round", "upload", "opening"])
def test_clients_may_drop_out_in_every_phase(tmp_path: Path, when: str) -> None:
    """Of nine clients, the shares of seven others open a client's secrets, so one may be gone."""
    plain = recipe(SIGNED, 9, min_clients=4, rounds=1, availability=away(tmp_path, when, (1, 2)))
    inside = [c for c in range(9) if c != 2 or when == "opening"]
    vector = run_protocol(plain).vectors[0]
    assert array_equal(vector, expected(plain, [inside], clients=9))


def test_it_states_its_adversary_and_its_assumption() -> None:
    outcome = run_protocol(recipe(SIGNED, 9, min_clients=6, rounds=1))
    scheme = outcome.protocol.ledger.encryption["encrypted"].parameters
    # Of 7 clients 5 open, and 2 t - n - 1 = 2; of 6, 8 and 9 it is 3, 3 and 4.
    assert "against a server that lies with up to 2 clients" in scheme
    assert "keys were introduced by the server" in scheme


@pytest.mark.parametrize("clients", range(4, 40))
def test_no_two_lists_of_a_round_have_signatures_enough_and_with_one_more_corrupt_they_may(clients: int) -> None:
    """For every division of the honest clients by the server into two lists, with c clients that sign both."""
    component = Bonawitz(Bonawitz.Options(signed=True))
    t = component.parameters(clients).threshold
    said = component.against(SimpleNamespace(num_clients=clients, min_clients=clients))  # type: ignore[arg-type]
    most = int(said.partition("up to ")[2].partition(" ")[0])

    def both(corrupt: int) -> bool:
        honest = clients - corrupt
        return any(min(told, honest - told) + corrupt >= t for told in range(honest + 1))

    assert not both(most)
    assert both(most + 1)
    assert clients / 3 - 1 <= most < t


@pytest.mark.parametrize(("changes", "problem"), [
    ({"threshold": 4}, "threshold=4 must be more than two thirds of the 6 clients where keys are signed"),
    ({"min_clients": 3}, "min_clients: 3 must be 4 or more where keys are signed"),
])  # fmt: skip
def test_two_thirds_and_one_more_must_sign(changes: dict[str, Any], problem: str) -> None:
    use = {**SIGNED, **{name: value for name, value in changes.items() if name == "threshold"}}
    with pytest.raises(RecipeError, match=problem):
        run_protocol(recipe(use, min_clients=changes.get("min_clients", 4)))


# -- a server that substitutes its own keys ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["of the letters", "of the round"])
def test_a_key_that_the_server_has_swapped_is_refused_with_whose_it_is(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends client 0 another key of client 3. Client 0 leaves the round, and says why."""
    mine = secrets.key_pair()[1]
    method = {"of the letters": "take_keys", "of the round": "share_keys"}[key]
    real = getattr(Bonawitz, method)

    def swapped(self: Bonawitz, client: Client, asked: Any) -> Any:
        size, keys = asked if isinstance(asked, list | tuple) else (None, asked)
        if client.client_id == 0 and 3 in keys:
            keys = {**keys, 3: mine + keys[3][32:]}
        return real(self, client, keys if size is None else (size, keys))

    swapped.__name__, swapped.__fedplug_site__ = method, "client"  # type: ignore[attr-defined]
    monkeypatch.setattr(Bonawitz, method, swapped)
    outcome = run_protocol(recipe(SIGNED, 9, min_clients=4, rounds=1))
    (said,) = {note for note in outcome.notes if "client 0" in note}
    assert "client 3" in said
    assert "is not signed by it" in said
    assert sorted(outcome.rows[0].clients.dropped) == [0]


# -- a server that tells clients different things ---------------------------------------------------------------------


def ready(monkeypatch: pytest.MonkeyPatch, clients: int = 9) -> tuple[Bonawitz, dict[int, Client]]:
    """Clients that have uploaded, before any client signs the list of clients in the sum."""
    held: list[Any] = []

    def stop(self: Any, *_: Any) -> Any:
        raise ProtectionError("stop here")

    with monkeypatch.context() as patch:
        patch.setattr(masked.Masked, "open", stop)
        run_protocol(recipe(SIGNED, clients, min_clients=4, rounds=1), prepare=lambda *both: held.append(both))
    protocol, engine = held[0]
    found: dict[int, Client] = {client.client_id: client for client in engine.clients.clients.values()}
    for client in found.values():
        client.facts = dataclasses.replace(client.facts, round=0)
    return protocol.composition.components["secagg.bonawitz"], found


def test_clients_that_were_told_different_lists_give_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """One half is told that client 8 is in the sum, the other that it dropped out, so its upload would open."""
    component, clients = ready(monkeypatch)
    lists = {c: list(range(9 if c < 5 else 8)) for c in range(8)}
    signed = {c: component.agree(clients[c], lists[c])[32:] for c in lists}
    for me, inside in lists.items():
        others = [c for c in inside if c != me]
        gone = [] if 8 in inside else [8]
        same = {c: signature for c, signature in signed.items() if lists[c] == inside and c != me}
        with pytest.raises(ProtectionError, match=f"{len(same) + 1} clients have signed .*; 7 must"):
            component.unmask(clients[me], (others, gone, same))
        with pytest.raises(ProtectionError, match=f"of client {0 if me > 4 else 5} is not signed by it"):
            component.unmask(clients[me], (others, gone, {c: s for c, s in signed.items() if c != me}))
        other_list = list(range(8 if me < 5 else 9))
        with pytest.raises(ProtectionError, match=rf"client {me} has signed that .*, and is now told"):
            component.agree(clients[me], other_list)
        with pytest.raises(ProtectionError, match=rf"client {me} has not signed that"):
            component.unmask(clients[me], ([c for c in other_list if c != me], [8] if me < 5 else [], same))
        with pytest.raises(ProtectionError, match=r"clients have signed who is in the sum"):
            component.unmask(clients[me], (others, gone))  # as if nothing had to be signed


def test_a_server_that_tells_clients_different_lists_is_given_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are told that client 8 dropped out, and six that it did not. The server would get shares of both kinds. All
    clients fail alike, which ends the run."""

    def lying(self: Bonawitz, asked: Any, inside: set[int], party: Any) -> dict[int, list[Any]]:
        cohort = party.cohort
        lists = {c: sorted(inside - {8} if c in (5, 6, 7) else inside) for c in asked}
        signed = {c: answer[32:] for c, answer in cohort.ask_each(self.agree, lists).items()}
        assert len(signed) == 9
        return {
            c: [[v for v in told if v != c], [] if 8 in told else [8],
                {v: signed[v] for v in told if v != c and lists[v] == told}]
            for c, told in lists.items()
        }  # fmt: skip

    monkeypatch.setattr(Bonawitz, "_with_signatures", lying)
    held: list[Any] = []
    with pytest.raises(TooFewClients, match="0 clients answered with a share of client 0's own mask, and 7 open it"):
        run_protocol(recipe(SIGNED, 9, min_clients=4), prepare=lambda protocol, _: held.append(protocol))
    dropped = held[0].office.dropped
    assert sorted(dropped) == list(range(9))
    assert "6 clients have signed who is in the sum, client 0 among them; 7 must" in dropped[0]
    assert "3 clients have signed who is in the sum, client 5 among them; 7 must" in dropped[5]


def test_as_many_as_the_threshold_must_have_signed_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    component, clients = ready(monkeypatch)
    inside = list(range(9))
    signed = {c: component.agree(clients[c], inside)[32:] for c in inside}
    six = {c: signed[c] for c in range(1, 6)}
    with pytest.raises(ProtectionError, match="6 clients have signed who is in the sum, client 0 among them; 7 must"):
        component.unmask(clients[0], (inside[1:], [], six))
    assert len(component.unmask(clients[0], (inside[1:], [], {**six, 6: signed[6]}))) == 8


def test_a_signature_of_another_round_or_of_other_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    component, clients = ready(monkeypatch)
    inside = list(range(9))
    other = clients[1]
    other.facts = dataclasses.replace(other.facts, round=1)
    other.memory(component)["round"] = 1
    replayed = component.agree(other, inside)[32:]
    other.facts = dataclasses.replace(other.facts, round=0)
    other.memory(component).update(round=0, agreed=[])
    signed = {c: component.agree(clients[c], inside)[32:] for c in inside}
    assert replayed != signed[1]
    said = "who is in the sum of client 1 is not signed by it for round 1"
    with pytest.raises(ProtectionError, match=said):
        component.unmask(clients[0], (inside[1:], [], {c: signed[c] for c in inside[1:]} | {1: replayed}))
    with pytest.raises(ProtectionError, match=said):
        component.unmask(clients[0], (inside[1:], [], {c: signed[c] for c in inside[1:]} | {1: signed[2]}))
    other.memory(component).update(shown=bytes(32), agreed=[])  # it received other keys of the round
    signed[1] = component.agree(other, inside)[32:]
    with pytest.raises(ProtectionError, match=said):
        component.unmask(clients[0], (inside[1:], [], {c: signed[c] for c in inside[1:]}))


def test_letters_open_only_where_the_same_keys_were_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends clients different sets of keys gets no shares across them."""
    component, clients = ready(monkeypatch)
    inside = list(range(9))
    for client in clients.values():
        if client.client_id < 8:
            client.memory(component)["shown"] = bytes(32)
    signed = {c: component.agree(clients[c], inside)[32:] for c in inside[:8]}
    with pytest.raises(MessageError, match=r"letter of client 1 about shares .* does not open"):
        component.unmask(clients[0], (inside[1:], [], {c: signed[c] for c in range(1, 8)}))


def test_a_client_that_signs_wrongly_is_left_out_and_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Bonawitz.agree

    def spoilt(self: Bonawitz, client: Client, inside: list[int]) -> bytes:
        answer = honest(self, client, inside)
        return answer if client.client_id != 4 else answer[:-1] + bytes([answer[-1] ^ 1])

    spoilt.__name__, spoilt.__fedplug_site__ = "agree", "client"  # type: ignore[attr-defined]
    monkeypatch.setattr(Bonawitz, "agree", spoilt)
    plain = recipe(SIGNED, 9, min_clients=4, rounds=1)
    outcome = run_protocol(plain)
    assert sorted(outcome.rows[0].clients.dropped) == [4]
    assert array_equal(outcome.vectors[0], expected(plain, [list(range(9))], clients=9))


# -- a server that publishes different facts to different clients ------------------------------------------------------


class Announced(toy_base.Toy, fedplug.Protector):
    """Clip to a norm that the server publishes."""

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        """Publishes it."""
        cohort.publish(self, {"norm": NORM / 100}, covered_by="nothing to pay")

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Clips to it."""
        return (Clip(facts.of(self).get("norm", NORM / 100)),)


def lies(monkeypatch: pytest.MonkeyPatch, lied_to: set[int], what: str, change: Any) -> Any:
    """Has the server tell some clients something else, and relay to each the signatures of those told the same."""
    signatures = Bonawitz._with_signatures

    def lie(protocol: Any, _: Any) -> None:
        honestly = protocol.office.tell

        def tell(client_ids: Any, method: Any, payload: Any, *, lasting: bool) -> None:
            others = lied_to.intersection(client_ids) if method.__name__ == what else set()
            honestly([c for c in client_ids if c not in others], method, payload, lasting=lasting)
            if others:
                honestly(sorted(others), method, change(payload), lasting=lasting)

        protocol.office.tell = tell

    def relayed(self: Bonawitz, asked: Any, inside: set[int], party: Any) -> dict[int, list[Any]]:
        found = signatures(self, asked, inside, party)
        return {
            c: [some, gone, {v: each for v, each in signed.items() if (v in lied_to) == (c in lied_to)}]
            for c, (some, gone, signed) in found.items()
        }

    monkeypatch.setattr(Bonawitz, "_with_signatures", relayed)
    return lie


def told_differently(monkeypatch: pytest.MonkeyPatch, lied_to: set[int], signed: bool) -> Any:
    """A round in which the server tells some clients of a norm at which nothing is clipped, and takes their uploads all
    the same."""
    read = UploadRules.read
    went_by: set[bytes] = set()

    def taken(self: UploadRules, upload: Any, weight: float, facts: bytes) -> Any:
        went_by.add(upload["facts"])
        return read(self, upload, weight, upload["facts"])

    lie = lies(monkeypatch, lied_to, "hear", lambda payload: (payload[0], {"norm": NORM}))
    monkeypatch.setattr(UploadRules, "read", taken)
    monkeypatch.setitem(toy_components.TOYS["protect"], "toy.announced", Announced)
    use = {**SIGNED, "signed": signed}
    chain = [{"use": "std.clip", "norm": NORM}, "toy.announced", use]
    outcome = run_protocol(recipe(use, 9, min_clients=4, rounds=1, protect={"encrypted": chain}), prepare=lie)
    assert len(went_by) == 2  # the fingerprints of the facts, which an honest server compares
    return outcome


def another_model(payload: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = {zone: dataclasses.replace(block, values=block.plain() * 2) for zone, block in payload[0].items()}
    return (twice, *payload[1:])


@pytest.mark.parametrize(
    ("what", "change", "round"), [("take_weight", lambda told: (told[0] * 2**20,), 0), ("adopt", another_model, 1)]
)
def test_who_weighs_by_other_sizes_or_starts_from_another_model_gives_no_share(
    what: str, change: Any, round: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = recipe(SIGNED, 9, min_clients=4, rounds=round + 1)
    dropped = run_protocol(plain, prepare=lies(monkeypatch, {3}, what, change)).rows[round].clients.dropped
    assert "1 clients have signed who is in the sum, client 3 among them; 7 must" in dropped[3]


def test_facts_that_are_put_back_before_the_signing_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bonawitz, clients = ready(monkeypatch)
    client, other = clients[0], clients[1]
    before = bonawitz._told(client)
    client.went_by = (b"other facts at the upload",)
    assert bonawitz._told(client) != before
    assert bonawitz._told(other) == before


def test_a_client_that_was_told_other_facts_than_the_others_gives_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = told_differently(monkeypatch, {3}, True).rows[0].clients.dropped
    assert sorted(dropped) == [3]
    assert "1 clients have signed who is in the sum, client 3 among them; 7 must" in dropped[3]
    assert "others may have been told something else" in dropped[3]


def test_where_clients_were_told_different_facts_the_sum_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooFewClients, match="0 clients answered with a share of client 0's own mask, and 7 open it"):
        told_differently(monkeypatch, {5, 6, 7, 8}, True)


def test_without_signatures_the_server_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = told_differently(monkeypatch, {5, 6, 7, 8}, False)
    assert outcome.notes == []
    assert not outcome.protocol.ledger.log[0].zones["encrypted"].closed


# -- keys that all sites know -----------------------------------------------------------------------------------------


def line(client_id: int, public: bytes) -> str:
    wire = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + public
    return f"client:{client_id} ssh-ed25519 {base64.b64encode(wire).decode()} of a site\n"


def test_with_a_list_of_keys_nothing_is_introduced_by_the_server(tmp_path: Path) -> None:
    keys = {c: secrets.signing_pair() for c in range(CLIENTS)}
    listed = tmp_path / "signers"
    listed.write_text("# our sites\n\n" + "".join(line(c, public) for c, (_, public) in keys.items()))
    plain = recipe({**SIGNED, "signers": str(listed)}, min_clients=4, rounds=1)

    def at_sites(_: Any, engine: Any) -> None:
        for client in engine.clients.clients.values():
            client.signing_key = keys[client.client_id][0]

    outcome = run_protocol(plain, prepare=at_sites)
    assert array_equal(outcome.vectors[0], expected(plain, [EVERYBODY]))
    scheme = outcome.protocol.ledger.encryption["encrypted"].parameters
    assert "signed by the keys that all sites know" in scheme
    with pytest.raises(Exception, match=r"client 0 has no signing key.*--signing-key FILE"):
        run_protocol(plain)


def test_a_list_must_name_each_client_once(tmp_path: Path) -> None:
    listed = tmp_path / "signers"
    public = secrets.signing_pair()[1]
    use = {**SIGNED, "signers": str(listed)}
    for text, problem in (
        (line(0, public), "names no client 1; it must name each client once"),
        (line(0, public) * 2, "line 2: this client is in the list already"),
        (line(0, public) + line(1, public), "line 2: this key is in the list already"),
        ("client:0 ssh-rsa AAAA\n", "line 1: 'client:0 ssh-rsa AAAA' is not client:N ssh-ed25519 KEY"),
    ):
        listed.write_text(text)
        with pytest.raises(RecipeError, match=problem):
            run_protocol(recipe(use, min_clients=4))
