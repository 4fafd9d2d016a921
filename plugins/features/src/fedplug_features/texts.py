"""Features of texts: hashed n-grams, their weights by how rare they are in public texts, and means of word vectors."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import fedplug
import numpy as np
from fedplug import Field
from fedplug.api.errors import DataError
from pydantic import field_validator

from fedplug_features import files
from fedplug_features.base import LENGTH, Features, Fitted, Function, Kind, Public, to_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
"""A word, or a sign: both have vectors in published files."""


def texts_of(rows: NDArray[Any]) -> list[str]:
    """Texts of their bytes in UTF-8, (n, bytes), with 0 after their end."""
    return [row.astype(np.uint8).tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows]


class OfTexts(Features):
    """Features that read texts."""

    reads: ClassVar[Kind] = "text"

    def require_texts(self, of: tuple[int, ...]) -> None:
        """Raises a DataError where inputs of this shape are no texts."""
        if len(of) != 1:
            raise DataError(
                f"{self.name} reads texts, not inputs of shape {list(of)}; name a data set of texts, such as "
                "std.text_table"
            )


class Ngrams(OfTexts):
    """Which short runs of words or letters a text has: each counts in one of `size` places, by a fixed hash.

    That needs no vocabulary, so nothing follows from anybody's texts (Weinberger et al., ICML 2009). Two runs may share
    a place; half of them count negatively, so that such mistakes cancel on average. Case is ignored.
    """

    class Options(fedplug.Options):
        """How many places, and for what."""

        size: int = Field(1000, ge=2, le=2**20, description="numbers of a text")
        unit: Literal["words", "letters"] = Field(
            "words", description="runs of words; or of letters within words, for texts that are short or misspelt"
        )
        runs: tuple[int, int] = Field((1, 2), description="units of the shortest and of the longest run")
        length: float | None = Field(1.0, gt=0, allow_inf_nan=False, description=LENGTH)

        @field_validator("runs")
        @classmethod
        def _shortest_first(cls, value: tuple[int, int]) -> tuple[int, int]:
            if not 1 <= value[0] <= value[1] <= 10:
                raise ValueError(f"runs={list(value)} must be [SHORTEST, LONGEST], between 1 and 10")
            return value

    options: Options

    def shape(self, of: tuple[int, ...]) -> tuple[int, ...]:
        """As many numbers as there are places."""
        self.require_texts(of)
        return (self.options.size,)

    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """The counts by place, weighted, and the length."""
        from sklearn.feature_extraction.text import HashingVectorizer

        self.shape(of)
        chosen = self.options
        counter = HashingVectorizer(
            n_features=chosen.size, analyzer="word" if chosen.unit == "words" else "char_wb", ngram_range=chosen.runs,
            norm=None, dtype=np.float32,
        )  # fmt: skip
        weights = self.weights(lambda rows: counter.transform(texts_of(rows)), public)

        def counts(rows: NDArray[Any]) -> NDArray[np.float32]:
            found: NDArray[np.float32] = counter.transform(texts_of(rows)).toarray() * weights
            return found if chosen.length is None else to_length(found, chosen.length)

        return counts

    def weights(self, counted: Any, public: Public) -> NDArray[np.float32] | np.float32:
        """The weight of each place, (size,), or of all.

        Args:
            counted: gives the counts of texts, a sparse matrix (n, size) of their bytes.
            public: gives the bytes of public texts, if there are any.
        """
        return np.float32(1)

    def describe(self) -> str:
        """A line for the plan of the run."""
        chosen = self.options
        runs = " to ".join(map(str, dict.fromkeys(chosen.runs)))
        return f"runs of {runs} {chosen.unit} in {chosen.size} places ({self.follows_from_public()}) of {self._inside}"


class Tfidf(Fitted, Ngrams):
    """The same counts, each weighted by how rare its place is in public texts: log((1 + n) / (1 + n with it)) + 1.

    The weights follow from the data set `fitted_on` alone, such as `{use: std.python_text, part: docstrings}`, of which
    no text may be a client's (Salton & Buckley 1988; the formula is scikit-learn's).
    """

    class Options(Fitted.Options, Ngrams.Options):
        """From how many texts."""

        examples: int = Field(10000, ge=1, description="public texts that weights follow from, the first so many")

    options: Options

    def weights(self, counted: Any, public: Public) -> NDArray[np.float32]:
        """By place, float32 (size,)."""
        from sklearn.feature_extraction.text import TfidfTransformer

        known = counted(public[0](self.options.examples))
        weights: NDArray[np.float32] = TfidfTransformer().fit(known).idf_.astype(np.float32)
        return weights


class WordVectors(OfTexts):
    """The mean of the vectors of a text's words, from a published file in the text format of GloVe or fastText.

    A line of the file has a word and its numbers. Words that are not in it count for nothing, and a text without any
    other is all zero. fedplug downloads nothing: fetch, for instance, `glove.6B.zip` (nlp.stanford.edu/projects/glove)
    and unpack it into the data folder.
    """

    class Options(files.Checked):
        """The file, and how long a text is then."""

        file: str = Field(min_length=1, description=f"such as glove.6B.100d.txt or wiki-news-300d-1M.vec; {files.PATH}")
        length: float | None = Field(1.0, gt=0, allow_inf_nan=False, description=LENGTH)

    options: Options

    def shape(self, of: tuple[int, ...]) -> None:
        """The file says it."""
        self.require_texts(of)

    @property
    def rests_on(self) -> list[str]:
        """The file."""
        return [f"the word vectors {Path(self.options.file).name}"]

    def follows_from(self, root: str | None) -> list[Any]:
        """Its options, and the file."""
        return [*super().follows_from(root), self._held(root)[1]]

    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """The mean, and the length."""
        self.shape(of)
        vectors, length = Vectors(self._held(root)[0], self.options.file), self.options.length

        def means(rows: NDArray[Any]) -> NDArray[np.float32]:
            found = np.stack([vectors.mean(text) for text in texts_of(rows)])
            return found if length is None else to_length(found, length)

        return means

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"means of word vectors ({self.follows_from_public()}) of {self._inside}"

    def _held(self, root: str | None) -> tuple[bytes, str]:
        chosen = self.options
        remedy = (
            "fetch word vectors, such as glove.6B.zip of nlp.stanford.edu/projects/glove or wiki-news-300d-1M.vec.zip "
            "of fasttext.cc, unpack them there, or name another: file"
        )
        return files.content_of(files.located(root, chosen.file, remedy), chosen.sha256)


class Vectors:
    """The vectors of a file, parsed when a text has their word.

    Args:
        content: lines of a word and its numbers, all equally many; before them may be one of how many there are.
        name: of the file, for messages.

    Raises:
        DataError: there are no such lines.
    """

    def __init__(self, content: bytes, name: str) -> None:
        lines = content.splitlines()
        if lines and len(lines[0].split()) == 2:  # fastText's: how many words, how many numbers
            del lines[0]
        self._name, self._size = name, len(lines[0].split()) - 1 if lines else 0
        if self._size < 1:
            raise DataError(f"{name} has no line of a word and its numbers; name a file in the text format of GloVe")
        self._lines = dict(line.partition(b" ")[::2] for line in reversed(lines))  # of equal words the first counts
        self._of = functools.cache(self._parsed)

    def mean(self, text: str) -> NDArray[np.float32]:
        """That of a text's known words, (numbers,); a word in capitals counts as the small one where it has none."""
        found = [vector for word in _WORD.findall(text) if (vector := self._of(word)) is not None]
        return np.mean(found, 0) if found else np.zeros(self._size, np.float32)

    def _parsed(self, word: str) -> NDArray[np.float32] | None:
        line = self._lines.get(word.encode(), self._lines.get(word.lower().encode()))
        if line is None:
            return None
        try:
            vector = np.array(line.split(), np.float32)
        except ValueError:
            vector = np.empty(0, np.float32)
        if len(vector) != self._size or not np.isfinite(vector).all():
            raise DataError(f"{self._name}: the line of {word!r} has not {self._size} numbers; fetch the file again")
        return vector
