"""Networks of torchvision and of timm without their heads, as functions of images."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug.api.errors import DataError, SetupError
from fedplug_std import weights
from fedplug_std.torchvision_import import torchvision
from torch import nn

from fedplug_features import files
from fedplug_features.base import Function, to_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REMEDY = "name the network of this file (model), or fetch that of the network"
_HASH = re.compile(r"-([0-9a-f]{8,})\.pth$")
"""torchvision's files have the first letters of their SHA-256 in their names."""
_DENSE = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)$")
"""Names in torchvision's files of DenseNet, which are older than its modules."""


def of_torchvision(model: str, file: str | None, sha256: str | None, root: str | None) -> tuple[Path, bytes, str]:
    """A file of weights, what it holds, and its SHA-256; without a name, the one that torchvision publishes.

    Raises:
        DataError: torchvision has no such network, or the file is missing or another one.
    """
    library = torchvision().models
    known = library.list_models(module=library)
    if model not in known:
        near = [name for name in known if model.lower().replace("-", "_") in name] or known
        shown = ", ".join(near[:8]) + (", ..." if len(near) > 8 else "")
        raise DataError(f"torchvision has no network {model} for classes of images; it has {shown}")
    url: str = library.get_model_weights(model).DEFAULT.url
    published = url.rpartition("/")[2]
    place = files.located(root, file or published, f"fetch {url}, put it there, or name another file: weights")
    content, found = files.content_of(place, sha256)
    if file is None and (stated := _HASH.search(published)) and not found.startswith(stated[1]):
        raise DataError(f"{place} is damaged: its sha256 is {found}, and its name says {stated[1]}; fetch {url} again")
    return place, content, found


def without_head(model: str, place: Path, content: bytes) -> nn.Module:
    """A network of torchvision with the weights of a file, that gives what its last layer gets.

    Raises:
        DataError: it ends with no fully connected layer.
        SetupError: the file cannot be read, or belongs to another network.
    """
    found = {_DENSE.sub(r"\1\2", name): each for name, each in weights.read(place.name, content, "weights").items()}
    more = {"init_weights": False} if model in ("googlenet", "inception_v3") else {}
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten, and nobody else's numbers change
        network: nn.Module = torchvision().models.get_model(model, weights=None, **more)
    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if not layers or layers[-1][1].out_features != 1000:
        raise DataError(f"{model} ends with no fully connected layer, so it has no head to leave out; choose resnet18")
    head = layers[-1][0]
    network.set_submodule(head, nn.Identity())
    weights.put(network, found, f"weights {place}", _REMEDY, (f"{head}.",))
    return network


def of_timm(model: str, place: Path, content: bytes, length: float | None) -> Function:
    """A network of timm with the weights of a file, that gives what its head gets.

    Raises:
        DataError: timm has no such network.
        SetupError: timm is not installed; or the file cannot be read, or belongs to another network.
    """
    torchvision()  # timm imports it
    try:
        import timm
    except ImportError as error:
        raise SetupError('timm is not installed; pip install "fedplug-features[timm]"') from error
    try:
        with torch.random.fork_rng(devices=[]):
            network = timm.create_model(model, pretrained=False, num_classes=0)
    except RuntimeError as error:
        near = ", ".join(timm.list_models(f"*{model.split('.')[0]}*")[:8])
        raise DataError(f"timm has no network {model}; it has {near or 'those of timm.list_models()'}") from error
    about = timm.data.resolve_model_data_config(network)
    heads = network.pretrained_cfg.get("classifier") or ()
    starts = [f"{name}." for name in ((heads,) if isinstance(heads, str) else heads)]
    found = weights.read(place.name, content, "weights")
    weights.put(network, found, f"weights {place}", _REMEDY, starts)
    mode = "bicubic" if about["interpolation"] == "bicubic" else "bilinear"
    return on_images(network, about["input_size"][1:], about["mean"], about["std"], mode, length)


def on_images(
    network: nn.Module, size: Sequence[int], mean: Sequence[float], std: Sequence[float], mode: str,
    length: float | None,
) -> Function:  # fmt: skip
    """A network in evaluation mode, as a function of pixels from 0 to 1, (n, 1 or 3, H, W)."""
    centre, spread = (torch.tensor([*each]).reshape(-1, 1, 1) for each in (mean, std))

    def prepared(images: NDArray[Any]) -> torch.Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(images)).expand(-1, 3, -1, -1)
        if pixels.shape[2:] != (*size,):
            pixels = nn.functional.interpolate(pixels, (*size,), mode=mode, align_corners=False, antialias=True)
        return (pixels.clamp(0, 1) - centre) / spread

    network.eval()
    return evaluated(lambda images: network(prepared(images)), length)


def evaluated(apply: Callable[[Any], torch.Tensor], length: float | None) -> Function:
    """What a network gives, as rows of numbers."""

    def features(inputs: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            rows: NDArray[np.float32] = apply(inputs).flatten(1).float().numpy()
        return rows if length is None else to_length(rows, length)

    return features
