"""`fedplug federation-relay`: runs the tasks of a SuperNode without loading the app that the server sends.

A SuperNode with `--isolation process` leaves its tasks to another program on its machine. Flower's own program loads
the server's code and starts a Python process for each message, which takes seconds. This program is a single process
and only runs `relay`: whatever app a server sends, bytes go to the party, and bytes come back.

Flower lets users replace task programs, but does not promise a stable interface between them and a SuperNode. The pin
of flwr in `pyproject.toml` follows from this module and from `superlink`.
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
_PAUSE, _LONGEST_PAUSE = 0.1, 0.5
"""Seconds between two requests for a task: after a task, and when there was none for a while. The SuperNode itself asks
every three seconds."""
_TROUBLE = 2.0
"""Seconds until the next request after the SuperNode was not there or had an internal error."""
_one_at_a_time = threading.Lock()


def work(address: str, secret_file: Path, state: Path) -> None:
    """Runs tasks of a SuperNode as long as this process lives, and waits for a SuperNode that is not there.

    Args:
        address: of the SuperNode's Runtime API on this machine, `127.0.0.1:9094`.
        secret_file: the file that the SuperNode has as `--superexec-auth-secret-file`. A program without it gets no
            task.
        state: the folder of the party. Neither the SuperNode nor the server can choose it.

    Raises:
        SetupError: the secret cannot be read, or the SuperNode was not started with it.
    """
    try:
        secret = load_superexec_auth_secret(secret_file=secret_file)
    except (OSError, ValueError) as error:
        raise SetupError(f"{secret_file}: {error}; start the SuperNode with the same file") from error
    getLogger("httpx").setLevel(ERROR)  # it would log a line for each request
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE})
    client = _client(address, RuntimeVersionHttpInterceptor(component_name="SuperExec"), signed)
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    pause = _PAUSE
    while True:
        try:
            found = client.AcquireTask(wanted)
        except httpx.HTTPError as error:
            status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0
            if 400 <= status < 500:
                raise SetupError(
                    f"the SuperNode at {address} refuses to give out tasks (HTTP {status}); check that this is its "
                    f"--port, and start it with --isolation process --superexec-auth-secret-file {secret_file}"
                ) from error
            time.sleep(_TROUBLE)
            continue
        if found.HasField("task") and found.token:
            # On a separate thread: Flower waits long for a message of a run that has ended, while the next one waits.
            threading.Thread(target=_do, args=(address, found.token, found.task, state), daemon=True).start()
            pause = _PAUSE
        else:
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 1.2 * pause)


def _do(address: str, token: str, task: Task, state: Path) -> None:
    """Runs one task, and reports a failure to the SuperNode and the server."""
    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    client = _client(address, version, RuntimeTokenHttpInterceptor(token))
    alive = HeartbeatSender(lambda: _beat(client))
    context, status, details = None, SubStatus.COMPLETED, ""
    try:
        alive.start()
        message, context, _, _ = pull_task_input(client)
        content = relay(message, state)
        with _one_at_a_time:  # all tasks of a process share the variables that say who a message is from
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run_id
            TaskIdentity.node_id = context.node_id
            reply = Message(content, reply_to=message)
        push_message(client, reply, context)
    except Exception as error:  # whatever Flower raises: the next message may be fine
        status, details = SubStatus.FAILED, str(error)
        print(f"could not relay a message: {describe(error)}", flush=True)
    finally:
        push_task_output(client, context, status, details)
        if alive.is_running:
            alive.stop()
        client.close()


def _beat(client: RuntimeHttpClient) -> bool:
    """Tells the SuperNode that the task is running. Flower's own version ends the process if a run was stopped."""
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
        retry_invoker=None,  # Flower's own interrupts the process if a token is no longer valid
    )
