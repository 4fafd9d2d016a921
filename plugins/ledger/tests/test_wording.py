"""The words for what each party sees."""

from __future__ import annotations

from typing import Any

import pytest
from ledger_toys import (
    LOCAL,
    enter,
    held,
    ledger_of,
)


@pytest.mark.parametrize(
    ("holders", "facts", "said"),
    [
        ({"encrypted": "key_server"}, {}, ["the server together with the key server can decrypt every upload"]),
        ({"encrypted": "clients"}, {}, []),
        ({"encrypted": "shares"}, {"min_clients": 4}, ["the server together with 3 clients can open single uploads"]),
        ({"encrypted": "shares"}, {}, ["the server together with 2 clients can open single uploads"]),
        ({"encrypted": "shares"}, {"min_clients": 4, "colluders": 3}, []),
        ({"encrypted": "shares"}, {"min_clients": 4, "colluders": 2},
         ["the server together with 3 clients can open single uploads"]),
    ],
)  # fmt: skip
def test_coalitions_that_open_uploads_and_have_no_line_are_named(
    holders: dict[str, str], facts: dict[str, Any], said: list[str]
) -> None:
    ledger = enter(ledger_of(holders, **facts), {"encrypted": 1000}, {"encrypted": [held(108.0, 2.0**-17)]})
    assert ledger.verdict().not_judged == said
    more = enter(ledger_of(holders, **facts), {"encrypted": 100, "clear": 900}, {})
    assert [clause.partition(" can ")[2].partition(" of ")[0] for clause in more.verdict().not_judged] == [
        f"{clause.partition(' can ')[2].split()[0]} the encrypted zone" for clause in said
    ]


def test_a_clients_view_says_how_many_colluders_it_covers() -> None:
    found = enter(ledger_of(), {"noised": 10}, {"noised": [LOCAL]}).report().views
    assert found["client"].colluders == 1
    assert "one client" in found["client"].detail


def test_a_sum_that_may_be_one_update_is_not_called_a_sum() -> None:
    ledger = ledger_of(key_holders={"encrypted": "key_server"}, min_clients=1)
    enter(ledger, {"encrypted": 100}, {})
    line = ledger.report().views["server"]
    assert "single updates" in line.reason
    assert "sums" not in line.reason
