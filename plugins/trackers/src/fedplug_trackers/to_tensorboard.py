"""Runs in TensorBoard: event files, in the run folder by default."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug import Field
from fedplug_runs.files import Files

from fedplug_trackers.said import Outcome, word
from fedplug_trackers.tracker import Begun, Common, Sink, State, Tracker

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary


class Tensorboard(Tracker):
    """Write event files for TensorBoard: scalars of each round, recipe, notes, verdict. Default: in the run folder.

    It writes the resolved recipe, the digest, versions, the numbers of each round (means over the clients) and notes.
    At the end it writes the verdict and epsilons. It never writes updates, keys, models or examples, and opens no
    connection. TensorBoard stores no files, so the report stays in the run folder.
    """

    class Options(Common):
        folder: str = Field(
            "", description="contains a folder for each run, with its name; default: tensorboard in the run folder"
        )

    extra, modules = "tensorboard", ("tensorboard",)

    def require_allowed(self, files: Files) -> None:
        """Requires permission for the folder."""
        if self.options.folder:
            files.path(str(Path(self.options.folder) / self.options.run_name))

    def place(self, run_dir: Path) -> str:
        """The folder of the event files."""
        return self.options.folder or "the run folder"

    def open(self, begun: Begun, id: str) -> Sink:
        """Opens another event file in the run's folder. Another run gets another folder."""
        parent, name = self._folder(begun)
        id = id if Path(id).name == id else ""  # somebody else may have made the run folder
        sink = _Run(parent / (id or _free(parent, name)))
        if id:
            sink.go_on(begun.rounds)
        else:
            sink.begin(begun, self.options.tags)
        return sink

    def _folder(self, begun: Begun) -> tuple[Path, str]:
        if not self.options.folder:
            return begun.folder.absolute(), "tensorboard"
        return begun.files.path(self.options.folder).absolute(), begun.title


def _free(parent: Path, name: str) -> str:
    """A name that no run has yet: TensorBoard would draw two runs in one folder as one run."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(free for free in names if not (parent / free).exists())


class _Run(Sink):
    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.id = folder.name
        self.folder = folder
        self._writer = EventFileWriter(str(folder))

    def begin(self, begun: Begun, tags: Mapping[str, str]) -> None:
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionStartInfo

        # The HParams dashboard compares this record. The text below is for people.
        info = SessionStartInfo(group_name=begun.facts["digest"][:12], start_time_secs=time.time())
        for name, value in begun.params.items():
            if isinstance(value, bool):
                info.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                info.hparams[name].number_value = value
            else:
                info.hparams[name].string_value = word(value)
        self._session(session_start_info=info)
        self._text("recipe", _table(begun.params), 0)
        self._text("run", _table({"name": begun.title, **begun.facts, **tags}), 0)
        self._writer.flush()

    def go_on(self, rounds: int) -> None:
        """Makes readers ignore rounds that a killed process wrote but did not remember."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=rounds + 1, session_log=start))
        self._writer.flush()

    def row(self, round: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]), round)
        self._writer.flush()

    def notes(self, lines: Sequence[str], round: int) -> None:
        self._text("notes", "\n".join(f"- {line}" for line in lines), round)
        self._writer.flush()

    def end(self, state: State, why: str, outcome: Outcome, files: Sequence[Path], round: int) -> None:
        from tensorboard.plugins.hparams.api_pb2 import Status
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionEndInfo

        self.row(round, {f"final_epsilon/{name}": value for name, value in outcome.epsilons.items()})
        told = {"state": state, "verdict": outcome.verdict, "error": why, **outcome.reasons}
        self._text("end", _table({name: text for name, text in told.items() if text}), round)
        good = state == "finished"
        status = Status.STATUS_SUCCESS if good else Status.STATUS_FAILURE
        self._session(session_end_info=SessionEndInfo(status=status, end_time_secs=time.time()))
        self._writer.close()

    def _text(self, tag: str, text: str, step: int) -> None:
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        self._add(_of_plugin(tag, "text", TextPluginData(version=0).SerializeToString(), tensor), step)

    def _session(self, **info: Any) -> None:
        """Writes one of the two records of the HParams dashboard: the start or the end of the run."""
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        content = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **info).SerializeToString()
        nothing = TensorProto(dtype="DT_FLOAT", float_val=[0.0])
        self._add(_of_plugin(f"_hparams_/{next(iter(info))}", metadata.PLUGIN_NAME, content, nothing), 0)

    def _add(self, summary: Summary, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _of_plugin(tag: str, plugin: str, content: bytes, tensor: Any) -> Summary:
    """A value for one of TensorBoard's dashboards. TensorBoard's own functions for this import TensorFlow."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata

    of = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))
    return Summary(value=[Summary.Value(tag=tag, metadata=of, tensor=tensor)])


def _table(given: Mapping[str, Any]) -> str:
    """A table in Markdown, which TensorBoard renders."""
    cells = ((name, word(value).replace("|", "\\|").replace("\n", " ")) for name, value in given.items())
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in cells)])
