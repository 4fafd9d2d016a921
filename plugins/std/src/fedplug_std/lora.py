"""LoRA around any torch model of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import fedplug
from fedplug import Figure
from fedplug.api.errors import SetupError

from fedplug_std.options import LoraOptions

if TYPE_CHECKING:
    from fedplug_std.torch_model import TorchModel


class Lora(fedplug.ModelSource):
    """LoRA (Hu et al. 2022): a frozen model with two thin layers at each chosen layer; only these are trained and sent.

    A layer W x becomes W x + (alpha / rank) B A x, with A of `rank` rows, drawn as in `peft`, and B zero at first: so
    the model first equals the inner one. `around` is any torch model: `std.gpt`, a model of your own file, an object of
    a session. A language model is still judged by perplexity. Its weights are those of the recipe's seed, or those of
    `base`. The layout, and so every message, has A, B and the parameters in `trained`. All else never leaves a party,
    whatever its dtype.
    """

    inner: ClassVar[Mapping[str, str]] = {"around": "model"}
    around: fedplug.ModelSource

    class Options(LoraOptions):
        """The size and the layers of the adapters, and the inner model."""

    options: Options

    def refuses(self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]) -> str | None:
        """The inner model's refusal."""
        return self.around.refuses(shape, num_classes, per)

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int | None:
        """The inner model's; the adapters come on top."""
        return self.around.num_parameters(shape, num_classes)

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> TorchModel:
        """Builds the inner model, loads its base, freezes it, and puts the adapters into it.

        Raises:
            SetupError: the inner model is not a torch module, the base belongs to another model, or `targets` or
                `trained` name nothing that can be adapted or trained.
        """
        from fedplug_std import _lora, weights
        from fedplug_std.torch_model import TorchModel, of_any_dtype

        with of_any_dtype():
            within = self.around.build(shape, num_classes, seed, device)
        if not isinstance(within, TorchModel):
            raise SetupError(f"{self.name} needs a torch model, but {self.around.name} builds none")
        module, options = within.module, self.options
        if options.base is not None:
            base = options.base.file
            given = weights.read(base, options.base.read(), "base")
            weights.put(module, given, f"base {base}", "give the inner model the options of the base")
        _lora.adapt(module, options, shape, seed)
        return TorchModel(module, device, within.count)

    @property
    def judged_by(self) -> tuple[Figure, ...]:
        """Like the inner model's."""
        return self.around.judged_by

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Like the inner model's."""
        return self.around.figures(counts)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "; ".join(self._said())

    def _said(self) -> Iterator[str]:
        options = self.options
        yield f"rank {options.rank}, alpha {options.rank if options.alpha is None else options.alpha:g}"
        yield f"around {self.around.name} ({self.around.describe()})"
        if options.targets is not None:
            yield f"at {', '.join(options.targets)}"
        if options.trained:
            yield f"trains {', '.join(options.trained)} too"
        if options.base is not None:
            yield f"base {options.base.file} (sha256 {(options.base.sha256 or '')[:12]})"
