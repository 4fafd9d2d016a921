"""The text before joining agrees with the recipe and with the ledger of a whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import site_toys
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import RoundsReport
from fedplug_party.agreement import agreement, planned
from fedplug_party.program import Site
from fedplug_terminal.lines import tell
from party_toys import Beside
from toy_components import paraaegis, recipe_of, toy_catalog
from toy_protocol import run_protocol
from whole_words import Terminal, require_whole_words


def site(plain: dict[str, Any], folder: Path, address: str = "client:0") -> Site:
    return Site(Beside.read(plain), address, folder, None, "cpu", toy_catalog())


def noised(rounds: int = 3, **changes: Any) -> dict[str, Any]:
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}]
    return recipe_of("noised", chain, rounds=rounds, **changes)


def epsilons(ledger: Ledger) -> dict[str, float | None]:
    return {name: view.epsilon for name, view in ledger.report().views.items()}


def central() -> dict[str, Any]:
    """Noise at the server, over a secret sample."""
    noise = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}
    return recipe_of(
        "noised", [{"use": "std.clip", "norm": 1.0}], postprocess={"noised": [noise]}, accountant="std.pld",
        sampling={"scheme": "poisson", "rate": 0.9}, aggregate={"use": "std.mean", "weighting": "uniform"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "plain", [noised(), paraaegis(noised=None), central()], ids=["noise", "vote and encryption", "sampled"]
)
def test_the_planned_cost_is_never_below_that_of_the_run(plain: dict[str, Any], tmp_path: Path) -> None:
    """Nor does the plan promise a guarantee that the run does not give."""
    mine = site(plain, tmp_path)
    plan = epsilons(planned(mine.recipe, mine.composition, mine.layout, mine.client()))
    ran = epsilons(run_protocol(plain).protocol.ledger)
    assert plan.keys() == ran.keys()
    for name, epsilon in ran.items():
        stated = plan[name]
        assert stated is None or (epsilon is not None and stated >= epsilon - 1e-9)
    assert any(stated is not None for stated in plan.values()) == (plain["protect"].keys() == {"noised"})


def test_repeats_cost_what_rounds_cost(tmp_path: Path) -> None:
    mine, longer = site(noised(3), tmp_path), site(noised(5), tmp_path)
    again = planned(mine.recipe, mine.composition, mine.layout, mine.client(), repeats=2)
    assert again.report().rounds == RoundsReport(planned=3, actual=3)
    assert epsilons(again)["server"] is not None
    multiplier = again.log[0].zones["noised"].local
    of_five = planned(longer.recipe, longer.composition, longer.layout, longer.client())
    # The noise of the longer recipe is calibrated to five rounds; per unit of noise both cost the same.
    ratio = of_five.log[0].zones["noised"].local / multiplier
    assert again.costs["noised"].own[0] == pytest.approx(of_five.costs["noised"].own[0] * ratio**2)


def test_the_round_that_counts_as_repeated_is_the_costliest_one(tmp_path: Path) -> None:
    """The server chooses which round it repeats: here the last one, because the noise shrinks."""
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 8.0, "decay": 0.25}]
    mine = site(recipe_of("noised", chain, rounds=3), tmp_path)
    ledgers = [planned(mine.recipe, mine.composition, mine.layout, mine.client(), repeats) for repeats in (0, 2)]
    charged = [[entry.zones["noised"].local for entry in ledger.log] for ledger in ledgers]
    assert charged[0][0] > charged[0][1] > charged[0][2]
    assert charged[1] == [*charged[0], charged[0][2], charged[0][2]]
    before, after = (epsilons(ledger)["server"] for ledger in ledgers)
    assert before is not None
    assert after is not None
    assert after > before * 1.3


def test_a_zone_costs_nothing_in_rounds_in_which_the_public_plan_does_not_send_it(tmp_path: Path) -> None:
    """All is encrypted in round 1, and half of it in round 2; whose half follows from votes."""
    mine = site(paraaegis(1.0, decay=0.5), tmp_path)
    ledger = planned(mine.recipe, mine.composition, mine.layout, mine.client())
    assert [sorted(entry.zones) for entry in ledger.log] == [["encrypted"], ["encrypted", "noised"]]


def test_the_text_says_what_leaves_to_whom_and_what_it_guarantees(tmp_path: Path) -> None:
    plain = paraaegis(noised=None)
    mine = site(plain, tmp_path)
    text = agreement(mine.recipe, mine.composition, mine.layout, mine.client(), 2)
    for part in (
        f"Recipe toy ({mine.recipe.digest[:12]}): 2 rounds, 4 clients.",
        "each round, to the server: the zone encrypted of the update, protected by std.bfv; the server sees "
        "ciphertexts; the clients can open sums",
        "each round, to the server: the zone noised of the update, protected by std.clip then std.gaussian; the server "
        "can read it",
        "once, to the server: its number of examples and a public key",
        "fedplug.protect  Cuts the update into the plan's zones and protects each; what comes out is what the server",
        "paraaegis.vote.",
        "○ the key server                     no such party: every client holds the key",
        "no guarantee: sees sums over clients of the encrypted zone, without noise",
        "The same if the costliest round is repeated as often as --repeats 2 allows:",
        "client metrics, visible to the server: training loss",
        "Never covered: hyper-parameter search",
    ):
        assert part in text, part
    assert "were repeated" not in text, "no round has run yet"
    assert "retained" not in text
    assert "fedplug.open " not in text


def test_the_text_names_class_counts_batch_norm_statistics_and_held_out_examples(tmp_path: Path) -> None:
    """None of them is protected, so an owner must not have to guess."""
    site_toys.write_sites(tmp_path / "sites", (12, 12))
    folder = tmp_path / "sites/client-0"
    (folder / "site.toml").write_text('tell = ["classes"]\n')
    there = {"use": "std.arrays", "at": "sites", "clients": 2, "agreed": site_toys.AGREED}
    texts = []
    for plain, data in (
        (recipe_of(data=there, rounds=1, buffers="mean", min_clients=2), str(folder)),
        (recipe_of(), None),
    ):
        mine = Site(Beside.read(plain), "client:0", tmp_path, data, "cpu", toy_catalog())
        texts.append(agreement(mine.recipe, mine.composition, mine.layout, mine.client(), 0))
    told, plainly = texts
    for part in (
        "its number of training examples of each class",
        "each round, to the server: the model's batch-norm statistics over this client's examples, unprotected",
        "the accuracy, the balanced accuracy, the AUC, whether a class is rare, and the mean loss on this site's "
        "held-out examples (no noise covers them), times",
    ):
        assert part in told, part
        assert part not in plainly, part
    assert "counts of correct predictions, on the common test set by class, losses, times" not in told
    assert "counts of correct predictions, on the common test set by class, losses, times" in plainly


def test_the_key_server_reads_what_it_opens(tmp_path: Path) -> None:
    for answer, to in (("server", "for the server"), ("clients", "for the clients only (through the server)")):
        chain = [{"use": "std.bfv", "key_holder": "key_server", "sums_visible_to": answer}]
        mine = site(recipe_of("encrypted", chain, min_clients=3), tmp_path, "key_server")
        assert mine.client() is None
        text = agreement(mine.recipe, mine.composition, mine.layout, None, 2)
        assert f"zone encrypted: once a round, it opens a sum of at least 3 updates {to}" in text
        assert "fedplug.open  Decrypts a sum." in text
        assert "std.bfv.make_keys  Where the key server holds the key: makes the key pair." in text
        assert "Not judged: the server together with the key server can decrypt every upload." in text
        assert "fedplug.train " not in text
        assert "What leaves this site" not in text


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_breaks_no_word_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    mine = site(paraaegis(noised=None), tmp_path)
    text = agreement(mine.recipe, mine.composition, mine.layout, mine.client(), 2)
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    tell(text, out)
    require_whole_words(out.getvalue(), text, columns)
