"""The checks of attacks and metrics for `fedplug_kit.conformance`; imported by the kit alone, which finds them.

Its entry points are of the group `fedplug_kit.check`, so that this plugin needs no kit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import ClientData, PublicData
from fedplug.api.errors import MetricError, SetupError
from fedplug.api.facts import Facts
from fedplug_kit.parts import CLASSES, SHAPE, Images, TwoLayers
from fedplug_std.per_sample import mean_gradient

from fedplug_attacks import Attacker, AttackReport, Meaning, Truth, View
from fedplug_attacks.api.observation import all_clear
from fedplug_attacks.api.report import checked
from fedplug_attacks.api.truth import KINDS

if TYPE_CHECKING:
    from fedplug.api.roles import Attack, Metric


# Candidates of a membership challenge: half of them are non-members, enough for a rate of one in a thousand.
_CANDIDATES = 2000


def metric_problems(metric: Metric) -> Iterator[str]:
    """Checks that a metric declares its kind, and that its numbers are better for the truth than for random answers."""
    rng, told = np.random.default_rng(7), metric.measures
    if told.kind not in KINDS:
        yield f"kind of measures must say what it compares: {', '.join(KINDS)}"
    if not told.better or not set(told.better.values()) <= {"high", "low"}:
        yield "better of measures must map each number that says how much was learnt to high or low"
    if not told.conventions.strip():
        yield "conventions of measures must give in one line: range, smallest image, padding, treatment of colour"
    images = rng.random((2, 1, 176, 176), np.float32)
    labels, classes = np.array([1, 3]), 5
    truth = Truth(images, labels, classes, members=np.arange(_CANDIDATES) % 2 == 0, tokens=np.array([1, 3]),
                  texts=np.array([[1, 3, 3], [3, 1, 0]]), attribute=np.array([True, False]))  # fmt: skip
    right = AttackReport(
        "finished", images=images.copy(), labels=labels.copy(), counts=truth.counts.astype(np.float64),
        presence=truth.counts.astype(np.float64), members=(np.arange(_CANDIDATES) % 2 == 0).astype(np.float64),
        tokens=np.array([3, 1]), texts=np.array([[1, 3, 3], [3, 1, 0]]), share=0.5,
    )  # fmt: skip
    wrong = AttackReport(
        "finished", images=rng.random(images.shape).astype(np.float32), labels=(labels + 1) % classes,
        counts=np.roll(truth.counts, 2).astype(np.float64), presence=np.roll(truth.counts, 2).astype(np.float64),
        members=rng.random(_CANDIDATES), tokens=np.array([0, 1, 2]), texts=np.array([[2, 2, 0], [2, 2, 1]]), share=0.9,
    )  # fmt: skip
    try:
        best, worst = metric.score(right, truth), metric.score(wrong, truth)
    except (MetricError, SetupError):  # it is not defined for these
        return
    if unknown := sorted({*told.better} - {*best}):
        yield f"better names {', '.join(unknown)}, but score does not give them"
    for name, way in told.better.items():
        if name in best and name in worst and (best[name] < worst[name] if way == "high" else best[name] > worst[name]):
            scores = f"{best[name]:.3g} for the truth, {worst[name]:.3g} for a wrong answer"
            yield f"{name} is {scores}; better says {way}"


def attack_problems(attack: Attack) -> Iterator[str]:
    """Checks that it gives a report of the right form for a clear gradient, and does not change the view."""
    if not attack.finds.what <= {*KINDS} - {"update"}:
        there = ", ".join(kind for kind in KINDS if kind != "update")
        yield f"what of finds holds {sorted(attack.finds.what)}; there is {there}"
        return
    data = Images(Images.Options()).load(None)
    model: Any = TwoLayers(TwoLayers.Options()).build(SHAPE, CLASSES, 3, "cpu")
    batch = data.train.take(slice(0, 1))
    own = ClientData(batch, batch, data.test, **data.about)
    vector = model.get_vector()
    gradient = mean_gradient(model, batch, own, vector=vector)
    meaning = Meaning(lr=1.0, steps=1, batch_size=1, examples=1, epochs=1)
    update = all_clear(0, 0, model.layout, -gradient, meaning)
    view = View(
        "server", target=0, update=update, vector=vector, model=model, num_classes=CLASSES, shape=SHAPE,
        mean=data.mean, std=data.std, candidates=data.train.take(slice(0, 8)), seed=5,
    )  # fmt: skip
    public = PublicData(data.test, **data.about)
    attacker = Attacker()
    attacker.facts = Facts(0, 1, model.layout, (), 4, 2, 7, "", public=public)
    if attack.finds.needs.unmet(view, public):
        return
    values = update.values.copy()
    report = checked(attack.attack(view, attacker), view)
    if not np.array_equal(values, update.values):
        yield "it writes into the view that it is given"
    wanted = {"images": report.images, "labels": (report.counts, report.labels), "members": report.members,
              "tokens": report.tokens, "texts": report.texts, "attribute": report.share}
    if report.status == "finished":
        for what in attack.finds.what:
            found = wanted[what]
            if found is None or (isinstance(found, tuple) and all(part is None for part in found)):
                yield f"it declares that it finds {what}, but its report has none"


