"""Notes the licence of every distribution in a lock, as its metadata say it, in `locks/licences.csv`.

`docs/licences.md` is made from that file, so it is the same wherever it is made. What is not installed here, such as
what another platform needs, keeps its row.

    make lock
"""

from __future__ import annotations

import csv
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

LOCKS = Path(__file__).parent
TABLE = LOCKS / "licences.csv"
OUTSIDE = ("torch", "torchvision")
"""In no lock."""
PLACES = (".venv", ".venv-docs", ".venv-dist")
"""Environments of the Makefile."""
LONGEST = 60
"""Characters of a licence's name. Some give the whole text, in place of a name."""
NAMES = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names of licences that metadata give in several ways, as SPDX writes them."""


def main() -> int:
    """Writes the table; says which rows are to be written by hand."""
    found = {
        re.sub(r"[-_.]+", "-", each.name).lower(): licence
        for place in PLACES
        for each in distributions(path=[str(path) for path in (LOCKS.parent / place).glob("lib/python*/site-packages")])
        if (licence := licence_of(each))
    }
    kept = {}
    if TABLE.is_file():
        with TABLE.open(encoding="utf-8", newline="") as file:
            kept = {row["distribution"]: row["licence"] for row in csv.DictReader(file)}
    table = {name: found.get(name) or kept.get(name, "") for name in sorted(locked())}
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("distribution", "licence"), *table.items()])
    if lacking := [name for name, licence in table.items() if not licence]:
        print(f"no licence is known of {', '.join(lacking)}; write it into {TABLE}")
    return bool(lacking)


def locked() -> set[str]:
    """Names in all locks, and what is outside of them."""
    texts = [path.read_text(encoding="utf-8") for path in LOCKS.glob("*.txt")]
    return {name for text in texts for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)} | {*OUTSIDE}


def licence_of(found: Distribution) -> str:
    """An SPDX expression, or what classifiers or the field `License` name; empty where nothing short is said."""
    about = found.metadata
    if "License-Expression" in about:
        return about["License-Expression"]
    classifiers = [each.split(" :: ")[-1] for each in about.get_all("Classifier", ()) if each.startswith("License ::")]
    said = about["License"].strip().partition("\n")[0] if "License" in about else ""
    if classifiers and classifiers != ["OSI Approved"]:
        # "BSD License" is several; the field may say which.
        exact = said if classifiers == ["BSD License"] and re.fullmatch(r"BSD-\d-Clause", said) else ""
        return exact or " OR ".join(dict.fromkeys(NAMES.get(each, each) for each in classifiers))
    return NAMES.get(said, said) if len(said) <= LONGEST else ""


if __name__ == "__main__":
    sys.exit(main())
