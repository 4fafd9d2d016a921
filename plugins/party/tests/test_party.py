"""The requests that one party obeys and refuses, whatever server sends them. The party runs in this process."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.reports import Reports
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.wire.calls import Call, read_reply, request
from fedplug_party.frames import Reply
from fedplug_party.notes import Notes
from fedplug_party.party import FAILURES, Party
from fedplug_party.program import Site
from fedplug_runs import evaluation
from party_toys import Beside
from toy_components import recipe_of
from toy_protocol import build


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


class Server:
    """A server that sends a test's requests to one client, after the set-up."""

    def __init__(self, folder: Path, repeats: int = 1, **changes: Any) -> None:
        plain = recipe_of(rounds=3, **changes)
        plain["data"]["clients"] = plain["min_clients"] = 1
        self.beside = Beside(folder, plain, repeats)
        self.protocol, self.engine, _ = build(plain, self.beside.engine)
        self.protocol.setup()
        self.number = 100
        self.last = self.beside.asked[-1]

    @property
    def party(self) -> Party:
        return self.beside.parties["client:0"]

    def say(self, **changes: Any) -> Reply:
        """Sends a request like the engine's last one, with changes, and returns the reply."""
        self.number += 1
        changed = dataclasses.replace(self.last, **{"number": self.number, "message": b"", **changes})
        return Reply.read(self.party.answer(changed.to_bytes(), "parties"))

    def ask(self, method: Any, round: int) -> Reply:
        """Asks for one call of a round, from 0."""
        data, _ = request(self.protocol.recipe.digest, [Call.of(method, (), "client", round)])
        assert isinstance(data, bytes)
        return self.say(command="deliver", message=data)

    def message(self, round: int = 0) -> bytes:
        """A whole round as one message: train, upload."""
        steps, digest = self.protocol.steps, self.protocol.recipe.digest
        calls = [Call.of(method, (), "client", round) for method in (steps.train, steps.protect)]
        data, _ = request(digest, calls)
        assert isinstance(data, bytes)
        return data

    def deliver(self, round: int = 0, **changes: Any) -> Reply:
        return self.say(command="deliver", message=self.message(round), **changes)


def test_a_round_is_answered_and_noted_and_the_same_request_gives_the_same_bytes(server: Server) -> None:
    """A carrier that delivers a request twice gets no second upload, which would have different noise."""
    first = server.deliver()
    assert first.outcome == "done"
    (upload,) = read_reply(first.message)[0].value["blocks"].values()
    assert upload.zone == "clear"
    assert [line["answered"] for line in server.party.state.notes.lines if "answered" in line] == ["fedplug.protect"]
    again = server.say(command="deliver", message=server.message(), number=server.number)
    server.number -= 1
    assert again == first
    assert len([line for line in server.party.state.notes.lines if "answered" in line]) == 1


def test_an_upload_leaves_only_once_it_is_on_the_disk_that_it_was_given(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that is killed before that has sent nothing."""
    assert server.say(command="save", checkpoint="0-aa").outcome == "done"
    notes = server.party.state.notes.file

    def killed(handle: int) -> None:
        assert os.fstat(handle).st_ino == notes.stat().st_ino
        assert b'"answered": "fedplug.protect"' in notes.read_bytes()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            server.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        reply = server.deliver(1)
    assert (reply.outcome, reply.message) == ("refused", b"")
    assert "No space left" in reply.reason


def test_a_request_that_comes_late_is_not_run(server: Server) -> None:
    assert server.deliver().outcome == "done"
    late = server.say(command="deliver", message=server.message(1), number=server.number - 1)
    assert (late.outcome, late.message) == ("refused", b"")
    assert "came after request" in late.reason
    assert server.say(command="join", incarnation="", number=5).outcome == "refused"
    assert server.deliver(1).outcome == "done"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"digest": "f" * 64},
            "it was started with recipe .{12}, but the server has recipe f{12}; start all parties",
        ),
        ({"address": "client:1"}, "this is client:0, but the request is for client:1"),
        ({"session": "new", "command": "join", "run": "other"}, "holds the state of run .*, but this is run other"),
    ],
)
def test_who_means_another_recipe_party_or_run_is_refused(changes: dict[str, Any], reason: str, server: Server) -> None:
    assert server.deliver().outcome == "done"
    reply = server.say(**{"command": "deliver", "message": server.message(1), **changes})
    assert (reply.outcome, reply.message) == ("refused", b"")
    assert re.search(reason, reply.reason)
    assert server.deliver(1).outcome == "done"


def test_a_run_that_failed_before_its_first_round_binds_nobody(server: Server) -> None:
    """A server whose set-up fails discards its run folder and begins another run."""
    changes = {"session": "new", "run": "other"}
    assert server.say(command="join", **changes).outcome == "done"
    assert server.say(command="begin", **changes).outcome == "done"
    assert server.deliver(**changes).outcome == "done"


def test_a_message_under_another_digest_inside_a_request_under_the_right_one_is_refused(server: Server) -> None:
    calls = [Call.of(server.protocol.steps.train, (), "client", 0)]
    data, _ = request("f" * 64, calls)
    assert isinstance(data, bytes)
    answer = read_reply(server.say(command="deliver", message=data).message)[0]
    assert answer.error is not None
    assert "refused a message made under recipe ffffffffffff" in answer.error.message


def test_bytes_that_are_no_request_are_refused(server: Server) -> None:
    for data in (b"", b"\0" * 40, Reply("", 0, "").to_bytes(), server.last.to_bytes()[:-1]):
        reply = Reply.read(server.party.answer(data, "parties"))
        assert (reply.outcome, reply.session) == ("refused", "")
        assert "this is not a request" in reply.reason
    assert server.say(command="deliver", message=b"nonsense").outcome == "refused"
    assert server.say(command="load", checkpoint="../../etc").outcome == "refused"
    assert server.say(command="save", checkpoint="no name").outcome == "refused"
    missing = server.say(command="load", checkpoint="7-unknown").reason
    assert missing == "there is no checkpoint 7-unknown; the folder has: none"


def test_a_party_that_was_started_again_runs_nothing_until_it_is_told_where_it_is(server: Server) -> None:
    assert server.say(command="save", checkpoint="0-aa").outcome == "done"
    server.beside.start("client:0")
    for command in ("deliver", "save", "load", "begin"):
        reply = server.say(command=command, message=server.message(), checkpoint="0-aa")
        assert (reply.outcome, reply.message) == ("restarted", b"")
    joined = server.say(command="join", incarnation="")
    assert joined.kept == ["0-aa"]
    assert joined.incarnation != server.last.incarnation
    server.last = dataclasses.replace(server.last, incarnation=joined.incarnation)
    assert server.deliver().outcome == "restarted"
    assert server.say(command="load", checkpoint="0-aa").outcome == "done"
    assert server.deliver().outcome == "done"


def test_when_another_server_process_has_joined_the_one_before_is_refused(server: Server) -> None:
    """Even if its requests arrive after those of the new server."""
    assert server.say(command="save", checkpoint="0-aa").outcome == "done"
    assert server.say(command="join", session="second", incarnation="").outcome == "done"
    reply = server.deliver()
    assert reply.outcome == "refused"
    assert "another one has replaced it" in reply.reason
    assert server.say(command="join", incarnation="").outcome == "refused"
    assert server.deliver(session="second").outcome == "restarted"  # it has not sent `begin` or `load`
    assert server.say(command="load", session="second", checkpoint="0-aa").outcome == "done"
    assert server.deliver(session="second").outcome == "done"


def test_a_round_is_answered_again_as_often_as_the_site_allows(server: Server) -> None:
    """A server that was killed repeats a round. One that asks endlessly gets no more uploads to average."""
    assert server.say(command="save", checkpoint="0-aa").outcome == "done"
    assert server.deliver().outcome == "done"
    uploads = []
    for _ in range(3):
        assert server.say(command="load", checkpoint="0-aa").outcome == "done"
        uploads.append(server.deliver())
    assert [reply.outcome for reply in uploads] == ["done", "refused", "refused"]
    assert "its site's limit of repeated rounds in a run (1) is reached" in uploads[1].reason
    assert server.say(command="load", checkpoint="0-aa").outcome == "done"
    assert server.deliver().outcome == "refused"
    server.beside.start("client:0")  # a restart forgets nothing
    joined = server.say(command="join", incarnation="")
    server.last = dataclasses.replace(server.last, incarnation=joined.incarnation)
    assert server.say(command="load", checkpoint="0-aa").outcome == "done"
    assert server.deliver().outcome == "refused"
    server.beside.repeats = 2  # its owner allows one more
    server.beside.start("client:0")
    joined = server.say(command="join", incarnation="")
    server.last = dataclasses.replace(server.last, incarnation=joined.incarnation)
    assert server.say(command="load", checkpoint="0-aa").outcome == "done"
    assert server.deliver().outcome == "done"


def test_a_run_with_a_checkpoint_does_not_begin_anew_once_round_1_has_begun(server: Server) -> None:
    """Otherwise anyone could make the party delete all of its keys and state."""
    assert server.say(command="save", checkpoint="0-aa").outcome == "done"
    assert server.say(command="begin").outcome == "done"
    assert server.party.state.kept() == []  # a server that failed before round 1 begins another run
    assert server.say(command="save", checkpoint="0-bb").outcome == "done"
    assert server.deliver().outcome == "done"
    reply = server.say(command="begin")
    assert reply.outcome == "refused"
    assert "round 1 of this run has begun and there is a checkpoint" in reply.reason
    assert server.party.state.kept() == ["0-bb"]
    assert server.deliver(1).outcome == "done"


def test_with_an_error_nothing_leaves_that_the_calls_before_it_had_to_report(server: Server) -> None:
    """The party records and limits only the failure, so an answer with an error must disclose nothing else."""
    steps, digest = server.protocol.steps, server.protocol.recipe.digest
    calls = [Call.of(steps.train, (), "client", 0), Call.of(steps.take_secret, (b"",), "client", 0)]
    for messages in (calls[:1], calls):
        data, _ = request(digest, messages)
        assert isinstance(data, bytes)
        answer = read_reply(server.say(command="deliver", message=data).message)[0]
        assert (answer.error is None) == ("loss" in answer.reports.train) == (len(messages) == 1)
        assert (answer.reports == Reports()) == (len(messages) == 2)


def test_questions_that_fail_are_noted_and_bounded_also_after_a_restart(server: Server) -> None:
    """Whether an answer fails may depend on the data, so each failure may disclose about one bit."""
    steps, digest = server.protocol.steps, server.protocol.recipe.digest
    bad, _ = request(digest, [Call.of(steps.take_secret, (b"",), "client", 0)])
    good, _ = request(digest, [Call.of(steps.train, (), "client", 0)])
    assert isinstance(bad, bytes)
    assert isinstance(good, bytes)
    for _ in range(FAILURES * 2):  # one repeat is allowed
        reply = server.say(command="deliver", message=bad)
        assert reply.outcome == "refused" or read_reply(reply.message)[0].error is not None
    noted = Notes(server.party.state.notes.file)
    assert noted.failures == server.party.state.notes.failures == FAILURES * 2
    assert noted.repeats == 0
    reply = server.say(command="deliver", message=good)
    assert reply.outcome == "refused"
    assert "it has failed at 20 questions, the limit of a run" in reply.reason


def test_an_evaluation_after_the_last_round_is_noted_and_bounded(server: Server) -> None:
    """It discloses something about the examples on which the client evaluates a model that the server chose."""
    steps, digest = server.protocol.steps, server.protocol.recipe.digest
    evaluate = Call.of(steps.evaluate, (evaluation.packed([0]),), "client", 3)
    calls = [evaluate, Call.of(steps.fingerprint, (), "client", 3)]
    data, _ = request(digest, calls)
    assert isinstance(data, bytes)
    assert server.say(command="save", checkpoint="3-aa").outcome == "done"
    outcomes = []
    for _ in range(3):
        outcomes.append(server.say(command="deliver", message=data).outcome)
        assert server.say(command="load", checkpoint="3-aa").outcome == "done"
    assert outcomes == ["done", "done", "refused"]


@pytest.mark.parametrize("field", ["command", "address", "number", "message"])
def test_a_field_that_is_an_array_ends_no_program(field: str, server: Server) -> None:
    plain = {each.name: getattr(server.last, each.name) for each in dataclasses.fields(server.last)}
    data = codec.frame(codec.encode({**plain, field: np.array([1, 2])}))
    reply = Reply.read(server.party.answer(data, "parties"))
    assert reply.outcome == "refused"
    assert f"this is not a request: a malformed request: {field} is" in reply.reason


def test_a_folder_that_cannot_be_read_ends_no_program(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(server.party.state, "kept", fail)
    reply = server.say(command="join", session="second", incarnation="")
    assert reply.outcome == "refused"
    assert "Input/output error" in reply.reason


@pytest.mark.parametrize(("round", "times"), [(-1, 0), (0, 1), (1, 0), (3, 0)])
def test_a_ballot_is_given_as_often_as_the_ledger_enters_it(round: int, times: int, tmp_path: Path) -> None:
    """It is answered once, in the round for which its noise is stated. More answers would average the noise away."""
    server = Server(tmp_path, groups="toy.halves")
    groups: Any = server.protocol.composition.components["toy.halves"]
    if times:
        server.ask(server.protocol.steps.train, round)
    replies = [server.ask(groups.parity, round) for _ in range(2)]
    assert [reply.outcome for reply in replies] == ["done"] * times + ["refused"] * (2 - times)
    when = f"in round {max(round, 0) + 1}" if round < server.protocol.recipe.rounds else "at the end"
    limit = f"toy.halves.parity has reached its limit of answers {when} ({times})"
    assert limit in replies[-1].reason


def test_what_a_ballot_is_made_of_that_the_server_noises_is_answered_as_often(tmp_path: Path) -> None:
    """With `hear` in between, answers for many norms would find a client's own."""
    name = "baselines.adaptive_clip"
    recipe = Recipe.from_plain(
        {"name": "a", "seed": 1, "rounds": 2, "data": {"use": "std.digits", "clients": 4, "partition": "std.iid"},
         "model": "std.mlp", "train": "std.sgd",
         "negotiate_mask": {"use": name, "zone": "noised", "noise_multiplier": 1.0},
         "protect": {"noised": [name]}, "aggregate": {"use": "std.mean", "weighting": "uniform"},
         "postprocess": {"noised": [name]}},
    )  # fmt: skip
    site = Site(recipe, "client:0", tmp_path, None, "cpu", Catalog.discover())
    assert [site.paid(round, f"{name}.is_within") for round in (0, 1, 2)] == [1, 1, 0]
    assert site.paid(0, f"{name}.adopt") is None


def test_no_ballot_belongs_to_the_set_up_and_a_run_that_begins_anew_repeats_those_of_its_rounds(tmp_path: Path) -> None:
    server = Server(tmp_path, repeats=1, groups="toy.halves")
    groups: Any = server.protocol.composition.components["toy.halves"]

    def ask(round: int) -> str:
        if round >= 0:
            server.ask(server.protocol.steps.train, round)
        return server.ask(groups.parity, round).outcome

    assert [ask(-1), ask(0), ask(0)] == ["refused", "done", "refused"]
    outcomes = []
    for _ in range(3):
        assert server.say(command="begin").outcome == "done"
        outcomes.append(ask(0))
    assert outcomes == ["done", "refused", "refused"]


def test_a_message_must_end_with_its_question(server: Server) -> None:
    """After an upload, the party would skip a lasting call that was run before, and would not record the upload."""
    steps = server.protocol.steps
    done = Call.of(steps.hear, ("std.mean", {}), "client", -1, sequence=1)
    calls = [Call.of(method, (), "client", 0) for method in (steps.train, steps.protect)]
    data, _ = request(server.protocol.recipe.digest, [*calls, done])
    assert isinstance(data, bytes)
    reply = server.say(command="deliver", message=data)
    assert (reply.outcome, reply.message) == ("refused", b"")
    assert "does not end with a question" in reply.reason


def test_what_gives_nothing_away_is_not_noted(server: Server) -> None:
    """A question that fails, and a question to a party that must catch up first."""
    steps, digest = server.protocol.steps, server.protocol.recipe.digest
    calls = [Call.of(steps.protect, (), "client", 0)]
    for known in (0, 99):
        data, _ = request(digest, calls, known)
        assert isinstance(data, bytes)
        assert server.say(command="deliver", message=data).outcome == "done"
    assert not [line for line in server.party.state.notes.lines if "answered" in line]


def test_a_party_says_what_it_is_at(server: Server) -> None:
    assert server.deliver().outcome == "done"
    said = server.party.status()
    assert (said["party"], said["server"], said["repeats"]) == ("client:0", "connected", "0 of 1")
    assert said["last answer"].startswith("fedplug.protect, round 1, ")
    assert server.say(command="leave").outcome == "done"
    assert not server.party.over
    assert server.party.status()["server"] == "not connected"


def test_the_run_is_over_when_the_server_leaves_after_the_last_question(server: Server) -> None:
    data, _ = request(server.protocol.recipe.digest, [Call.of(server.protocol.steps.fingerprint, (), "client", 3)])
    assert isinstance(data, bytes)
    reply = read_reply(server.say(command="deliver", message=data).message)[0]
    assert isinstance(reply.value, bytes)
    assert server.say(command="leave").outcome == "done"
    assert server.party.over
    assert not [line for line in server.party.state.notes.lines if "answered" in line]
