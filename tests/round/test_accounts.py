"""Accounts of a level of its own, as a third party's component keeps them: stated, compared, charged, shown."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import fedplug
import numpy as np
import pytest
from account_toys import Flips, Labels
from fedplug import Account, Block, Bound, Changes, RecipeError, Reveals, Scales, Scoring, hookimpl
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug.api.members import record_problems
from fedplug.privacy.ledger_epsilons import level_epsilons
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost
from fedplug.round.uploads import read_hello
from fedplug_std.scorers import Magnitude
from toy_components import TOYS, recipe_of, toy_catalog
from toy_protocol import Outcome, run_protocol


class Wavering(Labels):
    """Says something else once it has trained."""

    def round_release(self, client: Any, ctx: Any) -> Flips:
        """Less and less."""
        return Flips(0.75 if client.remembered.trained < 0 else 0.9)

    release_problem = Labels.release_problem


def labels() -> Labels:
    found = Labels(None)
    found.name = "toy.labels"
    return found


def outcome(monkeypatch: pytest.MonkeyPatch, kind: type[Labels]) -> Outcome:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.labels", kind)
    return run_protocol(recipe_of(chain=[{"use": "toy.labels"}], rounds=2))


def test_a_link_keeps_the_account_of_a_level_that_the_core_has_never_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(monkeypatch, Labels)
    ledger, each = found.protocol.ledger, math.log(3)
    assert ledger.accounts["label"] == {client: {(0.75,): 2} for client in range(4)}
    assert [row.level_epsilons["label"] for row in found.rows] == pytest.approx([each, 2 * each])
    stated = ledger.report()
    assert stated.levels["label"].epsilons["epsilon_pure"] == pytest.approx(2 * each)
    assert stated.levels["label"].unit == "label: the label of one example"
    said = f"LABEL-LEVEL DP: ε={2 * each:.2f}, δ=1e-05 (single labels, local, replace-one) for the updates; NO DP for"
    assert stated.verdict.startswith(said)


def test_a_repeated_round_is_charged_at_its_level_too(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, each = outcome(monkeypatch, Labels).protocol, math.log(3)
    protocol.books.charging.lost_round(1, [0, 1, 2, 3])
    assert [rounds.total() for rounds in protocol.ledger.accounts["label"].values()] == [3, 3, 3, 3]
    assert level_epsilons(protocol.ledger) == {"label": pytest.approx(3 * each)}


def test_a_link_that_does_other_than_it_said_before_round_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooFewClients, match=r"component toy\.labels, round_release: round 1 is \(0\.9\), and was"):
        outcome(monkeypatch, Wavering)


def test_a_client_that_was_not_asked_before_round_1_does_not_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.labels", Labels)
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(chain=[{"use": "toy.labels"}]), catalog)
    host = ClientHost(recipe, Composition(recipe), [0], None, "cpu")
    (client,) = host.clients.values()
    client.ctx = dataclasses.replace(client.ctx, round=0)
    with pytest.raises(ProtectionError, match=r"was not asked before round 1 what toy\.labels releases"):
        host.components["fedplug"].train(client)


def test_a_level_has_one_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.labels", Labels)
    chain = [{"use": "toy.labels"}, {"use": "toy.labels", "name": "again"}]
    with pytest.raises(RecipeError, match=r"again keeps account of the level label, as toy\.labels does"):
        Recipe.from_plain(recipe_of(chain=chain), toy_catalog())


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [("level", "Two words", "one word in small"), ("level", "client", "effects"), ("release", tuple, "NamedTuple")],
)
def test_an_account_says_a_level_and_a_release(field: str, value: Any, rule: str) -> None:
    facts = {"level": "label", "release": Flips, "unit": "", "terms": "", "trust": "", "covers": ""}
    with pytest.raises(TypeError, match=rf"Account\.{field} is .*{rule}"):
        Account(**{**facts, field: value})  # type: ignore[arg-type]
    assert not [*record_problems(Labels(None))]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "not a release for each of 2 rounds"), ({"label": [[0.5]]}, "each of 2 rounds"),
        ({"label": [[0.5], [0.5, 1.0]]}, "not 1 numbers"), ({"label": [[0.5], [-1.0]]}, "not a finite"),
        ({"label": [[0.5], [math.nan]]}, "not a finite"), ({"label": [[0.5], [1]]}, "holds 1, not a finite"),
        ({"label": [[0.5], [math.inf]]}, "not a finite"), ({"label": [[0.5], [1.0]]}, "cannot be: kept=1 must"),
    ],
)  # fmt: skip
def test_a_client_that_states_no_account_does_not_join(said: Any, why: str) -> None:
    with pytest.raises(MessageError, match=f"its account of level label .*{why}"):
        read_hello({"accounts": said}, False, False, {"label": labels()}, 2)
    told = {"label": [[0.5], [0.25]], "other": "ignored"}
    assert read_hello({"accounts": told}, False, False, {"label": labels()}, 2).accounts == {"label": [[0.5], [0.25]]}


class Peeks(fedplug.Protector):
    """Change values by what the examples are, after their account was made."""

    taken = "examples"

    def effects(self, known: Any, ctx: Any) -> tuple[Changes]:
        return (Changes(),)

    @hookimpl
    def protect(self, block: Block, client: Any, ctx: Any) -> Block:
        shift = client.data.train.inputs.mean() if self.taken == "examples" else len(client.data.train)
        if self.taken == "scores":
            shift = client.scores_by(None).mean()
        if self.taken == "cache":
            shift = client.cache["examples"].mean()
        return block.replace(values=block.plain() + np.float32(shift))


class PeeksAtScores(Peeks):
    taken = "scores"
    effects, protect = Peeks.effects, Peeks.protect


class PeeksAtCache(Peeks):
    taken = "cache"
    effects, protect = Peeks.effects, Peeks.protect


class Counts(Peeks):
    taken = "their number"
    effects, protect = Peeks.effects, Peeks.protect


class Clips(Peeks):
    """State a bound, and give whatever is within it."""

    protect = Peeks.protect

    def effects(self, known: Any, ctx: Any) -> Any:
        return (Bound(1e9),)


class Scaled(PeeksAtScores):
    protect = Peeks.protect

    def effects(self, known: Any, ctx: Any) -> Any:
        return (Scales(2.0),)


class Admits(Peeks):
    shown: Reveals = Reveals("examples", ("aggregator", "released_model"), voids=True)
    effects, protect = Peeks.effects, Peeks.protect

    def reveals(self, ctx: Any) -> list[Reveals]:
        return [self.shown]


class SaysItIsPaid(Admits):
    shown = Reveals("its version", ("released_model",), covered_by="nothing to pay")
    effects, protect, reveals = Peeks.effects, Peeks.protect, Admits.reveals


class SaysItOfReplies(Admits):
    shown = Reveals("counts", ("aggregator",), asked=("count",))
    effects, protect, reveals = Peeks.effects, Peeks.protect, Admits.reveals


class SaysItOfOthers(Admits):
    shown = Reveals("sums", ("key_holder",))
    effects, protect, reveals = Peeks.effects, Peeks.protect, Admits.reveals


def with_account(monkeypatch: pytest.MonkeyPatch, kind: type[Peeks], **changes: Any) -> Outcome:
    toys = TOYS.setdefault("protect", {})
    monkeypatch.setitem(toys, "toy.labels", Labels)
    monkeypatch.setitem(toys, "toy.peeks", kind)
    return run_protocol(recipe_of(chain=[{"use": "toy.labels"}, {"use": "toy.peeks"}], **changes))


@pytest.mark.parametrize(
    "kind", [Peeks, PeeksAtScores, PeeksAtCache, Clips, Scaled, SaysItIsPaid, SaysItOfReplies, SaysItOfOthers]
)
def test_a_link_behind_an_account_does_not_read_the_examples(
    monkeypatch: pytest.MonkeyPatch, kind: type[Peeks]
) -> None:
    scores = {"score_parameters": [{"use": "std.magnitude"}]} if kind.taken == "scores" else {}
    with pytest.raises(TooFewClients, match=r"component toy\.peeks, hook protect: it reads a client's examples, its"):
        with_account(monkeypatch, kind, **scores)


def test_a_link_behind_an_account_may_read_public_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody works them out, so they tell nothing of one client's examples."""
    monkeypatch.setattr(Magnitude, "scoring", Scoring(public=True))
    outcome = with_account(monkeypatch, PeeksAtScores, score_parameters=[{"use": "std.magnitude"}])
    assert outcome.rows[-1].clients.dropped == {}


def test_a_link_behind_an_account_may_count_examples_and_say_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_account(monkeypatch, Counts).rows[-1].clients.dropped == {}
    stated = with_account(monkeypatch, Admits).protocol.ledger.report()
    assert stated.verdict.startswith("NO ")
    assert "LABEL-LEVEL DP" not in stated.verdict
