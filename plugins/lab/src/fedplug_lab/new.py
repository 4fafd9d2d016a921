"""`fedplug new`: a plugin to start from, which installs, passes the kit and runs.

The files under `templates` are a plugin named sketch, with one component, `sketch.thing`; of the class and of the
recipe there is one for each role. A new plugin is these with its name in place of `sketch`.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug.api.roles import ROLES
from fedplug.recipe.source import meant

TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("std", "sketch")
_MORE: dict[str, tuple[str, ...]] = {"public_plan": ("negotiate_mask",), "sealer": ("protect", "postprocess")}
"""The groups of each example that is not named by its own."""
_ENTRY = '[project.entry-points."fedplug.GROUP"]\n"sketch.thing" = "fedplug_sketch.thing:Thing"\n\n'


def roles() -> dict[str, tuple[str, ...]]:
    """The examples that there are, each with the groups of its component."""
    return {path.stem: _MORE.get(path.stem, (path.stem,)) for path in sorted(TEMPLATES.glob("*.yaml"))}


def example_of(role: str) -> str:
    """The example that a word means: its name, `negotiate_mask`, that of the role, `Negotiation`, or its beginning.

    Raises:
        SetupError: there is no example of it; names those that there are.
    """
    titles = {name: name.replace("_", "") if name in _MORE else ROLES[name].__name__.lower() for name in roles()}
    for name, title in titles.items():
        if role.lower() in (name, title, title.removesuffix("source")):
            return name
    close = f"{meant(role.lower(), [*titles.values(), *titles])} ".lstrip()
    raise SetupError(
        f"--role {role}: there is no example of that; {close}there are examples of "
        f"{', '.join(titles)}; for others, start from the source of an installed component: fedplug show NAME"
    )


def files(name: str, example: str) -> dict[str, str]:
    """The files of the plugin by path.

    Args:
        name: of the plugin; its component is `NAME.thing`.
        example: the one that it starts from.
    """
    package = f"src/fedplug_{name}"
    beside = {"attack": ['"fedplug-attacks>=0.1,<0.2"'], "model": ['"fedplug-std>=0.1,<0.2"']}.get(example, [])
    needs = ['"fedplug>=0.1,<0.2"', *beside, '"numpy>=1.26"']
    made = {
        "pyproject.toml": "pyproject.toml.txt", "README.md": "README.md", f"{package}/thing.py": f"{example}.py",
        f"{package}/recipes/{name}.yaml": f"{example}.yaml", f"tests/test_{name}.py": "test.py",
    }  # fmt: skip
    found = {path: (TEMPLATES / template).read_text(encoding="utf-8") for path, template in made.items()}
    found[f"{package}/__init__.py"] = f'"""The plugin {name} for fedplug."""\n'
    found[f"{package}/py.typed"] = ""
    groups = roles()[example]
    entries = "".join(_ENTRY.replace("GROUP", group) for group in groups)
    found["pyproject.toml"] = found["pyproject.toml"].replace("DEPENDENCIES", ", ".join(needs))
    found["pyproject.toml"] = found["pyproject.toml"].replace("ENTRIES", entries)
    title = name.replace("_", " ").capitalize()
    return {
        path: text.replace("fedplug.GROUP", ", ".join(f"fedplug.{group}" for group in groups))
        .replace("fedplug-sketch", f"fedplug-{name.replace('_', '-')}").replace("Sketch", title).replace("sketch", name)
        for path, text in found.items()
    }  # fmt: skip


def write(name: str, role: str, out: Path | None) -> Path:
    """Writes the plugin; gives its folder.

    Raises:
        SetupError: the name cannot be that of a package, there is no such example, or the folder is not empty.
    """
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise SetupError(
            f"{name!r} must be lower-case letters, digits and underscores, starting with a letter, and not "
            f"{' or '.join(_TAKEN)}; for instance fedplug new my_rounding --role protect"
        )
    example, folder = example_of(role), out or Path(f"fedplug-{name.replace('_', '-')}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} is not empty; name a folder that is, or that does not exist yet: --out DIR")
    for path, text in files(name, example).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder
