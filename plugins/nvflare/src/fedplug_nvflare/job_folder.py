"""The folder of a job: the recipe, the workflow at the server, and the executor at the sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.recipe.recipe import Recipe
from fedplug_party.within import require_empty, write_recipe

from fedplug_nvflare.letters import TASK

APP = "fedplug"
ASK_EVERY = 0.1
"""Seconds between two questions of a site for a task. NVFlare's own 2 would be most of a round."""


def write_job(recipe: Recipe, folder: Path, args: Mapping[str, Any] | None = None) -> Path:
    """Writes the folder, as NVFlare 2.9 reads it. It must be empty or not exist.

    Args:
        recipe: that it runs.
        folder: of the job.
        args: as in `running.Options`.

    Raises:
        SetupError: the folder is not empty.
    """
    require_empty(folder)
    config = folder / APP / "config"
    config.mkdir(parents=True)
    write_recipe(recipe, config)
    controller = {"id": "fedplug", "path": "fedplug_nvflare.controller.FedplugController", "args": dict(args or {})}
    executor = {"tasks": [TASK], "executor": {"path": "fedplug_nvflare.relay.PartyRelay", "args": {}}}
    for path, content in {
        folder / "meta.json": {
            "name": recipe.name, "resource_spec": {}, "min_clients": recipe.min_clients, "deploy_map": {APP: ["@ALL"]},
        },
        config / "config_fed_server.json": {
            "format_version": 2, "server": {"task_request_interval": ASK_EVERY}, "workflows": [controller],
            "components": [],
        },
        config / "config_fed_client.json": {"format_version": 2, "executors": [executor], "components": []},
    }.items():  # fmt: skip
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return folder
