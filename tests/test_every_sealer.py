"""Every installed sealer gives the mean of its clients' updates on its own grid, whoever drops out; and needs no books.

Sealers are found in the catalog, so a new one is tried as well. `OPTIONS` names quick ones, and what one cannot do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import phe
import pytest
from examples import examples
from fedplug import Aggregator, Block, Client, Facts, Known, Open, Operations, Scrambler, Sealer, Wants, WeightedSum
from fedplug.api.roles import Closer
from fedplug.mechanisms.closing import Closing
from fedplug.recipe.catalog import Catalog
from fedplug_sensecrypt._phe import Phe
from fedplug_std import paillier, paillier_scheme
from fedplug_std.bfv import Bfv
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_base import Toy
from toy_components import TOYS, recipe_of
from toy_protocol import Outcome, initial_vector, run_protocol
from toy_sealers import Bare

SIZE = 34
"""Scalars of the model."""

OPTIONS: dict[str, Sequence[dict[str, Any]]] = {
    "baselines.batchcrypt": [{"clip": "range", "rounding": "nearest"}],
    "baselines.ckks": [{"like": "plato"}, {"like": "nvflare", "key_holder": "clients"}],
    "baselines.lwe": [{"noise_multiplier": 1.0}],
    "clover.sparse_shares": [{"norm": 1.0, "keep": 0.5, "noise_multiplier": 1.0}],
    "secagg.bonawitz": [{}, {"bits": 20}],
    "secagg.plus": [{"dropped": 0.4, "corrupt": 0.1}],
    "std.bfv": [{}, {"key_holder": "clients"}],
    "std.ckks": [{}, {"key_holder": "clients"}],
    "std.paillier": [{"key_bits": 2048, "short_exponents": True}],
    "threshold.bfv": [{}, {"sums_visible_to": "clients"}],
}
one_key = functools.cache(paillier_scheme.generate)
ALIKE = {"baselines.lwe"}
"""Sealers that close updates of equal weight alone."""


def sealers() -> Iterator[Any]:
    """Every sealer that is installed, with each of its options."""
    for name, entry in sorted(Catalog.discover().groups["protect"].items()):
        if issubclass(entry.imported(), Closer):
            for options in OPTIONS.get(name, [{}]):
                yield pytest.param(name, options, id=" ".join([name, *map(str, options.values())]))


class Weighing(Toy, Aggregator):
    """A mean in which a client weighs what a hash of its number of examples says."""

    wants = Wants(num_examples=True)

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        return 0.05 + 0.95 * (num_examples * 0.6180339887 % 1)

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (WeightedSum(),)


class Seen:
    """What clients close in a run, and what those who open its sum find."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.closed: dict[int, NDArray[np.float64]] = {}
        self.opened: list[tuple[Closing, tuple[int, ...], Block]] = []
        close, opening = Closing.close, Closing.open

        def closing(closing: Closing, block: Block, client: Client) -> Block:
            weight = client.weight if isinstance(closing.component, Sealer) else 1.0
            self.closed[client.client_id] = block.plain().astype(np.float64) * weight
            return close(closing, block, client)

        def opens(closing: Closing, block: Block, clients: Sequence[int], party: Any) -> Block:
            found = opening(closing, block, clients, party)
            self.opened.append((closing, tuple(clients), found))
            return found

        patch.setattr(Closing, "close", closing)
        patch.setattr(Closing, "open", opens)


def recipe(name: str, options: dict[str, Any], clients: int, **changes: Any) -> dict[str, Any]:
    weighing = {"use": "std.mean", "weighting": "uniform"} if name in ALIKE else {"use": "toy.weighing"}
    plain = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": 64.0}, {"use": name, **options}], rounds=1, min_clients=4,
        aggregate=weighing, postprocess={"encrypted": [name]},
    )  # fmt: skip
    plain["data"] |= {"use": "toy.tiny_digits", "clients": clients}
    return plain | changes


def away(folder: Path, client: int, when: str) -> dict[str, Any]:
    trace = folder / f"{client}.csv"
    trace.write_text(f"round,client\n1,{client}\n")
    return {"trace": str(trace), "when": when}


@pytest.mark.parametrize(("name", "options"), [*sealers()])
def test_the_opened_mean_is_the_plain_one_on_the_sealers_grid(
    name: str, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("away")

    @settings(max_examples=examples(12), phases=[Phase.generate], database=None)
    @given(
        clients=st.integers(5, 7), seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1e-4, 0.05, 1.0]),
        gone=st.none() | st.integers(0, 4), when=st.sampled_from(["round", "upload"]),
    )  # fmt: skip
    def tried(clients: int, seed: int, scale: float, gone: int | None, when: str) -> None:
        absent = {} if gone is None else {"availability": away(folder, gone, when)}
        plain = recipe(name, options, clients, seed=seed, train={"use": "toy.push", "scale": scale}, **absent)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(TOYS["aggregate"], "toy.weighing", Weighing)
            # A key of 256 bits, with which phe does the same in a hundredth of the time. Others keep their first one.
            patch.setattr(Phe, "new_context", lambda self, bits: phe.generate_paillier_keypair(n_length=256)[1])
            for module in (paillier, paillier_scheme):
                patch.setattr(module, "generate", one_key)
            seen = Seen(patch)
            outcome = run_protocol(plain)
            require_the_mean(seen, outcome, plain, [c for c in range(clients) if c != gone])

    tried()


def require_the_mean(seen: Seen, outcome: Outcome, plain: dict[str, Any], inside: list[int]) -> None:
    assert not [note for note in outcome.notes if "dropped out: is away" not in note]
    closing, clients, opened = seen.opened[0]
    assert all(found.plain().tobytes() == opened.plain().tobytes() for _, _, found in seen.opened)
    assert list(clients) == inside
    assert opened.contributors == len(inside)
    weights = outcome.protocol.server.weights
    assert opened.divisor == pytest.approx(sum(weights[c] for c in inside))
    numbers, values = closing.operation.numbers, [seen.closed[c] for c in inside]
    if isinstance(closing.component, Scrambler):
        weighted = [weights[c] * each for c, each in zip(inside, values, strict=True)]
        allowed = (len(inside) + 1) * numbers.step / 2
    else:
        weighted, allowed = values, len(inside) * numbers.step / 2
        words = np.sum([numbers.encode(each, np.random.default_rng(0))[0] for each in values], axis=0)
        assert np.array_equal(opened.plain(), numbers.decode(words, len(inside)).astype(np.float32))
    total = sum(np.clip(each, -numbers.range, numbers.range) for each in weighted)
    assert np.abs(opened.plain() - total).max() <= allowed + 2.0**-22 * np.abs(total).max()
    behind = [each for step in closing.facts.steps("encrypted") if step.link.hook == "postprocess"
              for each in step.operations]  # fmt: skip
    if [type(each) for each in behind] != [Open]:
        return  # noise, which the sum gets before the model moves by it
    mean, start = opened.plain() / sum(weights[c] for c in inside), initial_vector(plain)
    assert np.abs(outcome.vector - start - mean).max() <= 2.0**-21 * (np.abs(mean).max() + np.abs(start).max())


@settings(max_examples=examples(12), phases=[Phase.generate])
@given(seed=st.integers(0, 10**6), clients=st.integers(2, 5), key_holder=st.sampled_from(["clients", "key_server"]))
def test_a_sealer_of_three_methods_trains_to_the_model_of_bfv(seed: int, clients: int, key_holder: str) -> None:
    """`Bare` knows nothing of weights, divisors, grids and who is in a sum. On the numbers of BFV, it is BFV."""
    seal = {"use": "std.bfv", "key_holder": key_holder}
    plain = recipe_of("encrypted", [seal], seed=seed, rounds=3)
    plain["data"] |= {"use": "toy.tiny_digits", "clients": clients}
    encrypted = run_protocol(plain)
    terms = encrypted.protocol.facts(0).of("std.bfv")["terms"]

    class OnItsGrid(Bare):
        """The same sums."""

        numbers = Bfv(Bfv.Options(key_holder=key_holder)).packing(terms).numbers  # type: ignore[arg-type]

    bare = plain | {"protect": {"encrypted": ["toy.bare"]}, "postprocess": {"encrypted": ["toy.bare"]}}
    with pytest.MonkeyPatch.context() as patch:
        for group in ("protect", "postprocess"):
            patch.setitem(TOYS[group], "toy.bare", OnItsGrid)
        outcome = run_protocol(bare)
    assert outcome.notes == encrypted.notes == []
    assert np.array_equal(outcome.vector, encrypted.vector)
    assert not np.array_equal(outcome.vector, initial_vector(plain))
    for theirs, ours in zip(encrypted.rows, outcome.rows, strict=True):
        assert (ours.loss, ours.accuracy) == (theirs.loss, theirs.accuracy)
