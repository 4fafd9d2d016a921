"""The line to a party: who may call, which requests it refuses, and the errors for a party that does not answer."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

import pytest
from fedplug.api.errors import PartyLost, SetupError
from fedplug_party import line
from fedplug_party.line import KEY, MOST_BYTES, SOCKET, Listening, ask
from party_toys import silent


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Path]:
    """The folder of a party that replies with the request reversed."""
    listening = Listening(tmp_path, lambda request, _: request[::-1])
    yield tmp_path
    listening.close()


def test_a_request_has_a_reply_and_nobody_else_can_reach_the_socket_or_read_the_key(echo: Path) -> None:
    large = os.urandom(3 << 20)
    assert ask(echo, b"abc", 120, "parties") == b"cba"
    assert ask(echo, large, 120, "parties") == large[::-1]
    assert ask(echo, b"", float("inf"), "parties") == b""
    for name in (SOCKET, KEY):
        assert stat.S_IMODE((echo / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("size", [3, 1000])
def test_the_party_hears_which_engine_carries_a_request(size: int, tmp_path: Path) -> None:
    with contextlib.closing(Listening(tmp_path, lambda _, engine: engine.encode())):
        assert ask(tmp_path, bytes(size), 120, "flower") == b"flower"


def test_who_has_another_key_is_refused_and_nothing_is_answered(tmp_path: Path) -> None:
    heard: list[bytes] = []
    listening = Listening(tmp_path, lambda request, _: heard.append(request) or b"")  # type: ignore[func-returns-value]
    (tmp_path / KEY).write_bytes(b"0" * 64)
    try:
        with pytest.raises(PartyLost, match="has a different key from"):
            ask(tmp_path, b"open", 120, "parties")
    finally:
        listening.close()
    assert heard == []


def test_who_listens_in_the_place_of_a_party_learns_nothing(tmp_path: Path) -> None:
    """A listener without the key cannot read the request, because the caller asks for proof as well."""
    (tmp_path / KEY).write_bytes(b"1" * 64)
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / SOCKET))
        other.listen()

        def impostor() -> None:
            """Accepts any proof, but cannot give one."""
            with contextlib.closing(Connection(other.accept()[0].detach())) as pipe, contextlib.suppress(EOFError):
                pipe.send_bytes(b"#CHALLENGE#" + bytes(20))
                heard.append(pipe.recv_bytes())
                pipe.send_bytes(b"#WELCOME#")
                heard.append(pipe.recv_bytes())
                pipe.send_bytes(bytes(16))
                while True:
                    heard.append(pipe.recv_bytes())

        thread = threading.Thread(target=impostor)
        thread.start()
        with pytest.raises(PartyLost, match="has a different key from"):
            ask(tmp_path, b"private", 120, "parties")
        thread.join()
    assert len(heard) == 3  # a proof, a challenge, and a message that the answer was wrong
    assert b"private" not in heard


def test_a_request_that_is_too_large_is_refused_by_its_size_before_any_of_it_is_read(
    echo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_BYTES == 1 << 30
    monkeypatch.setattr(line, "MOST_BYTES", 1000)
    assert len(ask(echo, bytes(1000), 120, "parties")) == 1000
    with pytest.raises(PartyLost, match="the party refused a request of 1,001 bytes; it reads at most 1,000: send"):
        ask(echo, bytes(1001), 120, "parties")


def test_a_reply_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MOST_BYTES", 1000)
    listening = Listening(tmp_path, lambda request, _: request * 2)
    assert len(ask(tmp_path, bytes(500), 120, "parties")) == 1000
    with pytest.raises(PartyLost, match="its reply is longer than the limit of 1,000 bytes"):
        ask(tmp_path, bytes(501), 120, "parties")
    listening.close()


def test_a_party_that_is_not_there_or_silent_is_lost(tmp_path: Path) -> None:
    with pytest.raises(PartyLost, match=r"no party listens at .*party.sock; start it: fedplug party"):
        ask(tmp_path, b"", 120, "parties")
    over = threading.Event()
    listening = Listening(tmp_path, lambda request, _: b"late" * over.wait())
    with pytest.raises(PartyLost, match=r"silent for longer than 0.3 seconds"):
        ask(tmp_path, b"", 0.3, "parties")
    over.set()
    listening.close()
    with pytest.raises(PartyLost, match="no party listens"):
        ask(tmp_path, b"", 120, "parties")


def test_whoever_calls_and_says_nothing_keeps_nobody_else_waiting(echo: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as babbling:
        silent.connect(str(echo / SOCKET))
        babbling.connect(str(echo / SOCKET))
        babbling.sendall(b"\0\0\0\5hello" * 100)
        assert ask(echo, b"abc", 120, "parties") == b"cba"


def test_a_folder_too_deep_for_a_socket_is_refused_with_what_to_do(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with pytest.raises(SetupError, match="longer than the 107 bytes that a socket's path may have; choose a shorter"):
        Listening(deep, lambda request, _: request)


def test_the_socket_of_a_program_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    listening = Listening(tmp_path, lambda request, _: request)
    assert ask(tmp_path, b"again", 120, "parties") == b"again"
    listening.close()


def test_a_party_holds_one_request_that_it_answers_and_one_that_waits(tmp_path: Path) -> None:
    """The party refuses a third request before it reads any of it, but still answers a request for its status."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def answer(request: bytes, _: str) -> bytes:
        if len(request) > 1000:
            begun.release()
            go_on.wait()
        return request[:3]

    listening = Listening(tmp_path, answer)
    replies: list[bytes] = []
    try:
        two = (lambda: replies.append(ask(tmp_path, b"abc" * 1000, 120, "parties")) for _ in range(2))
        callers = [threading.Thread(target=each) for each in two]
        for caller in callers:
            caller.start()
            assert begun.acquire(timeout=120)
        with pytest.raises(PartyLost, match="another one waits already"):
            ask(tmp_path, b"x" * 50_000_000, 120, "parties")
        assert ask(tmp_path, b"status", 120, "parties") == b"sta"
        go_on.set()
        for caller in callers:
            caller.join()
        assert replies == [b"abc", b"abc"]
        assert ask(tmp_path, b"abc" * 1000, 120, "parties") == b"abc"
    finally:
        go_on.set()
        listening.close()


def test_two_hundred_silent_callers_keep_nobody_from_being_heard(echo: Path) -> None:
    with silent(echo, 200), silent(echo, 200):
        for _ in range(5):
            assert ask(echo, b"status", 120, "parties") == b"sutats"
            assert ask(echo, bytes(1000), 120, "parties") == bytes(1000)
        with contextlib.ExitStack() as opened:  # and 200 of the process that calls
            for _ in range(200):
                caller = opened.enter_context(socket.socket(socket.AF_UNIX))
                caller.connect(str(echo / SOCKET))
            assert ask(echo, b"status", 120, "parties") == b"sutats"


def test_nor_do_those_that_know_the_key_and_then_say_nothing(echo: Path) -> None:
    key = (echo / KEY).read_bytes()
    with contextlib.ExitStack() as opened:
        for size in (None, 8) * 60:
            caller = opened.enter_context(contextlib.closing(line._connected(echo / SOCKET, 120)))
            answer_challenge(caller, key)
            deliver_challenge(caller, key)
            if size is not None:
                caller.send_bytes(size.to_bytes(8, "big"))
        assert ask(echo, b"status", 120, "parties") == b"sutats"


def test_a_process_with_many_callers_cuts_off_its_own(echo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_SILENT", 10)
    with contextlib.closing(line._connected(echo / SOCKET, 120)) as first, silent(echo, 50):
        key = (echo / KEY).read_bytes()
        answer_challenge(first, key)  # it came first, and is heard all the same
        deliver_challenge(first, key)


def test_a_caller_may_be_silent_for_a_moment_only(echo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_GREETING", 0.1)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(echo / SOCKET))
        while caller.recv(1000):  # its challenge, and then the end
            pass


def test_a_party_ends_at_once_whoever_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_LAST_SECONDS", 60.0)
    listening = Listening(tmp_path, lambda request, _: request)
    with silent(tmp_path, 200):
        assert ask(tmp_path, b"abc", 120, "parties") == b"abc"
        listening.close()


def test_small_requests_that_are_answered_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_CALLERS", 2)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def answer(request: bytes, _: str) -> bytes:
        begun.release()
        go_on.wait()
        return request

    listening = Listening(tmp_path, answer)
    try:
        callers = [threading.Thread(target=ask, args=(tmp_path, b"abc", 120, "parties")) for _ in range(2)]
        for caller in callers:
            caller.start()
            assert begun.acquire(timeout=120)
        with pytest.raises(PartyLost, match="gave no answer"):
            ask(tmp_path, b"abc", 120, "parties")
        go_on.set()
        for caller in callers:
            caller.join()
    finally:
        go_on.set()
        listening.close()


def test_a_reply_for_which_nobody_waits_any_more_is_not_read(echo: Path) -> None:
    with pytest.raises(PartyLost, match="when nobody was waiting for it any more"):
        ask(echo, b"abc", 5, "parties", lambda: False)
