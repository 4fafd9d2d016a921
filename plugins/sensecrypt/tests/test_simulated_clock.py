"""The simulated clock: what operations cost, how long a round takes on the devices of the profiles, what rows hold."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fedplug.api import codec
from fedplug.api.context import Client
from fedplug.api.errors import RecipeError
from fedplug.api.reports import Reports
from fedplug.api.rows import Row
from fedplug.console.display import PlainDisplay, totals
from fedplug.recipe.recipe import Recipe, load_recipe
from fedplug.runs.summary import Distribution, Summary
from fedplug_lab.figures import charts
from fedplug_lab.live import rounds_table
from fedplug_lab.report import write_report
from fedplug_sensecrypt.profiles import UNLIMITED, Profile, by_party, profiles_of
from fedplug_sensecrypt.simulated_clock import (
    MEASURED,
    OTHER,
    ClientBytes,
    Done,
    Party,
    SimulatedTime,
    Work,
    round_seconds,
    samples_of,
    unit_costs,
    without_left_out,
    work_of,
)
from hypothesis import given
from hypothesis import strategies as st
from row_toys import a_ledger
from toy_components import recipe_of, toy_catalog
from toy_protocol import Outcome, build, run_protocol

SLOW_AND_FAST = [
    {"of": [0, 1, 3], "cpus": 24, "bandwidth": 50},
    {"of": [2], "cpus": 1, "bandwidth": 5},
    {"of": ["server", "key_server"], "cpus": 32, "bandwidth": 1000},
]
SEALED: list[Any] = [{"use": "std.bfv", "key_holder": "key_server"}]


def device(cpus: float, bandwidth: float = math.inf) -> Profile:
    return Profile.model_construct(of=[0], cpus=cpus, bandwidth=bandwidth)


def profiles(clients: dict[int, Profile], **servers: Profile) -> dict[Party, Profile]:
    return dict([*by_party([]).items(), *clients.items(), *servers.items()])


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def test_a_round_worked_out_by_hand() -> None:
    """Client 0: (100 x 10 ms + 20 x 50 ms) / 4 CPUs = 0.5 s, 3 MB + 1 MB at 8 MB/s = 0.5 s. Client 1: 0.3 s + 0.2 s."""
    found = round_seconds(
        operations={
            0: {"train": 100, "encrypt": 20}, 1: {"train": 60},
            "server": {"add": 10, MEASURED: 0.3}, "key_server": {"decrypt": 4},
        },
        traffic={0: (3e6, 1e6), 1: (1e6, 1e6), "server": (4e6, 2e6), "key_server": (1e6, 0)},
        profiles=profiles({0: device(4, 8), 1: device(2, 10)}, server=device(2, 60), key_server=UNLIMITED),
        costs={"train": 0.01, "encrypt": 0.05, "add": 0.07, "decrypt": 0.1},
    )  # fmt: skip
    assert (found.clients[0].compute, found.clients[0].transfer) == pytest.approx((0.5, 0.5))
    assert (found.clients[1].compute, found.clients[1].transfer) == pytest.approx((0.3, 0.2))
    assert found.slowest == 0
    assert (found.server.compute, found.server.transfer) == pytest.approx((0.5, 0.1))  # (0.7 + 0.3) / 2, 6 MB
    assert (found.key_server.compute, found.key_server.transfer) == pytest.approx((0.4, 0))
    assert found.seconds == pytest.approx(1.0 + 0.6 + 0.4)
    row = found.to_row()
    assert row.clients == pytest.approx({0: 1.0, 1: 0.5})
    assert (row.compute, row.transfer) == pytest.approx((0.5, 0.5))


def test_the_slower_client_dominates() -> None:
    work: dict[Party, dict[str, float]] = {0: {"encrypt": 100}, 1: {"encrypt": 100}, 2: {"encrypt": 100}}
    devices = {0: device(8), 1: device(1), 2: device(4)}
    found = round_seconds(work, {}, profiles(devices), {"encrypt": 0.02})
    assert found.slowest == 1
    assert found.seconds == found.clients[1].total == pytest.approx(2.0)
    # A tenth of the work for the slow client, as a budget would give it: now the next one is waited for.
    eased = round_seconds({**work, 1: {"encrypt": 10}}, {}, profiles(devices), {"encrypt": 0.02})
    assert eased.slowest == 2
    assert eased.seconds == pytest.approx(0.5)


def test_equal_profiles_and_work_give_equal_times_and_the_first_client() -> None:
    work: dict[Party, dict[str, float]] = {client_id: {"train": 7} for client_id in (5, 3, 4)}
    sent: dict[Party, tuple[float, float]] = dict.fromkeys(work, (10.0, 20.0))
    found = round_seconds(work, sent, profiles(dict.fromkeys((3, 4, 5), device(2, 1))), {"train": 1.0})
    assert {one.total for one in found.clients.values()} == {3.5 + 30 / 1e6}
    assert found.slowest == 3


def test_a_round_without_clients_takes_the_servers_time_only() -> None:
    found = round_seconds({"server": {MEASURED: 2.0}}, {}, by_party([]), {})
    assert (found.slowest, found.seconds) == (None, 2.0)
    assert found.to_row().clients == {}


@given(
    counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
    cost=st.floats(1e-6, 10),
    cpus=st.floats(0.1, 128),
    factor=st.integers(1, 64),
)
def test_more_cpus_divide_the_compute_time(counts: list[int], cost: float, cpus: float, factor: int) -> None:
    work: dict[Party, dict[str, float]] = {c: {"encrypt": count} for c, count in enumerate(counts)}
    sent: dict[Party, tuple[float, float]] = {c: (count, 2 * count) for c, count in enumerate(counts)}
    few, many = (
        round_seconds(work, sent, profiles(dict.fromkeys(range(len(counts)), device(n, 10))), {"encrypt": cost})
        for n in (cpus, cpus * factor)
    )
    for client_id, one in few.clients.items():
        assert one.compute == pytest.approx(factor * many.clients[client_id].compute)
        assert one.transfer == many.clients[client_id].transfer == pytest.approx(3 * counts[client_id] / 1e7)
        assert few.seconds >= one.total


def test_what_cannot_be_priced_is_refused() -> None:
    with pytest.raises(ValueError, match="'encrypt' of party 0 has no cost; costs are \\['train'\\]"):
        round_seconds({0: {"encrypt": 1}}, {}, profiles({0: device(1)}), {"train": 1})
    with pytest.raises(ValueError, match="party 7 has no profile; there are profiles of"):
        round_seconds({}, {7: (1, 1)}, by_party([]), {})


# -- what an operation costs -------------------------------------------------------------------------------------------


def test_costs_worked_out_by_hand() -> None:
    """Ratios 1, 2 and 9 with weights 1, 2 and 1: half of the weight is reached within the second."""
    assert unit_costs({"a": [(1, 1), (2, 4), (1, 9)], "b": [(4, 2)]}) == {"a": 2, "b": 0.5}
    assert unit_costs({"a": [(1, 1), (1, 3)]}) == {"a": 2}  # exactly half: midway
    assert unit_costs({"a": [(0, 5), (2, 2)], "never": [(0, 5)], "none": []}) == {"a": 1}


def test_what_one_party_pays_once_does_not_change_the_cost() -> None:
    warm = [(100, 1.0)] * 9
    assert unit_costs({"encrypt": [(100, 60.0), *warm]}) == unit_costs({"encrypt": warm}) == {"encrypt": 0.01}


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 10**6)), min_size=1, max_size=12))
def test_the_cost_is_the_median_over_single_operations(pairs: list[tuple[int, int]]) -> None:
    """A weighted median of ratios is the plain median if each operation of a sample took the same time."""
    single = [seconds / count for count, seconds in pairs for _ in range(count)]
    assert unit_costs({"a": pairs})["a"] == pytest.approx(statistics.median(single))


def test_an_operation_inside_another_is_measured_once() -> None:
    party = Client()
    with party.operation("outer", 2):
        with party.operation("inner", 3):
            time.sleep(0.02)
        with pytest.raises(KeyError), party.operation("inner", 4):
            raise KeyError
    (outer, outer_took), (inner, inner_took) = party.operations["outer"], party.operations["inner"]
    assert (outer, inner) == (2, 7)
    assert inner_took >= 0.02 > outer_took


# -- in a run ----------------------------------------------------------------------------------------------------------


def parties_of(rows: list[Row]) -> list[dict[str, dict[str, float]]]:
    """How many operations each party did in each round, without what is measured in seconds."""
    return [
        {
            str(party): {name: count for name, count in table.items() if name != MEASURED}
            for party, table in work_of(row)[0].items()
        }
        for row in rows
    ]


def simulated_of(row: Row) -> SimulatedTime:
    found = SimulatedTime.of(row)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sealed() -> Outcome:
    """Three rounds of an encrypted protocol whose sums the key server opens."""
    return run_protocol(recipe_of("encrypted", SEALED, profiles=SLOW_AND_FAST, rounds=3, score_parameters=[
        {"use": "paraaegis.magnitude"}]))  # fmt: skip


def test_rows_hold_the_simulated_seconds_and_what_they_follow_from(sealed: Outcome) -> None:
    for number, row in enumerate(sealed.rows[:-1], start=1):
        simulated = simulated_of(row)
        assert simulated.slowest == 2  # the one with a CPU and a tenth of the bandwidth
        assert simulated.compute + simulated.transfer == pytest.approx(simulated.clients[2])
        assert simulated.seconds == pytest.approx(simulated.clients[2] + simulated.server + simulated.key_server)
        # Every number of it can be recomputed from the rows so far.
        costs = unit_costs(samples_of(sealed.rows[:number]))
        parsed = profiles_of(sealed.protocol.recipe)
        assert round_seconds(*work_of(row), by_party(parsed), costs).to_row() == simulated


def test_other_costs_can_be_put_in_place_of_the_measured_ones(sealed: Outcome) -> None:
    operations, traffic = work_of(sealed.rows[0])
    devices = by_party(profiles_of(sealed.protocol.recipe))
    done = Work.of(sealed.rows[0]).operations
    sealing = next(name for name in done if name.endswith("encrypt"))
    costs = dict.fromkeys(done, 0.0)
    found = round_seconds(operations, traffic, devices, costs | {sealing: 7.0, MEASURED: 0.0})
    assert found.clients[2].compute == pytest.approx(7.0 * operations[2][sealing])
    assert found.clients[0].compute == pytest.approx(7.0 * operations[0][sealing] / 24)


def test_core_operations_are_counted_in_examples(sealed: Outcome) -> None:
    weights = sealed.protocol.server.remembered.weights
    sizes = {client_id: work_of(sealed.rows[0])[0][client_id]["train"] for client_id in weights}
    assert weights == pytest.approx({client_id: size / max(sizes.values()) for client_id, size in sizes.items()})
    for work in map(Work.of, sealed.rows):
        for table in work.clients.values():
            assert table["train"].count == table["score"].count >= 1
            assert table["train"].seconds > 0
        assert {name for table in work.clients.values() for name in table} <= work.operations.keys()
        assert work.operations["train"].count == sum(table["train"].count for table in work.clients.values())
    rests = [Work.of(row).clients[0][OTHER].count for row in sealed.rows]
    assert rests == [1, 1, 2]  # the end of the run belongs to the last row


def test_named_and_other_seconds_are_all_there_is_but_evaluation(sealed: Outcome) -> None:
    """The seconds of the operations are those of the phases, evaluation left out: nothing is counted twice."""
    for row in sealed.rows:
        work = Work.of(row)
        clients = sum(done.seconds for table in work.clients.values() for done in table.values())
        servers = sum(done.seconds for table in work.servers.values() for done in table.values())
        ignored = sum(row.seconds.get(phase, 0.0) for phase in ("evaluate", "checkpoint"))
        assert clients + servers == pytest.approx(sum(row.seconds.values()) - ignored, rel=1e-6)


def test_bytes_of_the_clients_are_those_on_the_wire(sealed: Outcome) -> None:
    for number, row in enumerate(sealed.rows):
        rounds = [number, 3] if number == 2 else [number]
        expected: dict[str, Counter[str]] = {}
        for message in (message for round in rounds for message in sealed.sent(round=round)):
            sender, receiver = message.sender.partition(":")[2], message.receiver.partition(":")[2]
            expected.setdefault(sender or receiver, Counter())["up" if sender else "down"] += len(message.data)
        found = Work.of(row).client_bytes
        assert found == {int(c): ClientBytes(**sent) for c, sent in expected.items() if c}
        up, down, between = row.bytes.up.total, row.bytes.down.total, row.bytes.key_server.total
        assert up == sum(sent.up for sent in found.values()) > 0
        assert down == sum(sent.down for sent in found.values()) > 0
        _, traffic = work_of(row)
        assert sum(traffic["server"]) == up + down + between
        assert sum(traffic["key_server"]) == between > 0
    (log,) = (listener.__self__ for listener in sealed.wire.listeners)
    assert not log.traffic  # taken with every row: a long run does not pile it up


def test_both_engines_count_the_same(sealed: Outcome) -> None:
    processes = run_protocol(dict(sealed.protocol.recipe.to_plain()), "processes")
    assert parties_of(processes.rows) == parties_of(sealed.rows)
    assert [Work.of(row).client_bytes for row in processes.rows] == [Work.of(row).client_bytes for row in sealed.rows]
    assert [simulated_of(row).slowest for row in processes.rows] == [2] * len(processes.rows)


def test_clients_that_take_no_part_or_drop_out_need_no_operations() -> None:
    fails = {"use": "toy.fail", "clients": [1], "rounds": [0, 1]}
    outcome = run_protocol(recipe_of(profiles=SLOW_AND_FAST, score_parameters=[fails]))
    for row in outcome.rows:
        assert row.clients.dropped.keys() == {1}
        assert simulated_of(row).clients.keys() == {0, 1, 2, 3}  # it was waited for
        assert sum(sent.up for sent in Work.of(row).client_bytes.values()) == row.bytes.up.total
    half = {"scheme": "fixed", "rate": 0.5, "source": "reproducible"}
    for row in run_protocol(recipe_of(profiles=SLOW_AND_FAST, sampling=half, rounds=3)).rows[:-1]:
        assert len(simulated_of(row).clients) == len(Work.of(row).clients) == 2


def test_without_profiles_nothing_is_reported_and_nothing_written() -> None:
    outcome = run_protocol(recipe_of("encrypted", SEALED))
    assert not any(row.simulated_seconds or row.added for row in outcome.rows)
    replies = [message.decode() for message in outcome.wire.messages if message.receiver == "server"]
    assert not any("operations" in reply["reports"] for reply in replies)
    assert charts_of(outcome.rows) is None
    assert "simulated time" not in totals(outcome.rows)


def test_a_resumed_run_goes_on_with_the_costs_so_far(tmp_path: Path) -> None:
    plain = recipe_of("encrypted", SEALED, profiles=SLOW_AND_FAST, rounds=4)
    first, engine, _ = build(plain)
    first.setup()
    for round in range(2):
        first.round(round)
    engine.save(tmp_path)
    state = codec.decode(codec.encode(first.state()))
    engine.close()
    for row in (*state["rows"], state["awaiting"]):
        for table in row["added"]["work"]["clients"].values():
            table["train"]["seconds"] = 5.0 * table["train"]["count"]
    second, engine, _ = build(plain)
    engine.load(tmp_path)
    second.restore(state)
    second.run(2)
    engine.close()
    assert [row.round for row in second.rows] == [1, 2, 3, 4]
    assert [simulated_of(row) for row in second.rows[:1]] == [simulated_of(row) for row in first.rows[:1]]
    assert SimulatedTime.from_plain(state["awaiting"]["added"]["simulated"]) == simulated_of(second.rows[1])
    costs = unit_costs(samples_of(second.rows[:3]))
    expected = round_seconds(*work_of(second.rows[2]), by_party(profiles_of(second.recipe)), costs)
    assert simulated_of(second.rows[2]) == expected.to_row()
    assert costs["train"] > 1
    assert expected.to_row().compute > 1  # the rounds before the restart have their say


def test_parties_know_their_profile() -> None:
    engine: Any = build(recipe_of(profiles=SLOW_AND_FAST))[1]
    hosted = engine.hosts[0].clients
    assert [client.said["profiles"].cpus for client in hosted.values()] == [24, 24, 1, 24]
    assert hosted["client:2"].said["profiles"].bandwidth == 5
    engine = build(recipe_of())[1]
    assert engine.hosts[0].clients["client:0"].said == {}


@pytest.mark.parametrize(
    ("operations", "problem"),
    [
        (3, "operations is 3: input should be a valid dictionary"),
        ({1: [1, 2]}, r"operations.1.\[key\] is 1: input should be a valid string"),
        ({"a": [1]}, "operations.a is a list: list should have at least 2 items"),
        ({"a": [1, -1]}, "operations.a.1 is -1: input should be greater than or equal to 0"),
        ({"a": [math.nan, 1]}, "operations.a.0 is nan"),
        ({"a": [1, math.inf]}, "operations.a.1 is inf"),
        ({"a": [True, 1]}, "operations.a.0 is True"),
        ({"a": 1}, "operations.a is 1: input should be a valid list"),
    ],
)
def test_malformed_operations_are_refused(operations: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Reports.from_plain({"operations": operations})
    assert Reports.from_plain({"operations": {"a": [1.0, 2.0]}}).operations == {"a": [1.0, 2.0]}


def test_a_component_cannot_take_the_names_of_the_rest() -> None:
    """An operation called `measured` would be worth as many seconds as it claims to be."""

    def prepare(protocol: Any, engine: Any) -> None:
        for client in engine.hosts[0].clients.values():
            client.operations = {MEASURED: [1e9, 0.0], OTHER: [5.0, 0.0]}

    outcome = run_protocol(recipe_of(profiles=SLOW_AND_FAST, rounds=1), prepare=prepare)
    (row,) = outcome.rows
    done = Work.of(row).operations
    assert done.get(MEASURED, Done()).count < 10
    assert done[OTHER].count == 8  # four clients: the round, and the end of the run


# -- in the recipe -----------------------------------------------------------------------------------------------------


TEXT = """\
name: timed
seed: 1
rounds: 1
data: {use: std.digits, clients: 4, partition: {use: std.iid}}
model: {use: std.mlp}
train: {use: std.sgd, lr: 0.05}
negotiate_mask: {use: std.single_zone}
protect: {clear: []}
aggregate: {use: std.mean}
profiles:
  - {of: [0, 1], cpus: 24, bandwidth: 50}
  - {of: [2, 3, server], cpus: 8, bandwidth: 30}
"""


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    file = tmp_path / "timed.yaml"
    file.write_text(TEXT)
    return file


def problems_of(file: Path, sets: list[str]) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, sets)
    return [problem.removeprefix(f"{file.parent}/") for problem in caught.value.problems]


def test_profiles_are_part_of_the_recipe(timed: Path, tmp_path: Path) -> None:
    recipe = load_recipe(timed)
    plain = recipe.to_plain()
    assert plain["profiles"][1] == {"of": [2, 3, "server"], "cpus": 8.0, "bandwidth": 30.0}
    again = Recipe.from_plain(json.loads(json.dumps(plain)))
    assert again == recipe
    assert again.digest == recipe.digest
    faster = load_recipe(timed, ["profiles.1.cpus=9"])
    assert (profiles_of(faster)[1].cpus, faster.digest != recipe.digest) == (9, True)
    devices = by_party(profiles_of(recipe))
    assert [devices[party].cpus for party in (0, 1, 2, 3, "server", "key_server")] == [24, 24, 8, 8, 8, 1]
    assert devices["key_server"].bandwidth == math.inf
    child = tmp_path / "child.yaml"
    child.write_text("extends: timed.yaml\nprofiles: [{of: [0, 1, 2, 3], cpus: 2, bandwidth: 3}]\n")
    assert [profile.cpus for profile in profiles_of(load_recipe(child))] == [2]  # a list is replaced
    assert profiles_of(load_recipe(timed, ["profiles=[]"])) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[0, 1]", "[0, 1, 4]"), "timed.yaml:11:17: there is no client 4 (data.clients=4: 0 to 3); remove it"),
        (("[0, 1]", "[0, -1]"), "timed.yaml:11:14: there is no client -1"),
        (("[0, 1]", "[0, 1, 3]"), "timed.yaml:12:14: client 3 stands under profiles.0 already; every party has one"),
        (("[0, 1]", "[0, 1, 1]"), "timed.yaml:11:17: client 1 stands twice"),
        (("[0, 1]", "[0, 1, server]"), "timed.yaml:12:17: server stands under profiles.0 already"),
        (("[0, 1]", "[1]"), "timed.yaml:11:3: no profile for client 0; give every client a profile, or write"),
        (("[0, 1]", "[sever]"), "timed.yaml:11:10: profiles.0.of=['sever']: 'sever' is not a party; write client ids"),
        (("[0, 1]", "[1.5]"), "timed.yaml:11:10: profiles.0.of=[1.5]: 1.5 is not a party"),
        (("[0, 1]", "[true]"), "timed.yaml:11:10: profiles.0.of=[True]"),
        (("[0, 1]", "[]"), "timed.yaml:11:10: profiles.0.of=[]: must be a list of parties, such as [0, 1, server]"),
        (("[0, 1]", "0"), "timed.yaml:11:10: profiles.0.of=0: must be a list of parties"),
        (("cpus: 24", "cpus: 0"), "timed.yaml:11:24: profiles.0.cpus=0 must be > 0"),
        (("cpus: 24", "cpus: .inf"), "timed.yaml:11:24: profiles.0.cpus=inf must be a finite number"),
        (("width: 50", "width: -1"), "timed.yaml:11:39: profiles.0.bandwidth=-1 must be > 0 (MB/s"),
        (("cpus: 24", "cpu: 24"), "timed.yaml:11:18: unknown option 'cpu'; did you mean cpus?"),
        ((", bandwidth: 50", ""), "timed.yaml:11:5: the recipe needs 'bandwidth' (MB/s"),
        (("profiles", "profile"), "timed.yaml:10:1: unknown key 'profile'; did you mean profiles?"),
    ],
)
def test_wrong_profiles_are_refused_with_their_place(timed: Path, change: tuple[str, str], message: str) -> None:
    timed.write_text(TEXT.replace(*change, 1))
    found = problems_of(timed, [])
    assert any(problem.startswith(message) for problem in found), found


def test_many_clients_without_a_profile_are_one_short_message(timed: Path) -> None:
    (problem,) = problems_of(timed, ["data.clients=100"])
    assert "no profile for client 4, 5, 6, 7, 8 and 91 more;" in problem
    (problem,) = problems_of(timed, ["profiles=[{of: [server], cpus: 1, bandwidth: 1}]"])
    assert "no profile for client 0, 1, 2, 3;" in problem


# -- what people see ---------------------------------------------------------------------------------------------------


def charts_of(rows: list[Row]) -> Any:
    return next((chart for chart in charts(rows, None) if chart.key == "simulated"), None)


def test_the_report_draws_both_clocks(sealed: Outcome) -> None:
    chart = charts_of(sealed.rows)
    assert chart.title == "Simulated clock beside the wall clock"
    assert "In 3 of 3 rounds it waits for client 2" in chart.alt
    assert [label for label, _, _ in chart.legend][-1] == "wall clock"
    nobody = SimulatedTime(0.0, None, 0.0, 0.0, 0.0, 0.0, {})
    row = dataclasses.replace(sealed.rows[0], simulated_seconds=0.0, added={"simulated": nobody.to_plain()})
    assert charts_of([row]).alt.endswith("No client took part.")


def test_totals_name_the_simulated_time(sealed: Outcome) -> None:
    assert totals(sealed.rows)["simulated time"].endswith("on the devices that the recipe describes")


def test_displays_and_report_have_a_column_only_with_profiles(sealed: Outcome, tmp_path: Path) -> None:
    without = [dataclasses.replace(row, simulated_seconds=None) for row in sealed.rows]
    ran = Summary("x", "0" * 64, {"rounds": 3}, [], {}, "local", "cpu", Distribution([], {}), False, "", 1)
    for rows, shown in ((sealed.rows, True), (without, False)):
        assert ("simulated" in [column.header for column in rounds_table(rows).columns]) is shown
        out = io.StringIO()
        PlainDisplay(out).round_done(rows[0])
        assert ("  simulated " in out.getvalue()) is shown
        page = write_report(tmp_path, rows, a_ledger(), ran).read_text()
        assert ('<th scope="col" class="num">simulated</th>' in page) is shown
        assert ('id="figure-simulated"' in page) is shown


def test_every_toy_row_is_plain_data(sealed: Outcome) -> None:
    """Rows go to JSON and into checkpoints, and come back as they were."""
    for row in sealed.rows:
        again = Row.from_json(row.to_json())
        assert dataclasses.replace(again, added={}) == dataclasses.replace(row, added={})
        assert Work.of(again) == Work.of(row)
        assert Row.from_plain(codec.decode(codec.encode(row.to_plain()))) == row
    assert Recipe.from_plain(sealed.protocol.recipe.to_plain(), toy_catalog()) == sealed.protocol.recipe


def test_what_no_sum_holds_is_priced_by_its_encryptions() -> None:
    """4 and 10 ciphertexts of 0.5 s on one CPU; half of all are in vain: 2.5 s of the slower one's 7."""
    seal = "toy.seal.encrypt"
    operations: dict[Party, dict[str, float]] = {0: {seal: 4.0}, 1: {seal: 10.0, OTHER: 1.0}}
    useful = without_left_out(operations, {seal: {0: 0.5, 1: 0.5, 9: 1.0}})
    assert useful == {0: {seal: 2.0}, 1: {seal: 5.0, OTHER: 1.0}}
    assert operations[1][seal] == 10.0
    costs, devices = {seal: 0.5, OTHER: 2.0}, profiles({0: device(1), 1: device(1)})
    seconds = [round_seconds(each, {}, devices, costs).seconds for each in (operations, useful)]
    assert seconds == pytest.approx([7.0, 4.5])
