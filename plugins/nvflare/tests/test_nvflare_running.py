"""A job's run, with the parties behind sites that are threads here and answer as NVFlare's executor does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fedplug.api.errors import SetupError
from fedplug_nvflare import letters
from fedplug_nvflare.job_folder import write_job
from fedplug_nvflare.running import Options, run_job
from fedplug_nvflare.site import answer
from fedplug_party.sockets import folder_name
from fedplug_runs import functions
from own_file_toys import HALVE, RECIPE
from party_toys import parties
from toy_components import recipe_of

PLAIN = recipe_of(
    "encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=3, postprocess={"encrypted": ["std.bfv"]},
    data={"use": "std.digits", "clients": 2, "train_size": 60, "partition": {"use": "std.iid"}},
)  # fmt: skip
SITES = {"client-0": "client:0", "client-1": "client:1", "key-server": "key_server"}


@contextlib.contextmanager
def federation(folder: Path) -> Iterator[Callable[..., None]]:
    """Runs a job with running parties: a function of options and of whether NVFlare has stopped it."""
    folder.mkdir()
    file = folder / "fedplug.json"
    file.write_text(json.dumps({"state": {site: str(folder / folder_name(party)) for site, party in SITES.items()}}))
    job = write_job(functions.check(PLAIN), folder / "job")

    def ask(site: str, data: bytes, seconds: float, answered: Callable[[bytes | str], None]) -> None:
        task = letters.request(data, seconds)
        threading.Thread(target=lambda: answered(letters.reply_of(answer(task, file, site)))).start()

    with parties(folder, PLAIN) as programs:
        programs.listening()
        yield lambda options, stopped=lambda: False: run_job(
            job / "fedplug/config/recipe.yaml", options, ask, lambda: {*SITES}, stopped
        )


def figures(run: Path) -> list[tuple[float, float]]:
    """Accuracy and loss of each round: they change with the last bit of a model."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["accuracy"], row["loss"]) for row in rows]


def test_a_job_that_nvflare_stops_continues_in_another_and_equals_a_local_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    def after_a_round() -> bool:
        return any(path.name == "round-0001" for path in runs.glob("*/checkpoint/*"))

    with federation(tmp_path / "there") as run:
        with pytest.raises(KeyboardInterrupt):
            run(Options(output=str(runs)), after_a_round)
        (folder,) = runs.iterdir()
        assert not (folder / "checkpoint" / "round-0003").exists()
        run(Options(resume=str(folder)))
    local = functions.run(PLAIN, output=tmp_path / "local").folder
    assert figures(folder) == figures(local)
    assert len(figures(folder)) == 3


def test_python_that_a_job_brings_runs_only_with_a_yes_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of a user who has run nothing before
    (tmp_path / "own").mkdir()
    (tmp_path / "own/halve.py").write_text(HALVE)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    config = write_job(functions.check(tmp_path / "recipe.yaml", trust=True), tmp_path / "job") / "fedplug/config"
    own, recipe = config / "halve.py", config / "recipe.yaml"
    before = hashlib.sha256(own.read_bytes()).hexdigest()
    own.write_text(HALVE + f"\nfrom pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    recipe.write_text(recipe.read_text().replace(before, hashlib.sha256(own.read_bytes()).hexdigest()))
    with pytest.raises(SetupError, match=r"halve\.py.*NVFlare's server, with: fedplug check RECIPE --trust"):
        run_job(recipe, Options(), lambda *_: None, set, lambda: False)
    assert not (tmp_path / "ran").exists()


def test_outside_nvflare_the_engine_says_what_it_needs() -> None:
    with pytest.raises(SetupError, match="fedplug nvflare-job writes the job"):
        functions.run(PLAIN, engine="nvflare", rounds=1)
