"""A party does not use files that another user of the machine put into its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fedplug.api.errors import SetupError
from fedplug_party.line import KEY, Listening
from fedplug_party.notes import Notes
from fedplug_party.state import State


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    State(tmp_path / "mine").close()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SetupError, match=r"theirs belongs to another user of this machine; .* with --state"):
        State(tmp_path / "theirs")


def test_a_key_that_others_may_know_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / KEY
    key.write_text("planted")
    key.chmod(0o644)
    with pytest.raises(SetupError, match=r"party.key has mode 0644, so other users may know it; it must have mode"):
        Listening(tmp_path, lambda request, _: request)
    key.chmod(0o600)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(SetupError, match=r"party.key belongs to another user"):
            Listening(tmp_path, lambda request, _: request)
    Listening(tmp_path, lambda request, _: request).close()
    key.rename(tmp_path / "elsewhere")
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SetupError, match=r"party.key is a link, but must be a file"):
        Listening(tmp_path, lambda request, _: request)


@pytest.mark.parametrize("name", ["uploads.jsonl", "party.lock"])
def test_nothing_is_written_through_a_link(name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).symlink_to(elsewhere)
    with pytest.raises(SetupError, match=f"{name} is a link, but must be a file"):
        State(tmp_path / "state")
    assert elsewhere.read_text() == ""
    assert not elsewhere.stat().st_mode & 0o002


def test_notes_that_became_a_pipe_keep_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "uploads.jsonl")
    with pytest.raises(SetupError, match=r"uploads.jsonl is not a file"):
        Notes(tmp_path / "uploads.jsonl")
