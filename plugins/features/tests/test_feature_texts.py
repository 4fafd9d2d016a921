"""Features of texts: against scikit-learn and by hand, from public facts alone, and what is no text or no vector."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from features_toys import Toy, made, made_digits, texts
from fedplug.api.errors import DataError, RecipeError
from fedplug_features.projection import Projection
from fedplug_features.texts import Ngrams, Tfidf, WordVectors
from fedplug_std.datasets import TextFile

VECTORS = "the 1 0\nCat 0 2\ncat 0 4\n, 1 1\n"


def rows_of(feature: Any, root: Path | None = None) -> Any:
    return feature.load(None if root is None else str(root)).train.inputs


# -- n-grams -----------------------------------------------------------------------------------------------------------


def test_equal_runs_are_counted_in_equal_places_whoever_wrote_them() -> None:
    found = rows_of(made(Ngrams, texts("red green red", "RED", "green", "blue"), size=512, runs=(1, 1), length=None))
    assert found.shape == (4, 512)
    np.testing.assert_array_equal(found[0], 2 * found[1] + found[2])
    assert np.abs(found[1]).sum() == 1
    assert not (found[3] * found[0]).any()
    both = rows_of(made(Ngrams, texts("red green"), size=512, length=None))
    assert np.abs(both).sum() == 3  # two words, and the pair


def test_letters_find_what_words_do_not() -> None:
    near = rows_of(made(Ngrams, texts("invoice", "invoise", "receipt"), unit="letters", runs=(2, 4)))
    words = rows_of(made(Ngrams, texts("invoice", "invoise", "receipt"), "words"))
    assert near[0] @ near[1] > 0.3 > near[0] @ near[2]
    assert words[0] @ words[1] == 0


def test_a_text_has_the_length_asked_for_and_an_empty_one_has_none() -> None:
    found = rows_of(made(Ngrams, texts("some words here", ""), size=50, length=3))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [3, 0], rtol=1e-6)


def test_rare_words_of_public_texts_weigh_more() -> None:
    """log((1 + n) / (1 + n with it)) + 1, of three public texts."""
    public = texts("the cat", "the dog", "the the")
    plain = rows_of(made(Ngrams, texts("the cat bird"), size=4096, runs=(1, 1), length=None))
    found = rows_of(made(Tfidf, texts("the cat bird"), public=public, size=4096, runs=(1, 1), length=None))
    weights = sorted(np.abs(found[plain != 0]))
    np.testing.assert_allclose(weights, [1, np.log(4 / 2) + 1, np.log(4) + 1], rtol=1e-6)
    fewer = made(Tfidf, texts("the cat bird"), public=public, size=4096, runs=(1, 1), length=None, examples=1)
    assert not np.allclose(rows_of(fewer), found)


def test_clients_texts_are_found_among_the_public_ones_though_cut_to_another_length() -> None:
    public = texts("my secret", "else", length=200)
    public.name = "other"
    with pytest.raises(DataError, match="2 examples of toy are among those of other"):
        rows_of(made(Tfidf, texts("my secret", "something"), public=public))


# -- word vectors ------------------------------------------------------------------------------------------------------


def test_a_text_is_the_mean_of_its_known_words(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(VECTORS)
    given = texts("The cat, a Cat", "unknown")
    found = rows_of(made(WordVectors, given, file="v.txt", length=None), tmp_path)
    np.testing.assert_allclose(found, [[2 / 4, 7 / 4], [0, 0]])  # the, cat, the comma and Cat; not a
    (tmp_path / "w.vec").write_text("4 2\n" + VECTORS)  # fastText says first how many there are
    np.testing.assert_allclose(rows_of(made(WordVectors, given, file="w.vec", length=None), tmp_path), found)
    (tmp_path / "v.txt").write_text(VECTORS.replace("4", "6"))  # what was kept is not taken for the new file
    assert rows_of(made(WordVectors, given, file="v.txt", length=None), tmp_path)[0, 1] == 9 / 4


def test_what_is_wrong_with_a_file_of_vectors_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*glove.txt, and fedplug downloads nothing; fetch .*glove.6B"):
        rows_of(made(WordVectors, texts("the"), file="glove.txt"), tmp_path)
    (tmp_path / "v.txt").write_text(VECTORS + "dog 1\n")
    with pytest.raises(DataError, match=r"v.txt: the line of 'dog' has not 2 numbers"):
        rows_of(made(WordVectors, texts("dog"), file="v.txt"), tmp_path)
    digest = hashlib.sha256(b"else").hexdigest()
    with pytest.raises(DataError, match=f"has the sha256 [0-9a-f]+, and the recipe says {digest}"):
        rows_of(made(WordVectors, texts("the"), file="v.txt", sha256=digest), tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty.txt has no line of a word and its numbers"):
        rows_of(made(WordVectors, texts("the"), file="empty.txt"), tmp_path)


# -- of texts alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda: Toy(np.zeros((3, 7), np.float32)), "reads the bytes of texts, and toy has none"),
        (lambda: Toy(np.full((3, 7), 300)), "reads the bytes of texts, and toy has none"),
        (lambda: made(Projection, texts("a"), "inner", size=3), "reads text, and inner gives other numbers"),
        (made_digits, "and std.digits has none"),
    ],
)
def test_what_is_no_text_is_refused(of: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        rows_of(made(Ngrams, of()))


def test_a_language_models_text_has_no_features(tmp_path: Path) -> None:
    """Its answers are the next bytes, one at each position."""
    (tmp_path / "some.txt").write_text("text " * 200)
    source = TextFile(TextFile.Options(file="some.txt", context=10))
    source.name = "std.text"
    with pytest.raises(DataError, match=r"no features of std.text, whose answers are classes at each position"):
        rows_of(made(Ngrams, source), tmp_path)
    assert rows_of(made(Tfidf, texts("text"), public=source, size=20), tmp_path).shape == (1, 20)


def letters(path: Path, words: str) -> dict[str, Any]:
    given = [(f"{word} number {row}", word) for word in words.split() for row in range(30)]
    path.write_text("text,kind\n" + "".join(f"{text},{word}\n" for text, word in given))
    return {"use": "std.text_table", "file": str(path), "answer": "kind", "length": 60}


def test_every_line_of_the_verdict_says_on_whose_word_texts_are_public(tmp_path: Path) -> None:
    """Of features within features too: had the public texts been a client's, nobody would have paid."""
    public = {**letters(tmp_path / "public.csv", "salary loan"), "name": "known"}
    mine = letters(tmp_path / "mine.csv", "rent tax")
    within = {"use": "features.tfidf", "size": 64, "of": mine, "fitted_on": public}
    recipe = {
        "name": "public", "seed": 1, "rounds": 2, "train": {"use": "std.sgd", "batch_size": 60, "lr": 4},
        "data": {"use": "features.projection", "size": 32, "clients": 4, "partition": "std.iid", "of": within},
        "model": "std.logistic", "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 9}, {"use": "std.gaussian", "noise_multiplier": 0.01}]},
        "aggregate": "std.mean",
    }  # fmt: skip
    run = fedplug.run(recipe, output=tmp_path / "runs", quiet=True)
    assert run.metrics[-1].accuracy > 0.9
    lines = [line for line in run.ledger.verdict.lines if line.state != "absent"]
    said = "on the word of the recipe, which calls known public"
    assert lines
    assert all(said in line.rests_on for line in lines if line.rests_on)
    assert any(line.rests_on for line in lines)
    with pytest.raises(RecipeError, match=r"runs=\[2, 1\] must be \[SHORTEST, LONGEST\]"):
        fedplug.check(recipe | {"data": recipe["data"] | {"of": within | {"runs": [2, 1]}}})
    with pytest.raises(RecipeError, match=r"data\.of.*features.tfidf reads texts, not inputs of shape \[1, 8, 8\]"):
        fedplug.check(recipe | {"data": recipe["data"] | {"of": within | {"of": "std.digits"}}})
