"""Texts from an update of a language model: what `attacks.dager` finds, and the limit set by the gradient's rank.

    python benchmarks/attack_text.py [--targets 10] [--rows 0 3] [--csv docs/numbers/attack-text.csv]

A target is one batch of pieces of Python's own source code (`std.python_text`, the texts of the recipes gpt-lora-*), of
one client. Batches are redrawn for each target. The model is `std.gpt` of two blocks, at its random start, or the
base of these recipes with adapters at the layers that they name. The update is that of the trainer's steps in float32,
the local model minus the one it started from. Exact texts are of all texts of all targets, with Wilson's 95% interval,
which takes them as independent; texts that a batch has twice count twice. Needs no data folder. About six minutes of
processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fedplug import Facts
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth, wilson
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.dager import Dager
from fedplug_attacks.tokens import TextFound
from fedplug_std import _lora, weights
from fedplug_std.lora import Lora
from fedplug_std.models import Gpt
from fedplug_std.python_text import PythonText
from fedplug_std.torch_model import TorchModel
from threadpoolctl import threadpool_limits

BASE = Path(__file__).parents[1] / "recipes" / "gpt-base.pt"


@dataclasses.dataclass(frozen=True)
class Row:
    """One setting: a model, texts, its training, and the visible part of the update."""

    batch: int
    width: int = 64
    context: int = 64
    rank: int = 0
    base: bool = False
    steps: int = 1
    adamw: bool = False
    noise: float = 0.0
    hidden: float = 0.0
    form: str = "adaptive"

    @property
    def model(self) -> str:
        """The model in words."""
        lora = f", LoRA rank {self.rank}" if self.rank else ""
        return f"width {self.width}{lora}{', gpt-base' if self.base else ''}"

    @property
    def seen(self) -> str:
        """The particulars of the update."""
        parts = ["AdamW"] if self.adamw else []
        parts += [f"{self.steps} steps"] if self.steps > 1 else []
        parts += [f"noise {self.noise:g}"] if self.noise else []
        parts += [f"largest {self.hidden:.0%} hidden"] if self.hidden else []
        parts += ["hidden as 0"] if self.form == "naive" else []
        return ", ".join(parts) or "one step, clear"


ROWS = (
    *(Row(batch, 256, 16) for batch in (1, 2, 4, 8)),
    Row(1), Row(1, base=True), Row(2), Row(1, base=True, rank=2), Row(1, base=True, adamw=True),
    *(Row(batch, 256, 16, rank=160) for batch in (1, 8)), Row(8, 256, 16, rank=64),
    Row(4, 256, 16, steps=4), Row(2, 256, 16, noise=1e-3), Row(2, 256, 16, noise=1e-2), Row(2, 256, 16, noise=1e-1),
    Row(2, 128, 8, hidden=0.3), Row(2, 128, 8, hidden=0.3, form="naive"),
)  # fmt: skip


def model_of(row: Row) -> TorchModel:
    """The model before the steps."""
    module = Gpt(Gpt.Options(width=row.width, layers=2, heads=4)).build((row.context,), 256, 7, "cpu").module
    if row.base:
        weights.put(module, weights.read(BASE.name, BASE.read_bytes(), "base"), f"base {BASE}", "train it again")
    if row.rank:
        chosen = Lora.Options(rank=row.rank, alpha=2 * row.rank, targets=("attend", "gather", "widen", "narrow"))
        _lora.adapt(module, chosen, (row.context,), 7)
    return TorchModel(module, "cpu")


def attacked(row: Row, texts: Any, seed: int) -> tuple[AttackReport, Truth, float]:
    """One target: the report, the truth, and the processor's seconds."""
    rng = np.random.default_rng(seed)
    batch = texts.take(rng.choice(len(texts), row.batch, replace=False))
    model, lr = model_of(row), 0.01 if row.adamw else 0.1
    inputs, answers = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
    before, optimiser = model.get_vector().copy(), getattr(torch.optim, "AdamW" if row.adamw else "SGD")
    steps = optimiser(model.parameters, lr=lr, weight_decay=0.0)
    for _ in range(row.steps):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(model.module(inputs).flatten(0, 1), answers.flatten()).backward()  # type: ignore[no-untyped-call]
        steps.step()
    moved = torch.cat([part.detach().reshape(-1) for part in model.parameters]).numpy()
    update = moved - before
    sigma = row.noise * float(np.sqrt((update**2).mean()))
    update = update + (sigma * rng.standard_normal(len(update))).astype(np.float32)
    hidden = None
    if row.hidden:
        hidden = np.zeros(len(update), bool)
        hidden[np.argsort(-np.abs(update))[: int(row.hidden * len(update))]] = True
    loss = "cross_entropy by AdamW" if row.adamw else "cross_entropy"
    meaning = Meaning(lr=lr, steps=row.steps, examples=row.batch, batch_size=row.batch, loss=loss)
    seen = all_clear(0, 0, model.layout, update, meaning, hidden, sigma)
    view = View(
        "server", target=0, update=seen, vector=before, model=model_of(row), num_classes=256, shape=(row.context,),
        seed=seed,
    )  # fmt: skip
    view.model.set_vector(before)
    attack, started = Dager(Dager.Options(form=row.form)), time.process_time()
    report = attack.attack(view, Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, "")))
    spent = time.process_time() - started
    truth = Truth(batch.inputs.astype(np.float32), batch.labels, 256, texts=batch.inputs)
    return report, truth, spent


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="+", default=range(len(ROWS)), help="their numbers, from 0")
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's threads would wait for each other, in loops that take the time of a core
    metric = TextFound(TextFound.Options())
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow([
            "model", "tokens a text", "batch", "update", "targets", "texts", "exact", "exact_low", "exact_high",
            "in_place", "rouge_1", "rouge_2", "not_applicable", "inconclusive", "seconds",
        ])  # fmt: skip
        for number in chosen.rows:
            row = ROWS[number]
            texts = PythonText(PythonText.Options(part="code", context=row.context)).load(None).train
            done = [attacked(row, texts, 1000 * number + seed) for seed in range(chosen.targets)]
            writer.writerow([row.model, row.context, row.batch, row.seen, *summed(done, metric)])
            to.flush()


def summed(done: list[tuple[AttackReport, Truth, float]], metric: TextFound) -> list[str]:
    """The numbers of all targets of a row. A target to which the attack did not apply counts as no text right."""
    found = [metric.score(report, truth) if report.texts is not None else {} for report, truth, _ in done]
    texts = sum(len(truth.labels) for _, truth, _ in done)
    pairs = zip(found, (truth for _, truth, _ in done), strict=True)
    exact = sum(round(score.get("texts_exact", 0.0) * len(truth.labels)) for score, truth in pairs)
    shares = [exact / texts, *wilson(exact, texts)]
    for name in ("text_in_place", "rouge_1", "rouge_2"):
        shares.append(statistics.mean(score.get(name, 0.0) for score in found))
    away = sum(report.status == "not_applicable" for report, _, _ in done)
    unsure = sum(report.status == "diverged" or bool(report.unfit) for report, _, _ in done)
    seconds = statistics.mean(spent for _, _, spent in done)
    return [str(len(done)), str(texts), *(f"{share:.3f}" for share in shares), str(away), str(unsure), f"{seconds:.1f}"]


if __name__ == "__main__":
    main()
