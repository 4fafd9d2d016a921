"""The simulated clock in a run: the content of rows, no double counting, and the display."""

from __future__ import annotations

import dataclasses
import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from clock_toys import SEALED, SLOW_AND_FAST
from fedplug.api import codec
from fedplug.api.reports import Reports
from fedplug.recipe.recipe import Recipe
from fedplug_lab.figures import charts
from fedplug_lab.live import rounds_table
from fedplug_lab.report import write_report
from fedplug_runs.folder import Distribution, Summary
from fedplug_runs.row_text import totals
from fedplug_runs.rows import Row
from fedplug_sensecrypt.devices import by_party, profiles_of
from fedplug_sensecrypt.simulated_clock import (
    MEASURED,
    OTHER,
    ClientBytes,
    Done,
    SimulatedTime,
    Work,
    round_seconds,
    samples_of,
    unit_costs,
    work_of,
)
from fedplug_terminal.plain import PlainDisplay
from row_toys import a_ledger
from toy_components import recipe_of, toy_catalog
from toy_protocol import Outcome, build, run_protocol

# -- in a run ----------------------------------------------------------------------------------------------------------


def parties_of(rows: list[Row]) -> list[dict[str, dict[str, float]]]:
    """The number of operations of each party in each round, without those that are measured in seconds."""
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
        # Every number can be recomputed from the rows so far.
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
    """The seconds of the operations are those of the phases without evaluation: nothing is counted twice."""
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
    assert not log.traffic  # taken with every row, so a long run does not accumulate it


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
        assert simulated_of(row).clients.keys() == {0, 1, 2, 3}  # the round waited for it
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
    assert expected.to_row().compute > 1  # the rounds before the restart count


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
    """An operation called `measured` would cost as many seconds as it claims."""

    def prepare(protocol: Any, engine: Any) -> None:
        for client in engine.hosts[0].clients.values():
            client.operations = {MEASURED: [1e9, 0.0], OTHER: [5.0, 0.0]}

    outcome = run_protocol(recipe_of(profiles=SLOW_AND_FAST, rounds=1), prepare=prepare)
    (row,) = outcome.rows
    done = Work.of(row).operations
    assert done.get(MEASURED, Done()).count < 10
    assert done[OTHER].count == 8  # four clients: the round, and the end of the run


# -- what people see ---------------------------------------------------------------------------------------------------


def charts_of(rows: list[Row]) -> Any:
    return next((chart for chart in charts(rows, None) if chart.key == "simulated"), None)


def test_the_report_draws_both_clocks(sealed: Outcome) -> None:
    chart = charts_of(sealed.rows)
    assert chart.title == "Simulated clock and wall clock"
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
