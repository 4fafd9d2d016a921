"""What everybody knows of the values that clients send, from what is executed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from attack_toys import Runs, attacked, observed
from fedplug import Facts, FixedPoint, Layout
from fedplug.api.known import Known
from fedplug.api.links import Link
from fedplug.api.operations import Clip, Map, Noise, Operations, Round, Scale, Scramble, Seal
from fedplug.api.roles import Learns, Reveals
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.observation import Meaning, ObservedUpdate, Seen, all_clear
from fedplug_attacks.api.view import View
from fedplug_attacks.views.public_facts import UNSAID, Sent, meaning
from fedplug_attacks.workshop.words import shares_words
from toy_components import recipe_of

LAYOUT = Layout.of([("a.weight", (2, 3)), ("a.bias", (2,)), ("b.weight", (4,))])
EVERYWHERE = np.arange(LAYOUT.size)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


class Giving(fedplug.Protector):
    """A link that gives the operations that it is told to, and is never executed."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations

    def protect(self, known: Known, facts: Facts) -> Operations:
        return self.operations


class Closing(Giving):
    """The same of what closes a zone."""

    def seal(self, words: Any, client: Any, facts: Facts) -> Any:
        raise NotImplementedError

    def open(self, total: Any, party: Any, facts: Facts) -> Any:
        raise NotImplementedError

    def reveals(self, facts: Facts) -> list[Reveals]:
        return []


class Sealing(Closing, fedplug.Sealer):
    def add(self, uploads: Any, server: Any, facts: Facts) -> Any:
        raise NotImplementedError


class Scrambling(Closing, fedplug.Scrambler):
    def unseal(self, upload: Any, party: Any, facts: Facts) -> Any:
        raise NotImplementedError

    def reseal(self, words: Any, server: Any, facts: Facts) -> Any:
        raise NotImplementedError


def giving(operations: Operations) -> Giving:
    kind = {Seal: Sealing, Scramble: Scrambling}.get(type(operations[0]) if operations else None, Giving)
    return kind(operations)


def sent(*operations: Operations, learns: Learns | None = None, client_id: int | None = None) -> Sent:
    """The facts of a zone whose links give these operations."""
    links = tuple(Link("noised", "protect", f"link{i}", giving(each), "client") for i, each in enumerate(operations))
    facts = Facts(0, 1, LAYOUT, ("noised",), 4, 2, 0, "", chains={"noised": links})
    return Sent.of("noised", facts, learns or Learns(), client_id)


# -- noise, scale and grid ---------------------------------------------------------------------------------------------


def test_noise_of_each_layer_goes_to_its_scalars_in_units_of_the_update() -> None:
    clip, noise = (Clip((1.0, 2.0), per="layer"),), (Noise.gaussian((0.5, 3.0)),)
    assert sent(clip, noise).sigma(LAYOUT).tolist() == [0.5] * 8 + [3.0] * 4
    scaled = sent(clip, noise, (Scale(10.0),))
    assert scaled.sigma(LAYOUT).tolist() == pytest.approx([0.5] * 8 + [3.0] * 4)
    assert scaled.factor == 10
    both = sent(clip, noise, (Noise.laplace(1.0),))
    assert both.sigma(LAYOUT)[0] == pytest.approx(math.sqrt(0.25 + 2))


def test_what_cannot_be_worked_out_is_not_known() -> None:
    clip = (Clip(1.0),)
    by_count = Noise.by(lambda count: 1.0 / count, reads="num_examples", at_least=0.1)
    assert np.isnan(sent(clip, (by_count,)).sigma(LAYOUT)).all()
    unsaid = sent(clip, (Noise.gaussian(1.0),), (Map(lambda block, party, facts: block),))
    assert np.isnan(unsaid.sigma(LAYOUT)).all()
    assert not unsaid.clipped(LAYOUT, EVERYWHERE, np.ones(12, np.float32))
    # What a trainer adds is smaller behind a clip, by nobody knows how much.
    own = Learns(noise=2.0)
    assert sent((), learns=own).sigma(LAYOUT).tolist() == [2.0] * 12
    assert np.isnan(sent(clip, learns=own).sigma(LAYOUT)).all()
    assert np.isnan(sent((), learns=Learns(noise=None)).sigma(LAYOUT)).all()


def test_values_that_name_clients_are_those_of_the_client_who_sends() -> None:
    chain = (Clip({3: 0.5}, others=1.0), Noise.gaussian({3: 2.0}, others=0.25))
    assert sent(chain, client_id=3).sigma(LAYOUT).tolist() == [2.0] * 12
    assert sent(chain, client_id=0).sigma(LAYOUT).tolist() == [0.25] * 12
    assert np.isnan(sent(chain).sigma(LAYOUT)).all()
    values = np.ones(12, np.float32)
    assert [clip.norm for clip in sent(chain, client_id=3).clipped(LAYOUT, EVERYWHERE, values)] == [0.5]
    assert [clip.norm for clip in sent(chain, client_id=0).clipped(LAYOUT, EVERYWHERE, values)] == [1.0]


def test_the_grid_is_that_of_the_update() -> None:
    assert sent((Round(0.5),), (Scale(2.0),)).grid == 0.5
    assert sent((Round(0.5),), (Map(lambda block, party, facts: block),)).grid == 0.0


# -- clips -------------------------------------------------------------------------------------------------------------


def test_a_clip_of_clear_values_counts_in_the_layers_where_it_acted() -> None:
    clip = (Clip((1.0, 2.0), per="layer"),)
    values = np.zeros(12, np.float32)
    values[0], values[8] = 1.0, 0.5
    (found,) = sent(clip).clipped(LAYOUT, EVERYWHERE, values)
    assert found.norm == (1.0, math.inf)
    assert not found.noised
    assert not sent(clip).clipped(LAYOUT, EVERYWHERE, values / 2)
    (noised,) = sent(clip, (Noise.gaussian(1.0),)).clipped(LAYOUT, EVERYWHERE, values / 2)
    assert (noised.norm, noised.noised) == ((1.0, 2.0), True)


def test_one_norm_for_all_layers_is_one_for_each() -> None:
    (found,) = sent((Clip(1.0, per="layer"),), (Noise.gaussian(1.0),)).clipped(
        LAYOUT, EVERYWHERE, np.ones(12, np.float32)
    )
    assert found.norm == (1.0, 1.0)


def test_a_run_tells_norms_noise_and_factor_of_each_layer(runs: Runs) -> None:
    """For a model with personal layers, the values in the view are those of the update, clipped and noised."""
    link = {"use": "toy.layer_clip", "factor": 4.0, "norm": 0.02, "scale": 1e-4}
    model = {"use": "std.mlp", "hidden": [16]}
    known, truth = observed(runs.of(recipe_of("noised", [link], rounds=1, model=model)), "server", 0)
    update = known.update
    assert update is not None
    layer = update.layout.per_scalar(np.arange(2))
    assert update.sigma == pytest.approx(1e-4 / 4 * 2.0**layer)
    (clip,) = update.clips
    assert clip.norm == pytest.approx((0.005, 0.005), rel=1e-6)
    lengths = np.sqrt(np.bincount(layer, truth.update.astype(np.float64) ** 2))
    assert (lengths > 0.005).all()
    wanted = truth.update * (0.005 / lengths)[layer]
    off = (update.values - wanted) / update.sigma
    assert np.std(off[layer == 0]) == pytest.approx(1, rel=0.15)
    assert np.std(off[layer == 1]) == pytest.approx(1, rel=0.25)


# -- what a trainer says -----------------------------------------------------------------------------------------------


def test_a_trainer_that_says_nothing_gives_attacks_on_gradients_nothing_to_start_from() -> None:
    silent = meaning(None, 40, None)
    assert (silent.lr, silent.steps, silent.examples) == (None, None, 40)
    view = View("server", update=all_clear(0, 0, LAYOUT, np.zeros(12, np.float32), silent))
    assert UNSAID in Needs(model=False).unmet(view)
    assert Needs(model=False, loss=None).unmet(view) == ""


def test_steps_momentum_and_class_weights_follow_from_what_the_trainer_says() -> None:
    learns = Learns(lr=0.1, batch_size=16, epochs=3, momentum=0.5, weight_decay=0.01, class_weights=(1.0, 2.0))
    found = meaning(learns, 40, None)
    assert found == Meaning(
        lr=0.1, steps=9, batch_size=16, examples=40, epochs=3, momentum=0.5, weight_decay=0.01,
        class_weights=(1.0, 2.0),
    )  # fmt: skip
    whole = meaning(dataclasses.replace(learns, batch_size=None), 40, None)
    assert (whole.steps, whole.batch_size) == (3, 40)
    once = meaning(Learns(one_step=True, batch_size=10, lr=1.0), 40, None)
    assert (once.steps, once.examples, once.batch_size) == (1, 10, 10)


# -- bytes that nobody has proved to hide anything ---------------------------------------------------------------------


@pytest.mark.parametrize(("hides", "state"), [("values", Seen.ENCRYPTED), ("nothing proved", Seen.SCRAMBLED)])
def test_a_scramble_without_a_proof_is_not_called_hidden(hides: Any, state: Seen) -> None:
    assert sent((Scramble(hides=hides, numbers=FixedPoint(1.0, 0.0)),)).closed == state
    sealed = (Seal(scheme="test", opened_by="clients", numbers=FixedPoint(1.0, 0.0)),)
    assert sent(sealed).closed == Seen.ENCRYPTED


@pytest.mark.parametrize(("style", "state"), [("static", Seen.SCRAMBLED), ("keyed", Seen.ENCRYPTED)])
def test_who_has_no_key_is_told_whether_scrambled_words_hide_anything(runs: Runs, style: str, state: Seen) -> None:
    folder = runs.of(scrambled(style))
    update = observed(folder, "eavesdropper", 0)[0].update
    assert update is not None
    assert (update.states == state).all()
    assert update.shares()[state.name.lower()] == 1
    server = observed(folder, "server", 0)[0].update
    assert server is not None
    assert server.visible.all()  # it holds the key


def test_words_and_reasons_say_that_nothing_proves_static_words_to_hide_values(runs: Runs) -> None:
    results = attacked(
        runs.of(scrambled("static")), "attacks.labels", adversaries=["eavesdropper"], targets=[0],
        probe={"batch_size": 4}, metrics=["toy.count_error"],
    )  # fmt: skip
    found = next(result for key, result in results.items() if key != "summary")
    assert "nothing proves that it hides them" in shares_words(found["states"])
    needs = Needs(model=False, tensors=(("model", "any"),))
    update = observed(runs.of(scrambled("static")), "eavesdropper", 0)[0].update
    assert isinstance(update, ObservedUpdate)
    assert "no proof shows that the bytes sent instead hide them" in needs.unmet(
        View("eavesdropper", update=dataclasses.replace(update, meaning=Meaning(examples=4)))
    )


def scrambled(style: str) -> dict[str, Any]:
    """Everything goes as scrambled words."""
    return recipe_of(
        "noised", [{"use": "fas.scramble", "style": style}], rounds=1, postprocess={"noised": ["fas.scramble"]}
    )


def test_no_part_of_a_view_reads_options_of_components_or_looks_members_up() -> None:
    source = Path(__file__).parents[1] / "src/fedplug_attacks"
    files = [*source.glob("views/*.py"), *source.glob("workshop/[!d]*.py")]  # displays ask a stream for its encoding
    assert len(files) > 10
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "getattr(" not in text, file
        assert "hasattr(" not in text, file
