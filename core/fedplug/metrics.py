"""The numbers of a run: one row a round, from what clients report with their replies and what crossed the wire.

Accuracy after a round is counted by the clients and arrives with their next message, so a row waits until then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedplug.cohort import KeyServerLine, PostOffice, alike, listed
from fedplug.pictures import SERVER, Pictures, party_name, take
from fedplug.recipe import Recipe

if TYPE_CHECKING:
    from fedplug.context import Party
    from fedplug.ledger import Ledger
    from fedplug.work_log import WorkLog


class Metrics:
    """Collects the rows of `metrics.jsonl`.

    Args:
        recipe: for zones and rounds.
        office: through which replies come.
        ledger: for epsilon so far.
        watch: told of every reply; see `fedplug.display.Display`.
        server: whose log and pictures count beside those of the clients.
        work: what every party does, for the simulated clock.

    Attributes:
        rows: the complete rows.
        awaiting: the row of the last round, until its accuracy is known.
        pictures: what components want shown in the report.
        on_row: called with each row when it is complete.
    """

    def __init__(
        self, recipe: Recipe, office: PostOffice, ledger: Ledger, watch: Any, server: Party, work: WorkLog
    ) -> None:
        self.recipe, self.office, self.ledger, self.watch, self.work = recipe, office, ledger, watch, work
        self.rows: list[dict[str, Any]] = []
        self.awaiting: dict[str, Any] | None = None
        self.on_row: Callable[[dict[str, Any]], None] = lambda row: None
        self.server, self.pictures = server, Pictures(watch.note)
        self._reports: list[tuple[int, dict[str, Any]]] = []
        self._noted: set[int] = set()  # drop-outs of this round that the watch knows of
        office.on_reply = self._hear

    def forget(self) -> None:
        """Drops what was reported during the set-up."""
        self._reports, self._noted = [], set()
        self.work.forget()

    def restore(self, rows: list[dict[str, Any]], awaiting: dict[str, Any] | None) -> None:
        """Goes on from the rows of a checkpoint."""
        self.rows, self.awaiting = rows, awaiting
        self.work.recall([*rows, awaiting])

    def evaluated(self) -> int:
        """How many clients have evaluated the model since the last round."""
        return len(self._evaluations())

    def complete(self, groups: dict[str, list[int]]) -> None:
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
        self.on_row(row)

    def close_round(self, round: int, asked: list[int], answered: list[int], clock: Clock) -> None:
        """Makes the row of a round that has ended; it waits for its accuracy."""
        self._note_drop_outs()  # those that nobody was waiting for
        self._noted = set()
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
            "zones": {zone: _mean(share[zone] for share in shares if zone in share) for zone in self.recipe.zones},
            **self._costs(round, clock),
            "epsilon": self.ledger.epsilon(),
            **({"epsilon_prices": part} if (part := self.ledger.priced_part()) else {}),
            **({"record_epsilon": records} if (records := self.ledger.record_epsilon()) is not None else {}),
            "mask_churn": _mean(report["churn"] for report in reports if "churn" in report),
            "log": self._with_server_log({key: _mean(log[key] for log in logs if key in log) for key in logged}),
        }
        self.work.enter(self.awaiting, round, self._reports, clock.own())
        self._reports = []
        self._take_pictures(*take(self.server.figures), SERVER)

    def add_end(self, clock: Clock) -> None:
        """Adds the costs of the end of the run to its last row."""
        if self.awaiting is not None:
            _merge(self.awaiting, self._costs(self.recipe.rounds, clock))
            self.work.enter(self.awaiting, self.recipe.rounds, self._reports, clock.own())

    def _hear(self, client_id: int, reports: dict[str, Any], answered: int, asked: int) -> None:
        self._take_pictures(reports.pop("figures", {}), reports.pop("unpictured", {}), client_id)
        self._reports.append((client_id, reports))
        shown = min(self.office.round + 1, self.recipe.rounds)
        self.watch.phase(shown, self.office.phase, answered, asked)
        if answered == asked:
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
        """Tells the watch who dropped out since it was told last: one note a reason, however many clients it hit."""
        new = {c: reason for c, reason in self.office.dropped.items() if c not in self._noted}
        self._noted.update(new)
        shown = min(self.office.round + 1, self.recipe.rounds)
        when = f"round {shown}" if shown else "set-up"
        for reason, ids in alike(new):
            who = f"client {ids[0]}" if len(ids) == 1 else f"{len(ids)} clients ({listed(ids)})"
            self.watch.note(f"{when}: {who} dropped out: {reason}")

    def _unopened(self) -> list[dict[str, Any]]:
        """Sums that clients could not open, once a reason, each with its clients; the watch is told."""
        told: dict[str, dict[int, str]] = {}
        for client_id, report in self._reports:
            for zone, reason in report.get("unopened", {}).items():
                told.setdefault(zone, {})[client_id] = reason
            for zone, rounds in report.get("opened_before", {}).items():
                for round in rounds if zone in self.recipe.zones else ():
                    if round <= self.office.round:
                        self.ledger.note_unopened(round, zone)
        found = [(zone, reason, ids) for zone, reasons in told.items() for reason, ids in alike(reasons)]
        for _, reason, ids in found:
            self.watch.note(f"client {listed(ids)} {reason}; the model keeps its values there")
        return [{"zone": zone, "reason": reason, "clients": ids} for zone, reason, ids in found]

    def _evaluations(self) -> dict[int, dict[str, float]]:
        return {client_id: reports["evaluation"] for client_id, reports in self._reports if "evaluation" in reports}

    def _costs(self, round: int, clock: Clock) -> dict[str, Any]:
        """Seconds per phase summed over the parties, bytes per direction, phase and zone, and messages to clients."""
        seconds = clock.seconds()
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


class Clock:
    """Seconds of the server's own work; waiting for clients and the key server does not count, their work does."""

    def __init__(self, office: PostOffice, key_server: KeyServerLine) -> None:
        self._office, self._key_server = office, key_server
        self._started, self._opened = time.perf_counter(), key_server.seconds
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the time inside to a phase."""
        started, waited = time.perf_counter(), self._office.waited
        yield
        own = time.perf_counter() - started - (self._office.waited - waited)
        self._seconds[phase] = self._seconds.get(phase, 0.0) + own

    def own(self) -> float:
        """Seconds of the server's own work so far."""
        return sum(self._seconds.values())

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far, and `wall`, the wall clock since the beginning."""
        opened = self._key_server.seconds - self._opened
        return {**self._seconds, **({"open": opened} if opened else {}), "wall": time.perf_counter() - self._started}


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
