"""BFV: sums are exact up to the largest cohort, in fields as wide as the noise leaves room for."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import pytest
import sympy  # type: ignore[import-untyped]
from fedplug.api.errors import ProtectionError
from fedplug_std.bfv import COEFF_BITS, DEGREE, SCALE_BITS, Bfv
from fedplug_std.he_rlwe import Rlwe
from fedplug_std.quantise import FixedPoint
from he_toys import Parties, codes, make, opened
from pydantic import ValidationError


@pytest.mark.parametrize("key_holder", ["key_server", "clients"])
def test_sums_of_128_worst_case_clients_are_exact(key_holder: str) -> None:
    parties = Parties(make(Bfv, key_holder=key_holder), 128).setup()
    terms = parties.facts.of(parties.component)["terms"]
    assert terms == {"field_bits": 23, "bits": 16, "max_clients": 128, "key": terms["key"]}
    numbers = FixedPoint(1.0, 16, 23, 128)
    rng = np.random.default_rng(0)
    extremes = np.where(rng.random((128, 8000)) < 0.5, -1, 1).astype(np.float32)
    extremes[:, :2000], extremes[:, 6000:] = 1, rng.uniform(-1, 1, (128, 2000))
    extremes[:, 2000:4000] = -1
    total = parties.add({index: parties.seal(0, update) for index, update in enumerate(extremes)})
    assert (total.contributors, total.divisor, total.weighted) == (128, 128.0, True)
    opened = parties.open(total).plain()
    assert np.array_equal(opened, numbers.decode(codes(extremes, numbers), 128))
    error = np.abs(opened - extremes.astype(np.float64).sum(0))
    assert error.max() < 128 * numbers.step / 2
    assert error[:6000].max() == 0  # the ends of the range are on the grid


def test_clients_of_a_process_decrypt_a_sum_once_and_each_reports_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = Parties(make(Bfv, key_holder="clients"), 3, min_clients=2).setup()
    values = np.arange(10, dtype=np.float32) / 10
    decrypted: list[int] = []
    real = Rlwe.decrypt

    def decrypt(self: Rlwe, context: Any, ciphertexts: Any, slots: int) -> Any:
        decrypted.append(len(ciphertexts))
        return real(self, context, ciphertexts, slots)

    monkeypatch.setattr(Rlwe, "decrypt", decrypt)

    total = parties.add({index: parties.seal(index, values) for index in range(3)})
    found = [parties.open(parties.relay(total), parties.clients[index]) for index in range(3)]
    assert len(decrypted) == 1
    assert all(np.array_equal(block.plain(), found[0].plain()) for block in found)
    seconds = [parties.clients[index].operations["std.bfv.decrypt"] for index in range(3)]
    assert [count for count, _ in seconds] == [1.0] * 3
    assert seconds[1][1] > seconds[0][1] / 2
    with pytest.raises(ProtectionError, match="holds 3 updates; opening fewer than min_clients=4"):
        opened(total, parties.clients[0], dataclasses.replace(parties.facts, min_clients=4))
    with pytest.raises(ProtectionError, match="does not hold the 4 updates that are claimed"):
        parties.open(total.replace(contributors=4), parties.clients[2])
    parties.open(parties.add({index: parties.seal(index, values) for index in range(2)}), parties.clients[1])
    assert len(decrypted) == 2


def test_one_client_may_use_every_bit_of_a_field() -> None:
    parties = Parties(make(Bfv), 1, min_clients=1).setup()
    values = np.array([1, -1, 1, 1, 0.3], np.float32)
    assert np.abs(parties.open(parties.add({0: parties.seal(0, values)})).plain() - values).max() < 2.0**-22


def test_many_clients_get_narrower_fields_that_still_decrypt() -> None:
    component = make(Bfv)
    context, terms = component.new_keys(5000)
    assert terms["field_bits"] < 23
    assert 5000 * (2 ** terms["bits"] - 1) < 2 ** terms["field_bits"]
    packing = component.packing(terms)
    slots = packing.pack(packing.numbers.encode(np.ones(2 * DEGREE))[0])
    fresh = component.backend.encrypt(context, np.tile(slots, (64, 1)))
    total = component.backend.add(context, [[one] for one in fresh], DEGREE)
    for _ in range(4):  # noise of independent updates grows with the root of their number, so twice is four times
        total = component.backend.add(context, [total, total], DEGREE)
    words = packing.unpack(component.backend.decrypt(context, total, DEGREE)[0], 2 * DEGREE)
    assert np.array_equal(packing.numbers.decode(words, 1024), np.full(2 * DEGREE, 1024, np.float32))


def test_fields_shrink_when_the_noise_leaves_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rlwe, "noise", lambda *_: 300.0)
    parties = Parties(make(Bfv), 4).setup()
    assert parties.facts.of(parties.component)["terms"]["field_bits"] == 22
    monkeypatch.setattr(Rlwe, "noise", lambda *_: 1e9)
    with pytest.raises(ProtectionError, match="max_clients=4 leaves no noise budget"):
        Parties(make(Bfv), 4).setup()


def test_the_scale_is_the_quotient_of_both_moduli() -> None:
    """q = 2^14 t + 1 for the plain modulus t = 2^46 - 1, so that messages times 2^14 are textbook BFV."""
    context, _ = make(Bfv).new_keys(3)
    modulus = context.ring.modulus
    assert sympy.isprime(modulus)
    assert (modulus - 1) % (2 * DEGREE) == 0
    assert divmod(modulus, 2**46 - 1) == (2**SCALE_BITS, 1)
    assert context.seal.first_context_data().parms().plain_modulus().value() == 2**46 - 1
    assert sum(COEFF_BITS) == context.seal.key_context_data().total_coeff_modulus_bit_count() == 109


def test_bits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProtectionError, match=r"max_clients=100 .*bits=20.*lower bits to 16"):
        Parties(make(Bfv, bits=20), 100).setup()
    assert "lower bits to 16" in make(Bfv, bits=20).check(types.SimpleNamespace(clients=100))[0]
    for wrong in ({"bits": 24}, {"range": 0}, {"range": float("inf")}, {"max_clients": 0}, {"key_holder": "server"}):
        with pytest.raises(ValidationError):
            make(Bfv, **wrong)
