"""Where the party of a site is: `local/fedplug.json` in the site's own folder says it, and no server can change it.

    {"state": "/srv/fedplug/client-3"}

In NVFlare's simulator, whose sites share that file, `state` is a mapping from the names of sites.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError

PARTY = "fedplug.json"


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
