"""The executor at a site; see `site`."""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedplug_nvflare.site import PARTY, answer


class PartyRelay(Executor):  # type: ignore[misc]
    """Answers the task `fedplug` with the reply of the party of this site."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """The party's reply, or the reason why there is none."""
        file = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / PARTY
        held = Shareable()
        held.update(answer(shareable, file, str(fl_ctx.get_identity_name())))
        return held
