"""SelectiveShield as a whole: its limits are FedAvg and DP-FedAvg; what is sent, kept, opened and merged."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Bound, Client, Context, CoversSupport, Known, Layout, Plan
from fedplug.api import codec
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.types import BASE_ZONES
from fedplug.recipe.recipe import Recipe
from fedplug.round.state_files import read_file
from fedplug_kit.static import check_component
from fedplug_selectiveshield.hide_support import HideSupport
from fedplug_selectiveshield.merge import Merge
from fedplug_selectiveshield.two_server import TwoServer
from fedplug_std.clip import Clip
from numpy.typing import NDArray
from toy_components import recipe_of
from toy_protocol import Outcome, calls_of, initial_vector, read_clients, run_protocol

CLIP = {"use": "std.clip", "norm": 0.05}
SEAL = {"use": "std.bfv", "range": 2.0}
NOISE = {"use": "selectiveshield.noise", "noise_multiplier": 0.2, "source": "reproducible"}
HIDE = {"use": "selectiveshield.hide_support"}
UNIFORM = {"use": "std.mean", "weighting": "uniform"}


def shield(noised: list[Any] | None = None, *, tau: Any = 0.4, rho: float = 0.5, **changes: Any) -> dict[str, Any]:
    """SelectiveShield on digits: 4 clients, 650 scalars, 2 rounds, BFV, reproducible noise."""
    plain: dict[str, Any] = recipe_of(
        score_parameters=[{"use": "selectiveshield.fisher"}],
        negotiate_mask={"use": "selectiveshield.consensus", "tau": tau, "rho": rho},
        protect={"encrypted": [SEAL], "noised": [CLIP, NOISE] if noised is None else noised},
        aggregate={"use": "selectiveshield.two_server"},
        postprocess={"encrypted": ["std.bfv"], "retained": [{"use": "selectiveshield.merge"}]},
    )
    return plain | changes


@dataclasses.dataclass
class Saved:
    """What a client has at the end of a run."""

    vector: NDArray[np.float32]
    personal: NDArray[np.float32] | None
    positions: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.uint8]


def saved(outcome: Outcome, folder: Path) -> dict[int, Saved]:
    """The clients' states, from the files that the engine wrote."""
    for name, data in outcome.files.items():
        (folder / name).write_bytes(data)
    found = {}
    for client_id, state in read_clients(folder).items():
        vector, personal, labels = (
            key and codec.decode(read_file(folder / key))
            for key in (state["vector"], state["personal"], state["plan"]["labels"])
        )
        kept = state["remembered"]["retained"] or Block("retained", 0, np.array([]), np.array([]))
        found[client_id] = Saved(vector, personal, kept.positions, kept.values, labels)
    return found


def uploads(outcome: Outcome, round: int) -> dict[str, dict[str, Block]]:
    """What each client uploaded, by its address."""
    replies = {m.sender: m.decode().get("value") for m in outcome.sent("server", round=round) if m.phase == "upload"}
    return {sender: value["blocks"] for sender, value in replies.items() if sender.startswith("client")}


@pytest.mark.parametrize("name", ["hide_support", "two_server", "merge"])
def test_conforms(name: str) -> None:
    check_component(f"selectiveshield.{name}")


# -- limits ------------------------------------------------------------------------------------------------------------


def test_tau_1_is_dp_fedavg_bit_for_bit() -> None:
    """Spec 7. The same seed and names, so the same noise; with noise of either plugin."""
    for ours, theirs in ((NOISE, NOISE), ({**NOISE, "name": "dp"}, {**NOISE, "use": "std.gaussian", "name": "dp"})):
        nothing_marked = run_protocol(shield([CLIP, ours], tau=1.0, rounds=3))
        dp_fedavg = run_protocol(recipe_of("noised", [CLIP, theirs], aggregate=UNIFORM, rounds=3))
        assert np.array_equal(nothing_marked.vector, dp_fedavg.vector)
    assert not np.array_equal(dp_fedavg.vector, run_protocol(recipe_of(aggregate=UNIFORM, rounds=3)).vector)


def test_tau_1_makes_no_ciphertext_and_asks_the_key_server_for_nothing() -> None:
    """Spec 39."""
    outcome = run_protocol(shield(tau=1.0))
    assert [set(blocks) for blocks in uploads(outcome, 0).values()] == [{"noised"}] * 4
    assert [m.round for m in outcome.sent("key_server")] == [-1]  # to make its keys
    assert outcome.rows[0].zones["encrypted"] == 0
    assert all(row.zones["noised"] == 1 for row in outcome.rows)


@pytest.mark.parametrize("tau", [1.0, 0.4])
def test_without_noise_and_clip_it_is_fedavg(tau: float) -> None:
    """Spec 15: sigma 0, a clip that never acts. With rho 1/K nothing is retained, at tau 1 nothing is encrypted."""
    chain = [{"use": "std.clip", "norm": 1e6}, {"use": "selectiveshield.noise", "noise_multiplier": 0}]
    for divide_by in ("contributors", "clients"):
        aggregate = {"use": "selectiveshield.two_server", "divide_by": divide_by}
        outcome = run_protocol(shield(chain, tau=tau, rho=0.25, aggregate=aggregate))
        fedavg = run_protocol(recipe_of(aggregate=UNIFORM))
        assert np.abs(outcome.vector - fedavg.vector).max() < 1e-4
        assert np.abs(fedavg.vector - initial_vector(recipe_of())).max() > 1e-2
        shares = outcome.rows[0].zones
        assert (shares["encrypted"] > 0.2) == (tau < 1)
        assert shares["retained"] == 0


def test_ckks_opens_the_same_sums_to_its_grid() -> None:
    """Spec 16: the encrypted zone under CKKS and under BFV."""
    bfv = run_protocol(shield([], rounds=1))
    ckks = shield([], rounds=1, protect={"encrypted": [{"use": "std.ckks", "range": 2.0}], "noised": []})
    ckks["postprocess"] = {"encrypted": ["std.ckks"], "retained": [{"use": "selectiveshield.merge"}]}
    assert np.abs(run_protocol(ckks).vector - bfv.vector).max() < 2e-5


# -- a round -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Two rounds with all zones."""
    return run_protocol(shield())


def test_distributed_noise_under_encryption_is_that_of_one_client_in_the_sum() -> None:
    """Spec 19 end to end: the mean of 4 clients carries C sigma / 4."""
    seal = {"use": "std.bfv", "range": 16.0}
    chain = [CLIP, {"use": "selectiveshield.noise", "noise_multiplier": 5, "choice": "distributed"}, seal]
    first = {"rounds": 1, "aggregate": UNIFORM}
    exact = run_protocol(recipe_of("encrypted", [CLIP, seal], **first)).vector
    noise = run_protocol(recipe_of("encrypted", chain, **first)).vector - exact
    assert np.std(noise) == pytest.approx(0.05 * 5 / 4, rel=6 / np.sqrt(2 * 650))


def test_noise_under_encryption_earns_no_credit_at_positions_that_one_client_sent() -> None:
    """They are left out of the sum, but whoever decrypts sees them, with that client's noise alone."""
    plain = shield([CLIP, NOISE, "std.bfv"], tau=[1.0, 0.0, 0.0, 0.0], rho=1.0, rounds=1)
    plain["postprocess"] = {zone: ["std.bfv"] for zone in ("encrypted", "noised")}
    (entry,) = run_protocol(plain).protocol.ledger.log
    assert entry.zones["noised"].sum_factor == 1


def test_both_engines_agree(outcome: Outcome, tmp_path: Path) -> None:
    other = run_protocol(shield(), "processes")
    assert np.array_equal(other.vector, outcome.vector)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = saved(outcome, tmp_path / "a"), saved(other, tmp_path / "b")
    for client_id in range(4):
        assert ours[client_id].personal is not None
        for field in dataclasses.fields(Saved):
            a, b = getattr(ours[client_id], field.name), getattr(theirs[client_id], field.name)
            assert np.array_equal(a, b), field.name
    for mine, row in zip(outcome.rows, other.rows, strict=True):
        for key in ("accuracy", "personal_accuracy", "personal_public_accuracy", "zones"):
            assert getattr(mine, key) == getattr(row, key), key


def test_every_client_uploads_the_zones_of_its_own_plan(outcome: Outcome, tmp_path: Path) -> None:
    """The encrypted zone without positions and alike at all; retained scalars by nobody who retains them."""
    states, sent = saved(outcome, tmp_path), uploads(outcome, 1)
    shares = outcome.rows[1].zones
    assert min(shares["encrypted"], shares["noised"], shares["retained"]) > 0.02
    encrypted = {int((state.labels == BASE_ZONES.index("encrypted")).sum()) for state in states.values()}
    for client_id, state in states.items():
        blocks = sent[f"client:{client_id}"]
        sealed, noised = blocks["encrypted"], blocks["noised"]
        assert sealed.values is None
        assert sealed.positions is None
        assert {sealed.size} == encrypted
        assert noised.positions is not None
        assert np.array_equal(noised.positions, np.flatnonzero(state.labels == BASE_ZONES.index("noised")))
        assert np.array_equal(state.positions, np.flatnonzero(state.labels == BASE_ZONES.index("retained")))
        assert not set(noised.positions) & set(state.positions)


def test_the_personal_model_is_equation_27(outcome: Outcome, tmp_path: Path) -> None:
    for state in saved(outcome, tmp_path).values():
        assert state.personal is not None
        kept = np.zeros(650, np.bool_)
        kept[state.positions] = True
        assert kept.sum() > 5
        assert np.array_equal(state.personal[~kept], state.vector[~kept])
        assert np.array_equal(state.personal[kept], state.values)
        assert (state.personal[kept] != state.vector[kept]).any()


def test_training_starts_from_the_personal_model() -> None:
    """Alg. 1, line 6: without the merge, the second round is another one; the first is the same."""
    for rounds, equal in ((1, True), (2, False)):
        merged, plain = shield([], rounds=rounds), shield([], rounds=rounds)
        plain["postprocess"] = {"encrypted": ["std.bfv"]}
        assert np.array_equal(run_protocol(merged).vector, run_protocol(plain).vector) == equal


def test_the_key_server_opens_only_sums_of_all_clients(outcome: Outcome) -> None:
    """Spec 37."""
    asked = [m.decode() for m in outcome.sent("key_server") if m.round >= 0]
    blocks = [part for message in asked for call in message["calls"] for part in call[4] if isinstance(part, Block)]
    assert [block.contributors for block in blocks] == [4, 4]
    assert [block.zone for block in blocks] == ["encrypted"] * 2


def found_on(wire: bytes, values: NDArray[Any]) -> int:
    """How many of the values stand somewhere in the bytes, as float32, at any offset."""
    words = [np.frombuffer(wire, "<u4", (len(wire) - offset) // 4, offset) for offset in range(4)]
    return int(np.isin(values.astype("<f4").ravel().view("<u4"), np.concatenate(words)).sum())


def test_no_retained_value_leaves_the_client(tmp_path: Path) -> None:
    """Searches every captured byte for the 4-byte patterns of retained values and their updates; others are found."""
    plain = shield([], rounds=1)
    outcome, start = run_protocol(plain), initial_vector(plain)
    wire = b"".join(message.data for message in outcome.wire.messages)
    for client_id, state in saved(outcome, tmp_path).items():
        values = np.concatenate([state.values, state.values - start[state.positions]])
        assert len(values) > 10
        assert values.size * len(wire) / 2**32 < 0.05  # by chance
        assert found_on(wire, values) < 2
        sent = uploads(outcome, 0)[f"client:{client_id}"]["noised"].plain()
        assert found_on(wire, sent) == len(sent)


def test_clients_that_were_away_adopt_every_sum_and_keep_what_they_retained(tmp_path: Path) -> None:
    sampled = shield(rho=1.0, rounds=4, sampling={"scheme": "fixed", "rate": 0.5, "source": "reproducible"})
    outcome = run_protocol(sampled)  # `vector` asserts that all four agree
    assert len(outcome.vector) == 650
    states = saved(outcome, tmp_path)
    last = {client_id: max(r for r in range(4) if f"client:{client_id}" in uploads(outcome, r)) for client_id in states}
    assert set(last.values()) > {3}
    for client_id, state in states.items():
        noised = uploads(outcome, last[client_id])[f"client:{client_id}"]["noised"]
        assert noised.positions is not None
        assert len(state.positions) > 5
        assert not set(state.positions) & set(noised.positions)
        assert state.personal is not None
        assert np.array_equal(state.personal[state.positions], state.values)
        assert np.array_equal(np.delete(state.personal, state.positions), np.delete(state.vector, state.positions))


def test_a_client_without_anything_to_mark_takes_part(tmp_path: Path) -> None:
    """tau per client: one marks nothing, and one everything but the least scores."""
    outcome = run_protocol(shield(tau=[1.0, 0.0, 0.05, 0.05], rho=1.0))
    states = saved(outcome, tmp_path)
    assert [len(state.positions) > 0 for state in states.values()] == [False, True, True, True]
    assert states[0].personal is not None
    assert np.array_equal(states[0].personal, outcome.vector)
    assert len(states[1].positions) > 400  # all but pixels that are 0 in all its examples
    assert outcome.rows[0].zones["encrypted"] == 0  # client 0 marks nothing, so the intersection is empty


# -- the aggregation ---------------------------------------------------------------------------------------------------


def blocks_of(*given: dict[int, float]) -> dict[int, Block]:
    return {
        client_id: Block("noised", len(one), np.array(list(one.values()), np.float32), np.array(list(one), np.uint32))
        for client_id, one in enumerate(given)
    }


def mean_of(**options: Any) -> list[float]:
    """Of 6, 3 and 0 at position 0 (all clients), 4 and 2 at 1 (two of them), 9 at 3 (one)."""
    component = TwoServer(TwoServer.Options(**options))
    ctx: Any = SimpleNamespace(layout=Layout.of([("w", (5,))]))
    blocks = blocks_of({0: 6, 1: 4}, {0: 3, 1: 2, 3: 9}, {0: 0})
    total = component.aggregate(blocks, dict.fromkeys(range(3), 1.0), ctx)
    assert total.positions is not None
    assert total.positions.tolist() == [0, 1, 3]
    means: list[float] = total.mean().tolist()
    return means


def test_every_position_is_divided_by_those_who_sent_it() -> None:
    """Eq. 26 literally divides by K = 3, which shrinks what some retained; eta_g = K gives the sum, not FedAvg."""
    assert mean_of() == [3, 3, 9]
    assert mean_of(divide_by="clients") == [3, 2, 3]
    assert mean_of(server_lr=0.5) == [1.5, 1.5, 4.5]
    assert mean_of(divide_by="clients", server_lr=3) == [9, 6, 9]


def test_the_server_rate_scales_the_step_of_every_zone() -> None:
    """Ciphertexts and plain values alike."""
    plain = shield([], rounds=1)
    start, one = initial_vector(plain), run_protocol(plain).vector
    half = run_protocol(shield([], rounds=1, aggregate={"use": "selectiveshield.two_server", "server_lr": 0.5})).vector
    np.testing.assert_allclose(half - start, (one - start) / 2, atol=1e-7)


def refused(**changes: Any) -> str:
    try:
        Recipe.from_plain(shield(**changes))
    except RecipeError as error:
        return str(error)
    return ""


def test_recipes_that_contradict_the_two_servers_are_refused() -> None:
    shared = {"encrypted": [{**SEAL, "key_holder": "clients"}], "noised": []}
    assert "the clients hold the key of zone encrypted, but this aggregation needs a second" in refused(protect=shared)
    central = [{"use": "std.central_gaussian", "noise_multiplier": 1, "norm": 0.05}]
    both = {"encrypted": ["std.bfv"], "retained": [{"use": "selectiveshield.merge"}], "noised": central}
    changes: dict[str, Any] = {"noised": [CLIP], "postprocess": both, "sampling": {"rate": 0.5}}
    assert refused(**changes) == ""
    changes["aggregate"] = {"use": "selectiveshield.two_server", "server_lr": 2}
    assert "std.central_gaussian noises are divided by the expected weight, so server_lr" in refused(**changes)
    assert refused(**{**changes, "sampling": {"rate": 0.5, "scheme": "fixed"}}) == ""
    assert "server_lr=0 must be > 0" in refused(aggregate={"use": "selectiveshield.two_server", "server_lr": 0})
    drawn = [{"use": "selectiveshield.fisher", "figure_client": 4}]
    assert "figure_client=4 must be < data.clients=4; clients count from 0" in refused(score_parameters=drawn)


# -- hiding the support ------------------------------------------------------------------------------------------------


def hider() -> tuple[HideSupport, Client, Block]:
    component = HideSupport(HideSupport.Options())
    component.name = "selectiveshield.hide_support"
    plan = Plan.of("noised", 7, BASE_ZONES, encrypted=np.array([6]), retained=np.array([0, 3]))
    client = Client(client_id=0, plan=plan)
    client.ctx = Context(0, 1, Layout.of([("w", (7,))]), BASE_ZONES, 2, 2, 7, "", client)
    where = np.array([1, 2, 4, 5], np.uint32)
    return component, client, Block("noised", 4, np.array([3, 4, 0, 12], np.float32), where)


def test_retained_positions_are_sent_as_zeros() -> None:
    component, client, block = hider()
    hidden = component.protect(block, client, client.ctx)
    assert hidden.positions is not None
    assert hidden.positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert hidden.positions.dtype == np.uint32
    assert hidden.plain().tolist() == [0, 3, 4, 0, 0, 12]
    assert hidden.size == 6
    known = Known(zone="noised", bounds=(Bound(99.0),))
    assert component.effects(known, client.ctx) == (CoversSupport(),)
    behind = known.after(component.effects(known, client.ctx))
    assert (behind.covers_support, behind.norm()) == (True, 99.0)
    gathered = component.protect(block.replace(positions=None), client, client.ctx)
    assert gathered.plain().tolist() == hidden.plain().tolist()
    client.plan = None
    with pytest.raises(ProtectionError, match="has no plan"):
        component.protect(block, client, client.ctx)


def test_the_clip_may_stand_before_or_after() -> None:
    """Spec 17: the norm is at most C either way, and the values are the same."""
    component, client, block = hider()
    clip = Clip(Clip.Options(norm=6.5))
    clip.name = "std.clip"
    after = clip.protect(component.protect(block, client, client.ctx), client, client.ctx)
    before = component.protect(clip.protect(block, client, client.ctx), client, client.ctx)
    assert np.array_equal(after.plain(), before.plain())
    for links in ((component, clip), (clip, component)):
        known = Known(zone="noised")
        for link in links:
            known = known.after(link.effects(known, client.ctx))
        assert (known.norm(), known.covers_support) == (6.5, True)
    assert 6.49 < np.linalg.norm(after.plain().astype(np.float64)) <= 6.5


@pytest.mark.parametrize("chain", [[HIDE, CLIP, NOISE], [CLIP, HIDE, NOISE]])
def test_uploads_then_show_no_support(chain: list[Any], tmp_path: Path) -> None:
    """Every client sends every position that is not encrypted, with noise in place of what it retains."""
    plain = shield(chain, rounds=1)
    outcome = run_protocol(plain)
    everywhere = {block["noised"].positions.tobytes() for block in uploads(outcome, 0).values()}  # type: ignore[union-attr]
    assert len(everywhere) == 1
    std = 0.05 * 0.2
    for client_id, state in saved(outcome, tmp_path).items():
        noised = uploads(outcome, 0)[f"client:{client_id}"]["noised"]
        assert noised.positions is not None
        assert np.array_equal(noised.positions, np.flatnonzero(state.labels != BASE_ZONES.index("encrypted")))
        pure = noised.plain()[np.isin(noised.positions, state.positions)]
        assert len(pure) > 5
        assert (pure != 0).all()
        assert np.abs(pure).max() < 6 * std
    assert "support of the retained zone" not in shown_by(outcome)
    assert "support of the retained zone" in shown_by(run_protocol(shield(rounds=1)))


def shown_by(outcome: Outcome) -> list[str]:
    ledger = outcome.protocol.ledger.report()
    assert ledger.uncovered_messages == []
    return [shown.what for shown in ledger.reveals]


def test_hidden_positions_count_in_the_mean() -> None:
    """Division by all clients, as `divide_by: clients` does without hiding."""
    exact = [{"use": "std.clip", "norm": 10}, {"use": "selectiveshield.noise", "noise_multiplier": 1e-9}]
    hidden = run_protocol(shield([HIDE, *exact], rounds=1)).vector
    aggregate = {"use": "selectiveshield.two_server", "divide_by": "clients"}
    by_all = run_protocol(shield(exact, rounds=1, aggregate=aggregate)).vector
    np.testing.assert_allclose(hidden, by_all, atol=2e-6)
    assert not np.allclose(hidden, run_protocol(shield(exact, rounds=1)).vector, atol=1e-4)


def test_zeros_that_get_no_noise_hide_nothing() -> None:
    switched_off = [{"use": "std.clip", "norm": 1}, {"use": "selectiveshield.noise", "noise_multiplier": 0}]
    for chain in ([HIDE], [HIDE, *switched_off]):
        assert "zone noised gets no noise, so the zeros would show what a client retains" in refused(noised=chain)
    assert "must not come after noise in the chain of zone noised; zeros that" in refused(noised=[CLIP, NOISE, HIDE])
    assert refused(noised=[HIDE, CLIP, {**NOISE, "use": "std.gaussian"}]) == ""


# -- the merge ---------------------------------------------------------------------------------------------------------


def test_the_merge_runs_at_a_client_on_positions() -> None:
    component = Merge(Merge.Options())
    component.name = "selectiveshield.merge"
    client = Client(client_id=0, vector=np.arange(5, dtype=np.float32))
    ctx: Any = SimpleNamespace(party=client)
    block = Block("retained", 2, np.array([7, 8], np.float32), np.array([1, 4], np.uint32))
    component.postprocess(block, ctx)
    assert client.personal is not None
    assert client.personal.tolist() == [0, 7, 2, 3, 8]
    assert client.vector.tolist() == [0, 1, 2, 3, 4]
    for wrong, party in ((block, object()), (block.replace(positions=None), client)):
        with pytest.raises(ProtectionError, match="merges at a client, under postprocess"):
            component.postprocess(wrong, SimpleNamespace(party=party))  # type: ignore[arg-type]


def test_calls_to_clients_are_those_of_the_algorithm(outcome: Outcome) -> None:
    """Alg. 1 as messages: train and masks, then the zone and the upload; the sum comes with the next round."""
    first, second = (calls_of(message) for message in outcome.sent("client:0", round=0))
    assert first[-2:] == ["fedplug.train", "selectiveshield.consensus.mark"]
    assert second == ["selectiveshield.consensus.adopt", "fedplug.protect"]
    assert "fedplug.adopt" in calls_of(outcome.sent("client:0", round=1)[0])
