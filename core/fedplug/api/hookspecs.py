"""The six hooks. Everything a protocol does that another protocol does differently goes through one of them.

The core calls exactly one component per call (see `fedplug.recipe.composition`), so an extension that wraps a hook sees
every call and one value. `ctx` is the `fedplug.Context` of the party in which the hook runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from fedplug.api.context import Client, Context
    from fedplug.api.types import Block, Scores
    from fedplug.wire.cohort import Cohort

hookspec = pluggy.HookspecMarker("fedplug")


@hookspec(firstresult=True)
def score_parameters(client: Client, ctx: Context) -> Scores:
    """Says how much each scalar, or each layer, matters. Runs at the client, after local training.

    Args:
        client: the client; `client.update` (P,) is its local model minus the one that training started from.
        ctx: the round.

    Returns:
        float32, shape (P,) or (L,). The core keeps it as `client.scores[name]`; it is not sent anywhere by itself.
    """
    raise NotImplementedError  # a specification: pluggy never calls it


@hookspec(firstresult=True)
def negotiate_mask(cohort: Cohort, ctx: Context) -> None:
    """Makes sure that every client of the cohort has a plan. Runs at the server and drives the clients.

    Uses `cohort.ask` and `cohort.tell` with methods marked `@at_client`, which set `client.plan`. Where clients are in
    groups with a model each, it is called once a group, with that part of the cohort. Returns nothing: plans live at
    the clients.
    """
    raise NotImplementedError  # a specification: pluggy never calls it


@hookspec(firstresult=True)
def protect(block: Block, client: Client, ctx: Context) -> Block:
    """Protects one zone of one client's update. Runs at the client, as one link of the zone's chain.

    Args:
        block: what the previous link gave; the first link gets plain values.
        client: the client; `client.weight` is to be multiplied in before encryption.
        ctx: the round.

    Returns:
        The block to hand on; that of the last link is sent to the server.
    """
    raise NotImplementedError  # a specification: pluggy never calls it


@hookspec(firstresult=True)
def aggregate(blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
    """Sums one zone over the clients of one group. Runs at the aggregation server, which holds no secret key.

    Args:
        blocks: by client id, all of one zone.
        weights: by client id, in (0, 1]; already multiplied into blocks that are `weighted`.
        ctx: the round.

    Returns:
        The weighted sum, with `divisor` and `contributors` set so that `Block.mean()` is the mean over those clients
        that contributed to each position. `fedplug.add_blocks` does this for plain and encrypted blocks alike.
    """
    raise NotImplementedError  # a specification: pluggy never calls it


@hookspec(firstresult=True)
def postprocess(block: Block, ctx: Context) -> Block:
    """Undoes or completes the protection of an aggregated zone, where the component's `site` says: the key server, the
    aggregation server, or each client.

    For the zone `retained` it runs at each client after the global model has moved: `block` holds the client's own
    local values, and the component sets `ctx.party.personal`, the model that this client goes on with.

    Args:
        block: the aggregated block.
        ctx: the round; `ctx.party` is the party in which this runs.

    Returns:
        The block with plain values, or with whatever the next link of the chain needs.
    """
    raise NotImplementedError  # a specification: pluggy never calls it


@hookspec(firstresult=True)
def attack(view: Any, ctx: Context) -> Any:
    """Tries to learn about clients' data from what one adversary observed. Runs outside every party.

    Args:
        view: a `fedplug_attacks.View`: the messages that crossed the wire, as far as this adversary could read them.
        ctx: the public facts of the run.

    Returns:
        A `fedplug_attacks.AttackReport`.
    """
    raise NotImplementedError  # a specification: pluggy never calls it
