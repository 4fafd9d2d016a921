"""What stands between Flower and the party beside it: bytes in, bytes out. It holds no key and reads no message.

`app` is the ClientApp, for SuperNodes that start one for every message. Which party is meant stands in the SuperNode's
own configuration (`--node-config 'state="/srv/fedplug/client-3"'`), which no server can change.
"""

from __future__ import annotations

from pathlib import Path

from fedplug.api.errors import FedplugError
from fedplug_party.line import ask
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedplug_flower import letters


def relay(message: Message, state: Path) -> Message:
    """Hands a message's bytes to a party's program, and its reply, or the reason why there is none, back.

    Args:
        message: of the server.
        state: the party's folder.
    """
    try:
        answer = letters.reply(ask(state, letters.data_of(message), letters.seconds_of(message)))
    except FedplugError as error:
        answer = letters.failure(str(error))
    return Message(answer, reply_to=message)


def _in_client_app(message: Message, context: Context) -> Message:
    state = context.node_config.get("state")
    if isinstance(state, str):
        return relay(message, Path(state))
    why = "this node does not say which party is beside it: start the SuperNode with --node-config 'state=\"FOLDER\"'"
    return Message(letters.failure(why), reply_to=message)


app = ClientApp()
app.query()(_in_client_app)
