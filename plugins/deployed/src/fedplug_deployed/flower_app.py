"""An app of Flower as a recipe: its pyproject.toml and the text of its Python files are read, and none of them runs.

Format: flwr 1.42.0: `[tool.flwr.app.components]` names the modules of ServerApp and ClientApp,
`[tool.flwr.app.config]` has what `context.run_config` holds, and `[tool.flwr.federations]` how many clients there are.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError

from fedplug_deployed.draft import ADAPTIVE, Draft, named, plain, trained
from fedplug_deployed.opacus_reader import read_opacus
from fedplug_deployed.python_reader import Source, Unknown, called, models

LOCAL = ("clipping_norm", "sensitivity", "epsilon", "delta")
FIXED = ("strategy", "noise_multiplier", "clipping_norm", "num_sampled_clients")
MOVING = ("strategy", "noise_multiplier", "num_sampled_clients", "initial_clipping_norm", "target_clipped_quantile",
          "clip_norm_lr", "clipped_count_stddev")  # fmt: skip
WRAPPERS = {
    f"DifferentialPrivacy{side}Side{kind}Clipping": (side.lower(), kind == "Adaptive")
    for side in ("Client", "Server") for kind in ("Fixed", "Adaptive")
}  # fmt: skip
STRATEGIES = ("FedAvg", "FedProx", "FedAdagrad", "FedAdam", "FedYogi", "FedAvgM", "FedMedian", "FedTrimmedAvg", "Krum",
              "MultiKrum", "Bulyan", "QFedAvg", "FaultTolerantFedAvg", "DPFedAvgFixed", "DPFedAvgAdaptive",
              "FedXgbBagging", "FedXgbCyclic")  # fmt: skip
RANGE = 8.0
"""The clipping_range of Flower's SecAggPlusWorkflow, unless it is told another."""
SILENT = ("message_size_mod", "parameters_size_mod", "arrays_size_mod")
"""Mods that change nothing of a message."""


def read_app(folder: Path, base: Path) -> Draft:
    """What an app says.

    Args:
        folder: of the app, with its pyproject.toml.
        base: folder of the recipe, from which it names files of the app.

    Raises:
        SetupError: it is not an app of Flower, or cannot be read.
    """
    project = _project(folder / "pyproject.toml")
    components = _table(project, "tool", "flwr", "app", "components")
    if not all(isinstance(components.get(name), str) for name in ("clientapp", "serverapp")):
        raise SetupError(
            f"{folder / 'pyproject.toml'} names no clientapp and serverapp in [tool.flwr.app.components]; name the "
            "folder of an app of Flower"
        )
    config = _flat(_table(project, "tool", "flwr", "app", "config"))
    name = plain(str(_table(project, "project").get("name", folder.resolve().name)), "app")
    draft = Draft(name=name, source=f"the Flower app {name}, by fedplug import flower")
    for key, value in config.items():
        trained(draft.train, key, value)
    rounds = config.get("num-server-rounds")
    draft.rounds = rounds if isinstance(rounds, int) and rounds > 0 else None
    draft.clients = _nodes(project)
    server = Source(_file(folder, components["serverapp"]), config)
    client = Source(_file(folder, components["clientapp"]), config)
    wrapped = _strategy(draft, server)
    _mods(draft, client, server, wrapped)
    for path in sorted(client.path.parent.glob("*.py")):
        read_opacus(draft, Source(path, config))
    draft.note(f"train: {client.path.name} was not run; a trainer with the numbers of pyproject.toml stands in")
    draft.model = models(client.path.parent, base, named)
    return draft


# -- files -------------------------------------------------------------------------------------------------------------


def _project(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or error
        raise SetupError(f"{path} cannot be read: {why}; name the folder of an app of Flower") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} is not TOML: {error}") from error


def _table(project: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A table of a TOML file; an empty one if it is not there."""
    for name in names:
        found = project.get(name)
        project = found if isinstance(found, Mapping) else {}
    return project


def _file(folder: Path, component: str) -> Path:
    """The file of `package.module:object`."""
    parts = str(component).partition(":")[0].split(".")
    places = [folder.joinpath(*parts).with_suffix(".py"), folder.joinpath("src", *parts).with_suffix(".py")]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise SetupError(f"{folder / 'pyproject.toml'} names {component}, and there is no {places[0]}")
    return found


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """What run_config holds: nested tables with dots in their names."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def _nodes(project: Mapping[str, Any]) -> int | None:
    """The number of simulated clients: that of the default federation, or of the only one that says any."""
    federations = _table(project, "tool", "flwr", "federations")
    each = {name: _table(federations, name, "options").get("num-supernodes") for name in federations}
    counts = {name: nodes for name, nodes in each.items() if isinstance(nodes, int) and nodes > 0}
    return counts.get(str(federations.get("default")), next(iter(counts.values()), None))


# -- what they say -----------------------------------------------------------------------------------------------------


def _known(draft: Draft, source: Source, call: ast.Call, positional: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a call whose values follow from the text, with a line for each of the others."""
    found = {}
    for name, node in source.arguments(call, positional).items():
        if name in ("strategy", "accountant"):
            continue
        try:
            found[name] = source.value(node)
        except Unknown as error:
            draft.note(
                f"{source.path.name}:{call.lineno}: {called(call)}({name}={ast.unparse(node)}): the value of {error} "
                "does not follow from the text"
            )
    return found


def _strategy(draft: Draft, server: Source) -> str:
    """The server's strategy, and the clients of a round; gives the name of its wrapper for differential privacy."""
    for name, call in server.calls("ServerConfig", "start", "run_simulation"):
        given = _known(draft, server, call, ()) if name == "ServerConfig" else {}
        for node in [keyword.value for keyword in call.keywords if keyword.arg == "num_rounds"]:
            try:
                draft.rounds = int(given.get("num_rounds", server.value(node)))
            except (Unknown, TypeError, ValueError):
                where = f"{server.path.name}:{call.lineno}"
                draft.note(f"{where}: num_rounds={ast.unparse(node)} is not known from the text")
    fraction = 1.0
    strategies = list(server.calls(*STRATEGIES))
    for name, call in strategies:
        for node in [keyword.value for keyword in call.keywords if keyword.arg in ("fraction_train", "fraction_fit")]:
            try:
                fraction = float(server.value(node))
            except (Unknown, TypeError, ValueError):
                draft.note(f"{server.path.name}:{call.lineno}: {ast.unparse(node)} is not known from the text; all "
                           "clients take part")  # fmt: skip
        if name != "FedAvg":
            draft.note(f"{server.path.name}:{call.lineno}: the strategy {name} is not in the recipe, which averages")
    if not strategies:
        draft.note(f"{server.path.name}: no strategy of Flower was found; the recipe averages")
    if 0 < fraction < 1:
        draft.sampling = {"scheme": "fixed", "rate": fraction}
    wrappers = list(server.calls(*WRAPPERS))
    for name, call in wrappers[1:]:
        draft.note(f"{server.path.name}:{call.lineno}: a second {name} is not in the recipe")
    for name, call in wrappers[:1]:
        side, moves = WRAPPERS[name]
        draft.note_condition(f"{server.path.name}:{call.lineno}", name, server.condition(call))
        given_options = _known(draft, server, call, MOVING if moves else FIXED)
        _central(draft, {**given_options, **({"clips": "server"} if side == "server" else {})}, moves)
        return name
    return ""


def _central(draft: Draft, options: dict[str, Any], moves: bool) -> None:
    """Central noise, with what the recipe's clients are."""
    told = options.pop("num_sampled_clients", None)
    name = ADAPTIVE if moves else "deployed.fixed_clipping"
    rate = draft.sampling["rate"] if draft.sampling else 1.0
    drawn = max(1, int(rate * draft.clients + 0.5)) if draft.clients else told
    if draft.clients is None:
        draft.clients = told if not draft.sampling else round(told / rate) if told else None
    if draft.sampling and (moves or told not in (None, drawn)):
        draft.sampling, draft.clients = None, drawn
        draft.note(f"sampling: {rate:g} of the clients take part in a round; the recipe has as many clients as take "
                   "part, in all rounds")  # fmt: skip
    if told is not None and told != drawn:
        options["num_sampled_clients"] = told
        draft.note(f"{name}: the strategy is told {told} sampled clients, and {drawn} take part; the "
                   f"noise is for {told}")  # fmt: skip
    draft.note("aggregate: Flower weights clients by num-examples, so one may move the mean by more than the noise is "
               "for, and the ledger states no guarantee; with weighting: uniform the noise has a price")  # fmt: skip
    if moves:
        draft.plan = {**options, "use": name}
        draft.links.append(name)
    else:
        draft.links.append({**options, "use": name})
    draft.openers.append(name)


def _mods(draft: Draft, client: Source, server: Source, wrapped: str) -> None:
    """The client's mods, in their order: the first is the outermost, so what it does to a reply comes last."""
    mods, central = _listed(draft, client), draft.links
    draft.links = []
    workflows = list(server.calls("SecAggPlusWorkflow", "SecAggWorkflow"))
    plus = bool(workflows)
    for name, call in workflows:
        draft.note_condition(f"{server.path.name}:{call.lineno}", name, server.condition(call))
    for node in reversed(mods):
        name = called(node) if isinstance(node, ast.Call) else ast.unparse(node).rpartition(".")[2]
        where = f"{client.path.name}:{node.lineno}"
        draft.note_condition(where, name, client.condition(node))
        if name == "LocalDpMod" and isinstance(node, ast.Call):
            options = _known(draft, client, node, LOCAL)
            if missing := [option for option in LOCAL if option not in options]:
                draft.note(f"{where}: LocalDpMod is not in the recipe, since {', '.join(missing)} cannot be read; add "
                           "deployed.local_dp_mod")  # fmt: skip
            elif not _is_noise(options):
                draft.note(f"{where}: LocalDpMod with {options} adds noise that is no number; it is not in the recipe")
            else:
                draft.links.append({**options, "use": "deployed.local_dp_mod"})
        elif name in ("fixedclipping_mod", "adaptiveclipping_mod"):
            kind = "Fixed" if name == "fixedclipping_mod" else "Adaptive"
            if f"ClientSide{kind}" not in wrapped:
                draft.note(f"{where}: {name} without DifferentialPrivacyClientSide{kind}Clipping at the server answers "
                           "with an error; it is not in the recipe")  # fmt: skip
            else:  # here the clients clip
                draft.links, central = [*draft.links, *central], []
        elif name in ("secaggplus_mod", "secagg_mod") and plus:
            draft.seal = {"use": "secagg.plus"}
            draft.note(f"{where}: {name}: masks as secagg.plus makes them; shares and ranges of the workflow are not "
                       "read")  # fmt: skip
        elif name not in SILENT:
            draft.note(f"{where}: the mod {name} is not understood, and is not in the recipe")
    draft.links += central  # here the server clips
    if draft.seal and not draft.links:
        draft.links.append({"use": "std.clip", "norm": RANGE})
        draft.note(f"protect: Flower's SecAgg+ cuts each value off at {RANGE:g} (clipping_range); the recipe clips the "
                   "update to that L2 norm, which masks need too")  # fmt: skip
    if wrapped.startswith("DifferentialPrivacyClientSide") and not any(
        isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("clipping_mod") for node in mods
    ):
        draft.note(f"{client.path.name}: {wrapped} expects clients to clip, and no mod does; the recipe clips, and its "
                   "price holds for that alone")  # fmt: skip


def _is_noise(options: Mapping[str, Any]) -> bool:
    """Whether Flower's formula gives a number for these arguments of LocalDpMod."""
    numbers = [options[name] for name in LOCAL]
    right = all(isinstance(number, int | float) and 0 <= number < 1e300 for number in numbers)
    return right and options["epsilon"] > 0 and 0 < options["delta"] < 1


def _listed(draft: Draft, client: Source) -> list[ast.expr]:
    """The mods of the ClientApp and of its training, each as a name or a call."""
    found: list[ast.expr] = []
    for _, call in client.calls("ClientApp", "train"):
        for keyword in call.keywords:
            if keyword.arg != "mods":
                continue
            try:
                listed = client.assigned(keyword.value)
            except Unknown:
                listed = keyword.value
            if not isinstance(listed, ast.List | ast.Tuple):
                draft.note(f"{client.path.name}:{call.lineno}: mods={ast.unparse(keyword.value)} cannot be read")
                continue
            for node in listed.elts:
                try:
                    found.append(client.assigned(node))
                except Unknown:
                    found.append(node)
    return found
