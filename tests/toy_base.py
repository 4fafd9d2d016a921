"""What every toy component has."""

from __future__ import annotations

import fedplug


class Toy(fedplug.Component):
    """Keeps its options."""

    class Options(fedplug.Options):
        """No options."""
