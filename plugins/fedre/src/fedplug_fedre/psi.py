"""FedRE's scores: how much each layer's gradient reveals about the pixels a client finds sensitive (Sec. 3.2.1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Client, Examples, Facts, Field, Model, Reveals, Scoring, stream
from fedplug.api.errors import ProtectionError
from fedplug_std.scores import require_finite

from fedplug_fedre.jacobian import PROJECTIONS, PsiScores, psi_scores
from fedplug_fedre.preferences import Preference
from fedplug_fedre.samples import Task, calibration_data, sensitive

if TYPE_CHECKING:
    from fedplug.api.blocks import Scores
    from numpy.typing import NDArray

_PUBLIC: dict[bytes, tuple[PsiScores, float]] = {}
_MOST = 64
"""Scores that follow from public facts alone, by a digest of these, and the seconds they took. Clients of one process
with the same preference need them once. This cache changes no result."""
_PASS = "psi pass"


class Psi(fedplug.Scorer):
    """Score each layer by how its gradient depends on the privacy-sensitive pixels (FedRE eq. 3 to 5, Alg. 1).

    The paper scores a client's own examples at its model after training (`source: private`, `at: local`). Scores set
    the noise of each layer, so they would reveal something about private data that no epsilon covers. By default they
    follow from public facts alone: public examples, at the global model that the round started from.

    The examples are the same in every round. Batch norm uses the statistics of the public examples. At the local model
    or on private examples it uses those of the client.
    """

    class Options(fedplug.Options):
        """Which regions of which examples to score, and how."""

        preference: Preference | None = Field(
            None, description="the sensitive regions; null: the fields that the data marks, or else whole images"
        )
        preferences: dict[int, Preference] = Field(
            {}, description="of single clients, by client id in quotes; they take the place of `preference`"
        )
        samples: int = Field(10, ge=1, description="number of examples with a sensitive region to average scores over")
        source: Literal["public", "calibration", "private"] = Field(
            "public",
            description="of the examples: public ones, random images, or the client's training examples (the paper's; "
            "unaccounted)",
        )
        at: Literal["global", "local"] = Field(
            "global",
            description="the model: the round's global one, or the client's after training (Alg. 1; unaccounted)",
        )
        method: Literal["auto", "exact", "projections"] = Field(
            "auto", description="of the Jacobian's norms: exact, estimated by random projections, or the cheaper one"
        )
        projections: int = Field(PROJECTIONS, ge=4, description="random projections per layer and example")
        refresh: Literal["each_round", "once"] = Field(
            "each_round", description="score in every round (Alg. 1), or keep the scores of a client's first round"
        )

    options: Options

    @property
    def scoring(self) -> Scoring:
        """One score per layer; public unless it follows from a client's data, model, or file."""
        return Scoring(per="layer", public=not self._private and not self._in_files)

    @property
    def _private(self) -> bool:
        """Whether the scores depend on more than public facts and the preference."""
        return self.options.source == "private" or self.options.at == "local"

    @property
    def _in_files(self) -> bool:
        """Whether only a client knows its preference."""
        return any(one and one.in_file for one in (self.options.preference, *self.options.preferences.values()))

    def check(self, recipe: Any) -> list[str]:
        """Public examples and all clients with preferences must exist. Calibration must not need marked fields."""
        found = []
        if self.options.source == "public" and not recipe.data.public and recipe.public is None:
            aside = "data: {public: 32, ...} to set some aside, " if recipe.data.at == "here" else ""
            found.append(
                f"source: public needs public examples; write {aside}a section public: {{use: ...}}, or "
                "source: calibration"
            )
        strangers = [client_id for client_id in self.options.preferences if not 0 <= client_id < recipe.clients]
        if strangers:
            rule = f"must be 0 to {recipe.clients - 1}; clients count from 0"
            found.append(f"preferences: client {', '.join(map(str, strangers))} {rule}")
        preferences = [self.options.preference, *self.options.preferences.values()]
        if self.options.source == "calibration" and any(one and one.fields is not None for one in preferences):
            found.append("fields are marked in data, but random images have none; give a box, or source: public")
        return found

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Eq. 5 for each layer, float32 (L,), >= 0, in the order of the layout's layers.

        Raises:
            DataError: the preference does not fit the images, or its file cannot be read.
            ProtectionError: no layer depends on the region, the model has diverged, or there are no public examples.
            SetupError: the model is not a torch model.
        """
        memory = client.memory(self)
        if self.options.refresh == "once" and "scores" in memory:
            kept: Scores = memory["scores"]
            return kept
        task = self.task(client, facts)
        found = self._scored(task, client, facts)
        mean = found.mean.astype(np.float32)
        self._require_usable(mean, client)
        positive = found.mean > 0
        client.log[f"{self.name}.region_share"] = float(task.regions.mean())
        client.log[f"{self.name}.relative_error"] = float(
            np.max(found.standard_error[positive] / found.mean[positive], initial=0)
        )
        if self.options.refresh == "once":
            memory["scores"] = mean
        return mean

    def task(self, client: Client, facts: Facts) -> Task:
        """The input of the score of this client in this round: examples with their regions, at a model.

        Raises:
            DataError, ProtectionError: as `score_parameters`.
        """
        data, examples, purpose = self._source(client, facts)
        vector = client.local if self.options.at == "local" else client.vector
        preference = self._preference(client.client_id)
        return self._task(preference, data, examples, purpose, client.data_root, vector, facts)

    def _preference(self, client_id: int) -> Preference:
        return self.options.preferences.get(client_id, self.options.preference) or Preference()

    def _task(
        self, preference: Preference, data: Any, examples: Examples, purpose: tuple[object, ...], root: str | None,
        vector: NDArray[np.float32], facts: Facts,
    ) -> Task:  # fmt: skip
        order = stream(facts.seed, self.name, "samples", *purpose).permutation(len(examples))
        chosen, regions = sensitive(preference, examples, data, root, order, self.options.samples)
        return Task(chosen, regions, data, vector)

    def public_scores(self, model: Model, vector: NDArray[np.float32], facts: Facts) -> Mapping[int, Scores]:
        """Each client's scores on the public examples at a global model. Empty where scores follow from other inputs.

        Also empty for random images, whose shape only clients know, and for scores kept from an earlier round.
        """
        options, public = self.options, facts.public
        kept = options.refresh == "once" and facts.round > 0
        if not self.scoring.public or options.source != "public" or public is None or kept:
            return {}
        scores: dict[int, Scores] = {}
        for preference in (options.preference, *options.preferences.values()):
            whose = [c for c in range(facts.num_clients) if self._preference(c) == (preference or Preference())]
            if whose and whose[0] not in scores:
                task = self._task(preference or Preference(), public, public.examples, (), None, vector, facts)
                found = self._public(task, model, facts)[0].mean.astype(np.float32)
                scores |= dict.fromkeys(whose, found)
        return scores

    def _source(self, client: Client, facts: Facts) -> tuple[Any, Examples, tuple[object, ...]]:
        """The data with its names, the examples, and the owner of the choice among them."""
        if self.options.source == "private":
            return client.data, client.data.train, (client.client_id,)
        if self.options.source == "calibration":
            data = calibration_data(client.data, self.options.samples, stream(facts.seed, self.name, "calibration"))
            return data, data.examples, ()
        if facts.public is None:
            raise ProtectionError(
                f"{self.name}: source=public, but there are no public examples; write data: {{public: 32, ...}}"
            )
        return facts.public, facts.public.examples, ()

    def _scored(self, task: Task, client: Client, facts: Facts) -> PsiScores:
        """The scores. If they follow from public facts, each process computes them once."""
        before = client.operations.get(_PASS, [0.0, 0.0])[1]
        with client.operation(_PASS, 0):
            if self._private:
                found = self._passes(task, client.model, facts, "model")
            else:
                found, seconds = self._public(task, client.model, facts)
        client.operations[_PASS][0] += found.passes
        if not self._private:
            # A client on a separate machine would have computed this, so the simulated clock charges it.
            client.operations[_PASS][1] = before + seconds
        return found

    def _public(self, task: Task, model: Model, facts: Facts) -> tuple[PsiScores, float]:
        """Scores that every party can compute, and the seconds that this took the first time."""
        key = task.digest(facts.digest, self.options.method, self.options.projections, self._seed(facts))
        if key not in _PUBLIC:
            started = time.perf_counter()
            found = self._passes(task, model, facts, "examples")
            while len(_PUBLIC) >= _MOST:
                del _PUBLIC[next(iter(_PUBLIC))]
            _PUBLIC[key] = found, time.perf_counter() - started
        return _PUBLIC[key]

    def _passes(self, task: Task, model: Model, facts: Facts, batch_norm: Literal["model", "examples"]) -> PsiScores:
        return psi_scores(
            model, task.examples, task.regions, task.data, method=self.options.method,
            projections=self.options.projections, seed=self._seed(facts), vector=task.vector, batch_norm=batch_norm,
        )  # fmt: skip

    def _seed(self, facts: Facts) -> int:
        return int(stream(facts.seed, self.name, "projections", facts.round).integers(2**63))

    def _require_usable(self, scores: Scores, client: Client) -> None:
        require_finite(scores, client, f"{self.name}: the scores of layers")
        if not scores.any():
            raise ProtectionError(
                f"client {client.client_id}: {self.name}: all {len(scores)} scores are 0: no layer depends on "
                "the privacy-sensitive pixels, and budgets have nothing to go by; choose a region that the model sees, "
                "or more samples; a model that is sure of every example has no gradient: stop earlier, or refresh: once"
            )

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Scores of private data, and preferences that only the clients know."""
        found = []
        if self._private:
            of = "each client's own examples" if self.options.source == "private" else "each client's trained model"
            note = f"from {of}; they set the noise of each layer, which no epsilon covers"
            found.append(Reveals("PSI scores", ("server",), note=note))
        elif bare := " and ".join(facts.bare_zones):
            note = f"at the global model, which the {bare} zone moves without noise; they set the noise of each layer"
            found.append(Reveals("PSI scores", ("server",), note=note))
        if self._in_files:
            note = "a client's boxes or mask set the noise of its layers, which tells something about them"
            found.append(Reveals("privacy preference", ("server",), note=note))
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        source = {
            "public": "public examples", "calibration": "random images", "private": "private examples (as published)",
        }  # fmt: skip
        at = "the global model" if options.at == "global" else "the local model (as published)"
        whose = (options.preference or Preference()).marks
        own = f"; clients with their own: {len(options.preferences)}" if options.preferences else ""
        return f"PSI scores on {options.samples} {source[options.source]} at {at}; regions: {whose}{own}"
