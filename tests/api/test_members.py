"""A class that misspells a member of its role is refused before anything trusts its silence."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import fedplug
import pytest
from fedplug import Facts, Known, Operations, Wants, hookimpl
from fedplug.api.errors import PluginError, RecipeError
from fedplug.api.roles import record_problems
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from role_toys import made, method, protecting


@pytest.mark.parametrize(
    ("role", "name", "meant"),
    [
        (fedplug.Negotiation, "side_channel", "reveals"),
        (fedplug.Protector, "side_channels", "reveals"),
        (fedplug.Protector, "reveal", "reveals"),
        (fedplug.Negotiation, "releases", "ballots"),
        (fedplug.Groups, "release", "ballots"),
        (fedplug.Negotiation, "own_zones", "plans"),
        (fedplug.Negotiation, "zones", "plans"),
        (fedplug.Negotiation, "needs_cohort_secret", "cohort_secret"),
        (fedplug.Trainer, "descends", "learns"),
        (fedplug.Trainer, "personalize", "personalise"),
        (fedplug.Protector, "protects", "protect"),
        (fedplug.Negotiation, "negotiate_masks", "negotiate_mask"),
        (fedplug.Scorer, "score_parameter", "score_parameters"),
        (fedplug.Opener, "post_process", "postprocess"),
        (fedplug.Aggregator, "agregate", "aggregate"),
        (fedplug.Sealer, "seals", "seal"),
        (fedplug.Sealer, "opens", "open"),
        (fedplug.Attack, "find", "finds"),
        (fedplug.Metric, "measure", "measures"),
    ],
)
def test_a_name_close_to_a_member_is_refused_with_that_member(role: type, name: str, meant: str) -> None:
    said = rf"^acme\.odd\.Odd: {name} is not a member of a .*{role.__name__}.*; did you mean {meant}\?"
    with pytest.raises(TypeError, match=said):
        made(role, **{name: method("facts")})
    with pytest.raises(TypeError, match=rf"did you mean {meant}\?"):
        made(role, __annotations__={name: "bool"})  # said, and never set


def test_a_hook_is_misspelt_with_its_marker_too() -> None:
    with pytest.raises(TypeError, match=r"agregate is not a member of a .*Aggregator; did you mean aggregate\?"):
        made(fedplug.Aggregator, agregate=hookimpl(method("known", "facts")))


@pytest.mark.parametrize(
    ("role", "name", "given", "meant"),
    [
        (fedplug.Protector, "setup", ("cohort",), "setup(self, cohort, key_server, facts)"),
        (fedplug.Protector, "protect", ("facts", "known"), "protect(self, known, facts)"),
        (fedplug.Protector, "protect", ("known", "facts", "more"), "protect(self, known, facts)"),
        (fedplug.Protector, "protect", ("block", "client", "facts"), "protect(self, known, facts)"),
        (fedplug.Sealer, "seal", ("block", "facts"), "seal(self, block, client, facts)"),
        (fedplug.Negotiation, "reveals", (), "reveals(self, facts)"),
        (fedplug.Partition, "assign", ("labels", "num_clients"), "assign(self, labels, num_clients, rng)"),
        (fedplug.Sealer, "add_blocks", ("blocks",), "add_blocks(self, blocks, facts)"),
    ],
)
def test_other_arguments_are_refused_with_the_right_ones(
    role: type, name: str, given: tuple[str, ...], meant: str
) -> None:
    with pytest.raises(TypeError) as caught:
        made(role, **{name: method(*given)})
    said = f"{name}({', '.join(('self', *given))}) has other arguments; did you mean {meant}?"
    assert str(caught.value) == f"acme.odd.Odd: {said}"


def test_further_arguments_with_defaults_do_no_harm() -> None:
    made(fedplug.Protector, protect=method("known", "facts", "more=1"))


@pytest.mark.parametrize(
    ("role", "members", "said"),
    [
        (fedplug.Negotiation, {"plans": frozenset({"clear"})}, "plans must be a Plans, not frozenset"),
        (fedplug.Negotiation, {"reads": "std.size"}, "reads must be a Reads, not str"),
        (fedplug.Aggregator, {"wants": {"num_examples": True}}, "wants must be a Wants, not dict"),
        (fedplug.Scorer, {"scoring": "layer"}, "scoring must be a Scoring, not str"),
        (fedplug.Scorer, {"scoring": Wants()}, "scoring must be a Scoring, not Wants"),
        (fedplug.Attack, {"finds": {"images"}}, "finds must be a Finds, not set"),
        (fedplug.Protector, {"protect": ()}, "protect must be a method; did you mean def protect(self, known, facts)?"),
    ],
    ids=str,
)
def test_a_declaration_of_another_kind_is_refused(role: type, members: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        made(role, **members)
    assert str(caught.value) == f"acme.odd.Odd: {said}"


class Says:
    """A plain base class with its own operations."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return ()


@pytest.mark.parametrize(
    ("members", "meant"),
    [({"side_channels": method("facts")}, "reveals"), ({"protects": method("known", "facts")}, "protect")],
    ids=["side_channels", "protects"],
)
def test_names_of_a_plain_base_class_are_looked_at_with_the_component(members: dict[str, Any], meant: str) -> None:
    plain = type("Plain", (), members)
    said = rf"^acme\.odd\.Odd: {next(iter(members))} of Plain is not a member of a Protector; did you mean {meant}\?$"
    for bases in ((plain, fedplug.Protector), (fedplug.Protector, plain), (type("Between", (plain,), {}), Passes)):
        with pytest.raises(TypeError, match=said):
            type("Odd", bases, {"__module__": "acme.odd", "__qualname__": "Odd"})


def test_a_statement_of_a_plain_base_class_has_the_roles_arguments_and_comes_before_it() -> None:
    class Right(Says, Passes):
        """Both say the same."""

    assert Right(None).protect(None, None) == ()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Odd: protect of Says is hidden by that of Protector; write Says before"):
        type("Odd", (fedplug.Protector, Says), {"__module__": "acme.odd", "__qualname__": "Odd"})
    plain = type("Plain", (), {"protect": method("facts")})
    with pytest.raises(TypeError, match=r"protect of Plain\(self, facts\) has other arguments; did you mean protect"):
        type("Odd", (plain, fedplug.Protector), {"__module__": "acme.odd", "__qualname__": "Odd"})


@pytest.mark.parametrize(
    ("role", "name", "of"),
    [
        (fedplug.Protector, "ballots", "Negotiation and a Groups"),
        (fedplug.Aggregator, "public_scores", "Scorer"),
        (fedplug.Opener, "client_weight", "Aggregator"),
        (fedplug.Trainer, "round_release", "AccountKeeper"),
        (fedplug.Extension, "learns", "Trainer"),
        (fedplug.Protector, "add_blocks", "Sealer"),
    ],
)
def test_a_promise_of_another_role_is_refused_because_nobody_asks_for_it(role: type, name: str, of: str) -> None:
    said = rf"^acme\.odd\.Odd: {name} is a member of a {of}, which Odd does not inherit from: nobody asks for it; "
    with pytest.raises(TypeError, match=rf"{said}write class Odd\(fedplug\.{of.split()[0]}\), or another name$"):
        made(role, **{name: method("facts")})
    made(fedplug.Component, **{name: method("facts")})  # a base for any role
    with pytest.raises(TypeError, match=rf"{name} of Odd is a member of a {of}"):
        type("Odder", (made(fedplug.Component, **{name: method("facts")}), role), {"__module__": "acme.odd"})


def test_a_misspelt_class_is_named_with_its_plugin_and_its_place(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        import fedplug

        class Odd(fedplug.Protector):
            def side_channel(self, facts):
                return []
    """
    (tmp_path / "acme_misspelt.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry("acme.odd", "protect", "acme_misspelt:Odd", "fedplug-acme", "1.2")
    fake_catalog.groups["protect"]["acme.odd"] = entry
    expected = (
        "plugin fedplug-acme 1.2: protect component acme.odd (acme_misspelt:Odd) cannot be imported: TypeError: "
        "acme_misspelt.Odd: side_channel is not a member of a Protector; did you mean reveals?"
    )
    with pytest.raises(PluginError) as caught:
        entry.load()
    assert str(caught.value) == expected
    changed = plain_recipe | {"protect": {"encrypted": ["acme.odd"], "noised": []}, "postprocess": {}}
    with pytest.raises(RecipeError) as refused:
        Recipe.from_plain(changed, fake_catalog)
    assert refused.value.problems == [f"recipe.protect.encrypted.0: {expected}"]


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


def test_what_a_property_declares_is_looked_at_once_it_is_built(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    assert list(record_problems(Passes(None))) == []
    (problem,) = protecting(fake_classes, plain_recipe, ReadsBadly)
    assert problem == (
        "recipe.protect.encrypted.0: component odd has 'std.size' for its reads; it must be a Reads(...)"
    )
    (problem,) = protecting(fake_classes, plain_recipe, ReadsNothing)
    assert "component odd fails to say its reads: KeyError: 'by' (test_members.py:" in problem
    (problem,) = record_problems(Elsewhere(None))
    assert problem == "has the site 'sever'; it must be client, server or key_server"
