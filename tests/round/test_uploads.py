"""Uploads from a client: a faulty one costs only its sender the round, whatever it holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest
from edited_uploads import LOCAL, buffers_of, edit_replies, run_edited, with_entry
from examples import examples
from fedplug import Block
from fedplug.api import codec
from fedplug.api.blocks import Plan, block_problem
from fedplug.api.errors import MessageError
from fedplug.engines.base import Engine
from fedplug.round.protocol import Protocol
from fedplug.round.uploads import read_hello
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_components import recipe_of
from toy_protocol import build, run_protocol

UNIFORM = {"use": "std.mean", "weighting": "uniform"}
CLIP = {"use": "std.clip", "norm": 1.0}
PLAIN = recipe_of("noised", [CLIP])


def raw_fields(block: Block) -> dict[str, Any]:
    """The fields that travel, as their sender writes them."""
    (code, body) = msgpack.unpackb(codec.encode(block), ext_hook=lambda code, body: (code, body))
    assert code == 3
    fields: dict[str, Any] = codec.decode(body)
    return fields


def raw_block(fields: Any) -> Any:
    """Bytes that decode as a block with these fields, for any fields."""
    return msgpack.ExtType(3, codec.encode(fields))


def with_field(name: str, value: Any) -> Any:
    """Replaces one field of the first block of an upload."""

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        zone, block = next(iter(reply["value"]["blocks"].items()))
        blocks = {zone: raw_block(raw_fields(block) | {name: value})}
        return {**reply, "value": {**reply["value"], "blocks": blocks}}

    return edit


# -- the fields of a block ---------------------------------------------------------------------------------------------

SIZE = 650
PLAN = Plan.single("clear", 3, ("clear",))
ONES = np.ones(SIZE, np.float32)
FIELDS: dict[str, tuple[str, Any, str]] = {
    "text as size": ("size", "650", "its size is '650', which must be a whole number >= 0"),
    "array as size": ("size", np.ones(2), "its size is a ndarray, which must be a whole number"),
    "huge size": ("size", 10**5000, "its size is a whole number of 16610 bits, which must be"),
    "2-D": ("values", ONES.reshape(2, -1), "its values are float32[2, 325], which must be float32[650]: one for each"),
    "short": ("values", ONES[:-1], "its values are float32[649], which must be float32[650]"),
    "float64": ("values", ONES.astype(np.float64), "its values are float64[650], which must be float32[650]"),
    "a list": ("values", [1.0] * SIZE, "its values are a list, which must be float32[650]"),
    "positions": ("positions", np.arange(3, dtype=np.uint32), "its positions are uint32[3], which must be uint32[650]"),
    "ciphertexts": ("ciphertexts", {b"a": 1}, "its ciphertexts are a dict, which must be bytes, one after the other"),
    "contributors": ("contributors", 1.0, "its contributors is 1.0, which must be a whole number >= 0"),
    "sealed_by": ("sealed_by", b"std.bfv", "its sealed_by is b'std.bfv', which must be a component's name"),
    "weighted": ("weighted", 1, "its weighted is 1, which must be true or false"),
    "divisor": ("divisor", float("nan"), "its divisor is nan, which must be a number >= 0"),
    "divisors": ("divisor", np.ones(3), "its divisors are float64[3], which must be float64[650]"),
    "a claim": ("l2_bound", 0.5, "a block that cannot be used: it has 'l2_bound', which no block has"),
    "meta": ("meta", [1], "its meta is a list, which must be plain data by name"),
    "meta keys": ("meta", {3: 1}, "its meta is a dict, which must be plain data by name"),
    "meta values": ("meta", {"a": [{"b": PLAN}]}, "a block or a plan lies in another, which holds plain data"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_of_another_type_costs_its_sender_the_round_and_names_the_rule(case: str) -> None:
    name, value, said = FIELDS[case]
    outcome = run_edited(PLAIN, with_field(name, value))
    assert [row.clients.answered for row in outcome.rows] == [3, 4]
    assert said in outcome.rows[0].clients.dropped[1]


def test_a_bare_array_is_no_block() -> None:
    outcome = run_edited(PLAIN, with_entry("blocks", {"noised": ONES}))
    assert "its zone noised holds a ndarray, not a block" in outcome.rows[0].clients.dropped[1]


@pytest.mark.parametrize("other", [None, b"", bytes(8), ONES, ONES[:0], "text", [b"x"]], ids=range(7))
def test_a_fingerprint_that_is_not_the_servers_is_no_match_whatever_its_type(other: Any) -> None:
    outcome = run_edited(PLAIN, with_entry("facts", other))
    assert "it went by other public facts than the server has published" in outcome.rows[0].clients.dropped[1]


def test_meta_may_hold_plain_data_as_deep_as_a_message_may_be() -> None:
    deep: Any = 1
    for _ in range(24):
        deep = [deep]
    plain = {"a": {3: b"x", "y": [1.5, "t", None, True, np.ones((2, 2))]}, "deep": deep}
    block = Block("clear", 1, np.ones(1, np.float32), meta=plain)
    assert block_problem(block) == ""
    assert codec.decode(codec.encode(block)).meta["a"][3] == b"x"
    for _ in range(100_000):  # a sender cannot make the check of it fail
        deep = [deep]
    assert block_problem(block.replace(meta={"deep": deep})) == ""


def test_one_clients_meta_is_not_that_of_the_sum() -> None:
    """A sealed sum's `fewest` states its number of clients for the ledger. No upload may state it."""
    plain = recipe_of("noised", [CLIP, "fas.scramble"], postprocess={"noised": ["fas.scramble"]}, rounds=1)

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        blocks = {zone: block.replace(meta={"fewest": "many"}) for zone, block in reply["value"]["blocks"].items()}
        return {**reply, "value": {**reply["value"], "blocks": blocks}}

    plain["train"] = {"use": "toy.push", "scale": 0.01}
    outcome = run_edited(plain, edit)
    assert "its noised block has in its meta something else than letters" in outcome.rows[0].clients.dropped[1]


# -- batch-norm buffers ------------------------------------------------------------------------------------------------


def test_buffers_that_no_setting_asks_for_are_ignored_with_a_note() -> None:
    plain = run_protocol(LOCAL)
    poison = {"norm.running_mean": np.full(3, 1e30, np.float32)}
    outcome = run_edited(LOCAL, with_entry("buffers", poison))
    assert outcome.notes == [
        "round 1: the upload of client 1 holds 'buffers', which the recipe does not ask for; buffers: mean in the "
        "recipe averages them; it is ignored"
    ]
    assert buffers_of(outcome) is None
    assert np.array_equal(outcome.vector, plain.vector)
    assert [row.accuracy for row in outcome.rows] == [row.accuracy for row in plain.rows]


def test_other_things_that_no_recipe_asks_for_are_ignored_too() -> None:
    outcome = run_edited(PLAIN, lambda r: {**r, "value": {**r["value"], "x": 1, 7: 2, 2**64 - 1: b"", "y": [], "z": 0}})
    said = "'x', 7, 18446744073709551615, ..., which the recipe does not ask for; it is ignored"
    assert outcome.notes == [f"round 1: the upload of client 1 holds {said}"]


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda b: b.replace(size=1, values=b.values[:1]), "it has 1 values for 650 positions"),
     (lambda b: b.replace(values=b.values * np.nan),
      "behind std.mean (aggregate) has 650 of 650 values NaN or infinite"),
     (lambda b: b.replace(positions=np.arange(1, SIZE + 1, dtype=np.uint32)), "it has position 650, but the")],
    ids=["one value", "nan", "beyond"],
)  # fmt: skip
def test_clients_add_no_aggregate_that_cannot_be(monkeypatch: pytest.MonkeyPatch, change: Any, said: str) -> None:
    def prepare(protocol: Protocol, engine: Engine) -> None:
        opened = protocol.sums.open

        def other(*arguments: Any, **named: Any) -> Any:
            return {zone: change(block) for zone, block in opened(*arguments, **named).items()}

        monkeypatch.setattr(protocol.sums, "open", other)

    outcome = run_protocol(PLAIN | {"rounds": 1}, prepare=prepare)
    (found,) = outcome.rows[0].unopened
    assert (found.zone, found.clients) == ("noised", [0, 1, 2, 3])
    assert said in found.reason
    assert np.isfinite(outcome.vector).all()


# -- any garbage -------------------------------------------------------------------------------------------------------

ARRAYS = hnp.arrays(
    hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.unsigned_integer_dtypes() | hnp.floating_dtypes(sizes=(16, 32)),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3) | st.just((SIZE,)),
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.just(10**30) | st.just(-(2**70)) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=40) | ARRAYS | st.just(PLAN)
    | st.just(Block("clear", 0)) | st.sampled_from(["noised", "clear", "std.clip", "std.bfv", 0, 1, 650])
)  # fmt: skip
GARBAGE = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.integers(-(2**63), 2**64 - 1) | st.booleans(), inner, max_size=3)
    ),
    max_leaves=5,
)
BLOCK_FIELDS = (
    "zone", "size", "values", "positions", "ciphertexts", "sealed_by", "contributors", "divisor", "weighted",
    "meta", "unheard_of",
)  # fmt: skip
LWE = {"use": "baselines.lwe", "noise_multiplier": 0.5, "source": "reproducible", "dimension": 640}
FUZZED: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "positions": recipe_of(negotiate_mask={"use": "toy.own"}),
    "buffers": recipe_of(model={"use": "std.cnn", "hidden": 4}, buffers="mean"),
    "bfv": recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "clients", "range": 0.5}]),
    "bfv at positions": recipe_of(
        "encrypted", [{"use": "std.bfv", "key_holder": "clients", "range": 0.5}],
        negotiate_mask={"use": "toy.masks", "other_zone": "retained"},
    ),
    "scrambled": recipe_of("noised", [CLIP, "fas.scramble"], postprocess={"noised": ["fas.scramble"]}),
    "lwe": recipe_of("encrypted", [CLIP, LWE], aggregate=UNIFORM, postprocess={"encrypted": ["baselines.lwe"]}),
}  # fmt: skip


class LongRun:
    """A run of as many rounds as a test needs, in each of which one upload may be replaced."""

    def __init__(self, plain: dict[str, Any]) -> None:
        plain = {**plain, "rounds": 1000, "min_clients": 2, "train": {"use": "toy.push", "scale": 0.0}}
        self.protocol, self.engine, _ = build(plain)
        self.edit: Any = None
        edit_replies(self.engine, self.protocol, lambda reply: self.edit(reply), rounds=None)
        self.protocol.setup()
        self.rounds = itertools.count()

    def round(self, edit: Any) -> dict[str, str]:
        """Runs one round. Returns the clients that dropped out, with the reasons."""
        self.edit = edit
        self.protocol.round(next(self.rounds))
        return {str(client): reason for client, reason in self.protocol.office.dropped.items()}


@pytest.fixture(scope="module", params=FUZZED)
def long_run(request: pytest.FixtureRequest) -> Iterator[LongRun]:
    run = LongRun(FUZZED[request.param])
    yield run
    run.engine.close()


def spoilt(reply: dict[str, Any], path: list[Any], garbage: Any) -> dict[str, Any]:
    """The reply with garbage at a place: under `value`, in a block's fields, or in a block's meta."""

    def inside(value: Any, rest: list[Any]) -> Any:
        if not rest:
            return garbage
        if isinstance(value, Block):
            return raw_block(inside(raw_fields(value), rest))
        held = value if isinstance(value, dict) else {}
        return {**held, rest[0]: inside(held.get(rest[0]), rest[1:])}

    return {**reply, "value": inside(reply["value"], path)}


@given(data=st.data(), garbage=GARBAGE)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_garbage_in_one_field_costs_at_most_its_sender_the_round(
    long_run: LongRun, data: st.DataObject, garbage: Any
) -> None:
    field = st.sampled_from(BLOCK_FIELDS).map(lambda name: ["block", name])
    meta = st.sampled_from(["key", "step", "shares", "fewest", "counts"]).map(lambda name: ["block", "meta", name])
    path = data.draw(st.sampled_from([[], ["blocks"], ["block"], ["buffers"], ["unheard_of"]]) | field | meta)

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        place = path
        if path[:1] == ["block"]:
            place = ["blocks", next(iter(reply["value"]["blocks"])), *path[1:]]
        return spoilt(reply, place, garbage)

    dropped = long_run.round(edit)
    assert dropped.keys() <= {"1"}


def test_the_fuzzed_runs_do_sum_what_is_right(long_run: LongRun) -> None:
    assert long_run.round(lambda reply: reply) == {}


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, -1], [1, 2, 3.0], "many", [1, 2, True], {"a": 1}])
def test_counts_of_classes_that_are_none_are_refused(counts: Any) -> None:
    assert read_hello({"classes": [4, 0, 5]}, False, False, classes=3).classes == [4, 0, 5]
    assert read_hello({"classes": [4, 0, 5]}, False, False).classes is None  # it was not requested
    with pytest.raises(MessageError, match="classes"):
        read_hello({"classes": counts}, False, False, classes=3)
