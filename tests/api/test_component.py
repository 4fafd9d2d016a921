"""Options: frozen, unknown keys refused, and true is not a number."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
from fedplug.api.component import site_of
from pydantic import ValidationError


class Some(fedplug.Options):
    """Numbers, one of which may be a truth value."""

    rate: float = 0.5
    sizes: tuple[int, ...] = ()
    either: int | bool = 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rate": True}, "a number, not true or false"), ({"sizes": [1, False]}, "a whole number, not true or false"),
        ({"rata": 1}, "Extra inputs"),
    ],
)  # fmt: skip
def test_what_is_no_number_and_what_is_unknown_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Some.model_validate(given)
    assert Some(either=True).either is True


def test_options_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Some().rate = 1.0


def test_a_mark_says_where_a_method_runs() -> None:
    assert site_of(fedplug.at_client(lambda self, client: None)) == "client"
    assert site_of(fedplug.at_key_server(lambda self, key_server: None)) == "key_server"
    assert site_of(lambda self: None) is None
