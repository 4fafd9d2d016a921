"""CKKS as NVFlare and Plato use it: their parameters, their packing, and sums as exact as those of std.ckks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import Block, Known, Layout, Seal
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.norms import Bound
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.ckks import Ckks, TensorSlots
from fedplug_std import ckks_noise
from fedplug_std.ckks import GridNumbers
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol

LIKES = ["nvflare", "plato"]


def recipe(like: str, holder: str = "clients", hidden: list[int] | None = None, **changes: Any) -> dict[str, Any]:
    seal = {"use": "baselines.ckks", "like": like, "key_holder": holder}
    model = {"use": "std.mlp", "hidden": hidden or []}
    return recipe_of("encrypted", [seal], model=model, postprocess={"encrypted": ["baselines.ckks"]}) | changes


def make(**options: Any) -> Ckks:
    return Ckks(Ckks.Options.model_validate(options))


def uploads(outcome: Outcome) -> list[Block]:
    sent = [message.decode().get("value") for message in outcome.sent("server")]
    return [value["blocks"]["encrypted"] for value in sent if isinstance(value, dict) and "blocks" in value]


@pytest.mark.parametrize(("like", "holder"), [
    ("plato", "key_server"), ("nvflare", "clients"),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in (("plato", "clients"), ("nvflare", "key_server"))),
])  # fmt: skip
def test_sums_are_those_of_std_ckks_bit_for_bit(like: str, holder: str) -> None:
    """The same grid, so the same sums, whatever the parameters and the packing."""
    standard = {"use": "std.ckks", "key_holder": holder}
    expected = run_protocol(recipe_of("encrypted", [standard], rounds=1))
    assert np.array_equal(run_protocol(recipe(like, holder, rounds=1)).vector, expected.vector)


def test_the_parameters_are_theirs() -> None:
    """NVFlare: nvflare/lighter/impl/he.py; Plato: plato/utils/homo_enc.py, `get_ckks_context`."""
    import tenseal as ts

    for like, bits in (("nvflare", [60, 40, 40]), ("plato", [60, 40, 40, 60])):
        context, _ = make(like=like, key_holder="clients").new_keys(4)
        theirs = ts.context(ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=bits)
        # A ciphertext is two polynomials for each prime but the last, which is for keys alone.
        size = len(ts.ckks_vector(context, [0.5]).serialize())
        theirs.global_scale = context.global_scale
        assert context.global_scale == 2.0**40
        # Compressed, so that sizes vary by a few hundred bytes; a prime more or less is tens of thousands.
        assert abs(size - len(ts.ckks_vector(theirs, [0.5]).serialize())) < 10_000
        if like == "plato":
            assert context.has_public_key()
        else:
            with pytest.raises(ValueError, match="symmetric"):
                context.has_public_key()


def test_nvflare_packs_every_tensor_by_itself() -> None:
    """Tensors of 4096, 64, 640 and 10 scalars: 2 + 1 + 1 + 1 ciphertexts, where one vector takes 2."""
    nvflare = uploads(run_protocol(recipe("nvflare", hidden=[64], rounds=1)))
    plato = uploads(run_protocol(recipe("plato", hidden=[64], rounds=1)))
    assert {len(block.ciphertexts) for block in nvflare} == {5}
    assert {len(block.ciphertexts) for block in plato} == {2}


def test_a_tensor_begins_a_ciphertext() -> None:
    numbers = GridNumbers(1.0, 0.25)
    packing = TensorSlots(numbers, 4, (3, 1, 2), width=2)
    words, saturated = numbers.encode(np.array([0.25, 0.5, 0.75, 1.0, -0.25, -5.0]))
    slots = packing.pack(words)
    assert slots.tolist() == [0.25, 0.5, 0.75, 0, 1.0, 0, -0.25, -1.0]
    assert saturated == pytest.approx(1 / 6)
    assert packing.num_slots(6) == 8
    assert numbers.decode(packing.unpack(2 * slots, 6), 2).tolist() == [0.5, 1.0, 1.5, 2.0, -0.5, -2.0]
    for part in (lambda: packing.pack(words[:4]), lambda: packing.unpack(slots, 4)):
        with pytest.raises(ProtectionError, match="the zone must hold the whole model of 6 scalars, not 4"):
            part()


def test_what_nvflare_sends_along_with_every_tensor() -> None:
    """nvflare/app_opt/he/decomposers.py serialises the context with each vector. This component does not.

    It is as NVFlare's provisioning makes it: symmetric, with relinearisation keys. More than twice the ciphertext.
    """
    import tenseal as ts

    context = ts.context(
        ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40], encryption_type=ts.ENCRYPTION_TYPE.SYMMETRIC
    )
    context.generate_relin_keys()
    context.global_scale = 2.0**40
    ciphertext = ts.ckks_vector(context, [0.5]).serialize()
    assert 600_000 < len(context.serialize()) < 740_000
    assert len(context.serialize()) > 2.5 * len(ciphertext)
    (block, *_) = uploads(run_protocol(recipe("nvflare", rounds=1)))
    assert sum(map(len, block.ciphertexts)) < 2.1 * len(ciphertext)  # a weight and a bias, and no context


def test_nvflare_s_packing_needs_the_whole_model() -> None:
    half = {"use": "baselines.random_mask", "ratio": 0.5}
    for like in LIKES:
        plain = recipe(like, negotiate_mask=half, rounds=1)
        plain["protect"]["clear"] = []
        if like == "plato":
            assert run_protocol(plain).rows[0].zones["encrypted"] == pytest.approx(0.5)
        else:
            with pytest.raises(RecipeError, match=r"must hold the whole model; write like: plato"):
                run_protocol(plain)


def test_it_states_its_grid_and_whose_positions_it_takes(make_client: Any) -> None:
    known, facts = Known(zone="encrypted", layers=(6,), bounds=(Bound(1.0),)), make_client(Layout(())).facts
    for like, width in (("nvflare", 0), ("plato", 4095)):
        (seal,) = make(like=like, key_holder="clients", range=2.0, grid_bits=10).protect(known, facts)
        assert isinstance(seal, Seal)
        assert (seal.opened_by, seal.range, seal.step, seal.position_block) == ("clients", 2.0, 2.0**-10, width)
        assert seal.scheme.startswith(f"CKKS as {like}: 8192")


def test_what_a_sum_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtectionError, match=r"lower range or grid_bits"):
        make(range=2.0**20, grid_bits=22).agree(4)
    with pytest.raises(ProtectionError, match=r"max_clients=100000 is too many: noise .* lower max_clients"):
        make(grid_bits=22, like="plato").agree(100_000)
    make(grid_bits=22, like="plato").agree(22)
    monkeypatch.setattr(ckks_noise, "KEYS_TRIED", 1)
    for refuse in (make(grid_bits=22, like="plato").agree, make(grid_bits=22, like="plato").new_keys):
        with pytest.raises(ProtectionError, match=r"22 is too fine.* lower grid_bits to 21, .* use std.bfv"):
            refuse(40)
    make(grid_bits=22, like="nvflare", key_holder="clients").agree(40)
    for wrong in ({"like": "fate"}, {"grid_bits": 0}, {"range": 2.0**21}):
        with pytest.raises(RecipeError):
            Recipe.from_plain(recipe_of("encrypted", [{"use": "baselines.ckks"} | wrong]))
