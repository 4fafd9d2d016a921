"""LWE aggregation as a whole: what is opened, what the server sees, who may drop out, what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Bound,
    Client,
    Context,
    Known,
    Layout,
    Misplaced,
    Noise,
    Seal,
)
from fedplug.api import secrets  # fmt: skip
from fedplug.api.errors import MessageError, ProtectionError, RecipeError, TooFewClients
from fedplug.api.events import Released
from fedplug.privacy.charging import Charging
from fedplug.recipe.recipe import Recipe
from fedplug.runs import run as run_command
from fedplug.runs.files import read_rows
from fedplug.runs.settings import Settings
from fedplug_baselines import lwe_exchange, lwe_numbers
from fedplug_baselines.lwe import Lwe
from fedplug_baselines.lwe_field import HALF, Q, centred
from fedplug_std.noise_sources import exact_slack
from numpy.typing import NDArray
from toy_components import pushed, recipe_of, toy_catalog
from toy_protocol import calls_of, initial_vector, run_protocol

CLIENTS, SIZE, NORM = 4, 600, 0.5


def recipe(engine_noise: str = "reproducible", **options: Any) -> dict[str, Any]:
    mask = {"use": "baselines.lwe", "noise_multiplier": 0.5, "source": engine_noise} | options
    plain: dict[str, Any] = recipe_of(
        "encrypted",
        [{"use": "std.clip", "norm": NORM}, mask],
        train={"use": "toy.push", "scale": 0.01},
        min_clients=2,
        aggregate={"use": "std.mean", "weighting": "uniform"},
        postprocess={"encrypted": ["baselines.lwe"]},
    )
    return plain


def lwe(**options: Any) -> Lwe:
    component = Lwe(Lwe.Options(**{"noise_multiplier": 0.5, "source": "reproducible"} | options))
    component.name = "baselines.lwe"
    return component


class Line:
    """The clients whose updates are in the sum, as the server reaches them; some do not answer."""

    def __init__(self, parties: dict[int, Client], silent: Iterable[int] = (), ids: list[int] | None = None) -> None:
        self.parties, self.silent = parties, set(silent)
        self.client_ids = sorted(parties) if ids is None else ids
        self.dropped: dict[int, str] = {}

    def only(self, ids: list[int]) -> Line:
        return Line(self.parties, self.silent, ids)

    def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
        return {c: method(self.parties[c], *payload) for c in self.client_ids if c not in self.silent}

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped[client_id] = reason


@pytest.fixture
def parties(make_client: Any) -> dict[int, Client]:
    """Four clients of which each has everybody's public key."""
    layout = Layout.of([("w", (SIZE,))])
    found = {client_id: make_client(layout, client_id=client_id) for client_id in range(CLIENTS)}
    keys = {client_id: lwe().make_key(client) for client_id, client in found.items()}
    for client in found.values():
        lwe().take_keys(client, keys)
    return found


def update(client_id: int, scale: float = 0.01) -> NDArray[np.float32]:
    """Within the clip: 600 values of 0.01 have norm 0.25."""
    return (scale * np.random.default_rng(client_id).standard_normal(SIZE)).astype(np.float32)


def upload(component: Lwe, client: Client, values: NDArray[np.float32]) -> Block:
    block = Block("encrypted", len(values), values, divisor=1.0)
    return component.protect(block, client, clipped(client))


def clipped(client: Client, norm: float | None = NORM) -> Context:
    """The client's context behind a clip."""
    bounds = () if norm is None else (Bound(norm),)
    return dataclasses.replace(client.ctx, known=Known(zone="encrypted", layers=(SIZE,), bounds=bounds))


def server_of(parties: dict[int, Client], silent: Iterable[int] = ()) -> Any:
    """The server's context, in the same run."""
    ctx = next(iter(parties.values())).ctx
    party = SimpleNamespace(cohort=Line(parties, silent), operation=Client().operation)
    return SimpleNamespace(
        digest=ctx.digest, round=ctx.round, num_clients=CLIENTS, min_clients=ctx.min_clients, party=party
    )


def parts(component: Lwe, client: Client, values: NDArray[np.float32]) -> tuple[NDArray[np.int64], float]:
    """e + g of a client with reproducible noise, and the step."""
    ctx = client.ctx
    std = NORM * component.options.of_one(ctx.round, ctx.rounds, ctx.num_clients, ctx.min_clients)
    step = lwe_numbers.step_of(NORM, std, CLIENTS, component.options.grid)
    drawn = lwe_numbers.noise(len(values), std, step, "reproducible", client.rng(component, "encrypted"))
    return np.trunc(values.astype(np.float64) / step).astype(np.int64) + drawn, step


# -- what is opened ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "packing"), [(None, 1), (4, 3), (2, 1)])
def test_what_is_opened_is_the_sum_of_updates_and_errors(
    parties: dict[int, Client], threshold: int | None, packing: int
) -> None:
    """Item 34: sum g + sum e, to the last bit; the grid is coarse enough for float32 to hold the sum."""
    component = lwe(threshold=threshold, packing=packing, grid=2.0**-19)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    server = server_of(parties)
    total = component.add_blocks(blocks, server)
    assert (total.contributors, total.divisor, total.values) == (CLIENTS, CLIENTS, None)
    opened = component.postprocess(total, server)
    expected = sum(parts(component, client, update(c))[0] for c, client in parties.items())
    assert np.abs(expected).max() < 2**24
    assert np.array_equal(opened.plain().astype(np.float64) * 2**19, expected)
    assert (opened.sealed_by, opened.ciphertexts, dict(opened.meta)) == (None, (), {})


def test_a_run_moves_the_model_by_the_mean_of_updates_and_errors() -> None:
    plain = recipe(grid=2.0**-19) | {"rounds": 1}
    outcome, start = run_protocol(plain), initial_vector(plain)
    component, total = lwe(grid=2.0**-19), np.zeros(650, np.int64)
    for client_id in range(CLIENTS):
        values = pushed(start, 7, client_id, 0)
        assert np.linalg.norm(values) < NORM
        std = NORM * component.options.of_one(0, 1, CLIENTS, 2)
        rng = fedplug.stream(7, client_id, 0, "baselines.lwe", "encrypted")
        drawn = lwe_numbers.noise(650, std, 2.0**-19, "reproducible", rng)
        total += np.trunc(values.astype(np.float64) * 2**19).astype(np.int64) + drawn
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
    server = server_of(parties)
    blocks = {c: upload(component, client, zeros) for c, client in parties.items()}
    opened = component.postprocess(component.add_blocks(blocks, server), server).plain().astype(np.float64)
    std = 0.5 * NORM * math.sqrt(4 / 3)
    assert np.sqrt(np.mean(opened**2)) == pytest.approx(std, rel=5 / math.sqrt(2 * SIZE))
    assert abs(opened.mean()) < 5 * std / math.sqrt(SIZE)


def test_the_default_share_of_the_noise_leaves_out_who_looks() -> None:
    """4 clients, more than half of them open: the smallest sum has three, of whom one knows its own error."""
    options = lwe().options
    assert options.of_one(0, 5, 4, 2) == pytest.approx(0.5 / math.sqrt(2))
    assert options.of_one(0, 5, 4, 4) == pytest.approx(0.5 / math.sqrt(3))
    assert lwe(shared_by=1).options.of_one(0, 5, 4, 4) == 0.5
    assert lwe(decay=0.5).options.of_one(2, 5, 4, 2) == pytest.approx(0.125 / math.sqrt(2))


def test_the_release_says_what_one_client_adds(make_client: Any) -> None:
    ctx = clipped(make_client(Layout.of([("w", (SIZE,))])))
    known = ctx.known
    assert known is not None
    behind = known.after(lwe(source="exact").effects(known, ctx))
    (release,) = behind.releases
    assert (release.mechanism, release.trust, release.clipping_norm) == ("discrete_gaussian", "distributed", NORM)
    assert release.noise_multiplier == pytest.approx(0.5 / math.sqrt(2))
    assert "delta grows by less than" in release.note
    step = lwe_numbers.step_of(NORM, NORM * release.noise_multiplier, CLIENTS, None)
    # Of each value, in each of 9 rounds, by each of 4 clients.
    assert release.slack == exact_slack(NORM * release.noise_multiplier / step, SIZE * 9 * CLIENTS) > 0
    assert behind.grid == release.step == step
    noise, seal = lwe().effects(known, ctx)
    assert isinstance(noise, Noise)
    assert "anyone who knows the seed" in noise.note
    assert isinstance(seal, Seal)
    assert (seal.opened_by, seal.range, seal.position_block) == ("shares", math.inf, 0)


def test_a_clip_of_a_length_that_is_not_known_yet_is_no_error(make_client: Any) -> None:
    """Before a run there is no model, and a clip of each scalar then bounds no length."""
    ctx = make_client(Layout(())).ctx
    known = Known(zone="encrypted", link="baselines.lwe", bounds=(Bound(0.1, order=math.inf, per="scalar"),))
    noise, _ = lwe().effects(known, ctx)
    assert isinstance(noise, Noise)
    assert (noise.scale, noise.multiplier) == (None, pytest.approx(0.5 / math.sqrt(2)))


def test_it_needs_a_clip_and_stands_alone(make_client: Any) -> None:
    ctx = make_client(Layout(())).ctx
    known = Known(zone="encrypted", link="baselines.lwe")
    with pytest.raises(Misplaced, match=r"needs a bound of the L2 norm.*std.clip"):
        lwe().effects(known, ctx)
    with pytest.raises(Misplaced, match="its error is the noise of the zone"):
        lwe().effects(known.after((Noise(mechanism="gaussian", scale=1.0),)), ctx)
    with pytest.raises(Misplaced, match="encrypt once"):
        lwe().effects(known.after((Seal(scheme="x", opened_by="clients", range=1.0, step=0.0),)), ctx)


def test_what_clients_answer_is_covered() -> None:
    outcome = run_protocol(recipe() | {"rounds": 1})
    assert not outcome.protocol.ledger.uncovered
    shown = outcome.protocol.composition.components["baselines.lwe"].reveals(outcome.protocol.server.ctx)
    covered = {method: each.covered_by for each in shown for method in each.asked}
    assert covered == {"make_key": "nothing to pay", "sum_of_shares": "epsilon"}


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_equal_updates_give_unlike_uploads_that_look_uniform(parties: dict[int, Client]) -> None:
    """Under the same noise too, since every upload has a secret of its own; what is left is not small."""
    component = lwe()
    first, second = (upload(component, parties[0], update(0)) for _ in range(2))
    sent = [np.frombuffer(block.ciphertexts[0], "<u4").astype(np.int64) for block in (first, second)]
    message, _ = parts(component, parties[0], update(0))
    for masks in (sent[0] - message, sent[1] - message, sent[0] - sent[1]):
        eighths = np.histogram(masks % Q, bins=8, range=(0, Q))[0]
        assert np.sum((eighths - SIZE / 8) ** 2) / (SIZE / 8) < 40, "chi-square of 7 degrees of freedom"
        assert np.abs(centred((masks % Q).astype(np.uint64))).mean() > HALF / 4
    assert all(first.meta["shares"][c] != second.meta["shares"][c] for c in range(CLIENTS))


def test_every_round_and_zone_has_a_matrix_of_its_own(make_client: Any) -> None:
    layout = Layout.of([("w", (3,))])
    contexts = [make_client(layout, round=round).ctx for round in (0, 1)]
    seeds = {lwe()._seed(ctx, zone) for ctx in contexts for zone in ("encrypted", "noised")}
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
        assert {len(share) for share in block.meta["shares"].values()} == {4 * 710 + 48}
    asked = [m for m in outcome.wire.messages if "baselines.lwe.sum_of_shares" in _calls(m)]
    assert len(asked) == CLIENTS
    for message in asked:  # each is handed what was sealed for it, and nothing for anybody else
        receiver = int(message.receiver.removeprefix("client:"))
        for other in range(CLIENTS):
            there = [uploads[dealer].meta["shares"][other] in message.data for dealer in range(CLIENTS)]
            assert there == [other == receiver] * CLIENTS


def _calls(message: Any) -> list[str]:
    return calls_of(message) if message.receiver.startswith("client:") else []


def test_private_keys_stay_at_their_clients(parties: dict[int, Client]) -> None:
    component = lwe()
    block = upload(component, parties[0], update(0))
    private = {c: client.memory(component)["private"] for c, client in parties.items()}
    assert len(set(private.values())) == CLIENTS
    box, right = block.meta["shares"][1], lwe_exchange.purpose(component, parties[0].ctx, "encrypted", 0, 1)
    assert len(secrets.unseal(box, private[1], right)) == 4 * 710
    elsewhere = [
        right.replace(b"round 0", b"round 1"),
        right.replace(b"from 0", b"from 2"),
        right.replace(b"to 1", b""),
    ]
    for key, purpose in [(private[2], right), *((private[1], other) for other in elsewhere)]:
        with pytest.raises(MessageError, match="does not open"):
            secrets.unseal(box, key, purpose)
    assert not any(key in block.ciphertexts[0] for key in private.values())


# -- who answers -------------------------------------------------------------------------------------------------------


def test_clients_that_drop_out_after_the_upload_stay_in_the_sum(parties: dict[int, Client]) -> None:
    component = lwe(threshold=3, grid=2.0**-19)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    expected = sum(parts(component, client, update(c))[0] for c, client in parties.items())
    server = server_of(parties, silent={2})
    opened = component.postprocess(component.add_blocks(blocks, server), server)
    assert np.array_equal(opened.plain().astype(np.float64) * 2**19, expected)


def test_a_client_without_an_upload_is_neither_needed_nor_asked(parties: dict[int, Client]) -> None:
    component = lwe(threshold=3, grid=2.0**-19)
    there = {c: client for c, client in parties.items() if c != 1}
    blocks = {c: upload(component, client, update(c)) for c, client in there.items()}
    server = server_of(there)
    opened = component.postprocess(component.add_blocks(blocks, server), server)
    expected = sum(parts(component, client, update(c))[0] for c, client in there.items())
    assert np.array_equal(opened.plain().astype(np.float64) * 2**19, expected)
    assert not len(parties[1].openings)


def test_too_few_answers_open_nothing(parties: dict[int, Client]) -> None:
    component = lwe(threshold=3)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    server = server_of(parties, silent={0, 2})
    with pytest.raises(TooFewClients, match=r"2 of the 4 clients .* threshold=3 are needed"):
        component.postprocess(component.add_blocks(blocks, server), server)


@pytest.mark.parametrize(("broken", "opens"), [([2], True), ([1, 2], False)])
def test_a_run_survives_as_many_as_the_threshold_allows(
    monkeypatch: pytest.MonkeyPatch, broken: list[int], opens: bool
) -> None:
    real = lwe_exchange.sum_of_shares

    def breaks(component: Lwe, client: Client, zone: str, boxes: dict[int, bytes]) -> Any:
        if client.client_id in broken:
            raise RuntimeError("out of battery")
        return real(component, client, zone, boxes)

    whole = run_protocol(recipe())
    monkeypatch.setattr(lwe_exchange, "sum_of_shares", breaks)
    if opens:
        assert np.array_equal(run_protocol(recipe()).vector, whole.vector)
    else:
        with pytest.raises(TooFewClients, match="2 of the 4 clients"):
            run_protocol(recipe())


def test_a_client_answers_for_one_set_of_shares_a_round_and_not_for_few(parties: dict[int, Client]) -> None:
    component, asked = lwe(), parties[0]
    boxes = {c: upload(component, client, update(c)).meta["shares"][0] for c, client in parties.items()}
    for few in ({}, {1: boxes[1]}, {1: boxes[1], 7: boxes[2]}):
        with pytest.raises(ProtectionError, match=f"shares of {len(few)} clients were asked for"):
            component.sum_of_shares(asked, "encrypted", few)
    assert component.sum_of_shares(asked, "encrypted", boxes).shape == (710,)
    refusal = component.sum_of_shares(asked, "encrypted", {c: boxes[c] for c in (0, 1)})
    assert refusal["opened_before"].startswith("a sum of zone encrypted in round 1 was opened before, from other")
    again = component.sum_of_shares(asked, "encrypted", dict(reversed(boxes.items())))
    assert np.array_equal(again, component.sum_of_shares(asked, "encrypted", boxes))
    fresh = {c: upload(component, client, update(c)).meta["shares"][0] for c, client in parties.items()}
    assert "with other ciphertexts" in component.sum_of_shares(asked, "encrypted", fresh)["opened_before"]


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_round_that_is_repeated_after_its_sum_was_opened_goes_on_without_it(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt dies before its checkpoint: every client has answered, and refuses the fresh shares."""
    settings = Settings.load().replace({"engine": engine, "workers": 1, "output": tmp_path, "quiet": True})
    charge, catalog = Charging._released, toy_catalog()

    def killed(self: Charging, event: Released) -> None:
        if event.round == 1:
            raise ZeroDivisionError
        charge(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(Charging, "_released", killed)
        with pytest.raises(ZeroDivisionError):
            run_command.start(Recipe.from_plain({**recipe(), "rounds": 3}, catalog), settings, catalog)
    (folder,) = tmp_path.iterdir()
    assert run_command.resume(folder, settings, None, catalog) == 0
    said = "round 2 was repeated; zone encrypted was not opened a second time"
    assert said in json.loads((folder / "ledger.json").read_text())["warnings"]
    rows = read_rows(folder)
    assert [row.clients.dropped for row in rows] == [{}, {}, {}]  # to refuse is not a failure
    assert rows[0].loss == rows[1].loss != rows[2].loss
    for c in range(CLIENTS):
        notes = (folder / "openings" / f"client-{c}.jsonl").read_text().splitlines()
        assert [json.loads(note)["round"] for note in notes] == [0, 1, 2]


def test_a_box_that_holds_no_share_is_refused(parties: dict[int, Client]) -> None:
    component, ctx = lwe(), parties[0].ctx
    key = parties[0].memory(component)["keys"][0]
    boxes = {c: secrets.seal(bytes(8), key, lwe_exchange.purpose(component, ctx, "encrypted", c, 0)) for c in (1, 2)}
    with pytest.raises(MessageError, match="client 1 dealt 2 numbers as a share, expected 710"):
        component.sum_of_shares(parties[0], "encrypted", boxes)


@pytest.mark.parametrize("answer", [None, "x", np.zeros(3, np.uint32), np.zeros(710)])
def test_an_answer_that_is_no_share_costs_its_client_the_round(parties: dict[int, Client], answer: Any) -> None:
    component = lwe(threshold=3)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    server = server_of(parties)
    line, ask = server.party.cohort, Line.ask

    class Odd(Line):
        def only(self, ids: list[int]) -> Line:
            part = Odd(self.parties, self.silent, ids)
            part.dropped = self.dropped
            return part

        def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
            return {1: answer} if self.client_ids == [1] else ask(self, method, *payload)

    server.party.cohort = odd = Odd(line.parties)
    component.postprocess(component.add_blocks(blocks, server), server)
    assert odd.dropped == {1: "its sum of shares is not 710 residues"}


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda b: {"ciphertexts": (b.ciphertexts[0][:-4],)}, "does not hold 600 masked values"),
    (lambda b: {"ciphertexts": ()}, "does not hold 600 masked values"),
    (lambda b: {"ciphertexts": (b"\xff" * 2400,)}, "holds a number that is not a residue"),
    (lambda b: {"size": 599}, "of 599 scalars is not like those of 600"),
    (lambda b: {"weighted": False}, "is not like those"),
    (lambda b: {"meta": {**b.meta, "step": 2.0}}, "its meta says step=2.0, which must be that of the others"),
    (lambda b: {"meta": {**b.meta, "step": [1]}}, "its meta says step=a list, which must be that of the others"),
    (lambda b: {"meta": {**b.meta, "step": np.ones(2)}}, "its meta says step=a ndarray, which must be"),
    (lambda b: {"meta": {**b.meta, "step": math.nan}}, "its meta says step=nan, which must be"),
    (lambda b: {"meta": {**b.meta, "shares": {str(c): box for c, box in b.meta["shares"].items()}}}, "no sealed share"),
    (lambda b: {"meta": {"step": b.meta["step"]}}, "no sealed share for each client"),
    (lambda b: {"meta": {**b.meta, "shares": {0: b""}}}, "no sealed share for each client"),
    (lambda b: {"meta": {**b.meta, "shares": dict.fromkeys(range(4), b"x")}}, "not of 2888 bytes each"),
])  # fmt: skip
def test_an_upload_that_cannot_be_added_is_blamed_on_its_client(
    parties: dict[int, Client], spoil: Any, said: str
) -> None:
    component = lwe()
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    blocks[2] = blocks[2].replace(**spoil(blocks[2]))
    with pytest.raises(ProtectionError, match=f"client 2: .*{said}") as caught:
        component.add_blocks(blocks, server_of(parties))
    assert caught.value.client_id == 2


def test_a_sum_that_cannot_be_is_found_and_not_used(parties: dict[int, Client]) -> None:
    """One upload of noise over the whole ring: the sum is uniform, and most of it beyond what four updates give."""
    component = lwe()
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    junk = np.random.default_rng(0).integers(0, Q, SIZE).astype("<u4").tobytes()
    blocks = {c: blocks[c] for c in (0, 1, 2)} | {3: blocks[3].replace(ciphertexts=(junk,))}
    total = component.add_blocks({c: blocks[c] for c in (1, 2, 3)}, server_of(parties))
    with pytest.raises(ProtectionError, match="has wrapped around the modulus, or an upload or a share was wrong"):
        component.postprocess(total, server_of(parties))


def test_a_client_refuses_what_could_wrap(parties: dict[int, Client]) -> None:
    """A clip that does not hold what it promises."""
    with pytest.raises(ProtectionError, match="share of the modulus 2\\^31 - 1 among 4 clients: a sum could wrap"):
        upload(lwe(), parties[0], update(0, scale=1e6))


@pytest.mark.parametrize("norm", [None, math.inf])
def test_a_client_masks_nothing_without_a_clip(parties: dict[int, Client], norm: float | None) -> None:
    with pytest.raises(ProtectionError, match=f"L2 bound {norm} is not a clipping norm"):
        lwe().protect(Block("encrypted", SIZE, update(0)), parties[0], clipped(parties[0], norm))


@pytest.mark.parametrize(("change", "said"), [
    ({"positions": np.arange(SIZE, dtype=np.uint32)}, "let the negotiation share the zone"),
    ({"weighted": True}, "masked updates cannot be weighted"),
    ({"values": np.full(SIZE, np.nan, np.float32)}, "600 of 600 values are NaN or infinite"),
])  # fmt: skip
def test_a_client_refuses_blocks_that_it_cannot_mask(parties: dict[int, Client], change: Any, said: str) -> None:
    block = Block("encrypted", SIZE, update(0), divisor=1.0).replace(**change)
    with pytest.raises(ProtectionError, match=said):
        lwe().protect(block, parties[0], clipped(parties[0]))


def test_a_weight_of_its_own_is_refused(parties: dict[int, Client]) -> None:
    parties[0].weight = 0.5
    with pytest.raises(ProtectionError, match=r"weight 0\.5: masked updates cannot be weighted"):
        upload(lwe(), parties[0], update(0))


def test_a_block_of_another_encryption_is_not_opened(parties: dict[int, Client]) -> None:
    with pytest.raises(ProtectionError, match=r"cannot open a encrypted block sealed by std\.bfv"):
        lwe().postprocess(Block("encrypted", 3, sealed_by="std.bfv"), server_of(parties))


def test_the_set_up_needs_everybody_s_key(parties: dict[int, Client]) -> None:
    cohort = SimpleNamespace(ask=lambda _: {0: bytes(32), 1: b"short", 3: bytes(32)})
    with pytest.raises(TooFewClients, match="no public key of client 1, 2; all need one"):
        lwe().setup(cohort, None, server_of(parties))  # type: ignore[arg-type]


@pytest.mark.parametrize(("plain", "problem"), [
    (recipe() | {"aggregate": {"use": "std.mean"}}, "masked updates cannot be weighted"),
    (recipe() | {"min_clients": 1}, "min_clients: 1 would open single updates"),
    (recipe(threshold=5), "threshold=5 must be at most the number of clients, 4"),
    (recipe(packing=3), "packing=3 must be below threshold=3"),
    (recipe(shared_by=4), "shared_by=4 must be below the number of clients, 4"),
    (recipe() | {"sampling": {"scheme": "poisson", "rate": 0.9}}, "threshold=3 is more than the min_clients=2"),
    (recipe(noise_multiplier=1e-4), "too small beside a norm of 0.5 for sums of 4 clients"),
    (recipe(decay=1e-4), "too small beside a norm of 0.5 for sums of 4 clients"),
    (recipe(noise_multiplier=0), "noise_multiplier"),
    (recipe(grid=0.3), "grid=0.3 must be a power of two"),
    (recipe(grid=2.0**-40), "the sum of 4 clients could wrap"),
    (recipe(grid=0.5), r"2\^15 steps to the noise of one client"),
    (recipe(dimension=100), "dimension"),
])  # fmt: skip
def test_what_cannot_work_is_said_before_the_run(plain: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Recipe.from_plain(plain, toy_catalog())
