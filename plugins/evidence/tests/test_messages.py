"""Facts about recorded messages: compressible and repeated ciphertexts are found; without a record there are none."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import CheckpointError
from fedplug_evidence.messages import entropy, entropy_of_random, sent_in, ways_of
from fedplug_runs.compared import Compared
from fedplug_runs.folder import read_rows
from fedplug_runs.rows import Sent, Traffic
from fedplug_runs.wire_record import Message, framed


def answer(client: int, round: int, block: Block) -> bytes:
    body = {"value": {"blocks": {block.zone: block}, "stated": {}}, "done": 0, "saved": 0, "reports": {}}
    data = codec.frame(codec.encode(body))
    return framed(Message(f"client:{client}", "server", round, "upload", data, len(data), {block.zone: 1}))


def recorded(folder: Path, *answers: bytes) -> Path:
    (folder / "wire").mkdir()
    for round, data in enumerate(answers):
        (folder / "wire" / f"round-{round:04d}.wire").write_bytes(data)
    return folder


def sealed(*parts: bytes) -> Block:
    return Block("encrypted", 4, None, ciphertexts=parts, sealed_by="acme.he")


def test_ciphertexts_that_compress_or_repeat_are_seen(tmp_path: Path) -> None:
    one, other = os.urandom(5000), os.urandom(5000)
    run = recorded(
        tmp_path, answer(0, 0, sealed(one)) + answer(1, 0, sealed(other)), answer(0, 1, sealed(one, bytes(5000)))
    )
    sent = sent_in(run, [])
    (closed,) = sent.closed
    assert (sent.recorded, sent.messages, sent.answers) == (True, 3, 3)
    assert (closed.uploads, closed.pieces, closed.bytes, closed.repeated) == (3, 4, 20_000, 1)
    assert closed.least < 0.01
    assert closed.random == pytest.approx(entropy_of_random(5000))


def test_values_are_counted_by_zone(tmp_path: Path) -> None:
    values = Block("noised", 3, np.ones(3, np.float32))
    sent = sent_in(recorded(tmp_path, answer(0, 0, values) + answer(1, 0, values)), [])
    assert (sent.values, sent.closed) == ({"noised": 6}, [])


def test_questions_are_counted_and_no_more(tmp_path: Path) -> None:
    data = codec.frame(codec.encode({"digest": "", "known": 0, "calls": []}))
    sent = sent_in(recorded(tmp_path, framed(Message("server", "client:0", 0, "upload", data, len(data), {}))), [])
    assert (sent.messages, sent.bytes, sent.answers, sent.closed) == (1, len(data), 0, [])


def test_without_a_record_nothing_is_known(tmp_path: Path) -> None:
    sent = sent_in(tmp_path, [])
    assert not sent.recorded
    assert sent.compared is None


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    run = recorded(tmp_path, answer(0, 0, sealed(b"x" * 99))[:-3])
    with pytest.raises(CheckpointError, match=r"round-0000.wire is damaged .*restore it from a copy"):
        sent_in(run, [])


def test_what_clients_found_is_added_up(runs: dict[str, Path], tmp_path: Path) -> None:
    rows = read_rows(runs["clear"])
    said = [Compared(2, {"noised": 5}, {"noised": 1}), Compared(3, {"noised": 5, "encrypted": 7}, {})]
    rows = [dataclasses.replace(row, compared=one) for row, one in zip(rows, said, strict=True)]
    assert sent_in(tmp_path, rows).compared == Compared(5, {"noised": 10, "encrypted": 7}, {"noised": 1})


def test_bytes_by_zone_do_not_tell_rounds_where_cohorts_are_secret(runs: dict[str, Path]) -> None:
    traffic = Traffic(Sent(7, {"noised": 5, "other": 2}), Sent(3, {"other": 3}), Sent())
    rows = [dataclasses.replace(row, bytes=traffic) for row in read_rows(runs["clear"])]
    told = {(way.round, way.way, way.zone): way.bytes for way in ways_of(rows, secret=False)}
    assert told[1, "up", "noised"] == told[2, "up", "noised"] == 5
    assert {(way.round, way.way, way.zone): way.bytes for way in ways_of(rows, secret=True)} == {
        (0, "up", "noised"): 10, (0, "up", "other"): 4, (0, "down", "other"): 6,
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 16, 300, 5000, 60_000])
def test_random_bytes_have_the_entropy_of_random_bytes(size: int) -> None:
    rng = np.random.default_rng(1)
    mean = np.mean([entropy(rng.bytes(size)) for _ in range(40)])
    assert entropy_of_random(size) == pytest.approx(mean, abs=0.06 if size < 1000 else 0.005)
