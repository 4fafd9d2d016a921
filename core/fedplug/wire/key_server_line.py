"""`key_server.ask`: the only way from the server to the key server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedplug.api.component import named
from fedplug.api.errors import ClientError, MessageError, OpenedBefore, PartyLost, Refusal
from fedplug.api.typed import one_line
from fedplug.wire import calls
from fedplug.wire.calls import Call
from fedplug.wire.post_office import PostOffice
from fedplug.wire.record import KEY_SERVER, SERVER


class KeyServerLine:
    """The server's line to the key server."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self.seconds = 0.0
        self.operations: dict[str, list[float]] = {}  # name -> [count, seconds], as the key server reports them

    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """Runs `method(key_server, *payload)` at the key server and gives its reply.

        If its process ends meanwhile, it is restored with its keys from the last checkpoint and asked once more.

        Raises:
            OpenedBefore: it refuses to open another sum of the round than before.
            Refusal: the key server refused this call, or failed at it, or gave an answer that cannot be read.
            ClientError: it is gone.
        """
        office = self._office
        call = Call.of(method, payload, "key_server", office.round)
        data, zones = calls.request(office.digest, [call], stays=office.stays)
        started = time.perf_counter()
        for _ in range(2):
            office.wire.record(SERVER, KEY_SERVER, office.round, "open", data, zones)
            ((_, answer),) = office.transport.exchange({KEY_SERVER: data})
            if not isinstance(answer, PartyLost):
                break
        office.waited += time.perf_counter() - started
        if isinstance(answer, Exception):
            raise ClientError(f"the key server is gone: {answer}") from answer
        try:
            reply, zones = calls.read_reply(answer)
        except MessageError as error:
            office.wire.record(KEY_SERVER, SERVER, office.round, "open", answer, {})
            raise Refusal(f"the key server's answer cannot be used: {one_line(str(error))}") from error
        office.wire.record(KEY_SERVER, SERVER, office.round, "open", answer, zones)
        self.seconds += reply.reports.seconds_total
        for name, (count, took) in reply.reports.operations.items():
            total = self.operations.setdefault(name, [0.0, 0.0])
            total[0], total[1] = total[0] + count, total[1] + took
        if reply.error is not None:
            said = f"the key server refused {reply.error.call}: {reply.error.message}"
            raise OpenedBefore(said) if reply.error.kind == OpenedBefore.__name__ else Refusal(said, reply.error.kind)
        component, name = named(method)
        office.hear(component.name, name, reply.value)
        return reply.value
