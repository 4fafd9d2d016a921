"""Batch-norm buffers: those that cannot be the model's cost their sender the round, and no client takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edited_uploads import LOCAL, MEAN, buffers_of, run_edited, with_entry
from fedplug.api.cohort import Cohort
from fedplug.engines.base import Engine
from fedplug.round.protocol import Protocol
from toy_protocol import run_protocol


def changed(name: str, change: Any) -> Any:
    """Edits one batch-norm buffer of an upload, the first whose name ends so."""

    def edit(reply: dict[str, Any]) -> dict[str, Any]:
        buffers = dict(reply["value"]["buffers"])
        full = next(full for full in buffers if full.endswith(name))
        buffers[full] = change(buffers[full])
        return {**reply, "value": {**reply["value"], "buffers": buffers}}

    return edit


BUFFERS: dict[str, tuple[Any, str]] = {
    "number": (with_entry("buffers", 3), "its batch-norm buffers are 3, not arrays by name"),
    "none": (with_entry("buffers", None), "its batch-norm buffers are None, not arrays by name"),
    "lists": (with_entry("buffers", {"a": [1]}), "its batch-norm buffers are a dict, not arrays by name"),
    "another": (with_entry("buffers", {5: np.ones(1)}), "and hold 5; they must have the names of the model's"),
    "missing": (lambda r: {**r, "value": {"blocks": r["value"]["blocks"]}}, "its batch-norm buffers are None"),
    "longer": (changed("running_mean", lambda b: np.append(b, b)), "the model's is float32["),
    "2-D": (changed("running_var", lambda b: b[None]), "running_var' is float32[1, "),
    "float64": (changed("running_mean", lambda b: b.astype(np.float64)), "running_mean' is float64["),
    "counter": (changed("num_batches_tracked", np.float32), "the model's is int64[]"),
    "nan": (changed("running_mean", lambda b: b * np.nan), "running_mean' holds NaN or infinity"),
    "infinite": (changed("running_var", lambda b: b + np.float32(np.inf)), "running_var' holds NaN or infinity"),
}


@pytest.mark.parametrize("case", BUFFERS)
def test_misshapen_buffers_cost_their_sender_the_round(case: str) -> None:
    edit, said = BUFFERS[case]

    def as_array(reply: dict[str, Any]) -> dict[str, Any]:
        found = edit(reply)
        buffers = found["value"].get("buffers")
        if isinstance(buffers, dict):  # numpy turns an array of no dimension into a number, which travels as one
            buffers = {k: np.asarray(v) if isinstance(v, np.generic) else v for k, v in buffers.items()}
            found["value"] = {**found["value"], "buffers": buffers}
        return found  # type: ignore[no-any-return]

    outcome = run_edited(MEAN, as_array)
    assert [row.clients.answered for row in outcome.rows] == [3, 4]
    assert said in outcome.rows[0].clients.dropped[1]
    assert all(np.isfinite(values).all() for values in buffers_of(outcome).values())


def test_one_client_of_two_does_not_choose_the_names_of_the_buffers() -> None:
    """Against the model's own, not against what most clients send: there is no majority of two."""
    plain = MEAN | {"min_clients": 1, "data": {**MEAN["data"], "clients": 2}}
    outcome = run_edited(plain, with_entry("buffers", {}))
    assert list(outcome.rows[0].clients.dropped) == [1]


@pytest.mark.parametrize(
    ("plain", "handed", "said"),
    [(LOCAL, {}, "buffers: local keeps those of each client"), (MEAN, None, "batch-norm buffers are None"),
     (MEAN, {"a": np.ones(1)}, "hold 'a'")],
    ids=["unasked", "none", "others"],
)  # fmt: skip
def test_clients_take_no_buffers_that_cannot_be_the_models(
    monkeypatch: pytest.MonkeyPatch, plain: dict[str, Any], handed: Any, said: str
) -> None:
    def prepare(protocol: Protocol, engine: Engine) -> None:
        tell = Cohort.tell

        def other(self: Any, method: Any, *payload: Any) -> None:
            if method == protocol.steps.adopt:
                payload = (payload[0], handed, *payload[2:])
            tell(self, method, *payload)

        monkeypatch.setattr(Cohort, "tell", other)

    outcome = run_protocol(plain | {"rounds": 1}, prepare=prepare)
    (found,) = outcome.rows[0].unopened
    assert (found.zone, found.clients) == ("batch-norm buffers", [0, 1, 2, 3])
    assert "cannot take the batch-norm buffers of round" in found.reason
    assert said in found.reason
