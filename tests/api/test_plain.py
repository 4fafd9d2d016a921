"""Values made fit for JSON, and what others say for terminals and logs."""

from __future__ import annotations

import json
import math

import pytest
from fedplug.api.codec import encode, frame
from fedplug.api.plain import json_ready, one_line
from fedplug.wire.calls import read_reply


def test_numbers_that_json_does_not_know() -> None:
    plain = json_ready({"loss": math.nan, "epsilon": math.inf, "deep": [(1.5, -math.inf)]})
    assert json.loads(json.dumps(plain, allow_nan=False)) == {"loss": None, "epsilon": "inf", "deep": [[1.5, "-inf"]]}


@pytest.mark.parametrize("text", ["\x1b[2Jgone\r\nnote: all is well\x00", "x" * 100_000, "a\u202eb\u2028c"])
def test_errors_of_clients_are_one_short_line(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text)) <= 500
    body = {"error": {"call": text, "message": text, "kind": text}, "done": 0, "saved": 0, "reports": {}}
    reply, _ = read_reply(frame(encode(body)))
    assert reply.error is not None
    for said in (reply.error.call, reply.error.kind, reply.error.message):
        assert said.isprintable()
        assert len(said) <= 500
