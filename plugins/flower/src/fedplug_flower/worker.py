"""`fedplug federation-relay`: does the tasks of a SuperNode without loading the app that the server sends.

A SuperNode with `--isolation process` leaves it to a program beside it to do what arrives. Flower's own loads the
server's code, and starts a Python process for each message, which takes seconds. This one is a single process, and runs
`relay` alone: whatever app a server sends, bytes go to the party, and bytes come back.

Flower means task programs to be replaced, but does not promise that the way they speak to a SuperNode stays as it is;
the pin of flwr in `pyproject.toml` follows from this module and from `superlink`.
"""

from __future__ import annotations

import threading
import time
from logging import ERROR, getLogger
from pathlib import Path

import httpx
from fedplug.api.errors import SetupError, describe
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.proto.task_pb2 import Task
from flwr.supercore.auth import load_superexec_auth_secret
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedplug_flower.relaying import relay

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_PAUSE = 0.1
"""Seconds between two looks whether the SuperNode has a task."""
_TROUBLE = 2.0
"""Seconds until the next look after one at which the SuperNode was not there, or had an error of its own."""
_one_at_a_time = threading.Lock()


def work(address: str, secret_file: Path, state: Path) -> None:
    """Does tasks of a SuperNode for as long as this process lives; waits for one that is not there.

    Args:
        address: of the SuperNode's Runtime API on this machine, `127.0.0.1:9094`.
        secret_file: what the SuperNode was given as `--superexec-auth-secret-file`: who lacks it gets no task.
        state: the folder of the party. What the SuperNode says of it is not asked for, nor what the server says.

    Raises:
        SetupError: the secret cannot be read, or the SuperNode was not started with it.
    """
    try:
        secret = load_superexec_auth_secret(secret_file=secret_file)
    except (OSError, ValueError) as error:
        raise SetupError(f"{secret_file}: {error}; the SuperNode is started with the same file") from error
    getLogger("httpx").setLevel(ERROR)  # a line for each look
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE})
    client = _client(address, RuntimeVersionHttpInterceptor(component_name="SuperExec"), signed)
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while True:
        try:
            found = client.AcquireTask(wanted)
        except httpx.HTTPError as error:
            status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0
            if 400 <= status < 500:
                raise SetupError(
                    f"the SuperNode at {address} gives out no tasks (HTTP {status}); look whether that is its --port, "
                    f"and start it with --isolation process --superexec-auth-secret-file {secret_file}"
                ) from error
            time.sleep(_TROUBLE)
            continue
        if found.HasField("task") and found.token:
            # On a thread of its own: Flower waits long for a message of a run that has ended, and the next one is here.
            threading.Thread(target=_do, args=(address, found.token, found.task, state), daemon=True).start()
        else:
            time.sleep(_PAUSE)


def _do(address: str, token: str, task: Task, state: Path) -> None:
    """Does one task; the SuperNode and the server learn of what fails."""
    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    client = _client(address, version, RuntimeTokenHttpInterceptor(token))
    alive = HeartbeatSender(lambda: _beat(client))
    context, status, details = None, SubStatus.COMPLETED, ""
    try:
        alive.start()
        message, context, _, _ = pull_task_input(client)
        content = relay(message, state)
        with _one_at_a_time:  # who a message is from stands in what all tasks of a process share
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run_id
            TaskIdentity.node_id = context.node_id
            reply = Message(content, reply_to=message)
        push_message(client, reply, context)
    except Exception as error:  # whatever Flower raises: the next message may be fine
        status, details = SubStatus.FAILED, str(error)
        print(f"a message was not relayed: {describe(error)}", flush=True)
    finally:
        push_task_output(client, context, status, details)
        if alive.is_running:
            alive.stop()
        client.close()


def _beat(client: RuntimeHttpClient) -> bool:
    """Tells the SuperNode that somebody is at work. That of Flower's own ends the process where a run was stopped."""
    try:
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.HTTPError:
        return False
    return True


def _client(address: str, *interceptors: object) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # both ends are on this machine
        root_certificates=None,
        interceptors=list(interceptors),
        retry_invoker=None,  # Flower's own interrupts the process where a token is no longer good
    )
