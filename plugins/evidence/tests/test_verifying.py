"""`fedplug verify` finds and names any change of any file, and recomputes the ledger."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedplug
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from examples import examples
from fedplug import Cohort, Facts, Known, Noise, Operations
from fedplug.api.errors import SetupError
from fedplug.api.known import Release
from fedplug.recipe.catalog import Catalog
from fedplug_evidence import commands
from fedplug_evidence.facts import Charges
from fedplug_evidence.keys import own_key, public_bytes
from fedplug_evidence.making import make_evidence
from fedplug_evidence.manifest import MANIFEST, SIGNATURE, Checked, canonical, seal
from fedplug_evidence.verifying import Verified, verify_folder
from fedplug_ledger.ledger_record import LedgerReport
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_toys import start
from toy_base import Toy
from toy_components import TOYS, recipe_of, toy_catalog

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
    assert "The page follows from the other files" in said
    assert "only that the folder has not changed since somebody signed it" in said


@FRESH
@given(data=st.data())
def test_a_change_of_one_byte_of_any_file_is_found_and_named(folder: Path, copy: Path, data: st.DataObject) -> None:
    """This holds for any file, any byte and any other value."""
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
        assert any(problem.startswith(f"{name}: missing") for problem in verify(copy).problems), name
        (copy / name).write_bytes(whole)
    for name in ("more.txt", ".hidden", "deep/er.json"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("x")
        assert f"{name}: added" in verify(copy).problems
        (copy / name).unlink()
    assert "deep: added" in verify(copy).problems
    (copy / "deep").rmdir()
    (copy / "run.json").unlink()
    os.mkfifo(copy / "run.json")
    assert any(problem.startswith("run.json: cannot be read") for problem in verify(copy).problems)


def test_a_link_is_named_and_not_followed(folder: Path, copy: Path) -> None:
    """This holds for any target, even the original file."""
    for name in names_of(folder):
        (copy / name).unlink()
        (copy / name).symlink_to(folder / name)
        assert verify(copy).problems == [f"{name}: a link, not a file of the folder"]
        (copy / name).unlink()
        shutil.copy(folder / name, copy / name)
    (copy / "more").symlink_to("/")
    assert verify(copy).problems == ["more: a link, not a file of the folder"]


_DEEP = b"[" * 200_000
_ALIASES = b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9 if n else [b"1"] * 9)) for n in range(12)
)
_TWICE = b'{"sha256": {}, "sha256": {}}\n'


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((name, _DEEP) for name in ("manifest.sig", "manifest.json", "recipe.yaml", "run.json", "ledger.json")),
        *(("recipe.yaml", data) for data in (
            b"a: &a [*a]\n", b"a: 2020-01-01\n", b"a: !!binary aGk=\n", b"1: 2\n", b"? [a]\n: 1\n", _ALIASES, b"[]\n",
            b'a: "\\ud800"\n', b"a: .inf\n", b"a: .nan\n", b"\xff", b"a: 1\na: 2\n", b"a:  1\n", b"a: 1\n---\nb: 1\n",
            b"",
            b"a: " + b"9" * 5000 + b"\n", b'"' + b"\\" * 99_999, b"- " * 100_000,
        )),
        *(("own_files.json", data) for data in (
            _TWICE, b'{"sha256": {"a": NaN}}', b'{"sha256": {"a": "\\ud800"}}', b'{"sha256": 1e999}', b"\xff", b"[]",
            b"", b'{"sha256":{}}', b'"' + b'\\"' * 200_000, b"9" * 5000, b"x" * 2**20,
        )),
        ("messages.csv", b"round,way,zone,bytes\n1,up\n"), ("messages.csv", b""),
        ("messages.csv", "round,way,zone,bytes\n\uff11,up,a,1\n".encode()),
        ("charges.csv", b"\xff"), ("index.html", b"\xff"),
    ],
)  # fmt: skip
def test_hostile_files_are_named_soon(copy: Path, name: str, data: bytes, signed: bool) -> None:
    """Unsigned contents are not read. Reading signed contents never crashes or hangs."""
    (copy / name).write_bytes(data)
    begun = time.process_time()
    found = signed_again(copy) if signed and name not in (MANIFEST, SIGNATURE) else verify(copy)
    assert any(name in problem for problem in found.problems), found.problems
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE, "recipe.yaml"])
def test_files_that_are_too_large_are_not_opened(copy: Path, name: str) -> None:
    with (copy / name).open("ab") as opened:
        opened.truncate(2_000_000)
    assert verify(copy).problems[0].startswith(f"{name}: too large, 2000000 bytes; such a file has at most ")


def test_files_that_evidence_does_not_have_are_named(copy: Path) -> None:
    (copy / "more.txt").write_text("x")
    assert signed_again(copy).problems == ["more.txt: not a file of evidence"]


def test_the_signer_is_who_was_named(folder: Path, home: Path) -> None:
    public = public_bytes(own_key(home / "fedplug" / "evidence-key.pem")[0])
    found = verify(folder, public)
    assert found.ok
    assert found.public == public
    assert any(note.startswith("Signed with the key given as --signer, SHA256:") for note in found.notes)
    other = public_bytes(Ed25519PrivateKey.generate())
    problem = verify(folder, other).problems[0]
    assert problem.startswith("manifest.sig: signed with the key SHA256:")
    assert "but --signer is SHA256:" in problem


def forged(copy: Path, name: str, change: Callable[[Any], Any]) -> Verified:
    """Checks the folder after somebody changed it and signed it with another key."""
    rewrite(copy / name, change)
    return signed_again(copy)


def rewrite(file: Path, change: Callable[[Any], Any]) -> None:
    """Changes a file, and writes it in fedplug's form."""
    plain = change(json.loads(file.read_text()))
    file.write_bytes(json.dumps(plain, indent=2).encode() if file.name == "ledger.json" else canonical(plain))


def signed_again(copy: Path, catalog: Catalog = CATALOG) -> Verified:
    files = {path.name: path.read_bytes() for path in copy.iterdir() if path.name not in (MANIFEST, SIGNATURE)}
    for file, data in seal(files, Ed25519PrivateKey.generate()).items():
        (copy / file).write_bytes(data)
    assert not Checked(copy).problems
    return verify_folder(copy, None, catalog)


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
         "ledger.json, epsilons, zero_out, epsilon_exact: 0.5, but recomputing gives "),
        ("ledger.json", "verdict.status", "protected_from_all",
         "ledger.json, verdict, status: 'protected_from_all', but recomputing gives 'no_"),
        ("ledger.json", "verdict.lines.4.reason", "",
         "ledger.json, verdict, lines, 4, reason: '', but recomputing gives 'sees"),
        ("ledger.json", "reveals.0.covered_by", "epsilon", "ledger.json, reveals, 0, covered_by: 'epsilon'"),
        ("ledger.json", "encryption.encrypted.key_holder", "shares", "ledger.json, encryption, encrypted, key_holder"),
        ("ledger.json", "warnings", [], "ledger.json, warnings: "),
        ("charges.json", "log.1.zones.noised.local", 50.0,
         "charges.json, log, 1, zones, noised, local: 50.0, but its releases give "),
        ("charges.json", "log.1.zones.noised.sum_factor", 50.0,
         "charges.json, log, 1, zones, noised, sum_factor: 50, but it must be 1 to 2"),
        ("charges.json", "log.1.charged", [0], "ledger.json, log, 1, charged: 'all', but charges.json says [0]"),
        ("charges.json", "log.1.charged", [77], "charges.json, log, 1: it charges client 77, but there are 4 clients"),
        ("charges.json", "log.1.round", 9, "charges.json, log, 1: it is of round 9, but there are 2 rounds"),
        ("charges.json", "delta", 1e-3, "charges.json, delta: 0.001, but recipe.yaml says 1e-05"),
        ("charges.json", "clients", 5, "charges.json, clients: 5, but recipe.yaml says 4"),
        ("charges.json", "clients", 10**12, "charges.json, clients: 1000000000000 is more than any run has"),
        ("run.json", "digest", "0" * 64, "run.json, digest: '000"),
        ("run.json", "parameters", 3, "run.json, parameters: 3, but charges.json, log, 0 says 650"),
        ("run.json", "rounds", 999, "run.json, rounds: 999, but recipe.yaml says 2"),
        ("run.json", "plan", [["protect", "std.bfv", "encrypts everything"]], "run.json, plan: [['protect'"),
        ("run.json", "plan.0.2", "nothing", "run.json, plan, 0, 2: 'nothing', but recipe.yaml gives "),
        ("own_files.json", "sha256", {"x.py": "0"}, "own_files.json: {'x.py': '0'}, but recipe.yaml says {}"),
        ("charges.json", "accountant", "std.pld", "charges.json, accountant: 'std.pld', but recipe.yaml says ''"),
        ("charges.json", "presence", 0.01, "charges.json, presence: 0.01, but recipe.yaml gives 1.0"),
        ("charges.json", "log.0.secret_cohort", True, "charges.json, log, 0, secret_cohort: true, but by recipe.yaml"),
        ("charges.json", "log.0.charged", "secret", "charges.json, log: it hides who took part, but by the recipe"),
        ("messages.json", "compared.values", {"x": 5}, "messages.json, compared, values: it names the zone x, which"),
        ("messages.json", "compared.found", {"clear": 5}, "messages.json, compared, found: values of the clear zone"),
        ("messages.json", "answers", 1, "messages.json, compared, messages: 16, but clients sent only 1"),
        ("messages.json", "bytes", 1, "index.html: does not follow from the other files"),
        ("leakage.json", "awaited", True, "index.html: does not follow from the other files"),
    ],
)  # fmt: skip
def test_what_somebody_else_signed_again_is_reckoned_and_does_not_fit(
    copy: Path, name: str, place: str, value: Any, problem: str
) -> None:
    found = forged(copy, name, set_at(place, value))
    assert any(said.startswith(problem) for said in found.problems), found.problems


def test_a_charge_that_was_left_out_everywhere_changes_the_figures(copy: Path) -> None:
    rewrite(copy / "charges.json", cut)
    found = forged(copy, "ledger.json", cut)
    assert any(said.startswith("ledger.json, rounds, actual: 2, but recomputing gives 1") for said in found.problems)
    assert any(said.startswith("ledger.json, epsilons, ") for said in found.problems)


def cut(plain: Any) -> Any:
    return {**plain, "log": plain["log"][:1]}


@pytest.mark.parametrize("kind", ["laplace", "sampled", "clear", "shared"])
def test_other_ledgers_are_reckoned_too(made: dict[str, Path], kind: str) -> None:
    found = verify(made[kind])
    assert found.ok, found.problems
    secret = any("Participation is secret" in note for note in found.notes)
    assert secret == (kind == "sampled")
    if secret:
        charges, sent = ((made[kind] / name).read_text() for name in ("charges.json", "messages.csv"))
        assert {entry["charged"] for entry in json.loads(charges)["log"]} == {"secret"}
        assert {line.split(",")[0] for line in sent.splitlines()[1:]} == {"0"}


class Learnt(Toy, fedplug.Protector):
    """Noise of a size that is published before round 1."""

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        """Publishes the size."""
        cohort.publish(self, {"std": 3.0}, covered_by="nothing to pay")

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Noise of that size."""
        return (Noise.gaussian(facts.of(self).get("std", 2.0), source="reproducible"),)


def test_what_follows_from_published_values_is_no_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS["protect"], "toy.learnt", Learnt)
    run = start(tmp_path / "runs", recipe_of("noised", [{"use": "std.clip", "norm": 1.0}, "toy.learnt"], rounds=2))
    catalog = toy_catalog()
    made, _ = make_evidence(run, tmp_path / "made", catalog=catalog)
    found = verify_folder(made, None, catalog)
    assert not found.problems
    (unchecked,) = found.unchecked
    assert "noise_multiplier: 3.0, but recipe.yaml gives 2.0" in unchecked


def test_without_the_plugins_what_components_say_is_taken_as_stated(made: dict[str, Path]) -> None:
    nothing = Catalog({}, (), {})
    found = verify_folder(made["sealed"], None, nothing)
    assert not found.problems
    assert not found.ok
    said = "The statements of the components were not checked, because the recipe cannot be read here"
    assert found.last.startswith(f"No mismatch found, but not everything could be checked: {said}")
    assert any(note.startswith(said) for note in found.unchecked)
    assert any(note.startswith("The ledger follows from 2 charges") for note in found.notes)
    assert not verify_folder(made["shared"], None, nothing).problems, "the charges contain the number of colluders"
    found = verify_folder(made["laplace"], None, nothing)
    assert not found.problems
    assert "The accountant std.pld is not installed here, so no epsilon was recomputed" in found.unchecked


def protects(plain: Any) -> Any:
    """A ledger whose verdict claims full protection."""
    plain["verdict"]["status"] = "protected_from_all"
    for line in plain["verdict"]["lines"]:
        if line["state"] != "absent":
            both = {"zero_out": {"epsilon_exact": 0.0}, "replace_one": {"epsilon_exact": 0.0}}
            line |= {"state": "guaranteed", "reason": "", "detail": "", "epsilons": both}
    return as_written(plain)


def as_written(plain: Any) -> Any:
    """The ledger with its keys in the order of a real file."""
    return json.loads(LedgerReport.from_json(json.dumps(plain)).to_json())


def secret_in(plain: Any) -> Any:
    for entry in plain["log"]:
        entry["charged"] = "secret"
    return plain


@pytest.mark.parametrize("catalog", [CATALOG, Catalog({}, (), {})], ids=["all", "nothing"])
@pytest.mark.parametrize("kind", ["clear", "laplace"])
def test_a_verdict_that_was_rewritten_does_not_fit(
    made: dict[str, Path], tmp_path: Path, kind: str, catalog: Catalog
) -> None:
    """The forgery claims a secret cohort and a level for which no component keeps an account."""
    copy = Path(shutil.copytree(made[kind], tmp_path / "copy"))

    def forge(plain: Any) -> Any:
        level = {"unit": "x", "trust": "x", "covers": "x", "delta": 0.001, "epsilons": {"e": 1.0}}
        return protects(secret_in(plain | {"levels": {"x": level}}))

    rewrite(copy / "charges.json", secret_in)
    rewrite(copy / "ledger.json", forge)
    problems = signed_again(copy, catalog).problems
    assert any(said.startswith("charges.json, log: it hides who took part") for said in problems), problems
    if kind == "clear":  # the other needs an accountant that is missing
        assert any(said.startswith("ledger.json, verdict, lines, 0, state: 'guaranteed'") for said in problems), (
            problems
        )
    if catalog is CATALOG:
        assert "ledger.json, levels: x, but no component of recipe.yaml keeps an account of it" in problems


def test_noise_that_the_recipe_does_not_have_does_not_fit(made: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made["clear"], tmp_path / "copy"))

    def forge(plain: Any) -> Any:
        release = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 50.0, "trust": "local",
                   "source": "secure"}  # fmt: skip
        plain = json.loads(json.dumps(plain))
        for entry in plain["log"]:
            entry["zones"]["clear"] |= {
                "releases": [Release.from_plain(release).to_plain(for_json=True)],
                "local": 50.0,
            }
        return plain

    rewrite(copy / "charges.json", lambda plain: Charges.from_plain(forge(plain)).to_plain(for_json=True))
    rewrite(copy / "ledger.json", lambda plain: as_written(forge(plain)))
    problems = signed_again(copy).problems
    said = "charges.json, log, 0, zones, clear, releases: the noise is gaussian (local), but recipe.yaml gives none"
    assert said in problems, problems


def test_a_page_that_was_not_made_again_is_said_at_the_end(copy: Path) -> None:
    """This holds for any page and for any versions that its maker names."""
    rewrite(copy / "versions.json", set_at("made.fedplug-evidence", "99"))
    (copy / "index.html").write_text("<h1>Protected from everybody named</h1>")
    found = signed_again(copy)
    assert (found.problems, found.ok) == ([], False)
    page = "The page was made by fedplug-evidence 99, which is not installed here"
    said = f"No mismatch found, but not everything could be checked: {page}"
    assert found.last.startswith(said)
    with pytest.raises(typer.Exit) as left:
        commands.verify(copy)
    assert left.value.exit_code == 2
    rewrite(copy / "versions.json", lambda plain: plain | {"made": {}})
    assert not signed_again(copy).ok


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
    with pytest.raises(SetupError, match=r"contains no evidence: it has no manifest.json; fedplug evidence RUN"):
        verify(tmp_path)
    with pytest.raises(SetupError, match="a run's evidence is in RUN/evidence"):
        verify(runs["clear"])


def test_files_that_are_something_else_are_named(copy: Path) -> None:
    (copy / "charges.json").write_text("[]")
    assert signed_again(copy).problems[0].startswith("charges.json: wrong contents")
    (copy / "manifest.json").write_text("7")
    found = verify(copy)
    assert any(problem.startswith("manifest.json: changed; it is not a list of files") for problem in found.problems)
    assert "The contents of the files were not checked" in found.notes
