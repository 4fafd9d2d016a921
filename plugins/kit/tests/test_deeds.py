"""What links do with awkward inputs, and whether sums are sums."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Bound, hookimpl
from fedplug_kit import conformance


class Shortens(fedplug.Protector):
    """To a length of 1, whatever the length was; fails where there is nothing to shorten."""

    def effects(self, known: Any, ctx: Any) -> Any:
        return (Bound(1.0),)

    def length(self, values: Any) -> float:
        return float(np.linalg.norm(values.astype(np.float64)))

    @hookimpl
    def protect(self, block: Any, client: Any, ctx: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return block.replace(values=(block.plain() / np.float64(self.length(block.plain()))).astype(np.float32))


class ByTheLargest(Shortens):
    """Takes the largest value for the length, which is right for one value alone."""

    effects, protect = Shortens.effects, Shortens.protect

    def length(self, values: Any) -> float:
        return max(1e-9, float(np.abs(values).max()) * (8 if np.ptp(values) else 1))


@pytest.mark.parametrize(("link", "given"), [(Shortens, "given zeros: .* NaN"), (ByTheLargest, "L2 norm of at most 1")])
def test_links_are_tried_with_awkward_values(link: type, given: str) -> None:
    with pytest.raises(AssertionError, match=given):
        conformance(link)
