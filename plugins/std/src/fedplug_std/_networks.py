"""The torch modules behind `fedplug_std.models`. Each function gives a module that maps (n, C, H, W) to logits."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

_GROUPS = 8
_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def mlp(shape: tuple[int, ...], num_classes: int, hidden: Sequence[int]) -> nn.Module:
    """Fully connected layers `fc1`, `fc2`, ... with ReLU between them."""
    return nn.Sequential(OrderedDict([("flatten", nn.Flatten()), *_dense(math.prod(shape), hidden, num_classes)]))


def logistic(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """One fully connected layer `fc1`, all zeros."""
    module = mlp(shape, num_classes, ())
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def cnn(shape: tuple[int, ...], num_classes: int, hidden: int, norm: str = "batch") -> nn.Module:
    """C->32->64 with 3x3 kernels, batch or group norm, ReLU and 2x2 pooling; then `hidden` and the logits."""
    channels, height, width = shape
    normed = nn.BatchNorm2d if norm == "batch" else lambda channels: nn.GroupNorm(_GROUPS, channels)
    return nn.Sequential(
        OrderedDict(
            [
                ("conv1", nn.Conv2d(channels, 32, 3, padding=1)),
                ("norm1", normed(32)),
                ("relu1", nn.ReLU()),
                ("pool1", nn.MaxPool2d(2)),
                ("conv2", nn.Conv2d(32, 64, 3, padding=1)),
                ("norm2", normed(64)),
                ("relu2", nn.ReLU()),
                ("pool2", nn.MaxPool2d(2)),
                ("flatten", nn.Flatten()),
                *_dense(64 * (height // 4) * (width // 4), [hidden], num_classes),
            ]
        )
    )


def lenet5(shape: tuple[int, ...], num_classes: int, activation: str) -> nn.Module:
    """5x5 convolutions with 6 and 16 channels and average pooling, then 120, 84 and the logits."""
    channels, height, width = shape
    padding = 2 if min(height, width) < 32 else 0
    rows, columns = (((side + 2 * padding - 4) // 2 - 4) // 2 for side in (height, width))
    act = _ACTIVATIONS[activation]
    return nn.Sequential(
        OrderedDict(
            [
                ("conv1", nn.Conv2d(channels, 6, 5, padding=padding)),
                ("act1", act()),
                ("pool1", nn.AvgPool2d(2)),
                ("conv2", nn.Conv2d(6, 16, 5)),
                ("act2", act()),
                ("pool2", nn.AvgPool2d(2)),
                ("flatten", nn.Flatten()),
                *_dense(16 * rows * columns, [120, 84], num_classes, act),
            ]
        )
    )


def dlg_lenet(shape: tuple[int, ...], num_classes: int, activation: str) -> nn.Module:
    """Three 5x5 convolutions with 12 channels and strides 2, 2, 1, then the logits; parameters uniform in +-0.5."""
    channels, height, width = shape
    act = _ACTIVATIONS[activation]
    rows, columns = ((side + 3) // 4 for side in (height, width))
    module = nn.Sequential(
        OrderedDict(
            [
                ("conv1", nn.Conv2d(channels, 12, 5, stride=2, padding=2)),
                ("act1", act()),
                ("conv2", nn.Conv2d(12, 12, 5, stride=2, padding=2)),
                ("act2", act()),
                ("conv3", nn.Conv2d(12, 12, 5, padding=2)),
                ("act3", act()),
                ("flatten", nn.Flatten()),
                *_dense(12 * rows * columns, [], num_classes),
            ]
        )
    )
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return module


def alexnet(
    shape: tuple[int, ...], num_classes: int, channels: Sequence[int], hidden: Sequence[int], dropout: float
) -> nn.Module:
    """Five 3x3 convolutions, the first with stride 2, pooling after the first two and to 2x2 after the last."""
    first, second, third, fourth, fifth = channels
    layers: list[tuple[str, nn.Module]] = [
        ("conv1", nn.Conv2d(shape[0], first, 3, stride=2, padding=1)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(first, second, 3, padding=1)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)),
        ("conv3", nn.Conv2d(second, third, 3, padding=1)),
        ("relu3", nn.ReLU()),
        ("conv4", nn.Conv2d(third, fourth, 3, padding=1)),
        ("relu4", nn.ReLU()),
        ("conv5", nn.Conv2d(fourth, fifth, 3, padding=1)),
        ("relu5", nn.ReLU()),
        # On 32x32 images this is the usual 2x2 pooling; it makes the rest independent of the image size.
        ("pool5", nn.AdaptiveMaxPool2d(2)),
        ("flatten", nn.Flatten()),
        *_dense(fifth * 4, hidden, num_classes, dropout=dropout),
    ]
    return nn.Sequential(OrderedDict(layers))


def resnet(name: str, shape: tuple[int, ...], num_classes: int, small_input: bool | None) -> nn.Module:
    """A torchvision ResNet; with `small_input` its 7x7 stem and pooling give way to one 3x3 convolution."""
    module = from_torchvision(name, shape, num_classes)
    if small_input or (small_input is None and min(shape[1:]) <= 64):
        module.conv1 = _like_conv(nn.Conv2d(shape[0], 64, 3, padding=1, bias=False))
        module.maxpool = nn.Identity()
    return module


def from_torchvision(name: str, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A torchvision classifier without pretrained weights, its first convolution fitted to the image's channels."""
    from fedplug_std.torchvision_import import torchvision

    module: nn.Module = torchvision().models.get_model(name, weights=None, num_classes=num_classes)
    if shape[0] != 3:
        path, first = next((path, part) for path, part in module.named_modules() if isinstance(part, nn.Conv2d))
        parent, _, child = path.rpartition(".")
        fitted = nn.Conv2d(
            shape[0],
            first.out_channels,
            kernel_size=(first.kernel_size[0], first.kernel_size[1]),
            stride=(first.stride[0], first.stride[1]),
            padding=first.padding,  # type: ignore[arg-type]
            bias=first.bias is not None,
        )
        setattr(module.get_submodule(parent), child, _like_conv(fitted))
    return module


def _like_conv(conv: nn.Conv2d) -> nn.Conv2d:
    """Initial weights as torchvision gives them to the convolutions of ResNet, MobileNetV2 and EfficientNet."""
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _dense(
    inputs: int, hidden: Sequence[int], outputs: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0
) -> list[tuple[str, nn.Module]]:
    """Named fully connected layers; `fc1`, ... with the activation after all but the last."""
    if inputs <= 0:
        raise ValueError("convolutions and pooling leave nothing of the image")
    layers: list[tuple[str, nn.Module]] = []
    for number, width in enumerate(hidden, start=1):
        if dropout:
            layers.append((f"drop{number}", nn.Dropout(dropout)))
        layers += [(f"fc{number}", nn.Linear(inputs, width)), (f"fcact{number}", activation())]
        inputs = width
    return [*layers, (f"fc{len(hidden) + 1}", nn.Linear(inputs, outputs))]
