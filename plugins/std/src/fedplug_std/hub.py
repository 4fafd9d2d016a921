"""Data sets of other libraries, from a local folder: those of Hugging Face, and the classes of torchvision."""

from __future__ import annotations

from typing import Any

import fedplug
from fedplug import Dataset, Declares

from fedplug_std.options import HuggingFaceOptions, TorchvisionOptions
from fedplug_std.tables import unread

_OF_TABLES = ("features", "leave_out", "categories", "scale", "missing_indicators", "drop_gaps", "replace")


class HuggingFace(fedplug.DataSource):
    """A data set of Hugging Face that `save_to_disk` wrote: images, named columns, token ids, or text.

    `inputs` names a column of images, of token ids, or of text; without it the numeric columns are a table, with the
    options of `std.table`. Token ids and text without an `answer` are for a language model: they are joined, cut into
    pieces of `context` tokens, and the model predicts the next one at every position; text becomes bytes, as in
    `std.text`. Text with an `answer` is its first `context` bytes, as in `std.text_table`. Nothing is downloaded. It
    needs `pip install datasets`.
    """

    class Options(HuggingFaceOptions):
        """The folder, the columns, and the splits."""

    @property
    def declares(self) -> Declares:
        """The facts in the recipe; the folder gives the rest."""
        from fedplug_std import _columns

        chosen = self.options
        if chosen.inputs is None:
            outputs = len(chosen.classes) if chosen.predict == "classes" else len(chosen.answer)
            shape = (_columns.width(chosen),) if chosen.features else None
            return Declares(shape=shape, num_classes=outputs or None, task=chosen.task)
        if not chosen.answer:
            return Declares(shape=(chosen.context,), num_classes=chosen.vocabulary, task="std.language_model")
        return Declares(num_classes=len(chosen.classes) or None, task=chosen.task)

    def describe(self) -> str:
        """Which folder it is."""
        return f"the Hugging Face data set in {self.options.path}"

    def check(self, recipe: Any) -> list[str]:
        """A table needs an answer, and with data at sites its columns."""
        from fedplug_std import _columns

        if self.options.inputs is not None:
            return unread(self.options, "inputs", _OF_TABLES)
        if not self.options.answer:
            return [
                "name the column of the answers, answer: ..., or a column of images or text, inputs: ..."
            ]
        return _columns.misfit(self.options, recipe.data.at, recipe.data.agreed)

    def load(self, root: str | None) -> Dataset:
        """Reads the folder.

        Raises:
            DataError: it is missing or damaged, or a column is; the message names it and a remedy.
            SetupError: the library is not installed.
        """
        from fedplug_std import _hub

        return _hub.hugging_face(self.options, root)


class Torchvision(fedplug.DataSource):
    """A data set of torchvision by the name of its class, from existing files: one class an image.

    `{use: std.torchvision, dataset: KMNIST}` reads what `torchvision.datasets.KMNIST(folder)` reads. Nothing is
    downloaded. Data sets with their own component, such as `std.mnist`, need no torchvision option and standardise with
    their own constants.
    """

    class Options(TorchvisionOptions):
        """The class, its folder, and its parts."""

    @property
    def declares(self) -> Declares:
        """Nothing: the class and its files give all facts."""
        return Declares()

    def describe(self) -> str:
        """Which class it is."""
        return f"torchvision's {self.options.dataset}"

    def load(self, root: str | None) -> Dataset:
        """Reads every image.

        Raises:
            DataError: torchvision has no such class, or its files are missing or damaged; the message names the folder
                and the files that the class expects.
        """
        from fedplug_std import _hub

        return _hub.of_torchvision(self.options, root)
