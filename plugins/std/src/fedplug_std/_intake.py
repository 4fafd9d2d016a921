"""Arrays as people have them, in the few forms that examples have; what they hold is the same.

Each function takes an array and its name, and converts without loss, or refuses what it cannot convert by that name.
Whether values make sense (a range, a number that is none) is asked once of every source, before the first round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXACT = 1 << 53
"""Below this a float64 holds every whole number."""


def plain(given: Any, name: str) -> NDArray[Any]:
    """The array, as numbers or texts of this machine's byte order. Raises a DataError for others."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of other lengths, a tensor on a device
        raise DataError(f"{name} is no array ({error}); give a numpy array, or a tensor on the CPU") from error
    if np.ma.is_masked(given):
        raise DataError(
            f"{name} has {int(np.ma.getmaskarray(given).sum())} masked values, and models take no masks: leave such "
            "examples out, or fill in a value: .filled(VALUE)"
        )
    if array.dtype.hasobject:
        array = _of_objects(array, name)
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name} holds bytes that are no UTF-8 ({error}); give texts: .astype(str)") from error
    if array.dtype.kind not in "fiubU" or (array.dtype.itemsize > 8 and array.dtype.kind != "U"):
        raise DataError(f"{name} is {array.dtype} {array.shape}, and must be numbers of at most 64 bits, or texts")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _of_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Python objects that are all texts, or all numbers, such as a column of pandas."""
    try:
        found = np.array(array.tolist())
    except ValueError:  # arrays of several shapes
        found = array
    if found.dtype.kind == "U" and not all(isinstance(each, str) for each in array.flat):
        found = array  # numbers and texts, mixed
    if found.dtype.hasobject or found.shape[: array.ndim] != array.shape:
        kinds = sorted({type(each).__name__ for each in array.flat})
        raise DataError(
            f"{name} holds Python objects ({', '.join(kinds[:4])}), and must be one array of numbers, or of texts; "
            "bring all examples to one shape and type, and leave out those without a value"
        )
    return found


def images(given: Any, name: str) -> NDArray[Any]:
    """Images (n, C, H, W): uint8 from 0 to 255, or float32. Of other types only those that lose nothing.

    Raises:
        DataError: their shape is not one of images, or the channels come last.
    """
    array = plain(given, name)
    shape = array.shape
    if array.ndim not in (3, 4) or array.dtype.kind == "U":
        table = "; for a table or tokens name the arrays train_inputs and test_inputs" if array.ndim == 2 else ""
        raise DataError(
            f"{name} is {array.dtype} {shape}, but must be images (n, H, W) or (n, C, H, W), uint8 from 0 to 255 or "
            f"float32 from 0 to 1{table}"
        )
    last = array.ndim == 4 and shape[1] not in (1, 3, 4)
    if last and (shape[3] in (3, 4) or (shape[3] == 1 and shape[1] == shape[2])):
        raise DataError(
            f"{name} is {array.dtype} {shape}, so that its last axis looks like the channels, which come second: "
            "(n, C, H, W); write .transpose(0, 3, 1, 2), or name it train_inputs if it holds no images"
        )
    array = array[:, None] if array.ndim == 3 else array
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind == "f":
        return narrow(array, name)
    if array.dtype != np.uint8 and array.size and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    return array


def narrow(given: Any, name: str, whole: bool = True) -> NDArray[Any]:
    """Numbers as models take them: float32, or int64.

    Args:
        given: numbers of any type.
        name: for messages.
        whole: whether whole numbers stay so; else truths and negative ones, which are no tokens, become float32.

    Raises:
        DataError: they are texts, or too large.
    """
    array = plain(given, name)
    if array.dtype.kind == "U":
        first = array.flat[0] if array.size else ""
        raise DataError(
            f"{name} holds texts, such as {str(first)[:40]!r}, and must be numbers; a table with texts goes by a file: "
            "std.table, with their categories"
        )
    if not whole and (array.dtype.kind == "b" or (array.dtype.kind == "i" and array.size and array.min() < 0)):
        return array.astype(np.float32)  # no tokens
    if array.dtype.kind != "f":
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{name} holds {array.max()}, and whole numbers must be below 2**63; make them smaller")
        return array.astype(np.int64)
    with np.errstate(over="ignore"):
        made = array.astype(np.float32)
    if array.dtype != np.float32 and (np.isinf(made) & np.isfinite(array)).any():
        large = array[np.isinf(made) & np.isfinite(array)][0]
        raise DataError(f"{name} holds {large:g}, which float32 cannot hold (up to 3.4e38); scale the numbers")
    return made


def labels(
    parts: Mapping[str, tuple[Any, int]], names: Sequence[str] = (), named: bool = False
) -> list[NDArray[np.int64]]:
    """One class an example, int64 (n,), in each part: of whole numbers, one-hot rows, or names of classes.

    Args:
        parts: by the name of an array, its values, (n,), (n, 1), or one-hot (n, classes), and n.
        names: of the classes in their order. Texts are looked up there, and numbers by which classes are called.
        named: whether all numbers are names.

    Raises:
        DataError: they are none of these; names the array, the value, its place and the remedy.
    """
    read = {name: _whole(given, name, count) for name, (given, count) in parts.items()}
    texts = any(each.dtype.kind == "U" for each in read.values())
    found = {str(value) for each in read.values() for value in np.unique(each)}
    places = {str(number) for number in range(len(names))}
    # Of classes called 1, 2 and 3, is the label 1 the first or the second?
    of_names, of_places = found <= {*names}, found <= places
    if of_names and of_places and not (named or texts) and any(names[int(value)] != value for value in found):
        raise DataError(
            f"{' and '.join(read)} hold {', '.join(sorted(found))}, which are places from 0 and also names among the "
            f"classes {', '.join(names)}; write the names as texts: .astype(str)"
        )
    if texts or named or (of_names and not of_places):
        return [_by_name(each.astype(str), name, names) for name, each in read.items()]
    return [*read.values()]


def _whole(given: Any, name: str, count: int) -> NDArray[Any]:
    """Classes of one part as int64 (n,), or as texts."""
    array = plain(given, name)
    targets = name.rpartition(" ")[2].replace("labels", "targets")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if not array.ndim or len(array) != count:
        raise DataError(f"{name} is {array.dtype} {array.shape}, but must be a class for each of {count} examples")
    if array.ndim == 2 and array.dtype.kind in "fiub":
        return _of_one_hot(array, name, targets)
    if array.ndim != 1:
        raise DataError(
            f"{name} is {array.dtype} {array.shape}, but must be one class for each of {count} examples, (n,); a class "
            f"a pixel or several numbers are called {targets}"
        )
    if array.dtype.kind == "f":
        odd = ~(np.isfinite(array) & (array == np.rint(array)) & (np.abs(array) < _EXACT))
        if odd.any():
            at = int(odd.argmax())
            raise DataError(
                f"{name} is {array.dtype} and holds {array[at]:g} for example {at} (counted from 0), which is no "
                f"class; correct it, or for a regression write task: std.regression and name the array {targets}"
            )
        array = array.astype(np.int64)
    return array if array.dtype.kind == "U" else narrow(array, name)


def names_of(arrays: Sequence[NDArray[Any]]) -> tuple[str, ...]:
    """Names for the classes of labels that nobody named: the texts, sorted, or 0 up to the largest number.

    Numbers that are ids (negative, from 1, or few and far apart) are names themselves.
    """
    if hot := [each.shape[1] for each in arrays if each.ndim == 2 and each.shape[1] > 1]:
        return tuple(map(str, range(max(hot))))
    values = np.unique(np.concatenate([each.reshape(-1) for each in arrays])) if arrays else np.empty(0)
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
        values = values.astype(np.int64) if (values == np.rint(values)).all() else values
    if not values.size or values.dtype.kind == "U":
        return tuple(map(str, values))
    low, high = int(values.min()), int(values.max())
    return tuple(map(str, range(high + 1) if low == 0 and high < 10 * len(values) + 10 else values))


def _of_one_hot(array: NDArray[Any], name: str, targets: str) -> NDArray[np.int64]:
    wrong = ~(np.isin(array, (0, 1)).all(1) & (array.sum(1) == 1))
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(
            f"{name} is {array.dtype} {array.shape}, and row {at} (counted from 0), {array[at].tolist()[:12]}, is not "
            "one 1 among 0s; give one class an example, (n,). Several labels an example go with task: std.multi_label, "
            f"numbers with std.regression, tokens with std.language_model, and are called {targets}"
        )
    places: NDArray[np.int64] = array.argmax(1).astype(np.int64)
    return places


def _by_name(texts: NDArray[Any], name: str, names: Sequence[str]) -> NDArray[np.int64]:
    place = {each: number for number, each in enumerate(names)}
    wrong = np.array([str(text) not in place for text in texts], bool)
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(
            f"{name} holds {str(texts[at])[:40]!r} for example {at} (counted from 0), but the classes are "
            f"{', '.join(names) or 'not named'}; name all classes in their order: classes: [...], or correct it"
        )
    return np.array([place[str(text)] for text in texts], np.int64)
