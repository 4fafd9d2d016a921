"""One call that executes a component and checks the work that the core does not check."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedplug.api import roles
from fedplug.api.errors import FedplugError, SetupError, of_component
from fedplug.api.facts import published_to
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import instantiate
from fedplug.recipe.parts import Use
from fedplug_runs.own_files import is_own, parts
from importlib_metadata import entry_points

from fedplug_kit import functions, outcomes, samplers, seals, single
from fedplug_kit.again import again_problems, answers, early_problems
from fedplug_kit.moving import has_functions, moving_problems
from fedplug_kit.static import check_component, members_of
from fedplug_kit.world import World, build, catalog_with, moved, name_of, recipe_around, run, staged

if TYPE_CHECKING:
    from fedplug.recipe.recipe import Recipe

CHECK = "fedplug_kit.check"
"""The entry-point group of further checks: a group of components, and a function that takes one and yields its problems
as sentences."""
_checks = functools.cache(entry_points)

_ANSWERS = (roles.Protector, roles.Aggregator, roles.Opener, roles.Ballots, roles.PublicPlan)
_IN_A_ROUND = (*_ANSWERS, roles.Scorer, roles.Negotiation, roles.Trainer, roles.Groups, roles.Extension)


def conformance(
    component: type | str,
    options: Mapping[str, Any] | None = None,
    *,
    recipe: Mapping[str, Any] | None = None,
    group: str | None = None,
    data_root: str | None = None,
    shape: tuple[int, ...] = (1, 28, 28),
) -> None:
    """Asserts that a component can be composed, and that its own work is right.

    The core executes and prices a link's operations, so they are not checked here. The component runs with random
    inputs on real parties, over real messages, in a small recipe around it. The kit checks:

    - asked again with equal facts, before a run and behind runs on other data, it gives equal operations, ballots and
      public plans, and its `Post` and `Shift` equal values;
    - its functions return as many finite values as they receive, also for awkward values. `Combine` does not change its
      blocks and does not depend on the order of clients. What a function keeps of one scalar never gets onto another,
      also where zones move from round to round;
    - samplers of `Noise.own` draw afresh each time, for each value, from the declared source, and hide as much as their
      price says, as far as an audit of some thousand draws shows;
    - its ciphertexts look alike: zeros, and one vector sealed twice, at two clients, in two zones, in two rounds and in
      two runs give different bytes, none of which stay the same for zeros alone, and so do keys that it has sent. An
      upload holds no key. Sums open to the mean of the values, also for unequal weights and at both ends of the range,
      for the declared parties only: not with keys of another run, not with fewer shares than `opens_with`, not a second
      time in a round, and not for fewer updates than `min_clients`;
    - every reply that it asks for is covered by a `Reveals`, and a reply declared to cost nothing does not change with
      the clients' data, labels among them, nor does it tell the server all keys of those who open sums;
    - a zone that is not among `Plans.own` is in the same place at all clients of a group, and these end with one global
      model. Scores declared as public are the same for other data, in every round that starts from the same model. An
      update follows from data as declared. The component keeps no state on itself, and a run with empty caches before
      each round gives the same result. Messages hold plain data alone.

    Passing does not prove that a seal is an encryption, nor that a component's declared price is right.

    Args:
        component: the name of an installed component, `FILE.py:NAME` for a class in your own file, as in a recipe, or a
            class that is not installed.
        options: options of the component.
        recipe: recipe keys that replace the kit's own, if the component needs others around it; they refer to the
            component by its name.
        group: the entry-point group that is meant, where a class is in several, or is no component, such as a module.
        data_root: folder of data sets, for components that read them.
        shape: (C, H, W) of an example, for models.

    Raises:
        AssertionError: lists everything that is wrong.
    """
    check_component(component, group)
    members = members_of(component, group)
    found, groups = members[0][0], [member_of for _, member_of in members]
    installed = isinstance(component, str) and not is_own(component)
    name: Any = component if installed else name_of(found.__name__ if component is found else parts(str(component))[1])
    problems: list[str] = []
    try:
        made: roles.Component = instantiate(_use(found, name, "", options or {}))
        with of_component(name, "by itself"):
            problems += _alone(made, data_root, shape)
        if isinstance(made, _IN_A_ROUND):
            problems += _in_a_round(made, name, found, groups, options or {}, recipe or {}, data_root)
    except FedplugError as error:
        problems.append(str(error))
    assert not problems, f"{name}:\n" + "\n".join(f"  - {problem}" for problem in dict.fromkeys(problems))


def _use(found: Any, name: str, group: str, given: Mapping[str, Any]) -> Use:
    """A recipe entry for a component, including the components among its options."""
    inner = tuple((key, _within(name, key, of, given.get(key))) for key, of in found.inner.items())
    validated = found.Options.model_validate({key: value for key, value in given.items() if key not in found.inner})
    return Use(name, name, group, validated, inner=inner, made_of=found)


def _within(name: str, key: str, group: str, written: Any) -> Use:
    written = {"use": written} if isinstance(written, str) else written or {}
    entry = Catalog.discover().get(group, written.get("use", ""))
    if entry is None:
        raise SetupError(f"{name} contains a {group} component; give one among the options: {key}={{'use': ...}}")
    rest = {option: value for option, value in written.items() if option != "use"}
    return _use(entry.load(), entry.name, group, rest)


def _alone(made: roles.Component, data_root: str | None, shape: tuple[int, ...]) -> Iterator[str]:
    """Problems of a component by itself, without a run."""
    if isinstance(made, roles.DataSource):
        yield from single.data_problems(made, data_root)
    if isinstance(made, roles.Partition):
        yield from single.partition_problems(made)
    if isinstance(made, roles.ModelSource):
        yield from single.model_problems(made, shape)
    if isinstance(made, roles.Accountant):
        yield from single.accountant_problems(made)
    for point in _checks(group=CHECK):
        if isinstance(made, roles.ROLES[point.name]):
            yield from point.load()(made)


def _in_a_round(
    made: roles.Component, name: str, found: type, groups: list[str], options: Mapping[str, Any],
    changes: Mapping[str, Any], data_root: str | None,
) -> Iterator[str]:  # fmt: skip
    """Problems that a run shows."""
    catalog = catalog_with(name, found, groups)

    @functools.cache
    def recipe(draw: int, **around: Any) -> Recipe:
        return recipe_around(name, made, options, {**changes, **around}, catalog, draw)

    def again(draw: int = 0, *, forgetful: bool = False, **around: Any) -> World:
        return run(*build(recipe(draw, **around), catalog, data_root), forgetful=forgetful)

    parties = build(recipe(0), catalog, data_root)
    asked = {"before any run": answers(parties[0].protocol, name, {})}
    world = run(*parties)
    yield from world.problems
    if world.problems:
        return
    part = world.protocol.composition.components[name]
    told = published_to(world.protocol.server.remembered.published, "all")
    other, repeats = functools.cache(lambda: again(draw=1)), outcomes.repeats(world)
    # Also the second run on the same data: nothing may follow from what a cache has held.
    same = functools.cache(lambda: again(forgetful=repeats))
    if isinstance(part, _ANSWERS):
        ask = functools.partial(answers, world.protocol, name)
        asked["after a run"], since = ask({}), {"after a run": ask(told) if told else {}}
        other()
        asked["after a run on other data"] = ask({})
        since["after one on other data"] = ask(told) if told else {}
        yield from itertools.chain(again_problems(name, asked), again_problems(name, since))
        yield from early_problems(world.protocol, name)
        yield from functions.function_problems(world, name)
        yield from samplers.sampler_problems(world, name)
    of_seal: list[str] = []
    if isinstance(part, roles.Closer):
        trials = recipe(0, rounds=seals.TRIALS)
        of_seal += seals.seal_problems(name, lambda: staged(trials, catalog, data_root))
        if not of_seal and (both := moved(recipe(0), name, catalog, both=True)):
            of_seal += seals.pad_problems(name, staged(both, catalog, data_root))
    moving = moved(recipe(0), name, catalog) if isinstance(part, roles.Protector | roles.Opener) else None
    if moving and has_functions(name, moving, world.protocol, told):
        yield from moving_problems(name, lambda: staged(moving, catalog, data_root))
    yield from of_seal
    free = any(shown.covered_by == "nothing to pay" and shown.asked for shown in part.reveals(world.facts))
    if free and not of_seal:
        yield from outcomes.reply_problems(world, same(), other(), part)
    if isinstance(part, roles.Trainer):
        yield from outcomes.learning_problems(world, part)
    if isinstance(part, roles.Scorer) and part.scoring.public:
        # Later rounds start from the global model, which is public but follows from the data: keep it fixed.
        for around in ({"rounds": 1}, {} if isinstance(part, roles.Aggregator) else {"aggregate": "kit.still"}):
            one, two = again(**around), again(draw=1, **around)
            if "rounds" in around or outcomes.same_models(one, two):
                yield from outcomes.public_problems(one, two, name)
    if repeats:
        yield from same().problems
        yield from outcomes.difference(world, same())
