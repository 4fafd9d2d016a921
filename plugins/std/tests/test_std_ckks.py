"""CKKS sums: accurate, within the modulus, and free of the noise that would give the key away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import Known
from fedplug.api.blocks import Block
from fedplug.api.errors import ProtectionError
from fedplug.api.parties import KeyServer
from fedplug_std import ckks_noise, tenseal_backend
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import PROFILES, Ckks, GridNumbers, GridSlots
from fedplug_std.quantise import round_to_grid
from he_toys import OneClient, facts_of


def make(**options: Any) -> Ckks:
    return Ckks(Ckks.Options.model_validate(options))


def sum_of(parties: OneClient, updates: Any) -> Block:
    return parties.open(parties.add({index: parties.seal(update) for index, update in enumerate(updates)}))


def test_it_says_what_it_holds_and_which_sums_show_single_updates() -> None:
    def holds(component: Any, num_clients: int) -> tuple[float, float]:
        (seal,) = component.protect(Known(zone="encrypted"), facts_of(component, num_clients, 2))
        return seal.range, seal.step

    assert holds(make(range=26.0, profile="tutorial"), 10) == (26.0, 2.0**-17)
    # 12 bits fit a sum of 64 in the narrowest field of 18: codes 0 to 2 * 2047.
    assert holds(Bfv(Bfv.Options(range=26.0)), 64) == (26.0, pytest.approx(26 / 2047))
    assert holds(Bfv(Bfv.Options(range=26.0, bits=2)), 64) == (26.0, 26.0)
    for holder, seen_by, least in (("key_server", "key_holder", 2), ("clients", "client", 3)):
        for min_clients in (1, 2, 3):
            component = make(key_holder=holder)
            channels = component.reveals(facts_of(component, 4, min_clients))
            shown = [c for c in channels if c.what.startswith("single updates") and c.to == (seen_by,)]
            assert len(shown) == (min_clients < least)


@pytest.mark.parametrize("profile", ["compact", "tutorial"])
def test_the_mean_of_20_clients_is_within_1e_5(profile: str) -> None:
    updates = np.random.default_rng(0).uniform(-1, 1, (20, 5000)).astype(np.float32)
    mean = sum_of(OneClient(make(profile=profile), 5000, 20, 2), updates).mean()
    assert np.abs(mean - updates.astype(np.float64).mean(0)).max() < 1e-5


def test_what_is_released_depends_on_the_values_alone() -> None:
    """Two encryptions of the same updates open to the same bits: no noise of the scheme is left in them."""
    updates = np.random.default_rng(1).normal(0, 0.1, (20, 4000)).astype(np.float32)
    parties, others = (OneClient(make(), 4000, 20, 2) for _ in range(2))
    first, second = (sum_of(parties, updates).plain() for _ in range(2))
    assert np.array_equal(first, second)
    other_keys = sum_of(others, updates).plain()
    assert np.array_equal(first, other_keys)
    plain = sum(round_to_grid(update, 1.0, 2.0**-17)[0] for update in updates)
    assert np.array_equal(first, np.asarray(plain).astype(np.float32))


def summed(component: Ckks, context: Any, row: Any, times: int) -> Any:
    """The raw decryption of a sum of fresh encryptions of one row."""
    fresh = component.backend.encrypt(context, np.tile(row, (times, 1)))
    total = component.backend.add(context, [[one] for one in fresh], component.slots)
    return component.backend.decrypt(context, total, component.slots)[0]


def test_raw_decryptions_do_carry_noise() -> None:
    """Without the grid the test above would fail, so it tests something."""
    component = make()
    context, _ = component.new_keys(20)
    row = np.random.default_rng(2).uniform(-1, 1, component.slots)
    raw = [summed(component, context, row, 1) for _ in range(2)]
    assert not np.array_equal(raw[0], raw[1])


def spread(component: Ckks, context: Any, secret: bool) -> tuple[Any, Any]:
    """Of a fresh encryption: the deviation that is stated for each root, and the noise of both its parts found there.

    The roots come in the order of their |s(z)|^2, largest first; `tutorial` has a value in the real part alone.
    """
    rows = np.random.default_rng(4).uniform(-1, 1, (60, component.slots))
    errors = component.backend.decrypt(context, component.backend.encrypt(context, rows), component.slots) - rows
    if isinstance(component.backend, tenseal_backend.TenSeal):
        key, scale = tenseal_backend.key_sizes(context), 2.0**40
    else:
        key, scale = np.abs(context.key_spectrum) ** 2, context.scale
        errors = np.concatenate([errors[:, : component.slots // 2], errors[:, component.slots // 2 :]])
    order = np.argsort(-key)
    return ckks_noise.deviations(component.degree, 1, scale, None if secret else key[order]), errors[:, order]


@pytest.mark.parametrize("profile", ["compact", pytest.param("tutorial", marks=pytest.mark.slow)])
def test_noise_is_as_large_in_every_slot_as_is_stated(profile: str) -> None:
    """With a public key it follows |s(z)|^2; under the secret key all slots are alike."""
    component, largest = make(profile=profile), list[float]()
    for _ in range(4):
        context, _ = component.measured(2)
        stated, errors = spread(component, context, secret=False)
        largest.append(stated[0] / np.sqrt((stated**2).mean()))
    found = np.sqrt((errors**2).mean(0))
    assert max(largest) > 2.4  # one key in 600 has no slot so noisy
    for part in (slice(0, 40), slice(0, 400), slice(400, None)):
        assert np.sqrt(np.mean((found / stated)[part] ** 2)) == pytest.approx(1, abs=0.07)
    component = make(profile=profile, key_holder="clients")
    context, _ = component.measured(2)
    (stated,), errors = spread(component, context, secret=True)
    for part in (slice(0, 40), slice(0, 400), slice(400, None)):
        assert np.sqrt((errors[:, part] ** 2).mean()) == pytest.approx(stated, rel=0.07)


def wrong_under(key: Any, clients: int, grid_bits: int) -> float:
    """The share of values that round wrongly in sums of the compact profile."""
    component = make(grid_bits=grid_bits)
    deviations = ckks_noise.deviations(4096, clients, component.scale(clients), key)
    return ckks_noise.chance(deviations, 2.0 ** -(grid_bits + 1))


@pytest.mark.parametrize(("grid_bits", "clients"), [(17, 22), (16, 35), (15, 44)])
def test_a_cohort_is_accepted_only_where_its_noisiest_slots_round_to_the_grid(grid_bits: int, clients: int) -> None:
    component = make(grid_bits=grid_bits)
    component.agree(clients)
    with pytest.raises(ProtectionError, match="too fine" if clients < 44 else "can sum to"):
        component.agree(clients + 1)
    _, terms = component.new_keys(clients)
    assert terms["max_clients"] == clients
    # About nine keys in ten are accepted, and it is not the largest slot alone that decides.
    rng, roots = np.random.default_rng(5), np.exp(1j * np.pi / 4096 * np.arange(4096))
    keys = [np.abs(np.fft.fft(rng.integers(-1, 2, 4096) * roots)[:2048]) ** 2 for _ in range(60)]
    assert np.mean([wrong_under(key, clients, grid_bits) < 1e-13 for key in keys]) > 0.8


def test_keys_whose_noisiest_slots_round_wrongly_are_refused() -> None:
    """By the mean over all slots, fewer than one value in 10^16 were wrong here; several in a million are."""
    component = make()
    with pytest.raises(ProtectionError) as caught:
        component.agree(40)
    for word in ("grid_bits=17 is too fine", "a sum of 40 updates", "lower grid_bits to 15", "key_holder: clients",
                 "profile: tutorial, or std.bfv"):  # fmt: skip
        assert word in str(caught.value)
    with pytest.raises(ProtectionError, match="17 is too fine"):
        component.new_keys(40)
    for lighter in ({"grid_bits": 15}, {"key_holder": "clients"}, {"profile": "tutorial"}):
        make(**lighter).agree(40)


def test_the_chance_of_a_wrong_value_is_that_of_the_normal_distribution() -> None:
    found = np.random.default_rng(6).normal(0, [[1.0], [2.0]], (2, 400_000))
    assert ckks_noise.chance(np.array([1.0, 2.0]), 3.0) == pytest.approx(np.mean(np.abs(found) > 3), rel=0.02)
    assert ckks_noise.chance(np.array([1.0, 2.0]), 3.0) == pytest.approx((0.0026998 + 0.1336144) / 2, rel=1e-5)


@pytest.mark.parametrize("key_holder", ["key_server", "clients"])
@pytest.mark.parametrize("profile", ["compact", "tutorial"])
def test_worst_case_sums_of_the_largest_cohort_decrypt(profile: str, key_holder: str) -> None:
    component = make(profile=profile, key_holder=key_holder)
    largest = {("compact", "clients"): 44, ("compact", "key_server"): 22}.get((profile, key_holder), 9)
    context, terms = component.new_keys(largest)
    packing = component.packing(terms)
    # Values ±(1 + i) in turn are one coefficient, sqrt(2) times as large: the largest that there is.
    for row in (np.ones(component.slots), -np.ones(component.slots), np.tile([1.0, -1.0], component.slots // 2)):
        slots = summed(component, context, row, largest)
        words = packing.unpack(slots, component.slots)
        assert np.array_equal(packing.numbers.decode(words, largest), largest * row)


def test_sums_that_exceed_the_modulus_are_refused() -> None:
    make(key_holder="clients").agree(44)
    with pytest.raises(ProtectionError) as caught:
        make(key_holder="clients").agree(45)
    for word in ("max_clients=45", "range=1", "< 44.8", "lower range to 0.99", "tutorial", "std.bfv"):
        assert word in str(caught.value)
    make(range=0.5, key_holder="clients").agree(63)
    make(profile="tutorial", range=1000.0).agree(10_000)


def test_exceeding_the_modulus_would_really_wrap() -> None:
    component = make()
    context, _ = component.new_keys(20)
    assert np.abs(summed(component, context, np.ones(component.slots), 40) - 40).min() > 1


def test_a_grid_finer_than_the_noise_is_refused() -> None:
    with pytest.raises(ProtectionError, match=r"grid_bits=24 is too fine.* lower grid_bits to"):
        make(grid_bits=24).new_keys(20)
    make(grid_bits=22, profile="tutorial").new_keys(20)
    made = make(grid_bits=24).make_keys(KeyServer(), 20)
    assert "too fine" in made["error"]


def test_a_grid_finer_than_float64_encodes_is_refused() -> None:
    """Rows of equal values hide it: they are one coefficient, and of that nothing is lost."""
    wide = make(profile="tutorial", range=1e9)
    with pytest.raises(ProtectionError, match=r"range=1e\+09 sum to 1e\+10, which must be < 1.34e\+08"):
        wide.agree(10)
    with pytest.raises(ProtectionError, match="17 is too fine"):
        wide.new_keys(10)
    context = tenseal_backend.ckks_context(8192, (60, 40, 40, 60), 40, symmetric=False)
    assert np.abs(summed(wide, context, np.full(4096, 1e9), 10) - 1e10).max() < 2.0**-20
    edge = make(profile="tutorial", range=2.0**44 / 10 / 2**17 * 0.99)
    edge.agree(10)
    edge.new_keys(10)


def test_noise_that_would_hide_the_count_is_refused() -> None:
    with pytest.raises(ProtectionError, match="max_clients=20000 is too many: noise"):
        make(grid_bits=6, range=0.0015, key_holder="key_server", max_clients=20_000).new_keys(20_000)


def test_a_range_below_the_grid_is_refused() -> None:
    with pytest.raises(ProtectionError, match="raise grid_bits"):
        make(range=1e-4, grid_bits=10).agree(3)


@pytest.mark.parametrize("max_clients", [1, 2, 3, 20, 31, 300])
def test_counts_are_read_to_the_nearest_number(max_clients: int) -> None:
    slots = GridSlots(GridNumbers(1.0, 2.0**-17), max_clients)
    assert max_clients * slots.count_unit <= 1
    noise = np.random.default_rng(3).normal(0, 1e-6, max_clients + 1)
    whole = np.arange(max_clients + 1)
    assert np.array_equal(slots.counts(whole * slots.count_unit + noise), whole)
    odd = np.array([0.5, -1.0, np.nan, 1e300]) * slots.count_unit
    assert np.array_equal(slots.counts(odd), [-1, -1, -1, -1])


@pytest.mark.filterwarnings("error")
def test_impossible_sums_are_refused() -> None:
    numbers = GridNumbers(1.0, 2.0**-17)
    for bad in (3.1, -3.1, np.nan):
        with pytest.raises(ProtectionError, match="3 updates of range 1 cannot exceed") as caught:
            numbers.decode(np.array([0.0, bad]), 3)
        assert str(bad) not in str(caught.value)  # errors travel to the server


def test_profiles_are_within_the_security_standard() -> None:
    """At most 109 bits of modulus at degree 4096 and 218 at 8192 for 128-bit security."""
    for degree, coeff_bits, _ in PROFILES.values():
        assert sum(coeff_bits) <= {4096: 109, 8192: 218}[degree]
