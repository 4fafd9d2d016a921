"""Sizes that differ between clients: public numbers by client, and those that each client works out by itself."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import numpy as np
import pytest
from execution_toys import FACTS, FLOATS, VALUES, Gives, done, party, steps
from fedplug import Block, Clip, Combine, Misplaced, Noise, Plan, Post, Round, Scale, Shift
from fedplug import WeightedSum as Sum
from fedplug.api.errors import PluginError, ProtectionError
from fedplug.api.known import Release
from fedplug.api.links import Link, Step, ballot_states, fold
from fedplug.api.parties import Server
from fedplug.mechanisms.execution import execute
from hypothesis import given
from hypothesis import strategies as st

IDS = (0, 3, 5, 7)
SIZES = st.floats(1e-3, 1e3)


def by_client(draw: st.DrawFn) -> tuple[dict[int, float], float]:
    named = draw(st.lists(st.sampled_from(IDS[:3]), unique=True, min_size=1))
    return {client_id: draw(SIZES) for client_id in named}, draw(SIZES)


@st.composite
def chains(draw: st.DrawFn) -> list[Any]:
    """Clips and arithmetic, some by client, then maybe a noise, then more arithmetic."""

    def clip() -> Clip:
        order, per = draw(st.sampled_from([(2, "update"), (1, "update"), (2, "layer"), (2, "scalar")]))
        norm, others = by_client(draw) if draw(st.booleans()) else (draw(SIZES), None)
        return Clip(norm, order, per, others=others)  # type: ignore[arg-type]

    def change() -> Any:
        return draw(st.sampled_from([Scale(0.5), Scale(-2.0), Round(0.25), Shift.model(-1)]))

    chain = [clip() if draw(st.booleans()) else change() for _ in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        if draw(st.booleans()):
            std, others = by_client(draw)
            noise = Noise.gaussian(std, others=others, source="reproducible")
        else:  # noise of one size lies on one grid, which suits all bounds
            noise = Noise.gaussian(draw(SIZES), source="reproducible", grid=2.0**-4)
        chain += [clip(), noise]
        chain += [change() for _ in range(draw(st.integers(0, 2)))]
    return chain


def test_central_noise_is_measured_over_the_coarsest_grid_of_any_client() -> None:
    """Two clients' sums lie apart by what one contributes, and by a step of its grid for each value."""
    own = Noise.gaussian({3: 2.0**20}, others=1.0, source="reproducible")
    together = folded(Clip(1.0), own).states[-1].sensitivity()
    each = [folded(*of([Clip(1.0), own], client_id)).states[-1].sensitivity() for client_id in (0, 3)]
    assert together == max(one for one in each if one is not None)


def test_numbers_by_client_name_clients_by_their_number() -> None:
    for make in (lambda: Clip({"3": 0.5}, others=1.0), lambda: Noise.gaussian({"3": 0.5}, others=1.0)):  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="client '3' must be a whole number"):
            make()


def of(chain: list[Any], client_id: int) -> list[Any]:
    """The chain as one client's recipe alone would have it."""
    return [one.of(client_id) if isinstance(one, Clip | Noise) else one for one in chain]


def folded(*chain: Any) -> Step:
    return steps(Gives(*chain))[0]


@given(chains())
def test_what_is_known_of_everybody_holds_of_each_client(chain: list[Any]) -> None:
    """The fold takes the largest bound and the least multiplier of all; of each it knows what its own chain says."""
    together = folded(*chain)
    alone = {client_id: folded(*of(chain, client_id)) for client_id in IDS}
    for number, known in enumerate(together.states):
        each = [step.states[number] for step in alone.values()]
        for client_id, own in zip(IDS, each, strict=True):
            mine = known.of(client_id)
            assert (mine.bounds, mine.clips, mine.factor) == (own.bounds, own.clips, own.factor)
            assert [r.noise_multiplier for r in mine.releases] == [r.noise_multiplier for r in own.releases]
        for order in (1, 2):
            lengths = [own.norm(order) for own in each]
            most = known.norm(order)
            assert (most is None) == (None in lengths)
            assert most is None or most >= max(lengths)  # type: ignore[type-var,operator]
    for place, release in enumerate(together.after.releases):
        least = min(step.after.releases[place].noise_multiplier for step in alone.values())
        assert release.noise_multiplier <= least


@given(chains(), FLOATS)
def test_each_client_executes_what_its_own_chain_says(chain: list[Any], values: Any) -> None:
    for client_id in IDS:
        together = done(*chain, values=values, who=party(client_id))
        assert together.tobytes() == done(*of(chain, client_id), values=values, who=party(client_id)).tobytes()


@given(SIZES, SIZES, SIZES, SIZES)
def test_the_price_is_that_of_the_client_with_the_least_noise_for_its_bound(
    norm: float, norms: float, std: float, stds: float
) -> None:
    (release,) = folded(Clip({3: norm}, others=norms), Noise.gaussian({5: std}, others=stds)).after.releases
    assert release.noise_multiplier == min(stds / norm, std / norms, stds / norms)
    assert release.clipping_norm == max(norm, norms)
    assert "each client's noise has different sizes, so others' noise earns no credit" in release.uncredited
    # Of one size for all the sizes add up, whatever bounds whom.
    (release,) = folded(Clip({3: norm}, others=norms), Noise.gaussian(std)).after.releases
    assert (release.noise_multiplier, release.uncredited) == (std / max(norm, norms), "")


def test_a_clients_own_clip_and_noise_are_those_of_its_number() -> None:
    clip, noise = Clip({3: 1.0}, others=100.0), Noise.gaussian({3: 1e-6}, others=0.0)
    assert np.linalg.norm(done(clip, who=party(3)).astype(np.float64)) == pytest.approx(1.0, rel=1e-6)
    assert np.array_equal(done(clip, who=party(4)), VALUES)
    assert np.array_equal(done(clip, noise, who=party(4)), VALUES)
    drawn = done(clip, noise, who=party(3)) - done(clip, who=party(3))
    assert 0 < np.abs(drawn).max() < 1e-5


def test_exact_noise_by_client_has_each_clients_own_grid_and_the_share_of_delta_of_the_worst() -> None:
    chain = (Clip({3: 0.01}, others=1.0), Noise.gaussian({3: 0.02}, others=2.0, source="exact"))
    for client_id in IDS:
        assert len(done(*chain, values=VALUES / 100, who=party(client_id))) == 10
    (release,) = folded(*chain).after.releases
    alone = [folded(*of(list(chain), client_id)).after.releases[0] for client_id in IDS]
    assert release.mechanism == "discrete_gaussian"
    assert release.slack == max(one.slack for one in alone)
    assert release.note.count("discrete Gaussian") == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Clip({3: 0.5}), r"Clip: numbers by client come with one for all others: Clip\(\{3: 0.5\}, oth"),
        (lambda: Clip(1.0, others=0.5), "Clip: numbers by client come with one for all others"),
        (lambda: Noise.gaussian({3: 0.5}), "Noise.gaussian: numbers by client come with one for all others"),
        (lambda: Noise.gaussian(1.0, others=0.5), "Noise.gaussian: numbers by client come with one for all others"),
        (lambda: Clip({3: -1.0}, others=1.0), "must be a number >= 0"),
        (lambda: Clip({3: math.nan}, others=1.0), "must be a number >= 0"),
        (lambda: Clip({3: 1.0}, others=math.nan), "must be a number >= 0"),
        (lambda: Noise.gaussian({3: -1.0}, others=1.0), "must be a number >= 0"),
        (lambda: Noise.by(lambda n: 1.0, reads="num_examples", at_least=math.nan), "must be a number >= 0"),
        (lambda: Noise.by(lambda n: 1.0, reads="update", at_least=1.0), "must be one of 'scores', 'num_examples'"),
    ],
)  # fmt: skip
def test_numbers_by_client_are_numbers_for_all_clients(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


OWN: list[Any] = [
    Clip({3: 0.5}, others=1.0), Noise.gaussian({3: 0.5}, others=1.0),
    Noise.by(lambda scores, present: 1.0, reads="scores", at_least=0.5),
]  # fmt: skip


@pytest.mark.parametrize("operation", OWN, ids=["clip", "noise", "by scores"])
def test_clients_own_sizes_are_for_their_uploads_alone(operation: Any) -> None:
    with pytest.raises(Misplaced, match=r"hook postprocess: it gives .* of clients' own sizes, of a sum; give it in"):
        steps(Gives(operation), hook="postprocess", site="server")
    with pytest.raises(Misplaced, match=r"the ballots of votes give .* of another size for some clients, and all"):
        ballot_states("votes", (Clip(1.0), operation), FACTS)


# -- sizes that a client works out -------------------------------------------------------------------------------------

SCORES = np.array([0.25, 4.0], np.float32)


def scored(chain: Any, plan: Plan | None = None, scores: Any = SCORES, values: Any = VALUES) -> Any:
    who = party(3, plan)
    who.scores = {"psi": scores, "other": scores * 2}
    return done(*chain, who=who, values=values)


def test_the_function_gets_scores_and_the_layers_that_are_there_and_nothing_else() -> None:
    asked: list[Any] = []

    def size(*read: Any) -> Any:
        asked.append([np.asarray(one).tolist() for one in read])
        return [2.0, 3.0]

    scored((Clip(1.0), Noise.by(size, reads="scores", at_least=2.0)))
    scored((Clip(1.0), Noise.by(size, reads="scores", at_least=2.0, scorer="other")))
    second = Plan.of(FACTS, "clear", noised=np.array([7, 8]))
    scored((Clip(1.0), Noise.by(size, reads="scores", at_least=2.0)), second, values=VALUES[:2])
    assert asked == [[[0.25, 4.0], [0, 1]], [[0.5, 8.0], [0, 1]], [[0.25, 4.0], [1]]]
    asked.clear()
    scored((Clip(1.0), Noise.by(lambda count: asked.append(count) or 3.0, reads="num_examples", at_least=2.0)))
    assert asked == [3]


def test_layers_that_zeros_stand_in_for_are_there() -> None:
    """Or the noise would tell which layers a client keeps to itself."""
    asked: list[Any] = []
    plan = Plan.of(FACTS, "noised", retained=np.arange(6))
    noise = Noise.by(lambda scores, present: asked.append(present.tolist()) or 3.0, reads="scores", at_least=2.0)
    scored((Clip(1.0), fedplug.Widen(), noise), plan, values=VALUES[:4])
    scored((Clip(1.0), noise), plan, values=VALUES[:4])
    assert asked == [[0, 1], [1]]


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), SIZES)
def test_noise_that_costs_more_than_is_charged_is_not_added(std: float, at_least: float, norm: float) -> None:
    chain = (Clip(norm), Noise.by(lambda count: std, reads="num_examples", at_least=at_least, source="reproducible"))
    (release,) = folded(*chain).after.releases
    assert release.noise_multiplier == at_least
    if std / norm >= at_least:
        same = done(Clip(norm), Noise.gaussian(std, source="reproducible"))
        assert done(*chain).tobytes() == same.tobytes()
    elif std / norm < at_least * (1 - 1e-8):
        said = r"^component odd, hook protect, zone noised, Noise: its noise has a multiplier of .* at this client, and"
        with pytest.raises(ProtectionError, match=said):
            done(*chain)


def test_the_price_of_all_layers_together_is_compared() -> None:
    """(sum of (C_l / s_l)^2)^(-1/2): here 1 / hypot(3 / 6, 4 / 8)."""
    clip, price = Clip((3.0, 4.0), per="layer"), 1 / math.hypot(0.5, 0.5)
    for at_least, refused in ((price, False), (price * 1.01, True)):
        chain = (clip, Noise.by(lambda scores, present: (6.0, 8.0), reads="scores", at_least=at_least))
        if refused:
            with pytest.raises(ProtectionError, match=r"a multiplier of 1.41421356 at this client, and 1.428"):
                scored(chain)
        else:
            assert not np.array_equal(scored(chain), VALUES)
    # A client's own bound counts.
    own = (Clip({3: 0.5}, others=1.0), Noise.by(lambda count: 2.0, reads="num_examples", at_least=4.0))
    assert not np.array_equal(done(*own, who=party(3)), VALUES)
    with pytest.raises(ProtectionError, match="a multiplier of 2 at this client, and 4 is what is charged for"):
        done(*own, who=party(4))


@pytest.mark.parametrize("chain", [(), (Clip(1.0, order=1),)], ids=["no bound", "another norm"])
def test_noise_over_what_nothing_bounds_has_no_price(chain: tuple[Any, ...]) -> None:
    noise = Noise.by(lambda count: 1e9, reads="num_examples", at_least=1.0)
    assert folded(*chain, noise).after.releases[0].noise_multiplier == 0
    with pytest.raises(ProtectionError, match="a multiplier of 0 at this client"):
        done(*chain, noise)


def test_a_layer_without_values_needs_no_noise_and_one_with_values_does() -> None:
    noise = Noise.by(lambda scores, present: (math.inf, 3.0), reads="scores", at_least=2.0)
    second = Plan.of(FACTS, "clear", noised=np.array([7, 8]))
    assert len(scored((Clip(1.0), noise), second, values=VALUES[:2])) == 2
    with pytest.raises(ProtectionError, match="it gives no noise to layer 0, which has values here"):
        scored((Clip(1.0), noise))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (-1.0, r"its size is float64\[\]; give one standard deviation, or one a layer: floats \[2\]"),
        (math.nan, r"its size is float64\[\]"), ([1.0, 2.0, 3.0], r"its size is float64\[3\]"),
        ([[1.0, 2.0]], r"its size is float64\[1, 2\]"), ([1.0, -2.0], r"its size is float64\[2\]"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_size_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ProtectionError, match=said):
        scored((Clip(1.0), Noise.by(lambda scores, present: given, reads="scores", at_least=1.0)))


@pytest.mark.parametrize("given", [None, "much", {}])
def test_a_function_that_fails_to_give_one_is_named(given: Any) -> None:
    def size(count: int) -> Any:
        return given if given is not None else {}["nowhere"]

    with pytest.raises((PluginError, ProtectionError), match="component odd, hook protect, zone noised, Noise: "):
        done(Clip(1.0), Noise.by(size, reads="num_examples", at_least=1.0))


def test_exact_noise_of_a_size_of_its_own_states_the_share_of_delta_of_the_least() -> None:
    noise = Noise.by(lambda count: 8.0, reads="num_examples", at_least=2.0, source="exact")
    (release,) = folded(Clip(1.0), noise).after.releases
    (fixed,) = folded(Clip(1.0), Noise.gaussian(2.0, source="exact")).after.releases
    assert (release.mechanism, release.noise_multiplier) == ("discrete_gaussian", 2.0)
    assert release.slack >= fixed.slack / 4  # of one client, as no sum earns credit
    assert len(done(Clip(1.0), noise)) == 10


# -- on whose word -----------------------------------------------------------------------------------------------------

LOCAL = (Clip(1.0), Noise.gaussian(2.0))
OWN_DRAWS = Noise.own("pure", lambda values, public, stream: values, multiplier=1.0, source="secure", order=2)


def words(*hooks: tuple[str, str, tuple[Any, ...]]) -> list[Release]:
    """The releases behind links (name, hook, operations)."""
    site = {"protect": "client", "aggregate": "server", "postprocess": "server"}
    links = [Link("noised", hook, name, Gives(*given, name=name), site[hook]) for name, hook, given in hooks]  # type: ignore
    return [*fold(links, FACTS)[-1].after.releases]


def vector(public: Any) -> Any:
    return np.zeros(10, np.float32)


def keep(values: Any, public: Any) -> Any:
    return values


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        ((("post", "protect", (Post(keep),)),), ["post"]), ((("shift", "protect", (Shift(vector),)),), ["shift"]),
        ((("sums", "aggregate", (Combine(lambda b, w, f: b[0]),)),), ["sums"]),
        ((("sums", "aggregate", (Sum(by=lambda b, s, f: {}),)),), ["sums"]),
        ((("sums", "aggregate", (Sum(), Post(keep))),), ["sums"]),
        ((("sums", "aggregate", (Sum(),)), ("post", "postprocess", (Post(keep), Shift(vector)))), ["post"]),
        ((("post", "protect", (Post(keep),)), ("sums", "aggregate", (Sum(), Post(keep)))), ["post", "sums"]),
        ((("core", "protect", (Clip(0.5), Scale(2.0), Round(0.5), Shift.model(1))),), []),
        ((("sums", "aggregate", (Sum(rate=0.5), Clip(1.0), Scale(2.0))),), []),
    ],
)  # fmt: skip
def test_functions_behind_noise_are_named_once_each(behind: tuple[Any, ...], said: list[str]) -> None:
    """Their results keep the price as long as they go by what they are handed."""
    before = (("clip", "protect", LOCAL[:1]), ("noise", "protect", LOCAL[1:]))
    (release,) = words(*before, *behind)
    assert release.words == said
    assert release.noise_multiplier == 2.0
    (drawn,) = words(before[0], ("draws", "protect", (OWN_DRAWS,)), *behind)
    assert drawn.words == ["draws", *said]


def test_functions_before_noise_and_functions_of_others_zones_are_not() -> None:
    (release,) = words(("post", "protect", (Post(keep), Shift(vector), *LOCAL)), ("sums", "aggregate", (Sum(),)))
    assert release.words == []
    twice = words(
        ("clip", "protect", (*LOCAL, Post(keep), *LOCAL)), ("sums", "aggregate", (Sum(), Noise.gaussian(3.0))),
    )
    assert [release.words for release in twice] == [["clip"], [], []]


def test_a_shift_by_a_function_takes_the_last_bits_of_noise_and_the_model_does_not() -> None:
    """Noise of 1 on the last bits of 1e8 is rounded to multiples of 8, in each upload by itself."""
    far = Shift(lambda public: np.full(10, 1e8, np.float32))
    chain = (Clip(1.0), Noise.gaussian(1.0))
    drawn = done(*chain, far) - np.float32(1e8)
    assert np.array_equal(drawn / 8, np.rint(drawn / 8))
    assert folded(*chain, far).after.releases[0].uncredited
    assert not folded(*chain, Shift.model(-1)).after.releases[0].uncredited
    start = np.arange(10, dtype=np.float32)
    for factor in (1, -1):
        assert np.array_equal(done(Shift.model(factor)), VALUES + np.float32(factor) * start)
    second = Plan.of(FACTS, "clear", noised=np.array([7, 8]))
    assert np.array_equal(done(Shift.model(1), who=party(plan=second), values=VALUES[:2]), VALUES[:2] + start[7:9])


def test_the_model_is_added_where_it_is_known() -> None:
    server = Server()
    (step,) = steps(Gives(Shift.model(-1)), hook="postprocess", site="server")
    total = Block("noised", 10, VALUES, divisor=1.0)
    with pytest.raises(ProtectionError, match="Shift: the global model at these values is not known here"):
        execute(step, total, server, FACTS)
    server.vector = np.ones(10, np.float32)
    assert np.array_equal(execute(step, total, server, FACTS).plain(), VALUES - 1)
