"""What a site does with a task: it passes bytes to the party's program on this machine, and reads none of them.

`local/fedplug.json` in the site's own folder says where its party is, and no server can change it:

    {"state": "/srv/fedplug/client-3"}

In NVFlare's simulator, whose sites share that file, `state` is a mapping from the names of sites.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError, SetupError
from fedplug_party.line import ask

from fedplug_nvflare import letters

PARTY = "fedplug.json"


def answer(task: Mapping[str, Any], file: Path, site: str) -> dict[str, Any]:
    """The letter with the party's reply, or with the reason why there is none.

    Args:
        task: the server's letter.
        file: the site's own.
        site: its name.
    """
    try:
        data, seconds = letters.request_of(task)
        return letters.reply(ask(state_in(file, site), data, seconds, "nvflare"))
    except (FedplugError, ValueError) as error:
        return letters.failure(str(error))


def state_in(file: Path, site: str) -> Path:
    """The folder of the party of a site.

    Raises:
        SetupError: the site's own file does not name one.
    """
    try:
        said: Any = json.loads(file.read_text(encoding="utf-8"))["state"]
        return Path(said[site] if isinstance(said, dict) else said)
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = '{"state": "FOLDER"}, the party\'s --state'
        raise SetupError(f"{file} names no party of the site {site} ({error!r}); write {rule}") from error
