"""The record of the privacy account: written and read back unchanged, and refused with the name of the error."""

from __future__ import annotations

import dataclasses
import math

import pytest
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_ledger.ledger_record import SCHEMA, EncryptionReport, LedgerReport
from ledger_toys import CENTRAL, LOCAL, FakeAccountant, enter, ledger_of
from row_toys import a_ledger


def reports() -> list[LedgerReport]:
    """Records of a mix of zones, of noise that protects nobody, of a secret cohort, and of no round."""
    shown = [Reveals("mask", ("server", "client"), asked=("vote",), note="of each")]
    schemes = {"encrypted": EncryptionReport("clients", False, "std.bfv", "BFV 4096 [60, 49]")}
    mixed = ledger_of(reveals=shown, encryption=schemes)
    enter(mixed, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    known = enter(ledger_of(), {"noised": 9}, {"noised": [Release("gaussian", 0.0, math.nan, source="reproducible")]})
    sampling = {"scheme": "poisson", "rate": 0.1, "source": "secure"}
    secret = ledger_of(num_clients=500, sampling=sampling, accountant=FakeAccountant())
    enter(secret, {"noised": 9}, {"noised": [CENTRAL]}, charged=[0, 3], secret_cohort=True)
    return [ledger.report() for ledger in (mixed, known, secret, ledger_of())] + [a_ledger()]


@pytest.mark.parametrize("place", range(5))
def test_what_a_ledger_says_is_read_back_as_it_was(place: int) -> None:
    report = reports()[place]
    found = LedgerReport.from_json(report.to_json(indent=2))
    assert found.to_json() == report.to_json()
    assert (found.schema, found.verdict, found.epsilon) == (SCHEMA, report.verdict, report.epsilon)


def test_epsilon_is_the_one_to_quote_and_none_where_nothing_is_promised() -> None:
    mixed, known, secret, empty, nothing = reports()
    assert mixed.epsilon == mixed.zones["noised"].epsilon == pytest.approx(1.0)
    assert mixed.zones["encrypted"].epsilon is None
    assert mixed.views["released_model"].epsilon is None
    assert mixed.encryption["encrypted"].parameters == "BFV 4096 [60, 49]"
    assert mixed.reveals[0].asked == ("vote",)
    assert known.epsilon == math.inf
    assert known.views["server"].epsilon is None
    assert known.views["server"].nominal is not None
    assert secret.epsilon == secret.views["released_model"].epsilon == 0.5
    assert secret.sampling.rate == 0.1
    assert empty.epsilon is nothing.epsilon is None
    assert nothing.verdict.status == "nothing_run"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(LedgerReport)])
def test_a_field_that_is_missing_or_of_another_type_is_named(field: str) -> None:
    plain = reports()[0].to_plain(for_json=True)
    with pytest.raises(ValueError, match=rf"^{field}\b"):
        LedgerReport.from_plain({**plain, field: [{"x": object()}] if field != "log" else 3})
    del plain[field]
    with pytest.raises(ValueError, match=f"^{field}: field required"):
        LedgerReport.from_plain(plain)
    with pytest.raises(ValueError, match=r"^novelty"):
        LedgerReport.from_plain({**reports()[0].to_plain(), "novelty": 1})








