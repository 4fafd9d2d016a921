"""Secret samples: their distribution, and that no two streams meet. Tails and float64: `plugins/std/tests`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug.mechanisms import secure
from fedplug.mechanisms.secure import BLOCK, SecureNoise
from scipy import stats  # type: ignore[import-untyped]


@pytest.mark.parametrize(("kind", "law"), [("gaussian", stats.norm), ("laplace", stats.laplace)])
def test_samples_have_the_distribution_and_share_nothing(kind: str, law: Any) -> None:
    """A right sampler fails with probability below 1e-8."""
    one, other = (np.array(getattr(SecureNoise(), kind)(2.0, BLOCK)) for _ in range(2))
    for samples in (one, other):
        assert stats.kstest(samples / 2.0, law.cdf).pvalue > 1e-9
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(BLOCK)


def test_each_stream_has_its_own_key_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    urandom = secure.os.urandom
    monkeypatch.setattr(secure.os, "urandom", lambda size: keys.append(urandom(size)) or keys[-1])
    SecureNoise()
    SecureNoise()
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
