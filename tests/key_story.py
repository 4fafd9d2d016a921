"""A run with keys, and the contents of its parties' files afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedplug import Block
from fedplug_runs.checkpoint import Checkpoints
from toy_components import recipe_of
from toy_protocol import build


def encrypted(scheme: str, key_holder: str, **changes: Any) -> dict[str, Any]:
    return recipe_of("encrypted", [{"use": scheme, "key_holder": key_holder, "range": 0.5}], **changes)


class Story:
    """A run whose server and parties can still be asked."""

    def __init__(self, plain: dict[str, Any], tmp_path: Path) -> None:
        self.protocol, self.engine, _ = build(plain)
        self.checkpoints = Checkpoints(tmp_path)

        def save(rounds: int) -> None:
            self.folder = self.checkpoints.write(rounds, self.protocol.state(), self.engine)

        self.protocol.after_each_round(save)
        self.protocol.setup()
        self.protocol.run()

    def party(self, address: str) -> Any:
        host = self.engine._hosts[address]  # type: ignore[attr-defined]
        return host.party if address == "key_server" else host.clients[address]

    def upload(self, client_id: int = 1) -> Block:
        """The encrypted block of a client's last upload, as the server received it."""
        messages = [m for m in self.protocol.wire.messages if m.sender == f"client:{client_id}" and m.phase == "upload"]
        uploads = [reply["value"] for reply in (m.decode() for m in messages) if "value" in reply]
        block: Block = uploads[-1]["blocks"]["encrypted"]
        return block
