"""The models of the papers, from a small perceptron to the usual image networks, without pretrained weights.

The components hold options only; the torch modules are in `_networks`. Weights depend on the recipe's seed alone and
building leaves torch's global generator as it was.
"""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import fedplug
from fedplug import Field
from pydantic import model_validator

if TYPE_CHECKING:
    import torch

    from fedplug_std.torch_model import TorchModel

Width = Annotated[int, Field(ge=1)]


def dense(*widths: int) -> int:
    """Parameters of fully connected layers with bias, from one width to the next."""
    return convolutions(1, *widths)


def convolutions(kernel: int, *channels: int) -> int:
    """Parameters of convolutions with bias, from one number of channels to the next; `kernel` is height by width."""
    return sum((kernel * before + 1) * after for before, after in pairwise(channels))


class _Network(fedplug.ModelSource):
    """A network that gives one class an example."""

    _least: ClassVar[int] = 0
    """The shortest side of its images (C, H, W); 0: it takes any shape."""

    def refuses(self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]) -> str | None:
        """Refuses data with a class a pixel; where it takes images, other data and images that are too small."""
        if per == "pixel":
            return (
                "it gives one class an example, but these need one a pixel; use a model for pixels, such as fedre.unet"
            )
        if self._least and len(shape) != 3:
            return "it takes images (C, H, W); use std.mlp"
        if self._least and min(shape[1:]) < self._least:
            return f"it takes images of at least {self._least}x{self._least}; use larger images or std.mlp"
        return None

    @abc.abstractmethod
    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """The torch module for examples of that shape."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> TorchModel:
        """Builds the model for examples that it does not refuse."""
        return build(lambda: self.network(shape, num_classes), shape, seed, device)


class Mlp(_Network):
    """Multilayer perceptron with ReLU; 784-256-128-10 on MNIST has 235,146 parameters.

    Fully connected layers with torch's default initial weights. `hidden: [64]` on MNIST is SenseCrypt's (50,890). It
    takes tables as well as images: a row counts as an image of one line (`std.arrays`).
    """

    class Options(fedplug.Options):
        """Its widths."""

        hidden: tuple[Width, ...] = Field((256, 128), description="widths of the hidden layers; [] for a linear model")

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its layers."""
        return dense(math.prod(shape), *self.options.hidden, num_classes)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """It flattens examples of any shape."""
        from fedplug_std import _networks

        return _networks.mlp(shape, num_classes, self.options.hidden)


class Logistic(_Network):
    """Multinomial logistic regression: p(class) = softmax(W x + b) (Bishop 2006, Sec. 4.3.4); convex, for tables too.

    W and b begin at zero, so that all classes are equal before round 1. It has one matrix: 7,850 parameters on MNIST,
    which is few to noise. A row of a table counts as an image of one line (`std.arrays`).
    """

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its layer."""
        return dense(math.prod(shape), num_classes)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """It flattens examples of any shape, and draws nothing."""
        from fedplug_std import _networks

        return _networks.logistic(shape, num_classes)


class Cnn(_Network):
    """Two 3x3 convolutions (32 and 64 channels) with batch norm, ReLU and pooling, then two fully connected layers.

    SelectiveShield's SimpleCNN (Sec. 5: two convolutional and two fully connected layers). `norm: group` replaces the
    paper's batch norm by group norm (Wu & He 2018) in eight groups: the same number of parameters, but no batch
    statistics, so that DP-SGD can train it and only parameters travel.
    """

    _least = 4

    class Options(fedplug.Options):
        """Its width and its normalisation."""

        hidden: int = Field(256, ge=1, description="width of the first fully connected layer")
        norm: Literal["batch", "group"] = Field(
            "batch", description="batch norm; or group norm of eight groups, which mixes no examples, for DP-SGD"
        )

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its convolutions, norms and layers."""
        pooled = 64 * (shape[1] // 4) * (shape[2] // 4)
        return convolutions(9, shape[0], 32, 64) + 2 * (32 + 64) + dense(pooled, self.options.hidden, num_classes)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """For images of at least 4x4."""
        from fedplug_std import _networks

        return _networks.cnn(shape, num_classes, self.options.hidden, self.options.norm)


class LeNet5(_Network):
    """LeNet-5 (LeCun et al. 1998): two 5x5 convolutions, three fully connected layers; 61,706 parameters on MNIST.

    As in most papers that attack it: average pooling, all connections between the feature maps, plain logits. Images
    narrower than 32 are padded by two pixels on each side, like LeCun's 28x28 ones.

    `variant: dlg` with `activation: sigmoid` is the network of the first gradient inversion (Zhu et al. 2019, Sec. 4):
    twice differentiable, strides instead of pooling, and large random weights.
    """

    class Options(fedplug.Options):
        """Its activation and its variant."""

        activation: Literal["relu", "sigmoid", "tanh"] = Field(
            "relu", description="tanh is the original's; sigmoid is what the first gradient-inversion papers use"
        )
        variant: Literal["lecun", "dlg"] = Field(
            "lecun",
            description="dlg: three 5x5 convolutions of 12 channels with strides 2, 2, 1, one fully connected layer, "
            "initial parameters uniform in +-0.5",
        )

    @property
    def _least(self) -> int:  # type: ignore[override]
        return 1 if self.options.variant == "dlg" else 12

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its convolutions and layers."""
        channels, *sides = shape
        if self.options.variant == "dlg":
            rows, columns = ((side + 3) // 4 for side in sides)
            return convolutions(25, channels, 12, 12, 12) + dense(12 * rows * columns, num_classes)
        padded = 4 if min(sides) < 32 else 0
        rows, columns = (((side + padded - 4) // 2 - 4) // 2 for side in sides)
        return convolutions(25, channels, 6, 16) + dense(16 * rows * columns, 120, 84, num_classes)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """For images of at least 12x12, or of any size for the dlg variant."""
        from fedplug_std import _networks

        network = _networks.dlg_lenet if self.options.variant == "dlg" else _networks.lenet5
        return network(shape, num_classes, self.options.activation)


class AlexNet(_Network):
    """AlexNet (Krizhevsky et al. 2012) with the 3x3 kernels and strides usual for 32x32 images.

    Five convolutions, three fully connected layers with dropout; 23,272,266 parameters on CIFAR-10 by default.
    """

    _least = 7

    class Options(fedplug.Options):
        """Its widths."""

        channels: tuple[Width, Width, Width, Width, Width] = Field(
            (64, 192, 384, 256, 256), description="channels of the five convolutions"
        )
        hidden: tuple[Width, ...] = Field((4096, 4096), description="widths of the fully connected layers")
        dropout: float = Field(0.5, ge=0, lt=1, description="share of values dropped before each hidden layer")

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its convolutions and layers."""
        chosen = self.options
        convolved = convolutions(9, shape[0], *chosen.channels)
        return convolved + dense(4 * chosen.channels[-1], *chosen.hidden, num_classes)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """For images of at least 7x7."""
        from fedplug_std import _networks

        chosen = self.options
        return _networks.alexnet(shape, num_classes, chosen.channels, chosen.hidden, chosen.dropout)


class _Published(_Network):
    """One of torchvision's."""

    _least = 1
    _module: ClassVar[str]
    _sizes: ClassVar[tuple[int, int, int]]
    """Parameters without the first convolution and the head, those of the first for each channel, width before the
    head.
    """

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Torchvision's, with its first convolution and its head."""
        within, first, width = self._sizes
        return within + first * shape[0] + dense(width, num_classes)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """Torchvision's."""
        from fedplug_std import _networks

        return _networks.from_torchvision(self._module, shape, num_classes)


class _ResNet(_Published):
    """A ResNet, with a small stem for small images."""

    class Options(fedplug.Options):
        """Its stem."""

        small_input: bool | None = Field(
            None,
            description="a 3x3 stem without pooling, as for 32x32 images (He et al. 2016, Sec. 4.2); null: if images "
            "are at most 64 pixels wide",
        )

    options: Options

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Torchvision's, with its first convolution and its head."""
        small = self.options.small_input or (self.options.small_input is None and min(shape[1:]) <= 64)
        return super().num_parameters(shape, num_classes) - (64 * 40 * shape[0] if small else 0)

    def network(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """Torchvision's, or the same with a small stem."""
        from fedplug_std import _networks

        return _networks.resnet(self._module, shape, num_classes, self.options.small_input)


class ResNet18(_ResNet):
    """ResNet-18 (He et al. 2016), torchvision's; with a small stem for small images."""

    _module, _sizes = "resnet18", (11_167_104, 64 * 49, 512)


class ResNet50(_ResNet):
    """ResNet-50 (He et al. 2016), torchvision's; with a small stem for small images."""

    _module, _sizes = "resnet50", (23_498_624, 64 * 49, 2_048)


class DenseNet121(_Published):
    """DenseNet-121 (Huang et al. 2017), torchvision's."""

    _module, _sizes = "densenet121", (6_944_448, 64 * 49, 1_024)
    _least = 29


class EfficientNetB0(_Published):
    """EfficientNet-B0 (Tan & Le 2019), torchvision's."""

    _module, _sizes = "efficientnet_b0", (4_006_684, 32 * 9, 1_280)


class MobileNetV2(_Published):
    """MobileNetV2 (Sandler et al. 2018), torchvision's."""

    _module, _sizes = "mobilenet_v2", (2_223_008, 32 * 9, 1_280)


class Gpt(fedplug.ModelSource):
    """A small transformer that predicts the next token (Radford et al. 2019, GPT-2's blocks), built from its widths.

    Token and position embeddings, pre-norm blocks of causal attention and a GELU layer four times as wide, a last norm,
    and a linear layer over the vocabulary. It mixes no examples, so DP-SGD can train it. For the task
    `std.language_model`, whose figure is perplexity; `std.lora` adapts it.
    """

    class Options(fedplug.Options):
        """Its widths."""

        width: int = Field(64, ge=1, description="width of the embedding; the heads share it")
        layers: int = Field(2, ge=1, description="how many blocks")
        heads: int = Field(2, ge=1, description="attention heads in a block; they divide the width")

        @model_validator(mode="after")
        def _divided(self) -> Self:
            if self.width % self.heads:
                raise ValueError(f"heads={self.heads} must divide width={self.width}")
            return self

    def refuses(self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]) -> str | None:
        """Refuses data that are not sequences of tokens."""
        return None if len(shape) == 1 else "it takes tokens (positions); use data such as std.text"

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its embeddings, blocks, last norm and head."""
        width: int = self.options.width
        blocks: int = self.options.layers
        block = 4 * width + dense(width, 3 * width) + dense(width, width) + dense(width, 4 * width, width)
        return (num_classes + shape[0]) * width + blocks * block + 2 * width + dense(width, num_classes)

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> TorchModel:
        """Builds the model for tokens (positions) of a vocabulary of `num_classes`."""
        from fedplug_std import _gpt

        chosen = self.options
        return build(
            lambda: _gpt.Gpt(num_classes, shape[0], chosen.width, chosen.layers, chosen.heads), shape, seed, device
        )


def build(
    make: Callable[[], torch.nn.Module], shape: tuple[int, ...], seed: int, device: str, count: Any = None
) -> TorchModel:
    """Makes the module with weights of this seed and checks that it takes an example of this shape, or such tokens.

    Args:
        make: makes it.
        shape: of an example.
        seed: of its weights.
        device, count: as `TorchModel` takes them.

    Raises:
        DataError: it does not.
        SetupError: it does not fit into this machine's memory.
    """
    import torch
    from fedplug.api.errors import DataError, SetupError

    from fedplug_std.torch_model import TorchModel, seeded, tried

    with seeded(seed):
        try:
            module = make()
            with torch.no_grad():
                tried(module.eval(), shape)
        except (RuntimeError, ValueError, MemoryError) as error:
            # torch has no separate class for this.
            if isinstance(error, MemoryError) or re.search("allocate|enough memory|overflow", str(error)):
                raise SetupError(
                    f"the model does not fit into this machine's memory ({error}); make it smaller: fewer or narrower "
                    "layers, smaller images"
                ) from error
            size = "x".join(map(str, shape))
            remedy = "convert it with .float()" if "dtype" in str(error) else "use larger images or std.mlp"
            raise DataError(f"this model cannot take examples of shape {size}: {error}; {remedy}") from error
    if why := untrainable(module):
        raise SetupError(why)
    try:
        return TorchModel(module.train(), device, count)
    except ValueError as error:  # a parameter of another type
        raise SetupError(str(error)) from error


def untrainable(module: torch.nn.Module) -> str:
    """Why no run can train a module that answers examples; empty if nothing is known against it."""
    from torch.nn.parameter import is_lazy

    kind, named = type(module).__name__, [*module.named_parameters()]
    if lazy := [name for name, parameter in named if is_lazy(parameter)]:
        return f"parameter {lazy[0]} has no size, since no example reaches it; give it one, or remove it from {kind}"
    if not any(parameter.requires_grad for _, parameter in named):
        return f"{kind} has no trainable parameter; give it a layer that learns, or requires_grad_(True)"
    for name, parameter in named:
        if not parameter.is_meta and parameter.dtype.is_floating_point and not bool(parameter.isfinite().all()):
            return f"parameter {name} holds NaN or infinite values before any training; correct how {kind} begins"
    return ""
