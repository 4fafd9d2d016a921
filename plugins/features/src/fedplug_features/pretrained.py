"""Features that a published network gives: what its last layer gets, or the mean of what its last layer gives.

Tramer & Boneh (ICLR 2021, Sec. 5) and De et al. (2022) train a linear model on them with differential privacy. The
weights are a file that everybody has: fedplug downloads nothing, and reads no code from it.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar, Literal

from fedplug import Field, Options
from fedplug.api.errors import DataError
from pydantic import field_validator

from fedplug_features import files
from fedplug_features.base import LENGTH, Features, Function, Kind, Public

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's channels."""
_ENDINGS = (".safetensors", ".pt", ".pth", ".bin")


class _Checkpoint(Options):
    """The network, and its file."""

    model: str = Field(min_length=1, description="name of the network in its library, such as resnet18")
    length: float | None = Field(None, gt=0, allow_inf_nan=False, description=LENGTH)


class Pretrained(Features):
    """Features that a network gives."""

    def shape(self, of: tuple[int, ...]) -> None:
        """The network says it."""
        images = self.reads == "pixels"
        if len(of) != (3 if images else 1) or (images and of[0] not in (1, 3)):
            wanted = "images of one or three channels" if images else "texts"
            raise DataError(
                f"{self.name} reads {wanted}, not inputs of shape {list(of)}; choose a data set of {wanted.split()[0]}"
            )

    @abc.abstractmethod
    def held(self, root: str | None) -> tuple[Path, bytes, str]:
        """The file of weights, what it holds, and its SHA-256.

        Raises:
            DataError: it is missing, with where to fetch it and where to put it; or it is another file.
        """

    @abc.abstractmethod
    def built(self, root: str | None) -> Function:
        """The network as a function of inputs: features float32 (n, numbers).

        Raises:
            DataError, SetupError: the library is missing, or the file does not fit the network.
        """

    def follows_from(self, root: str | None) -> list[object]:
        """Its options, and the weights."""
        return [*super().follows_from(root), self.held(root)[2]]

    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """The network, in evaluation mode and with one thread."""
        from fedplug_std.torch_model import use_one_thread

        self.shape(of)
        use_one_thread()
        return self.built(root)


class _OfImages(Pretrained):
    """Features of images, by a network and a file of its weights."""

    reads: ClassVar[Kind] = "pixels"


class Torchvision(_OfImages):
    """What the last layer of a network of torchvision gets: `{model: resnet18}` gives 512 numbers of an image.

    The file is the one that torchvision publishes, and the first letters of its SHA-256 are in its name, or another
    state dict of this network, with a head of any size. Images are scaled to `size` x `size` (bilinear, antialiased;
    gray ones get three equal channels), and standardised with `mean` and `std`.
    """

    class Options(_Checkpoint, files.Checked):
        """The network, its file, and how images are prepared."""

        weights: str | None = Field(
            None, description=f"file of a state dict, {files.PATH}; null: named as torchvision publishes it"
        )
        size: int = Field(224, ge=16, le=1024, description="width and height that images are scaled to")
        mean: tuple[float, float, float] = Field(_MEAN, description="of each channel, as in the network's training")
        std: tuple[float, float, float] = Field(_STD, description="the same")

        @field_validator("weights")
        @classmethod
        def _known_ending(cls, value: str | None) -> str | None:
            return _with_ending(value)

        @field_validator("std")
        @classmethod
        def _above_zero(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
            if min(value) <= 0:
                raise ValueError(f"std={list(value)} must be above 0 for each channel")
            return value

    options: Options

    @property
    def rests_on(self) -> list[str]:
        """The weights."""
        chosen = self.options
        named = Path(chosen.weights).name if chosen.weights else f"that torchvision publishes of {chosen.model}"
        return [f"the weights {named}"]

    @property
    def unpinned(self) -> list[str]:
        """The weights, unless they are those whose name holds their SHA-256."""
        return super().unpinned if self.options.weights else []

    def held(self, root: str | None) -> tuple[Path, bytes, str]:
        """The file, compared with the hash in its name where it is the published one."""
        from fedplug_features import _networks

        chosen = self.options
        return _networks.of_torchvision(chosen.model, chosen.weights, chosen.sha256, root)

    def built(self, root: str | None) -> Function:
        """The network without its head."""
        from fedplug_features import _networks

        chosen = self.options
        place, content, _ = self.held(root)
        network = _networks.without_head(chosen.model, place, content)
        sides = chosen.size, chosen.size
        return _networks.on_images(network, sides, chosen.mean, chosen.std, "bilinear", chosen.length)

    def describe(self) -> str:
        """A line for the plan of the run."""
        chosen = self.options
        return (
            f"what the head of {chosen.model} gets of {chosen.size} x {chosen.size} pixels, mean {list(chosen.mean)}, "
            f"std {list(chosen.std)} ({self.follows_from_public()}) of {self._inside}"
        )


class Timm(_OfImages):
    """What the head of a network of timm gets, with the size, mean and deviation that timm states for it.

    Needs `pip install "fedplug-features[timm]"`, and the file `model.safetensors` of huggingface.co/timm/`model`.
    """

    class Options(_Checkpoint, files.Checked):
        """The network, and its file."""

        weights: str = Field(min_length=1, description=f"file of a state dict, {files.PATH}")

        @field_validator("weights")
        @classmethod
        def _known_ending(cls, value: str) -> str:
            return _with_ending(value) or value

    options: Options

    @property
    def rests_on(self) -> list[str]:
        """The weights."""
        return [f"the weights {Path(self.options.weights).name}"]

    def held(self, root: str | None) -> tuple[Path, bytes, str]:
        """The file."""
        chosen = self.options
        remedy = (
            f"fetch model.safetensors of huggingface.co/timm/{chosen.model}, put it there, or name another: weights"
        )
        place = files.located(root, chosen.weights, remedy)
        return place, *files.content_of(place, chosen.sha256)

    def built(self, root: str | None) -> Function:
        """The network without its head."""
        from fedplug_features import _networks

        place, content, _ = self.held(root)
        return _networks.of_timm(self.options.model, place, content, self.options.length)

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"what the head of timm's {self.options.model} gets ({self.follows_from_public()}) of {self._inside}"


class HuggingFace(Pretrained):
    """What a network in a folder of Hugging Face makes of images or of texts: the mean of its last layer.

    The mean is over places of an image, or over tokens of a text without padding. The folder has `config.json`,
    `model.safetensors`, and the files of the tokenizer or of the image processor, as `save_pretrained` writes them.
    Needs `pip install "fedplug-features[huggingface]"`.
    """

    class Options(files.Checked):
        """The folder, and what it reads."""

        folder: str = Field(min_length=1, description=f"of the network; {files.PATH}")
        inputs: Literal["images", "texts"] = Field(description="what the network reads")
        tokens: int = Field(128, ge=2, le=8192, description="of a text; the rest is cut off")
        length: float | None = Field(None, gt=0, allow_inf_nan=False, description=LENGTH)

    options: Options

    @property
    def reads(self) -> Kind:  # type: ignore[override]
        """Pixels or texts."""
        return "pixels" if self.options.inputs == "images" else "text"

    @property
    def rests_on(self) -> list[str]:
        """The folder."""
        return [f"the network in {Path(self.options.folder).name}"]

    def held(self, root: str | None) -> tuple[Path, bytes, str]:
        """`model.safetensors` of the folder."""
        folder = files.located(
            root, self.options.folder,
            "fetch the files of a network from huggingface.co (huggingface-cli download NAME --local-dir FOLDER), put "
            "them there, or name another folder",
        )  # fmt: skip
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise DataError(
                    f"{folder} has no {name}; save the network there with save_pretrained, in one file of safetensors"
                )
        place = folder / "model.safetensors"
        return place, *files.content_of(place, self.options.sha256)

    def follows_from(self, root: str | None) -> list[object]:
        """Its options, the weights, and whatever else the folder says in JSON and text."""
        folder = self.held(root)[0].parent
        rest = (each for each in folder.iterdir() if each.suffix in (".json", ".txt", ".model") and each.is_file())
        return [*super().follows_from(root), *((each.name, files.content_of(each, None)[1]) for each in sorted(rest))]

    def built(self, root: str | None) -> Function:
        """The network."""
        from fedplug_features import _hugging_face

        folder, chosen = self.held(root)[0].parent, self.options
        if chosen.inputs == "images":
            return _hugging_face.of_images(folder, chosen.length)
        return _hugging_face.of_texts(folder, chosen.tokens, chosen.length)

    def describe(self) -> str:
        """A line for the plan of the run."""
        chosen = self.options
        cut = f", {chosen.tokens} tokens each" if chosen.inputs == "texts" else ""
        return f"means of the last layer{cut} ({self.follows_from_public()}) of {self._inside}"


def _with_ending(weights: str | None) -> str | None:
    """A file of weights. Raises a ValueError where its name does not say how it is written."""
    if weights is not None and not weights.endswith(_ENDINGS):
        raise ValueError(f"weights={weights} must end in {', '.join(_ENDINGS)}")
    return weights
