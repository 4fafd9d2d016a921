"""`fedplug evidence`: the files it writes, the facts it does not disclose, and its errors with their remedies."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
import typer
from cli_calls import call
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_evidence import commands
from fedplug_evidence.facts import Contents
from fedplug_evidence.making import make_evidence
from fedplug_evidence.manifest import Checked
from fedplug_evidence.verifying import verify_folder
from fedplug_runs import execution
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_runs.trust import RUNS
from own_file_toys import HALVE, RECIPE
from run_toys import stopped
from site_toys import at_sites, write_sites
from toy_components import recipe_of, toy_catalog

CATALOG = toy_catalog()


def test_it_lies_in_the_run_and_says_what_is_lacking(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["clear"], tmp_path / "run"))
    folder, notes = make_evidence(run, catalog=CATALOG)
    assert folder == run / "evidence"
    assert any(note.startswith("signed by SHA256:") for note in notes)
    assert "the messages were not recorded, so the ciphertexts were not checked: run again with --record-wire" in notes
    page = (folder / "index.html").read_text()
    assert "<strong>Not recorded.</strong>" in page
    assert "<strong>Not checked.</strong>" in page
    assert "<strong>None was tried.</strong>" in page


def test_what_was_sent_is_told_from_the_record(folder: Path) -> None:
    sent = Contents.of(Checked(folder).data).sent
    assert sent.recorded
    (closed,) = sent.closed
    assert (closed.zone, closed.sealed_by, closed.uploads, closed.repeated) == ("encrypted", "std.bfv", 8, 0)
    assert closed.least > 0.99
    assert abs(closed.entropy - closed.random) < 0.01
    assert sent.compared is not None
    assert (sent.compared.messages, sent.compared.found) == (16, {}), "a ballot and an upload of 4 clients in 2 rounds"
    assert set(sent.compared.values) == {"encrypted", "noised"}
    page = (folder / "index.html").read_text()
    values = sum(sent.compared.values.values())
    assert f"Compared at the client: {values} values, 16 of {sent.answers} messages, 0 found." in page


def test_nothing_of_this_machine_is_in_it(folder: Path, runs: dict[str, Path]) -> None:
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        for told in (str(runs["sealed"].parent), str(folder.parent), str(Path.home()), str(Path.cwd()), "/tmp"):
            assert told not in text, path.name
        assert len(socket.gethostname()) < 4 or socket.gethostname() not in text, path.name


def test_versions_and_digest(folder: Path) -> None:
    contents = Contents.of(Checked(folder).data)
    assert contents.digest == contents.facts.digest
    assert {"fedplug", "fedplug-std", "numpy", "python"} <= set(contents.versions.run)
    assert {"fedplug", "pydantic", "cryptography"} <= set(contents.versions.made)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a run folder: it has no recipe.yaml"):
        make_evidence(tmp_path)


def test_a_run_that_has_not_ended(tmp_path: Path) -> None:
    recipe = tmp_path / "toy.yaml"
    recipe.write_text(json.dumps(recipe_of(rounds=3)))
    with stopped(lambda protocol, round: round == 2):
        _, run = execution.start(load_recipe(recipe, (), CATALOG), Settings(output=tmp_path, quiet=True), CATALOG)
    with pytest.raises(CheckpointError, match=r"has 1 of 3 rounds; .*finish it with fedplug resume"):
        make_evidence(run, catalog=CATALOG)
    (run / "ledger.json").unlink()
    with pytest.raises(CheckpointError, match=r"and no ledger\.json"):
        make_evidence(run, catalog=CATALOG)


def test_an_output_that_exists(runs: dict[str, Path], tmp_path: Path) -> None:
    made, _ = make_evidence(runs["clear"], tmp_path / "made", catalog=CATALOG)
    (made / "more.txt").write_text("x")
    with pytest.raises(SetupError, match=r"made exists; replace it with --force, or choose another folder"):
        make_evidence(runs["clear"], made, catalog=CATALOG)
    make_evidence(runs["clear"], made, force=True, catalog=CATALOG)
    assert verify_folder(made, None, CATALOG).ok
    (tmp_path / "mine").mkdir()
    with pytest.raises(SetupError, match="contains no evidence; --force replaces only evidence"):
        make_evidence(runs["clear"], tmp_path / "mine", force=True, catalog=CATALOG)
    with pytest.raises(SetupError, match=r"cannot be written .* choose another folder with --output"):
        make_evidence(runs["clear"], tmp_path / "made" / "run.json" / "deep", catalog=CATALOG)


def test_a_ledger_that_was_changed_gets_no_evidence(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["sealed"], tmp_path / "run"))
    plain = json.loads((run / "ledger.json").read_text())
    plain["epsilons"]["zero_out"]["epsilon_exact"] = 0.1
    (run / "ledger.json").write_text(json.dumps(plain))
    with pytest.raises(CheckpointError, match=r"does not follow from its own log \(ledger.json, epsilons, zero_out"):
        make_evidence(run, tmp_path / "made", catalog=CATALOG)


def test_another_recipe_gets_no_evidence(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["clear"], tmp_path / "run"))
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace("seed: 7", "seed: 8"))
    with pytest.raises(CheckpointError, match=r"has the digest .* restore the recipe from a copy"):
        make_evidence(run, tmp_path / "made", catalog=CATALOG)


def test_files_of_the_users_own_are_named_and_not_run_by_who_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "halve.py").write_text(HALVE)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    recipe = load_recipe(tmp_path / "mine.yaml", (), CATALOG.under(RUNS))
    _, run = execution.start(recipe, Settings(output=tmp_path, quiet=True), CATALOG)
    folder, _ = make_evidence(run, tmp_path / "made", catalog=CATALOG)
    (own,) = Contents.of(Checked(folder).data).own_files.sha256.items()
    assert own == ("halve.py", recipe.own_files[0].sha256)
    assert own[1] in (folder / "index.html").read_text()
    assert not list(folder.glob("*.py"))
    found = verify_folder(folder, None, CATALOG)
    assert (found.problems, found.ok) == ([], False)
    assert any("names halve.py, and the user's own code is not run here" in note for note in found.unchecked)


def test_what_sites_told_in_the_run_is_restored(tmp_path: Path) -> None:
    """It does not follow from the recipe. The ledger lists it after the sites have joined."""
    sites = write_sites(tmp_path / "sites")
    (sites / "client-2" / "site.toml").write_text('tell = ["classes"]')
    settings = Settings(output=tmp_path / "runs", data=sites, quiet=True, device="cpu")
    _, run = execution.start(Recipe.from_plain(at_sites(), CATALOG), settings, CATALOG)
    folder, _ = make_evidence(run, catalog=CATALOG)
    (shown,) = Contents.of(Checked(folder).data).charges.reveals
    assert shown.what == "class counts"
    found = verify_folder(folder, None, CATALOG)
    assert found.ok, (found.problems, found.unchecked)


def test_the_commands(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    commands.evidence(runs["clear"], made)
    said = capsys.readouterr().out
    assert f"evidence: {made / 'index.html'}" in said
    public = said.partition("public key ")[2].split()[0]
    for signer, code in ((None, 0), (public, 0), ("00" * 32, 1)):
        with pytest.raises(typer.Exit) as left:
            commands.verify(made, signer)
        assert left.value.exit_code == code
    (made / "run.json").write_text("{}")
    with pytest.raises(typer.Exit):
        commands.verify(made)
    said = capsys.readouterr().out
    assert "MISMATCH: run.json: changed" in said
    assert "All checks passed." in said
    assert "1 mismatch found." in said
    with pytest.raises(typer.Exit) as left:
        commands.verify(made, as_json=True)
    assert left.value.exit_code == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["ok"], found["outcome"]) == ("fedplug/verify/1", False, "1 mismatch found.")
    assert found["problems"][0]["message"].startswith("run.json: changed")
    assert found["signer"]


def test_an_error_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedplug_terminal import commands as offers

    if "evidence" not in offers.offered():
        pytest.skip("fedplug-evidence is not installed")
    for name in ("evidence", "verify"):
        assert call(monkeypatch, name, str(tmp_path)) == 1
        assert "Traceback" not in capsys.readouterr().err


def test_answers_of_a_run_without_a_model_are_in_it(tmp_path: Path) -> None:
    recipe = Path(__file__).parents[3] / "recipes/statistics/statistics-bfv.yaml"
    _, run = execution.start(load_recipe(recipe), Settings(output=tmp_path, quiet=True))
    folder, _ = make_evidence(run)
    assert verify_folder(folder, None).ok
    released = Contents.of(Checked(folder).data).facts.released
    (line,) = [line for line in released if line.startswith("  share of 45 to 60 ")]
    assert line in (folder / "index.html").read_text()
