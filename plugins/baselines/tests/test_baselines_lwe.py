"""LWE sums: the opened sum, and what each party sees."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client, Known, Layout, Misplaced, Noise, Round, Seal
from fedplug.api.errors import MessageError
from fedplug.api.grids import exact_slack
from fedplug.api.norms import Bound
from fedplug_baselines import lwe_numbers
from fedplug_baselines.lwe_field import HALF, Q, centred
from lwe_toys import CLIENTS, NORM, SIZE, chain, lwe, opened, parts, recipe, update, upload, whole, whole_noise
from toy_components import pushed
from toy_protocol import calls_of, initial_vector, run_protocol

# -- what is opened ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "packing"), [(None, 1), (4, 3), (2, 1)])
def test_what_is_opened_is_the_sum_of_updates_and_errors(
    parties: dict[int, Client], threshold: int | None, packing: int
) -> None:
    """Item 34: sum g + sum e, to the last bit; the grid is coarse enough for float32 to hold the sum."""
    component = lwe(threshold=threshold, packing=packing, grid=2.0**-19)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    found = opened(component, blocks, parties)
    expected = sum(parts(component, client, update(c))[0] for c, client in parties.items())
    assert np.abs(expected).max() < 2**24
    assert np.array_equal(found.plain().astype(np.float64) * 2**19, expected)
    assert (found.sealed_by, found.ciphertexts, dict(found.meta)) == (None, (), {})


def test_a_run_moves_the_model_by_the_mean_of_updates_and_errors() -> None:
    plain = recipe(grid=2.0**-19) | {"rounds": 1}
    outcome, start = run_protocol(plain), initial_vector(plain)
    component, total = lwe(grid=2.0**-19), np.zeros(650, np.int64)
    for client_id in range(CLIENTS):
        values = pushed(start, 7, client_id, 0)
        assert np.linalg.norm(values) < NORM
        std = NORM * component.options.of_one(0, 1, CLIENTS, 2)
        rng = fedplug.stream(7, client_id, 0, "baselines.lwe", "encrypted")
        total += whole(values, 2.0**-19) + whole_noise(650, std, 2.0**-19, rng)
    mean = (total / 2**19 / CLIENTS).astype(np.float32)
    assert np.array_equal(outcome.vector, start + mean)
    assert outcome.rows[0].zones["encrypted"] == 1.0


def test_both_engines_agree() -> None:
    plain = recipe(packing=2, threshold=3)
    assert np.array_equal(run_protocol(plain).vector, run_protocol(plain, "processes", workers=1).vector)


@pytest.mark.parametrize("source", ["secure", "exact"])
def test_the_errors_add_up_to_the_noise_that_was_asked_for(parties: dict[int, Client], source: str) -> None:
    """Of zero updates the sum is the noise: `shared_by` clients have multiplier 0.5 together, four have 2/sqrt(3)."""
    component = lwe(source=source, shared_by=3)
    zeros = np.zeros(SIZE, np.float32)
    blocks = {c: upload(component, client, zeros) for c, client in parties.items()}
    found = opened(component, blocks, parties).plain().astype(np.float64)
    std = 0.5 * NORM * math.sqrt(4 / 3)
    assert np.sqrt(np.mean(found**2)) == pytest.approx(std, rel=5 / math.sqrt(2 * SIZE))
    assert abs(found.mean()) < 5 * std / math.sqrt(SIZE)


def test_the_default_share_of_the_noise_leaves_out_who_looks() -> None:
    """4 clients, more than half of which open: the smallest sum has three, and each of them knows its own error."""
    options = lwe().options
    assert options.of_one(0, 5, 4, 2) == pytest.approx(0.5 / math.sqrt(2))
    assert options.of_one(0, 5, 4, 4) == pytest.approx(0.5 / math.sqrt(3))
    assert lwe(shared_by=1).options.of_one(0, 5, 4, 4) == 0.5
    assert lwe(decay=0.5).options.of_one(2, 5, 4, 2) == pytest.approx(0.125 / math.sqrt(2))


def test_the_release_says_what_one_client_adds(make_client: Any) -> None:
    facts = make_client(Layout.of([("w", (SIZE,))])).facts
    behind = chain(lwe(source="exact"), facts)[-1].after
    (release,) = behind.releases
    assert (release.mechanism, release.trust, release.clipping_norm) == ("discrete_gaussian", "distributed", NORM)
    assert release.noise_multiplier == pytest.approx(0.5 / math.sqrt(2))
    assert "delta grows by less than" in release.note
    step = lwe_numbers.step_of(NORM, NORM * release.noise_multiplier, CLIENTS, None)
    # Of each value, in each of 9 rounds, by each of 4 clients.
    assert release.slack == exact_slack(NORM * release.noise_multiplier / step, SIZE * 9 * CLIENTS) > 0
    assert behind.grid == release.step == step
    rounded, noise, seal = chain(lwe(), facts)[-1].operations
    assert rounded == Round(noise.grid, toward_zero=True)  # type: ignore[union-attr]
    assert isinstance(noise, Noise)
    assert "anyone who knows the seed" in noise.note
    assert isinstance(seal, Seal)
    assert (seal.opened_by, seal.opens_with, seal.range, seal.position_block) == ("shares", 3, math.inf, 0)


def test_a_clip_of_a_length_that_is_not_known_yet_is_no_error(make_client: Any) -> None:
    """Before a run there is no model, so a clip of each scalar bounds no length."""
    facts = make_client(Layout(())).facts
    known = Known(zone="encrypted", link="baselines.lwe", bounds=(Bound(0.1, order=math.inf, per="scalar"),))
    noise, seal = lwe().protect(known, facts)
    assert isinstance(noise, Noise)
    assert noise.std == math.inf
    assert isinstance(seal, Seal)
    assert seal.step == 0


def test_it_needs_a_clip_and_no_other_noise(make_client: Any) -> None:
    facts = make_client(Layout(())).facts
    known = Known(zone="encrypted", link="baselines.lwe")
    with pytest.raises(Misplaced, match=r"needs a bound of the L2 norm.*std.clip"):
        lwe().protect(known, facts)
    with pytest.raises(Misplaced, match="its error is the noise of the zone"):
        lwe().protect(known.after(Noise.gaussian(1.0)), facts)


def test_what_clients_answer_is_covered() -> None:
    outcome = run_protocol(recipe() | {"rounds": 1})
    assert not outcome.protocol.ledger.uncovered
    shown = outcome.protocol.composition.components["baselines.lwe"].reveals(outcome.protocol.server.facts)
    covered = {method: each.covered_by for each in shown for method in each.asked}
    assert covered == {"make_key": "nothing to pay", "sum_of_shares": "epsilon"}


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_equal_updates_give_unlike_uploads_that_look_uniform(parties: dict[int, Client]) -> None:
    """Even under the same noise, since every upload has its own secret. The difference is not small."""
    component = lwe()
    first, second = (upload(component, parties[0], update(0)) for _ in range(2))
    sent = [np.frombuffer(block.ciphertexts[0], "<u4").astype(np.int64) for block in (first, second)]
    message, _ = parts(component, parties[0], update(0))
    for masks in (sent[0] - message, sent[1] - message, sent[0] - sent[1]):
        eighths = np.histogram(masks % Q, bins=8, range=(0, Q))[0]
        assert np.sum((eighths - SIZE / 8) ** 2) / (SIZE / 8) < 40, "chi-square of 7 degrees of freedom"
        assert np.abs(centred((masks % Q).astype(np.uint64))).mean() > HALF / 4
    assert all(first.meta["letters"][c] != second.meta["letters"][c] for c in range(CLIENTS))


def test_every_round_and_zone_has_its_own_matrix(make_client: Any) -> None:
    layout = Layout.of([("w", (3,))])
    contexts = [make_client(layout, round=round).facts for round in (0, 1)]
    seeds = {lwe()._seed(facts, zone) for facts in contexts for zone in ("encrypted", "noised")}
    assert len(seeds) == 4
    assert all(len(seed) == 32 for seed in seeds)


def test_the_wire_holds_masked_values_and_sealed_shares_only() -> None:
    plain = recipe() | {"rounds": 1}
    outcome, start = run_protocol(plain), initial_vector(plain)
    uploads: dict[int, Block] = {}
    for message in outcome.sent(receiver="server", round=0):
        value = message.decode().get("value")
        if isinstance(value, dict) and "blocks" in value:
            uploads[int(message.sender.removeprefix("client:"))] = value["blocks"]["encrypted"]
    assert sorted(uploads) == [0, 1, 2, 3]
    for client_id, block in uploads.items():
        assert block.values is None
        masked = centred(np.frombuffer(block.ciphertexts[0], "<u4").astype(np.uint64))
        values = pushed(start, 7, client_id, 0)
        assert abs(np.corrcoef(masked, values)[0, 1]) < 0.2
        assert np.abs(masked).mean() > HALF / 4
        assert {len(share) for share in block.meta["letters"].values()} == {4 * 710 + 28}
    asked = [m for m in outcome.wire.messages if "baselines.lwe.sum_of_shares" in _calls(m)]
    assert len(asked) == CLIENTS
    for message in asked:  # each client gets only shares sealed for it
        receiver = int(message.receiver.removeprefix("client:"))
        for other in range(CLIENTS):
            there = [uploads[dealer].meta["letters"][other] in message.data for dealer in range(CLIENTS)]
            assert there == [other == receiver] * CLIENTS


def _calls(message: Any) -> list[str]:
    return calls_of(message) if message.receiver.startswith("client:") else []


def test_private_keys_stay_at_their_clients(parties: dict[int, Client]) -> None:
    component = lwe()
    block = upload(component, parties[0], update(0))
    private = {c: client.memory(component)["letters: private key"] for c, client in parties.items()}
    assert len(set(private.values())) == CLIENTS
    box = block.meta["letters"][1]
    assert len(component.read_letters(parties[1], {0: box}, "encrypted")[0]) == 4 * 710
    for reader, sender, about in ((2, 0, "encrypted"), (1, 2, "encrypted"), (1, 0, "noised")):
        with pytest.raises(MessageError, match=f"the letter of client {sender} about {about} does not open"):
            component.read_letters(parties[reader], {sender: box}, about)
    parties[1].facts = dataclasses.replace(parties[1].facts, round=1)
    with pytest.raises(MessageError, match="does not open"):
        component.read_letters(parties[1], {0: box}, "encrypted")
    assert not any(key in block.ciphertexts[0] for key in private.values())
