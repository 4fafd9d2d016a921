"""Adaptive clipping: the norm follows the clients' median, and the ledger prices what the run releases."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Clip, Facts, Known, Layout, Noise, gaussian_epsilon
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug.round.hosted import HostedServer
from fedplug_baselines.adaptive_clip import AdaptiveClip
from toy_components import recipe_of
from toy_protocol import run_protocol

NAME = "baselines.adaptive_clip"


def recipe(**options: Any) -> dict[str, Any]:
    changes = options.pop("changes", {})
    use = {"use": NAME, "noise_multiplier": 2.0, "source": "reproducible"} | options
    plain = recipe_of("noised", [NAME], aggregate={"use": "std.mean", "weighting": "uniform"}, negotiate_mask=use)
    return plain | {"postprocess": {"noised": [NAME]}} | changes


class OneRound:
    """The clients of a round, by the norms of their updates, with the calls that the negotiation makes."""

    def __init__(self, server: HostedServer, norms: list[float]) -> None:
        self.server, self.norms = server, norms
        self.published: dict[str, float] = {}
        self.covered_by: str | None = "not published"
        self.dropped: list[tuple[int, str]] = []

    def publish(self, component: AdaptiveClip, values: dict[str, float], *, covered_by: str | None = None) -> None:
        self.published, self.covered_by = values, covered_by

    def ask(self, method: Any) -> dict[int, Any]:
        exact = method.__name__ == "length"
        return {i: norm if exact else norm <= self.published["norm"] for i, norm in enumerate(self.norms)}

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped.append((client_id, reason))


def part(**options: Any) -> AdaptiveClip:
    made = AdaptiveClip(AdaptiveClip.Options(**{"noise_multiplier": 2.0, "source": "reproducible"} | options))
    made.name = NAME
    return made


def server_of(made: AdaptiveClip, round: int, rounds: int, clients: int, server: Any = None) -> HostedServer:
    """The server in a round of a run."""
    server = server or HostedServer()
    server.facts = Facts(
        round=round, rounds=rounds, layout=Layout.of([("w", (3,))]), zones=(), num_clients=clients,
        min_clients=2, seed=7, digest="", components={NAME: made},
    )  # fmt: skip
    server.balloting = frozenset(range(clients))
    return server  # type: ignore[no-any-return]


def negotiated(made: AdaptiveClip, norms: list[float], rounds: int) -> list[float]:
    """The norms that are published where clients have these norms, round by round."""
    server, told = HostedServer(), []
    for round in range(rounds):
        cohort: Any = OneRound(server, norms)
        made.negotiate_mask(cohort, server_of(made, round, rounds, len(norms), server).facts)
        assert cohort.covered_by == ("epsilon" if made.is_noised else None)
        told.append(cohort.published["norm"])
    return told


def test_the_worked_example() -> None:
    """Norms 1, 2, 3, 4, 100: Geyer's median is 3. From 1 on, 1 of 5 is within: one step is exp(0.2 * (0.5 - 0.2))."""
    assert negotiated(part(estimate="exact"), [1.0, 2.0, 3.0, 4.0, 100.0], 2) == [3.0, 3.0]
    quiet = part(noise_multiplier=1e-6, initial_norm=1.0)
    told = negotiated(quiet, [1.0, 2.0, 3.0, 4.0, 100.0], 60)
    assert told[:2] == pytest.approx([1.0, math.exp(0.2 * 0.3)], rel=1e-4)
    # At the median 3 of 5 are within, and just below it 2. So the norm stays within a step of it.
    assert 3 * math.exp(-0.2) < min(told[40:]) <= max(told[40:]) < 3 * math.exp(0.2)


def test_the_clip_and_the_noise_go_by_the_norm_that_is_published() -> None:
    made = part(initial_norm=9.0)
    facts = server_of(made, 0, 3, 2).facts
    for published, norm in (({}, 9.0), ({NAME: {"norm": 4.0}}, 4.0)):
        now = dataclasses.replace(facts, published=published)
        assert made.protect(Known(zone="noised", link=NAME), now) == (Clip(norm),)
        (noise,) = made.postprocess(Known(zone="noised", link=NAME, summed=True), now)
        assert isinstance(noise, Noise)
        assert noise.std == pytest.approx(2.0 / math.sqrt(0.9) * norm)


def test_the_noise_on_the_count_is_as_stated() -> None:
    """On a sum of answers that are 1/2 from the middle each: multiplier 2 on a sensitivity of 1/2."""
    made = part(noise_multiplier=1.0, count_share=0.25)
    found = []
    server = server_of(made, round=0, rounds=800, clients=9)
    for round in range(800):
        server.facts = server.facts.at(round)
        answers = {client_id: np.array([0.5], np.float32) for client_id in range(2)}
        found.append(server.release(made, answers)[0])
    assert np.std(found) == pytest.approx(1.0 / math.sqrt(0.25) / 2, rel=0.08)
    assert np.mean(found) == pytest.approx(1.0, abs=0.12)


def test_a_round_costs_what_its_multiplier_says() -> None:
    """Count and sum together are one Gaussian release of `noise_multiplier` a round, however the cost is split."""
    for share in (0.1, 0.6):
        ledger = run_protocol(recipe(source="secure", count_share=share)).protocol.ledger
        assert ledger.epsilon() == pytest.approx(gaussian_epsilon(2.0 / math.sqrt(2), 1e-5), rel=1e-6)
        report = ledger.report()
        assert report.verdict.status == "protected_from_some"
        assert report.views["released_model"].state == "guaranteed"
        assert report.views["released_model"].epsilon == pytest.approx(ledger.epsilon())
        assert report.views["server"].epsilon is None
        assert report.views["server"].reason == "adds the noise itself and sees the values without it"


def test_the_median_as_it_is_earns_no_guarantee() -> None:
    ledger = run_protocol(recipe(source="secure", estimate="exact")).protocol.ledger
    report = ledger.report()
    assert report.verdict.status == "no_protection"
    assert all(view.epsilon is None for view in report.views.values())
    assert ledger.epsilon() == math.inf
    assert report.views["server"].reason.startswith("sees norms of the clients' updates, ")
    assert "released without noise" in report.views["released_model"].detail


def test_no_update_exceeds_the_norm_that_was_sent() -> None:
    outcome = run_protocol(recipe(initial_norm=0.05))
    found = []
    for client_id in range(4):
        sent = [message for message in outcome.sent("server", f"client:{client_id}") if message.phase == "upload"]
        for message, row in zip(sent, outcome.rows, strict=True):
            values = message.decode()["value"]["blocks"]["noised"].plain()
            found.append((float(np.linalg.norm(values.astype(np.float64))), row.log[f"{NAME}.norm"]))
    assert len(found) == 8
    assert all(norm <= limit for norm, limit in found)
    assert max(norm for norm, _ in found) > 0.04


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"postprocess": {}}, "postprocess.noised too"),
        ({"sampling": {"scheme": "poisson", "rate": 0.5}}, "remove sampling"),
        ({"protect": {"noised": [{"use": "std.clip", "norm": 1.0}, NAME]}}, "must not come after clip"),
    ],
)
def test_places_where_it_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Recipe.from_plain(recipe(changes=changes))


@pytest.mark.parametrize(("estimate", "wrong"), [("noised", 1), ("exact", -1.0), ("exact", math.nan), ("exact", "x")])
def test_a_wrong_answer_costs_its_client_the_round(estimate: Any, wrong: Any) -> None:
    made = part(estimate=estimate)
    cohort: Any = OneRound(HostedServer(), [1.0])
    assert made._answers(cohort, {4: wrong}) == {}
    assert cohort.dropped[0][0] == 4


def test_attacks_may_ask_for_the_uploads_of_a_round_with_its_count(tmp_path: Path) -> None:
    """A probe negotiates as a round does: the server counts who was clipped, which no ledger charges then."""
    small = {
        "name": "probed", "seed": 7, "rounds": 1, "train": {"use": "std.sgd", "batch_size": 20, "lr": 0.1},
        "data": {"use": "std.digits", "clients": 3, "train_size": 60, "partition": "std.iid"}, "model": "std.logistic",
        "attack": {"targets": [0], "probe": {"batch_size": 2}, "attacks": ["attacks.linear_leak"]},
    }  # fmt: skip
    run = fedplug.run(recipe() | small, output=tmp_path, quiet=True)
    (found,) = [json.loads(file.read_text()) for file in run.folder.glob("attacks/attacks.*.json")]
    assert found["states"]["clear"] == 1.0
