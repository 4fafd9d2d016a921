"""SelectiveShield's aggregation and its hidden supports: the divisor of a position, and what uploads reveal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Client, Facts, Layout, Plan, Server, Widen
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.links import Link, Step, fold
from fedplug.mechanisms.adding import add_up
from fedplug.mechanisms.execution import execute
from fedplug.recipe.recipe import Recipe
from fedplug_selectiveshield.hide_support import HideSupport
from fedplug_selectiveshield.two_server import TwoServer
from fedplug_std.clip import Clip
from shield_toys import CLIP, HIDE, NOISE, SEAL, saved, shield, uploads
from toy_protocol import Outcome, initial_vector, run_protocol

# -- the aggregation ---------------------------------------------------------------------------------------------------


def blocks_of(*given: dict[int, float]) -> dict[int, Block]:
    return {
        client_id: Block("noised", len(one), np.array(list(one.values()), np.float32), np.array(list(one), np.uint32))
        for client_id, one in enumerate(given)
    }


def mean_of(**options: Any) -> list[float]:
    """Of 6, 3 and 0 at position 0 (all clients), 4 and 2 at 1 (two of them), 9 at 3 (one)."""
    component = TwoServer(TwoServer.Options(**options))
    component.name = "selectiveshield.two_server"
    facts = Facts(0, 1, Layout.of([("w", (5,))]), BASE_ZONES, 3, 2, 7, "")
    blocks = blocks_of({0: 6, 1: 4}, {0: 3, 1: 2, 3: 9}, {0: 0})
    (step,) = fold([Link("noised", "aggregate", component.name, component, "server")], facts)
    total = add_up(step, blocks, dict.fromkeys(range(3), 1.0), Server(), facts)
    assert total.positions is not None
    assert total.positions.tolist() == [0, 1, 3]
    means: list[float] = total.mean().tolist()
    return means


def test_every_position_is_divided_by_the_clients_that_sent_it() -> None:
    """Eq. 26 literally divides by K = 3, which shrinks retained positions. eta_g = K gives the sum, not FedAvg."""
    assert mean_of() == [3, 3, 9]
    assert mean_of(divide_by="clients") == [3, 2, 3]
    assert mean_of(server_lr=0.5) == [1.5, 1.5, 4.5]
    assert mean_of(divide_by="clients", server_lr=3) == [9, 6, 9]


def test_the_server_rate_scales_the_step_of_every_zone() -> None:
    """Ciphertexts as well as plain values."""
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
    facts = Facts(0, 1, Layout.of([("w", (7,))]), BASE_ZONES, 2, 2, 7, "")
    plan = Plan.of(facts, "noised", encrypted=np.array([6]), retained=np.array([0, 3]))
    client = Client(client_id=0, plan=plan)
    client.facts = facts
    where = np.array([1, 2, 4, 5], np.uint32)
    return component, client, Block("noised", 4, np.array([3, 4, 0, 12], np.float32), where)


def steps_of(client: Client, *chain: Any) -> tuple[Step, ...]:
    return fold([Link("noised", "protect", each.name, each, "client") for each in chain], client.facts)


def protected(block: Block, client: Client, *chain: Any) -> Block:
    for step in steps_of(client, *chain):
        block = execute(step, block, client, client.facts)
    return block


def test_retained_positions_are_sent_as_zeros() -> None:
    component, client, block = hider()
    hidden = protected(block, client, component)
    assert hidden.positions is not None
    assert hidden.positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert hidden.positions.dtype == np.uint32
    assert hidden.plain().tolist() == [0, 3, 4, 0, 0, 12]
    assert hidden.size == 6
    (step,) = steps_of(client, component)
    assert step.operations == (Widen(),)
    gathered = protected(block.replace(positions=None), client, component)
    assert gathered.plain().tolist() == hidden.plain().tolist()
    client.plan = None
    with pytest.raises(ProtectionError, match="there is no plan here"):
        protected(block, client, component)


def test_the_clip_may_come_before_or_after() -> None:
    """Spec 17: the norm is at most C either way, and the values are the same."""
    component, client, block = hider()
    clip = Clip(Clip.Options(norm=6.5))
    clip.name = "std.clip"
    after, before = (protected(block, client, *links).plain() for links in ((component, clip), (clip, component)))
    assert np.array_equal(after, before)
    for links in ((component, clip), (clip, component)):
        known = steps_of(client, *links)[-1].after
        assert (known.norm(), known.covers_support) == (6.5, True)
    assert 6.49 < np.linalg.norm(after.astype(np.float64)) <= 6.5


@pytest.mark.parametrize("chain", [[HIDE, CLIP, NOISE], [CLIP, HIDE, NOISE]])
def test_uploads_then_show_no_support(chain: list[Any], tmp_path: Path) -> None:
    """Every client sends every position that is not encrypted, with noise in place of retained values."""
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
    """The divisor is all clients, as with `divide_by: clients` without hiding."""
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
    assert "must not come after noise in the chain of zone noised; zeros without" in refused(noised=[CLIP, NOISE, HIDE])
    assert refused(noised=[HIDE, CLIP, {**NOISE, "use": "std.gaussian"}]) == ""
