"""A class that misspells a member of its role, or says of another's method what its own does, is told what is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fedplug
import pytest
from fedplug import Facts, Known, Operations, Wants
from fedplug.api.roles import ROLES, Component
from fedplug_kit import check_component
from fedplug_kit.spelling import _members, member_problems
from role_toys import made, method


def said_of(role: type, **members: Any) -> list[str]:
    return list(member_problems(made(role, **members)))


@pytest.mark.parametrize(
    ("role", "name", "meant"),
    [
        (fedplug.Negotiation, "side_channel", "reveals"),
        (fedplug.Protector, "side_channels", "reveals"),
        (fedplug.Protector, "reveal", "reveals"),
        (fedplug.Ballots, "releases", "ballots"),
        (fedplug.Ballots, "release", "ballots"),
        (fedplug.Negotiation, "own_zones", "plans"),
        (fedplug.Negotiation, "zones", "plans"),
        (fedplug.Negotiation, "needs_cohort_secret", "cohort_secret"),
        (fedplug.Trainer, "descends", "learns"),
        (fedplug.Trainer, "personalize", "personalise"),
        (fedplug.Trainer, "read_examples", "reads_examples"),
        (fedplug.Protector, "protects", "protect"),
        (fedplug.Negotiation, "negotiate_masks", "negotiate_mask"),
        (fedplug.Scorer, "score_parameter", "score_parameters"),
        (fedplug.Opener, "post_process", "postprocess"),
        (fedplug.Aggregator, "agregate", "aggregate"),
        (fedplug.Sealer, "seals", "seal"),
        (fedplug.Attack, "find", "finds"),
        (fedplug.Metric, "measure", "measures"),
        (fedplug.Component, "chekc", "check"),
        (fedplug.Component, "set_up", "setup"),
    ],
)
def test_a_name_close_to_a_member_is_refused_with_that_member(role: type, name: str, meant: str) -> None:
    kind = "component" if role is Component else role.__name__
    for members in ({name: method("facts")}, {"__annotations__": {name: "bool"}}):  # said, and never set
        (said,) = said_of(role, **members)
        assert said.startswith(f"{name} is not a member of a ")
        assert f"{kind}" in said
        assert said.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize("name", ["zone", "plan", "read", "ballot"])
def test_everyday_names_are_free_for_helpers(name: str) -> None:
    for role in (fedplug.Negotiation, fedplug.Protector, fedplug.Sealer, fedplug.Groups, fedplug.Trainer):
        assert said_of(role, **{name: method("of", "anything")}) == []


@pytest.mark.parametrize(
    ("role", "name", "given", "meant"),
    [
        (fedplug.Protector, "setup", ("cohort",), "setup(self, cohort, key_server, facts)"),
        (fedplug.Protector, "protect", ("facts", "known"), "protect(self, known, facts)"),
        (fedplug.Protector, "protect", ("known", "facts", "more"), "protect(self, known, facts)"),
        (fedplug.Sealer, "seal", ("words", "client"), "seal(self, words, client, facts)"),
        (fedplug.Negotiation, "reveals", (), "reveals(self, facts)"),
        (fedplug.PublicPlan, "plan", ("round",), "plan(self, facts)"),
        (fedplug.Ballots, "ballots", ("round", "facts"), "ballots(self, facts)"),
        (fedplug.Partition, "assign", ("labels", "num_clients"), "assign(self, labels, num_clients, rng)"),
    ],
)
def test_other_arguments_are_refused_with_the_right_ones(
    role: type, name: str, given: tuple[str, ...], meant: str
) -> None:
    said = f"{name}({', '.join(('self', *given))}) has other arguments; did you mean {meant}?"
    assert said_of(role, **{name: method(*given)}) == [said]


def test_further_arguments_with_defaults_do_no_harm() -> None:
    assert said_of(fedplug.Protector, protect=method("known", "facts", "more=1")) == []


@pytest.mark.parametrize(
    ("role", "members", "said"),
    [
        (fedplug.Negotiation, {"plans": frozenset({"clear"})}, "plans must be a Plans, not frozenset"),
        (fedplug.Negotiation, {"reads": "std.size"}, "reads must be a Reads, not str"),
        (fedplug.Scorer, {"scoring": Wants()}, "scoring must be a Scoring, not Wants"),
        (fedplug.Protector, {"protect": ()}, "protect must be a method; did you mean def protect(self, known, facts)?"),
    ],
    ids=str,
)
def test_a_declaration_of_another_kind_is_refused(role: type, members: dict[str, Any], said: str) -> None:
    assert said_of(role, **members) == [said]


class Says:
    """A plain base class with its own operations."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return ()


class Passes(fedplug.Protector):
    """Do nothing."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return ()


def test_names_of_a_plain_base_class_are_looked_at_with_the_component() -> None:
    plain = type("Plain", (), {"protects": method("known", "facts")})
    said = ["protects of Plain is not a member of a Protector; did you mean protect?"]
    for bases in ((plain, fedplug.Protector), (fedplug.Protector, plain), (type("Between", (plain,), {}), Passes)):
        assert list(member_problems(type("Odd", bases, {}))) == said


def test_a_statement_of_a_plain_base_class_has_the_roles_arguments_and_comes_before_it() -> None:
    assert list(member_problems(type("Right", (Says, Passes), {}))) == []
    hidden = "protect of Says is hidden by that of Protector; write Says before it in class Odd"
    assert list(member_problems(type("Odd", (fedplug.Protector, Says), {}))) == [hidden]
    plain = type("Plain", (), {"protect": method("facts")})
    (said,) = member_problems(type("Odd", (plain, fedplug.Protector), {}))
    assert said.startswith("protect of Plain(self, facts) has other arguments; did you mean protect")


@pytest.mark.parametrize(
    ("role", "name", "of"),
    [
        (fedplug.Protector, "ballots", "Ballots"),
        (fedplug.Negotiation, "ballots", "Ballots"),
        (fedplug.Aggregator, "public_scores", "Scorer"),
        (fedplug.Opener, "client_weight", "Aggregator"),
        (fedplug.Trainer, "round_release", "AccountKeeper"),
        (fedplug.Extension, "learns", "Trainer"),
        (fedplug.Protector, "reads_examples", "Trainer"),
        (fedplug.Protector, "open_upload", "Sealer"),
    ],
)
def test_a_promise_of_another_role_is_refused_because_nobody_asks_for_it(role: type, name: str, of: str) -> None:
    rest = f"which Odd does not inherit from: nobody asks for it; write class Odd(fedplug.{of}), or another name"
    assert said_of(role, **{name: method("facts")}) == [f"{name} is a member of a {of}, {rest}"]
    assert said_of(fedplug.Component, **{name: method("facts")}) == []  # a base for any role
    both = type("Both", (fedplug.Ballots, fedplug.Protector), {"ballots": method("facts")})
    assert list(member_problems(both)) == []


class Bounded(fedplug.Scorer):
    """Score by bounds that everybody knows."""

    scoring = fedplug.Scoring(public=True)

    def score_parameters(self, client: Any, facts: Facts) -> Any:
        return None

    def public_scores(self, model: Any, vector: Any, facts: Facts) -> Any:
        return {}


def test_a_method_that_a_statement_of_a_base_class_describes_takes_the_statement_along() -> None:
    own = {"score_parameters": Bounded.score_parameters}
    (said,) = said_of(Bounded, **own)
    assert said.startswith("overrides score_parameters of Bounded and inherits its public_scores, which says what that")
    assert said_of(Bounded, **own, public_scores=Bounded.public_scores) == []


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.__name__)
def test_every_role_can_be_subclassed_with_its_own_members(role: type) -> None:
    same = {name: value for name, value in _members(role).items() if callable(value) and name != "Options"}
    assert said_of(role, **same) == []


def test_all_of_them_are_found_with_the_other_problems_of_a_class() -> None:
    class Odd(fedplug.Negotiation):
        """Odd."""

        def side_channel(self, facts: Facts) -> Sequence[Any]:
            return []

    with pytest.raises(AssertionError) as caught:
        check_component(Odd)
    assert "side_channel is not a member of a Negotiation; did you mean reveals?" in str(caught.value)
    assert "has no reveals(facts), which a Negotiation must have" in str(caught.value)
