"""Which kind a document is, from one FedRE upload with the noise of a layer unknown: share right of 96 documents.

python benchmarks/fedre_labels.py
"""

from __future__ import annotations

import numpy as np
import torch
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.labels import single_label
from fedplug_fedre.budgets import budgets
from fedplug_fedre.documents import Documents
from fedplug_std.models import LeNet5
from fedplug_std.torch_model import to_tensor

LR = 0.1
# The shares of the four layers by eq. 6, up to a factor: benchmarks/fedre_regions.py.
SCORES = 1 / np.array([0.358, 0.250, 0.181, 0.211])


def main() -> None:
    """Prints a table: a row for each epsilon, a column for each norm of the clips."""
    data = Documents(Documents.Options(task="kinds", size=48, train_count=96, test_count=16)).load(None)
    model = LeNet5(LeNet5.Options(variant="dlg", activation="sigmoid")).build(data.shape, len(data.classes), 1, "cpu")
    layer = model.layout.per_scalar(np.arange(len(model.layout.layers)))
    updates = []
    for number in range(len(data.train)):
        inputs = to_tensor(data.train.inputs[number : number + 1], data.mean, data.std)
        loss = torch.nn.functional.cross_entropy(model.module(inputs), torch.from_numpy(data.train.labels[[number]]))
        parts = torch.autograd.grad(loss, model.parameters)
        updates.append(-LR * torch.cat([part.reshape(-1) for part in parts]).double().numpy())
    rng, norms = np.random.default_rng(0), (6.0, 0.5, 0.15)
    print("epsilon", *(f"C_l {norm:g}" for norm in norms), sep="\t")
    for epsilon in (10.0, 50.0, 1e3):
        row = []
        for norm in norms:
            sigmas = budgets(SCORES, epsilon=epsilon, delta=1e-5, allocation="exact", layers=4, rounds=1).sigmas
            right = 0
            for update, label in zip(updates, data.train.labels, strict=True):
                clipped = update * np.minimum(1.0, norm / np.sqrt(np.bincount(layer, update**2)))[layer]
                sent = clipped + rng.standard_normal(len(update)) * (norm * sigmas)[layer]
                meaning = Meaning(lr=LR, steps=1, batch_size=1, examples=1)
                seen = all_clear(0, 0, model.layout, sent.astype(np.float32), meaning, sigma=np.nan)
                right += single_label(seen.as_gradient(), len(data.classes), "adaptive")[0] == label
            row.append(right / len(updates))
        print(f"{epsilon:g}", *(f"{share:.2f}" for share in row), sep="\t")


if __name__ == "__main__":
    main()
