"""What may have been meant by a name that nobody offers, in half a sentence.

The kernel asks for it as the service `hints`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedplug.recipe.catalog import Catalog
from fedplug.recipe.source import closest, meant


def suggest(catalog: Catalog, group: str | None, name: str, defined: Iterable[str] = ()) -> str:
    """What to say of a name that `group` (None: any group) does not offer, as half a sentence; never empty.

    Args:
        catalog: what there is.
        group, name: what was looked for.
        defined: components of the recipe, which a plain name may refer to.
    """
    said = _of_catalog(catalog, group, name)
    if "did you mean" not in said and (other := meant(name, [each for each in defined if each != name])):
        return f"{other.removesuffix('?')} (a component of this recipe)?"
    return said


def _of_catalog(catalog: Catalog, group: str | None, name: str) -> str:
    elsewhere = catalog.named(name)
    if group and elsewhere:
        groups = " and ".join(entry.group for entry in elsewhere)
        return f"it is a {groups} component; {catalog.offer(group)}"
    candidates = list(catalog.groups[group] if group else dict.fromkeys(entry.name for entry in catalog))
    if close := near(name, candidates):
        return close
    plugin, dot, _ = name.partition(".")
    if dot and not any(entry.name.startswith(plugin + ".") for entry in catalog):
        remedy = f"install the plugin, by convention fedplug-{plugin}, or name its file: --plugin {plugin}.py"
        return f"no installed plugin offers {plugin}.*; {remedy}"
    return catalog.offer(group) if group else "fedplug list shows all components"


def near(name: str, names: Iterable[str]) -> str:
    """`did you mean x or y?`; empty where no name is close."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    if not close and "." not in name:
        # People forget the plugin's name more often than they misspell it, so the bare names are compared too.
        short = {each.removeprefix("fedplug-").rpartition(".")[2]: each for each in reversed(names)}
        close = [short[match] for match in difflib.get_close_matches(name, short, n=2, cutoff=0.7)]
    return f"did you mean {' or '.join(close)}?" if close else ""


def unknown(key: str, raw: Any, known: Iterable[str], catalog: Catalog) -> str:
    """What to say of a key that neither the core nor a plugin offers, as half a sentence."""
    known = list(known)
    if not isinstance(raw, Mapping | list | tuple) or difflib.get_close_matches(key, known, n=1, cutoff=0.8):
        return closest(key, known)
    nobody = f"no installed plugin offers the section {key!r}"
    installed = {entry.name.partition(".")[0] for entry in catalog}
    for plugin in sorted({name.partition(".")[0] for name in _named(raw) if "." in name} - installed):
        return f"{nobody}; it uses {plugin}.*: install that plugin, by convention fedplug-{plugin}"
    return f"{closest(key, known)}; {nobody}"


def _named(raw: Any) -> Iterator[str]:
    """The components that the lists of an unknown section seem to name."""
    if isinstance(raw, Mapping):
        if isinstance(raw.get("use"), str):
            yield raw["use"]
        raw = [value for value in raw.values() if isinstance(value, Mapping | list | tuple)]
    for item in raw if isinstance(raw, list | tuple) else ():
        yield from _named(item)
