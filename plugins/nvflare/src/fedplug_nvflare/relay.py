"""The executor at a site: it passes bytes to the party's program on this machine, holds no key and reads no message."""

from __future__ import annotations

from pathlib import Path

from fedplug.api.errors import FedplugError
from fedplug_party.line import ask
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedplug_nvflare import letters
from fedplug_nvflare.place import PARTY, state_in


class PartyRelay(Executor):  # type: ignore[misc]
    """Answers the task `fedplug` with the reply of the party of this site."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """The party's reply, or the reason why there is none."""
        answer = Shareable()
        try:
            data, seconds = letters.request_of(shareable)
            place = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / PARTY
            answer.update(letters.reply(ask(state_in(place, str(fl_ctx.get_identity_name())), data, seconds)))
        except (FedplugError, ValueError) as error:
            answer.update(letters.failure(str(error)))
        return answer
