"""BFV and CKKS alike: weights, sizes, ranges and what both say of themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import Known, Sealer
from fedplug.api.errors import ProtectionError
from fedplug_kit.static import check_component
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from he_toys import Parties


@pytest.mark.parametrize("kind", [Bfv, Ckks])
def test_conforms(kind: Any) -> None:
    check_component(kind)


def test_what_components_declare(parties: Parties) -> None:
    component = parties.component
    assert component.site == {"clients": "client", "key_server": "key_server"}[component.options.key_holder]
    assert component.cohort_secret == (component.site == "client")
    assert isinstance(component, Sealer)
    facts = parties.facts
    (seal,) = component.protect(Known(zone="encrypted", link=component.name), facts)
    assert (seal.opened_by, seal.sums_visible_to) == (component.options.key_holder, "server")
    assert (seal.range, seal.step > 0) == (component.options.range, True)
    assert ("every client" in component.describe()) == (component.site == "client")
    assert "\n" not in component.describe()
    assert len(component.reveals(facts)) == (3 if component.site == "client" else 2)


def test_weights_are_multiplied_in_and_divided_out(parties: Parties) -> None:
    rng = np.random.default_rng(1)
    updates, weights = rng.uniform(-1, 1, (5, 7)), [1.0, 0.5, 0.25, 0.125, 0.7]
    blocks = {index: parties.seal(index, updates[index], weights[index]) for index in range(5)}
    assert all(block.values is None and block.weighted for block in blocks.values())
    assert [block.divisor for block in blocks.values()] == weights
    mean = parties.open(parties.add(blocks)).mean()
    assert np.abs(mean - np.average(updates, axis=0, weights=weights)).max() < 1e-5 * 5 / sum(weights)


@pytest.mark.parametrize("size", [0, 1, 2, 2047, 2048, 4094, 4095, 8190, 8191, 9001])
def test_every_size_fits(parties: Parties, size: int) -> None:
    updates = np.random.default_rng(size).uniform(-1, 1, (3, size)).astype(np.float32)
    blocks = {index: parties.seal(index, updates[index]) for index in range(3)}
    assert bool(size) == bool(blocks[0].ciphertexts)
    opened = parties.open(parties.add(blocks))
    assert opened.plain().shape == (size,)
    assert np.abs(opened.plain() - updates.sum(0)).max(initial=0) < 3e-5


def test_saturation_is_logged_and_nan_refused(parties: Parties) -> None:
    parties.seal(0, [0.5, 2.0, -3.0, 0.0])
    assert parties.clients[0].log[f"{parties.component.name}.saturated"] == 0.5
    with pytest.raises(ProtectionError, match="NaN or infinite"):
        parties.seal(0, [0.5, np.nan])


def test_encrypting_prints_nothing(parties: Parties, capfd: pytest.CaptureFixture[str]) -> None:
    parties.seal(0, np.zeros(20_000))
    assert capfd.readouterr().out == ""
