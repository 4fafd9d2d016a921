"""The pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("plugins/*/README.md"),
        *ROOT.glob("plugins-contrib/*/README.md"),
    ]
)
FENCE = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
