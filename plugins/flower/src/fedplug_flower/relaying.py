"""The relay between Flower and a party on the same machine: it passes bytes on, holds no key and reads no message.

`app` is the ClientApp, for SuperNodes that start one for every message. The SuperNode's own configuration names the
party (`--node-config 'state="/srv/fedplug/client-3"'`). No server can change it.
"""

from __future__ import annotations

from pathlib import Path

from fedplug.api.errors import FedplugError
from fedplug_party.line import ask
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedplug_flower import letters


def relay(message: Message, state: Path) -> RecordDict:
    """Passes a message's bytes to a party's program; returns its reply, or the reason why there is none.

    Args:
        message: from the server.
        state: the party's folder.
    """
    try:
        return letters.reply(ask(state, letters.data_of(message), letters.seconds_of(message), "flower"))
    except FedplugError as error:
        return letters.failure(str(error))


def _in_client_app(message: Message, context: Context) -> Message:
    state = context.node_config.get("state")
    if isinstance(state, str):
        return Message(relay(message, Path(state)), reply_to=message)
    why = "this node's configuration names no party; start the SuperNode with --node-config 'state=\"FOLDER\"'"
    return Message(letters.failure(why), reply_to=message)


app = ClientApp()
app.query()(_in_client_app)
