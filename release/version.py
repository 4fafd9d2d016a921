"""Sets the version of all distributions of the project: in each pyproject.toml, in requirements on them, in
CITATION.cff, and as a heading of CHANGELOG.md. From then on messages say that they are on PyPI.

    python release/version.py 0.2.0
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
FORM = re.compile(r"(\d+)\.(\d+)\.(\d+)((a|b|rc)\d+)?")
UNRELEASED = "## Unreleased\n"
UNPUBLISHED = "\nPUBLISHED = False\n"
"""In `fedplug_runs.installing`."""
ASKING = (
    "plugins-contrib/*/pyproject.toml", "plugins/lab/src/fedplug_lab/new.py",
    "plugins/lab/src/fedplug_lab/templates/pyproject.toml.txt", "docs/writing-a-plugin.md",
)  # fmt: skip
"""Files that require distributions of the project, with or without their own version."""


def main() -> int:
    """Changes the files, and lists them."""
    match = FORM.fullmatch(sys.argv[1]) if len(sys.argv) == 2 else None
    if match is None:
        sys.exit("say which version: python release/version.py 0.2.0, or 0.2.0rc1")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for path in [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]:
        rewrite(path, lambda text: project_with(text, match))
    for path in (path for pattern in ASKING for path in sorted(ROOT.glob(pattern))):
        rewrite(path, lambda text: asking_for(text, match))
    published = ROOT / "plugins/runs/src/fedplug_runs/installing.py"
    rewrite(published, lambda text: text.replace(UNPUBLISHED, UNPUBLISHED.replace("False", "True")))
    rewrite(ROOT / "CITATION.cff", lambda text: cited_with(text, match[0], today))
    rewrite(ROOT / "CHANGELOG.md", lambda text: text.replace(UNRELEASED, f"{UNRELEASED}\n## {match[0]} - {today}\n", 1))
    return 0


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Writes the result of a function on a file."""
    before = path.read_text(encoding="utf-8")
    after = change(before)
    if after != before:
        path.write_text(after, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


def project_with(text: str, version: re.Match[str]) -> str:
    """A pyproject.toml with another version, which requires matching versions of the other distributions."""
    return asking_for(re.sub(r'^version = ".*"$', f'version = "{version[0]}"', text, count=1, flags=re.M), version)


def asking_for(text: str, version: re.Match[str]) -> str:
    """A text with requirements that match another version."""
    major, minor = int(version[1]), int(version[2])
    least = version[0] if version[4] else f"{major}.{minor}"  # a pre-release requires exactly itself
    asked = rf'\g<1>>={least},<{major}.{minor + 1}"'
    return re.sub(r'("fedplug[a-z-]*(?:\[[a-z,]*\])?)>=[^"]*"', asked, text)


def cited_with(text: str, version: str, day: str) -> str:
    """A CITATION.cff with another version, and the day."""
    text = re.sub(r"^date-released: .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^version: .*$", f"version: {version}\ndate-released: {day}", text, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
