"""The numbers of a run: one row a round, from what clients report with their replies and what crossed the wire.

Accuracy after a round is counted by the clients and arrives with their next message, so a row waits until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedplug.api.events import (
    Events,
    ModelDelivered,
    Negotiated,
    ReplyArrived,
    RoundClosed,
    RowComplete,
    RowMade,
    RowsRestored,
    SetUpDone,
    SumWithheld,
    Uploaded,
)  # fmt: skip
from fedplug.api.pictures import SERVER, Pictures, party_name, take
from fedplug.recipe.recipe import Recipe
from fedplug.wire.post_office import PostOffice, alike, listed

if TYPE_CHECKING:
    from fedplug.api.context import Party
    from fedplug.privacy.ledger import Ledger


class Metrics:
    """Collects the rows of `metrics.jsonl`.

    Args:
        recipe: for zones and rounds.
        office: through which replies come.
        ledger: for epsilon so far.
        server: whose log and pictures count beside those of the clients.
        events: heard, and told of rows.

    Attributes:
        rows: the complete rows.
        awaiting: the row of the last round, until its accuracy is known.
        pictures: what components want shown in the report.
    """

    def __init__(self, recipe: Recipe, office: PostOffice, ledger: Ledger, server: Party, events: Events) -> None:
        self.recipe, self.office, self.ledger, self.events = recipe, office, ledger, events
        self.rows: list[dict[str, Any]] = []
        self.awaiting: dict[str, Any] | None = None
        self.server, self.pictures = server, Pictures(events.note)
        self._reports: list[tuple[int, dict[str, Any]]] = []
        self._noted: set[int] = set()  # drop-outs of this round that were told of
        events.subscribe(SetUpDone, lambda event: self.forget())
        events.subscribe(ReplyArrived, self._hear)
        events.subscribe(Negotiated, self._after_negotiation)
        events.subscribe(Uploaded, lambda event: self.complete(event.groups))
        events.subscribe(RoundClosed, self._close_round)
        events.subscribe(ModelDelivered, self._end)

    def forget(self) -> None:
        """Drops what was reported during the set-up."""
        self._reports, self._noted = [], set()

    def restore(self, rows: list[dict[str, Any]], awaiting: dict[str, Any] | None) -> None:
        """Goes on from the rows of a checkpoint."""
        self.rows, self.awaiting = rows, awaiting
        self.events.tell(RowsRestored([*rows, *([awaiting] if awaiting else [])]))

    def _after_negotiation(self, event: Negotiated) -> None:
        if len(self._evaluations()) == len(event.asked):
            self.complete(event.groups)

    def complete(self, groups: Mapping[str, Sequence[int]]) -> None:
        """Adds the accuracy to the row of the round before; does nothing if no row waits."""
        row, self.awaiting = self.awaiting, None
        if row is None:
            return
        counts, results = self._evaluations(), {}
        for group, ids in groups.items():
            inside = [counts[client_id] for client_id in ids if client_id in counts]
            total = sum(count["count"] for count in inside)
            if total:
                results[group] = {
                    "accuracy": sum(count["correct"] for count in inside) / total,
                    "loss": sum(count["loss"] for count in inside) / total,
                }
        if any("true_positives" in count for count in counts.values()):
            row["segmentation"] = segmentation(counts.values())
        row["accuracy"] = _mean(result["accuracy"] for result in results.values())
        row["loss"] = _mean(result["loss"] for result in results.values())
        if len(results) > 1:
            row["groups"] = results
        row["client_accuracy"] = _shares(counts, "own_correct", "own_count")
        if any("personal_correct" in count for count in counts.values()):
            row["personal_accuracy"] = _shares(counts, "personal_own_correct", "own_count")
            row["personal_public_accuracy"] = _shares(counts, "personal_correct", "count")
        if len(groups) > 1:
            row["group_members"] = groups
        if unopened := self._unopened():
            row["unopened"] = unopened
        self.rows.append(row)
        self.events.tell(RowComplete(row))

    def _close_round(self, event: RoundClosed) -> None:
        """Makes the row of a round that has ended; it waits for its accuracy."""
        self.complete({})  # of the round before, if nobody evaluated in this one
        self._note_drop_outs()  # those that nobody was waiting for
        self._noted = set()
        # In the order of ids, so that sums do not depend on who answered first.
        reports = [report for _, report in sorted(self._reports, key=lambda heard: heard[0])]
        logs = [report["log"] for report in reports if "log" in report]
        logged = sorted({key for log in logs for key in log})
        shares = [report["zones"] for report in reports if "zones" in report]
        self.awaiting = {
            "round": event.round + 1,
            "accuracy": None,
            "loss": None,
            "train_loss": _mean(report["train"]["loss"] for report in reports if "loss" in report.get("train", {})),
            "client_accuracy": {},
            "clients": {
                "asked": len(event.asked),
                "answered": len(event.answered),
                "dropped": {str(client_id): reason for client_id, reason in self.office.dropped.items()},
            },
            "zones": {zone: _mean(share[zone] for share in shares if zone in share) for zone in self.recipe.zones},
            **self._costs(event.round, event.seconds),
            "epsilon": self.ledger.epsilon(),
            **({"epsilon_prices": part} if (part := self.ledger.priced_part()) else {}),
            **{f"{level}_epsilon": epsilon for level, epsilon in self.ledger.level_epsilons().items()},
            "mask_churn": _mean(report["churn"] for report in reports if "churn" in report),
            "log": self._with_server_log({key: _mean(log[key] for log in logs if key in log) for key in logged}),
        }
        self.events.tell(RowMade(event.round, self.awaiting, self._reports, event.own))
        self._reports = []
        self._take_pictures(*take(self.server.figures), SERVER)

    def _end(self, event: ModelDelivered) -> None:
        """Adds the costs of the end of the run to its last row, and how the final model does."""
        if self.awaiting is not None:
            _merge(self.awaiting, self._costs(self.recipe.rounds, event.seconds))
            self.events.tell(RowMade(self.recipe.rounds, self.awaiting, self._reports, event.own))
        self.complete(event.groups)

    def _hear(self, event: ReplyArrived) -> None:
        reports = event.reports
        self._take_pictures(reports.pop("figures", {}), reports.pop("unpictured", {}), event.client_id)
        self._reports.append((event.client_id, reports))
        if event.answered == event.asked:
            self._note_drop_outs()

    def _take_pictures(self, good: dict[str, Any], bad: dict[str, str], client_id: int) -> None:
        for name, picture in good.items():
            self.pictures.add(name, picture, client_id, self.office.round + 1)
        for name, reason in bad.items():
            self.pictures.leave_out(name, party_name(client_id), reason)

    def _with_server_log(self, means: dict[str, float | None]) -> dict[str, float | None]:
        """The clients' means, and what the server logged in this round; of equal names, both."""
        own = {f"server.{key}" if key in means else key: float(value) for key, value in self.server.log.items()}
        self.server.log.clear()
        return {**means, **own}

    def _note_drop_outs(self) -> None:
        """Tells who dropped out since that was told last: one note a reason, however many clients it hit."""
        new = {c: reason for c, reason in self.office.dropped.items() if c not in self._noted}
        self._noted.update(new)
        shown = min(self.office.round + 1, self.recipe.rounds)
        when = f"round {shown}" if shown else "set-up"
        for reason, ids in alike(new):
            who = f"client {ids[0]}" if len(ids) == 1 else f"{len(ids)} clients ({listed(ids)})"
            self.events.note(f"{when}: {who} dropped out: {reason}")

    def _unopened(self) -> list[dict[str, Any]]:
        """Sums that clients could not open, once a reason, each with its clients, and tells it."""
        told: dict[str, dict[int, str]] = {}
        for client_id, report in self._reports:
            for zone, reason in report.get("unopened", {}).items():
                told.setdefault(zone, {})[client_id] = reason
            for zone, rounds in report.get("opened_before", {}).items():
                for round in rounds if zone in self.recipe.zones else ():
                    if round <= self.office.round:
                        self.events.tell(SumWithheld(round, zone))
        found = [(zone, reason, ids) for zone, reasons in told.items() for reason, ids in alike(reasons)]
        for _, reason, ids in found:
            self.events.note(f"client {listed(ids)} {reason}; the model keeps its values there")
        return [{"zone": zone, "reason": reason, "clients": ids} for zone, reason, ids in found]

    def _evaluations(self) -> dict[int, dict[str, float]]:
        return {client_id: reports["evaluation"] for client_id, reports in self._reports if "evaluation" in reports}

    def _costs(self, round: int, own: Mapping[str, float]) -> dict[str, Any]:
        """Seconds per phase summed over the parties, bytes per direction, phase and zone, and messages to clients."""
        seconds = dict(own)
        for _, report in self._reports:
            timed: dict[str, float] = report.get("seconds", {})
            for phase, value in timed.items():
                seconds[phase] = seconds.get(phase, 0.0) + value
            rest = report.get("seconds_total", 0.0) - sum(timed.values())
            seconds["negotiate"] = seconds.get("negotiate", 0.0) + max(0.0, rest)
        wire = self.office.wire
        return {"seconds": seconds, "bytes": wire.of_round(round), "messages": wire.requests[round]}


def segmentation(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """How well the foreground is found, over the pixels of all clients: IoU, precision, recall and F-score.

    A share of nothing is 0: no precision where nothing was taken for foreground.
    """
    counts = list(counts)
    right, wrong, missed = (
        sum(count.get(name, 0) for count in counts)
        for name in ("true_positives", "false_positives", "false_negatives")
    )

    def share(of: float) -> float:
        return right / of if of else 0.0

    return {
        "iou": share(right + wrong + missed), "precision": share(right + wrong), "recall": share(right + missed),
        "f_score": share(right + (wrong + missed) / 2),
    }  # fmt: skip


def _merge(row: dict[str, Any], costs: dict[str, Any]) -> None:
    for key, value in costs.items():
        if isinstance(value, dict):
            _merge(row.setdefault(key, {}), value)
        else:
            row[key] = row.get(key, 0) + value


def _shares(counts: dict[int, dict[str, float]], correct: str, of: str) -> dict[str, float]:
    """Accuracy by client; clients without examples are left out."""
    return {str(client_id): count[correct] / count[of] for client_id, count in sorted(counts.items()) if count[of]}


def _mean(values: Iterable[float]) -> float | None:
    collected = [float(value) for value in values]
    return sum(collected) / len(collected) if collected else None
