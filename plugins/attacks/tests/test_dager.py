"""Texts from spans: exact batches, gaps, LoRA, what no span tells, and the metric of texts; a whole run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug import Facts
from fedplug.api.errors import MetricError, ViewError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks._low_rank import Span, _visible_part
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport, checked
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.dager import Dager
from fedplug_attacks.tokens import TextFound
from fedplug_kit.static import check_component
from fedplug_std import _lora
from fedplug_std.lora import Lora
from fedplug_std.models import Gpt
from fedplug_std.torch_model import TorchModel
from fedplug_terminal.main import main
from hypothesis import given, settings
from hypothesis import strategies as st

VOCABULARY, POSITIONS = 40, 6


def attacked(texts: Any, rank: int = 0, noise: float = 0.0, hidden: float = 0.0, form: Any = "adaptive",
             causal: bool = True) -> AttackReport:  # fmt: skip
    """One step of gradient descent on texts; answers are the same texts, shifted."""
    module: Any = Gpt(Gpt.Options(width=32, heads=2)).build((POSITIONS,), VOCABULARY, 0, "cpu").module
    if rank:
        _lora.adapt(module, Lora.Options(rank=rank), (POSITIONS,), 0)
    if not causal:
        module = _Backwards(module)
    model = TorchModel(module, "cpu")
    given, answers = torch.from_numpy(texts), torch.from_numpy(np.roll(texts, -1, 1))
    loss = torch.nn.functional.cross_entropy(model.module(given).flatten(0, 1), answers.flatten())
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    rng = np.random.default_rng(1)
    update = -gradient + rng.normal(0, noise, gradient.shape).astype(np.float32)
    away = rng.random(len(update)) < hidden
    meaning = Meaning(lr=1.0, steps=1, examples=len(texts), batch_size=len(texts))
    observed = all_clear(0, 0, model.layout, update, meaning, away, noise)
    view = View(
        "server", update=observed, vector=model.get_vector(), model=model, num_classes=VOCABULARY, shape=(POSITIONS,),
        seed=2,
    )  # fmt: skip
    attack = Dager(Dager.Options(form=form))
    return checked(attack.attack(view, Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, ""))), view)


class _Backwards(torch.nn.Module):
    """Reads texts from their end."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Any) -> Any:
        return self.inner(tokens.flip(1)).flip(1)


def texts_of(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (count, POSITIONS))


def exact(report: AttackReport, texts: Any) -> int:
    assert report.texts is not None
    return len({text.tobytes() for text in texts} & {text.tobytes() for text in report.texts})


@pytest.mark.parametrize("name", ["attacks.dager", "attacks.text"])
def test_conform(name: str) -> None:
    check_component(name)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.integers(1, 5), st.floats(0, 0.01))
def test_what_entered_a_layer_is_in_the_span_and_nothing_else(seed: int, inputs: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    entered = rng.standard_normal((inputs, 12)).astype(np.float32)
    gradient = rng.standard_normal((30, inputs)) @ np.hstack([entered, np.ones((inputs, 1))])
    span = Span.of("layer", gradient + noise * rng.standard_normal(gradient.shape), noise, inputs, 0)
    assert span.rank - inputs in (0, 1)  # one direction in a thousand of noise alone is above the edge of noise
    assert np.count_nonzero(span.outside < 0.5) == inputs
    assert span.outside_of(entered).max() < 1e-8 + 50 * noise**2
    others = span.outside_of(rng.standard_normal((50, 12)).astype(np.float32))
    assert np.median(others) > 0.3


def test_spans_that_tell_nothing_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ViewError, match="full rank, 8, with 20 inputs behind it"):
        Span.of("layer", rng.standard_normal((30, 8)), 0.0, 20, 0)
    with pytest.raises(ViewError, match="exceeds its noise"):
        Span.of("layer", rng.standard_normal((30, 8)), 1.0, 2, 0)
    gaps = np.where(rng.random((30, 8)) < 0.9, np.nan, 1.0)
    with pytest.raises(ViewError, match="of 240 entries of the gradient of layer are hidden"):
        Span.of("layer", gaps, 0.0, 4, 0)


def test_the_visible_part_has_no_gap() -> None:
    hidden = np.zeros((20, 10), bool)
    hidden[:, 3] = hidden[7] = hidden[2, 5] = True
    rows, columns = _visible_part(hidden)
    assert not hidden[np.ix_(rows, columns)].any()
    assert (rows.sum(), columns.sum()) == (18, 9)


@pytest.mark.parametrize("count", [1, 4])
def test_batches_are_exact(count: int) -> None:
    texts = texts_of(count)
    report = attacked(texts)
    assert (exact(report, texts), report.unfit) == (count, "")
    assert report.metrics["outside"] < 1e-3


def test_a_batch_is_exact_also_where_entries_are_hidden_at_random_but_not_if_they_are_taken_for_0() -> None:
    texts = texts_of(1, 3)
    assert exact(attacked(texts, hidden=0.3), texts) == 1
    naive = attacked(texts, hidden=0.3, form="naive")
    assert naive.texts is None or naive.unfit


def test_adapters_tell_texts_of_fewer_tokens_than_their_rank() -> None:
    texts = texts_of(2)
    assert exact(attacked(texts, rank=20), texts) == 2
    report = attacked(texts, rank=4)
    assert report.status == "not_applicable"
    assert report.reason == "2 x 6 tokens are behind the update, and spans are of 4 dimensions at most"


def test_too_much_noise_is_inconclusive_and_other_models_do_not_apply() -> None:
    report = attacked(texts_of(2), noise=0.1)
    assert report.unfit or report.status == "diverged"
    report = attacked(texts_of(1), causal=False)
    assert report.status == "not_applicable"
    assert "depends on later tokens" in report.reason


def test_the_metric_of_texts() -> None:
    metric = TextFound(TextFound.Options())
    truth = Truth(np.zeros((2, 4), np.float32), np.zeros(2, int), 9, texts=np.array([[1, 2, 3, 4], [5, 6, 7, 8]]))
    scores = metric.score(AttackReport("finished", texts=np.array([[5, 6, 7, 8], [2, 1, 3, 4]])), truth)
    # Of the six true pairs of neighbours 5 6, 6 7, 7 8 and 3 4 were found.
    assert scores == pytest.approx({"text_in_place": 6 / 8, "texts_exact": 0.5, "rouge_1": 1.0, "rouge_2": 4 / 6})
    none = metric.score(AttackReport("finished", texts=np.array([[5, 6, 7, 8]])), truth)
    assert none["text_in_place"] == 0.5
    assert none["rouge_1"] == pytest.approx(2 * 4 / 12)
    with pytest.raises(MetricError, match="there are none here"):
        metric.score(AttackReport("finished", tokens=np.array([1])), truth)


@pytest.mark.slow
def test_the_default_set_finds_the_texts_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and looked at the dog. " * 60, encoding="utf-8")
    plain = {
        "name": "texts", "seed": 1, "rounds": 1,
        "data": {
            "use": "std.text", "file": str(tmp_path / "text.txt"), "context": 12, "clients": 2,
            "partition": {"use": "std.iid"},
        },
        "model": {"use": "std.gpt", "width": 32, "layers": 1}, "train": {"use": "std.sgd", "batch_size": 16, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean"},
    }  # fmt: skip
    run = fedplug.run(Recipe.from_plain(plain), output=tmp_path / "runs", quiet=True)
    monkeypatch.setattr(sys, "argv", ["fedplug", "attack", str(run.folder), "--adversary", "server"])
    assert not main()
    said = " ".join(capsys.readouterr().out.split())
    summary = json.loads((run.folder / "attacks" / "summary.json").read_text())
    rows = [row for row in summary["rows"] if row["attack"] == "attacks.dager" and row["probe_batch_size"] == 1]
    assert [(row["targets"], row["succeeded"], row["people"]["of"]) for row in rows] == [(2, 2, "text")]
    assert "the texts behind one step on 1 example" in said
