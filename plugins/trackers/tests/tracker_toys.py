"""Runs for the tests of the trackers, and readers of the libraries' files."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECIPE: dict[str, Any] = {
    "name": "tracked",
    "seed": 5,
    "rounds": 3,
    "data": {"use": "std.digits", "clients": 2, "train_size": 60, "test_size": 20, "partition": {"use": "std.iid"}},
    "model": {"use": "std.mlp", "hidden": [4]},
    "train": {"use": "std.sgd", "epochs": 1},
    "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
    "protect": {"noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 2.0}]},
    "aggregate": {"use": "std.mean", "weighting": "uniform"},
    "extensions": ["stop.py:Stop"],
}
STOP = '''
from pathlib import Path

import fedplug
from fedplug.api.events import Asking


class Stop(fedplug.Extension):
    """End the run once, before the uploads of its last round, in the way that the file `stop` names."""

    def observe(self, event):
        if isinstance(event, Asking) and event.round == 2 and Path("stop").is_file():
            how = Path("stop").read_text()
            Path("stop").unlink()
            raise KeyboardInterrupt if how == "ctrl-c" else fedplug.FedplugError(how)


class Clumsy(fedplug.Extension):
    """Fail, which leaves a note."""

    def observe(self, event):
        if isinstance(event, Asking):
            raise ValueError("a note for everybody")
'''


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The steps and values that TensorBoard shows, by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def texts(folder: Path) -> dict[str, list[str]]:
    """The texts and session records that TensorBoard shows, by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder)).Reload()
    return {
        tag: [b"".join(one.tensor_proto.string_val).decode() for one in read.Tensors(tag)]
        for tag in read.Tags()["tensors"]
    }


def records(file: Path) -> Iterator[Any]:
    """The records of an offline run of wandb. wandb has the message type, but its reader is a program in Go.

    The file is a log like that of LevelDB: seven bytes of header, then blocks of 32 KiB with pieces of records. Before
    each piece there is a checksum, a length and a kind (1 whole, 2 first, 3 middle, 4 last).
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def history(file: Path) -> dict[int, dict[str, Any]]:
    """The logged values by step."""
    found = {}
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            found[record.history.step.num or int(items["_step"])] = items
    return found
