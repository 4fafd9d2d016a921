"""What commands print with `--json`: one object with `schema`, `ok`, `problems`, `notes`, and what the command found.

`schema` is `fedplug/COMMAND/1`; the number grows where a key changes or goes, and not where one is added. A problem is
`place` (`FILE:LINE:COLUMN`, a file, or empty) and `message`. Infinite numbers are `inf` and `-inf`, NaN is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

VERSION = 1
_PLACE = re.compile(r"(?P<place>.+?:\d+:\d+): (?P<message>.*)", re.DOTALL)


def document(
    command: str, problems: Iterable[str] = (), notes: Iterable[str] = (), *, ok: bool | None = None, **facts: Any
) -> str:  # fmt: skip
    """The text to print.

    Args:
        command: its name.
        problems: what is wrong, each perhaps behind its place.
        notes: what else is to be said.
        ok: by default whether there is no problem.
        facts: what the command found; plain data, or records.
    """
    from fedplug.api.records import json_ready

    found = [problem(each) for each in problems]
    whole = {
        "schema": f"fedplug/{command}/{VERSION}", "ok": not found if ok is None else ok, "problems": found,
        "notes": list(notes), **facts,
    }  # fmt: skip
    return json.dumps(json_ready(whole), indent=2, ensure_ascii=False)


def problem(text: str) -> dict[str, str]:
    """A problem as an object."""
    found = _PLACE.fullmatch(text)
    return {"place": found["place"], "message": found["message"]} if found else {"place": "", "message": text}
