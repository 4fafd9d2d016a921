"""Objects of a Python session in a recipe: `fedplug.run(recipe, model=Net, data=(X, y, X_test, y_test), loss=focal)`.

Each becomes a file of the user's own, of which the recipe has the SHA-256 and the run folder a copy, as of any other
(`own_files`). Where the source of a function or a class can be had whole, the file is that, and what runs is what the
file holds. Else the file asks this process for the object, and says what is missing elsewhere. Of arrays the file has
the SHA-256, so that other arrays do not take their place; they may be kept next to it.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import io
import keyword
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import PluginError, SetupError
from fedplug.recipe.catalog import Catalog, Own
from fedplug.recipe.parts import OF_DATA

from fedplug_runs import own_files
from fedplug_runs.files import open_plain, read_bytes, write_bytes
from fedplug_runs.own_files import OwnFile
from fedplug_runs.session_source import NotWhole, whole_source

if TYPE_CHECKING:
    import numpy as np
    Arrays = dict[str, np.ndarray[Any, Any]]

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
"""The arrays of a data set, in the order in which they are given."""
_KEPT = 8
"""Data sets that a session remembers, the last ones: a notebook may go through many."""
_arrays: dict[str, Arrays] = {}
_held: dict[str, Any] = {}


# -- what the files ask for ------------------------------------------------------------------------------------------


def held(token: str, why: str) -> Any:
    """The object of this process that a file represents. Raises a SetupError in any other process."""
    if token not in _held:
        raise SetupError(why)
    return _held[token]


def arrays(sha256: str, file: str | None = None) -> Arrays:
    """The arrays of this SHA-256: those of this process, or those that are kept next to the file that asks for them.

    Raises:
        SetupError: there are none, or they were changed.
    """
    found = _arrays.get(sha256)
    where = f"the arrays of this run (sha256 {sha256[:12]})"
    if found is None and file is not None and (kept := Path(file).with_suffix(".npz")).is_file():
        import numpy as np

        where = str(kept)
        try:
            with open_plain(kept) as opened, np.load(opened, allow_pickle=False) as stored:
                found = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, KeyError) as error:
            raise SetupError(f"{kept} cannot be read ({error}); put it back as it was") from error
    if found is None:
        raise SetupError(
            f"{where} were in the memory of another Python session; give them again: fedplug.resume(FOLDER, data=...)"
        )
    if _digest(found) != sha256:
        raise SetupError(f"{where} were changed since; run the recipe from the start, or put them back as they were")
    return found


# -- how files are made ----------------------------------------------------------------------------------------------


def sections(
    written: Callable[[], Mapping[str, Any]], values: Mapping[str, Any], loss: Any = None,
    catalog: Catalog | None = None,
) -> dict[str, Any]:  # fmt: skip
    """`values`, sections of a recipe, with files in place of the objects that they represent.

    Args:
        written: gives the recipe as plain data, without `values`: where only the data or the loss is an object, the
            split of the data and the options of the trainer stay.
        values: by section; an object may replace the section, or its `use` with options.
        loss: a function of outputs and answers, for the trainer of the recipe.
        catalog: the components on offer; by default those installed.

    Raises:
        SetupError: an object that nobody can make a component of.
    """
    given, trainer = dict(values), ""
    if loss is not None:
        train = given.get("train", written().get("train")) or {}
        train = {"use": train} if isinstance(train, str) else dict(train)
        trainer = train.pop("use", "") or ""
        given["train"] = {**train, "use": loss}
    given |= {"model": _written("model", given["model"])} if "model" in given else {}
    for section in ("model", "data", "train"):
        value = given.get(section)
        if value is None or isinstance(value, str):
            continue
        options: dict[str, Any] = {}
        if isinstance(value, Mapping) and not (section == "data" and _are_arrays(value)):
            options = {key: option for key, option in value.items() if key != "use"}
            value = value.get("use")
            if value is None or isinstance(value, str):
                continue
        if section == "data":
            options = {key: held for key, held in (written().get("data") or {}).items() if key in OF_DATA} | options
        own, name = _file(section, value, given.get("task", written().get("task")) if section == "data" else None)
        if section == "train" and trainer not in ("", "std.sgd", "sgd"):
            own, name = _trained_by(own, name, trainer, catalog or Catalog.discover())
        given[section] = {"use": f"{own.name}:{name}", "sha256": own.sha256, **options}
    return given


def _written(section: str, value: Any) -> Any:
    """A place of a recipe, with files in place of objects, also within it."""
    if isinstance(value, Mapping):
        within = {key: _written(section, held) for key, held in value.items()}
        use = within.get("use")
        return {**within, **use} if isinstance(use, Mapping) else within
    if not callable(value):
        return value
    own, name = _file(section, value)
    return {"use": f"{own.name}:{name}", "sha256": own.sha256}


def _are_arrays(value: Mapping[str, Any]) -> bool:
    """Whether a mapping holds the arrays of a data set, rather than its options."""
    return bool({"train_images", "train_inputs", "test_images", "test_inputs"} & {*value})


def _file(section: str, value: Any, task: Any = None) -> tuple[OwnFile, str]:
    """The file that represents an object, and the name in it."""
    if section == "data" and not callable(value):
        return _file_of_arrays(value, task), "data"
    if not callable(value):
        raise SetupError(f"{section}={value!r} must be a class or a function, or the name of a component")
    name = getattr(value, "__name__", "")
    name = name if name.isidentifier() and not keyword.iskeyword(name) else {"train": "loss"}.get(section, section)
    try:
        if not (inspect.isfunction(value) or isinstance(value, type)):
            raise NotWhole(f"it is an object, a {type(value).__name__}")
        own = _own(section, whole_source(name, value))
        own.module()
    except (NotWhole, PluginError) as error:
        own = _file_in_memory(section, name, value, str(error))
    return own, name


def _trained_by(own: OwnFile, name: str, trainer: str, catalog: Catalog) -> tuple[OwnFile, str]:
    """The file of a loss, for a trainer of the recipe: the adapter is told this one's class."""
    entry = catalog.get("trainer", trainer) or catalog.get("trainer", f"std.{trainer}")
    if entry is None or entry.own is not None:
        raise SetupError(f"loss= goes with an installed trainer, and the recipe has {trainer}; give train=")
    home, _, kind = entry.value.partition(":")
    wrapped = f"{name}_by_{kind}"
    text = own.text.decode() + (
        f"\n\ndef {wrapped}(outputs, answers):\n    return {name}(outputs, answers)\n\n\n"
        f"from {home} import {kind} as _Trainer\n\n{wrapped}.trainer = _Trainer\n"
    )
    return _own("train", text), wrapped


def _file_in_memory(section: str, name: str, value: Any, reason: str) -> OwnFile:
    """Of an object without a source that runs alone."""
    import torch

    token = secrets.token_hex(16)
    found: Any
    if section == "train":
        found = lambda outputs, answers: value(outputs, answers)  # noqa: E731 (its arguments are those that count)
    else:
        found = (lambda: copy.deepcopy(value)) if isinstance(value, torch.nn.Module) else value
    _held[token] = found
    asked: list[inspect.Parameter] = []
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError as error:
        raise SetupError(f"{section}={value!r} does not say which arguments it takes; write a function") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = parameter.default
        if default is not parameter.empty and type(default) not in (bool, int, float, str, type(None)):
            continue  # stays the same
        kind = parameter.empty if default in (parameter.empty, None) else type(default)
        asked.append(parameter.replace(annotation=kind))
    why = (
        f"{section if section == name else f'{section} {name}'} is in the memory of the Python session that ran this "
        f"alone, since {reason}; write it in a file, with all that it needs, and name that: use: my_{section}.py:NAME"
    )
    text = (
        f'"""Represents {name} of a Python session."""\n\nfrom fedplug_runs.session import held as _held\n\n'
        f"ONLY_IN_MEMORY = {why!r}\n\n\n"
        f"def {name}{inspect.Signature(asked)}:\n"
        f"    return _held({token!r}, ONLY_IN_MEMORY)({', '.join(f'{each.name}={each.name}' for each in asked)})\n"
    )
    return _own(section, text)


def _file_of_arrays(value: Any, task: Any = None) -> OwnFile:
    found = _named(value)
    sha256 = _digest(found)
    _arrays[sha256] = found
    while len(_arrays) > _KEPT:
        del _arrays[next(iter(_arrays))]
    what = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in found.items())
    text = (
        f'"""Arrays of a Python session: {what}."""\n\nfrom fedplug_runs.session import arrays\n\n'
        f"SHA256 = {sha256!r}\n"
        'ONLY_IN_MEMORY = "data: its arrays are in the memory of the Python session alone; '
        'keep_data=True keeps them in the run folder"\n\n\n'
        'def data(root):\n    return arrays(SHA256, globals().get("__file__"))\n'
    )
    use = task.get("use") if isinstance(task, Mapping) else task
    use = {"classification": "", "std.classification": ""}.get(str(use or ""), str(use or ""))
    text += f"\n\ndata.task = {use!r}  # says what the answers are\n"
    return _own("data", text)


def _named(value: Any) -> Arrays:
    """The arrays that somebody gave, by name."""
    import numpy as np

    stored = dict(value) if isinstance(value, Mapping) else None
    if hasattr(value, "to_csv"):  # of pandas, or alike: its columns have names, and which is the answer it does not say
        raise SetupError(
            "data, a table with named columns, goes by a file: write it with .to_csv('data.csv', index=False), and "
            "give data={'use': 'std.table', 'file': 'data.csv', 'answer': COLUMN}"
        )
    if isinstance(value, tuple | list) and len(value) == len(ARRAYS):
        stored = dict(zip(ARRAYS, value, strict=True))
    if stored is None:
        raise SetupError(
            f"data, a {type(value).__name__}, must be {', '.join(ARRAYS)} as a tuple or a dictionary, a function that "
            "gives them, a mapping as in a recipe, or the folder of data sets"
        )
    found = {}
    for name, given in stored.items():
        try:
            found[str(name)] = array = np.asarray(given)
        except (TypeError, ValueError, RuntimeError) as error:  # lists of other lengths, a tensor on a device
            raise SetupError(
                f"data: {name} is no array ({error}); give a numpy array, or a tensor on the CPU, detached"
            ) from error
        if np.ma.is_masked(given):
            raise SetupError(
                f"data: {name} has {int(np.ma.getmaskarray(given).sum())} masked values, and models take no masks: "
                "leave such examples out, or fill in a value: .filled(VALUE)"
            )
        if not array.dtype.hasobject:
            continue
        kinds = sorted({type(each).__name__ for each in array.flat})
        if kinds != ["str"]:
            raise SetupError(
                f"data: {name} holds Python objects ({', '.join(kinds[:4])}), and must be one array of numbers, or of "
                "texts for labels; bring images to one shape, and leave out examples without a value. A table with "
                "texts among its columns goes by a file: data={'use': 'std.table', 'file': ..., 'answer': COLUMN}"
            )
        found[str(name)] = array.astype(str)
    return found


def _digest(found: Arrays) -> str:
    import numpy as np

    digest = hashlib.sha256()
    for name, array in sorted(found.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _own(section: str, text: str) -> OwnFile:
    """The file of a section, whose name and SHA-256 the recipe has; it runs what is in this process already."""
    held, name = text.encode(), f"session_{'loss' if section == 'train' else section}.py"
    own = OwnFile(hashlib.sha256(held).hexdigest(), name, held)
    own_files.remember([own])
    return own


# -- run folders -----------------------------------------------------------------------------------------------------


def keep_arrays(files: Iterable[Own], folder: Path) -> None:
    """Writes the arrays of a recipe next to the copies of its files.

    Raises:
        SetupError: the recipe has none.
    """
    import numpy as np

    for own in filter(lambda own: own.is_code, files):
        if found := _arrays.get(getattr(own.module(), "SHA256", "")):
            packed = io.BytesIO()
            np.savez(packed, allow_pickle=False, **found)
            write_bytes((folder / own.name).with_suffix(".npz"), packed.getvalue())
            return
    raise SetupError("keep_data=True keeps arrays, and data= has none; leave it out")


def only_in_memory(files: Iterable[Own], folder: Path | None = None) -> list[str]:
    """What files ask this process for, a sentence each, and why; less what the folder of a run keeps."""
    found = ((own, getattr(own.module(), "ONLY_IN_MEMORY", "")) for own in files if own.is_code)
    return [why for own, why in found if why and not (folder and (folder / own.name).with_suffix(".npz").is_file())]


def give_again(folder: Path, data: Any) -> None:
    """Has a resumed run find the arrays that it began with.

    Raises:
        SetupError: it has none, or these are others.
    """
    own = _file_of_arrays(data)
    copied = folder / own.name
    try:
        held = read_bytes(copied)
    except OSError as error:
        raise SetupError(f"data=: the run in {folder} has its data from elsewhere; leave it out") from error
    if f"SHA256 = {own.module().SHA256!r}".encode() not in held:
        raise SetupError(
            f"data=: these are not the arrays that the run in {folder} began with, see {copied}; give those, or run "
            "the recipe from the start"
        )
