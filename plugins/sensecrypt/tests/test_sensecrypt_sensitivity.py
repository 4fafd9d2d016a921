"""|w * gradient|: by hand for a linear model, and close to the change of the loss that it approximates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug.api.data import ClientData, Examples
from fedplug_sensecrypt.sensitivity import Sensitivity

CLASSES, PIXELS = 3, 4


def trained_client(seed: int = 0, count: int = 30) -> Any:
    """A client with a linear model, trained as if by a random step."""
    import torch
    from fedplug_std.torch_model import TorchModel

    rng = np.random.default_rng(seed)
    inputs = rng.random((count, 1, 2, 2)).astype(np.float32)
    examples = Examples(inputs, rng.integers(0, CLASSES, count))
    data = ClientData(examples, examples, examples, classes=tuple("abc"), mean=(0.0,), std=(1.0,))
    model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(PIXELS, CLASSES)))
    local = rng.standard_normal(model.layout.size).astype(np.float32)
    model.set_vector(local)
    return SimpleNamespace(model=model, data=data, local=local, update=0.1 * local)


def losses(client: Any, vector: np.ndarray) -> float:
    client.model.set_vector(vector.astype(np.float32))
    result = client.model.evaluate(client.data.train, client.data)
    return float(result.loss / result.count)


def test_is_weight_times_gradient() -> None:
    """Eq. 2 with the gradient of the mean cross entropy by hand: (softmax - onehot) x^T."""
    client = trained_client()
    scores = Sensitivity(Sensitivity.Options()).score_parameters(client, None)  # type: ignore[arg-type]
    x = client.data.train.inputs.reshape(-1, PIXELS).astype(np.float64)
    weight = client.local[: CLASSES * PIXELS].reshape(CLASSES, PIXELS).astype(np.float64)
    logits = x @ weight.T + client.local[CLASSES * PIXELS :]
    softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    delta = (softmax - np.eye(CLASSES)[client.data.train.labels]) / len(x)
    gradient = np.concatenate([(delta.T @ x).ravel(), delta.sum(0)])
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, np.abs(client.local * gradient), atol=1e-6)


def test_approximates_the_loss_without_a_scalar() -> None:
    """Eq. 1: |L(W) - L(W without w)|. Eq. 2 is its first order, so the error is of second order for small weights."""
    client = trained_client()
    client.local = client.local * 0.002
    client.model.set_vector(client.local)
    scores = Sensitivity(Sensitivity.Options()).score_parameters(client, None)  # type: ignore[arg-type]
    whole = losses(client, client.local)
    changes = []
    for index in range(len(client.local)):
        without = client.local.copy()
        without[index] = 0
        changes.append(abs(whole - losses(client, without)))
    np.testing.assert_allclose(scores, changes, atol=0.03 * max(changes))
    assert np.argmax(scores) == np.argmax(changes)


def test_zero_weights_are_not_sensitive() -> None:
    client = trained_client()
    client.local[2] = 0
    client.model.set_vector(client.local)
    scores = Sensitivity(Sensitivity.Options()).score_parameters(client, None)  # type: ignore[arg-type]
    assert scores[2] == 0
    assert (scores >= 0).all()


def test_needs_training() -> None:
    with pytest.raises(ValueError, match="after training"):
        Sensitivity(Sensitivity.Options()).score_parameters(SimpleNamespace(update=None), None)  # type: ignore[arg-type]
