"""`fedplug verify`: any change of any file is found and named; the ledger is reckoned again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from examples import examples
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug_evidence.keys import own_key, public_bytes
from fedplug_evidence.making import make_evidence
from fedplug_evidence.manifest import MANIFEST, SIGNATURE, Checked, seal
from fedplug_evidence.verifying import Verified, verify_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_components import toy_catalog

CATALOG = toy_catalog()
FRESH = settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])


def verify(folder: Path, signer: bytes | None = None) -> Verified:
    return verify_folder(folder, signer, CATALOG)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def names_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_not_changed_fits(folder: Path) -> None:
    found = verify(folder)
    assert found.ok, found.problems
    assert names_of(folder) == [
        "charges.csv", "charges.json", "index.html", "leakage.json", "ledger.json", "manifest.json", "manifest.sig",
        "messages.csv", "messages.json", "own_files.json", "recipe.yaml", "run.json", "versions.json",
    ]  # fmt: skip
    said = " ".join(found.notes)
    assert "The ledger follows from 2 charges" in said
    assert "The page says what the other files say" in said
    assert "only that the folder was not changed since somebody signed it" in said


@FRESH
@given(data=st.data())
def test_a_change_of_one_byte_of_any_file_is_found_and_named(folder: Path, copy: Path, data: st.DataObject) -> None:
    """Any file, any byte, any other value."""
    name = data.draw(st.sampled_from(names_of(folder)))
    whole = (folder / name).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    changed = bytearray(whole)
    changed[place] = other
    (copy / name).write_bytes(changed)
    try:
        problems = Checked(copy).problems
        assert any(name in problem for problem in problems), problems
        assert not verify(copy).ok
    finally:
        (copy / name).write_bytes(whole)


@FRESH
@given(data=st.data())
def test_bytes_that_were_cut_or_added_are_found(folder: Path, copy: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names_of(folder)))
    whole = (folder / name).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    (copy / name).write_bytes(data.draw(st.sampled_from([whole[:cut], whole + b"\n", whole + b"x", b"\n" + whole])))
    try:
        assert any(name in problem for problem in verify(copy).problems)
    finally:
        (copy / name).write_bytes(whole)


def test_a_file_that_was_removed_or_added_is_named(folder: Path, copy: Path) -> None:
    for name in names_of(folder):
        whole = (copy / name).read_bytes()
        (copy / name).unlink()
        assert any(problem.startswith(f"{name}: it is missing") for problem in verify(copy).problems), name
        (copy / name).write_bytes(whole)
    (copy / "deep").mkdir()
    for name in ("more.txt", ".hidden", "deep/er.json"):
        (copy / name).write_text("x")
        assert f"{name}: it was added" in verify(copy).problems
        (copy / name).unlink()
    assert "deep: it was added" in verify(copy).problems
    (copy / "run.json").unlink()
    os.mkfifo(copy / "run.json")
    assert any(problem.startswith("run.json: it cannot be read") for problem in verify(copy).problems)
    (copy / "index.html").unlink()
    (copy / "index.html").symlink_to(folder / "index.html")
    assert any("index.html: it is a link" in problem for problem in verify(copy).problems)


def test_the_signer_is_who_was_named(folder: Path, home: Path) -> None:
    public = public_bytes(own_key(home / "fedplug" / "evidence-key.pem")[0])
    found = verify(folder, public)
    assert found.ok
    assert found.public == public
    assert any(note.startswith("Signed by the key that --signer names, SHA256:") for note in found.notes)
    other = public_bytes(Ed25519PrivateKey.generate())
    problem = verify(folder, other).problems[0]
    assert problem.startswith("manifest.sig: it was signed with the key SHA256:")
    assert "and --signer is SHA256:" in problem


def forged(copy: Path, name: str, change: Callable[[Any], Any]) -> Verified:
    """After a change by somebody who signs the folder again with a key of their own."""
    plain = json.loads((copy / name).read_text())
    (copy / name).write_text(json.dumps(change(plain)))
    files = {path.name: path.read_bytes() for path in copy.iterdir() if path.name not in (MANIFEST, SIGNATURE)}
    for file, data in seal(files, Ed25519PrivateKey.generate()).items():
        (copy / file).write_bytes(data)
    assert not Checked(copy).problems
    return verify(copy)


def set_at(place: str, value: Any) -> Callable[[Any], Any]:
    def change(plain: Any) -> Any:
        *path, last = [int(key) if key.isdecimal() else key for key in place.split(".")]
        inner = plain
        for key in path:
            inner = inner[key]
        inner[last] = value
        return plain

    return change


@pytest.mark.parametrize(
    ("name", "place", "value", "problem"),
    [
        ("ledger.json", "epsilons.zero_out.epsilon_exact", 0.5,
         "ledger.json, epsilons, zero_out, epsilon_exact: 0.5, and reckoned again "),
        ("ledger.json", "verdict.status", "protected_from_all",
         "ledger.json, verdict, status: 'protected_from_all', and reckoned again 'no_"),
        ("ledger.json", "verdict.lines.4.reason", "",
         "ledger.json, verdict, lines, 4, reason: '', and reckoned again 'sees"),
        ("ledger.json", "reveals.0.covered_by", "epsilon", "ledger.json, reveals, 0, covered_by: 'epsilon'"),
        ("ledger.json", "encryption.encrypted.key_holder", "shares", "ledger.json, encryption, encrypted, key_holder"),
        ("ledger.json", "warnings", [], "ledger.json, warnings: "),
        ("charges.json", "log.1.zones.noised.local", 50.0,
         "charges.json, log, 1, zones, noised, local: 50.0, and by its releases "),
        ("charges.json", "log.1.charged", [0], "ledger.json, log, 1, charged: 'all', and by charges.json [0]"),
        ("charges.json", "log.1.charged", [77], "charges.json, log, 1: it charges client 77, and there are 4"),
        ("charges.json", "log.1.round", 9, "charges.json, log, 1: it is of round 9, and there are 2"),
        ("charges.json", "delta", 1e-3, "charges.json, delta: 0.001, and by recipe.yaml 1e-05"),
        ("charges.json", "clients", 5, "charges.json, clients: 5, and by recipe.yaml 4"),
        ("run.json", "digest", "0" * 64, "run.json, digest: '000"),
        ("run.json", "parameters", 3, "run.json"),
        ("messages.json", "answers", 1, "index.html: it does not say what the other files say"),
        ("leakage.json", "awaited", True, "index.html: it does not say what the other files say"),
    ],
)  # fmt: skip
def test_what_somebody_else_signed_again_is_reckoned_and_does_not_fit(
    copy: Path, name: str, place: str, value: Any, problem: str
) -> None:
    if (name, place) == ("run.json", "parameters"):  # only the page and sizes follow from it
        problem = "index.html: it does not say"
    found = forged(copy, name, set_at(place, value))
    assert any(said.startswith(problem) for said in found.problems), found.problems


def test_a_charge_that_was_left_out_everywhere_changes_the_figures(copy: Path) -> None:
    (copy / "charges.json").write_text(json.dumps(cut(json.loads((copy / "charges.json").read_text()))))
    found = forged(copy, "ledger.json", cut)
    assert any(said.startswith("ledger.json, rounds, actual: 2, and reckoned again 1") for said in found.problems)
    assert any(said.startswith("ledger.json, epsilons, ") for said in found.problems)


def cut(plain: Any) -> Any:
    return {**plain, "log": plain["log"][:1]}


@pytest.mark.parametrize("kind", ["laplace", "sampled", "clear"])
def test_other_ledgers_are_reckoned_too(runs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    made, _ = make_evidence(runs[kind], tmp_path / "made", catalog=CATALOG)
    found = verify(made)
    assert found.ok, found.problems
    secret = any("Who took part is secret" in note for note in found.notes)
    assert secret == (kind == "sampled")
    if secret:
        assert {entry["charged"] for entry in json.loads((made / "charges.json").read_text())["log"]} == {"secret"}
        assert {line.split(",")[0] for line in (made / "messages.csv").read_text().splitlines()[1:]} == {"0"}


def test_without_the_plugins_what_components_say_is_taken_as_stated(folder: Path, runs: Any, tmp_path: Path) -> None:
    nothing = Catalog({}, (), {})
    found = verify_folder(folder, None, nothing)
    assert found.ok, found.problems
    said = "What the components say was taken as it is stated, since the recipe cannot be read here"
    assert any(note.startswith(said) for note in found.notes)
    assert any(note.startswith("The ledger follows from 2 charges") for note in found.notes)
    made, _ = make_evidence(runs["laplace"], tmp_path / "made", catalog=CATALOG)
    found = verify_folder(made, None, nothing)
    assert found.ok, found.problems
    assert "The accountant std.pld is not installed here, so no epsilon was reckoned" in found.notes


def test_neither_torch_nor_data_is_needed(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from fedplug_evidence import verify_folder\n"
        "found = verify_folder(Path(sys.argv[1])); print(found.ok, len(found.notes), found.problems)"
    )
    around = {name: value for name, value in os.environ.items() if name != "FEDPLUG_DATA"}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, env=around)
    assert done.stdout.startswith("True 4"), done.stdout + done.stderr


def test_a_folder_without_evidence_says_so(tmp_path: Path, runs: dict[str, Path]) -> None:
    with pytest.raises(SetupError, match=r"holds no evidence: it has no manifest.json; fedplug evidence RUN"):
        verify(tmp_path)
    with pytest.raises(SetupError, match="a run's evidence lies in RUN/evidence"):
        verify(runs["clear"])


def test_files_that_are_something_else_are_named(copy: Path) -> None:
    (copy / "charges.json").write_text("[]")
    (copy / "manifest.json").write_text("7")
    found = verify(copy).problems
    assert any(problem.startswith("charges.json: it holds something else") for problem in found)
    assert any(problem.startswith("manifest.json: it was changed; it is no list of files") for problem in found)
