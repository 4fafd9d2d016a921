"""Data at the sites of clients: each client's folder, and whether what lies there is what the recipe says of all.

The kernel asks for it as the service `sites`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from fedplug.api.data import ClientData, Dataset, Examples
from fedplug.api.errors import DataError, of_component
from fedplug.api.roles import DataSource
from fedplug.recipe.parts import Agreed
from fedplug.round.world import Holding, read_only

OWN_WORD = "site.toml"
_TELL = ("classes",)


def site_folders(root: str | None, client_ids: list[int], site: int | None = None) -> dict[int, Path]:
    """The folder of each client, on a machine that plays all sites.

    Args:
        root: holds them; at a site, it is the folder of its client.
        client_ids: of the clients.
        site: the client whose site this is; None: it plays all.

    Raises:
        DataError: nobody named the folder that holds them, or some are missing.
    """
    if root is None:
        raise DataError(
            "with data at sites each client reads its own folder; name the folder that holds client-0, client-1 "
            "and so on: --data DIR"
        )
    if site is not None:
        return {site: Path(root)}
    folders = {client_id: Path(root) / f"client-{client_id}" for client_id in client_ids}
    if missing := [str(folder) for folder in folders.values() if not folder.is_dir()]:
        raise DataError(
            f"{_some(missing)} {'is' if len(missing) == 1 else 'are'} missing: with data at sites, the folder of data "
            f"sets, here {root}, holds one for each client; name another with --data DIR, or make what is missing"
        )
    return folders


def load_sites(source: DataSource, agreed: Agreed, folders: Mapping[int, Path]) -> dict[int, Holding]:
    """What lies at these clients' sites.

    Args:
        source: the recipe's data set.
        agreed: what the recipe says of all sites.
        folders: of each client.

    Raises:
        DataError: says of each site with unusable data what its data are, and what the recipe says.
    """
    found: dict[int, Holding] = {}
    problems = []
    for client_id, folder in folders.items():
        try:
            found[client_id] = _load(source, agreed, folder)
        except DataError as error:
            problems.append(f"client {client_id}: {error}")
    if problems:
        raise DataError("\n".join(problems))
    return found


def _load(source: DataSource, agreed: Agreed, folder: Path) -> Holding:
    tells = _told(folder)
    with of_component(source.name, "load"):
        data = _by_name(source.load(str(folder)), agreed)
    if problems := list(misfits(data, agreed)):
        raise DataError(
            f"the data in {folder} is not what the recipe says: {'; '.join(problems)}. Correct the data, or have all "
            "sites agree on another recipe"
        )
    test = read_only(data.test)
    own = ClientData(
        read_only(data.train), test, test, classes=agreed.classes, mean=agreed.mean, std=agreed.std,
        kinds=agreed.kinds, region_names=agreed.regions, columns=data.columns,
    )  # fmt: skip
    return Holding(own, str(folder), "classes" in tells)


def _by_name(data: Dataset, agreed: Agreed) -> Dataset:
    """The same examples, labelled as all sites have agreed; one may lack some classes, or list them otherwise.

    Where a model answers numbers, or any of several labels, and the recipe names no kinds, all examples are of one: a
    site that sorts its own into fifths sorts them otherwise than another.
    """
    targets = data.train.targets
    if targets is not None and targets.ndim < 3 and not agreed.kinds and data.kinds:
        train, test = (dataclasses.replace(part, labels=np.zeros_like(part.labels)) for part in (data.train, data.test))
        return dataclasses.replace(data, train=train, test=test, kinds=())
    labels = np.concatenate([data.train.labels, data.test.labels])
    named = bool(((labels >= 0) & (labels < len(data.classes))).all()) and set(data.classes) <= set(agreed.classes)
    if agreed.kinds or data.classes == agreed.classes or not named:
        return data  # nothing to do, or `misfits` says what is wrong
    place = np.array([agreed.classes.index(name) for name in data.classes])
    train, test = (dataclasses.replace(part, labels=place[part.labels]) for part in (data.train, data.test))
    return dataclasses.replace(data, train=train, test=test, classes=agreed.classes)


def misfits(data: Dataset, agreed: Agreed) -> Iterator[str]:
    """Where a data set differs from what the sites have agreed on: both, as sentences."""
    for what, there, said in (
        ("classes", tuple(data.classes), agreed.classes),
        ("kinds", tuple(data.kinds), agreed.kinds),
        ("regions", tuple(data.region_names), agreed.regions),
    ):
        if there != said:
            yield f"{what} are {_some(list(there))}, and data.agreed.{what} says {_some(list(said))}"
    if not len(data.train):
        yield "there are no training examples"
    found: dict[str, list[str]] = {}
    for split, examples in (("training", data.train), ("test", data.test)):
        for problem in _wrong(examples, agreed) if len(examples) else ():
            found.setdefault(problem, []).append(split)
    yield from (f"{' and '.join(splits)} {problem}" for problem, splits in found.items())


def _wrong(examples: Examples, agreed: Agreed) -> Iterator[str]:
    shape = examples.shape
    if shape != agreed.shape:
        yield f"inputs have the shape {list(shape)}, and data.agreed.shape says {list(agreed.shape)}"
    targets, of_pixels = examples.targets, agreed.holds.per == "pixel"
    if (targets is not None and targets.ndim > 2) != of_pixels:
        there, said = ("no class" if targets is None else "a class"), ("one" if of_pixels else "none")
        yield f"examples have {there} for every pixel, and by data.agreed.kinds they need {said}"
    elif targets is not None and of_pixels and targets.max(initial=0) >= len(agreed.classes):
        yield f"targets go up to {targets.max()}, and there are {len(agreed.classes)} classes"


def _told(folder: Path) -> list[str]:
    """What the site lets the server be told.

    Raises:
        DataError: its file cannot be read, or says something else.
    """
    import tomllib

    path = folder / OWN_WORD
    if not path.is_file():
        return []
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; correct it, or remove it to tell nothing") from error
    told = said.pop("tell", [])
    if said or not isinstance(told, list) or any(word not in _TELL for word in told):
        raise DataError(f'{path} can say tell = ["classes"], and nothing else; remove the file to tell nothing')
    return told


def _some(names: list[str]) -> str:
    """A few of them, in words."""
    shown = ", ".join(names[:12]) or "none"
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
