"""Every negotiation with every protector chain and every aggregator: it runs, or it is refused with a reason first.

All components of the installed plugins are in here. A test fails, and says so, if one is missing below.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import phe
import pytest
from fedplug.api.blocks import BASE_ZONES, CLEAR, ENCRYPTED, NOISED, RETAINED
from fedplug.api.errors import RecipeError
from fedplug.api.roles import Closer
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_sensecrypt._phe import Phe
from toy_components import toy_catalog
from toy_protocol import initial_vector, run_protocol

EPSILON = {"epsilon": 8, "delta": 1e-5}
CLIP, CLIP_L1 = {"use": "std.clip", "norm": 0.1}, {"use": "std.clip_l1", "norm": 0.1}
FISHER, SENSITIVITY = {"use": "selectiveshield.fisher"}, {"use": "sensecrypt.sensitivity"}
PSI = {"use": "fedre.psi", "samples": 1, "preference": {"box": [1, 1, 3, 3]}}
MAGNITUDE = {"use": "paraaegis.magnitude"}
SGD = {"use": "std.sgd"}

# For each negotiation: its options, and the scorers it needs.
NEGOTIATIONS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "std.single_zone": ({"zone": NOISED}, []),
    "std.single_zone@encrypted": ({"zone": ENCRYPTED}, []),
    "std.by_name": ({"zones": {ENCRYPTED: ["*.weight"]}, "other_zone": NOISED}, []),
    "std.by_name@retained": ({"zones": {RETAINED: ["*.bias"]}, "other_zone": NOISED}, []),
    "altfl.alternating": ({"cycle": [NOISED, ENCRYPTED]}, []),
    "borda.layers": ({}, [MAGNITUDE]),
    "paraaegis.vote": ({"ratio": 0.3}, [MAGNITUDE]),
    "selectiveshield.consensus": ({"tau": 0.05, "rho": 0.3}, [FISHER]),
    "sensecrypt.select": ({"budget": 0.5}, [SENSITIVITY]),
    "fas.share": ({"ratio": 0.3}, []),
    "fedre.sensitive_layers": ({"ratio": 0.5}, [PSI]),
    "baselines.random_mask": ({"ratio": 0.3}, []),
    "baselines.maskcrypt": ({"ratio": 0.3}, [{"use": "baselines.maskcrypt_priority"}]),
    "baselines.fedml_he": ({"ratio": 0.3}, [{"use": "baselines.fedml_he_sensitivity"}]),
    "baselines.batchcrypt": ({}, []),
    "baselines.adaptive_clip": ({"noise_multiplier": 1.0}, []),
    "baselines.feddpa": ({}, []),
    "baselines.ldp_fed_cycle": ({}, []),
    "deployed.exclude_vars": ({"exclude_vars": "bias", "other_zone": NOISED}, []),
    "deployed.encrypt_layers": ({"encrypt_layers": "weight", "other_zone": NOISED}, []),
    "deployed.adaptive_clipping": ({"noise_multiplier": 0.2}, []),
}
SCORED = {"fedre.layer_budgets": [PSI]}

# Chains of the zones that are not encrypted, and of those that are.
PLAIN: dict[str, list[Any]] = {
    "nothing": [],
    "std.gaussian": [CLIP, {"use": "std.gaussian", **EPSILON}],
    "std.laplace": [CLIP_L1, {"use": "std.laplace", "epsilon": 8}],
    "fas.scramble": [CLIP_L1, {"use": "std.laplace", "epsilon": 8}, {"use": "fas.scramble"}],
    "fedre.layer_budgets": [{"use": "fedre.layer_budgets", "by": "fedre.psi", "norm": 0.1, **EPSILON}],
    "paraaegis.literal_noise": [CLIP, {"use": "paraaegis.literal_noise", **EPSILON}],
    "selectiveshield.noise": [CLIP, {"use": "selectiveshield.noise", **EPSILON}],
    "selectiveshield.hide_support": [{"use": "selectiveshield.hide_support"}, CLIP, {"use": "std.gaussian", **EPSILON}],
    "baselines.lus": [{"use": "baselines.lus"}, CLIP, {"use": "std.gaussian", **EPSILON}],
    "baselines.ldp_fed": [{"use": "baselines.ldp_fed", "bound": 0.01, "alpha": 1.0}],
    "baselines.nbafl": [{"use": "baselines.nbafl", "norm": 10, "epsilon": 8, "min_examples": 20}],
    "baselines.feddpa_noise": [CLIP, {"use": "baselines.feddpa_noise", "examples": 60}],
    "baselines.maskcrypt_priority": [{"use": "baselines.maskcrypt_priority"}],
    "deployed.percentile_privacy": [{"use": "deployed.percentile_privacy"}],
    "deployed.svt_privacy": [{"use": "deployed.svt_privacy"}],
    "deployed.local_dp_mod": [{"use": "deployed.local_dp_mod", "clipping_norm": 1, "sensitivity": 1, **EPSILON}],
    "deployed.appfl_output_perturbation": [CLIP_L1, {"use": "deployed.appfl_output_perturbation"}],
    "deployed.fedml_local_dp": [CLIP, {"use": "deployed.fedml_local_dp", "epsilon": 1, "delta": 1e-5}],
    "deployed.fedml_global_dp": [CLIP, {"use": "deployed.fedml_global_dp", "epsilon": 1, "delta": 1e-5}],
    "deployed.fedbiomed_central_dp": [CLIP, {"use": "deployed.fedbiomed_central_dp", "sigma": 1, "clip": 0.1}],
    "deployed.fixed_clipping": [{"use": "deployed.fixed_clipping", "clipping_norm": 1, "noise_multiplier": 1}],
}
SEALED: dict[str, list[Any]] = {
    "std.bfv": [{"use": "std.bfv"}],
    "std.ckks": [{"use": "std.ckks"}],
    "std.paillier": [{"use": "std.paillier", "key_bits": 2048}],
    "baselines.ckks": [{"use": "baselines.ckks"}],
    "baselines.batchcrypt": [{"use": "baselines.batchcrypt"}],
    "baselines.lwe": [CLIP, {"use": "baselines.lwe", **EPSILON}],
    "clover.sparse_shares": [{"use": "clover.sparse_shares", "norm": 0.1, **EPSILON}],
    "secagg.bonawitz": [
        CLIP, {"use": "std.rotate"}, {"use": "std.distributed_skellam", **EPSILON}, {"use": "secagg.bonawitz"}
    ],
    "secagg.plus": [CLIP, {"use": "std.distributed_gaussian", **EPSILON}, {"use": "secagg.plus"}],
    "sensecrypt.paillier": [{"use": "sensecrypt.paillier"}],
    "threshold.bfv": [CLIP, {"use": "std.distributed_discrete_gaussian", **EPSILON}, {"use": "threshold.bfv"}],
}
AGGREGATORS: dict[str, dict[str, Any]] = {
    "std.mean": {"weighting": "uniform"},
    "selectiveshield.two_server": {},
    "fedre.pda_pam": {"samples": 1, "preference": {"box": [1, 1, 3, 3]}},
}
SLOW = ("std.paillier", "sensecrypt.paillier")
"""Encryptions that take seconds per thousand parameters. They are tried with only one aggregator and a small model."""


PARTIAL = (
    "altfl.alternating", "baselines.fedml_he", "baselines.maskcrypt", "baselines.random_mask", "borda.layers",
    "deployed.encrypt_layers", "fas.share", "fedre.sensitive_layers", "paraaegis.vote", "selectiveshield.consensus",
    "std.by_name",
)  # fmt: skip
"""Negotiations that encrypt a part of the model, the same at all clients; or all of it in some rounds."""

CLIPPING = ("baselines.adaptive_clip", "deployed.adaptive_clipping")
"""Negotiations that clip the update before any other link, and add noise to the sum."""

SHARED = ("baselines.lwe", "secagg.bonawitz", "secagg.plus", "threshold.bfv")
"""Encryptions without a key holder."""

REFUSED: list[tuple[str, dict[str, tuple[str, ...]]]] = [
    ("it follows what it scores, and scores nothing here", {
        "plain": ("baselines.maskcrypt_priority",),
        "negotiation": (*(n for n in PARTIAL if n != "baselines.maskcrypt"), "baselines.feddpa", "sensecrypt.select",
                        "baselines.adaptive_clip", "baselines.ldp_fed_cycle", "std.single_zone",
                        "std.by_name@retained", "deployed.exclude_vars", "deployed.adaptive_clipping"),
    }),
    ("what is encrypted exposes nothing; leave it out of this chain", {
        "negotiation": ("baselines.maskcrypt",), "plain": ("fas.scramble",),
    }),
    ("clip: daciq is agreed in the negotiation", {
        "sealed": ("baselines.batchcrypt",), "negotiation": (*PARTIAL, "std.single_zone@encrypted"),
    }),
    ("it protects nothing; write protect: {encrypted: [baselines.batchcrypt]}", {
        "negotiation": ("baselines.batchcrypt",),
        "sealed": tuple(name for name in SEALED if name not in ("baselines.batchcrypt", *SHARED)),
    }),
    ("it protects nothing; write protect: {encrypted: [baselines.batchcrypt]}", {
        "negotiation": ("baselines.batchcrypt",), "sealed": SHARED,
        "aggregator": ("std.mean", "fedre.pda_pam"),
    }),
    ("nobody holds the key of zone encrypted, but this aggregation needs a second server that opens sums", {
        "sealed": SHARED, "aggregator": ("selectiveshield.two_server",),
        "negotiation": (*PARTIAL, "baselines.batchcrypt", "sensecrypt.select", "std.single_zone@encrypted"),
    }),
    ("nobody holds its key; write {use: std.bfv}", {
        "negotiation": ("baselines.fedml_he",), "sealed": SHARED,
        "aggregator": ("std.mean", "fedre.pda_pam"),
    }),
    ("clover.sparse_shares cannot encrypt the maps", {
        "negotiation": ("baselines.fedml_he",), "sealed": ("clover.sparse_shares",),
    }),
    ("it packs every tensor separately", {"sealed": ("baselines.ckks",), "negotiation": PARTIAL}),
    ("needs a zone that lies alike at all clients, but sensecrypt.select lets each have", {
        "negotiation": ("sensecrypt.select",),
        "sealed": ("baselines.ckks", "baselines.batchcrypt", "clover.sparse_shares", *SHARED),
    }),
    ("fedre.layer_budgets clips each layer itself", {
        "negotiation": CLIPPING, "plain": ("fedre.layer_budgets",),
    }),
    ("it clips the weights itself; remove the clip of the update", {
        "negotiation": CLIPPING, "plain": ("baselines.nbafl",),
    }),
    ("cannot work on the noised sum, which fas.scramble has closed", {
        "negotiation": CLIPPING, "plain": ("fas.scramble",),
    }),
    ("clipping_norm=0.5 of R2 must be the norm=0.1", {
        "negotiation": ("baselines.feddpa",),
        "plain": ("std.gaussian", "paraaegis.literal_noise", "selectiveshield.noise", "selectiveshield.hide_support",
                  "baselines.lus", "baselines.feddpa_noise"),
    }),
]  # fmt: skip
"""Every combination that is refused: a part of the reason, and its negotiation, chains and aggregator. A part that is
not named matches any. All other combinations must run."""


# -- what there is -----------------------------------------------------------------------------------------------------


def test_every_component_is_in_the_matrix() -> None:
    catalog = Catalog.discover()
    protectors = {use["use"] for chain in [*PLAIN.values(), *SEALED.values()] for use in chain}
    protectors |= {"baselines.feddpa", *CLIPPING}  # which go where their own negotiation is
    protectors |= {"std.distributed_correlated_gaussian"}  # refused where plans follow from data: test_correlated.py
    protectors |= {"analytics.clip"}  # of sums of records, where nothing is trained: plugins/analytics/tests
    found = {name.partition("@")[0] for name in NEGOTIATIONS}
    assert found == set(catalog.groups["negotiate_mask"])
    # Those that compare single updates refuse every encryption: `plugins/robust/tests` has them.
    assert set(AGGREGATORS) == {name for name in catalog.groups["aggregate"] if not name.startswith("robust.")}
    assert protectors == set(catalog.groups["protect"])


# -- putting recipes together ------------------------------------------------------------------------------------------


def recipe_of(negotiation: str, plain: str, sealed: str, aggregator: str) -> dict[str, Any]:
    """One round on 60 digits among three clients."""
    options, scorers = NEGOTIATIONS[negotiation]
    held = zones_of(negotiation)
    own = negotiation in ("altfl.alternating", "baselines.feddpa")  # they train and negotiate, by one component
    noisy = next((zone for zone in (NOISED, CLEAR) if zone in held), None)
    chains = {zone: SEALED[sealed] if zone == ENCRYPTED else [] for zone in held if zone != RETAINED}
    if noisy:
        chains[noisy] = PLAIN[plain]
    if negotiation == "baselines.maskcrypt" and noisy:  # it depends on what the server has seen
        chains[noisy] = [*(use for use in PLAIN[plain] if use not in scorers), *(use["use"] for use in scorers)]
    if negotiation == "baselines.batchcrypt":  # one component, agreed on in the negotiation
        chains[ENCRYPTED] = ["baselines.batchcrypt"] if sealed == "baselines.batchcrypt" else SEALED[sealed]
    if negotiation in CLIPPING:  # one component, which negotiates, clips and adds the noise
        chains[NOISED] = [negotiation, *PLAIN[plain]]
    if negotiation == "baselines.fedml_he":
        options = options | {"cipher": SEALED[sealed][-1]["use"]}
    wanted = [*scorers, *SCORED.get(plain if noisy else "", [])]
    named = {zone: [use if isinstance(use, str) else use["use"] for use in chain] for zone, chain in chains.items()}
    undone = {zone: [name for name in chain if must_undo(name)][::-1] for zone, chain in named.items()}
    if negotiation in CLIPPING:
        undone[NOISED].insert(0, negotiation)
    if negotiation == "std.by_name@retained":  # it restores the values that clients keep
        undone[RETAINED] = ["std.by_name"]
    return {
        "name": "matrix", "seed": 7, "rounds": 1, "min_clients": 3,
        "data": {
            "use": "toy.tiny_digits" if sealed in SLOW else "std.digits", "train_size": 68, "test_size": 12,
            "clients": 3, "public": 8, "partition": {"use": "std.iid"},
        },
        "model": {"use": "std.mlp", "hidden": []},
        "train": {"epochs": 2, "batch_size": 16, "lr": 0.05, **({"use": negotiation, **options} if own else SGD)},
        "score_parameters": list({use["use"]: use for use in wanted}.values()),
        "negotiate_mask": negotiation if own else {"use": negotiation.partition("@")[0], **options},
        "protect": chains,
        "aggregate": {"use": aggregator, **AGGREGATORS[aggregator]},
        "postprocess": {zone: chain for zone, chain in undone.items() if chain},
    }  # fmt: skip


@functools.cache
def zones_of(negotiation: str) -> tuple[str, ...]:
    """The zones that its plans can hold, in label order."""
    from fedplug.recipe.composition import instantiate
    from fedplug.recipe.parts import Use

    name = negotiation.partition("@")[0]
    options, _ = NEGOTIATIONS[negotiation]
    found = Catalog.discover().groups["negotiate_mask"][name].load()
    held = instantiate(Use(name, name, "negotiate_mask", found.Options(**options), made_of=found)).plans.zones
    return tuple(zone for zone in BASE_ZONES if zone in held)


@functools.cache
def must_undo(name: str) -> bool:
    """Whether postprocess must name the component."""
    both = name in ("std.rotate", "deployed.fixed_clipping", "deployed.fedml_global_dp")
    return issubclass(Catalog.discover().groups["protect"][name].load(), Closer) or both


def combinations() -> Iterator[tuple[str, str, str, str]]:
    """Every negotiation and aggregator with every chain of the plain zone, and with every encryption."""
    for negotiation, aggregator in itertools.product(NEGOTIATIONS, AGGREGATORS):
        held = zones_of(negotiation)
        chains = PLAIN if {NOISED, CLEAR} & set(held) else ["nothing"]
        for plain in chains:
            yield negotiation, plain, "std.bfv", aggregator
        for sealed in SEALED if ENCRYPTED in held else ():
            if sealed != "std.bfv" and (aggregator == "std.mean" or sealed not in SLOW):
                yield negotiation, "std.gaussian" if chains is PLAIN else "nothing", sealed, aggregator


@pytest.fixture
def small_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short 256-bit keys for SenseCrypt's Paillier: the result does not depend on their length, but the time does."""
    monkeypatch.setattr(Phe, "new_context", lambda self, bits: phe.generate_paillier_keypair(n_length=256)[1])


# -- the matrix --------------------------------------------------------------------------------------------------------


KINDS = ("std.single_zone", "std.single_zone@encrypted", "std.by_name@retained", "paraaegis.vote", "sensecrypt.select")
"""One of each kind of negotiation: public plans, with values that clients keep, agreed on, and of a client's own."""

OFTEN = ("std.single_zone", "paraaegis.vote")
"""Negotiations that run with each chain of the plain zone: of public plans, and agreed on."""

ENOUGH = ("std.bfv", "baselines.batchcrypt", "secagg.bonawitz")
"""Encryptions that each negotiation runs with: with a key, agreed on, and without a key holder."""


def with_marks() -> Iterator[Any]:
    """With the mean, all that is refused, each negotiation with each kind of encryption, each kind of negotiation with
    each encryption, and two kinds with each chain of the plain zone. With the other aggregators what these refuse
    themselves, each kind of negotiation, and each encryption once or twice. All that there is runs in `make test-all`.
    """
    for names in combinations():
        negotiation, plain, sealed, aggregator = names
        mean, usual = aggregator == "std.mean", plain in ("nothing", "std.gaussian")
        if why_refused(*names):
            often = mean or (aggregator == "selectiveshield.two_server" and sealed in SHARED)
        else:
            often = (
                (mean and (negotiation in OFTEN or (usual and (negotiation in KINDS or sealed in ENOUGH))))
                or (usual and negotiation in KINDS and sealed == "std.bfv")
                or (negotiation in ("std.single_zone@encrypted", "paraaegis.vote") and usual)
                or negotiation == sealed == "baselines.batchcrypt"
            )
        yield pytest.param(*names, marks=() if often else pytest.mark.slow)


def why_refused(negotiation: str, plain: str, sealed: str, aggregator: str) -> list[str]:
    """Parts of the reasons for which a combination is to be refused; empty where it is to run."""
    names = {"negotiation": negotiation, "plain": plain, "sealed": sealed, "aggregator": aggregator}
    return [why for why, where in REFUSED if all(names[part] in listed for part, listed in where.items())]


@pytest.mark.usefixtures("small_keys")
@pytest.mark.parametrize(("negotiation", "plain", "sealed", "aggregator"), list(with_marks()))
def test_it_runs_or_is_refused_with_a_reason(negotiation: str, plain: str, sealed: str, aggregator: str) -> None:
    recipe = recipe_of(negotiation, plain, sealed, aggregator)
    expected, reasons = why_refused(negotiation, plain, sealed, aggregator), refusal(recipe)
    if expected or reasons is not None:
        said = "\n".join(reasons or ["it is not refused"])
        assert expected, f"refused, and not in the list of refusals: {said}"
        assert all(why in said for why in expected), said
        assert all(len(reason.partition(": ")[2].split()) > 4 for reason in reasons or ()), reasons  # sentences
        return
    outcome = run_protocol(recipe)
    row = outcome.protocol.rows[-1]
    assert row.clients.dropped == {}
    assert row.clients.answered == 3
    assert not row.unopened
    assert np.isfinite(outcome.vector).all()
    assert not np.array_equal(outcome.vector, initial_vector(recipe))


def refusal(recipe: dict[str, Any]) -> list[str] | None:
    """The reasons that `fedplug check` would give; None if there are none."""
    try:
        Recipe.from_plain(recipe, toy_catalog())
    except RecipeError as error:
        return error.problems
    return None


def test_nothing_is_refused_everywhere() -> None:
    """Each component must run in some combination. Otherwise the matrix above would pass by refusing all."""
    running: set[str] = set()
    for names in combinations():
        if not why_refused(*names):
            running |= set(names)
    assert running >= {*NEGOTIATIONS, *PLAIN, *SEALED, *AGGREGATORS}


# -- optimisers, where sums are opened, and groups ---------------------------------------------------------------------

OPENED: dict[str, tuple[str, list[Any], list[Any]]] = {
    "clients": (ENCRYPTED, [{"use": "std.bfv", "key_holder": "clients"}], ["std.bfv"]),
    "key server": (ENCRYPTED, [{"use": "std.bfv", "key_holder": "key_server"}], ["std.bfv"]),
    "key server to clients": (ENCRYPTED, [{"use": "std.bfv", "sums_visible_to": "clients"}], ["std.bfv"]),
    "threshold": (ENCRYPTED, [{"use": "threshold.bfv", "range": 1.0, "threshold": 4}], ["threshold.bfv"]),
    "nobody alone": (ENCRYPTED, [{"use": "secagg.bonawitz", "range": 1.0}], ["secagg.bonawitz"]),
    "local noise": (NOISED, [CLIP, {"use": "std.gaussian", "noise_multiplier": 0.05}], []),
}


@pytest.mark.parametrize("opened", OPENED)
@pytest.mark.parametrize(("optimiser", "grouped"), [
    ("std.scaffold", False), ("std.scaffold", True), ("std.fedopt", False),
    pytest.param("std.fedopt", True, marks=pytest.mark.slow),
])  # fmt: skip
def test_optimisers_run_wherever_sums_are_opened(optimiser: str, opened: str, grouped: bool) -> None:
    zone, chain, opening = OPENED[opened]
    scaffold = optimiser == "std.scaffold"
    train = {"steps": 2, "batch_size": 8} if scaffold else {"epochs": 1, "batch_size": 16}
    stepped = [*opening, *([] if scaffold else [{"use": "std.fedopt", "at": "client", "lr": 0.03}])]
    recipe = {
        "name": "opened", "seed": 7, "rounds": 2, "min_clients": 3,
        "data": {"use": "std.digits", "train_size": 180, "test_size": 24, "clients": 6,
                 "partition": {"use": "std.categories", "categories": 2}},
        "model": {"use": "std.mlp", "hidden": []},
        "train": {"use": "std.scaffold" if scaffold else "std.sgd", "lr": 0.05, **train},
        "negotiate_mask": {"use": "std.single_zone", "zone": zone}, "protect": {zone: chain},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        **({"postprocess": {zone: stepped}} if stepped else {}),
        **({"score_parameters": [SENSITIVITY], "groups": {"use": "sensecrypt.clusters"}} if grouped else {}),
    }  # fmt: skip
    if opened == "threshold" and grouped:
        assert "of several groups one can be opened at most" in "".join(refusal(recipe) or ())
        return
    assert refusal(recipe) is None
    rows = run_protocol(recipe).protocol.rows
    assert [row.clients.dropped for row in rows] == [{}, {}]
    assert not any(row.unopened for row in rows)
