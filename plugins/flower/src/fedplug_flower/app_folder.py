"""The app folder for `flwr run`: the recipe, the two apps, and Flower's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from fedplug.recipe.recipe import Recipe
from fedplug_party.within import require_empty, write_recipe

from fedplug_flower.server import CONFIG

_SERVER = '''"""The server's side: a run of the recipe in this folder."""

from pathlib import Path

from fedplug_flower.server import app_of

app = app_of(Path(__file__).parent / "recipe.yaml")
'''
_CLIENT = '''"""The clients' side: it passes bytes on. Sites that use `fedplug federation-relay` do not load it."""

from fedplug_flower.relaying import app

__all__ = ["app"]
'''


def write_app(recipe: Recipe, folder: Path, config: Mapping[str, str | int | bool] | None = None) -> Path:
    """Writes the folder. It must be empty or not exist.

    Args:
        recipe: that it runs.
        folder: its name becomes the name of the app.
        config: values that replace those of `CONFIG`.

    Raises:
        SetupError: the folder is not empty.
    """
    require_empty(folder)
    name = re.sub(r"[^a-z0-9]+", "-", recipe.name.lower()).strip("-") or "recipe"
    package = folder / "fedplug_app"
    package.mkdir(parents=True)
    for file, text in (("__init__.py", ""), ("server_app.py", _SERVER), ("client_app.py", _CLIENT)):
        (package / file).write_text(text, encoding="utf-8")
    write_recipe(recipe, package)
    values = {**CONFIG, **(config or {})}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    (folder / "pyproject.toml").write_text(
        f"""[project]
name = "fedplug-{name}"
version = "1.0.0"
description = "The recipe {name} (digest {recipe.digest[:12]})."
license = "Apache-2.0"
dependencies = ["fedplug-flower"]

[tool.flwr.app]
publisher = "fedplug"

[tool.flwr.app.components]
serverapp = "fedplug_app.server_app:app"
clientapp = "fedplug_app.client_app:app"

[tool.flwr.app.config]
{lines}
""",
        encoding="utf-8",
    )
    return folder
