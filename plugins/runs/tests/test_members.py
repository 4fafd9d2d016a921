"""What a class does not say, or says wrongly, is found before anything trusts its silence; all other names are free."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
from fedplug import Client, Facts, Known, Operations, Wants
from fedplug_runs.members import of_part, undecided
from role_toys import made, method, protecting

# -- what would promise more by its absence ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        ((fedplug.Negotiation,), {"plans", "negotiate_mask(cohort, facts)", "reveals(facts)"}),
        ((fedplug.PublicPlan,), {"plans", "plan(facts)"}),
        ((fedplug.Groups,), {"form_groups(cohort, facts)", "reveals(facts)"}),
        (
            (fedplug.Sealer,),
            {"protect(known, facts)", "reveals(facts)", "seal(words, client, facts)", "open(total, party, facts)",
             "add(uploads, server, facts)"},
        ),
        ((fedplug.Ballots,), {"ballots(facts)"}),
        ((fedplug.Scorer, fedplug.Ballots), {"score_parameters(client, facts)", "ballots(facts)"}),
        ((fedplug.Protector,), {"protect(known, facts)"}),
        ((fedplug.Trainer,), {"train(client, facts)"}),
    ],
    ids=lambda given: getattr(given, "__name__", None) or "-".join(getattr(one, "__name__", "") for one in given),
)  # fmt: skip
def test_what_promises_more_by_its_absence_cannot_be_left_out(roles: tuple[type, ...], wanted: set[str]) -> None:
    found = type("Odd", roles, {"__module__": "acme.odd"})
    assert {what for _, what in undecided(found)} == wanted
    with pytest.raises(TypeError, match="abstract"):
        found(None)


def test_a_misspelt_statement_is_a_missing_one(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    odd = made(fedplug.Protector, protects=method("known", "facts"))
    expected = "recipe.protect.encrypted.0: component odd has no protect(known, facts), which a Protector must have"
    assert protecting(fake_classes, plain_recipe, odd) == [expected]


# -- what a component declares -----------------------------------------------------------------------------------------


class Passes(fedplug.Protector):
    """Do nothing."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return ()


class ReadsBadly(Passes):
    """Read scores by a name alone."""

    @property
    def reads(self) -> Any:
        return "std.size"


class ReadsNothing(Passes):
    """Fail to say what it reads."""

    @property
    def reads(self) -> Any:
        raise KeyError("by")


class Elsewhere(fedplug.Opener):
    """Open nowhere."""

    site = "sever"  # type: ignore[assignment]

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return ()


class Sums(fedplug.Aggregator):
    """Add up."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (fedplug.WeightedSum(),)


class Scores(fedplug.Scorer):
    """Score."""

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        raise AssertionError("it is only built here")


def test_what_a_component_declares_is_looked_at_once_it_is_built(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    assert list(of_part(Passes(None))) == []
    (problem,) = protecting(fake_classes, plain_recipe, ReadsBadly)
    assert problem == (
        "recipe.protect.encrypted.0: component odd has 'std.size' for its reads; it must be a Reads(...)"
    )
    (problem,) = protecting(fake_classes, plain_recipe, ReadsNothing)
    assert "component odd fails to say its reads: KeyError: 'by' (test_members.py:" in problem
    (problem,) = of_part(Elsewhere(None))
    assert problem == "has the site 'sever'; it must be client, server or key_server"


@pytest.mark.parametrize(
    ("kind", "declared", "said"),
    [
        (Sums, {"wants": {"num_examples": True}}, "for its wants; it must be a Wants(...)"),
        (Scores, {"scoring": "layer"}, "has 'layer' for its scoring; it must be a Scoring(...)"),
        (Scores, {"scoring": Wants()}, "for its scoring; it must be a Scoring(...)"),
    ],
    ids=str,
)
def test_a_declaration_of_another_kind_is_refused(kind: type, declared: dict[str, Any], said: str) -> None:
    (problem,) = of_part(type("Odd", (kind,), declared)(None))
    assert said in problem
