"""Pictures that components make for the report: their format, what is refused, and which are kept.

A component at a client or at the server writes `party.figures[name] = {...}` with plain numbers or numpy arrays, in one
of two forms:

    {"kind": "histogram", "title": ..., "x_label": ..., "log_y": False, "mark_label": "tau",
     "panels": [{"title": "fc1", "edges": [n + 1 numbers], "counts": [n numbers], "mark": 0.1}, ...]}
    {"kind": "box", "title": ..., "y_label": ...,
     "panels": [{"title": "raw", "log_y": True, "labels": [names], "boxes": [[min, q1, median, q3, max], ...]}, ...]}

Both may have a `note`, a sentence for the caption. A client's pictures travel in the clear with its next reply, with
accuracy counts and logs. A picture that cannot be used is left out, with a note; it never costs a round.

The core hands them on as JSON and knows nothing of them; `lab.pictures` keeps them in `figures.json` of the run folder.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from fedplug_runs.files import read_text
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

MOST_A_RUN = 100
"""How many names a run keeps."""

_Text = Annotated[str, Field(max_length=200)]
_Number = Annotated[float, Field(ge=-1e100, le=1e100, allow_inf_nan=False)]  # beyond what can be drawn
_Count = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class _Part(BaseModel):
    # Built when first used: this module is imported wherever a component is shown or checked, and draws nothing there.
    model_config = ConfigDict(extra="forbid", defer_build=True)


class _Picture(_Part):
    title: _Text
    note: _Text = ""


class _HistogramPanel(_Part):
    title: _Text = ""
    edges: list[_Number] = Field(min_length=2, max_length=401)
    counts: list[_Count] = Field(min_length=1, max_length=400)
    mark: _Number | None = None

    @model_validator(mode="after")
    def _edges_enclose_counts(self) -> Self:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"{len(self.edges)} edges for {len(self.counts)} counts; there is one edge more")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("the edges must ascend")
        return self


class _Histogram(_Picture):
    kind: Literal["histogram"]
    x_label: _Text = ""
    mark_label: _Text = "mark"
    log_y: bool = False
    panels: list[_HistogramPanel] = Field(min_length=1, max_length=64)


class _BoxPanel(_Part):
    title: _Text = ""
    labels: list[_Text] = Field(min_length=1, max_length=200)
    boxes: list[Annotated[list[_Number], Field(min_length=5, max_length=5)]] = Field(min_length=1, max_length=200)
    log_y: bool = False

    @model_validator(mode="after")
    def _five_ascending_numbers_each(self) -> Self:
        if len(self.labels) != len(self.boxes):
            raise ValueError(f"{len(self.labels)} labels for {len(self.boxes)} boxes")
        if any(low > high for box in self.boxes for low, high in pairwise(box)):
            raise ValueError("a box is minimum, quartiles and maximum in ascending order")
        return self


class _Boxes(_Picture):
    kind: Literal["box"]
    y_label: _Text = ""
    panels: list[_BoxPanel] = Field(min_length=1, max_length=8)


@functools.cache
def _picture() -> TypeAdapter[_Histogram | _Boxes]:
    return TypeAdapter(Annotated[_Histogram | _Boxes, Field(discriminator="kind")])


def checked(name: Any, picture: Any) -> dict[str, Any]:
    """The picture as plain data, every default written out.

    Raises:
        ValueError: it has another form, is too large, or holds a number that is not finite; says what is wrong.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise ValueError("its name must be text of 1 to 200 characters")
    try:
        return _picture().validate_python(picture).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"][1:]))  # the first part is the kind
        raise ValueError(f"{at + ': ' if at else ''}{first['msg']}") from None


class Pictures:
    """The pictures of a run by name: those of the last round that had one of that name.

    Args:
        note: called once a picture that is left out, with the reason.

    Attributes:
        kept: name -> the picture with `round` (1-based; 0 before the first) and `party` added to its keys.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self._note = note
        self._told: set[str] = set()

    def add(self, name: str, picture: Any, party: str, round: int) -> None:
        """Keeps a picture, or says why it does not.

        Of one name and round, the server's is kept, else that of the client with the lowest id, in any order.
        """
        old = self.kept.get(name)
        if old is None and len(self.kept) >= MOST_A_RUN:
            self.leave_out(name, party, f"a run keeps {MOST_A_RUN}; let a later one have an earlier one's name")
        elif old is None or old["round"] != round or _rank(party) <= _rank(old["party"]):
            try:
                self.kept[name] = {**checked(name, picture), "round": round, "party": party}
            except ValueError as error:
                self.leave_out(name, party, str(error))

    def leave_out(self, name: str, party: str, reason: str) -> None:
        """Says once that pictures of that name are left out, and why."""
        if name not in self._told:
            self._told.add(name)
            self._note(f"the picture {name!r} of {party} is left out: {reason}")

    def load(self, file: Path) -> None:
        """Reads what an earlier execution of the run wrote; of a file that is damaged, what can be used."""
        try:
            saved = json.loads(read_text(file)) if file.is_file() else {}
            entries = dict(saved)
        except (OSError, ValueError, TypeError) as error:
            self._note(f"{file} is damaged ({error}); its pictures are lost unless components make them again")
            return
        for name, entry in entries.items():
            try:
                own = {key: value for key, value in dict(entry).items() if key not in ("round", "party")}
                self.kept[name] = {**checked(name, own), "round": int(entry["round"]), "party": str(entry["party"])}
            except (ValueError, TypeError, KeyError) as error:
                self.leave_out(name, str(file), str(error))

    def to_json(self) -> str:
        """What `load` reads."""
        return json.dumps(self.kept)


def _rank(party: str) -> int:
    return int(party.removeprefix("client ")) if party.startswith("client ") else -1


def read_pictures(run_dir: Path) -> dict[str, dict[str, Any]]:
    """What components drew, by name; of a damaged file what can be used, since the run has noted what cannot."""
    pictures = Pictures(lambda note: None)
    pictures.load(run_dir / "figures.json")
    return pictures.kept
