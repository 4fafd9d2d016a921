"""The line to a party: who may call, which requests it refuses, and the errors for a party that does not answer."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from fedplug.api.errors import PartyLost, SetupError
from fedplug_party import line
from fedplug_party.line import KEY, MOST_BYTES, SOCKET, Listening, ask


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Path]:
    """The folder of a party that replies with the request reversed."""
    listening = Listening(tmp_path, lambda request: request[::-1])
    yield tmp_path
    listening.close()


def test_a_request_has_a_reply_and_nobody_else_can_reach_the_socket_or_read_the_key(echo: Path) -> None:
    large = os.urandom(3 << 20)
    assert ask(echo, b"abc", 5) == b"cba"
    assert ask(echo, large, 5) == large[::-1]
    assert ask(echo, b"", float("inf")) == b""
    for name in (SOCKET, KEY):
        assert stat.S_IMODE((echo / name).stat().st_mode) == 0o600


def test_who_has_another_key_is_refused_and_nothing_is_answered(tmp_path: Path) -> None:
    heard: list[bytes] = []
    listening = Listening(tmp_path, lambda request: heard.append(request) or b"")  # type: ignore[func-returns-value]
    (tmp_path / KEY).write_bytes(b"0" * 64)
    try:
        with pytest.raises(PartyLost, match="has a different key from"):
            ask(tmp_path, b"open", 5)
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
            ask(tmp_path, b"private", 5)
        thread.join()
    assert len(heard) == 3  # a proof, a challenge, and a message that the answer was wrong
    assert b"private" not in heard


def test_a_request_that_is_too_large_is_refused_by_its_size_before_any_of_it_is_read(
    echo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_BYTES == 1 << 30
    monkeypatch.setattr(line, "MOST_BYTES", 1000)
    assert len(ask(echo, bytes(1000), 5)) == 1000
    with pytest.raises(PartyLost, match="the party refused a request of 1,001 bytes; it reads at most 1,000: send"):
        ask(echo, bytes(1001), 5)


def test_a_reply_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MOST_BYTES", 1000)
    listening = Listening(tmp_path, lambda request: request * 2)
    assert len(ask(tmp_path, bytes(500), 5)) == 1000
    with pytest.raises(PartyLost, match="its reply is longer than the limit of 1,000 bytes"):
        ask(tmp_path, bytes(501), 5)
    listening.close()


def test_a_party_that_is_not_there_or_silent_is_lost(tmp_path: Path) -> None:
    with pytest.raises(PartyLost, match=r"no party listens at .*party.sock; start it: fedplug party"):
        ask(tmp_path, b"", 5)
    listening = Listening(tmp_path, lambda request: time.sleep(0.8) or b"late")  # type: ignore[func-returns-value]
    before = time.monotonic()
    with pytest.raises(PartyLost, match=r"silent for longer than 0.3 seconds"):
        ask(tmp_path, b"", 0.3)
    assert time.monotonic() - before < 1.5
    listening.close()
    with pytest.raises(PartyLost, match="no party listens"):
        ask(tmp_path, b"", 5)


def test_whoever_calls_and_says_nothing_keeps_nobody_else_waiting(echo: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as babbling:
        silent.connect(str(echo / SOCKET))
        babbling.connect(str(echo / SOCKET))
        babbling.sendall(b"\0\0\0\5hello" * 100)
        assert ask(echo, b"abc", 5) == b"cba"


def test_a_folder_too_deep_for_a_socket_is_refused_with_what_to_do(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with pytest.raises(SetupError, match="longer than the 107 bytes that a socket's path may have; choose a shorter"):
        Listening(deep, lambda request: request)


def test_the_socket_of_a_program_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    listening = Listening(tmp_path, lambda request: request)
    assert ask(tmp_path, b"again", 5) == b"again"
    listening.close()


def test_a_party_holds_one_request_that_it_answers_and_one_that_waits(tmp_path: Path) -> None:
    """The party refuses a third request before it reads any of it, but still answers a request for its status."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def answer(request: bytes) -> bytes:
        if len(request) > 1000:
            begun.release()
            go_on.wait(20)
        return request[:3]

    listening = Listening(tmp_path, answer)
    replies: list[bytes] = []
    try:
        callers = [threading.Thread(target=lambda: replies.append(ask(tmp_path, b"abc" * 1000, 20))) for _ in range(2)]
        for caller in callers:
            caller.start()
            assert begun.acquire(timeout=20)
        with pytest.raises(PartyLost, match="another one waits already"):
            ask(tmp_path, b"x" * 50_000_000, 20)
        assert ask(tmp_path, b"status", 20) == b"sta"
        go_on.set()
        for caller in callers:
            caller.join()
        assert replies == [b"abc", b"abc"]
        assert ask(tmp_path, b"abc" * 1000, 20) == b"abc"
    finally:
        go_on.set()
        listening.close()


def test_only_so_many_callers_are_heard_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_CALLERS", 2)
    go_on = threading.Event()
    listening = Listening(tmp_path, lambda request: (go_on.wait(20) and request) or b"")
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(2):
                caller = opened.enter_context(socket.socket(socket.AF_UNIX))
                caller.connect(str(tmp_path / SOCKET))
            time.sleep(0.1)
            with pytest.raises(PartyLost, match="gave no answer"):
                ask(tmp_path, b"abc", 5)
    finally:
        go_on.set()
        listening.close()


def test_a_reply_for_which_nobody_waits_any_more_is_not_read(echo: Path) -> None:
    with pytest.raises(PartyLost, match="when nobody was waiting for it any more"):
        ask(echo, b"abc", 5, lambda: False)
