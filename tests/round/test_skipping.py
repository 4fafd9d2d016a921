"""Rounds with too few clients: what is skipped, paid, remembered, and when the run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from charge_toys import noised, paid
from fedplug import Reveals, at_client
from fedplug.api.errors import PartyLost, TooFewClients
from fedplug.engines.base import Engine
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol, sample
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from fedplug_std.single_zone import SingleZone
from run_toys import resume, rows_of, start
from toy_components import TOYS, UNANIMOUS, AskAgain, paraaegis, pushed, recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol, weights_of

PUSH = {"use": "toy.push"}


def broken(rounds: list[int], clients: tuple[int, ...] = (0, 1, 2)) -> dict[str, Any]:
    """Some of four clients fail in some rounds, after they have trained."""
    return {"use": "toy.fail", "clients": list(clients), "rounds": rounds}


def test_a_round_that_falls_short_after_an_upload_releases_nothing_and_is_paid_by_all() -> None:
    plain = noised(train=PUSH)
    plain["protect"]["noised"] = [broken([1]), *plain["protect"]["noised"]]
    outcome = run_protocol(plain)
    assert [row.skipped for row in outcome.rows] == ["", "clients left: 1, min_clients is 2", "", ""]
    assert [row.clients.answered for row in outcome.rows] == [4, 0, 4, 4]
    assert "round 2: clients left: 1, min_clients is 2; it is skipped" in outcome.notes
    assert any("round 2: 3 clients (0, 1, 2) dropped out: " in note for note in outcome.notes)
    log = outcome.protocol.ledger.log
    assert [(entry.round, entry.charged) for entry in log] == [(r, "all") for r in (1, 2, 3, 4)]
    assert log[1].zones["noised"].size == 650, "client 3 has shown its upload"
    assert log[1].zones["noised"].sum_factor == 1.0, "which no sum hid"
    assert all(np.array_equal(outcome.vectors[0], outcome.vectors[c]) for c in range(4))


def test_a_skipped_round_gives_the_model_that_a_run_without_it_would_have() -> None:
    plain = recipe_of(train={"use": "std.sgd", "epochs": 1, "batch_size": 2000, "lr": 0.1}, rounds=1)
    once = run_protocol(plain)
    twice = run_protocol({**plain, "rounds": 2, "score_parameters": [broken([1])]})
    first = run_protocol({**plain, "rounds": 2, "score_parameters": [broken([0])]})
    assert [bool(row.skipped) for row in (*twice.rows, *first.rows)] == [False, True, True, False]
    assert np.array_equal(twice.vector, once.vector)
    assert np.allclose(first.vector, once.vector, atol=1e-6)  # batches in another order
    assert not np.allclose(once.vector, initial_vector(plain), atol=1e-3)


def test_a_round_that_falls_short_before_uploads_is_paid_as_far_as_it_was_asked() -> None:
    """Its accuracy reports count, and a later round starts from them. No client was asked to upload."""
    outcome = run_protocol(paraaegis(rounds=3, score_parameters=[UNANIMOUS, broken([1])]))
    assert [bool(row.skipped) for row in outcome.rows] == [False, True, False]
    assert [entry.round for entry in outcome.protocol.ledger.log] == [1, 3]
    assert outcome.vector.size  # all agree
    assert all(row.accuracy is not None for row in outcome.rows)


def test_three_rounds_in_a_row_end_the_run_and_two_do_not() -> None:
    outcome = run_protocol(recipe_of(rounds=6, score_parameters=[broken([1, 2, 4, 5])]))
    assert [bool(row.skipped) for row in outcome.rows] == [False, True, True, False, True, True]
    with pytest.raises(TooFewClients, match=r"round 4: clients left: 1.*3 rounds in a row had too few clients"):
        run_protocol(recipe_of(rounds=6, score_parameters=[broken([1, 2, 3])]))


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_without_any_round_that_held_ends_with_an_error(rounds: int) -> None:
    with pytest.raises(TooFewClients, match=f"round {rounds}: clients left: 1"):
        run_protocol(recipe_of(rounds=rounds, score_parameters=[broken([0, 1])]))


def test_what_is_wrong_everywhere_ends_the_run_at_once() -> None:
    with pytest.raises(TooFewClients, match="round 2: clients left: 0"):
        run_protocol(recipe_of(rounds=4, score_parameters=[broken([1], (0, 1, 2, 3))]))


def test_a_process_that_all_clients_shared_is_waited_for() -> None:
    """All are lost for one reason, which does not prove the recipe wrong. The process is restarted."""

    def prepare(protocol: Protocol, engine: Engine) -> None:
        exchange = engine.exchange

        def losing(messages: dict[str, Any]) -> Any:
            if protocol.office.round == 1 and protocol.office.phase == "upload":
                return iter([(address, PartyLost("worker-0 was silent")) for address in messages])
            return exchange(messages)

        engine.exchange = losing  # type: ignore[method-assign]

    outcome = run_protocol(noised(), prepare=prepare)
    assert [row.clients.answered for row in outcome.rows] == [4, 0, 4, 4]
    log = outcome.protocol.ledger.log
    assert [entry.round for entry in log] == [1, 2, 3, 4], "nobody knows what arrived of what was asked for"
    assert log[1].zones["noised"].size == 650


def test_rounds_that_sampling_skips_are_not_counted() -> None:
    sampling = {"scheme": "poisson", "rate": 0.5, "source": "reproducible"}
    for seed in range(200):
        plain = recipe_of(rounds=8, seed=seed, sampling=sampling)
        recipe = Recipe.from_plain(plain, toy_catalog())
        small = [len(sample(recipe, range(4), round)) < 2 for round in range(8)]
        if any(small[at : at + 3] == [True] * 3 for at in range(5)):
            break
    outcome = run_protocol(plain)
    assert [bool(row.skipped) for row in outcome.rows] == small


def test_a_cohort_that_fell_short_is_no_secret_any_more() -> None:
    """Central noise on sums of a Poisson sample: that a round was skipped follows from who was in it."""
    plain = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}], train=PUSH, rounds=2)
    plain["data"]["clients"], plain["min_clients"] = 60, 15
    plain |= {
        "accountant": {"use": "std.pld"},
        "sampling": {"scheme": "poisson", "rate": 0.8, "source": "secure"},
        "postprocess": {"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}]},
    }
    credit = [run_protocol(plain).protocol.ledger.report().sampling.amplified]
    plain["score_parameters"] = [broken([1], tuple(range(50)))]
    outcome = run_protocol(plain)
    credit.append(outcome.protocol.ledger.report().sampling.amplified)
    assert [bool(row.skipped) for row in outcome.rows] == [False, True]
    assert credit == [True, False]


def test_a_run_that_goes_on_after_a_skipped_round_agrees(tmp_path: Path) -> None:
    plain = {**noised(), "rounds": 3}
    plain["protect"]["noised"] = [broken([1]), *plain["protect"]["noised"]]
    plain["protect"]["noised"][2] = {"use": "std.gaussian", "noise_multiplier": 2.0, "source": "reproducible"}
    folder = start(tmp_path / "runs", plain)
    whole = rows_of(folder)
    assert resume(folder, 2) == 0
    assert rows_of(folder) == whole
    assert [row["round"] for row in whole if "skipped" in row] == [2]


def test_a_run_that_was_ended_pays_for_its_last_round_again(tmp_path: Path) -> None:
    plain = {**noised(), "rounds": 6}
    plain["protect"]["noised"] = [broken([1, 2, 3]), *plain["protect"]["noised"]]
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    with pytest.raises(TooFewClients, match="3 rounds in a row"):
        execution.start(Recipe.from_plain(plain, catalog), settings, catalog)
    (folder,) = tmp_path.iterdir()
    assert paid(folder) == [1, 2, 3, 4]
    with pytest.raises(TooFewClients, match="3 rounds in a row"):
        resume(folder)
    assert paid(folder) == [1, 2, 3, 4, 4]
    assert ["skipped" in row for row in rows_of(folder)] == [False, True, True]


@pytest.mark.parametrize("rounds", [[1], [1, 2, 3]])
def test_a_sum_that_too_few_help_to_open_costs_its_zone_the_round(
    monkeypatch: pytest.MonkeyPatch, rounds: list[int]
) -> None:
    def ask(self: AskAgain, block: Any, server: Any, facts: Any) -> None:
        if facts.round in rounds:
            raise TooFewClients(f"round {facts.round + 1}: 1 of 4 clients answered with their shares")

    monkeypatch.setattr(AskAgain, "ask", ask)
    plain = recipe_of(train=PUSH, rounds=5, postprocess={"clear": ["toy.ask_again"]})
    if len(rounds) == 3:
        with pytest.raises(TooFewClients, match=r"round 4: 1 of 4 clients answered.*3 rounds in a row"):
            run_protocol(plain)
        return
    outcome = run_protocol(plain)
    assert outcome.protocol.server.remembered.short == 0
    assert [row.clients.answered for row in outcome.rows] == [4] * 5
    assert "round 2: zone clear is skipped: 1 of 4 clients answered with their shares" in outcome.notes
    weights, expected = weights_of(outcome), initial_vector(plain)
    for round in (0, 2, 3, 4):
        expected = expected + sum(w * pushed(expected, 7, c, round) for c, w in weights.items()) / sum(weights.values())
    assert np.allclose(outcome.vector, expected, atol=1e-6)


def test_groups_that_round_1_forms_are_not_waited_for() -> None:
    scored = [{"use": "sensecrypt.sensitivity"}, broken([0], (0, 1))]
    plain = recipe_of(rounds=4, min_clients=3, score_parameters=scored)
    plain["data"]["clients"] = 4
    plain["groups"] = {"use": "sensecrypt.clusters", "min_cluster": 3}
    with pytest.raises(TooFewClients, match="round 1: clients left: 2, min_clients is 3"):
        run_protocol(plain)


class Asks(SingleZone):
    """Ask clients for a meaningless number, and send the replies to all."""

    when: ClassVar[str] = "never"

    def setup(self, cohort: Any, key_server: Any, facts: Any) -> None:
        if self.when == "setup":
            cohort.ask(self.number)

    def reveals(self, facts: Any) -> list[Reveals]:
        return [Reveals("numbers", ("server",), covered_by="nothing to pay", asked=("number",))]

    def negotiate_mask(self, cohort: Any, facts: Any) -> None:
        if self.when == "round":
            cohort.tell(self.hear, sum(cohort.ask(self.number).values()))
        super().negotiate_mask(cohort, facts)

    @at_client
    def number(self, client: Any) -> int:
        return 1 + client.client_id

    @at_client
    def hear(self, client: Any, total: int) -> None:
        client.memory(self)["total"] = total


@pytest.mark.parametrize("when", ["never", "setup", "round"])
def test_a_cohort_whose_answers_a_component_has_is_no_secret(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Any result, such as their sum, follows from the participants of the round. In the set-up all answer."""
    monkeypatch.setitem(TOYS.setdefault("negotiate_mask", {}), "toy.asks", Asks)
    monkeypatch.setattr(Asks, "when", when)
    plain = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}], train=PUSH, rounds=2)
    plain["data"]["clients"], plain["min_clients"] = 60, 15
    plain |= {
        "negotiate_mask": {"use": "toy.asks", "zone": "noised"},
        "accountant": {"use": "std.pld"},
        "sampling": {"scheme": "poisson", "rate": 0.8, "source": "secure"},
        "postprocess": {"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}]},
    }
    assert run_protocol(plain).protocol.ledger.report().sampling.amplified == (when != "round")
