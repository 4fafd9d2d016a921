"""Networks in folders of Hugging Face, as functions of images and of texts."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug.api.errors import DataError, SetupError, cause_of
from fedplug_std.torchvision_import import torchvision

from fedplug_features._networks import evaluated
from fedplug_features.base import Function
from fedplug_features.texts import texts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_WRONG = 4
"""Names that a message lists."""


def of_images(folder: Path, length: float | None) -> Function:
    """The mean over places of a network's last layer, as a function of pixels from 0 to 1, (n, 1 or 3, H, W)."""
    library = _library()
    processor, network = _read(library.AutoImageProcessor, folder), _network(library, folder)

    def apply(images: NDArray[Any]) -> torch.Tensor:
        pixels = np.rint(np.broadcast_to(images, (len(images), 3, *images.shape[2:])) * 255).astype(np.uint8)
        given = processor(images=[*pixels], input_data_format="channels_first", return_tensors="pt")
        last: torch.Tensor = network(pixel_values=given["pixel_values"]).last_hidden_state
        return last.mean((2, 3)) if last.ndim == 4 else last.mean(1)

    return evaluated(apply, length)


def of_texts(folder: Path, tokens: int, length: float | None) -> Function:
    """The mean over tokens of a network's last layer, as a function of the bytes of texts."""
    library = _library()
    tokenizer, network = _read(library.AutoTokenizer, folder), _network(library, folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if most := getattr(network.config, "max_position_embeddings", None):
        tokens = min(tokens, most)

    def apply(rows: NDArray[Any]) -> torch.Tensor:
        # Always to the same number of tokens: what a text gives does not depend on those around it.
        given = tokenizer(
            texts_of(rows), padding="max_length", truncation=True, max_length=tokens, return_tensors="pt",
        )  # fmt: skip
        mask = given["attention_mask"]
        last: torch.Tensor = network(input_ids=given["input_ids"], attention_mask=mask).last_hidden_state
        mean: torch.Tensor = (last * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clip(1)
        return mean

    return evaluated(apply, length)


def _library() -> Any:
    torchvision()  # transformers imports it
    try:
        import transformers
    except ImportError as error:
        raise SetupError('transformers is not installed; pip install "fedplug-features[huggingface]"') from error
    return transformers


def _read(kind: Any, folder: Path, **more: Any) -> Any:
    """What a class of the library reads from a folder, without a download and without code in it."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
            return kind.from_pretrained(str(folder), **_LOCAL, **more)
    except Exception as error:  # a damaged folder fails in many ways
        raise DataError(
            f"{folder} cannot be read by {kind.__name__} of transformers: {cause_of(error)}; save it there again"
        ) from error


def _network(library: Any, folder: Path) -> Any:
    """The network in evaluation mode. Raises a DataError where the file lacks weights, which would be random ones."""
    network, about = _read(library.AutoModel, folder, use_safetensors=True, output_loading_info=True)
    # Not used: features are means of the last layer, and many files have no pooler.
    if missing := sorted(name for name in about["missing_keys"] if not name.startswith("pooler.")):
        more = f" and {len(missing) - _WRONG} more" if len(missing) > _WRONG else ""
        raise DataError(f"{folder} lacks the weights {', '.join(missing[:_WRONG])}{more}; save the network there again")
    return network.eval()
