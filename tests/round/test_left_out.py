"""What no sum holds: counted from the positions of the uploads and of the sum."""

from __future__ import annotations

from fedplug.api.rows import LeftOut, Row
from fedplug.api.types import Block
from fedplug.round.left_out import left_out
from numpy import array, float32, uint32, zeros
from row_toys import a_row


def closed(*positions: int) -> Block:
    where = array(positions, uint32)
    return Block("encrypted", len(where), positions=where, ciphertexts=(b"c",), sealed_by="toy.seal")


def test_the_worked_example() -> None:
    """Three clients, at least two a position: 1, 2 and 5 are held; 3 and 9 are not, each of one client."""
    uploads = {0: closed(1, 2, 3), 1: closed(1, 2, 5), 2: closed(5, 9)}
    found = left_out(closed(1, 2, 5), uploads, 1)
    assert found == LeftOut(2, 8, {0: 1 / 3, 1: 0.0, 2: 1 / 2}, "toy.seal")
    assert found.share == 2 / 8


def test_a_ciphertext_that_holds_something_else_too_is_not_in_vain() -> None:
    """Four positions a ciphertext: 3 shares one with 1 and 2, 9 has one of its own."""
    uploads = {0: closed(1, 2, 3), 1: closed(1, 2, 5), 2: closed(5, 9)}
    found = left_out(closed(1, 2, 5), uploads, 4)
    assert found is not None
    assert found.values == 2
    assert found.ciphertexts == {0: 0.0, 1: 0.0, 2: 1 / 2}


def test_all_of_it() -> None:
    found = left_out(closed(), {0: closed(1), 1: closed(2), 2: closed()}, 1)
    assert found == LeftOut(2, 2, {0: 1.0, 1: 1.0, 2: 0.0}, "toy.seal")
    assert left_out(closed(), {0: closed()}, 1) == LeftOut(0, 0, {0: 0.0}, "toy.seal")
    assert LeftOut(0, 0, {}, "toy.seal").share == 0


def test_nothing_is_left_out_where_zones_are_plain_or_lie_alike() -> None:
    plain = Block("clear", 2, values=zeros(2, float32), positions=array([1, 2], uint32))
    assert left_out(plain, {0: plain}, 1) is None
    alike = Block("encrypted", 2, ciphertexts=(b"c",), sealed_by="toy.seal")
    assert left_out(alike, {0: alike}, 0) is None


def test_a_row_keeps_it() -> None:
    row = a_row(1, left_out={"encrypted": LeftOut(2, 8, {0: 0.5, 3: 0.0}, "toy.seal").to_plain()})
    assert Row.from_json(row.to_json()) == row
    assert row.left_out["encrypted"].share == 0.25
