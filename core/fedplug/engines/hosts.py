"""What a process of its own needs to hold parties: which ones, their host, and generators that nobody else has.

For every engine whose parties do not live in the process that runs the protocol.
"""

from __future__ import annotations

from fedplug.engines.base import Job
from fedplug.round.parties import ClientHost, KeyServerHost


def shares(num_clients: int, workers: int) -> list[list[int]]:
    """The clients of each worker, of which there are no more than clients."""
    workers = max(1, min(workers, num_clients))
    return [list(range(number, num_clients, workers)) for number in range(workers)]


def host_of(job: Job, client_ids: list[int] | None) -> ClientHost | KeyServerHost:
    """Builds the host of some clients, or of the key server where there are none.

    Raises:
        FedplugError: this process cannot build them; the message says why.
    """
    recipe, composition = job.build()
    if client_ids is None:
        return KeyServerHost(recipe, composition, job.layout, job.run_dir)
    share = job.resident and max(1, job.resident * len(client_ids) // recipe.data.clients)
    return ClientHost(recipe, composition, client_ids, job.data_root, job.device, job.run_dir, resident=share)


def draw_apart() -> None:
    """Seeds the global generators from the system: a fork copies their state, and torch begins with the same anywhere.

    Noise that a plugin draws from them would otherwise be the same in every worker, and cancel between two uploads.
    """
    import numpy as np
    import torch

    np.random.seed()
    torch.seed()
