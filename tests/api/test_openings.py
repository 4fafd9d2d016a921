"""The notes of opened sums: separate entries, what is refused, and the error for a damaged file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import CheckpointError, MessageError, OpenedBefore, ProtectionError
from fedplug.api.parties import Openings
from fedplug_runs.openings import Notes


def openings_in(file: Path) -> Openings:
    address = file.stem.replace("-", ":")
    return Notes().openings(file.parent, {address: 0})[address]


def opened(openings: Openings, *what: Any) -> None:
    with openings.once(*what):
        pass


def test_groups_of_a_round_and_rounds_and_zones_are_separate(tmp_path: Path) -> None:
    file = tmp_path / "openings" / "key_server.jsonl"
    openings = openings_in(file)
    opened(openings, 0, "encrypted", "a", [0, 1, 2], [b"1"])
    opened(openings, 0, "encrypted", "b", [3, 4], [b"2"])
    opened(openings, 0, "other", "a", [0, 1, 2], [b"3"])
    opened(openings, 1, "encrypted", "a", [0, 1], [b"4"])
    again = openings_in(file)
    opened(again, 0, "encrypted", "a", (2, 1, 0), (b"1",))  # nothing new
    assert len(again) == len(openings) == 4
    refused = [
        (0, "encrypted", "a", [5, 6], [b"5"]),  # another sum of the group
        (0, "encrypted", "c", [2, 5, 6], [b"5"]),  # new groups were formed, and client 2 is in an opened sum
        (0, "encrypted", "c", [0, 1, 2], [b"1"]),
        (0, "encrypted", "a", [0, 1, 2], [b"", b"1"]),
    ]
    for what in refused:
        with pytest.raises(OpenedBefore, match="a sum of zone encrypted in round 1 was opened before"):
            opened(again, *what)
    opened(again, 0, "encrypted", "c", [5, 6], [b"6"])
    assert len(again) == len(openings_in(file)) == 5


def test_a_secret_serves_as_often_as_is_said_and_the_same_content_again(tmp_path: Path) -> None:
    file = tmp_path / "openings" / "client-0.jsonl"
    for _ in range(2):  # going back to a checkpoint takes none of it back
        openings = openings_in(file)
        openings.use(0, "a key", [b"1"])
        with pytest.raises(ProtectionError, match="a key in round 1 was used before, for something else; together"):
            openings.use(0, "a key", [b"2"])
        openings.use(1, "a key", [b"2"])
        for content in (b"1", b"2", b"1"):
            openings.use(0, "noise", [content], 2)
        with pytest.raises(ProtectionError, match="noise in round 1 was used 2 times, for something else"):
            openings.use(0, "noise", [b"3"], 2)
    assert len(openings) == 4


@pytest.mark.parametrize("what", [(-1, "z", "", [0]), (0, 5, "", [0]), (0, "z", "", ["a"]), (0, "\ud800", "", [0])])
def test_what_could_not_be_read_again_is_refused_and_damages_no_file(what: Any, tmp_path: Path) -> None:
    """A server says what is noted: it must not keep the party from starting again."""
    openings = openings_in(tmp_path / "client-0.jsonl")
    with pytest.raises(MessageError, match="there is no such sum: "):
        opened(openings, *what, [b"1"])
    assert len(openings_in(tmp_path / "client-0.jsonl")) == 0


def test_what_does_not_open_is_not_noted(tmp_path: Path) -> None:
    openings = openings_in(tmp_path / "client-0.jsonl")
    with pytest.raises(ZeroDivisionError), openings.once(0, "encrypted", "all", [0, 1], [b"1"]):
        raise ZeroDivisionError
    assert len(openings) == 0
    opened(openings, 0, "encrypted", "all", [0, 1, 2], [b"2"])


def test_a_sum_whose_note_cannot_be_written_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openings = openings_in(tmp_path / "client-0.jsonl")
    opened(openings, 0, "encrypted", "all", [0, 1], [b"1"])
    whole = (tmp_path / "client-0.jsonl").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            opened(openings, 1, "encrypted", "all", [0, 1], [b"2"])
    assert (tmp_path / "client-0.jsonl").read_bytes() == whole
    assert len(openings) == 1
    opened(openings, 1, "encrypted", "all", [0, 1], [b"2"])
    assert len(openings_in(tmp_path / "client-0.jsonl")) == 2


def test_a_line_that_was_cut_off_was_never_answered_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "openings" / "client-0.jsonl"
    for round in range(2):
        opened(openings_in(file), round, "encrypted", "all", [0, 1], [b"1"])
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:-9])
    assert len(openings_in(file)) == 1
    assert file.read_bytes() == first
    others = (first.replace(b"[0, 1]", b'["0"]'), first.replace(b"0,", b'"",', 1))
    for line in (b"{nonsense\n", b'{"round": 1}\n', *others):
        file.write_bytes(first + line + second)
        with pytest.raises(CheckpointError, match="line 2, is damaged") as caught:
            openings_in(file)
        assert f"{file}, line 2" in str(caught.value)
        assert f"fedplug run {tmp_path / 'recipe.yaml'}" in str(caught.value)
