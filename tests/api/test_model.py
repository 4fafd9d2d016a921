"""The core's requirements of a model. The kit's model meets them."""

from __future__ import annotations

import numpy as np
from fedplug import ClientData, Evaluation, Examples, Model
from fedplug_kit.parts import CLASSES, SHAPE, TwoLayers


def test_a_model_is_a_vector_buffers_and_an_evaluation() -> None:
    model: Model = TwoLayers(TwoLayers.Options(hidden=3)).build(SHAPE, CLASSES, 1, "cpu")
    model.set_vector(np.zeros(model.layout.size, np.float32))
    assert not model.get_vector().any()
    assert model.get_buffers() == {}
    some = Examples(np.zeros((8, *SHAPE), np.uint8), np.arange(8) % CLASSES)
    found = model.evaluate(some, ClientData(some, some, some, classes=tuple("abcd"), mean=(0.5,), std=(0.3,)))
    # All weights are 0, so all classes are alike: cross entropy log K, and the first class is taken.
    assert (found.correct, found.count) == (2, 8)
    np.testing.assert_allclose(found.loss, 8 * np.log(CLASSES), rtol=1e-6)
    assert Evaluation(1, 2, 0.5).task == {}


def test_a_model_that_says_no_more_evaluates_several_sets_one_by_one() -> None:
    class Counts(Model):
        def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
            return Evaluation(0, len(examples), 0.0)

    some = Examples(np.zeros((8, 2), np.uint8), np.arange(8))
    sets = [some, some.take(slice(0, 3))]
    found = Counts().evaluate_each(sets, ClientData(some, some, some, classes=(), mean=(), std=()))  # type: ignore[abstract]
    assert [each.count for each in found] == [8, 3]
