"""Files of this user alone: modes under every umask, links that are not followed, and where an extension may write."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fedplug.api.errors import SetupError
from fedplug_runs.files import (
    Files,
    append_line,
    open_private,
    private_folder,
    private_process,
    shorten,
    write_bytes,
    write_text,
)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_whatever_the_umask_says_nobody_else_reads_it(umask: int, tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a" / "b")
    write_text(folder / "text", "x\ud800")  # half a character, from a command line
    write_bytes(folder / "bytes", b"x")
    append_line(folder / "line", b"x\n", synced=True)
    with open_private(folder / "lock", "a+") as lock:
        lock.write("1")
    assert [mode(path) for path in (tmp_path / "a", folder)] == [0o700, 0o700]
    assert {path.name: mode(path) for path in folder.iterdir()} == dict.fromkeys(
        ("text", "bytes", "line", "lock"), 0o600
    )
    assert (folder / "text").read_text() == "x?"


def test_what_was_open_to_others_is_closed_when_it_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir(mode=0o755)
    (folder / "line").write_text("1\n2\n")
    (folder / "line").chmod(0o644)
    private_folder(folder)
    shorten(folder / "line", 2)
    assert (mode(folder), mode(folder / "line"), (folder / "line").read_text()) == (0o700, 0o600, "1\n")
    with pytest.raises(FileExistsError):
        private_folder(folder, exist_ok=False)
    with pytest.raises(FileExistsError):
        private_folder(folder / "line")


@pytest.mark.parametrize(
    "write",
    [
        lambda path: append_line(path, b"x"), lambda path: shorten(path, 0), lambda path: open_private(path, "w"),
        lambda path: open_private(path, "a+"), private_folder,
    ],
)  # fmt: skip
def test_a_link_in_a_run_folder_leads_nowhere(write: Callable[[Path], object], tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(precious)
    with pytest.raises(SetupError, match="link is a link"):
        write(link)
    assert precious.read_text() == "mine"


def test_a_file_is_put_in_the_place_of_a_link_and_its_draft_follows_none(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "report.html").symlink_to(precious)
    (tmp_path / "report.html.tmp").symlink_to(precious)
    write_text(tmp_path / "report.html", "new")
    assert precious.read_text() == "mine"
    assert not (tmp_path / "report.html").is_symlink()
    assert (tmp_path / "report.html").read_text() == "new"


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SetupError, match="is not a file"), open_private(tmp_path / "pipe", "a+"):
        pass


def test_a_line_is_on_the_disk_before_anybody_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's content and, for a new file, also its name, which the folder holds."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    append_line(tmp_path / "a", b"1\n")
    assert not synced
    append_line(tmp_path / "b", b"1\n", synced=True)
    append_line(tmp_path / "b", b"2\n", synced=True)
    assert synced == [str(tmp_path / "b"), str(tmp_path), str(tmp_path / "b")]


def test_what_libraries_write_is_private_inside_however_many_are_there(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with private_process(), private_process():
            (tmp_path / "a").write_text("x")
        (tmp_path / "b").write_text("x")
    finally:
        os.umask(before)
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (0o600, 0o644)


@pytest.mark.parametrize("name", ["../rows.csv", "/tmp/rows.csv", "a/../../rows.csv", "link/rows.csv"])
def test_an_extension_of_a_recipe_writes_in_the_run_folder_alone(name: str, tmp_path: Path) -> None:
    run = private_folder(tmp_path / "run")
    (run / "link").symlink_to(tmp_path)
    with pytest.raises(SetupError, match=r"outside the run folder.*--allow-outside"):
        Files(run).open(name, "w")
    with pytest.raises(SetupError, match=r"http://x lies outside the run folder"):
        Files(run).require_allowed("http://x")


def test_the_user_may_name_any_place_and_an_extension_any_in_the_run_folder(tmp_path: Path) -> None:
    with Files(tmp_path).open("sub/rows.csv", "w") as file:
        file.write("1")
    assert mode(tmp_path / "sub") == 0o700
    assert (tmp_path / "sub/rows.csv").read_text() == "1"
    users = Files(tmp_path / "run", outside=True)
    users.require_allowed("http://x")
    assert users.path(str(tmp_path / "x")) == tmp_path / "x"
