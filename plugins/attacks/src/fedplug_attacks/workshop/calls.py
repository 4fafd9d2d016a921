"""The call of one attack on one target: its forms, view and errors, and whether its findings explain what was seen.

A search that does not fit its view proves nothing if it fails. The gradient of a first fully connected layer is made of
the inputs alone, and that of the last bias is the mean of the probabilities less the share of each class. So both can
be checked without the truth, for attacks that do not say so themselves.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from fedplug.api.blocks import Layout
from fedplug.api.data import Examples, Model, PublicData
from fedplug.api.errors import FedplugError, PluginError, ViewError, describe, of_component
from fedplug.api.roles import Attack, Learns
from fedplug.recipe.composition import Composition
from fedplug.round.base import facts_of
from numpy.typing import NDArray

from fedplug_attacks import Attacker, AttackReport, ObservedUpdate, Plants, TensorView, Truth, View
from fedplug_attacks.api.needs import FIRST_WEIGHT, LAST_BIAS, role
from fedplug_attacks.api.report import FINISHED, INCONCLUSIVE, NOT_APPLICABLE, checked
from fedplug_attacks.views.observer import Known
from fedplug_attacks.workshop.scope import AskedAttacks
from fedplug_attacks.workshop.stage import Stage
from fedplug_attacks.workshop.target_truth import Truths

ADAPTIVE, NAIVE = "adaptive", "naive"
_LEFT = 0.1
"""Share of what the first layer shows, beyond the noise, that images may leave unexplained."""
_DEVIATIONS = 4.0


class Caller:
    """Calls attacks with a view.

    Args:
        composition: the components, with the attacks.
        layout: of the model.
        public: the examples that everybody has, or None.
        device: torch device name.
        progress: receives the progress of an attack, as in `Attacker`.
        note: receives warnings.
    """

    def __init__(
        self,
        composition: Composition,
        layout: Layout,
        public: PublicData | None,
        device: str,
        progress: Callable[[int, int, float | None], None],
        note: Callable[[str], None],
    ) -> None:
        self.composition, self.layout, self.public = composition, layout, public
        self._device, self._progress, self._note = device, progress, note
        self._caches: dict[tuple[str, str], dict[str, Any]] = {}

    def call(self, name: str, view: View, unmet: str) -> AttackReport:
        """Runs one form of an attack, if the view meets its needs and `unmet` is empty."""
        view = _apart(view)
        component = self.composition.part(name, Attack)
        if reason := unmet or component.finds.needs.unmet(view, self.public):
            return AttackReport(NOT_APPLICABLE, reason=reason)
        try:
            answer = self.composition.one("attack", name, view=view, attacker=self._attacker(view, component))
        except PluginError as error:  # an error is not a report; the other targets still count
            why = describe(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            self._note(f"{name} stopped with an error: {why}")
            return AttackReport(INCONCLUSIVE, reason=f"the attack stopped with an error: {why}")
        except FedplugError as error:
            return AttackReport(NOT_APPLICABLE, reason=str(error))
        try:
            report = checked(answer, view)
        except ViewError as error:
            self._note(f"{name}: {error}")
            return AttackReport(INCONCLUSIVE, reason=str(error))
        searched = report.status == FINISHED and not report.unfit
        return dataclasses.replace(report, unfit=unexplained(view, report)) if searched else report

    def planted(self, name: str, view: View, clients: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The models that an attack's malicious server sends to each client.

        Raises:
            ViewError: they are not models: of another length, or not finite; or the attack has none for this view.
        """
        component = self.composition.part(name, Attack)
        assert isinstance(component, Plants)
        view, size = _apart(view), self.layout.size
        with of_component(name, "plant"):
            given = component.plant(view, self._attacker(view, component))
        models = given if isinstance(given, Mapping) else dict.fromkeys(clients, given)
        found = {client_id: np.asarray(models[client_id], np.float32) for client_id in clients if client_id in models}
        if missing := sorted(set(clients) - set(found)):
            raise ViewError(f"{name} planted no model for client {missing[0]}; give one for each of {clients}")
        for client_id, vector in found.items():
            if vector.shape != (size,) or not np.isfinite(vector).all():
                raise ViewError(
                    f"{name} planted an array of shape {vector.shape} at client {client_id}; it must be ({size},), all "
                    "finite"
                )
        return found

    def _attacker(self, view: View, component: Attack) -> Attacker:
        """With the public facts, without the components of the run, which could lead to data.

        The content of its cache is available for the attack's next target, and for the same adversary alone.
        """
        cache = self._caches.setdefault((component.name, view.adversary), {})
        facts = facts_of(self.composition, self.layout, view.round, self.public)
        facts = dataclasses.replace(facts, components={component.name: component})
        return Attacker(device=self._device, progress=self._progress, cache=cache, facts=facts)


class Calls(Caller):
    """Calls the attacks of a recipe on a run.

    Args:
        section: the attacks.
        composition: the components of the run; the same attacks in the other form are added to it.
        stage: the run, with its public facts and the attacker's own model.
        truths: the source of challenges.
    """

    def __init__(self, section: AskedAttacks, composition: Composition, stage: Stage, truths: Truths) -> None:
        super().__init__(
            composition, stage.model.layout, stage.rewound.public, stage.device, stage.timer.progress, stage.watch.note
        )  # fmt: skip
        self.section, self.scope = section, section.scope
        self.stage, self.rewound, self.truths = stage, stage.rewound, truths
        self.twins = self._twins()

    def forms(self, attack: str, component: Attack, view: View) -> dict[str, str]:
        """The forms to try, each with the name of the component; two only if something is hidden."""
        hides = view.update is not None and not bool(view.update.visible.all())
        if not (self.scope.compare_forms and hides and attack in self.twins):
            return {component.form or ADAPTIVE: attack}
        if component.form == NAIVE:
            return {ADAPTIVE: self.twins[attack], NAIVE: attack}
        return {ADAPTIVE: attack, NAIVE: self.twins[attack]}

    def view(
        self, view: View, known: Known, truth: Truth, component: Attack, batch: Examples | None
    ) -> tuple[View, Truth]:
        """Fills in the adversary's knowledge, and for a challenge the candidates, from `batch` or all its data."""
        data = self.rewound.somebody().data
        model: Model | None = None
        if known.vector is not None or view.observations:  # of an earlier round the parameters may be known
            model = copy.deepcopy(self.stage.model)
            model.set_vector(self.stage.initial if known.vector is None else known.vector)
            model.set_buffers(known.buffers or self.stage.buffers)
        view = dataclasses.replace(
            view,
            messages=known.messages, update=known.update, vector=known.vector, personal=known.personal, model=model,
            num_classes=len(data.classes), shape=data.shape, mean=data.mean, std=data.std,
            segmentation=data.train.targets is not None, heard=known.heard, task=data.task.name if data.task else "",
            attribute=None if self.truths.attributes is None else self.truths.attributes.known,
            initial=self.stage.initial, learns=self._learns(view.round),
        )  # fmt: skip
        if component.finds.needs.candidates and view.target is not None:
            candidates, members = self.truths.challenge(view.target, view.seed, self.scope.candidates, batch)
            common = self.truths.common(view.target, candidates.labels[~members])
            view = dataclasses.replace(view, candidates=candidates)
            truth = dataclasses.replace(truth, members=members, common=common)
        return view, truth

    def _learns(self, round: int) -> tuple[Learns, ...]:
        """The trainer's declaration for each round before this one."""
        layout, public = self.stage.model.layout, self.rewound.public
        rounds = (facts_of(self.composition, layout, before, public) for before in range(round))
        return tuple(said for facts in rounds if (said := self.composition.trainer.learns(facts)) is not None)

    def _twins(self) -> dict[str, str]:
        """For each attack with a form, the name of the same attack in the other form."""
        twins = {}
        for use in self.section.attacks:
            component = self.composition.part(use.name, Attack)
            if component.form is None or use.is_reference:
                continue
            other: Literal["adaptive", "naive"] = "naive" if component.form == ADAPTIVE else "adaptive"
            twin = component.in_form(other)
            if twin is not None:
                twins[use.name] = f"{use.name}/{other}"
                self.composition.add(twin, twins[use.name])
        return twins


def _apart(view: View) -> View:
    """The view with its own arrays and model: an attack that works in place must not change the views of others."""
    shared = [view.messages, view.heard, view.learns, view.observations, *([view.update.layout] if view.update else [])]
    return copy.deepcopy(view, {id(part): part for part in shared})


def unexplained(view: View, report: AttackReport) -> str:
    """Why the findings do not explain the update, in a clause; empty if they do, or if that cannot be checked.

    Args:
        view: what the attack was given.
        report: its finished report, without a reason of its own.
    """
    update = view.update
    if update is None or not len(update.values) or not np.isfinite(update.sigma).all():
        return ""
    try:
        gradient = update.as_gradient(view.vector)
    except ViewError:  # the learning rate or the number of steps is not known
        return ""
    if report.images is not None:
        return _images(view, gradient, report)
    one_step = len(update.contributors) == 1 and update.meaning.steps == 1 and bool(update.meaning.lr)
    return _counts(view, gradient, report) if report.counts is not None and one_step else ""


def _images(view: View, gradient: ObservedUpdate, report: AttackReport) -> str:
    """Rows of the gradient of the first layer are combinations of the standardised inputs."""
    name, size = role(gradient.layout, FIRST_WEIGHT), int(np.prod(view.shape))
    if name is None or report.images is None or len(view.shape) != 3:
        return ""
    tensor = gradient.tensor(name)
    whole = tensor.visible.all(1)
    if tensor.states.shape[1] != size or not whole.any():
        return ""
    rows, noise = tensor.dense(0.0)[whole].astype(np.float64), _sigma(tensor)[whole]
    mean, std = (np.asarray(each or (empty,), np.float64).reshape(1, -1, 1, 1) for each, empty in (
        (view.mean, 0.0), (view.std, 1.0)
    ))  # fmt: skip
    inputs = ((np.nan_to_num(report.images) - mean) / std).reshape(len(report.images), -1)
    _, lengths, directions = np.linalg.svd(inputs, full_matrices=False)
    basis = directions[lengths > 1e-6 * lengths.max(initial=0.0)].T
    expected = float(np.square(noise).sum())
    left = float(np.square(rows - rows @ basis @ basis.T).sum()) - expected * max(0.0, 1 - basis.shape[1] / size)
    seen = float(np.square(rows).sum()) - expected
    if seen <= 0 or left <= _LEFT * seen:
        return ""
    return f"the images leave {left / seen:.0%} of what the first layer shows unexplained"


def _counts(view: View, gradient: ObservedUpdate, report: AttackReport) -> str:
    """B times the gradient of the last bias, plus the counts, are B mean probabilities: from 0 to B."""
    name, examples = role(gradient.layout, LAST_BIAS, view.num_classes), gradient.meaning.examples
    if name is None or not examples or report.counts is None or gradient.meaning.clip_norm is not None:
        return ""
    tensor = gradient.tensor(name)
    noise = _DEVIATIONS * examples * _sigma(tensor)
    likely = np.asarray(report.counts, np.float64) + examples * tensor.dense(0.0)
    off = np.where(tensor.visible, np.maximum(-likely, likely - examples) - noise, 0.0)
    if off.max(initial=0.0) <= 0.5:
        return ""
    return f"with these counts the last bias would need probabilities of class {int(off.argmax())} outside 0 to 1"


def _sigma(tensor: TensorView) -> NDArray[np.float64]:
    """The standard deviation of the noise on each entry of a tensor, 0 where none is visible."""
    found = np.zeros(tensor.states.shape)
    found[tensor.visible] = tensor.sigma
    return found
