"""Files of JSON lines that only grow."""

from __future__ import annotations

import math
import resource
import signal
from pathlib import Path

import pytest
from fedplug.runs.lines import START, Lines


def test_lines_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "x.jsonl")
    lines.append({"a": 1}, {"b": math.nan})
    mark = lines.mark
    before = lines.file.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limit[1]))  # as a disk with room for five bytes
    try:
        with pytest.raises(OSError, match=r"could not be written to its end|File too large"):
            lines.append({"long": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert lines.file.read_bytes() == before
    assert lines.mark == mark
    lines.append({"c": 3})
    assert [list(record) for record in lines.read(lines.mark)] == [["a"], ["b"], ["c"]]
    lines.cut(mark)
    assert lines.file.read_bytes() == before
    lines.cut(START)
    assert lines.read(START) == []
