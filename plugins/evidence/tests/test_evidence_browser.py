"""The page of evidence in a real browser: on a telephone, a tablet and a desk, in light and dark, and read by axe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import SCREENS, WIDTHS, below_the_fold, browser, faults

__all__ = ["browser"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_can_be_read_everywhere(browser: Any, folder: Path, width: int, scheme: str) -> None:
    found = faults(browser, folder / "index.html", width, scheme)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SCREENS)
def test_the_first_screen_says_what_was_attacked_and_who_is_kept_out(
    browser: Any, folder: Path, width: int, scheme: str
) -> None:
    """Of the locks of a telephone the first three: what was attacked, and what nobody tried, has its room."""
    wanted = {".in-short": 1, ".verdict .status": 1, ".glance li": 3 if width < 800 else 5}
    found = below_the_fold(browser, folder / "index.html", width, scheme, wanted)
    assert not found, "\n".join(found)
