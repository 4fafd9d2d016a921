"""Requests on their way through NVFlare's tasks, the letters in them, a site's own file, and the folder of a job."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import PartyLost, SetupError
from fedplug_nvflare import letters
from fedplug_nvflare.job_folder import write_job
from fedplug_nvflare.site import state_in
from fedplug_nvflare.transport import NvflareTransport, deadline
from fedplug_runs import functions
from hypothesis import given
from hypothesis import strategies as st

Answered = Callable[[bytes | str], None]
SITES = {"client/0": "client-0", "client/1": "hospital", "key_server": "key-server"}
RECIPE = Path(__file__).parents[3] / "recipes" / "bfv-fedavg.yaml"


def transport(ask: Callable[[str, bytes, float, Answered], None], there: set[str], stopped: bool = False) -> Any:
    return NvflareTransport(ask, SITES, lambda: there, lambda: stopped)


def test_each_party_gets_its_request_at_its_site_and_each_reply_comes_once() -> None:
    asked: dict[str, bytes] = {}

    def ask(site: str, data: bytes, seconds: float, answered: Answered) -> None:
        asked[site] = data
        threading.Timer(0.02, lambda: [answered(data * 2), answered(b"again")]).start()

    line = transport(ask, set(SITES.values()))
    requests = {address: address.encode() for address in SITES}
    replies = list(line.exchange(requests, 60))
    assert asked == {SITES[address]: data for address, data in requests.items()}
    assert sorted(replies) == sorted((address, data * 2) for address, data in requests.items())


def test_a_site_that_is_away_or_says_why_it_has_no_reply_is_a_lost_party() -> None:
    line = transport(lambda site, data, seconds, answered: answered("no party listens"), {"hospital"})
    replies = dict(line.exchange(dict.fromkeys(SITES, b"request"), 60))
    assert all(isinstance(each, PartyLost) for each in replies.values())
    assert str(replies["client/1"]) == "client/1: no party listens"
    assert str(replies["client/0"]) == "client/0: the site client-0 is not connected"


def test_a_site_that_never_answers_is_lost_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplug_nvflare.transport._GRACE", 0.0)
    line = transport(lambda *_: None, {"client-0"})
    began = time.monotonic()
    ((address, lost),) = line.exchange({"client/0": b"request"}, 0.1)
    assert address == "client/0"
    assert isinstance(lost, PartyLost)
    assert "within 0.1 seconds" in str(lost)
    assert 0.1 <= time.monotonic() - began < 10


def test_a_job_that_nvflare_stops_interrupts_the_run() -> None:
    line = transport(lambda *_: None, {"client-0"}, stopped=True)
    with pytest.raises(KeyboardInterrupt):
        list(line.exchange({"client/0": b"request"}, 60))


def test_a_task_has_no_limit_exactly_when_a_request_has_none() -> None:
    assert deadline(math.inf) == 0
    assert deadline(0.5) == 31


@given(st.binary(), st.floats(allow_nan=False))
def test_letters_read_back(data: bytes, seconds: float) -> None:
    assert letters.request_of(letters.request(data, seconds)) == (data, seconds)
    assert letters.reply_of(letters.reply(data)) == data


@given(st.text(max_size=50))
def test_a_letter_that_holds_no_reply_says_why(why: str) -> None:
    assert letters.reply_of(letters.failure(why)) == why
    assert "no reply of fedplug" in str(letters.reply_of({"reply": why}))
    with pytest.raises(ValueError, match="no request of fedplug"):
        letters.request_of({"request": why, "seconds": 1.0})


@pytest.mark.parametrize("said", ['{"state": "/srv/party"}', '{"state": {"client-3": "/srv/party", "other": "/srv"}}'])
def test_the_sites_own_file_names_its_party(tmp_path: Path, said: str) -> None:
    (tmp_path / "fedplug.json").write_text(said)
    assert state_in(tmp_path / "fedplug.json", "client-3") == Path("/srv/party")


@pytest.mark.parametrize("said", [None, "", "[]", "{}", '{"state": 3}', '{"state": {"other": "/srv"}}'])
def test_a_file_that_names_no_party_is_refused_with_the_remedy(tmp_path: Path, said: str | None) -> None:
    if said is not None:
        (tmp_path / "fedplug.json").write_text(said)
    with pytest.raises(SetupError, match=r"names no party of the site client-3 .*; write \{\"state\": \"FOLDER\"\}"):
        state_in(tmp_path / "fedplug.json", "client-3")


def test_a_job_holds_the_whole_recipe_and_no_folder_is_overwritten(tmp_path: Path) -> None:
    recipe = functions.check(RECIPE)
    job = write_job(recipe, tmp_path / "job", {"output": "runs"})
    assert functions.check(job / "fedplug/config/recipe.yaml").digest == recipe.digest
    meta = json.loads((job / "meta.json").read_text())
    assert meta["min_clients"] == recipe.min_clients
    server = json.loads((job / "fedplug/config/config_fed_server.json").read_text())
    assert server["workflows"][0]["args"] == {"output": "runs"}
    sites = json.loads((job / "fedplug/config/config_fed_client.json").read_text())
    assert sites["executors"][0]["tasks"] == [letters.TASK]
    with pytest.raises(SetupError, match="is not empty"):
        write_job(recipe, job)
