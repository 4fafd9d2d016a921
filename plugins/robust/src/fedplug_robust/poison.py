"""The section `poison` of a recipe: some clients lie, to see what a protocol keeps of them.

A liar runs another program than the server believes: what it lies about differs, and no message says so. In a recipe
that simulates clients, that other program goes around the calls that every client answers. The server, and what it
runs, hears of liars as it would in a federation: by nothing but what they send.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast, get_args

import fedplug
from fedplug import Combine, Facts, Field, Noise, Reveals, Section, WeightedSum
from fedplug.api.blocks import unchangeable
from fedplug.api.data import Figure
from fedplug.api.errors import SetupError
from fedplug.api.events import Released
from fedplug.api.operations import Party
from fedplug.api.roles import Scorer
from fedplug.api.streams import stream
from fedplug.recipe.composition import instantiate
from fedplug.round.base import NAME
from pydantic import AfterValidator

from fedplug_robust.lies import Liar, Lie, Sight
from fedplug_robust.shares import taken_shares

if TYPE_CHECKING:
    import numpy as np
    from fedplug import Around, KeyPath
    from fedplug.api.data import Examples
    from fedplug.api.events import Subject
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.hosted import HostedClient
    from fedplug.round.world import World
    from numpy.typing import NDArray

KEY = "poison"
BACKDOOR = Figure("backdoor success", better="lower")
KEPT_OUT = Figure("lies kept out", better="higher")
HITS, TRIES = f"{KEY}.hits", f"{KEY}.tries"


def _some(given: str | int | tuple[int, ...]) -> str | int | tuple[int, ...]:
    """Raises ValueError where these are no clients."""
    if isinstance(given, str):
        share = given.removesuffix("%")
        try:
            right = given.endswith("%") and 0 < float(share) < 100
        except ValueError:
            right = False
        if not right:
            raise ValueError(f"{given!r} is no share of the clients; write one such as 20%, a number, or a list of ids")
    elif (isinstance(given, int) and given < 1) or (isinstance(given, tuple) and not given):
        raise ValueError("nobody lies; write clients: 20%, a number, or a list of ids, or leave poison out")
    elif isinstance(given, tuple) and (min(given) < 0 or len(set(given)) < len(given)):
        raise ValueError(f"{list(given)} must be different ids from 0")
    return given


class PoisonOptions(fedplug.Options):
    """Who lies, and when."""

    clients: Annotated[str | int | tuple[int, ...], AfterValidator(_some)] = Field(
        description="who lies: a share such as 20%, or a number, drawn from the seed; or a list of ids"
    )
    from_round: int = Field(1, ge=1, description="the first round in which they do; they do as asked before")
    to_round: int | None = Field(None, ge=1, description="the last one; null: to the end")


class PoisonSection(Section):
    """Have some clients lie, so that a run shows what a protocol keeps of them."""

    Options = PoisonOptions
    lists: ClassVar = {"lies": KEY}
    example = "[{use: robust.alie}]"
    judged_by: ClassVar = (BACKDOOR, KEPT_OUT)

    def liars(self, seed: int, clients: int) -> tuple[int, ...]:
        """Their ids, ascending."""
        given = self.options.clients
        if isinstance(given, tuple):
            return tuple(sorted(given))
        return tuple(sorted(stream(seed, KEY).permutation(clients)[: self._count(clients)].tolist()))

    def _count(self, clients: int) -> int:
        """How many they are, where ids are not given."""
        given = self.options.clients
        return given if isinstance(given, int) else max(1, round(float(given.removesuffix("%")) / 100 * clients))

    def lies_in(self, round: int) -> bool:
        """Whether they lie in a round, from 0."""
        last = self.options.to_round
        return bool(self.options.from_round - 1 <= round and (last is None or round < last))

    def check(self, around: Around) -> Iterator[tuple[KeyPath, str]]:
        """The liars are clients of this recipe, not all of them, and nobody's real data is behind them."""
        given, clients, recipe = self.options.clients, around.clients, around.recipe
        if clients is not None:
            count = len(given) if isinstance(given, tuple) else self._count(clients)
            if isinstance(given, tuple) and max(given) >= clients:
                yield ("clients",), f"there is no client {max(given)}; data.clients={clients}: 0 to {clients - 1}"
            elif count >= clients:
                yield ("clients",), f"{count} of {clients} clients lie, and one at least must be honest; write fewer"
        if recipe is None:
            return
        if recipe.data.at == "sites":
            yield (), "poison makes clients of a simulation lie, and at sites they are real; remove it, or at: sites"
        first, last = self.options.from_round, self.options.to_round or recipe.rounds
        if not first <= last <= recipe.rounds:
            yield ("to_round",), f"rounds {first} to {last} are none of rounds={recipe.rounds}"
        for use in self.uses["lies"]:
            if not isinstance(around.parts.get(use.name), Lie):
                yield use.path[1:], f"{use.use} is no fedplug_robust.Lie; its class must inherit from that"

    def reveals(self, recipe: Recipe) -> Sequence[Reveals]:
        """Where liars leave noise out, nobody knows what is left of what others count on; and what follows from updates
        of others carries these past their noise.
        """
        lies = [cast("Lie", instantiate(use)) for use in self.uses["lies"]]
        liars, found = f"{len(self.liars(recipe.seed, recipe.clients))} of {recipe.clients} clients", []
        kinds = [kind for lie in lies for kind in lie.leaves_out]
        if any(issubclass(Noise, kind) or issubclass(kind, Noise) for kind in kinds):
            note = f"{liars} leave out noise that is counted, for others too"
            found.append(Reveals("noise left out", get_args(Party), voids=True, note=note))
        if any(lie.sees == "all" for lie in lies):
            note = f"{liars} lie by updates of all clients as they are before protection: sees: all"
            found.append(Reveals("updates of others", get_args(Party), voids=True, note=note))
        return found

    def figures(self, counts: Mapping[str, float], log: Mapping[str, float]) -> Mapping[str, float]:
        """How often the mark works, and how far lies were kept out of the results so far."""
        found = {KEPT_OUT.name: log[KEPT_OUT.name]} if KEPT_OUT.name in log else {}
        return found | ({BACKDOOR.name: counts[HITS] / counts[TRIES]} if counts.get(TRIES) else {})

    def around(self, composition: Composition, world: World) -> Callable[..., Any]:
        """The program of those who lie."""
        return Program(self, composition, world).around

    def attach(self, protocol: Subject) -> None:
        """Counts what lies were in the results, of which the server itself learns nothing."""
        liars = {*self.liars(protocol.recipe.seed, len(protocol.client_ids))}
        aggregate = protocol.recipe.aggregate.name

        def count(event: Released) -> None:
            by_weight = event.weights if _adds_up(protocol.server.facts) else {}
            shares = taken_shares(aggregate, protocol.server, by_weight)
            inside = liars & shares.keys()
            if not inside or not self.lies_in(event.round) or len(inside) == len(shares) or not sum(shares.values()):
                return
            part = sum(shares[client_id] for client_id in inside) / sum(shares.values())
            memory = protocol.server.state.setdefault(KEY, {"sum": 0.0, "rounds": 0})
            memory["sum"] += 1 - part * len(shares) / len(inside)
            memory["rounds"] += 1
            protocol.server.log[KEPT_OUT.name] = memory["sum"] / memory["rounds"]

        protocol.events.subscribe(Released, count)

    def describe(self) -> str:
        """Who lies, and how."""
        given = self.options.clients
        who = f"clients {', '.join(map(str, given))}" if isinstance(given, tuple) else f"{given} of the clients"
        last = "" if self.options.to_round is None else f" to {self.options.to_round}"
        when = f", from round {self.options.from_round}{last}" if self.options.from_round > 1 or last else ""
        return f"{who} lie: {', '.join(use.use for use in self.uses['lies'])}{when}"


def _adds_up(facts: Facts) -> bool:
    """Whether updates count by their weights alone; nobody knows what they count in a function of a plugin."""
    behind = [step for zone in facts.links for step in facts.steps(zone) if step.link.hook == "aggregate"]
    adds = [operation for step in behind for operation in step.operations]
    return not any(isinstance(each, Combine) or (isinstance(each, WeightedSum) and each.by) for each in adds)


class Program:
    """What the liars of one process run in the place of what they were asked.

    Args:
        section: who lies, and how.
        composition: this process' own components.
        world: the data of all, of which liars share theirs.

    Raises:
        SetupError: a lie is about other data.
    """

    def __init__(self, section: PoisonSection, composition: Composition, world: World) -> None:
        recipe = composition.recipe
        self._section, self._composition, self._world = section, composition, world
        self._lies = [composition.part(use.name, Lie) for use in section.uses["lies"]]
        if world.data is not None:  # refused with data at sites
            for use, lie in zip(section.uses["lies"], self._lies, strict=True):
                if problem := lie.misfit(world.data):
                    raise SetupError(f"{use.place}: {use.use}: {problem}")
        self._clients = recipe.clients
        self._liars = section.liars(recipe.seed, recipe.clients)
        self._fellows: dict[int, Any] = {}
        self._seen: tuple[int, Any, dict[Sight, NDArray[np.float64]]] = (-1, None, {})
        self._left: tuple[Any, Facts] | None = None

    @contextlib.contextmanager
    def around(self, component: str, method: str, client: HostedClient) -> Iterator[Callable[[Any], Any]]:
        """What goes around a call at a client; of those that do not lie, nothing."""
        asked = method if component == NAME and client.client_id in self._liars else ""
        if asked in ("join", "take_weight"):
            with self._claiming(client):
                yield _as_it_is
        elif asked == "evaluate":
            yield _as_it_is
            self._try(client)
        elif asked in ("train", "protect") and self._section.lies_in(client.facts.round):
            with self._training(client) if asked == "train" else self._protecting(client):
                yield _as_it_is
            if asked == "train":
                self._lie(client)
        else:
            yield _as_it_is

    def _liar(self, lie: Lie, client: HostedClient, examples: Examples, update: Any = None) -> Liar:
        """What this lie sees, and no other."""
        return Liar(
            client, client.facts, examples, self._clients, len(self._liars), lambda: self._honest(client, lie.sees),
            update,
        )  # fmt: skip

    @contextlib.contextmanager
    def _claiming(self, client: HostedClient) -> Iterator[None]:
        count = client.num_examples
        for lie in self._lies:
            count = lie.num_examples(count)
        client._examples = count
        try:
            yield
        finally:
            client._examples = None

    @contextlib.contextmanager
    def _training(self, client: HostedClient) -> Iterator[None]:
        """With other examples, and what components keep of these apart from what they keep of its own."""
        examples = client.data.train
        for lie in self._lies:
            examples = lie.examples(self._liar(lie, client, examples))
        if examples is client.data.train:
            yield
            return
        data, cache = client.data, client.cache
        client.data = dataclasses.replace(data, train=examples)
        client.cache = {}  # what was kept of other examples
        try:
            yield
        finally:
            client.data, client.cache = data, cache

    def _lie(self, client: HostedClient) -> None:
        """What it has learnt, and what its scorers have found, is what it says from here on."""
        import numpy as np

        if client.update is None:
            return
        update = client.update
        with np.errstate(over="ignore", invalid="ignore"):
            for lie in self._lies:
                liar = self._liar(lie, client, client.data.train, update)
                update = liar.update = lie.update(liar)
                for name, found in client.scores.items():
                    if not self._composition.part(name, Scorer).scoring.public:
                        client.scores[name] = _finite(lie.scores(liar, found))
            if update is not client.update:
                client.update = client.trained = unchangeable(_finite(update))

    @contextlib.contextmanager
    def _protecting(self, client: HostedClient) -> Iterator[None]:
        facts, left = client.facts, tuple(kind for lie in self._lies for kind in lie.leaves_out)
        if left and (self._left is None or self._left[0] is not facts):
            self._left = facts, _LeftOut(left_out=left, **_fields(facts))
        if left and self._left is not None:
            client.facts = self._left[1]
        try:
            yield
        finally:
            client.facts = facts

    def _try(self, client: HostedClient) -> None:
        """Adds to what a client says of the model how well its own purpose is served, on its share of the test set."""
        said = client.reports.evaluation
        task = dict(said.get("task", {}))
        own = client.data.shared_test.take(slice(self._liars.index(client.client_id), None, len(self._liars)))
        for lie in self._lies:
            if type(lie).tries is not Lie.tries:
                client.loaded(client.vector)
                task |= {f"{KEY}.{name}": count for name, count in lie.tries(self._liar(lie, client, own), own).items()}
                client.forget_model()
        if said:
            client.reports.evaluation = {**said, "task": task}

    # -- what liars see ------------------------------------------------------------------------------------------------

    def _honest(self, client: HostedClient, sees: Sight) -> NDArray[np.float64]:
        """Updates that these clients would send in this round, (n, P); found once for the liars of a process."""
        import numpy as np

        round, vector, found = self._seen
        if round != client.facts.round or vector is not client.vector:  # which the clients of a process share
            self._seen = client.facts.round, client.vector, (found := {})
        if sees not in found:
            whose = self._liars if sees == "liars" else range(self._clients)
            found[sees] = np.array([self._trained(client, each) for each in whose], np.float64)
        return found[sees]

    def _trained(self, client: HostedClient, client_id: int) -> NDArray[np.float32]:
        """What a client would have learnt in this round: its trainer at work on its examples, on the global model."""
        if client_id not in self._fellows:
            self._fellows[client_id] = self._world.holdings([client_id])[client_id].data
        fellow = copy.copy(client)
        fellow.client_id, fellow.data, fellow.personal, fellow.update = client_id, self._fellows[client_id], None, None
        fellow.state, fellow.cache, fellow.scores, fellow.log, fellow.figures = {}, {}, {}, {}, {}
        fellow.operations, fellow.remembered = {}, dataclasses.replace(client.remembered)
        trainer = self._composition.trainer
        model = fellow.loaded(fellow.vector)
        trainer.train(fellow, fellow.facts)
        update = model.moved_from(fellow.vector)
        fellow.forget_model()
        return update


_LARGEST = 1e38


def _finite(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """What can be sent."""
    import numpy as np

    return np.nan_to_num(values.astype(np.float32), posinf=_LARGEST, neginf=-_LARGEST)


def _as_it_is(answer: Any) -> Any:
    return answer


def _fields(facts: Facts) -> dict[str, Any]:
    return {each.name: getattr(facts, each.name) for each in dataclasses.fields(facts) if each.init}


@dataclasses.dataclass(frozen=True, eq=False)
class _LeftOut(Facts):
    """The facts of a round as a liar executes them: without some operations on its update."""

    left_out: tuple[type, ...] = ()

    def steps(self, zone: str) -> tuple[Any, ...]:
        """Those of everybody, of which a liar executes some alone."""
        return tuple(self._executed(step) for step in super().steps(zone))

    def _executed(self, step: Any) -> Any:
        if step.link.hook != "protect":
            return step
        kept = [number for number, each in enumerate(step.operations) if not isinstance(each, self.left_out)]
        states = tuple(step.states[number] for number in [*kept, len(step.states) - 1])
        return dataclasses.replace(step, operations=tuple(step.operations[number] for number in kept), states=states)
