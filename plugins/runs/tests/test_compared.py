"""A client searches its own messages for its plain values while a run is recorded, and finds leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    Cohort,
    Facts,
    Field,
    Known,
    Look,
    Operations,
    Party,
    Plan,
    Plans,
    Reveals,
    at_client,
)
from fedplug.api.codec import encode, frame
from fedplug.recipe.catalog import Entry
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs.compared import MOST, Compared, Comparison, Sought
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.settings import Settings
from hypothesis import given
from hypothesis import strategies as st
from run_toys import start
from toy_base import Toy
from toy_components import paraaegis, recipe_of, toy_catalog

HALF = np.arange(0, 400, 2, dtype=np.uint32)
UPDATE = np.random.default_rng(3).normal(0, 1e-2, 400).astype(np.float32)


def found(data: bytes) -> int:
    return Sought(UPDATE, {"noised": HALF}).found_in(data)["noised"]


@given(start=st.integers(0, 40), before=st.binary(max_size=9), form=st.sampled_from(["<f4", ">f4", "<f8", ">f8"]))
def test_values_of_a_zone_are_found_at_any_byte_in_either_order(start: int, before: bytes, form: str) -> None:
    sent = UPDATE[HALF][start : start + 5].astype(form).tobytes()
    assert found(before + sent + b"end") == (4 if form.endswith("f4") else 5)


def test_values_are_found_in_the_order_of_the_model_too() -> None:
    assert found(UPDATE.tobytes()) == 399  # each pair of neighbours has one of the zone
    assert found(UPDATE[1:3].tobytes()) == 1


def test_other_bytes_and_other_values_are_not_found() -> None:
    assert found(np.random.default_rng(4).bytes(100_000)) == 0
    assert found(UPDATE[1::2].tobytes()) == 0, "the zone next to it"
    assert found((2 * UPDATE).tobytes()) == found(b"") == found(b"1234567") == 0


def test_zeros_and_round_numbers_are_not_looked_for() -> None:
    update = np.array([0, 0.5, -1, np.inf, np.nan, 0.1, 0.1], np.float32)
    sought = Sought(update, {"retained": np.arange(7)})
    assert sought.values == {"retained": 2}
    assert not sought.found_in(np.array([0, 0.5, -1, 0], "<f4").tobytes() + np.array([0.5, -1], "<f8").tobytes())
    assert not sought.found_in(update[-2:].tobytes()), "two equal ones may be a constant"
    assert sought.found_in(update.astype("<f8").tobytes()) == {"retained": 2}
    assert Sought(update, {}).found_in(bytes(50)) == {}


def test_a_zero_and_the_number_behind_it_are_no_value_of_a_large_zone() -> None:
    """Noised float32 values may be exactly 0. As a float64, 0 and the next one were one of very many plain values."""
    update = np.random.default_rng(6).normal(0, 1e-2, 1 << 17).astype(np.float32)
    high = (update.astype("<f8").view("<u8") >> np.uint64(32)).astype("<u4").view("<f4")
    noised = np.stack([np.zeros_like(high), high], 1)
    assert not Sought(update, {"noised": np.arange(update.size)}).found_in(noised.astype("<f4").tobytes())
    assert Sought(update, {"noised": np.arange(update.size)}).found_in(update[:60].astype("<f8").tobytes())


def test_a_float64_in_a_long_message_counts_with_its_tag_or_next_to_another() -> None:
    """A long message of noised float32 values has bytes of any kind, some of which are a plain value's by chance."""
    one, two = UPDATE[HALF][:1].astype(">f8").tobytes(), UPDATE[HALF][:2].astype("<f8").tobytes()
    around = bytes(1 << 17)
    assert found(around + one + around) == 0
    assert found(one + around) == 0
    assert found(one) == 1
    assert found(around + b"\xcb" + one + around) == 1
    assert found(encode({"noised": np.zeros(1 << 15, np.float32), "first": UPDATE[HALF][:1].astype(np.float64)})) == 1
    assert found(around + two + around) == 2


def test_what_left_before_the_values_were_known_is_compared_once_they_are() -> None:
    comparison, leak = Comparison(), UPDATE[HALF].tobytes()
    assert comparison.look(0, frame(b"a ballot of eight bytes" + leak)) == {}
    comparison.hold(0, UPDATE, {"noised": HALF}, {})
    found = comparison.look(0, frame(b"an upload of that round"))
    assert found == Compared(2, {"noised": 200}, {"noised": 199}).to_plain()
    found = comparison.look(1, frame(leak))
    assert found == Compared(0, {}, {"noised": 199}).to_plain(), "with the values of the round before"
    comparison.hold(1, -UPDATE, {"noised": HALF}, {})
    assert comparison.look(1, frame(b"an upload of the next one")) == Compared(2, {"noised": 200}, {}).to_plain()


def test_what_was_sent_in_a_round_without_an_upload_waits_no_longer() -> None:
    comparison = Comparison()
    assert comparison.look(0, frame(UPDATE.tobytes())) == {}
    comparison.look(1, frame(b"12345678"))
    comparison.hold(1, UPDATE, {"noised": HALF}, {})
    assert comparison.look(1, frame(b"12345678")) == Compared(2, {"noised": 200}, {}).to_plain()


def test_the_length_and_the_checksum_of_a_message_are_no_values() -> None:
    """Five zeros of the one, its last two bytes and the first of the other were the float64 of an update's value."""
    bodies = (bytes(2910) + number.to_bytes(4, "big") for number in range(5000))
    message = next(framed for framed in map(frame, bodies) if framed[12] == 0xBF)
    value = np.frombuffer(message[5:13], "<f8").astype(np.float32)
    comparison = Comparison()
    comparison.hold(0, value, {"noised": np.arange(1)}, {})
    assert comparison.look(0, message) == Compared(1, {"noised": 1}, {}).to_plain()
    assert comparison.look(0, frame(message)) == Compared(1, {}, {"noised": 1}).to_plain(), "in a body it is one"


class Logs(Toy, fedplug.Protector):
    """Log one value of the update, which travels with the upload."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Observes."""
        return (Look(self.look),)

    def look(self, block: Block, client: Party, facts: Facts) -> None:
        """Takes the first value."""
        client.log["first"] = float(block.plain()[0])


class Tells(Toy, fedplug.Negotiation):
    """Ask the clients for a part of their update, before it is cut into zones."""

    plans = Plans(zones=frozenset({"noised"}))

    class Options(fedplug.Options):
        """In which form."""

        form: Literal["f4", "f8"] = Field("f4", description="of numbers")

    def reveals(self, facts: Facts) -> list[Reveals]:
        """A part of the update."""
        return [Reveals("a part of the update", ("server",), asked=("part",))]

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Asks, and has all clients choose."""
        cohort.ask(self.part)
        cohort.tell(self.choose)

    @at_client
    def part(self, client: Client) -> Any:
        """Ten values."""
        assert client.update is not None
        return client.update[:10].astype(self.options.form)

    @at_client
    def choose(self, client: Client) -> None:
        """All in one zone."""
        client.plan = Plan.single("noised", client.facts.layout.size, client.facts.zones)


NOISED = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}]


def compared(folder: Path, plain: dict[str, Any], **settings: Any) -> list[Compared | None]:
    catalog = toy_catalog()
    for group, name, kind in (("protect", "toy.logs", Logs), ("negotiate_mask", "toy.tells", Tells)):
        catalog.groups[group][name] = Entry(name, group, f"{__name__}:{kind.__name__}", "toys", "0", kind)
    recipe = Recipe.from_plain(plain, catalog)
    run = execution.start(recipe, Settings(output=folder, quiet=True, record_wire=True, **settings), catalog)[1]
    return [row.compared for row in read_rows(run)]


@pytest.mark.parametrize(
    ("zone", "chain"), [("noised", NOISED), ("encrypted", ["std.bfv"]), ("noised", ["std.clip", *NOISED[1:]])]
)
def test_a_recorded_run_says_that_nothing_was_found(tmp_path: Path, zone: str, chain: list[Any]) -> None:
    chain = [{"use": use, "norm": 1.0} if use == "std.clip" else use for use in chain]
    chain = [{"use": use} if isinstance(use, str) else use for use in chain]
    said = compared(tmp_path, recipe_of(zone, chain))
    assert [one and one.found for one in said] == [{}, {}]
    assert [one and one.messages for one in said] == [4, 4], "an upload of each client"
    assert all(one and 0 < one.values[zone] <= 4 * 650 for one in said)


def test_a_value_in_the_log_of_a_component_is_found(tmp_path: Path) -> None:
    said = compared(tmp_path, recipe_of("noised", [{"use": "toy.logs"}, *NOISED]))
    assert all(one and one.found.get("noised", 0) >= 3 for one in said)


def test_a_value_that_a_link_took_behind_the_clip_is_found(tmp_path: Path) -> None:
    clip = {"use": "std.clip", "norm": 0.01}
    again = {**NOISED[0], "name": "again"}
    said = compared(tmp_path, recipe_of("noised", [clip, {"use": "toy.logs"}, again, NOISED[1]]))
    assert all(one and one.found.get("noised", 0) >= 3 for one in said)
    (run,) = tmp_path.iterdir()
    verdict = read_ledger(run).verdict
    assert verdict.status == "no_protection"
    assert verdict.toward("released_model").reason == "plain values of protected zones were found in messages"


@pytest.mark.parametrize(("form", "places"), [("f4", 36), ("f8", 40)])
def test_a_ballot_of_plain_values_is_found(tmp_path: Path, form: str, places: int) -> None:
    said = compared(tmp_path, recipe_of("noised", NOISED, negotiate_mask={"use": "toy.tells", "form": form}))
    assert all(one and places - 8 <= one.found["noised"] <= places for one in said)


def test_what_nobody_protects_at_a_client_is_not_looked_for(tmp_path: Path) -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}
    bounded = [{"use": "std.clip", "norm": 1.0}]
    mean = {"use": "std.mean", "weighting": "uniform"}
    clipped = recipe_of("noised", bounded, postprocess={"noised": [central]}, aggregate=mean)
    for plain in (recipe_of(), clipped):
        said = compared(tmp_path, plain)
        assert all(one is not None and one.messages and not one.values and not one.found for one in said)


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_every_engine_compares_and_only_while_the_run_is_recorded(tmp_path: Path, engine: str) -> None:
    plain = paraaegis(rounds=1)
    for record_wire in (True, False):
        run = start(tmp_path, plain, engine=engine, record_wire=record_wire)
        said = read_rows(run)[0].compared
        assert (said is not None) == record_wire
        assert said is None or (set(said.values) == {"encrypted", "noised"} and not said.found)


def test_of_a_large_model_some_values_are_looked_for_all_over_it() -> None:
    update = np.random.default_rng(5).normal(0, 1e-2, 2 * MOST + 7).astype(np.float32)
    sought = Sought(update, {"encrypted": np.arange(MOST), "noised": np.arange(MOST, update.size)})
    assert MOST // 2 < sum(sought.values.values()) <= MOST
    for zone, part in (("encrypted", update[5000:5030]), ("noised", update[-30:])):
        assert sought.found_in(part.tobytes()).keys() == {zone}
        assert sought.found_in(part.astype("<f8").tobytes()).keys() == {zone}
