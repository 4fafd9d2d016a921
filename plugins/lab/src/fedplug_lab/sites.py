"""`fedplug sites`: a data set that is split, written out as one folder for each client, to try data at sites.

Each folder gets a `data.npz`, which `std.arrays` reads: the client's training examples, and as held-out ones test
examples with the same mix of classes. Clients are dealt these each for itself, so two may hold the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError, SetupError
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Agreed, plain_options
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import Marks, Position
from fedplug.round.world import World
from fedplug_runs import overlay, yaml_source
from fedplug_runs.files import open_private, private_folder
from fedplug_runs.own_files import with_files
from fedplug_runs.shelf import located
from fedplug_runs.sites import misfits
from fedplug_runs.trust import Consent

if TYPE_CHECKING:
    from fedplug.api.data import ClientData
    from fedplug.recipe.parts import Use
    from fedplug_runs.settings import Settings

FILE = "data.npz"


def write_sites(path: Path, out: Path, source: str | None, sets: Sequence[str], settings: Settings) -> Iterator[str]:
    """Writes the folders, and says what is in each and which command comes next.

    Args:
        path: the recipe.
        out: the folder that gets a folder for each client; it must be empty, or not be there.
        source: a section `data` in place of the recipe's, as YAML; `clients` is the recipe's.
        sets: changes of the recipe.
        settings: of this machine; its folder of data sets is read.

    Raises:
        RecipeError: the recipe is wrong, or the section in its place.
        SetupError: the recipe's data is at sites already and there is no other source; or the folder holds something.
        DataError: the data set is missing, or not what the recipe says of the data at all sites.
    """
    catalog = with_files(None, settings.plugins, Consent(settings.trust, ask=True))
    wanted = overlay.load_recipe(path, sets, catalog)
    if wanted.data.agreed is not None and source is None:
        raise SetupError(
            f"{path} has its data at sites, so there is nothing to split; name a data set and a partition, for "
            "instance --from '{use: std.digits, partition: {use: std.iid}}'"
        )
    split = wanted
    if source is not None:
        use, options = yaml_source.use_of(source, "--from")
        changed = overlay.read_extended(located(path), sets)
        overlay.override(changed, [("data", {**options, "use": use, "clients": wanted.clients})])
        changed.marks["data",] = Marks(Position("--from"), Position("--from"))
        split = overlay.finished(changed, catalog)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SetupError(f"{out} holds something already; name a folder that is empty, or not there: --out DIR")
    root = settings.data_root
    world = World(split, Composition(split), root)
    if world.data is None:
        raise SetupError(f"--from {source}: this is data at sites itself; name a data set with a partition")
    found = Agreed(
        shape=world.shape, classes=world.classes, mean=world.mean, std=world.data.std, kinds=world.data.kinds,
        regions=world.data.region_names,
    )  # fmt: skip
    if wanted.data.agreed is not None and (problems := list(misfits(world.data, wanted.data.agreed))):
        raise DataError(f"--from {source}: this is not what {path} says of the data at sites: {'; '.join(problems)}")
    for client_id, held in world.holdings(list(range(split.clients))).items():
        folder = out / f"client-{client_id}"
        private_folder(folder, exist_ok=False)
        with open_private(folder / FILE, "wb") as file:
            np.savez_compressed(file, **arrays_of(held.data))
        yield f"{folder}: {len(held.data.train)} training examples, {len(held.data.own_test)} held out"
    yield _onward(path, out, wanted, found, split.task)


def arrays_of(data: ClientData) -> dict[str, Any]:
    """What a client has, as `std.arrays` reads it."""
    arrays: dict[str, Any] = {"classes": data.classes, "kinds": data.kinds, "region_names": data.region_names}
    for split, examples in (("train", data.train), ("test", data.own_test)):
        what = "images" if examples.inputs.ndim == 4 else "inputs"
        arrays |= {f"{split}_{what}": examples.inputs, f"{split}_labels": examples.labels}
        arrays |= {f"{split}_{name}": getattr(examples, name) for name in ("targets", "regions", "users")}
    return {name: array for name, array in arrays.items() if array is not None and len(array)}


def _onward(path: Path, out: Path, wanted: Recipe, found: Agreed, task: Use | None) -> str:
    """How to run a recipe on these folders."""
    if wanted.data.agreed is not None and wanted.data.use == "std.arrays" and wanted.data.options.file == FILE:
        return f"fedplug run {path} --data {out}"
    agreed = {key: value for key, value in plain_options(found).items() if value or key in ("mean", "std")}
    section = {"use": "std.arrays", "at": "sites", "clients": wanted.clients, "agreed": agreed}
    sections = {"data": section} | ({} if task is None else {"task": {"use": task.use, **plain_options(task.options)}})
    return (
        f"{path} does not read {FILE}; a recipe that does, with --data {out}, says in place of its data:\n"
        f"{yaml_source.dump(sections).rstrip()}"
    )
