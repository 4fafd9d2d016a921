"""The usual tasks: one class an example, one a pixel, the next token, numbers, several labels.

torch is imported inside the methods: nothing on the path of `fedplug list`, `show` and `check` imports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Field, Figure
from fedplug.api.data import ACCURACY

if TYPE_CHECKING:
    import torch
    from fedplug import Examples
    from fedplug.api.data import About
    from numpy.typing import NDArray

_WIDEST = 1000.0
"""Largest magnitude of unscaled inputs; training cannot start with larger ones."""


class Classification(fedplug.Task):
    """One class an example: cross entropy, judged by accuracy. The default task of a recipe."""

    judged_by: tuple[Figure, ...] = (ACCURACY,)

    @property
    def descends(self) -> str:
        """Cross entropy."""
        return "cross_entropy"

    def losses(self, outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Cross entropy of each example, in nats."""
        return cross_entropies(outputs, answers)

    def counts(self, outputs: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        """Right answers, and answers."""
        return {"correct": int((outputs.argmax(1) == answers).sum()), "answers": answers.numel()}

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """The share of right answers."""
        return {"accuracy": counts["correct"] / counts["answers"]} if counts["answers"] else {}

    def refuses(self, examples: Examples, about: About) -> str | None:
        """Answers that are not classes."""
        return _beyond(examples, about, 1)


class Segmentation(Classification):
    """One class a pixel: cross entropy, judged by the mean IoU over the classes, and by the share of right pixels."""

    judged_by = (Figure("mean IoU", better="higher"), ACCURACY)

    def counts(self, outputs: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        """For each class, the number of pixels that have it, that are predicted as it, and both."""
        import torch

        found, classes = outputs.argmax(1), outputs.shape[1]
        of = {"both": answers[found == answers], "are": answers, "called": found}
        sums = {what: torch.bincount(pixels.flatten(), minlength=classes).tolist() for what, pixels in of.items()}
        each = {f"{what} {label}": float(sum_) for what, all_ in sums.items() for label, sum_ in enumerate(all_)}
        return super().counts(outputs, answers) | each

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Intersection over union, mean over the classes that occur or are predicted (Everingham et al. 2010)."""
        shares = []
        for label in range(sum(name.startswith("are ") for name in counts)):
            both, are, called = (counts[f"{what} {label}"] for what in ("both", "are", "called"))
            if union := are + called - both:
                shares.append(both / union)
        return {"mean IoU": math.fsum(shares) / len(shares) if shares else math.nan} | super().figures(counts)

    def guesses(self, answers: NDArray[Any]) -> dict[str, float]:
        """The commonest class at every pixel."""
        counts = np.bincount(answers.reshape(-1))
        share = float(counts.max() / counts.sum())
        return {"mean IoU": share / int(np.count_nonzero(counts)), "accuracy": share}

    def refuses(self, examples: Examples, about: About) -> str | None:
        """Answers that are not one class a pixel."""
        return _beyond(examples, about, 3)


class LanguageModel(fedplug.Task):
    """The next token at every position: cross entropy, judged by perplexity, and by the share of right predictions.

    The model takes tokens (n, T) and gives numbers (n, T, vocabulary); answers are tokens (n, T).
    """

    class Options(fedplug.Options):
        """The answer that does not count."""

        ignore: int = Field(-1, le=-1, description="an answer that does not count, for example after a text's end")

    judged_by = (Figure("perplexity", better="lower"), Figure("tokens foreseen", better="higher"))

    @property
    def descends(self) -> str:
        """Cross entropy at every position, not of one class an example."""
        return "cross entropy of tokens"

    def losses(self, outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy over the positions of each example that count, in nats."""
        each, counting = self._each(outputs, answers)
        return each.sum(1) / counting.sum(1).clamp(min=1)

    def _each(self, outputs: torch.Tensor, answers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        ignored = self.options.ignore
        each = torch.nn.functional.cross_entropy(
            outputs.flatten(0, 1), answers.flatten(), reduction="none", ignore_index=ignored
        )
        return each.view(answers.shape), answers != ignored

    def counts(self, outputs: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        """Number of tokens, their cost in nats, and the number of right predictions."""
        each, counting = self._each(outputs, answers)
        right = (outputs.argmax(2) == answers) & counting
        return {"tokens": int(counting.sum()), "nats": float(each.double().sum()), "foreseen": int(right.sum())}

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Perplexity: e to the power of the mean cross entropy of a token."""
        tokens = counts["tokens"] or math.nan
        mean = counts["nats"] / tokens
        perplexity = math.exp(mean) if mean < 700 else math.inf
        return {"perplexity": perplexity, "tokens foreseen": counts["foreseen"] / tokens}

    def guesses(self, answers: NDArray[Any]) -> dict[str, float]:
        """How common each token is, wherever it stands; and the commonest token."""
        counts = np.unique(answers[answers != self.options.ignore], return_counts=True)[1]
        if not counts.size:
            return {}
        shares = counts / counts.sum()
        perplexity = float(np.exp(-(shares * np.log(shares)).sum()))
        return {"perplexity": perplexity, "tokens foreseen": float(shares.max())}

    def refuses(self, examples: Examples, about: About) -> str | None:
        """Tokens that are not in the vocabulary."""
        inputs, size = examples.inputs, len(about.classes)
        if inputs.dtype.kind not in "iu" or inputs.ndim != 2:
            return f"inputs are {inputs.dtype} {inputs.shape}, but must be tokens, whole numbers (n, positions)"
        if about.mean:
            return "tokens cannot be standardised; leave mean and std of the data empty"
        if examples.answers.shape != inputs.shape:
            return f"answers are {examples.answers.shape} for inputs {inputs.shape}; give a token for each position"
        answers = examples.answers[examples.answers != self.options.ignore]
        for what, tokens in (("inputs", inputs), ("answers", answers)):
            if tokens.size and (tokens.min() < 0 or tokens.max() >= size):
                return (
                    f"{what} hold the tokens {tokens.min()} to {tokens.max()}, but the vocabulary has 0 to {size - 1}; "
                    "name every token in the classes of the data, or make tokens with the same vocabulary"
                )
        return None


class Regression(fedplug.Task):
    """Numbers: squared error, judged by RMSE and by R2.

    The model gives (n, numbers), and answers have the same shape; with several numbers both figures are over all of
    them. With `centre` and `scale` the model learns numbers around 0, and its loss is in units of the scale. RMSE is in
    the unit of the data.
    """

    class Options(fedplug.Options):
        """In which unit."""

        unit: str = Field("", description="unit of the predicted numbers, such as m; shown with RMSE")
        centre: float = Field(
            0.0, allow_inf_nan=False, description="added to the model's output; a public guess at the typical answer"
        )
        scale: float = Field(
            1.0, gt=0, allow_inf_nan=False, description="factor on the model's output before that; public as well"
        )

    @property
    def judged_by(self) -> tuple[Figure, ...]:
        """The root of the mean squared error leads."""
        return Figure("RMSE", better="lower", unit=self.options.unit), Figure("R2", better="higher")

    @property
    def descends(self) -> str:
        """The squared error."""
        return "squared error"

    def losses(self, outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Squared error of each example over the scale's square, mean over its numbers."""
        wanted = (answers - self.options.centre) / self.options.scale
        each: torch.Tensor = (outputs.reshape(answers.shape) - wanted).square()
        return each.reshape(len(answers), -1).mean(1)

    def counts(self, outputs: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        """Count of numbers, their sum, the sum of their squares, and that of squared errors; in float64."""
        real = answers.double()
        said = outputs.reshape(answers.shape).double() * self.options.scale + self.options.centre
        return {
            "numbers": real.numel(), "sum": float(real.sum()), "squares": float(real.square().sum()),
            "errors": float((said - real).square().sum()),
        }  # fmt: skip

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """RMSE, and R2: the share of the answers' variance that is explained; NaN if all answers are one number."""
        n = counts["numbers"] or math.nan
        spread = counts["squares"] - counts["sum"] ** 2 / n
        explained = 1 - counts["errors"] / spread if spread > 1e-12 * abs(counts["squares"]) else math.nan
        return {"RMSE": math.sqrt(counts["errors"] / n), "R2": explained}

    def guesses(self, answers: NDArray[Any]) -> dict[str, float]:
        """The mean of all answers."""
        return {"RMSE": float(np.std(answers, dtype=np.float64)), "R2": 0.0}

    def refuses(self, examples: Examples, about: About) -> str | None:
        """Answers that are not numbers, and inputs too large to learn from."""
        return _not_numbers(examples, about) or unscaled(examples, about)


class MultiLabel(fedplug.Task):
    """Any of several labels: binary cross entropy of each, judged by micro and macro F1.

    The model gives (n, labels), and answers have the same shape, with 0 or 1. A label is predicted if its number is
    above 0.
    """

    judged_by = (Figure("micro F1", better="higher"), Figure("macro F1", better="higher"))

    @property
    def descends(self) -> str:
        """Binary cross entropy."""
        return "binary cross entropy"

    def losses(self, outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """Binary cross entropy of each example, mean over the labels, in nats."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        each = binary_cross_entropy_with_logits(outputs, answers.to(outputs.dtype), reduction="none")
        return each.reshape(len(answers), -1).mean(1)

    def counts(self, outputs: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        """For each label, how often it occurs, is predicted, and both."""
        called, there = outputs > 0, answers > 0.5
        of = {"both": called & there, "there": there, "called": called}
        sums = {what: each.sum(0).tolist() for what, each in of.items()}
        return {f"{what} {k}": float(number) for what, all_ in sums.items() for k, number in enumerate(all_)}

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """F1 of all labels together, and the mean of each label's, without labels that neither occur nor are
        predicted."""
        labels = range(sum(name.startswith("there ") for name in counts))
        both, there, called = ([counts[f"{what} {k}"] for k in labels] for what in ("both", "there", "called"))
        each = [2 * b / (t + c) for b, t, c in zip(both, there, called, strict=True) if t + c]
        total = math.fsum(there) + math.fsum(called)
        return {
            "micro F1": 2 * math.fsum(both) / total if total else math.nan,
            "macro F1": math.fsum(each) / len(each) if each else math.nan,
        }

    def guesses(self, answers: NDArray[Any]) -> dict[str, float]:
        """Every label of every example, which is the best that F1 can be without a look."""
        shares = answers.mean(0, dtype=np.float64)
        whole = float(shares.mean())
        return {"micro F1": 2 * whole / (1 + whole), "macro F1": float((2 * shares / (1 + shares)).mean())}

    def refuses(self, examples: Examples, about: About) -> str | None:
        """Answers that are not 0 or 1 for each label, and inputs too large to learn from."""
        if why := _not_numbers(examples, about):
            return why
        answers = examples.answers
        if not np.isin(answers, (0, 1)).all():
            return f"answers go from {answers.min():g} to {answers.max():g}, but each must be 0 or 1"
        return unscaled(examples, about)


def cross_entropies(outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """The cross entropy of each example, (n,), in nats: a mean over its pixels where those have answers."""
    import torch

    each = torch.nn.functional.cross_entropy(outputs, answers, reduction="none")
    return each if each.ndim == 1 else each.reshape(len(each), -1).mean(1)


def unscaled(examples: Examples, about: About) -> str | None:
    """A column of unscaled inputs that is too large to learn from, and the remedy."""
    inputs = examples.inputs
    if about.mean or inputs.dtype.kind != "f" or not inputs.size or np.abs(inputs).max() <= _WIDEST:
        return None
    columns = inputs.reshape(len(inputs), -1)
    column = int(np.abs(columns).max(0).argmax())
    named = about.columns[column] if column < len(about.columns) else column
    return (
        f"column {named} of the inputs goes from {columns[:, column].min():g} to {columns[:, column].max():g} and "
        "reaches the model unscaled; scale every column to about -1 to 1, by public numbers (option scale of "
        "std.table)"
    )


def _not_numbers(examples: Examples, about: About) -> str | None:
    answers, wanted = examples.answers, len(about.classes)
    if examples.targets is None or answers.shape[1:] != (wanted,):
        there = "one class an example" if examples.targets is None else f"{answers.dtype} {answers.shape}"
        return f"answers are {there}, but must be targets (n, {wanted}), one for each name in the classes of the data"
    return None


def _beyond(examples: Examples, about: About, dimensions: int) -> str | None:
    answers, classes = examples.answers, len(about.classes)
    if answers.dtype.kind not in "iu" or answers.ndim != dimensions:
        said = "one class an example" if dimensions == 1 else "one class a pixel"
        return f"answers are {answers.dtype} {answers.shape}, but must be {said}"
    if answers.size and (answers.min() < 0 or answers.max() >= classes):
        return f"answers are the classes {answers.min()} to {answers.max()}, but there are {classes}, from 0"
    return None
