"""Carries requests to parties as tasks of NVFlare, one for each, and returns their replies."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping

from fedplug.api.errors import PartyLost

Ask = Callable[[str, bytes, float, Callable[[bytes | str], None]], None]
"""Gives a site a request, with the seconds to wait; the function is called with the reply, or why there is none."""
_LOOK = 0.5
"""Seconds between two looks at whether NVFlare has stopped the job."""
_GRACE = 30.0
"""Seconds that a site has in addition to its party's deadline, for the way there and back."""


class NvflareTransport:
    """Reaches parties through the sites of a federation.

    Args:
        ask: gives a site a task.
        sites: by the address of a party, the name of its site.
        there: the sites that are connected now.
        stopped: whether NVFlare has stopped the job.
    """

    def __init__(
        self, ask: Ask, sites: Mapping[str, str], there: Callable[[], set[str]], stopped: Callable[[], bool]
    ) -> None:
        self._ask, self._sites, self._there, self._stopped = ask, sites, there, stopped

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        """Sends all requests at once and yields each reply once, as it arrives.

        Raises:
            KeyboardInterrupt: NVFlare has stopped the job.
        """
        arrived: queue.Queue[tuple[str, bytes | str]] = queue.Queue()
        waiting, there = set[str](), self._there()
        for address, data in requests.items():
            site = self._sites.get(address, "")
            if site in there:
                waiting.add(address)
                self._ask(site, data, seconds, lambda answer, address=address: arrived.put((address, answer)))  # type: ignore[misc]
            else:
                yield address, PartyLost(f"{address}: the site {site or 'of its name'} is not connected")
        until = time.monotonic() + seconds + _GRACE
        while waiting:
            if self._stopped():
                raise KeyboardInterrupt("NVFlare stopped the job")
            try:
                address, answer = arrived.get(timeout=min(_LOOK, max(0.0, until - time.monotonic())))
            except queue.Empty:
                if time.monotonic() < until:
                    continue
                given = f"{seconds:g} seconds"
                yield from ((each, PartyLost(f"{each}: its site did not answer within {given}")) for each in waiting)
                return
            if address in waiting:  # else it came twice
                waiting.remove(address)
                yield address, answer if isinstance(answer, bytes) else PartyLost(f"{address}: {answer}")

    def close(self) -> None:
        """NVFlare ends its tasks when the job ends."""


def deadline(seconds: float) -> int:
    """Whole seconds for a task of NVFlare, which takes 0 for no limit."""
    return 0 if math.isinf(seconds) else math.ceil(seconds + _GRACE)
