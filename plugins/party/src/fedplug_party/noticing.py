"""Signs in the models from the server that no training leaves. A client's program reports them at its site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedplug.round.parties import ClientHost
from fedplug_std.handed import alarms, signs

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout
    from numpy.typing import NDArray


class Noticing:
    """Compares each model that arrives with the one before it.

    Args:
        layout: of the model.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._last: NDArray[Any] | None = None

    def __call__(self, host: object) -> list[str]:
        """A sentence on each sign that no training leaves in a model. Each model is checked once."""
        said: list[str] = []
        for client in host.clients.values() if isinstance(host, ClientHost) else ():
            now, before, self._last = client.vector, self._last, client.vector
            if now is not None and before is not None and now is not before:
                said += alarms(signs(now, before, self._layout))
        return said
