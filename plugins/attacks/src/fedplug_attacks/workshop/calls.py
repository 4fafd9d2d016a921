"""The call of one attack on one target: its forms, its view, and its errors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from fedplug.api.data import Examples, Model
from fedplug.api.errors import FedplugError, PluginError, ViewError, describe, of_component
from fedplug.api.roles import Attack, Learns
from fedplug.recipe.composition import Composition
from fedplug.round.base import facts_of
from numpy.typing import NDArray

from fedplug_attacks import Attacker, AttackReport, Plants, Truth, View
from fedplug_attacks.api.report import FINISHED, INCONCLUSIVE, NOT_APPLICABLE, checked
from fedplug_attacks.views.observer import Known
from fedplug_attacks.workshop.fit import unexplained
from fedplug_attacks.workshop.scope import AskedAttacks
from fedplug_attacks.workshop.stage import Stage
from fedplug_attacks.workshop.target_truth import Truths

ADAPTIVE, NAIVE = "adaptive", "naive"


class Calls:
    """Calls the attacks of a recipe.

    Args:
        section: the attacks.
        composition: the components of the run; the same attacks in the other form are added to it.
        stage: the run, with its public facts and the attacker's own model.
        truths: the source of challenges.
    """

    def __init__(self, section: AskedAttacks, composition: Composition, stage: Stage, truths: Truths) -> None:
        self.section, self.scope, self.composition = section, section.scope, composition
        self.stage, self.rewound, self.watch, self.truths = stage, stage.rewound, stage.watch, truths
        self._caches: dict[tuple[str, str], dict[str, Any]] = {}
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

    def call(self, name: str, view: View, unmet: str) -> AttackReport:
        """Runs one form of an attack, if the view meets its needs and `unmet` is empty."""
        view = _apart(view)
        component = self.composition.part(name, Attack)
        if reason := unmet or component.finds.needs.unmet(view, self.rewound.public):
            return AttackReport(NOT_APPLICABLE, reason=reason)
        try:
            answer = self.composition.one("attack", name, view=view, attacker=self._attacker(view, component))
        except PluginError as error:  # an error is not a report; the other targets still count
            why = describe(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            self.watch.note(f"{name} stopped with an error: {why}")
            return AttackReport(INCONCLUSIVE, reason=f"the attack stopped with an error: {why}")
        except FedplugError as error:
            return AttackReport(NOT_APPLICABLE, reason=str(error))
        try:
            report = checked(answer, view)
        except ViewError as error:
            self.watch.note(f"{name}: {error}")
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
        view, size = _apart(view), self.stage.model.layout.size
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
        facts = facts_of(self.composition, self.stage.model.layout, view.round, self.rewound.public)
        facts = dataclasses.replace(facts, components={component.name: component})
        return Attacker(device=self.stage.device, progress=self.stage.timer.progress, cache=cache, facts=facts)

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
