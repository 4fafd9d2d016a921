"""iLRG on ResNet-50 with 100 classes and batches of 200, in the clear and with the largest entries encrypted.

    FEDPLUG_DATA=... python benchmarks/attack_resnet50.py --seeds 1 2 3

The setting of SenseCrypt's first attack (Sec. 4.2, Fig. 6) without its data: these images are not CIFAR-100. Each is
an MNIST digit in one colour and a Fashion-MNIST item in another, 32x32 pixels, and its class is the pair: 100 classes
of real images. Each seed draws the weights, a batch of 200 and 200 public images. Encrypted are the entries with the
highest |w * gradient|, SenseCrypt's sensitivity, and for comparison those with the highest |gradient|.
Needs 6 GB of memory, and two minutes a seed on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from fedplug import Examples, Facts, stream
from fedplug.api.data import PublicData
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import FINISHED, AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.label_metrics import LabelAccuracy
from fedplug_attacks.labels import Ilrg
from fedplug_attacks.workshop.scorer import Scorer
from fedplug_std.datasets import FashionMnist, Mnist
from fedplug_std.models import ResNet50
from fedplug_std.torch_model import TorchModel, to_tensor
from numpy.typing import NDArray

CLASSES, BATCH, PUBLIC = 100, 200, 200
SHARES = (0.05, 0.2)
LAST_LAYER = CLASSES * (2048 + 1)
"""Its weights and biases."""
MEAN, STD = (0.15, 0.32, 0.0), (0.33, 0.37, 1.0)
FORMS: tuple[Literal["adaptive", "naive"], ...] = ("adaptive", "naive")


def main() -> None:
    """Prints a line of JSON for each attack, and a table of means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--data", default=os.environ.get("FEDPLUG_DATA"), help="folder with MNIST and FashionMNIST")
    parser.add_argument(
        "--stem", choices=("small", "imagenet"), default="small",
        help="small: 3x3 without pooling, as std.resnet50 has for 32x32 images; imagenet: torchvision's, five times as "
        "fast",
    )  # fmt: skip
    chosen = parser.parse_args()
    digits = Mnist(Mnist.Options()).load(chosen.data).train
    items = FashionMnist(FashionMnist.Options()).load(chosen.data).train
    lines = []
    for seed in chosen.seeds:
        for line in attacks(seed, digits, items, small=chosen.stem == "small"):
            print(json.dumps(line), flush=True)
            lines.append(line)
    print(table(lines))


def attacks(seed: int, digits: Examples, items: Examples, small: bool) -> Iterator[dict[str, Any]]:
    """Attacks one batch: nothing encrypted, then each share by each order, in both forms."""
    rng = stream(seed, "attack_resnet50")
    batch, public = pairs(digits, items, BATCH, rng), pairs(digits, items, PUBLIC, rng)
    model: TorchModel = ResNet50(ResNet50.Options(small_input=small)).build((3, 32, 32), CLASSES, seed, "cpu")
    started = time.process_time()
    gradient = gradient_of(model, batch)
    known = PublicData(public, classes=tuple(map(str, range(CLASSES))), mean=MEAN, std=STD)
    scorer = Scorer({"attacks.label_accuracy": LabelAccuracy(LabelAccuracy.Options())}, known, MEAN, seed)
    truth = Truth(images=batch.inputs, labels=batch.labels, num_classes=CLASSES)
    for guess, numbers in scorer.baselines(frozenset({"labels"}), truth).items():
        yield {"seed": seed, "order": "", "share": 0.0, "form": guess, **numbers}
    weights = model.get_vector()
    for order, scores in (("", None), ("|w * gradient|", np.abs(weights * gradient)), ("|gradient|", np.abs(gradient))):
        for share in (0.0,) if scores is None else SHARES:
            hidden = None if scores is None else highest(scores, share)
            for form in FORMS:
                report = attacked(model, gradient, hidden, known, form, seed)
                numbers = scorer.score(report, truth).numbers
                yield {
                    "seed": seed, "order": order, "share": share, "form": form, **numbers,
                    "hidden_of_last_layer": round(report.metrics["hidden_entries"] / LAST_LAYER, 3),
                    "cpu_seconds": round(time.process_time() - started, 1),
                }  # fmt: skip


def pairs(digits: Examples, items: Examples, count: int, rng: np.random.Generator) -> Examples:
    """Images of a digit (first colour) and an item (second colour), drawn at random; the class is 10 digit + item."""
    of_digit, of_item = (rng.integers(0, len(source), count) for source in (digits, items))
    inputs = np.zeros((count, 3, 32, 32), np.uint8)
    inputs[:, 0, 2:30, 2:30], inputs[:, 1, 2:30, 2:30] = digits.inputs[of_digit, 0], items.inputs[of_item, 0]
    return Examples(inputs, 10 * digits.labels[of_digit] + items.labels[of_item])


def gradient_of(model: TorchModel, batch: Examples) -> NDArray[np.float32]:
    """The mean gradient of the cross entropy in training mode, (P,); batch norm keeps the statistics it had."""
    kept = model.get_buffers()
    model.module.train()
    logits = model.module(to_tensor(batch.inputs, MEAN, STD))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels))
    parts = torch.autograd.grad(loss, model.parameters)
    model.set_buffers(kept)
    return torch.cat([part.reshape(-1) for part in parts]).numpy()


def highest(scores: NDArray[np.float32], share: float) -> NDArray[np.bool_]:
    """Which entries have the highest scores; bool (P,)."""
    count = int(share * len(scores))
    hidden = np.zeros(len(scores), np.bool_)
    hidden[np.argpartition(scores, -count)[-count:]] = True
    return hidden


def attacked(
    model: TorchModel, gradient: NDArray[np.float32], hidden: NDArray[np.bool_] | None, public: PublicData,
    form: Literal["adaptive", "naive"], seed: int,
) -> AttackReport:  # fmt: skip
    """iLRG in one form on what is visible of the gradient.

    Raises:
        RuntimeError: it could not be applied.
    """
    meaning = Meaning(sign=1, lr=1.0, steps=1, batch_size=BATCH, examples=BATCH)
    view = View(
        "server", target=0, update=all_clear(0, 0, model.layout, gradient, meaning, hidden), vector=model.get_vector(),
        model=model, num_classes=CLASSES, shape=(3, 32, 32), mean=MEAN, std=STD, seed=seed,
    )  # fmt: skip
    attacker = Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, seed, "", public=public))
    report = Ilrg(Ilrg.Options(form=form)).attack(view, attacker)
    if report.status != FINISHED:
        raise RuntimeError(f"iLRG ended as {report.status}: {report.reason}")
    return report


def table(lines: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the seeds, as Markdown."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["order"], line["share"], line["form"]), []).append(line)
    rows = ["| encrypted | by | attack | LeAcc | LnAcc |", "| --- | --- | --- | --- | --- |"]
    for (order, share, form), group in groups.items():
        numbers = []
        for name in ("le_acc", "ln_acc"):
            values = [line[name] for line in group]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            numbers.append(f"{statistics.fmean(values):.3f} ± {spread:.3f}")
        escaped = order.replace("|", r"\|")
        rows.append(f"| {share:.0%} | {escaped} | {form} | {' | '.join(numbers)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
