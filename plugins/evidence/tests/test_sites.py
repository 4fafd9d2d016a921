"""Reports of sites in the evidence of a run: what is checked of them, and that they count on the word of the site."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_calls import call
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fedplug.api.errors import SetupError
from fedplug_evidence import sites
from fedplug_evidence.attacked import attacked_short, nobody_tried
from fedplug_evidence.facts import Attacks, Contents
from fedplug_evidence.keys import fingerprint, own_key, public_bytes
from fedplug_evidence.making import make_evidence
from fedplug_evidence.manifest import Checked, seal
from fedplug_evidence.sites import SiteReport, Tried, in_folder, read_signed, untried
from fedplug_evidence.verifying import verify_folder
from toy_components import toy_catalog

CATALOG = toy_catalog()
KEY = Ed25519PrivateKey.generate()
FAILED = Tried("attacks.linear_leak server round 1 probe 1", "MSE", 0.2, 0.1, "mean image", True, 0.0, 1, "server",
               "the server")  # fmt: skip
WORKED = dataclasses.replace(FAILED, value=1e-9, succeeded=1.0)


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A run whose parties are elsewhere, by the name that they know it by."""
    found = Path(shutil.copytree(runs["clear"], tmp_path / "run"))
    (found / "parties.run").write_text("abc")
    return found


@pytest.fixture
def digest(run: Path) -> str:
    return make_and_read(run, ()).facts.digest


def make_and_read(run: Path, files: tuple[Path, ...]) -> Contents:
    folder, _ = make_evidence(run, force=True, catalog=CATALOG, sites=files)
    return Contents.of(Checked(folder).data)


def report(digest: str, client: int = 2, tried: tuple[Tried, ...] = (FAILED,), **changes: Any) -> SiteReport:
    left_out = [("the key server", "it sees nothing but sums over clients, and a site cannot attack these alone")]
    versions = {"fedplug": "0.1.0"}
    made = SiteReport(digest, "abc", client, [1], [*tried], left_out, versions, "2026-01-01", "It found nothing.")
    return dataclasses.replace(made, **changes)


def signed(folder: Path, made: SiteReport, key: Ed25519PrivateKey = KEY, name: str = "") -> Path:
    file = folder / (name or f"of-{made.client}.json")
    signature = key.sign(sites._PURPOSE + sites._body(made))
    file.write_bytes(sites._sealed(made, public_bytes(key), signature))
    return file


def test_a_report_is_on_the_page_on_the_word_of_its_site_with_the_clients_that_nobody_attacked(
    run: Path, digest: str, tmp_path: Path
) -> None:
    before = (run / "evidence" / "index.html").read_text()
    file = signed(tmp_path, report(digest))
    folder, notes = make_evidence(run, force=True, catalog=CATALOG, sites=[file])
    assert (folder / "site-2.json").read_bytes() == file.read_bytes()
    page = (folder / "index.html").read_text()
    assert "<b>Tried by site 2</b>, on that site's word, signed with the key" in page
    assert fingerprint(public_bytes(KEY)) in page
    assert "not attacked: the key server: it sees nothing but sums over clients" in page
    assert "any attack on clients 0, 1 and 3" in page
    assert "site 2 reports: linear_leak, and none succeeded" in page
    left = "nobody attacked clients 0, 1 and 3: each site does it with fedplug party RECIPE --client N --data DIR"
    assert any(note.startswith(left) for note in notes)
    # What a site says changes nothing of the verdict.
    verdict = re.compile(r'class="glance".*?(?=class="tried")', re.DOTALL)
    assert len(verdict.findall(before)) == 1
    assert verdict.findall(before) == verdict.findall(page)
    found = verify_folder(folder, catalog=CATALOG)
    assert found.ok, found.problems
    assert any("site-2.json is of this recipe, run and client" in note for note in found.notes)


def test_an_attack_that_worked_at_a_site_is_among_the_first_things_on_the_page(
    run: Path, digest: str, tmp_path: Path
) -> None:
    contents = make_and_read(run, (signed(tmp_path, report(digest, tried=(WORKED,))),))
    page = (run / "evidence" / "index.html").read_text()
    assert '<span class="succeeded">site 2 reports: linear_leak succeeded, of linear_leak.</span>' in page
    several = [sites.Signed(report(digest, client), b"", b"") for client in (0, 1)]
    short = attacked_short(Attacks(), contents.ledger.verdict, [*several, *contents.sites], 4)
    assert "sites 0 and 1 report: linear_leak, and none succeeded; site 2 reports: linear_leak succeeded" in short
    said = nobody_tried(Attacks(), contents.ledger.verdict, contents.sites, 4)
    assert said[0] == "any attack on clients 0, 1 and 3"
    assert not any(clause.startswith("any attack by the server") for clause in said)


def test_every_file_that_does_not_belong_to_the_run_is_named_with_the_reason(
    run: Path, digest: str, tmp_path: Path
) -> None:
    good = signed(tmp_path, report(digest, 0))
    changed = tmp_path / "changed.json"
    changed.write_bytes(good.read_bytes().replace(b'"succeeded": 0.0', b'"succeeded": 1.0'))
    unreadable = tmp_path / "missing.json"
    twice = signed(tmp_path, report(digest, 0), name="twice.json")
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(SetupError) as caught:
        make_evidence(run, force=True, catalog=CATALOG, sites=[good, changed, unreadable, twice, other])
    said = str(caught.value).splitlines()
    assert len(said) == 4
    assert f"--site {changed}: the signature does not fit, so the file was changed after it was signed" in said[0]
    assert f"--site {unreadable}: it cannot be read (No such file or directory)" in said[1]
    assert f"--site {twice}: {good} is of client 0 too; name one file for each client" in said[2]
    assert f"--site {other}: not the report of a site (it has no report)" in said[3]

    strange = [
        unreadable, signed(tmp_path, report("f" * 64, 1)), signed(tmp_path, report(digest, 2, run="xyz")),
        signed(tmp_path, report(digest, 9)),
    ]  # fmt: skip
    with pytest.raises(SetupError) as caught:
        make_evidence(run, force=True, catalog=CATALOG, sites=strange)
    _, recipe, identity, client = str(caught.value).splitlines()
    assert f"--site {strange[1]}: it is of recipe ffffffffffff, and the run is of {digest[:12]}" in recipe
    assert f"--site {strange[2]}: it is of run xyz, and this is run abc" in identity
    assert f"--site {strange[3]}: it is of client 9, and the run has the clients 0 to 3" in client


def test_a_run_without_parties_elsewhere_takes_no_report(runs: dict[str, Path], digest: str, tmp_path: Path) -> None:
    file = signed(tmp_path, report(digest))
    with pytest.raises(SetupError, match="it is of run abc, and this run has no parties elsewhere"):
        make_evidence(runs["clear"], tmp_path / "out", catalog=CATALOG, sites=[file])
    forged = signed(tmp_path, report(digest, run=""))
    with pytest.raises(SetupError, match="this run has no parties elsewhere"):
        make_evidence(runs["clear"], tmp_path / "out", catalog=CATALOG, sites=[forged])
    assert not (tmp_path / "out").exists()


def test_verify_finds_a_report_that_was_changed_or_swapped_after_it_was_packed(
    run: Path, digest: str, tmp_path: Path
) -> None:
    make_and_read(run, (signed(tmp_path, report(digest)),))
    folder, signer = run / "evidence", own_key()[0]

    def packed(data: bytes, name: str = "site-2.json") -> list[str]:
        """What is found if the signer packs these bytes."""
        found = Path(shutil.copytree(folder, tmp_path / "packed", dirs_exist_ok=True))
        (found / "site-2.json").unlink(missing_ok=True)
        (found / name).write_bytes(data)
        files = {path.name: path.read_bytes() for path in found.iterdir() if not path.name.startswith("manifest")}
        for file, content in seal(files, signer).items():
            (found / file).write_bytes(content)
        problems = verify_folder(found, catalog=CATALOG).problems
        shutil.rmtree(found)
        return problems

    data = (folder / "site-2.json").read_bytes()
    assert packed(data) == []
    (changed,) = packed(data.replace(b'"client": 2', b'"client": 3'))
    assert changed.startswith("site-2.json: the signature does not fit")
    (renamed,) = packed(data, "site-3.json")
    assert renamed == "site-3.json: it is the report of client 2"
    swapped = packed(signed(tmp_path, report(digest, run="xyz")).read_bytes())
    assert "site-2.json: it is of run xyz, and this is run abc" in swapped
    better = packed(signed(tmp_path, report(digest, tried=())).read_bytes())
    assert better == ["index.html: does not follow from the other files"]
    assert packed(data, "site-02.json") == ["site-02.json: not a file of evidence"]


def test_evidence_of_before_is_read_as_it_was(folder: Path) -> None:
    """Folders without reports and without an identity of the run have the same bytes as ever."""
    facts = Contents.of(Checked(folder).data)
    assert facts.sites == ()
    assert b'"run"' not in Checked(folder).data["run.json"]


def test_the_clients_that_nobody_attacked_in_words(digest: str) -> None:
    def of(*clients: int) -> Any:
        return [sites.Signed(report(digest, client), b"", b"") for client in clients]

    nothing = sites.Signed(report(digest, 1, tried=()), b"", b"")
    assert untried([*of(0), nothing], 2) == "client 1", "a site that could attack nothing says nothing of its client"
    assert untried(of(0, 1), 2) == ""
    assert untried(of(0), 2) == "client 1"
    assert untried((), 3) == "any of the 3 clients"
    assert untried(of(0), 100) == "the other 99 clients"


def test_a_hostile_report_is_refused_without_a_traceback(digest: str) -> None:
    for data in (b"", b"[" * 10_000, b"\xff", b'{"report": 1}', b'{"report": {}, "report": {}}', b" " * (2**20 + 1)):
        with pytest.raises(SetupError, match=r"site-0\.json: not the report of a site"):
            read_signed(data, "site-0.json")
    assert in_folder({"index.html": b""}) == ()


def test_what_a_site_writes_is_escaped_and_cannot_break_the_page(run: Path, digest: str, tmp_path: Path) -> None:
    bad, never = "<script>alert(1)</script>\x1b[2J", float("nan")
    tried = Tried(bad, bad, never, never, bad, True, 1.0, 3, bad, bad)
    hostile = report(
        digest, tried=(tried,), found=bad, left_out=[(bad, bad)], versions={bad: bad}, made=bad, rounds=[2**40],
    )  # fmt: skip
    make_and_read(run, (signed(tmp_path, hostile),))
    page = (run / "evidence" / "index.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert verify_folder(run / "evidence", catalog=CATALOG).ok
    share = signed(tmp_path, report(digest, tried=(dataclasses.replace(FAILED, succeeded=float("inf")),)))
    with pytest.raises(SetupError, match="inf is not a share of targets, from 0 to 1"):
        make_evidence(run, force=True, catalog=CATALOG, sites=[share])
    state = signed(tmp_path, report(digest, tried=(dataclasses.replace(WORKED, state="no success"),)))
    with pytest.raises(SetupError, match="'no success' is not the outcome of an attack"):
        make_evidence(run, force=True, catalog=CATALOG, sites=[state])


def test_the_word_of_one_site_takes_nothing_from_what_nobody_tried_at_others(run: Path, digest: str) -> None:
    verdict = make_and_read(run, ()).ledger.verdict
    released = dataclasses.replace(FAILED, adversary="released", who="anybody who gets the model")
    all_of_them = [dataclasses.replace(FAILED, adversary=one) for one in
                   ("server", "client", "server+client", "released", "malicious_server")]  # fmt: skip

    def said(attacks: Attacks, *of: tuple[int, list[Tried]]) -> list[str]:
        reports = [sites.Signed(report(digest, client, tuple(tried)), b"", b"") for client, tried in of]
        return nobody_tried(attacks, verdict, reports, 4)

    others = "another client or a client together with the server"
    altered = "attacks by parties that send altered messages"
    assert said(Attacks([released]), (0, all_of_them))[:2] == [
        f"any attack by the server, {others} on clients 1, 2 and 3", altered,
    ]  # fmt: skip
    everywhere = [(client, all_of_them) for client in range(4)]
    assert said(Attacks([released]), *everywhere)[0] == said(Attacks(), *everywhere)[0] == altered
    server = [(client, [FAILED]) for client in range(3)]
    assert said(Attacks(), *server, (3, [released]))[:3] == [
        "any attack by the server on client 3", "any attack by anybody who gets the model on clients 0, 1 and 2",
        f"any attack by {others}",
    ]  # fmt: skip


def test_the_command_names_its_files(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "evidence", str(run), "--site", str(tmp_path / "none.json")) == 1
    assert "none.json: it cannot be read" in capsys.readouterr().err
