"""How a component is written: typed options, markers for methods that run elsewhere, and what it declares.

A component is a class with a one-line summary as the first line of its docstring, a nested `Options` class, an
`__init__(self, options)`, and one or more methods marked `@hookimpl` (see `fedplug.hookspecs`). It needs no base class.
The run gives each component instance a `name` attribute, under which recipes, messages and state refer to it.

Modules that define components must not import torch, tenseal or other heavy libraries at the top: `fedplug check` and
`fedplug show` import them. Import heavy libraries inside the methods that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import pluggy
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

hookimpl = pluggy.HookimplMarker("fedplug")
"""Marks a method as the implementation of the hook of the same name."""

F = TypeVar("F", bound=Callable[..., Any])


class Options(BaseModel):
    """Base of every component's options: frozen, unknown keys refused, defaults validated.

    Give every field a `description`; `fedplug show` and `fedplug schema` print it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=True)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses true and false where numbers are wanted; pydantic alone would take them for 1 and 0."""
        if info.field_name and _holds_bool(value):
            annotation = cls.model_fields[info.field_name].annotation
            if _mentions(annotation, int, float) and not _mentions(annotation, bool, True, False, Any, object):
                kind = "a number" if _mentions(annotation, float) else "a whole number"
                raise PydanticCustomError("bool_as_number", "Input should be {kind}, not true or false", {"kind": kind})
        return value


def _holds_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_bool, value)))


def _mentions(annotation: Any, *wanted: Any) -> bool:
    """Whether one of these stands somewhere in an annotation: int in `list[int] | None`, True in `Literal[True]`."""
    return any(annotation is one for one in wanted) or any(_mentions(part, *wanted) for part in get_args(annotation))


def at_client(method: F) -> F:
    """Marks `method(self, client, *payload)` as one that a server may run at clients through `cohort.ask` or `tell`."""
    method.__fedplug_site__ = "client"  # type: ignore[attr-defined]
    return method


def at_key_server(method: F) -> F:
    """Marks `method(self, key_server, *payload)` as one that the server may run at the key server."""
    method.__fedplug_site__ = "key_server"  # type: ignore[attr-defined]
    return method


# What a component may declare as class attributes; `fedplug check` reads them before anything runs.
#
#   provides: frozenset[str]   capabilities it adds to a chain, e.g. {"l2_bound"} (a clip), {"noise"}, {"encryption"}
#   requires: dict[str, str]   capability that an earlier component of the chain must provide -> remedy sentence
#   forbids_before: dict[str, str]   capability that must not occur earlier in the chain -> remedy sentence
#   must_undo: bool            True if postprocess of the same zone must name the component (encryption)
#   site: str                  where its `postprocess` runs: "client", "key_server" or "server" (may be a property)
#   zones: frozenset[str]      zones its plans can hold (negotiation components; may be a property)
#   own_zones: frozenset[str]  of those, the zones whose positions are a client's own (negotiation; may be a property)
#   needs_shared_zone: bool    of a protector: its zone must lie alike at every client
#   per_layer: bool            of a scorer: it gives one score a layer, (L,)
#   needs_layer_scores: bool   the scorer it reads (option `by`, or the recipe's first) must be one
#   position_block: int        of an encryption: how many consecutive global positions share a ciphertext where clients
#                              have masks of their own; such a zone takes in the clear scalars of blocks it touches
#   key_holder: str            of an encryption without an option of that name: who can open what it seals; "shares"
#                              where only many clients together could
#   needs_model_at_server: bool   True if `ctx.party.model` and `ctx.party.vector` are needed at the server
#   needs_positions: bool      of an aggregator: clients send positions with every zone that is not encrypted, so that
#                              the server knows where in the model the values belong (and so sees the masks)
#   descends: str              of a trainer whose updates are no sum of gradients of the mean cross entropy: what they
#                              are, in words; attacks that need that loss then do not apply, and say why
#   one_step: bool             of a trainer that makes one step a round, on `batch_size` examples
#   in_evaluation_mode: bool   of a trainer whose gradients are computed in evaluation mode
#   answers_clients: bool      of an encryption opened at the key server: sums are locked for the clients, and the
#                              aggregation server only relays them
#
# and these optional methods, called by the core where they exist:
#
#   check(recipe) -> list[str]               further complaints about the recipe as a whole
#   setup(cohort, key_server, ctx) -> None   once, before round 1: keys, parameters
#   release(round, ctx) -> Release | None    what protect (or postprocess) of that round costs, for the ledger; of a
#                                            component that negotiates or forms groups: what its ballots cost
#   side_channels(ctx) -> list[SideChannel]  what it makes visible that no guarantee covers
#   describe() -> str                        one line for the plan that `fedplug run` prints
#   limits(num_clients) -> tuple[float, float]   of an encryption: largest magnitude and grid step it holds
#   open_upload(block, ctx) -> Block         of an encryption whose `postprocess` reads sums only: one upload opened by
#                                            a party with the key, for the views of insiders
#   add_blocks(blocks, ctx) -> Block         sum of ciphertext blocks that this component sealed
#   client_weight(num_examples, max_examples) -> float   an aggregator's weight of a client, in (0, 1]
#   personalise(client, ctx) -> None         of a trainer: sets `client.personal` whenever the global model has moved
#   record_release(client, ctx) -> tuple     of a trainer that protects single records: (noise multiplier, sampling
#                                            rate, steps) of the round; with record_epsilon(releases, delta) -> dict
#   assess(server, truth) -> dict[str, float]   after the run, outside every party: facts that need what no party knows;
#                                            truth has "classes", "examples" {client: [count per class]}, "categories"
#   categories(num_clients) -> list[int]     of a partition: the true category of each client, for `assess`
#
# Numbers in `party.log` and pictures in `party.figures` (`fedplug.pictures`) show up in the metrics and the report.
