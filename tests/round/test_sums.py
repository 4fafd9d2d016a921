"""Sums: an upload that spoils one costs its client the round, and a sum that does not open its zone."""

from __future__ import annotations

from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
from faulty_clients import (
    NORMED,
    OWN,
    PLAIN,
    PUSH,
    SEALED,
    clipped,
    tampered,
    with_block,
    with_bytes,
    with_value,
)
from fedplug import Block, Facts, Known, Look, Map, Operations, Post, Server, WeightedSum
from fedplug.api.errors import ProtectionError, TooFewClients
from fedplug_std.mean import Mean
from toy_components import TOYS, pushed, recipe_of
from toy_protocol import initial_vector, run_protocol, weights_of

UPLOADS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "none": (PLAIN, with_value(None), "it is None, not blocks by zone"),
    "list": (PLAIN, with_value([1, 2]), "it is a list, not blocks by zone"),
    "no blocks": (PLAIN, with_value({"blocks": [3]}), "not blocks by zone"),
    "a number": (PLAIN, with_block(lambda block: 7), "its zone noised holds 7, not a block"),
    "another zone": (PLAIN, with_block(lambda block: block.replace(zone="clear")), "holds a block of clear"),
    "a zone that stays": (PLAIN, with_value({"blocks": {"retained": 1}}), "'retained', which is not to be sent"),
    "a zone of no recipe": (PLAIN, with_value({"blocks": {5: 1}}), "a zone 5, which is not to be sent"),
    "short": (PLAIN, with_block(lambda b: b.replace(size=5, values=b.values[:5])), "has 5 scalars, those of most"),
    "weighted": (PLAIN, with_block(lambda b: b.replace(weighted=True)), "says weighted=True, which must be False"),
    "nan": (PLAIN, with_block(lambda b: b.replace(values=b.values * np.nan)), "NaN or infinite values in the noised"),
    "no values": (PLAIN, with_block(lambda b: b.replace(values=None)), "must hold either values, or ciphertexts"),
    "sealed": (PLAIN, with_block(lambda b: b.replace(values=None, sealed_by="std.bfv")), "is sealed by std.bfv, which"),
    "weight": (PLAIN, with_block(lambda b: b.replace(divisor=1e-9)), "claims the weight 1e-09; its client's is"),
    "weights": (SEALED, with_block(lambda b: b.replace(divisor=np.ones(650))), "claims the weight a ndarray"),
    "many": (SEALED, with_block(lambda b: b.replace(contributors=2)), "claims 2 contributors; an upload holds one"),
    "unsealed": (
        SEALED, with_block(lambda b: b.replace(ciphertexts=(), sealed_by=None, values=np.zeros(650, np.float32))),
        "is sealed by None, which must be std.bfv",
    ),
    "cut": (SEALED, with_block(lambda b: b.replace(ciphertexts=())), "650 scalars in 0 parts, those of most"),
    "garbage": (SEALED, with_bytes(lambda part: b"x" * len(part)), "client 1: ciphertext 0 cannot be used"),
    "elsewhere": (OWN, with_block(lambda b: b.replace(positions=b.positions + np.uint32(2))), "has position 650, but"),
    "buffers": (NORMED, lambda r: {**r, "value": {**r["value"], "buffers": 3}}, "its batch-norm buffers are 3"),
    "other buffers": (NORMED, lambda r: {**r, "value": {**r["value"], "buffers": {}}}, "batch-norm buffers lack '"),
    "reports": (PLAIN, lambda reply: {**reply, "reports": 5}, "a reply that cannot be: reports is 5"),
}  # fmt: skip


@pytest.mark.parametrize("case", UPLOADS)
def test_an_upload_that_cannot_be_right_costs_its_client_the_round(case: str) -> None:
    plain, edit, reason = UPLOADS[case]
    outcome = tampered(plain, edit)
    assert outcome.vector.size  # all agree, that client too
    assert [row.clients.answered for row in outcome.rows] == [3, 4]
    assert list(outcome.rows[0].clients.dropped) == [1]
    assert reason in outcome.rows[0].clients.dropped[1]
    assert [note.startswith("round 1: client 1 dropped out: ") for note in outcome.notes] == [True]
    assert outcome.protocol.ledger.log[0].charged == "all"  # its upload was seen


def test_the_sum_is_that_of_the_others() -> None:
    plain = recipe_of(train=PUSH, rounds=1)
    outcome = tampered(plain, with_block(lambda b: b.replace(values=b.values + np.float32(np.inf))))
    start, weights = initial_vector(plain), weights_of(outcome)
    mean = sum(weights[c] * pushed(start, 7, c, 0) for c in (0, 2, 3)) / sum(weights[c] for c in (0, 2, 3))
    assert np.allclose(outcome.vector - start, mean, atol=1e-7)


def test_where_nobody_can_be_blamed_the_run_ends_with_the_difference() -> None:
    plain = {**PLAIN, "data": {**PLAIN["data"], "clients": 2}}
    with pytest.raises(ProtectionError, match="client 1 sent 5 noised scalars, others 650"):
        tampered(plain, with_block(lambda b: b.replace(size=5, values=b.values[:5])))


def test_too_many_faulty_uploads_end_the_run_with_the_reason() -> None:
    plain = {**PLAIN, "min_clients": 4, "rounds": 1}
    with pytest.raises(TooFewClients, match=r"clients left: 3, min_clients is 4.*NaN or infinite values"):
        tampered(plain, with_block(lambda b: b.replace(values=b.values * np.nan)))


def test_plans_that_differ_divide_each_position_by_those_who_sent_it() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.own"}, rounds=2)
    outcome = run_protocol(plain)
    vector, weights = initial_vector(plain), weights_of(outcome)
    for round in range(2):
        total, divisor = np.zeros(len(vector)), np.zeros(len(vector))
        for client_id, weight in weights.items():
            sent = np.arange(len(vector)) % 4 != client_id
            total[sent] += weight * pushed(vector, 7, client_id, round)[sent].astype(np.float64)
            divisor[sent] += weight
        vector = vector + (total / divisor).astype(np.float32)
    assert np.allclose(outcome.vector, vector, atol=1e-7)
    shares = {"encrypted": 0, "noised": 0, "retained": 0.25, "clear": 0.75}
    assert outcome.rows[0].zones == pytest.approx(shares, abs=0.01)
    assert outcome.rows[1].mask_churn == 0


def test_groups_sum_their_ciphertexts_apart() -> None:
    plain = recipe_of("encrypted", [{"use": "std.bfv", "range": 0.1}], train=PUSH, rounds=1)
    plain["negotiate_mask"] = {"use": "toy.groups", "zone": "encrypted"}
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    for members in ([0, 2], [1, 3]):
        total = sum(weights[c] * pushed(start, 7, c, 0).astype(np.float64) for c in members)
        mean = total / sum(weights[c] for c in members)
        assert np.allclose(outcome.vectors[members[0]] - start, mean, atol=1e-5)
    opened = [m.decode() for m in outcome.sent("key_server", round=0)]
    assert [request["calls"][0][4][1].contributors for request in opened] == [2, 2]


@pytest.mark.parametrize("scheme", ["std.bfv", "std.ckks"])
@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_an_encrypted_mean_is_the_plain_mean(scheme: str, key_holder: str) -> None:
    """Spec 16: BFV is exact except for the grid that the clients quantise to, CKKS within its public grid."""
    seal = {"use": scheme, "key_holder": key_holder, "range": 0.125}
    plain = recipe_of("encrypted", [seal], train=PUSH, rounds=2)
    outcome = run_protocol(plain)
    vector, weights = initial_vector(plain), weights_of(outcome)
    if scheme == "std.bfv":
        keys = outcome.protocol.facts(0).of(scheme)["terms"]
        step = 0.125 / (2 ** (keys["bits"] - 1) - 1)
    else:
        step = 2.0**-17
    for round in range(2):
        parts = [np.float64(weights[c]) * pushed(vector, 7, c, round).astype(np.float64) for c in range(4)]
        exact = sum(parts) / sum(weights.values())
        on_grid = sum(np.rint(part / step) * step for part in parts) / sum(weights.values())
        vector = vector + on_grid.astype(np.float32)
        assert np.abs(on_grid - exact).max() <= 4 * step / 2 / sum(weights.values())
    assert np.abs(outcome.vector - vector).max() < 1e-7  # only the grid


@pytest.mark.parametrize("clients", [2, 8])
def test_the_noise_of_the_mean_has_the_variance_of_local_noise(clients: int) -> None:
    """Spec 19: each client adds std C * sigma, so the mean of K carries C^2 sigma^2 / K; chi-square bounds."""
    norm, multiplier = 0.5, 3.0
    plain = recipe_of("noised", clipped(norm, multiplier), train={"use": "toy.push", "scale": 0}, rounds=2)
    plain["aggregate"] = {"use": "std.mean", "weighting": "uniform"}
    plain["data"]["clients"] = clients
    outcome = run_protocol(plain)
    start = initial_vector(plain)
    noise = (outcome.vector - start) / np.sqrt(2)  # two rounds, independent of each other
    expected = norm**2 * multiplier**2 / clients
    ratio = float(noise.astype(np.float64).var()) / expected
    assert abs(ratio - 1) < 5 * np.sqrt(2 / len(start))
    assert abs(float(noise.mean())) < 5 * np.sqrt(expected / len(start))


class Looks(fedplug.Opener):
    """A server's link that inspects the sum and the server's data."""

    site = "server"
    seen: ClassVar[list[Any]] = []

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return (Look(self.look),)

    def look(self, block: Block, server: Server, facts: Facts) -> None:
        type(self).seen.append((block.contributors, block.divisor, dict(server.uploads)))


class Keeps(Mean):
    """A mean for which the server keeps all uploads until they are added up."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return WeightedSum(), Look(lambda block, server, facts: None)


CENTRAL = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}


def sampled(*behind: Any, **changes: Any) -> dict[str, Any]:
    """A mean with central noise over a secret sample of clients, and links after the noise."""
    plain = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}], rounds=2)
    plain["data"]["clients"] = 20
    return plain | {
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "sampling": {"scheme": "poisson", "rate": 0.5, "source": "reproducible"},
        "postprocess": {"noised": [CENTRAL, *behind]}, **changes,
    }  # fmt: skip


@pytest.mark.parametrize("aggregate", ["std.mean", "toy.keeps"])
def test_links_behind_a_sum_see_neither_uploads_nor_how_many_took_part(
    monkeypatch: pytest.MonkeyPatch, aggregate: str
) -> None:
    """After noise they could add values that no noise hides. A secret number of clients would follow from a mean."""
    monkeypatch.setitem(TOYS.setdefault("postprocess", {}), "toy.looks", Looks)
    monkeypatch.setitem(TOYS.setdefault("aggregate", {}), "toy.keeps", Keeps)
    monkeypatch.setattr(Looks, "seen", [])
    run_protocol(sampled({"use": "toy.looks"}, aggregate={"use": aggregate, "weighting": "uniform"}))
    assert len(Looks.seen) == 2
    assert Looks.seen == [(1, 10.0, {})] * 2


class Moves(fedplug.Opener):
    """Change the sum after its noise, with or without access to the party."""

    class Options(fedplug.Options):
        blind: bool = True

    site = "server"

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return (Post(self.half),) if self.options.blind else (Map(self.half),)

    def half(self, given: Any, *_: Any) -> Any:
        return (given.plain() if isinstance(given, Block) else given) * np.float32(0.5)


def test_behind_central_noise_a_function_of_values_keeps_its_price_and_one_with_the_server_in_hand_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TOYS.setdefault("postprocess", {}), "toy.moves", Moves)
    plain, blind, free = (
        run_protocol(sampled(*links, rounds=1, sampling={"rate": 1.0}))
        for links in ((), ({"use": "toy.moves"},), ({"use": "toy.moves", "blind": False},))
    )
    assert blind.protocol.ledger.verdict().toward("released_model").state == "guaranteed"
    assert blind.protocol.ledger.epsilon() == plain.protocol.ledger.epsilon()
    verdict = free.protocol.ledger.verdict()
    assert verdict.status == "no_protection"
    assert verdict.toward("released_model").reason.startswith("toy.moves changes values behind the noise")
