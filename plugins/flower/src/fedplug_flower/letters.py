"""The content of our Flower messages: bytes that Flower does not read with a time limit, or the reason for a failure.

The bytes travel as an array of uint8 in an ArrayRecord, which Flower cuts into pieces. Bytes in a ConfigRecord are two
to seven times slower and fail at a gigabyte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fedplug.api.errors import MessageError
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from numpy.typing import NDArray

KIND = "query"
"""The Flower message type of all our messages."""
_LONGEST_REASON = 1000


def request(data: bytes, seconds: float) -> RecordDict:
    """The content of a message to a party. The party has this many seconds to answer (`inf`: no limit)."""
    return RecordDict({"bytes": _packed(data), "terms": ConfigRecord({"seconds": float(seconds)})})


def reply(data: bytes) -> RecordDict:
    """The content of a party's answer."""
    return RecordDict({"bytes": _packed(data)})


def failure(reason: str) -> RecordDict:
    """The content of an answer with the reason why the party gave none."""
    return RecordDict({"failure": ConfigRecord({"reason": reason[:_LONGEST_REASON]})})


def data_of(message: Message) -> bytes:
    """The bytes of a request or a reply.

    Raises:
        MessageError: there are none. For a failure, it gives the reason.
    """
    if message.has_error():
        raise MessageError(f"Flower reports: {message.error.reason}")
    content = message.content
    if "failure" in content.config_records:
        raise MessageError(str(content.config_records["failure"].get("reason", "no reason given"))[:_LONGEST_REASON])
    arrays = content.array_records.get("bytes")
    if arrays is None or "data" not in arrays:
        raise MessageError("a message of another app: it contains no bytes for a party")
    array = arrays["data"]
    if array.dtype != "uint8" or len(array.shape) != 1:
        raise MessageError(f"a message whose bytes are an array of {array.dtype} and shape {tuple(array.shape)}")
    values: NDArray[np.uint8] = array.numpy()
    return values.tobytes()


def seconds_of(message: Message) -> float:
    """How long a party may be silent before it answers a request.

    Raises:
        MessageError: the message does not say.
    """
    seconds = message.content.config_records.get("terms", ConfigRecord()).get("seconds")
    if not isinstance(seconds, float) or not seconds > 0:
        raise MessageError(f"a request that gives a party {seconds!r} seconds, not a number above 0")
    return seconds


def size(message: Message) -> int:
    """Bytes of a message as Flower stores and sends it; headers of HTTP and TLS come on top."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())


def _packed(data: bytes) -> Any:
    return ArrayRecord({"data": Array(np.frombuffer(data, np.uint8))})
