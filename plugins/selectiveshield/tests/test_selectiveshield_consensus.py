"""The consensus: worked masks, the properties of its zones, invalid ballots, invalid options."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from examples import examples
from fedplug import Facts, Layout, Plan
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.links import Link
from fedplug_kit.static import check_component
from fedplug_runs.overlay import load_recipe
from fedplug_selectiveshield.consensus import Consensus, votes_needed
from fedplug_selectiveshield.hide_support import HideSupport
from fedplug_std.clip import Clip
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

ROOT = Path(__file__).parents[3]


@dataclasses.dataclass
class FakeFacts:
    """A round with a layout of two layers."""

    layout: Layout
    round: int = 0
    zones: tuple[str, ...] = BASE_ZONES


@dataclasses.dataclass
class FakeClient:
    """The parts of a client that the consensus needs."""

    scores_by = fedplug.Client.scores_by

    client_id: int
    scores: dict[str, NDArray[np.float32]]
    facts: FakeFacts
    plan: Plan | None = None
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)
    log: dict[str, float] = dataclasses.field(default_factory=dict)


class FakeCohort:
    """Runs asks and tells at once, and keeps the messages. `lies` replace a client's answer."""

    def __init__(self, clients: list[FakeClient], lies: dict[int, Any] | None = None) -> None:
        self.clients, self.lies = clients, lies or {}
        self.sent: dict[int, Any] = {}
        self.told: list[Any] = []
        self.dropped: dict[int, str] = {}

    def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
        replies = {client.client_id: method(client, *payload) for client in self.clients}
        self.sent = replies | self.lies
        return dict(self.sent)

    def tell(self, method: Any, *payload: Any) -> None:
        self.told += list(payload)
        for client in self.clients:
            method(client, *payload)

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped[client_id] = reason


def component_of(**options: Any) -> Consensus:
    component = Consensus(Consensus.Options(**options))
    component.name = "selectiveshield.consensus"
    return component


def cohort_of(scores: Any, lies: dict[int, Any] | None = None) -> FakeCohort:
    scores = np.asarray(scores, np.float32)
    half = scores.shape[1] // 2
    facts = FakeFacts(Layout.of([("a.weight", (half,)), ("b.weight", (scores.shape[1] - half,))]))
    return FakeCohort([FakeClient(n, {"s": mine}, facts) for n, mine in enumerate(scores)], lies)


def negotiate(scores: Any, lies: dict[int, Any] | None = None, **options: Any) -> tuple[list[Plan], FakeCohort]:
    """Runs a whole negotiation. Returns each client's plan."""
    cohort = cohort_of(scores, lies)
    component_of(**options).negotiate_mask(cohort, cohort.clients[0].facts)  # type: ignore[arg-type]
    plans = [client.plan for client in cohort.clients]
    assert all(plan is not None for plan in plans)
    return [plan for plan in plans if plan is not None], cohort


def positions(plans: list[Plan], zone: str) -> list[list[int]]:
    return [plan.positions(zone).tolist() for plan in plans]


def marks(*rows: str) -> NDArray[np.float32]:
    """Scores that mark, at tau 0.5, where a row has an x."""
    return np.array([[0.9 if mark == "x" else 0.1 for mark in row] for row in rows], np.float32)


WORKED = marks(
    "xxx...",
    ".xxx..",
    "..x..x",
)


def test_conforms() -> None:
    check_component("selectiveshield.consensus")


@pytest.mark.parametrize(
    ("rho", "encrypted", "retained"),
    [
        (2 / 3, [1, 2], [[0], [3], [5]]),
        (0.5, [1, 2], [[0], [3], [5]]),  # half of three clients is two
        (1.0, [2], [[0, 1], [1, 3], [5]]),  # eq. 15, the intersection
        (1 / 3, [0, 1, 2, 3, 5], [[], [], []]),  # the union
        (0.01, [0, 1, 2, 3, 5], [[], [], []]),  # never a scalar that no client has marked, such as 4
    ],
)
def test_zones_match_the_worked_masks(rho: float, encrypted: list[int], retained: list[list[int]]) -> None:
    """Eqs. 14 to 18 by hand: M_0 = {0, 1, 2}, M_1 = {1, 2, 3}, M_2 = {2, 5}."""
    plans, cohort = negotiate(WORKED, tau=0.5, rho=rho)
    assert positions(plans, "encrypted") == [encrypted] * 3
    assert positions(plans, "retained") == retained
    rest = [sorted(set(range(6)) - set(encrypted) - set(mine)) for mine in retained]
    assert positions(plans, "noised") == rest
    assert [sent.tobytes() for sent in cohort.sent.values()] == [b"\xe0", b"\x70", b"\x24"]  # six bits each
    assert cohort.clients[2].log == {"selectiveshield.consensus.marked": pytest.approx(2 / 6)}


@pytest.mark.parametrize(
    ("scores", "encrypted", "retained"),
    [
        (marks("xx....", "..xx..", "....xx"), [], [[0, 1], [2, 3], [4, 5]]),  # disjoint
        (marks("xxx...", "xxx...", "......"), [0, 1, 2], [[], [], []]),  # one has marked nothing
        (marks("......", "......", "......"), [], [[], [], []]),
        (marks("xxxxxx", "xxxxxx", "xxxxxx"), [0, 1, 2, 3, 4, 5], [[], [], []]),
        (marks("xxxxxx", "x.....", "......"), [0], [[1, 2, 3, 4, 5], [], []]),  # one has marked everything
    ],
)
def test_masks_at_the_limits(scores: Any, encrypted: list[int], retained: list[list[int]]) -> None:
    plans, _ = negotiate(scores, tau=0.5, rho=0.5)
    assert positions(plans, "encrypted") == [encrypted] * 3
    assert positions(plans, "retained") == retained


def test_every_client_has_its_own_threshold() -> None:
    scores = [[0.1, 0.3, 0.5, 0.7, 0.9, 1.0]] * 3
    plans, cohort = negotiate(scores, tau=(0.0, 0.5, 1.0), rho=0.5)
    assert [int(np.unpackbits(sent).sum()) for sent in cohort.sent.values()] == [6, 3, 0]  # above, not at
    assert positions(plans, "encrypted")[0] == [3, 4, 5]
    assert positions(plans, "retained") == [[0, 1, 2], [], []]


def test_the_rest_may_be_another_zone_and_another_scorer_may_decide() -> None:
    cohort = cohort_of(WORKED)
    for client in cohort.clients:
        client.scores["other"] = np.array([1, 0, 0, 0, 0, 0], np.float32)
    component_of(tau=0.5, other_zone="clear", by="other").negotiate_mask(cohort, cohort.clients[0].facts)  # type: ignore[arg-type]
    plan = cohort.clients[0].plan
    assert plan is not None
    assert plan.sizes() == {"encrypted": 1, "noised": 0, "retained": 0, "clear": 5}


def test_scores_of_layers_are_spread_over_their_scalars() -> None:
    facts = FakeFacts(Layout.of([("a.weight", (2,)), ("b.weight", (3,)), ("a.bias", (1,))]))
    marked = facts.layout.per_scalar(np.array([True, False]))
    assert marked.tolist() == [True, True, False, False, False, True]
    cohort = cohort_of(WORKED)
    for client in cohort.clients:
        client.scores = {"layers": np.array([0.2, 0.8], np.float32)}
    component_of(tau=0.5).negotiate_mask(cohort, cohort.clients[0].facts)  # type: ignore[arg-type]
    assert cohort.clients[0].plan is not None
    assert cohort.clients[0].plan.positions("encrypted").tolist() == [3, 4, 5]


# -- properties --------------------------------------------------------------------------------------------------------

shapes = st.tuples(st.integers(1, 8), st.integers(1, 40))
scored = hnp.arrays(np.float32, shapes, elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]))
taus = st.sampled_from([0.0, 0.1, 0.125, 0.3, 0.6, 1.0])
shares = st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.55, 2 / 3, 0.7, 1.0])


@given(scored, taus, shares)
@settings(max_examples=examples(200))
def test_zones_are_those_of_the_equations(scores: np.ndarray, tau: float, rho: float) -> None:
    """Spec 1, 2 and 6, and eqs. 14 to 18 as sets: the zones of each client are disjoint and complete."""
    plans, _ = negotiate(scores, tau=tau, rho=rho)
    clients, size = scores.shape
    masks = [set(np.flatnonzero(row > np.float32(tau)).tolist()) for row in scores]
    least = max(1, math.ceil(Fraction(rho).limit_denominator(1000) * clients))
    enc = {j for j in range(size) if sum(j in mask for mask in masks) >= least}
    assert enc <= set().union(*masks)
    for plan, mask in zip(plans, masks, strict=True):
        zones = {zone: set(plan.positions(zone).tolist()) for zone in BASE_ZONES}
        assert zones["encrypted"] == enc
        assert zones["retained"] == mask - enc
        assert zones["noised"] == set(range(size)) - enc - mask
        assert sum(map(len, zones.values())) == size


@given(scored, taus, taus, shares, shares)
@settings(max_examples=examples(100))
def test_the_encrypted_zone_never_grows_with_rho_or_tau(
    scores: np.ndarray, tau: float, other: float, rho: float, share: float
) -> None:
    """Spec 3."""
    low, high = sorted((tau, other)), sorted((rho, share))
    small = negotiate(scores, tau=low[1], rho=high[1])[0][0].positions("encrypted")
    for easier, share in ((low[0], high[1]), (low[1], high[0])):
        assert set(small) <= set(negotiate(scores, tau=easier, rho=share)[0][0].positions("encrypted"))


@given(scored, taus)
@settings(max_examples=examples(100))
def test_rho_1_is_the_intersection_and_rho_1_over_k_the_union(scores: np.ndarray, tau: float) -> None:
    """Spec 4 and 5."""
    masks = scores > np.float32(tau)
    every, _ = negotiate(scores, tau=tau, rho=1.0)
    assert positions(every, "encrypted")[0] == np.flatnonzero(masks.all(0)).tolist()
    for rho in (1 / len(scores), 0.5 / len(scores)):
        some, _ = negotiate(scores, tau=tau, rho=rho)
        assert positions(some, "encrypted")[0] == np.flatnonzero(masks.any(0)).tolist()
        assert not any(positions(some, "retained"))


@given(scored, taus, shares)
@settings(max_examples=examples(60))
def test_equal_masks_retain_nothing_and_tau_1_marks_nothing(scores: np.ndarray, tau: float, rho: float) -> None:
    """Spec 7 and 8."""
    alike, _ = negotiate(np.repeat(scores[:1], 4, 0), tau=tau, rho=rho)
    assert not any(positions(alike, "retained"))
    none, cohort = negotiate(scores, tau=1.0, rho=rho)
    assert [plan.sizes()["noised"] for plan in none] == [scores.shape[1]] * len(scores)
    assert not np.unpackbits(cohort.told[0]).any()


@given(scored, taus, shares, st.randoms())
@settings(max_examples=examples(60))
def test_the_order_of_clients_does_not_matter(scores: np.ndarray, tau: float, rho: float, random: Any) -> None:
    order = random.sample(range(len(scores)), len(scores))
    plans, shuffled = negotiate(scores, tau=tau, rho=rho)[0], negotiate(scores[order], tau=tau, rho=rho)[0]
    for place, client in enumerate(order):
        assert np.array_equal(shuffled[place].labels, plans[client].labels)


def test_a_share_of_the_clients_is_counted_exactly() -> None:
    """0.55 * 20 is 11.000000000000002 in floating point, and 0.7 * 20 is 14."""
    assert [votes_needed(rho, 20) for rho in (0.55, 0.7, 0.3, 1.0, 0.05, 0.051)] == [11, 14, 6, 20, 1, 2]
    for hundredths in range(1, 101):
        for clients in range(1, 120):
            assert votes_needed(hundredths / 100, clients) == max(1, math.ceil(Fraction(hundredths, 100) * clients))
    assert votes_needed(1e-12, 5) == votes_needed(0.5, 0) == 1


# -- a round -----------------------------------------------------------------------------------------------------------


def test_a_client_that_was_not_in_the_round_adopts_the_encrypted_zone_and_retains_nothing() -> None:
    """Its scores and its mask are from an earlier round, or it has none."""
    cohort = cohort_of(WORKED)
    component, told = component_of(tau=0.5, rho=2 / 3), np.packbits([0, 1, 1, 0, 0, 0])
    absent, new = cohort.clients[0], cohort.clients[1]
    component.mark(absent)  # type: ignore[arg-type]
    absent.facts = dataclasses.replace(absent.facts, round=1)
    new.scores = {}
    for client in (absent, new):
        component.adopt(client, told)  # type: ignore[arg-type]
        assert client.plan is not None
        assert client.plan.sizes() == {"encrypted": 2, "noised": 4, "retained": 0, "clear": 0}
    taking_part = cohort.clients[2]
    component.mark(taking_part)  # type: ignore[arg-type]
    for _ in range(2):  # also if the call is repeated
        component.adopt(taking_part, told)  # type: ignore[arg-type]
        assert taking_part.plan is not None
        assert taking_part.plan.positions("retained").tolist() == [5]


@pytest.mark.parametrize(
    ("ballot", "problem"),
    [
        (None, "is NoneType, which must be uint8[2]"),
        (b"\xc0\x00", "is bytes"),
        (np.zeros(2, np.int64), "is int64[2], which must be uint8[2]"),
        (np.zeros(10, np.bool_), "is bool[10]"),
        (np.zeros((1, 2), np.uint8), "is uint8[1, 2]"),
        (np.array([0, 1], np.uint8), "marks scalars beyond the 10 there are"),
    ],
)
def test_an_invalid_mask_costs_only_its_client_the_round(ballot: Any, problem: str) -> None:
    scores = marks("xxxx......", "xx........", "xxxxxxxxxx")
    plans, cohort = negotiate(scores, lies={2: ballot}, tau=0.5, rho=1.0)
    assert list(cohort.dropped) == [2]
    assert problem in cohort.dropped[2]
    assert positions(plans, "encrypted")[0] == [0, 1]  # of the two that are left


def test_scores_that_are_nan_exceed_no_threshold() -> None:
    scores = WORKED.copy()
    scores[1, 2:4] = np.nan
    with pytest.raises(ProtectionError, match=r"2 of 6 scores are NaN.* lower lr in train"):
        negotiate(scores)


def test_it_says_what_the_masks_show() -> None:
    def what(*before: str, other_zone: str = "noised") -> list[str]:
        """The reported quantities where the noised zone passes these links."""
        links = tuple(Link("noised", "protect", name, parts[name], "client") for name in before)
        facts = Facts(0, 1, Layout.of([("w", (4,))]), BASE_ZONES, 3, 2, 7, "", chains={"noised": links})
        shown = component_of(other_zone=other_zone).reveals(facts)
        assert all("server" in each.to and each.covered_by is None for each in shown)
        # Quantities that tell the classes of one client. The mask is that of all.
        assert {each.what: each.voids for each in shown}["mask"] is False
        assert all(each.voids for each in shown if each.what != "mask")
        assert [each.asked for each in shown] == [("mark",), *[()] * (len(shown) - 1)]
        return [each.what for each in shown]

    parts: dict[str, Any] = {"clip": Clip(Clip.Options(norm=1.0)), "hide": HideSupport(HideSupport.Options())}
    for name, part in parts.items():
        part.name = name
    masks = "which parameters each client calls sensitive"
    assert what("clip") == what() == [masks, "mask", "support of the retained zone"]
    assert what("hide", "clip") == what("clip", "hide") == [masks, "mask"]
    assert "support of the retained zone" in what("hide", other_zone="clear")  # of another zone
    plans = component_of(other_zone="clear").plans
    own = frozenset({"retained", "clear"})
    assert plans == fedplug.Plans(zones=own | {"encrypted"}, own=own)
    assert "50% of the clients score above 0.1;" in component_of().describe()
    assert "score above 0.1 to 0.3;" in component_of(tau=(0.1, 0.3)).describe()


# -- options that cannot be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        ("tau: 1.5", ["selectiveshield.consensus: tau=1.5 must be <= 1; scores lie in [0, 1]"]),
        ("tau: -0.1", ["selectiveshield.consensus: tau=-0.1 must be >= 0; scores lie in [0, 1]"]),
        ("tau: .nan", ["tau=nan must be"]),
        ("tau: true", ["tau=true must be a number"]),
        ("tau: [0.1, 2]", ["tau.1=2 must be <= 1; scores lie in [0, 1]"]),
        ("tau: [0.1, 0.2]", ["tau has 2 thresholds, but data.clients=10; write one for each, or a single number"]),
        ("rho: 0", ["rho=0 must be > 0; it is the share of clients that must mark a scalar", "1 / number of clients"]),
        ("rho: 1.01", ["rho=1.01 must be <= 1; it is the share of clients"]),
        ("by: std.random", ["by: 'std.random' is not a scorer of this recipe; it has ['selectiveshield.fisher']"]),
        ("other_zone: retained",
         ["other_zone: retained has another meaning here; write other_zone: noised or other_zone: clear"]),
    ],
)
def test_a_wrong_option_is_refused_with_place_value_rule_and_remedy(
    line: str, problems: list[str], tmp_path: Path
) -> None:
    parent = ROOT / "recipes/selectiveshield.yaml"
    file = tmp_path / "wrong.yaml"
    protect = "protect: {noised: null}\n" if line.startswith("other_zone") else ""
    file.write_text(f"extends: {parent}\nname: wrong\nnegotiate_mask:\n  {line}\n{protect}", encoding="utf-8")
    with pytest.raises(RecipeError) as error:
        load_recipe(file)
    text = str(error.value)
    assert "wrong.yaml:4:" in text or "wrong.yaml:3:" in text or ".yaml:14:" in text
    for problem in problems:
        assert problem in text


def test_without_a_scorer_there_is_nothing_to_agree_on(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    parent = ROOT / "recipes/selectiveshield.yaml"
    file.write_text(f"extends: {parent}\nname: wrong\nscore_parameters: []\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"the consensus needs scores; add score_parameters"):
        load_recipe(file)
