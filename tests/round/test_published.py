"""What components publish is a fact at all parties of a group, in the round that it holds in, and for the ledger."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Clip, Cohort, Facts, Known, Look, Noise, Opener, Operations, Protector, Server
from fedplug.api.errors import PluginError, TooFewClients
from fedplug.api.events import Published
from fedplug.engines.base import Engine
from fedplug.round.hosted import HostedClient
from fedplug.round.sums import Arrivals
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_runs.folder import read_ledger
from mix_toys import install
from publish_toys import PACE, PUBLISHING, Pace, Votes
from run_toys import resume, rows_of, start, stopped
from toy_components import TOYS, pushed, recipe_of
from toy_protocol import Outcome, Watched, calls_of, initial_vector, run_protocol, weights_of

PUSH = {"use": "toy.push"}
HALF = {"scheme": "fixed", "rate": 0.5, "source": "reproducible"}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, PUBLISHING)
    Pace.seen.clear()


def pace(when: str = "negotiate", **options: Any) -> dict[str, Any]:
    return {"use": PACE, "when": when, **options}


def paced(when: str = "negotiate", at: str = "server", **changes: Any) -> dict[str, Any]:
    """FedAvg whose uploads are multiplied by a public factor, which the sum is divided by."""
    use = {"use": "toy.paced", "at": at}
    plain = recipe_of(
        chain=[use], train=PUSH, rounds=3, negotiate_mask=pace(when), postprocess={"clear": ["toy.paced"]}
    )
    return plain | changes


def bounded(**changes: Any) -> dict[str, Any]:
    """Noise of multiplier 4, 8, 16, ... in round 1, 2, 3: that of an update that is clipped to the public factor."""
    chain = [{"use": "toy.bounded"}]
    return recipe_of("noised", chain, train=PUSH, rounds=2, negotiate_mask=pace(zone="noised")) | changes


def bare(**changes: Any) -> dict[str, Any]:
    return recipe_of(train=PUSH, rounds=3, negotiate_mask={"use": "std.single_zone", "zone": "clear"}) | changes


@functools.cache
def moved_by_a_bare_run() -> Any:
    """The model of a run without the factor."""
    return run_protocol(bare()).vector


def multipliers(outcome: Outcome) -> list[dict[float, list[int]]]:
    """By round, whose uploads have noise of which multiplier in the ledger."""
    found: list[dict[float, list[int]]] = [{} for _ in outcome.rows]
    for entry in outcome.protocol.ledger.log:
        for release in entry.zones["noised"].releases:
            assert isinstance(entry.charged, list | str)
            charged = list(range(4)) if entry.charged == "all" else [*entry.charged]
            found[entry.round - 1][release.noise_multiplier] = charged
    return found


# -- who has it, and when ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["setup", "negotiate", "prepare"])
@pytest.mark.parametrize("at", ["client", "server", "key_server"])
def test_operations_of_all_parties_follow_from_what_was_published(when: str, at: str) -> None:
    """A power of two takes no bit of a number, so that the model is that of a run without the factor."""
    outcome = run_protocol(paced(when, at))
    assert [row.clients.dropped for row in outcome.rows] == [{}] * 3
    assert np.array_equal(outcome.vector, moved_by_a_bare_run())
    uploads = [m.decode()["value"]["blocks"]["clear"].plain() for m in outcome.sent("server", "client:1", round=1)]
    update = pushed(np.zeros_like(outcome.vector), 7, 1, 1)
    factor = 2.0**-1 if when == "setup" else 2.0**-3
    assert np.allclose(uploads[-1], factor * update, atol=1e-6)


def test_engines_agree_on_what_was_published() -> None:
    one, other = (run_protocol(paced(at="client"), engine) for engine in ("local", "processes"))
    assert np.array_equal(one.vector, other.vector)
    assert other.rows[-1].clients.dropped == {}


def test_a_key_server_noises_by_what_was_published() -> None:
    """What it opens is encrypted, so nobody else could divide the sum there."""
    seal = {"use": "std.bfv", "key_holder": "key_server", "range": 0.5}
    plain = paced(
        negotiate_mask=pace(zone="encrypted"), protect={"encrypted": [{"use": "toy.paced", "at": "key_server"}, seal]},
        postprocess={"encrypted": ["std.bfv", "toy.paced"]},
    )  # fmt: skip
    found = run_protocol(plain).vector
    assert np.allclose(found, moved_by_a_bare_run(), atol=1e-4)


def test_a_hook_sees_what_was_published_before_it_runs() -> None:
    run_protocol(paced())
    quarter, eighth = 2.0**-2, 2.0**-3
    assert Pace.seen[:5] == [
        ("setup", -1, None, None),
        ("negotiate", 0, None, quarter),
        ("prepare", 0, quarter, quarter),
        ("negotiate", 1, quarter, eighth),
        ("prepare", 1, eighth, eighth),
    ]


def test_it_is_told_as_an_event_and_travels_as_one_lasting_call() -> None:
    heard: list[Published] = []
    outcome = run_protocol(
        paced(), prepare=lambda protocol, _: protocol.events.subscribe(Published, lambda event: heard.append(event))
    )
    assert [(e.round, e.groups, e.component, e.values, e.covered_by) for e in heard] == [
        (round, ("all",), PACE, {"factor": 2.0 ** -(round + 2)}, "nothing to pay") for round in range(3)
    ]
    assert calls_of(outcome.sent("client:2", round=1)[0])[-3:] == ["fedplug.train", "fedplug.hear", "fedplug.protect"]


# -- clients that were not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["setup", "negotiate", "prepare"])
@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_client_that_misses_a_round_opens_its_sum_by_the_facts_of_that_round(when: str, engine: str) -> None:
    missing = {"score_parameters": [{"use": "toy.fail", "clients": [1], "rounds": [1]}]}
    outcome = run_protocol(paced(when, "client", **missing), engine)
    assert [list(row.clients.dropped) for row in outcome.rows] == [[], [1], []]
    assert np.array_equal(outcome.vector, run_protocol(bare(**missing)).vector)  # all agree


@pytest.mark.parametrize("rounds", [3, 6])
def test_clients_out_of_the_cohort_catch_up(rounds: int) -> None:
    changes: dict[str, Any] = {"sampling": HALF, "rounds": rounds}
    outcome = run_protocol(paced("negotiate", "client", **changes))
    assert [row.clients.answered for row in outcome.rows] == [2] * rounds
    assert np.array_equal(outcome.vector, run_protocol(bare(**changes)).vector)


@pytest.mark.parametrize("when", ["setup", "negotiate"])
@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_resumed_run_goes_by_what_was_published_before(
    when: str, engine: str, tmp_path: Path
) -> None:
    plain = paced(when, "client", rounds=4)
    whole = start(tmp_path / "whole", plain, engine=engine)
    with stopped(lambda _, round: round == 2):
        broken = start(tmp_path / "broken", plain, engine=engine)
    assert resume(broken) == 0
    assert rows_of(broken) == rows_of(whole)
    assert [row["loss"] for row in rows_of(whole)] == [row["loss"] for row in rows_of(start(tmp_path, bare(rounds=4)))]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_round_that_was_cut_off_is_paid_for_by_what_was_published_in_it(grouped: bool, tmp_path: Path) -> None:
    """The checkpoint before it does not know that, nor which groups there are."""
    plain = bounded(rounds=1, groups={"use": "toy.halves"} if grouped else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arrivals, "close", interrupted)
        folder = start(tmp_path, plain)
    assert resume(folder) == 0
    log = [entry for entry in read_ledger(folder).log if "noised" in entry.zones]
    found = [(entry.charged, entry.zones["noised"].releases[0].noise_multiplier) for entry in log]
    assert found == 2 * ([([0, 2], 4.0), ([1, 3], 16.0)] if grouped else [("all", 4.0)])


def interrupted(*_: Any) -> None:
    """As by Ctrl-C, when uploads are in."""
    raise KeyboardInterrupt


# -- groups ------------------------------------------------------------------------------------------------------------


def test_each_group_goes_by_what_was_published_to_it() -> None:
    outcome = run_protocol(paced(at="client", groups={"use": "toy.halves"}))
    plain = run_protocol(bare(groups={"use": "toy.halves"}))
    assert [row.clients.dropped for row in outcome.rows] == [{}] * 3
    for client_id in range(4):
        assert np.array_equal(outcome.vectors[client_id], plain.vectors[client_id])


def test_each_group_pays_for_what_was_published_to_it() -> None:
    outcome = run_protocol(bounded(groups={"use": "toy.halves"}))
    ledger = outcome.protocol.ledger
    entries = [entry for entry in ledger.log if "noised" in entry.zones]
    found = [(e.round, e.charged, e.zones["noised"].releases[0].noise_multiplier) for e in entries]
    assert found == [(1, [0, 2], 4.0), (1, [1, 3], 16.0), (2, [0, 2], 8.0), (2, [1, 3], 32.0)]


class Parts(Pace):
    """Publish to client 0 alone."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Publishes."""
        cohort.only([0]).publish(self, {"factor": 1.0})


def test_a_part_of_a_group_is_told_nothing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHING["negotiate_mask"], PACE, Parts)
    install(monkeypatch, PUBLISHING)
    said = rf"component {PACE}, hook negotiate_mask: .*{PACE} publishes to a part of a group; use the cohort that it is"
    with pytest.raises(PluginError, match=said.replace(".pace", r"\.pace")):
        run_protocol(paced())


# -- agreement ---------------------------------------------------------------------------------------------------------


def test_a_client_that_goes_by_other_facts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hear = HostedClient.hear

    def other(self: HostedClient, name: str, values: Any) -> None:
        lied = self.client_id == 1 and self.facts.round == 1
        hear(self, name, {"factor": 4.0} if lied else values)

    monkeypatch.setattr(HostedClient, "hear", other)
    outcome = run_protocol(paced(at="server"))
    assert [list(row.clients.dropped) for row in outcome.rows] == [[], [1], []]
    assert "it went by other public facts than the server has published" in outcome.rows[1].clients.dropped[1]


@pytest.mark.parametrize(
    ("name", "values"),
    [("toy.nobody", {}), (PACE, [1]), (PACE, {1: 2})],
    ids=["component", "no names", "names"],
)
def test_a_client_hears_values_by_name_of_a_component_alone(name: str, values: Any) -> None:
    def lies(protocol: Watched, engine: Engine) -> None:
        publish, hear = protocol.publish, protocol.steps.hear

        def other(cohort: Cohort, *arguments: Any) -> None:
            tell = cohort.tell
            cohort.tell = lambda method, *payload: tell(hear, name, values)  # type: ignore[method-assign]
            publish(cohort, *arguments)

        protocol.publish = other  # type: ignore[method-assign]

    with pytest.raises(TooFewClients, match=r"is said to publish .* which are no values by name"):
        run_protocol(paced(), prepare=lies)


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_a_round_is_priced_by_what_was_published_in_it() -> None:
    outcome = run_protocol(bounded(rounds=3))
    assert multipliers(outcome) == [{2.0 ** (round + 2): [0, 1, 2, 3]} for round in range(3)]
    one = run_protocol(bounded(rounds=1)).protocol.ledger
    assert one.epsilon() == pytest.approx(gaussian_epsilon(4.0, 1e-5))


@pytest.mark.parametrize("groups", [None, {"use": "toy.halves"}])
def test_ballots_are_released_under_the_noise_that_is_paid_for(groups: dict[str, Any] | None) -> None:
    """They are paid for before anybody is asked, and so before anything of the round is published."""
    Votes.released.clear()
    votes = pace(zone="noised") | {"use": "toy.votes"}
    ledger = run_protocol(bounded(negotiate_mask=votes, groups=groups)).protocol.ledger
    assert Votes.released == pytest.approx([8.0] * 8, rel=6 / 8000**0.5)
    paid = [each.releases[0] for entry in ledger.log for name, each in entry.zones.items() if name.endswith("votes")]
    assert [release.noise_multiplier for release in paid] == [8.0, 8.0]


class Afterwards(Pace, Opener):
    """Publish when uploads are in."""

    site = "server"

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Looks."""
        return (Look(self.look),)

    def look(self, block: Block, server: Server, facts: Facts) -> None:
        """Publishes."""
        assert server.cohort is not None
        server.cohort.publish(self, {"factor": 0.001}, covered_by="nothing to pay")


def test_nothing_is_published_that_uploads_on_their_way_did_not_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    for group in ("negotiate_mask", "postprocess"):
        monkeypatch.setitem(TOYS[group], "toy.afterwards", Afterwards)
    late = {"use": "toy.afterwards", "when": "setup", "zone": "noised"}
    with pytest.raises(PluginError, match=r"toy\.afterwards publishes after uploads were asked for, which go, and are"):
        run_protocol(bounded(negotiate_mask=late, postprocess={"noised": ["toy.afterwards"]}))


class Long(Pace):
    """Publish many numbers, of which a group has one of its own in the middle."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Publishes."""
        factor = self.factor(facts.round, cohort)
        middle = np.where(np.arange(5001) == 2500, factor, 0.0)
        cohort.publish(self, {"numbers": middle}, covered_by="nothing to pay")


class OfNumbers(Protector):
    """Clip to the number in the middle."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip, and noise."""
        return Clip(float(facts.of(PACE).get("numbers", np.ones(5001))[2500])), Noise.gaussian(1.0)


def test_groups_pay_by_all_that_was_published_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it looks alike on paper."""
    monkeypatch.setattr(Long, "factor", staticmethod(lambda round, cohort: 1.0 if 0 in cohort.reach else 0.125))
    monkeypatch.setitem(TOYS["negotiate_mask"], PACE, Long)
    monkeypatch.setitem(TOYS["protect"], "toy.bounded", OfNumbers)
    ledger = run_protocol(bounded(rounds=1, groups={"use": "toy.halves"})).protocol.ledger
    entries = [entry for entry in ledger.log if "noised" in entry.zones]
    found = [(entry.charged, entry.zones["noised"].releases[0].noise_multiplier) for entry in entries]
    assert found == [([0, 2], 1.0), ([1, 3], 8.0)]


@pytest.mark.parametrize(
    ("component", "covered_by", "holds"),
    [
        (PACE, "nothing to pay", True), ("toy.votes", "epsilon", True),
        (PACE, None, False), (PACE, "epsilon", False),  # it adds no noise
    ],
)  # fmt: skip
def test_what_nothing_pays_for_leaves_no_guarantee(component: str, covered_by: str | None, holds: bool) -> None:
    publishes = pace(zone="noised", covered_by=covered_by) | {"use": component, "name": PACE}
    ledger = run_protocol(bounded(negotiate_mask=publishes)).protocol.ledger
    shown = [each for each in ledger.reveals if each.what == f"what {PACE} publishes"]
    assert len(shown) == (not holds)  # once, whatever is published in other rounds
    verdict = ledger.verdict()
    assert verdict.status == ("protected_from_all" if holds else "no_protection")
    if not holds:
        assert verdict.toward("server").reason.startswith(f"sees what {PACE} publishes, ")


# -- plans -------------------------------------------------------------------------------------------------------------


def moved(plain: dict[str, Any], first: Any) -> Any:
    """The model of a run in which the halves take turns: in round t all clients of the round send half `first(t)`."""
    vector, outcome = initial_vector(plain), run_protocol(plain)
    weights, size = weights_of(outcome), vector.size
    for round in range(len(outcome.rows)):
        clients = cohort_of(outcome, round)
        total = sum(weights[c] * pushed(vector, 7, c, round).astype(np.float64) for c in clients)
        mean = (total / sum(weights[c] for c in clients)).astype(np.float32)
        half = np.arange(size) < size // 2
        sent = half if first(round) else ~half
        vector = np.where(sent, vector + mean, vector)
    return vector, outcome


def cohort_of(outcome: Outcome, round: int) -> list[int]:
    """Whose uploads came."""
    sent = [m for m in outcome.sent("server", round=round) if m.phase == "upload"]
    return sorted(int(m.sender.partition(":")[2]) for m in sent)


def test_a_plan_that_everybody_can_work_out_takes_no_message() -> None:
    plain = bare(negotiate_mask={"use": "toy.turns"})
    vector, outcome = moved(plain, lambda round: round % 2 == 0)
    assert np.allclose(outcome.vector, vector, atol=1e-6)
    for message in outcome.sent("client:2"):
        assert not [call for call in calls_of(message) if not call.startswith("fedplug.")]
        assert not [call for call in calls_of(message) if call == "fedplug.hear"]
    upload = outcome.sent("server", "client:2", round=0)[-1].decode()["value"]["blocks"]["clear"]
    assert (upload.size, upload.positions) == (outcome.vector.size // 2, None)


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_clients_out_of_the_cohort_adopt_by_the_plan_of_the_round(engine: str) -> None:
    plain = bare(negotiate_mask={"use": "toy.turns"}, sampling=HALF, rounds=5)
    vector, _ = moved(plain, lambda round: round % 2 == 0)
    outcome = run_protocol(plain, engine)
    assert np.allclose(outcome.vector, vector, atol=1e-6)  # all agree


def test_a_plan_by_what_was_published_last_is_the_plan_of_uploads_and_of_the_model() -> None:
    """It is published behind the negotiation, when clients have trained already."""
    plain = bare(negotiate_mask={"use": "toy.turns", "published": True})
    vector, outcome = moved(plain, lambda round: round % 2 == 1)
    assert np.allclose(outcome.vector, vector, atol=1e-6)

