"""FedML-HE's scores: how much the gradient of a parameter depends on the labels of a client's examples.

Jin et al., "FedML-HE: An Efficient Homomorphic-Encryption-Based Privacy-Preserving Federated Learning System"
(arXiv:2303.10837), selective parameter encryption: S_m = 1/K sum_k |J_m(y_k)| with J_m(y_k) = d/dy_k (dl / dw_m).
Code of the authors: wzjin2017/fedml-he-benchmark, masks.py, "mask by sensitivity": one backward pass per parameter, of
which it keeps the component of the true label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Examples, Field
from fedplug_std.per_sample import per_sample_gradients

if TYPE_CHECKING:
    import torch
    from fedplug import Client, ClientData, Facts
    from fedplug.api.blocks import Scores
    from numpy.typing import NDArray

_DERIVATIVE_BYTES = 128 << 20
"""Memory for the label derivatives that exist at once; at least those of one example."""


class FedMLHESensitivity(fedplug.Scorer):
    """Score a parameter by how its gradient depends on the labels: mean_k |d/dy_k (dl/dw)| (FedML-HE).

    For the cross entropy, d/dy_c (dl/dw) is minus the gradient of log p_c. At the true label, where the authors' code
    looks, it is the gradient of that example's loss. So one backward pass per example suffices where the paper's method
    takes one per parameter. The map is made once, from the global model that the client first receives, as the
    paper does before the training. Later rounds reuse the same map.
    """

    class Options(fedplug.Options):
        """Which labels, and how many examples."""

        derivative: Literal["true_label", "every_label"] = Field(
            "true_label",
            description="true_label: magnitude of the component of the true label, which is that of the per-sample "
            "gradient; every_label: L2 norm over the components of all classes, with one backward pass per class",
        )
        max_examples: int | None = Field(
            None, ge=1, description="number of a client's examples for its map, the first ones; default: all"
        )

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """The client's sensitivity map, float32 (P,), not negative; in nats per unit of the parameter."""
        memory = client.memory(self)
        if "map" not in memory:
            most = self.options.max_examples
            examples = client.data.train if most is None else client.data.train.take(slice(0, most))
            every_label = self.options.derivative == "every_label"
            memory["map"] = mean_sensitivity(client.model, examples, client.data, client.start, every_label)
        kept: Scores = memory["map"]
        return kept

    def describe(self) -> str:
        """One line for the plan of the run."""
        what = "the true label" if self.options.derivative == "true_label" else "every label"
        return f"mean magnitude of the derivative of the gradient by {what}, at the initial model"


def mean_sensitivity(
    model: Any, examples: Examples, data: ClientData, vector: NDArray[np.float32], every_label: bool
) -> NDArray[np.float32]:
    """mean_k |J_m(y_k)| for every parameter m, float32 (P,).

    Args:
        model: a `TorchModel`.
        examples: the examples whose labels are used; at least one.
        data: whose `mean` and `std` standardise the inputs.
        vector: float32 (P,), the parameters at which to differentiate.
        every_label: take the L2 norm over all components of y_k instead of the magnitude of the true label's.

    Raises:
        SetupError: the model is not a torch model.
    """
    import torch

    total = torch.zeros(model.layout.size, dtype=torch.float64)
    if every_label:
        for derivatives in label_derivatives(model, examples, data, vector):
            total += torch.linalg.vector_norm(derivatives, dim=1).sum(0, dtype=torch.float64).cpu()
    else:
        for gradients in per_sample_gradients(model, examples, data, vector=vector):
            total += gradients.abs().sum(0, dtype=torch.float64).cpu()
    mean: NDArray[np.float32] = (total / len(examples)).to(torch.float32).numpy()
    return mean


def label_derivatives(
    model: Any, examples: Examples, data: ClientData, vector: NDArray[np.float32]
) -> Iterator[torch.Tensor]:
    """d/dy_c (dl/dw) of each example and class, chunks of shape (n, C, P), in the order of the examples.

    With l = -sum_c y_c log p_c this is -d log p_c / dw: the per-sample gradient that the example would have if c were
    its label. So all C of them are ordinary per-sample gradients, and one vectorised backward pass computes them.
    """
    import torch

    classes = len(data.classes)
    chunk = max(1, _DERIVATIVE_BYTES // (4 * model.layout.size * classes))
    for start in range(0, len(examples), chunk):
        part = examples.take(slice(start, start + chunk))
        inputs = np.repeat(part.inputs, classes, axis=0)
        relabelled = Examples(inputs, np.tile(np.arange(classes, dtype=np.int64), len(part)))
        gradients = torch.cat(list(per_sample_gradients(model, relabelled, data, vector=vector)))
        yield gradients.view(len(part), classes, -1)
