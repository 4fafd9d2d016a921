"""Who an adversary is: which recorded messages it can read, and which keys it holds.

    server          every message, and the keys of the aggregation server (none that opens ciphertexts)
    malicious_server  the same, and it plants its own model in a probe
    eavesdropper    every message on links that are not protected
    client          its own messages, keys and plan, and those that an eavesdropper sees
    key_server      the messages of its link, and its secret key
    released        no message: the published models
    a+b             colluding parties share all messages and keys: server+client:1+client:2
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api import codec
from fedplug.api.blocks import Plan
from fedplug.api.parties import KEY_SERVER, SERVER, Client, KeyServer, Party, Server, client_address, file_name
from fedplug.wire.post_office import listed
from fedplug_runs.checkpoint import holding, read_file, read_states
from fedplug_runs.wire_record import Message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MALICIOUS = "malicious_server"


def plants(name: str) -> bool:
    """Whether an adversary of this name plants its own model."""
    return MALICIOUS in name.split("+")


@dataclasses.dataclass(frozen=True, eq=False)
class Insider:
    """A party on the adversary's side, with its saved state: keys, its plan and its model; never its data.

    Attributes:
        party: a client, the key server or the aggregation server, for opening with its keys.
        plan: the client's plan of the round; None at a server.
        vector, personal: float32 (P,), the client's global model and its personal one, if it has one.
        buffers: the batch-norm statistics of a client's model, by name.
    """

    party: Party
    plan: Plan | None = None
    vector: NDArray[np.float32] | None = None
    personal: NDArray[np.float32] | None = None
    buffers: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Adversary:
    """One adversary against one target.

    Attributes:
        name: its name in the recipe.
        roles: the parties that collude.
        clients: those among them, the first named first.
        protected_links: whether outsiders see lengths only.
    """

    name: str
    roles: frozenset[str]
    clients: tuple[int, ...] = ()
    protected_links: bool = False

    @classmethod
    def of(cls, name: str, target: int | None, clients: Sequence[int], protected_links: bool) -> Adversary | None:
        """The adversary of that name against a target; None where it is the target itself.

        Args:
            name: such as `server+client`.
            target: the attacked client.
            clients: the clients that took part; `client` without a number is the first of them that is not the target.
            protected_links: as in the recipe.
        """
        roles = [role.partition(":") for role in name.split("+")]
        inside = [int(number) for kind, _, number in roles if kind == "client" and number]
        if target in inside:
            return None
        for kind, _, number in roles:
            if kind == "client" and not number:
                others = (client_id for client_id in clients if client_id != target and client_id not in inside)
                if (other := next(others, None)) is None:
                    return None
                inside.append(other)
        kinds = frozenset("server" if kind == MALICIOUS else kind for kind, _, _ in roles)
        return cls(name, kinds, tuple(inside), protected_links)

    @property
    def plants(self) -> bool:
        """Whether it plants its own model."""
        return plants(self.name)

    def reads(self, message: Message) -> bool:
        """Whether it can read a message."""
        ends = {message.sender, message.receiver}
        if "released" in self.roles:
            return False
        if not self.protected_links and self.roles & {"eavesdropper", "client"}:
            return True
        if "server" in self.roles and SERVER in ends:
            return True
        if "key_server" in self.roles and KEY_SERVER in ends:
            return True
        return not ends.isdisjoint(map(client_address, self.clients))

    def insiders(self, folder: Path | None) -> list[Insider]:
        """The state of its parties, from the folder where every party saved its state in that round.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        if folder is None:
            return []
        found = [read_client(folder, client_id) for client_id in self.clients]
        if "server" in self.roles:
            found.append(Insider(_read(folder / file_name(SERVER), Server(), "server")))
        if "key_server" in self.roles and (folder / file_name(KEY_SERVER)).is_file():
            found.append(Insider(_read(folder / file_name(KEY_SERVER), KeyServer())))
        return found

    def told_weights(self, target: int, folder: Path | None) -> Mapping[int, float]:
        """The weights of clients, which follow from the sizes that all told the server before round 1.

        A run that does not record its messages keeps them at the server. Empty where the adversary does not read what
        the target tells, or nothing was saved.

        Raises:
            CheckpointError: the server's file is damaged.
        """
        said = Message(client_address(target), SERVER, -1, "setup", b"", 0, {})
        file = None if folder is None else folder / file_name(SERVER)
        if file is None or not file.is_file() or not self.reads(said):
            return {}
        server = Server()
        _read(file, server, "server")
        return server.weights

    def sentence(self, shared_key: bool, shares: int | None = None) -> str:
        """A readable description of its messages and keys.

        Args:
            shared_key: whether all clients hold the secret key of an encryption of this protocol.
            shares: number of clients whose shares open an upload in this protocol; None if no encryption is opened by
                shares.
        """
        links = "lengths only: the links are protected" if self.protected_links else "every message on the links"
        who = f"client {listed(list(self.clients))}" if self.clients else "a client"
        who = f"{who}, who collude," if len(self.clients) > 1 else who
        count = len(self.clients) or 1
        if shared_key:
            opens = "which open the others' ciphertexts"
        elif shares is None:
            opens = "none of which opens a ciphertext of the others"
        elif count < shares:
            held = "one client's shares" if count == 1 else f"{count} clients' shares"
            opens = f"{held}, of the {shares} that open an upload"
        else:
            opens = "among them enough shares to open the others' ciphertexts"
        their, plan = ("its", "plan") if count == 1 else ("their", "plans")
        says = {
            "server": "the aggregation server: every message, and no secret key of an encryption",
            "eavesdropper": f"an eavesdropper: {links}",
            "client": f"{who} with {their} keys, {opens}, and {their} {plan}; "
            f"of the others' messages, {'nothing: the links are protected' if self.protected_links else links}",
            "key_server": "the key server: its secret key, and the sums it is asked to open",
            "released": "anyone who gets the released models, and no message",
        }
        if self.plants:
            says["server"] = "a malicious aggregation server: every message, and clients train the model that it plants"
        return "; ".join(says[role] for role in says if role in self.roles)


def _read(path: Path, party: Party, inside: str | None = None) -> Party:
    """A server from its state file; under the key `inside` if the file holds more than the party."""
    data = read_file(path)
    with holding(path, "server's state"):
        saved = codec.decode_saved(data)
        party.restore(saved if inside is None else saved[inside])
    return party


def read_client(folder: Path, client_id: int) -> Insider:
    """A client's saved state, as an insider of the adversary has it."""

    def fetch(name: str | None) -> Any:
        return None if name is None else codec.decode_saved(read_file(folder / name))

    ((_, path, data),) = read_states(folder, [client_address(client_id)])
    with holding(path, "client's state"):
        saved = codec.decode_saved(data)
        plan = saved["plan"]
        party = Client(client_id=client_id)
        party.restore(saved)
        party.vector, party.personal = fetch(saved["vector"]), fetch(saved["personal"])
        labels = plan and fetch(plan["labels"])
        kept = Plan(labels, tuple(plan["zones"]), plan["whole"]) if plan else None
    return Insider(party, kept, party.vector, party.personal, party.remembered.buffers)
