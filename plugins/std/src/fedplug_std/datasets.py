"""The data sets: scikit-learn's digits, the usual benchmarks, and any tree of images with one folder a class.

The components hold options only; reading files is in `_dataset_files`. Inputs are standardised with fixed public
constants per channel, never with statistics of the data at hand: those would be a separate release.
"""

from __future__ import annotations

import abc
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import fedplug
from fedplug import Declares, Field

from fedplug_std.data_folder import located
from fedplug_std.options import ImageOptions, PictureFolderOptions, Sized

if TYPE_CHECKING:
    from fedplug import Dataset, Examples

FEATURES = 392
"""Number of `features` of an image; `oriented_gradients.SIZE`."""
DIGIT_NAMES = tuple("0123456789")
FASHION_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
FIFTHS = ("lowest fifth", "second fifth", "third fifth", "fourth fifth", "highest fifth")
STL10_NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Images(fedplug.DataSource):
    """Images, or features of them."""

    class Options(ImageOptions):
        """The number of examples."""

    options: ImageOptions

    @property
    @abc.abstractmethod
    def _pixels(self) -> Declares:
        """Its content without features."""

    @property
    def declares(self) -> Declares:
        """Images of one shape, or their features: rows of a table."""
        pixels = self._pixels
        return replace(pixels, shape=(FEATURES,)) if self.options.features else pixels


class Known(fedplug.DataSource):
    """A data set with public constants of its standardisation."""

    _names: ClassVar[tuple[str, ...]] = ()
    """Of the classes, where the files do not have them."""
    _kinds: ClassVar[tuple[str, ...]] = ()
    """Of the labels, if they are not the classes."""
    _columns: ClassVar[tuple[str, ...]] = ()
    """Of a table."""
    _constants: ClassVar[tuple[tuple[float, ...], tuple[float, ...]]]
    """Mean and deviation of each channel or column."""

    @abc.abstractmethod
    def _read(self, files: Any, root: str | None) -> Any:
        """Training and test examples, and the names of the labels if the files have them."""

    def load(self, root: str | None) -> Dataset:
        """Reads the files: those of scikit-learn, or those in the data folder.

        Raises:
            DataError: missing or damaged.
        """
        from fedplug_std import _dataset_files as files

        train, test, *names = self._read(files, root)
        mean, std = self._constants
        classes = names[0] if names else self._names
        data = files.dataset(train, test, self.options, classes, mean, std, self._kinds)
        return replace(data, columns=self._columns)


class _Published(Known, Images):
    """A benchmark, from files in the data folder."""

    class Options(Images.Options):
        """The number of examples, and whether to download them."""

        download: bool = Field(False, description="download the files into the data folder if they are missing")

    options: Options


class Digits(Known, Images):
    """Scikit-learn's 1,797 handwritten digits, 8x8 gray; real, bundled, and quick enough for a first run.

    The test images of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin & Kaynak 1998), pixels of 0 to
    16 scaled to 0 to 255. Split 80/20 within every class: 1,437 for training, 360 for testing.
    """

    _pixels = Declares(shape=(1, 8, 8), num_classes=10)
    _names = DIGIT_NAMES
    _constants = (0.3053,), (0.3759,)

    def _read(self, files: Any, root: str | None) -> Any:
        return files.digits()


class Diabetes(Known):
    """Scikit-learn's 442 diabetes patients: ten measurements and the disease progression; a table for regression.

    Efron et al. 2004, "Least Angle Regression": age, sex, body mass index, blood pressure, and six blood values; the
    answer is a measure of disease progression after a year, 25 to 346. Split 80/20 within the fifths of the answers,
    which are also the labels for partitions: 353 for training, 89 for testing.
    """

    declares = Declares(shape=(10,), num_classes=1, task="std.regression")
    _names, _kinds = ("progression",), FIFTHS
    _columns = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
    _constants = (
        (48.5, 1.47, 26.4, 94.6, 189.0, 115.0, 49.8, 4.07, 4.64, 91.3),
        (13.1, 0.499, 4.41, 13.8, 34.6, 30.4, 12.9, 1.29, 0.522, 11.5),
    )

    class Options(Sized):
        """The number of examples."""

    def _read(self, files: Any, root: str | None) -> Any:
        return files.diabetes()


class BreastCancer(Known):
    """Scikit-learn's 569 breast tumours: thirty measurements, malignant or benign; a table for classification.

    The UCI set "Breast Cancer Wisconsin (Diagnostic)" (Wolberg et al. 1995). Split 80/20 within both classes.
    """

    declares = Declares(shape=(30,), num_classes=2)
    _names = ("malignant", "benign")
    _columns = tuple(
        " ".join(filter(None, (before, what, after)))
        for before, after in (("mean", ""), ("", "error"), ("worst", ""))
        for what in (
            "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points",
            "symmetry", "fractal dimension",
        )
    )  # fmt: skip
    _constants = (
        (
            14.1, 19.3, 92.0, 655.0, 0.0964, 0.104, 0.0888, 0.0489, 0.181, 0.0628, 0.405, 1.22, 2.87, 40.3, 0.00704,
            0.0255, 0.0319, 0.0118, 0.0205, 0.00379, 16.3, 25.7, 107.0, 881.0, 0.132, 0.254, 0.272, 0.115, 0.29, 0.0839,
        ),
        (
            3.52, 4.3, 24.3, 352.0, 0.0141, 0.0528, 0.0796, 0.0388, 0.0274, 0.00705, 0.277, 0.551, 2.02, 45.5, 0.003,
            0.0179, 0.0302, 0.00616, 0.00826, 0.00264, 4.83, 6.14, 33.6, 569.0, 0.0228, 0.157, 0.208, 0.0657, 0.0618,
            0.018,
        ),
    )  # fmt: skip

    class Options(Sized):
        """The number of examples."""

    def _read(self, files: Any, root: str | None) -> Any:
        return files.breast_cancer()


class Mnist(_Published):
    """MNIST: 60,000 + 10,000 handwritten digits, 28x28 gray, 10 classes (LeCun et al. 1998)."""

    _pixels = Declares(shape=(1, 28, 28), num_classes=10)
    _names = DIGIT_NAMES
    _constants = (0.1307,), (0.3081,)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `MNIST/raw/*-ubyte` or `*-ubyte.gz` in the data folder."""
        return files.idx_images("MNIST", root, self.options.download)


class FashionMnist(_Published):
    """Fashion-MNIST: 60,000 + 10,000 images of clothes, 28x28 gray, 10 classes (Xiao et al. 2017)."""

    _pixels = Declares(shape=(1, 28, 28), num_classes=10)
    _names = FASHION_NAMES
    _constants = (0.2860,), (0.3530,)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `FashionMNIST/raw/*-ubyte` or `*-ubyte.gz` in the data folder."""
        return files.idx_images("FashionMNIST", root, self.options.download)


class Cifar10(_Published):
    """CIFAR-10: 50,000 + 10,000 colour images, 32x32, 10 classes (Krizhevsky 2009)."""

    _pixels = Declares(shape=(3, 32, 32), num_classes=10)
    _constants = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `cifar-10-batches-py` in the data folder."""
        return files.cifar("CIFAR10", root, self.options.download)


class Cifar100(_Published):
    """CIFAR-100: 50,000 + 10,000 colour images, 32x32, 100 classes (Krizhevsky 2009)."""

    _pixels = Declares(shape=(3, 32, 32), num_classes=100)
    _constants = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `cifar-100-python` in the data folder."""
        return files.cifar("CIFAR100", root, self.options.download)


class Svhn(_Published):
    """SVHN: 73,257 + 26,032 house-number digits, 32x32 colour, 10 classes (Netzer et al. 2011)."""

    _pixels = Declares(shape=(3, 32, 32), num_classes=10)
    _names = DIGIT_NAMES
    _constants = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `train_32x32.mat` and `test_32x32.mat` in the data folder."""
        return files.by_split("SVHN", root, self.options.download, "train_32x32.mat and test_32x32.mat")


class Stl10(_Published):
    """STL-10: 5,000 + 8,000 labelled colour images, 96x96, 10 classes (Coates, Ng & Lee 2011)."""

    _pixels = Declares(shape=(3, 96, 96), num_classes=10)
    _names = STL10_NAMES
    _constants = (0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `stl10_binary` in the data folder."""
        return files.by_split("STL10", root, self.options.download, "stl10_binary")


class Imagenette(_Published):
    """Imagenette: 9,469 + 3,925 photographs of ten easy ImageNet classes (Howard 2019)."""

    _constants = IMAGENET_MEAN, IMAGENET_STD

    class Options(_Published.Options):
        """The number of examples, their size, and whether to download them."""

        source: Literal["160px", "320px", "full"] = Field(
            "160px", description="the published archive to read: shorter sides of 160 or 320 pixels, or as taken"
        )
        image_size: int = Field(128, ge=8, description="width and height; the shorter side is scaled, the rest cut off")

    options: Options

    @property
    def _pixels(self) -> Declares:
        """Colour images of the chosen size, and ten classes."""
        return Declares(shape=(3, self.options.image_size, self.options.image_size), num_classes=10)

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `imagenette2-160` (`-320`, `imagenette2`) in the data folder."""
        chosen = self.options
        return files.imagenette(root, chosen.download, chosen.source, chosen.image_size)


class ImageFolder(Images):
    """Your own images, sorted into one folder per class.

    The folder holds `train/` and `test/` (or `val/`), each with one folder per class; or the class folders themselves,
    which are then split at random within every class.

    With `labels` an image may have several of them, by its folder (multi-label): `labels: {pneumonia:
    [BACTERIA, VIRUS], bacteria: [BACTERIA]}`. Partitions then use the folders.
    """

    class Options(PictureFolderOptions):
        """The folder of the images, and their conversion."""

        path: str = Field(
            description="the folder: absolute, inside the data folder, or inside the working directory if there is no "
            "data folder"
        )
        image_size: int = Field(128, ge=8, description="width and height; the shorter side is scaled, the rest cut off")
        test_fraction: float = Field(
            0.2, gt=0, lt=1, description="share of each class for testing, if there is no test folder"
        )
        labels: dict[str, tuple[str, ...]] = Field(
            {}, description="labels of which an image may have several, each with the folders whose images have it"
        )
        split_seed: int = Field(0, ge=0, description="seed of that split")

    options: Options

    @property
    def _pixels(self) -> Declares:
        """The chosen size and colours; the folder gives the number of classes."""
        size, channels = self.options.image_size, 1 if self.options.grayscale else 3
        labels = self.options.labels
        task = "std.multi_label" if labels else ""
        return Declares(shape=(channels, size, size), num_classes=len(labels) or None, task=task)

    def load(self, root: str | None) -> Dataset:
        """Reads every image of the tree.

        Raises:
            DataError: missing, empty, damaged, or with different classes for training and testing; or a label names a
                folder that does not exist.
        """
        from fedplug_std import _dataset_files as files

        chosen = self.options
        train, test, names = files.image_tree(located(root, chosen.path), chosen)
        channels = 1 if chosen.grayscale else 3
        data = files.dataset(train, test, chosen, names, (chosen.mean,) * channels, (chosen.std,) * channels)
        if not chosen.labels:
            return data
        train, test = (files.with_labels(part, names, chosen.labels) for part in (data.train, data.test))
        return replace(data, train=train, test=test, classes=tuple(chosen.labels), kinds=names)


class TextOptions(Sized):
    """The cutting of text."""

    context: int = Field(64, ge=1, description="bytes of a piece")
    test_fraction: float = Field(0.1, gt=0, lt=1, description="share of each part for testing")


class Texts(fedplug.DataSource):
    """Text as bytes, in pieces."""

    Options = TextOptions
    options: TextOptions

    @property
    def declares(self) -> Declares:
        """Tokens, as many as the context has."""
        return Declares(shape=(self.options.context,), num_classes=256, task="std.language_model")

    @abc.abstractmethod
    def pieces(self, root: str | None) -> tuple[Examples, Examples]:
        """Training and test pieces, with the parts that they are of."""

    def load(self, root: str | None) -> Dataset:
        """Reads and cuts the text.

        Raises:
            DataError: it is missing, or too short for two pieces in each part.
        """
        from fedplug_std import _dataset_files as files

        train, test = self.pieces(root)
        classes = tuple(f"byte {value}" for value in range(256))
        return files.dataset(train, test, self.options, classes, kinds=files.PART_NAMES)


class TextFile(Texts):
    """One file of text as bytes, in pieces, to predict the next byte at every position.

    The vocabulary is the 256 bytes. The text is cut into pieces that do not overlap, and into ten
    parts, which are the labels for partitions; the last pieces of each part are for testing.
    """

    class Options(TextOptions):
        """The file, and its cutting."""

        file: str = Field(
            description="the file, absolute or inside the data folder; without a data folder, in the working directory"
        )

    options: Options

    def pieces(self, root: str | None) -> tuple[Examples, Examples]:
        """Reads the file."""
        from fedplug_std import _dataset_files as files

        chosen = self.options
        return files.text_pieces(located(root, chosen.file), chosen.context, chosen.test_fraction)
