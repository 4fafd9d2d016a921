"""The private names of Flower that the plugin uses: they exist, and their signatures fit our calls.

The relay and the trial speak to Flower as its own programs do. A version that fails one of these tests is outside the
range in `pyproject.toml`. To allow it, first change `worker`, `superlink` or `letters`, and try `make federation`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed; make test installs it")

import fedplug_flower
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

PROMISED = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
"""The modules that Flower documents as its interface."""
SENT = {
    "flwr.proto.control_pb2.ListRunsRequest": {"run_id"},
    "flwr.proto.control_pb2.RegisterNodeRequest": {"public_key", "name"},
    "flwr.proto.control_pb2.StartRunRequest": {"fab"},
    "flwr.proto.control_pb2.StreamLogsRequest": {"run_id", "after_timestamp"},
    "flwr.proto.runtime_pb2.AcquireTaskRequest": {"supported_task_types"},
    "flwr.proto.runtime_pb2.SendTaskHeartbeatRequest": set[str](),
    "flwr.proto.task_pb2.Task": {"task_id", "run_id"},
}
"""Messages, with the fields that we set or read."""
CALLED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "flwr.cli.build.build_fab_from_disk": (["app"], {}),
    "flwr.common.serde.fab_to_proto": (["fab"], {}),
    "flwr.supercore.auth.load_superexec_auth_secret": ([], {"secret_file": "a"}),
    "flwr.supercore.fab.Fab": (["hash", b"data", {}], {}),
    "flwr.supercore.heartbeat.HeartbeatSender": (["beat"], {}),
    "flwr.supercore.inflatable.inflatable_object.get_all_nested_objects": (["message"], {}),
    "flwr.supercore.interceptors.RuntimeTokenHttpInterceptor": (["token"], {}),
    "flwr.supercore.interceptors.RuntimeVersionHttpInterceptor": ([], {"component_name": "flwr CLI"}),
    "flwr.supercore.interceptors.SuperExecAuthHttpInterceptor": (
        [],
        {"master_secret": b"", "protected_methods": set()},
    ),
    "flwr.supercore.primitives.asymmetric.public_key_to_bytes": (["key"], {}),
    "flwr.supernode.runtime.run_clientapp.pull_task_input": (["client"], {}),
    "flwr.supernode.runtime.run_clientapp.push_message": (["client", "reply", "context"], {}),
    "flwr.supernode.runtime.run_clientapp.push_task_output": (["client", "context", "status", "details"], {}),
}
"""Functions and classes, with the positional and keyword arguments of our calls."""
WORDS = {
    "flwr.common.constant.SubStatus": {"COMPLETED", "FAILED"},
    "flwr.supercore.constant.TaskType": {"CLIENT_APP"},
}
"""Constants, with the members that we use."""
CLIENTS = {
    ControlHttpClient: {"RegisterNode", "StartRun", "StreamLogs", "ListRuns", "close"},
    RuntimeHttpClient: {"AcquireTask", "SendTaskHeartbeat", "close"},
}
"""Clients of Flower's programs, with the methods that we use."""
OTHERS = {
    "flwr.supercore.control.ControlHttpClient",
    "flwr.supercore.runtime.RuntimeHttpClient",
    "flwr.supercore.task_identity.TaskIdentity",
}
"""Names that separate tests check."""


def found(name: str) -> Any:
    """The object with this dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def private_names() -> Iterator[str]:
    """The private names of Flower that the plugin imports."""
    for path in Path(str(fedplug_flower.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr."):
                if node.module not in PROMISED:
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name.startswith("flwr"))


def test_every_private_name_is_tested_here() -> None:
    assert set(private_names()) == {*SENT, *CALLED, *WORDS, *OTHERS}


@pytest.mark.parametrize("name", CALLED)
def test_a_private_name_is_called_as_it_wants_to_be(name: str) -> None:
    places, words = CALLED[name]
    inspect.signature(found(name)).bind(*places, **words)


@pytest.mark.parametrize("name", SENT)
def test_a_message_has_the_fields(name: str) -> None:
    assert set(found(name).DESCRIPTOR.fields_by_name) >= SENT[name]


@pytest.mark.parametrize("name", WORDS)
def test_a_constant_has_the_members(name: str) -> None:
    assert set(dir(found(name))) >= WORDS[name]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_client_is_made_and_asked_as_here(client: Any) -> None:
    assert set(dir(client)) >= CLIENTS[client]
    inspect.signature(client.from_server_address).bind(
        server_address="127.0.0.1:1", insecure=True, root_certificates=None, interceptors=[], retry_invoker=None
    )


def test_a_heartbeat_can_be_started_and_stopped() -> None:
    assert set(dir(HeartbeatSender)) >= {"start", "stop", "is_running"}


def test_whose_task_it_is_can_be_said() -> None:
    """A task sets all three. They belong to the class and are properties of its metaclass."""
    settable = {name for name, member in vars(type(TaskIdentity)).items() if getattr(member, "fset", None)}
    assert settable >= {"task_id", "run_id", "node_id"}
