"""The folder of a job: the recipe, the workflow at the server, and the executor at the sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_runs import own_files, yaml_source

from fedplug_nvflare.letters import TASK

APP, RECIPE = "fedplug", "recipe.yaml"
ASK_EVERY = 0.1
"""Seconds between two questions of a site for a task. NVFlare's own 2 would be most of a round."""


def write_job(recipe: Recipe, folder: Path, args: Mapping[str, Any] | None = None) -> Path:
    """Writes the folder, as NVFlare 2.9 reads it. It must be empty or not exist.

    Args:
        recipe: written with all its values, so that it does not depend on other files.
        folder: of the job.
        args: of `FedplugController`.

    Raises:
        SetupError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} is not empty; name an empty folder, or one that does not exist yet")
    config = folder / APP / "config"
    config.mkdir(parents=True)
    (config / RECIPE).write_text(yaml_source.dump(recipe.to_plain()), encoding="utf-8")
    own_files.keep(recipe.own_files, config)
    controller = {"id": "fedplug", "path": "fedplug_nvflare.controller.FedplugController", "args": dict(args or {})}
    executor = {"tasks": [TASK], "executor": {"path": "fedplug_nvflare.relay.PartyRelay", "args": {}}}
    least = recipe.min_clients
    for path, content in {
        folder / "meta.json": {
            "name": recipe.name, "resource_spec": {}, "min_clients": least, "deploy_map": {APP: ["@ALL"]},
        },
        config / "config_fed_server.json": {
            "format_version": 2, "server": {"task_request_interval": ASK_EVERY}, "workflows": [controller],
            "components": [],
        },
        config / "config_fed_client.json": {"format_version": 2, "executors": [executor], "components": []},
    }.items():  # fmt: skip
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return folder
