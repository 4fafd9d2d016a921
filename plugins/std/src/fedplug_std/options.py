"""Options of components whose work needs libraries: for the component, and for the module that works."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal, Self

import fedplug
from fedplug import Field, File
from fedplug.api.grids import power_of_two
from pydantic import AfterValidator, BeforeValidator, field_validator, model_validator

Source = Annotated[
    Literal["secure", "reproducible"],
    Field(
        description="secure: AES-256 keyed by the system; reproducible: from the recipe's seed, which protects nobody"
    ),
]
"""Of noise."""
ExactSource = Annotated[
    Literal["secure", "exact", "reproducible"],
    Field(
        description="secure: AES-256 keyed by the system; exact: discrete Gaussian; reproducible: from the recipe's "
        "seed, which protects nobody"
    ),
]
"""Of Gaussian noise."""
PowerOfTwo = Annotated[float | None, AfterValidator(power_of_two)]
OtherZone = Annotated[
    str, Field(json_schema_extra={"formerly": "rest"}, description="zone of the scalars that are not encrypted")
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Replaced = Annotated[
    dict[str, str],
    BeforeValidator(
        lambda value: {_written(key): _written(each) for key, each in value.items()}
        if isinstance(value, dict) else value
    ),
]
Categories = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: tuple(map(str, value)) if isinstance(value, list | tuple) else value),
    Field(min_length=1),
]


def _texts(value: Any) -> Any:
    return tuple(map(_written, value)) if isinstance(value, list | tuple) else value


def _written(value: Any) -> Any:
    """A number or a truth of YAML as a table writes it."""
    return str(value) if isinstance(value, bool | int | float) else value


class Calibrated(fedplug.Options):
    """The size of noise, by its price or as it is."""

    epsilon: float | None = Field(None, gt=0, description="privacy loss; with delta")
    delta: float | None = Field(None, gt=0, lt=1, description="failure probability that epsilon is calibrated for")
    noise_multiplier: float | None = Field(
        None, ge=0, description="standard deviation over the bound; instead of epsilon and delta"
    )

    @model_validator(mode="after")
    def _one_way_to_say_how_much(self) -> Self:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            given = "neither" if self.epsilon is None else "both"
            raise ValueError(
                f"{given} of epsilon and noise_multiplier given; write either epsilon and delta, or noise_multiplier"
            )
        if (self.epsilon is None) != (self.delta is None):
            why = (
                "delta belongs to epsilon, and with noise_multiplier the ledger has its own: leave delta out"
                if self.epsilon is None
                else "epsilon needs a delta, below 1 / number of clients, or of records: write delta: 1.0e-5"
            )
            raise ValueError(f"epsilon and delta belong together; {why}")
        return self

    @property
    def amount(self) -> str:
        """The size in a few words."""
        if self.noise_multiplier is not None:
            return f"noise multiplier {self.noise_multiplier:g}"
        return f"epsilon {self.epsilon:g}, delta {self.delta:g} over all rounds"


class Sized(fedplug.Options):
    """How many examples are used."""

    train_size: int | None = Field(
        None, ge=1, description="number of training examples to use, chosen at random, always the same ones; null: all"
    )
    test_size: int | None = Field(None, ge=1, description="the same for the test examples")


class ImageOptions(Sized):
    """Features of images."""

    features: Literal["oriented_gradients"] | None = Field(
        None,
        description="oriented_gradients: 392 histograms of oriented gradients instead of an image's pixels, fixed and "
        "public, for models with few weights such as std.logistic; null: pixels",
    )


class PictureOptions(fedplug.Options):
    """How pictures become pixels."""

    grayscale: bool = Field(False, description="one channel instead of three")
    pixel_range: tuple[Finite, Finite] | None = Field(
        None,
        description="values of black and of white in pictures of more than 8 bits, such as [0, 4095] for 12 bits or "
        "[-1000, 400] for a lung in Hounsfield units; what is outside is cut off. null: the range of their type",
    )
    background: Literal["white", "black"] = Field("white", description="what transparent pixels show")
    mean: float = Field(
        0.5,
        ge=0,
        le=1,
        description="subtracted from pixels in [0, 1]; a public constant, not measured on the clients' data",
    )
    std: float = Field(0.25, gt=0, le=1, description="pixels are then divided by this; public as well")

    @field_validator("pixel_range")
    @classmethod
    def _black_below_white(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and value[0] >= value[1]:
            raise ValueError(f"pixel_range={list(value)} must be [BLACK, WHITE], with BLACK below WHITE")
        return value


class PictureFolderOptions(PictureOptions, ImageOptions):
    """Both, of pictures in folders."""


class RowOptions(Sized):
    """The role of each column."""

    answer: Names = Field((), description="the column of the answers, or several of them")
    predict: Literal["classes", "numbers", "labels"] = Field(
        "classes",
        description="classes: one of several names; numbers: a regression; labels: any of several, a column of 0 and 1 "
        "for each",
    )
    features: Names = Field((), description="input columns of the model, in order; empty: all others")
    leave_out: Names = Field((), description="unused columns, such as a patient's number")
    user: str | None = Field(
        None, description="the column that says of whom a row is, such as a patient's number; no model sees it"
    )
    categories: dict[str, Categories] = Field(
        {}, description="columns of texts, with all possible texts of each; the model gets 0 or 1 for each text"
    )
    fill: dict[str, float | str] = Field(
        {}, description="the value for gaps of a column; without one, or an indicator, a gap is refused"
    )
    missing_indicators: Names = Field(
        (),
        description="input columns that get another input, 1 in a gap and 0 elsewhere; a gap that fill does not name "
        "is then the centre of scale, or none of the categories",
    )
    drop_gaps: Names = Field((), description="rows with a gap in one of these columns are left out")
    replace: dict[str, Replaced] = Field(
        {},
        description="for a column, texts or numbers that are read as another, such as {sex: {F: f}}; an empty text "
        'makes a gap: {pressure: {"999": ""}}',
    )
    scale: dict[str, tuple[Finite, Positive]] = Field(
        {},
        description="for a column, the number that is subtracted and the one that it is then divided by; public "
        "numbers, never measured on anybody's data",
    )
    classes: tuple[str, ...] = Field((), description="names of the classes in their order; none: those found, sorted")
    test_fraction: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="share of the rows of each class for testing, if nothing else selects them",
    )
    split_seed: int = Field(0, ge=0, description="seed of that split")

    @model_validator(mode="after")
    def _each_column_is_one_thing(self) -> Self:
        if self.predict == "classes" and len(self.answer) > 1:
            raise ValueError(
                f"answer names {len(self.answer)} columns; for any of several labels write predict: labels, for "
                "several numbers predict: numbers"
            )
        if self.classes and self.predict != "classes":
            raise ValueError(f"classes are for predict: classes; with predict: {self.predict} columns give the names")
        roles = {"answer": self.answer, "features": self.features, "leave_out": self.leave_out}
        roles |= {"user": () if self.user is None else (self.user,)}
        for one, other in itertools.combinations(roles, 2):
            if both := sorted({*roles[one]} & {*roles[other]}):
                raise ValueError(f"{both[0]} is in {one} and in {other}; a column can be only one of the two")
        for name in self.missing_indicators:
            if MISSING in self.categories.get(name, ()):
                raise ValueError(
                    f"{name} is in missing_indicators and has a category {MISSING}; take the category out, since gaps "
                    "get an input"
                )
        if both := sorted({*self.categories} & {*self.scale}):
            raise ValueError(f"{both[0]} is in categories and in scale; categories become 0 and 1 and are not scaled")
        return self

    @property
    def task(self) -> str:
        """The task of a recipe without a named one."""
        return {"classes": "", "numbers": "std.regression", "labels": "std.multi_label"}[self.predict]


MISSING = "missing"
"""Behind the name of a column: the input that is 1 in its gaps."""
GAPS = ("", "NA", "N/A", "#N/A", "NaN", "null", "none", "-", "?")


class TableOptions(RowOptions):
    """The file, how it is written, the role of each column, and the test rows."""

    file: str = Field(
        "data.csv",
        description="ends with .csv, .tsv, .parquet, .csv.gz or the like; absolute or inside the data folder; "
        "without a data folder, in the working directory",
    )
    answer: Names = Field(min_length=1, description="the column of the answers, or several of them")
    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="separator of the columns of a CSV file; null: a tab for .tsv, else a comma",
    )
    decimal: Literal[".", ","] = Field(".", description="sign before the fraction of a number in a CSV file")
    thousands: Literal[",", ".", " ", "'"] | None = Field(
        None, description="sign between the thousands of a number in a CSV file; null: none"
    )
    encoding: str = Field(
        "utf-8", description="of a CSV file, such as cp1252; a mark at its start, of UTF-8 or UTF-16, goes first"
    )
    gaps: Annotated[tuple[str, ...], BeforeValidator(_texts)] = Field(
        GAPS,
        description="texts for a missing value, in capitals or not; one that the recipe names as a category, a class "
        "or test_value is none",
    )
    test_file: str | None = Field(None, description="file of the rows for testing, with the same columns")
    test_column: str | None = Field(None, description="column that marks the test rows; no model sees it")
    test_value: str = Field("test", description="the value of test_column in a test row")

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        import codecs

        try:
            codecs.lookup(value)
            b"".decode(value)  # base64 and others are no encodings of text
        except LookupError:
            raise ValueError(f"{value} is no encoding of text; write utf-8, utf-16, cp1252 or the like") from None
        return value

    @model_validator(mode="after")
    def _one_way_to_split(self) -> Self:
        if self.test_file is not None and self.test_column is not None:
            raise ValueError("test_file and test_column both select the test rows; leave one out")
        if self.thousands == self.decimal:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}; a number needs two different signs")
        return self


class TextTableOptions(TableOptions):
    """The column of texts, how much of each is read, and the options of a table."""

    text: str = Field("text", description="the column of texts")
    length: int = Field(512, ge=1, description="bytes of UTF-8 of a text; the rest is cut off")


class HuggingFaceOptions(PictureOptions, RowOptions):
    """The folder, the columns, and the splits."""

    path: str = Field(
        ".",
        description="the folder that save_to_disk wrote, absolute or inside the data folder; without a data "
        "folder, in the working directory",
    )
    inputs: str | None = Field(None, description="column of images, token ids or text; null: a table of numbers")
    train_split: str = Field("train", description="split for training, if the folder has several")
    test_split: str = Field(
        "test", description="split for testing; without one, a fraction of the others is set aside"
    )
    image_size: int | None = Field(
        None, ge=1, description="width and height; the shorter side is scaled, the rest cut off. null: unchanged"
    )
    context: int = Field(64, ge=1, description="tokens of a piece for a language model; bytes of a text with an answer")
    vocabulary: int | None = Field(None, ge=1, description="number of token ids; text has 256 bytes")

    @model_validator(mode="after")
    def _users_of_rows(self) -> Self:
        if self.user is not None and self.inputs is not None:
            raise ValueError(f"user={self.user} is for tables, and inputs={self.inputs} is none; leave user out")
        return self


class TorchvisionOptions(PictureOptions, Sized):
    """The class, its folder, and its parts."""

    dataset: str = Field(description="name of a class in torchvision.datasets, such as KMNIST or Food101")
    path: str = Field(
        ".",
        description="the folder that the class calls root, absolute or inside the data folder; without a data "
        "folder, in the working directory",
    )
    arguments: dict[str, bool | int | float | str] = Field(
        {}, description="further arguments of the class, such as split: letters of EMNIST"
    )
    train_split: str = Field("train", description="the class's name of its training part, if it has `split`")
    test_split: str = Field("test", description="the class's name of the other part, such as val")
    image_size: int | None = Field(
        None, ge=1, description="width and height; the shorter side is scaled, the rest cut off. null: unchanged"
    )
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="share of each class for testing, if the class has no parts"
    )
    split_seed: int = Field(0, ge=0, description="seed of that split")

    @field_validator("arguments")
    @classmethod
    def _no_others(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in ("root", "download", "train", "transform", "target_transform", "transforms"):
            if name in value:
                raise ValueError(
                    f"{name} cannot be set in a recipe: files are read from path, and never downloaded"
                )
        return value


_ENDINGS = (".safetensors", ".pt", ".pth", ".bin")


class LoraOptions(fedplug.Options):
    """The size and the layers of the adapters, and the inner model."""

    rank: int = Field(8, ge=1, description="rows of A and columns of B")
    alpha: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="factor on B A x, times rank; null: the rank"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the values dropped before A, in training")
    targets: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="patterns of names of layers, whole or the last part, such as attend or blocks.0.*; fully "
        "connected layers, convolutions without groups, embeddings; null: every fully connected layer",
    )
    trained: tuple[str, ...] = Field(
        (), description="patterns of names of parameters that are also trained as a whole, such as head.* or *.bias"
    )
    base: File | None = Field(
        None,
        description="weights of the inner model, .safetensors or a state dict that torch.save wrote; a path "
        "relative to the recipe or the working directory",
    )

    @field_validator("base")
    @classmethod
    def _known_ending(cls, base: File | None) -> File | None:
        if base is not None and not base.file.endswith(_ENDINGS):
            raise ValueError(f"base={base.file} must end in {', '.join(_ENDINGS)}")
        return base
