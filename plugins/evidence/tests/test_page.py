"""The page first says in words what is not protected. It loads nothing, runs no script and escapes everything."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from fedplug_evidence.attacked import not_tried
from fedplug_evidence.facts import Attacks, Closed, Contents
from fedplug_evidence.manifest import Checked
from fedplug_evidence.page import render, unprotected
from fedplug_evidence.picture import draw
from fedplug_evidence.sites import Tried
from fedplug_ledger.grades import Epsilons
from fedplug_ledger.ledger_record import LevelReport
from fedplug_ledger.verdict import Verdict
from fedplug_runs.compared import Compared


def contents(folder: Path) -> Contents:
    return Contents.of(Checked(folder).data)


def test_it_says_first_what_was_attacked_who_is_kept_out_and_what_is_not_protected(folder: Path) -> None:
    page = render(contents(folder))
    headings = re.findall(r"<h2[^>]*>([^<]*)", page)
    assert headings == [
        "Who can learn what about a client", "What was attacked, and what nobody tried", "What is not protected",
        "What each party sees, and why", "A round, with a lock for each party", "Who could see what", "What was sent",
        "The ledger by party, with every charge", "Attacks that were tried", "What ran", "How to check this folder",
    ]  # fmt: skip
    assert page.index("Nobody tried:") < page.index('class="glance"') < page.index("What is not protected")
    items = [*unprotected(contents(folder))]
    together = "limits what the key server, another client or anybody who gets the model can learn about a client. They"
    assert f"{together} see sums of the encrypted zone without noise." in " ".join(items), "one reason is said once"
    told = "No epsilon covers this, which the server and another client can see: number of examples ("
    assert any(item.startswith(told) for item in items)
    assert any(item.startswith("Never covered, whatever the recipe: hyper-parameter search") for item in items)
    assert items[-1] == "No attack was tried."


def test_it_loads_nothing_and_runs_no_script(folder: Path) -> None:
    page = render(contents(folder))
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|img|link|iframe|object|embed)\b|\bon\w+=|https?:|@import|url\((?!#)", page)


def test_what_it_is_given_is_escaped(folder: Path) -> None:
    given = contents(folder)
    bad = "<script>alert(1)</script>"
    ledger = dataclasses.replace(given.ledger, warnings=[bad], uncovered_messages=[bad])
    facts = dataclasses.replace(given.facts, name=bad, device=bad, engine=bad, plan=[(bad, bad, bad)])
    attacks = Attacks([Tried(bad, bad, 0.5, 0.1, bad, True, 0.5, 3)])
    page = render(dataclasses.replace(given, ledger=ledger, facts=facts, attacks=attacks, written=bad))
    assert bad not in page
    assert "&lt;script&gt;" in page


def test_plain_values_that_were_found_are_told_before_all_else_of_the_bytes(folder: Path) -> None:
    given = contents(folder)
    sent = dataclasses.replace(given.sent, compared=Compared(16, {"noised": 9}, {"noised": 4}))
    page = render(dataclasses.replace(given, sent=sent))
    assert "PLAIN VALUES WERE FOUND: values of the noised zone, at 4 places" in page
    assert re.search(r"9 values, 16 of \d+ messages, 4 found", page)


def test_ciphertexts_that_compress_or_repeat_stand_out(folder: Path) -> None:
    given = contents(folder)
    closed = Closed("encrypted", "acme.he", 8, 8, 1000, 0.5, 0.9, 6.0, 7.9, 3)
    page = render(dataclasses.replace(given, sent=dataclasses.replace(given.sent, closed=[closed])))
    assert "<strong>yes</strong>: at least 0.5000" in page
    assert "<strong>no</strong>: 3 repeat" in page
    assert "3 ciphertexts of the encrypted zone repeat the bytes of earlier ciphertexts." in page


def test_attacks_stand_beside_the_guess_that_looks_at_nothing(folder: Path) -> None:
    tried = [
        Tried("attacks.dlg server", "PSNR", 31.25, 11.5, "mean image", False, 0.75, 4),
        Tried("attacks.labels outsider", "error", None, None, "", True, None, 0),
    ]
    page = render(dataclasses.replace(contents(folder), attacks=Attacks(tried, True)))
    assert "11.5 (mean image)" in page
    assert "it did not apply" in page
    assert "attacks that were not run" in page
    assert "No attack was tried." not in page


def test_every_party_has_a_lock_with_words(folder: Path) -> None:
    verdict = contents(folder).ledger.verdict
    picture = draw(verdict, {"up": {"noised": 2_000_000, "other": 10}, "key_server": {"encrypted": 5}})
    for line in verdict.lines:
        assert f'<div class="party {line.grade}"' in picture
    assert picture.count('class="state"') == len(verdict.lines) == 5
    assert "noised 2.0 MB" in picture
    assert ">server<" in picture
    assert render(dataclasses.replace(contents(folder), ledger=dataclasses.replace(
        contents(folder).ledger, verdict=Verdict("nothing_run")
    )))  # fmt: skip


def test_rounds_that_are_alike_stand_in_one_line(folder: Path) -> None:
    given = contents(folder)
    alike = [dataclasses.replace(given.charges.log[0], round=number) for number in (1, 2, 3)]
    log = [*alike, dataclasses.replace(alike[0], round=3)]
    for entries, told in ((alike, "1 to 3"), (log, "1: 4 times")):
        charges = dataclasses.replace(given.charges, log=entries)
        assert f'<th scope="row">{told}</th>' in render(dataclasses.replace(given, charges=charges))


def test_a_guarantee_for_records_is_none_for_a_client(folder: Path) -> None:
    """The first sentences and the lock say so."""
    given = contents(folder)
    line = dataclasses.replace(
        given.ledger.verdict.lines[0], state="guaranteed", unit="record", stated={"epsilon_rdp": 2.0}, epsilons=None,
        reason="", detail="training alone; of a whole client: no noise hides it",
    )  # fmt: skip
    verdict = Verdict.of([line, *given.ledger.verdict.lines[1:]])
    given = dataclasses.replace(given, ledger=dataclasses.replace(given.ledger, verdict=verdict))
    told = "No useful guarantee limits what the server can learn about a client as a whole. The guarantee is for each"
    assert any(said.startswith(told) for said in unprotected(given))
    picture = draw(verdict, {})
    assert '<div class="party part"' in picture
    assert ">LOCKED FOR EACH RECORD ONLY<" in picture
    assert ">LOCKED<" not in picture
    assert ">epsilon 2.00 for each record<" in re.sub("</?span[^>]*>", "", picture)
    assert "a client as a whole is open" in render(given)
    assert "Locked in part: a guarantee holds for the named unit, but none for a client as a whole" in render(given)


def test_the_page_names_the_data_files_and_says_that_no_digest_of_them_is_here(folder: Path) -> None:
    given = contents(folder)
    assert "The recipe names no data file." in render(given)
    assert "The recipe names none of the user's own code or component files." in render(given)
    for more, said in (
        ({"file": "patients<b>.csv"}, "The recipe names the data file patients&lt;b&gt;.csv. This evidence contains "
         "neither the file nor its digest: with a digest, anyone who can guess a file can confirm the guess."),
        ({"file": "a.csv", "test_file": "b.csv"}, "The recipe names the data files a.csv and b.csv."),
        ({"at": "sites"}, "Each site read its own data. This evidence contains neither the files nor their digests"),
    ):  # fmt: skip
        recipe = {**given.recipe, "data": {**given.recipe["data"], **more}}
        assert said in render(dataclasses.replace(given, recipe=recipe))


def test_a_weak_guarantee_is_named_first_and_has_a_hollow_lock(folder: Path) -> None:
    given = contents(folder)
    line = dataclasses.replace(
        given.ledger.verdict.lines[0], state="guaranteed", reason="", detail="noise",
        epsilons=Epsilons({"epsilon_exact": 8.81}, {"epsilon_exact": 21.24}),
    )  # fmt: skip
    verdict = Verdict.of([line])
    given = dataclasses.replace(given, ledger=dataclasses.replace(given.ledger, verdict=verdict))
    assert next(unprotected(given)).startswith(
        "Only a weak guarantee limits what the server can learn about a client: the odds of a guess change by a "
        "factor of at most 6,800"
    )
    page = render(given)
    assert '<span class="status weakly_protected_from_all weak">Weakly protected from everybody named</span>' in page
    assert '<div class="party weak"' in page
    assert ">WEAKLY LOCKED<" in page


def a_try(name: str, adversary: str, succeeded: float | None) -> Tried:
    """An attack that succeeded on that share of its targets, or did not apply."""
    return Tried(f"attacks.{name} {adversary}", "MSE", 0.1, 0.2, "mean image", True, succeeded, 3, adversary, adversary)


def test_it_says_who_attacked_with_what_and_what_nobody_tried(folder: Path) -> None:
    given = contents(folder)
    verdict = given.ledger.verdict
    there = [line.party for line in verdict.lines if line.state != "absent"]
    assert there == ["server", "key_holder", "client", "client_and_server", "released_model"]
    nothing = not_tried([], verdict)
    assert nothing[0] == (
        "any attack by the server, the key server, another client, a client together with the server or anybody who "
        "gets the model"
    )  # fmt: skip
    tried = [a_try("dlg", "server", 0.5), a_try("ilrg", "server", 0.0), a_try("ilrg", "client:3", None),
             a_try("membership", "released", 0.0)]  # fmt: skip
    said = not_tried(tried, verdict)
    assert said[:2] == [
        "any attack by the key server or a client together with the server",
        "any attack that applies to what another client sees",
    ]
    shown = render(dataclasses.replace(given, attacks=Attacks(tried)))
    top = re.sub("<[^>]*>", "", shown[shown.index("<main>") : shown.index('class="glance"')])
    assert "Attacked: dlg succeeded, of dlg, ilrg and membership. Nobody tried: any attack by the key server" in top
    assert '<span class="succeeded">' in shown
    unlucky = render(dataclasses.replace(given, attacks=Attacks(tried[1:])))
    assert "ilrg and membership, and none succeeded." in unlucky
    assert '<span class="succeeded">' not in unlucky
    # All targets together decide, and what ended inconclusive or was not attacked is no comfort.
    judged = [dataclasses.replace(tried[3], state="success"), dataclasses.replace(tried[1], state="inconclusive")]
    sent = "Not attacked: round 1 sent the zone clear in the clear."
    shown = render(dataclasses.replace(given, attacks=Attacks(judged, untried=[sent])))
    assert "membership succeeded, membership on all targets together" in shown
    assert "ilrg ended inconclusive" in shown
    assert sent.rstrip(".") in shown
    open_one = render(dataclasses.replace(given, attacks=Attacks(judged[1:])))
    assert "ilrg, and none succeeded, though ilrg ended inconclusive." in open_one


def test_the_epsilon_of_a_level_is_the_one_that_the_verdict_quotes(folder: Path) -> None:
    """It is the first epsilon, not the smallest."""
    given = contents(folder)
    level = LevelReport("record: one example", "the client", "training", 1e-5, {"epsilon_rdp": 3.0, "epsilon_pld": 2.0})
    page = render(dataclasses.replace(given, ledger=dataclasses.replace(given.ledger, levels={"record": level})))
    assert 'Level record: record: one example; training; epsilon <span class="whole">3.000.</span>' in page
