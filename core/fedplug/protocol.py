"""A protocol: one loop over the hooks.

    round:  tell train                      at every client of the cohort: train, score
            negotiate_mask                  at the server, driving the clients; every client has a plan
            ask protect                     at every client: cut the update into zones, protect each
            aggregate, per group and zone   at the server, which holds no secret key
            postprocess                     at the key server or the server; at each client with the next message
            tell adopt                      at every client: move the global model
            tell evaluate                   travels with the next round's first message, as does adopt

What the server knows of the model is what came in messages; accuracy is counted by the clients.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.cohort import Cohort, KeyServerLine, PostOffice
from fedplug.composition import Composition
from fedplug.context import Context, Server, stream
from fedplug.engines.base import Engine
from fedplug.errors import TooFewClients
from fedplug.parties import Steps, make_context, site_of
from fedplug.recipe import Recipe
from fedplug.types import Block, Layout, Release
from fedplug.views import Wire

if TYPE_CHECKING:
    from fedplug.ledger import Ledger


class Protocol:
    """Runs a recipe on an engine.

    Args:
        recipe, composition: the server's own copies.
        engine: runs the other parties.
        layout: of the model, which is public.
        wire: records messages.
        ledger: the privacy account.
        watch: told of progress; see `fedplug.display.Display`.
    """

    def __init__(
        self,
        recipe: Recipe,
        composition: Composition,
        engine: Engine,
        layout: Layout,
        wire: Wire,
        ledger: Ledger,
        watch: Any,
    ) -> None:
        self.recipe, self.composition, self.engine = recipe, composition, engine
        self.layout, self.wire, self.ledger, self.watch = layout, wire, ledger, watch
        self.server = Server()
        self._context(-1)
        self.steps = Steps(recipe, composition)
        self.client_ids = list(range(recipe.data.clients))
        self.office = PostOffice(engine, wire, recipe.digest, self.client_ids, recipe.min_clients)
        self.key_server = KeyServerLine(self.office)
        self.rows: list[dict[str, Any]] = []
        self.on_row: Callable[[dict[str, Any]], None] = lambda row: None
        self.on_round: Callable[[int], None] = lambda rounds: None
        self.on_upload: Callable[[int, list[int]], None] = lambda round, charged: None
        self.awaiting: dict[str, Any] | None = None  # the row of the last round, until its accuracy is known
        self._reports: list[tuple[int, dict[str, Any]]] = []
        self.office.on_reply = self._hear

    def run(self, first_round: int = 0) -> None:
        """Runs the rounds from `first_round` on, and the end of the run. `setup` must have been done."""
        for round in range(first_round, self.recipe.rounds):
            self.round(round)
            self.on_round(round + 1)
        self.finish()

    # -- before round 1 ------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Clients join, agree on the cohort secret if a component needs one, and components make their keys."""
        self._begin(-1, "setup")
        everyone, ctx = self._cohort(self.client_ids), self._context(-1)
        aggregator = self.composition.components[self.recipe.aggregate.name]
        wants_size = bool(getattr(aggregator, "uses_num_examples", False))
        wants_secret = any(
            getattr(component, "needs_cohort_secret", False) for component in self.composition.components.values()
        )
        weights = dict.fromkeys(self.client_ids, 1.0)
        if wants_size or wants_secret:
            hellos = everyone.ask(self.steps.join, wants_secret, wants_size)
            self._require_all(hellos)
            if wants_size:
                sizes = {client_id: hello["num_examples"] for client_id, hello in hellos.items()}
                most = max(sizes.values())
                weights = {client_id: aggregator.client_weight(size, most) for client_id, size in sizes.items()}
                everyone.tell(self.steps.take_weight, most)
            if wants_secret:
                keys = {client_id: hello["public_key"] for client_id, hello in hellos.items()}
                dealt = everyone.only(self.client_ids[:1]).ask(self.steps.deal, keys)
                self._require_all(dealt, self.client_ids[:1])
                everyone.tell(self.steps.take_secret, dealt[self.client_ids[0]])
        self.server.state["fedplug"] = {"weights": weights}
        for component in self.composition.components.values():
            if hasattr(component, "setup"):
                component.setup(everyone, self.key_server, ctx)
        self._require_all(everyone.ask(self.steps.ready))  # delivers what was told, so that set-up errors show here
        self._reports = []

    def _require_all(self, replies: dict[int, Any], expected: list[int] | None = None) -> None:
        missing = sorted(set(expected or self.client_ids) - set(replies))
        if missing:
            reasons = "; ".join(f"client {c}: {self.office.dropped.get(c, 'no answer')}" for c in missing)
            raise TooFewClients(f"set-up needs every client once; missing: {reasons}")

    # -- a round -------------------------------------------------------------------------------------------------------

    def round(self, round: int) -> None:
        """One round of the protocol."""
        clock = _Clock(self.office, self.key_server)
        self._begin(round, "negotiate")
        ctx = self._context(round)
        cohort = self._cohort(self._sample(round))
        asked = cohort.client_ids
        if round:
            self._tell_evaluate(cohort)
        cohort.tell_now(self.steps.train)

        with clock("negotiate"):
            self.composition.one("negotiate_mask", self.recipe.negotiate_mask.name, cohort=cohort, ctx=ctx)
        self.office.phase = "upload"
        charged = cohort.client_ids  # whoever is asked to upload pays, also if the upload is then lost
        self.on_upload(round, charged)
        uploads = cohort.ask(self.steps.protect)

        weights: dict[int, float] = self.server.state["fedplug"]["weights"]
        contributors: dict[str, int] = {}
        for group in cohort.groups:
            members = cohort.group(group)
            replies = {client_id: uploads[client_id] for client_id in members.client_ids if client_id in uploads}
            opened: dict[str, Block] = {}
            for zone in self.recipe.zones:
                blocks = {c: reply["blocks"][zone] for c, reply in replies.items() if zone in reply["blocks"]}
                if blocks:
                    opened[zone] = self._aggregate(zone, blocks, weights, ctx, clock)
                    fewest = opened[zone].contributors
                    contributors[zone] = min(contributors.get(zone, fewest), fewest)
            if opened:
                members.tell(self.steps.adopt, opened, _mean_buffers(replies, weights))
        self._charge(round, charged, uploads, contributors, weights)
        self._close_row(round, asked, sorted(uploads), clock)

    def _aggregate(
        self, zone: str, blocks: dict[int, Block], weights: dict[int, float], ctx: Context, clock: _Clock
    ) -> Block:
        """Sums a zone, and runs the postprocess links of the server and the key server; the clients run the others."""
        with clock("aggregate"):
            name = self.recipe.aggregate.name
            block: Block = self.composition.one("aggregate", name, blocks=blocks, weights=weights, ctx=ctx)
            for use in self.recipe.postprocess.get(zone, []):
                site = site_of(self.composition.components[use.name])
                if site == "client":
                    break
                if site == "server":
                    block = self.composition.one("postprocess", use.name, block=block, ctx=ctx)
                else:
                    block = self.key_server.ask(self.steps.open, use.name, block)
            if block.values is not None:
                block = block.replace(values=block.mean(), divisor=1.0)
        return block

    # -- after the last round ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Delivers the last aggregate to every client and hears how the final model does."""
        clock = _Clock(self.office, self.key_server)
        self._begin(self.recipe.rounds, "finish")
        everyone = self._cohort(self.client_ids)
        self._tell_evaluate(everyone)
        row = self.awaiting
        digests = everyone.ask(self.steps.fingerprint)
        if row is not None:
            _merge(row, self._costs(self.recipe.rounds, clock))
            for group, ids in everyone.groups.items():
                if len({digests[c] for c in ids if c in digests}) > 1:
                    self.watch.note(f"the clients of group {group} ended with different models: {digests}")
        self._complete_row()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _begin(self, round: int, phase: str) -> None:
        self.office.begin_round(round)
        self.office.phase = phase

    def _cohort(self, client_ids: list[int]) -> Cohort:
        return Cohort(self.office, self.server, client_ids, self.client_ids)

    def _context(self, round: int) -> Context:
        ctx = make_context(self.recipe, self.composition, self.layout, round, self.server)
        self.server.ctx = ctx
        return ctx

    def _sample(self, round: int) -> list[int]:
        """The clients of this round: all, each with probability `rate` (poisson), or a fixed share (fixed)."""
        sampling = self.recipe.sampling
        if sampling is None:
            return self.client_ids
        # Amplification needs a cohort that nobody can predict, so the system's randomness is the default.
        secure = sampling.source == "secure"
        rng = np.random.default_rng() if secure else stream(self.recipe.seed, "cohort", round)
        if sampling.scheme == "poisson":
            coins = rng.random(len(self.client_ids))
            return [client_id for client_id, coin in zip(self.client_ids, coins, strict=True) if coin < sampling.rate]
        count = max(1, int(sampling.rate * len(self.client_ids) + 0.5))
        return sorted(int(c) for c in rng.choice(len(self.client_ids), count, replace=False))

    def _tell_evaluate(self, cohort: Cohort) -> None:
        for group in cohort.groups:
            members = cohort.group(group)
            members.tell_now(self.steps.evaluate, members.client_ids)

    def _charge(
        self,
        round: int,
        charged: list[int],
        uploads: dict[int, Any],
        contributors: dict[str, int],
        weights: dict[int, float],
    ) -> None:
        """Enters into the ledger what each zone's chain released this round."""
        sizes = {
            zone: sum(upload["blocks"][zone].size for upload in uploads.values() if zone in upload["blocks"])
            / len(uploads)
            for zone in self.recipe.zones
        }
        self.server.state["fedplug"]["zone_sizes"] = sizes
        self.ledger.record(
            round,
            charged=charged,
            zone_sizes=sizes,
            total=self.layout.size,
            releases=self._releases(round),
            contributors=contributors,
            weights={client_id: weights[client_id] for client_id in uploads},
        )

    def charge_lost_round(self, round: int, charged: list[int]) -> None:
        """Charges a round that was cut off after uploads had been asked for, and is now repeated with other noise.

        Reproducible noise repeats the very same upload, which costs nothing more. Zone sizes are those of the round
        before; before the first, every noised zone counts as the whole model.
        """
        releases = self._releases(round)
        if all(release.source == "reproducible" for chain in releases.values() for release in chain):
            return
        sizes = self.server.state["fedplug"].get("zone_sizes") or dict.fromkeys(releases, float(self.layout.size))
        self.ledger.record(
            round,
            charged=charged,
            zone_sizes=sizes,
            total=self.layout.size,
            releases=releases,
            contributors={},
            weights={},
        )

    def _releases(self, round: int) -> dict[str, list[Release]]:
        """What the components of each zone's chains say they release in a round."""
        releases: dict[str, list[Release]] = {}
        for zone in self.recipe.zones:
            chain = [*self.recipe.protect.get(zone, []), *self.recipe.postprocess.get(zone, [])]
            for name in dict.fromkeys(use.name for use in chain):
                component = self.composition.components[name]
                release = component.release(round, self.server.ctx) if hasattr(component, "release") else None
                if release is not None:
                    releases.setdefault(zone, []).append(release)
        return releases

    # -- metrics -------------------------------------------------------------------------------------------------------

    def _hear(self, client_id: int, reports: dict[str, Any], answered: int, asked: int) -> None:
        self._reports.append((client_id, reports))
        self.watch.phase(self.office.round + 1, self.office.phase, answered, asked)
        reason = self.office.dropped.get(client_id)
        if reason:
            self.watch.note(f"round {self.office.round + 1}: client {client_id} dropped out: {reason}")
        if answered == asked and self.office.round < self.recipe.rounds and self._evaluations():
            self._complete_row()

    def _evaluations(self) -> dict[int, dict[str, float]]:
        return {client_id: reports["evaluation"] for client_id, reports in self._reports if "evaluation" in reports}

    def _complete_row(self) -> None:
        """Adds the accuracy, counted by the clients with their next message, to the row of the round before."""
        row, self.awaiting = self.awaiting, None
        if row is None:
            return
        counts = self._evaluations()
        groups = {}
        for group, ids in self._cohort(self.client_ids).groups.items():
            inside = [counts[client_id] for client_id in ids if client_id in counts]
            total = sum(count["count"] for count in inside)
            if total:
                groups[group] = {
                    "accuracy": sum(count["correct"] for count in inside) / total,
                    "loss": sum(count["loss"] for count in inside) / total,
                }
        row["accuracy"] = _mean(group["accuracy"] for group in groups.values())
        row["loss"] = _mean(group["loss"] for group in groups.values())
        if len(groups) > 1:
            row["groups"] = groups
        row["client_accuracy"] = {
            str(client_id): count["own_correct"] / count["own_count"] for client_id, count in sorted(counts.items())
        }
        self.rows.append(row)
        self.on_row(row)

    def _close_row(self, round: int, asked: list[int], answered: list[int], clock: _Clock) -> None:
        # In the order of ids, so that sums do not depend on who answered first.
        reports = [report for _, report in sorted(self._reports, key=lambda heard: heard[0])]
        logs = [report["log"] for report in reports if "log" in report]
        logged = sorted({key for log in logs for key in log})
        shares = [report["zones"] for report in reports if "zones" in report]
        self.awaiting = {
            "round": round + 1,
            "accuracy": None,
            "loss": None,
            "train_loss": _mean(report["train"]["loss"] for report in reports if "loss" in report.get("train", {})),
            "client_accuracy": {},
            "clients": {
                "asked": len(asked),
                "answered": len(answered),
                "dropped": {str(client_id): reason for client_id, reason in self.office.dropped.items()},
            },
            "zones": {zone: _mean(share[zone] for share in shares) for zone in self.recipe.zones},
            **self._costs(round, clock),
            "epsilon": self.ledger.epsilon(),
            "mask_churn": _mean(report["churn"] for report in reports if "churn" in report),
            "log": {key: _mean(log[key] for log in logs if key in log) for key in logged},
        }
        self._reports = []

    def _costs(self, round: int, clock: _Clock) -> dict[str, Any]:
        """Seconds per phase summed over the parties, bytes per direction, phase and zone, and messages to clients."""
        seconds = clock.seconds()
        for _, report in self._reports:
            timed: dict[str, float] = report.get("seconds", {})
            for phase, value in timed.items():
                seconds[phase] = seconds.get(phase, 0.0) + value
            rest = report.get("seconds_total", 0.0) - sum(timed.values())
            seconds["negotiate"] = seconds.get("negotiate", 0.0) + max(0.0, rest)
        return {
            "seconds": seconds,
            "bytes": self.wire.of_round(round),
            "messages": self.wire.requests[round],
        }

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything the server needs to go on after a restart; plain data without any secret key."""
        return {
            "server": self.server.state,
            "office": self.office.state(),
            "rows": self.rows,
            "awaiting": self.awaiting,
            "ledger": self.ledger.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.server.state = state["server"]
        self.office.restore(state["office"])
        self.rows, self.awaiting = state["rows"], state["awaiting"]
        self.ledger.restore(state["ledger"])


class _Clock:
    """Seconds of the server's own work; waiting for clients and the key server does not count, their work does."""

    def __init__(self, office: PostOffice, key_server: KeyServerLine) -> None:
        self._office, self._key_server = office, key_server
        self._started, self._opened = time.perf_counter(), key_server.seconds
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        started, waited = time.perf_counter(), self._office.waited
        yield
        own = time.perf_counter() - started - (self._office.waited - waited)
        self._seconds[phase] = self._seconds.get(phase, 0.0) + own

    def seconds(self) -> dict[str, float]:
        opened = self._key_server.seconds - self._opened
        return {**self._seconds, **({"open": opened} if opened else {}), "wall": time.perf_counter() - self._started}


def _merge(row: dict[str, Any], costs: dict[str, Any]) -> None:
    """Adds the costs of the end of the run to its last row."""
    for key, value in costs.items():
        if isinstance(value, dict):
            _merge(row.setdefault(key, {}), value)
        else:
            row[key] = row.get(key, 0) + value


def _mean(values: Iterable[float]) -> float | None:
    collected = [float(value) for value in values]
    return sum(collected) / len(collected) if collected else None


def _mean_buffers(replies: dict[int, Any], weights: dict[int, float]) -> dict[str, Any] | None:
    """The weighted mean of the batch-norm buffers, if the recipe shares them; integer counters keep the largest."""
    with_buffers = {client_id: reply["buffers"] for client_id, reply in replies.items() if "buffers" in reply}
    if not with_buffers:
        return None
    total = sum(weights[client_id] for client_id in with_buffers)
    means: dict[str, Any] = {}
    for name, first in next(iter(with_buffers.values())).items():
        stacked = [(weights[client_id] / total, buffers[name]) for client_id, buffers in with_buffers.items()]
        if first.dtype.kind == "f":
            means[name] = sum(weight * values.astype(np.float64) for weight, values in stacked).astype(first.dtype)
        else:
            means[name] = np.maximum.reduce([values for _, values in stacked])
    return means
