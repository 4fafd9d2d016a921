"""Accounts of a separate level, as a third party's component keeps them: stated, compared, charged, shown."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import fedplug
import pytest
from account_toys import Flips, Labels
from fedplug import Account, Block, Map, Operations, RecipeError
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost
from fedplug.round.uploads import read_hello
from fedplug_ledger.spent import level_epsilons
from fedplug_runs.members import of_part
from toy_components import TOYS, recipe_of, toy_catalog
from toy_protocol import Outcome, run_protocol


class Wavering(Labels):
    """States something different once it has trained."""

    def round_release(self, client: Any, facts: Any) -> Flips:
        """Less and less."""
        return Flips(0.75 if client.remembered.trained < 0 else 0.9)


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
    assert stated.levels["label"].trust.startswith("local: ")
    assert stated.verdict.status == "protected_from_all"
    there = [line for line in stated.verdict.lines if line.state != "absent"]
    assert [line.party for line in there] == ["server", "client", "client_and_server", "released_model"]
    for line in there:
        assert (line.unit, line.adjacency, line.epsilons) == ("label", "the label of one example", None)
        assert line.stated == {"epsilon_pure": pytest.approx(2 * each)}
        assert line.guarantee == f"epsilon {2 * each:.2f} for each label"
        assert line.terms.endswith("delta 1e-05, the label of one example")
        assert line.rests_on[0] == "on the word of toy.labels"


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
    client.facts = dataclasses.replace(client.facts, round=0)
    with pytest.raises(ProtectionError, match=r"was not asked before round 1 what toy\.labels releases"):
        host.components["fedplug"].train(client)


def test_a_level_has_one_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.labels", Labels)
    chain = [{"use": "toy.labels"}, {"use": "toy.labels", "name": "again"}]
    with pytest.raises(RecipeError, match=r"again keeps account of the level label, as toy\.labels does"):
        Recipe.from_plain(recipe_of(chain=chain), toy_catalog())


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [("level", "Two words", "one word in small"), ("level", "client", "operations"), ("release", tuple, "NamedTuple")],
)
def test_an_account_says_a_level_and_a_release(field: str, value: Any, rule: str) -> None:
    facts = {"level": "label", "release": Flips, "unit": "", "trust": "", "covers": ""}
    with pytest.raises(TypeError, match=rf"Account\.{field} is .*{rule}"):
        Account(**{**facts, field: value})  # type: ignore[arg-type]
    assert not [*of_part(Labels(None))]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "has 0 releases, not one for each of 2 rounds"), ({"label": [[0.5]]}, "each of 2 rounds"),
        ({"label": [[0.5], [0.5, 1.0]]}, "holds 2 numbers, not 1"), ({"label": [[0.5], [-1.0]]}, "is -1.0: input"),
        ({"label": [[0.5], [math.nan]]}, "is nan: input should be a finite number"),
        ({"label": [[0.5], [math.inf]]}, "is inf: input should be a finite number"),
        ({"label": [[0.5], [1.0]]}, "cannot be: kept=1 must"),
    ],
)  # fmt: skip
def test_a_client_that_states_no_account_does_not_join(said: Any, why: str) -> None:
    with pytest.raises(MessageError, match=f"label.*{why}"):
        read_hello({"accounts": said}, False, False, {"label": labels()}, 2)
    told = {"label": [[0.5], [0.25]], "other": [[0.5]]}
    assert read_hello({"accounts": told}, False, False, {"label": labels()}, 2).accounts == {"label": [[0.5], [0.25]]}


TAKEN: dict[str, Any] = {
    "examples": lambda client: client.data.train.inputs.size,
    "test examples": lambda client: client.data.own_test.answers.size,
    "scores": lambda client: sum(scores.size for scores in client.scores.values()),
    "their number": lambda client: client.num_examples,
}


class Peeks(fedplug.Protector):
    """Change values depending on what is found at a client, after its account was made."""

    class Options(fedplug.Options):
        """Its reading, and whether it asks for it."""

        taken: str = "examples"
        asks: bool = False

    def protect(self, known: Any, facts: Any) -> Operations:
        return (Map(self.peek, examples=self.options.asks),)

    def peek(self, block: Block, client: Any, facts: Any) -> Any:
        client.log[f"{self.name}.{client.client_id}"] = float(TAKEN[self.options.taken](client))
        return block.plain()


def with_account(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Outcome:
    toys = TOYS.setdefault("protect", {})
    monkeypatch.setitem(toys, "toy.labels", Labels)
    monkeypatch.setitem(toys, "toy.peeks", Peeks)
    scores = [{"use": "std.magnitude"}]
    return run_protocol(
        recipe_of(chain=[{"use": "toy.labels"}, {"use": "toy.peeks", **options}], score_parameters=scores)
    )


def found(outcome: Outcome) -> set[float]:
    """What the function found at the clients."""
    return {value for row in outcome.rows for name, value in row.log.items() if name.startswith("toy.peeks.")}


@pytest.mark.parametrize("taken", ["examples", "test examples", "scores"])
def test_a_function_behind_an_account_is_handed_a_client_without_them(
    monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    outcome = with_account(monkeypatch, taken=taken)
    assert outcome.rows[-1].clients.dropped == {}
    assert found(outcome) == {0.0}
    assert outcome.protocol.ledger.verdict().toward("server").guarantee.endswith(" for each label")


def test_it_may_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = with_account(monkeypatch, taken="their number")
    assert 0.0 not in found(outcome)
    assert outcome.protocol.ledger.verdict().toward("server").guarantee.endswith(" for each label")


def test_a_function_that_asks_for_the_examples_takes_the_guarantee_of_the_account_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = with_account(monkeypatch, asks=True)
    assert outcome.rows[-1].clients.dropped == {}
    assert 0.0 not in found(outcome)
    stated = outcome.protocol.ledger.report()
    assert stated.verdict.status == "no_protection"
    assert not any(line.stated for line in stated.verdict.lines)
    assert stated.views["server"].reason.startswith("sees what toy.peeks takes from examples, ")
