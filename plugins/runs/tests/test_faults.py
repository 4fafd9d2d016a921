"""Faults of a first component: each is named with component, hook, rule and remedy, in a run and by the kit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import call
from fedplug_kit import conformance

FILE = '''\
import os

import fedplug
import numpy as np
from fedplug import Field, Plan, Plans, at_client
from fedplug.api.errors import ProtectionError


class Bare(fedplug.ModelSource):
    """Give a bare module."""

    def build(self, shape, num_classes, seed, device):
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))


def one_module():
    from torch import nn

    return nn.Linear(64, 10)


class Whole(fedplug.Negotiation):
    """Put the whole model into a zone."""

    _zone = "clear"
    plans = Plans(zones=frozenset({"clear"}))

    def negotiate_mask(self, cohort, facts):
        cohort.ask(self.take, self._handed())

    def reveals(self, facts):
        return []

    def _handed(self):
        return None

    @at_client
    def take(self, client, handed):
        client.plan = Plan.of(client.facts, self._zone)
        return self._given()

    def _given(self):
        return None


class Nowhere(Whole):
    """Put it into a zone that is not there."""

    _zone = "nowhere"


class NoPlan(Whole):
    """Set no plan."""

    @at_client
    def take(self, client, handed):
        return None


class HandsObject(Whole):
    """Hand clients an object."""

    def _handed(self):
        return object()


class HandsTuples(Whole):
    """Hand clients a dict whose keys they cannot read."""

    def _handed(self):
        return {(1, 2): 3}


class GivesSet(Whole):
    """Answer with a set."""

    def _given(self):
        return {1, 2}


class NanScores(fedplug.Scorer):
    """Score by NaN."""

    def score_parameters(self, client, facts):
        return np.full(facts.layout.size, np.nan, np.float32)


class Fails(fedplug.Opener):
    """Raise in every round."""

    class Options(fedplug.Options):
        at: str = Field("client", description="which party")
        client: int = Field(-1, description="at which client alone; -1: at all")
        refuses: bool = Field(False, description="whether it refuses, which sums may deserve")

    @property
    def site(self):
        return self.options.at

    def postprocess(self, known, facts):
        return fedplug.Map(self.fail)

    def fail(self, block, party, facts):
        if self.options.client not in (-1, getattr(party, "client_id", -1)):
            return block
        raise ProtectionError("not this sum") if self.options.refuses else ValueError("nothing works")


class Helps(Whole):
    """Have clients help to open something, once a round."""

    class Options(fedplug.Options):
        told: bool = Field(False, description="whether they are told, and not asked")

    def negotiate_mask(self, cohort, facts):
        (cohort.tell if self.options.told else cohort.ask)(self.help, os.urandom(8))
        cohort.ask(self.take, None)

    @at_client
    def help(self, client, sum):
        with client.openings.once(client.facts.round, "clear", "all", range(4), [sum]):
            pass


class Spy(fedplug.Protector):
    """Be named as a part of the kit."""

    def protect(self, known, facts):
        return fedplug.Map(self.run)

    def run(self, block, client, facts):
        raise ValueError("it runs")


class Clip(Spy):
    """Be named as a part of the kit."""


class Sum(fedplug.Aggregator):
    """Be named as a part of the kit."""

    def aggregate(self, known, facts):
        raise ValueError("it runs")


class One_Zone(NoPlan):
    """Be named as a part of the kit."""
'''
RECIPE = """\
name: mine
seed: 1
rounds: 4
data: {use: std.digits, clients: 4, partition: std.iid, train_size: 80, test_size: 20}
model: {use: std.mlp, hidden: []}
train: std.sgd
negotiate_mask: {use: std.single_zone, zone: clear}
protect: {clear: []}
aggregate: std.mean
"""
NOWHERE = "zone 'nowhere' is none of encrypted, noised, retained, clear; a plan is made with facts.zones and puts"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a recipe and a file of components."""
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "parts.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *changes: str) -> int:
    code: int = call(monkeypatch, "run", "mine.yaml", "--output", "runs", *(x for c in changes for x in ("--set", c)))
    return code


def use(name: str, **options: Any) -> str:
    return json.dumps({"use": f"parts.py:{name}", **options})


@pytest.mark.parametrize(
    ("name", "options", "place", "where", "said"),
    [
        ("Bare", {}, "model=%s", "build", "it gave a Sequential, which has no layout; it must give a fedplug Model"),
        ("Nowhere", {}, "negotiate_mask=%s", "hook negotiate_mask, method take", f"ValueError: {NOWHERE}"),
        ("NoPlan", {}, "negotiate_mask=%s", "hook negotiate_mask", "client 0 has no plan in round 1; a negotiation"),
        (
            "HandsObject", {}, "negotiate_mask=%s", "hook negotiate_mask, method take",
            "its payload: an object cannot travel; send plain data or numpy arrays",
        ),
        (
            "HandsTuples", {}, "negotiate_mask=%s", "hook negotiate_mask, method take",
            "its payload: this value cannot travel: a dict has a tuple as a key; use text or",
        ),
        (
            "GivesSet", {}, "negotiate_mask=%s", "hook negotiate_mask, method take",
            "its answer: a set cannot travel; send plain data or numpy arrays",
        ),
        ("NanScores", {}, "score_parameters=[%s]", "hook score_parameters", "scores that are NaN, which nobody can"),
        *[
            ("Fails", {"at": at},
             'postprocess={"clear": [%s]}', "hook postprocess, zone clear, Map", "ValueError: nothing")
            for at in ("client", "key_server", "server")
        ],
    ],
)  # fmt: skip
def test_a_fault_is_named_in_a_run_and_by_the_kit(
    name: str, options: dict[str, Any], place: str, where: str, said: str, folder: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert run(monkeypatch, place % use(name, **options)) == 1
    shown = capsys.readouterr()
    told = " ".join((shown.out + shown.err).split())
    assert f"component parts.{name}, {where}: " in told
    assert said in told
    assert "Traceback" not in told
    with pytest.raises(AssertionError) as error:
        conformance(f"parts.py:{name}", options)
    assert where.partition(",")[0] in str(error.value)
    assert said in str(error.value)


def test_one_module_for_all_runs_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "parts.py").write_text(f"{FILE}\n\nMODULE = one_module()\n")
    assert run(monkeypatch, f"model={use('MODULE')}") == 1
    assert "it is one module, a Linear, and each run needs a new one" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["Spy", "Clip", "Sum", "One_Zone"])
def test_the_kit_runs_a_class_that_is_named_like_one_of_its_parts(name: str) -> None:
    made: dict[str, Any] = {"__name__": "parts_of_a_stranger"}
    exec(compile(FILE, "parts.py", "exec"), made)
    made[name].__module__ = "fedplug"  # of which a fresh interpreter finds out nothing
    with pytest.raises(AssertionError, match=f"component kit.{name.lower()}, hook .*(it runs|has no plan)"):
        conformance(made[name])


# -- openers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["client", "key_server", "server"])
def test_an_opener_that_refuses_every_sum_ends_the_run_after_three_rounds(
    at: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some sums may deserve that, and the next may be better; that of a run without end is not."""
    assert run(monkeypatch, f'postprocess={{"clear": [{use("Fails", at=at, refuses=True)}]}}') == 1
    shown = capsys.readouterr()
    told = " ".join((shown.out + shown.err).split())
    assert "zone clear did not open in 3 rounds in a row, and the run waits for no more. Round 1: " in told
    assert "not this sum" in told


def test_an_opener_that_fails_at_one_client_costs_that_client_its_zone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, f'postprocess={{"clear": [{use("Fails", client=2)}]}}') == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "note: client 2 cannot open zone clear in round 1: component parts.Fails, hook postprocess" in told


# -- what was opened before --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [False, True])
def test_clients_that_refuse_another_sum_than_before_cost_a_resumed_run_that_round_alone(
    told: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, f"negotiate_mask={use('Helps', told=told)}") == 0
    (made,) = (folder / "runs").iterdir()
    capsys.readouterr()
    assert call(monkeypatch, "resume", str(made), "--round", "3") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "a sum of zone clear in round 4 was opened before, with other ciphertexts" in shown
    rows = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert [bool(row.get("skipped")) for row in rows] == [False, False, False, not told]
    assert not any(row["clients"].get("dropped") for row in rows)
