"""A job of NVFlare as a recipe: its configuration is read, and none of its code runs.

Format: NVFlare 2.9.0, nvflare/private/fed_json_config.py and what `FedJob.export_job` writes: `meta.json` with the
sites of each app, and in each app `config/config_fed_client.json` and `config/config_fed_server.json`. Files that end
in `.conf` are HOCON, which pyhocon reads. A site's policy, `local/privacy.json` (nvflare/private/privacy_manager.py and
fed/app/fl_conf.py), has filters for the scope that the job names: they come before the job's.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError

from fedplug_deployed.draft import Draft, named, numbers, options, plain
from fedplug_deployed.opacus_reader import read_opacus
from fedplug_deployed.python_reader import Source, models

FILTERS = "nvflare.app_common.filters."
ENCRYPTOR, DECRYPTOR = "HEModelEncryptor", "HEModelDecryptor"
_SEAL = {"use": "std.ckks", "key_holder": "clients"}
_QUIET = ("IntimeModelSelector", "TBAnalyticsReceiver", "AnalyticsReceiver", "FullModelShareableGenerator",
          "HEModelShareableGenerator", "HEModelSerializeFilter", "ValidationJsonGenerator", "PTFileModelLocator")
"""Components that change nothing of what is learned."""


def read_job(folder: Path, base: Path, sites: Sequence[Path] = ()) -> Draft:
    """What a job's configuration says, and the policies of sites.

    Args:
        folder: of the job, or of an app with a folder `config`.
        base: folder of the recipe, from which it names files of the job.
        sites: folders of sites, or their folders `local`.

    Raises:
        SetupError: there is no configuration in it, or it cannot be read; or a site refuses the job.
    """
    meta = _read(folder, "meta") or {}
    scope = str(meta.get("scope") or "")
    policies = [(site, _scope(site, scope)) for site in sites]
    apps = _apps(folder, meta)
    clients = [(app, found) for app in apps if (found := _config(app, "config_fed_client")) is not None]
    servers = [(app, found) for app in apps if (found := _config(app, "config_fed_server")) is not None]
    if not clients:
        raise SetupError(
            f"{folder} has no config_fed_client.json, or .conf, in a folder config of an app; name the folder of a "
            "job, as NVFlare's export_job writes it"
        )
    name = plain(str(meta.get("name", folder.resolve().name)), "job")
    draft = Draft(name=name, source=f"the NVFlare job {name}, by fedplug import nvflare")
    draft.clients = _sites(meta)
    for app, config in servers[:1]:
        _read_server(draft, config, app, base)
    app, config = clients[0]
    for site, policy in policies[:1]:
        _read_policy(draft, policy, site, config)
    if policies and (draft.clients or 0) > len(policies):
        draft.note(f"{len(policies)} of {draft.clients} sites were given; all clients in the recipe have the policy of "
                   f"{policies[0][0]}, and those without it send more")  # fmt: skip
    for site, other_policy in policies[1:]:
        if other_policy != policies[0][1]:
            draft.note(f"{site}: its policy differs; all clients in the recipe keep that of {policies[0][0]}")
    _read_client(draft, config, app, base)
    for other, found in clients[1:]:
        if found != config:
            draft.note(f"{other.name}: its clients are configured differently; all in the recipe are as in {app.name}")
    return draft


# -- files -------------------------------------------------------------------------------------------------------------


def _apps(folder: Path, meta: Mapping[str, Any]) -> list[Path]:
    """The folders of the apps, of those that clients get first those of the most sites."""
    deployed = _deployed(meta)
    found = [folder / app for app in sorted(deployed, key=lambda app: -len(deployed[app])) if (folder / app).is_dir()]
    return found or [folder, *sorted(path for path in folder.iterdir() if (path / "config").is_dir())]


def _config(app: Path, stem: str) -> dict[str, Any] | None:
    """A configuration of an app, with the names that it gives values itself filled in."""
    found = _read(app / "config", stem) or _read(app, stem)
    return None if found is None else _filled(found, found)


def _read(folder: Path, stem: str) -> dict[str, Any] | None:
    """A file of a job as plain data; None if there is none.

    Raises:
        SetupError: it cannot be read.
    """
    path = next((each for end in ("json", "conf") if (each := folder / f"{stem}.{end}").is_file()), None)
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SetupError(f"{path} cannot be read: {error}") from error
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if path.suffix == ".json":
            raise SetupError(f"{path}:{error.lineno}:{error.colno}: it is not JSON: {error.msg}") from error
        found = _hocon(path, text)
    if not isinstance(found, dict):
        raise SetupError(f"{path} holds a {type(found).__name__}; a configuration of NVFlare is a dictionary")
    return found


def _hocon(path: Path, text: str) -> Any:
    """HOCON as plain data. It may name files and addresses to include, and variables of the environment: not here.

    Raises:
        SetupError: it is not HOCON, or includes something; or pyhocon is not installed.
    """
    try:
        from pyhocon import ConfigFactory
    except ImportError as error:
        raise SetupError(f"{path} is HOCON; to read it, install: pip install 'fedplug-deployed[hocon]'") from error
    if re.search(r"^\s*include\b|\$\{", text, re.MULTILINE):
        raise SetupError(f"{path} includes other files or refers to variables, which is not read; write them out")
    try:
        return ConfigFactory.parse_string(text).as_plain_ordered_dict()
    except Exception as error:  # of its own, or of the parser below it
        raise SetupError(f"{path} is not HOCON: {error}") from error


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    """Values with `{name}` in the place of what the file says of that name at its top."""
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, names) for each in value]
    if not isinstance(value, str):
        return value
    if (whole := re.fullmatch(r"\{(\w+)\}", value)) and whole[1] in names:
        return names[whole[1]]
    return re.sub(r"\{(\w+)\}", lambda found: str(names.get(found[1], found[0])), value)


def _deployed(meta: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The sites of each app, by its folder."""
    given = meta.get("deploy_map")
    return {
        app: sites for app, sites in (given.items() if isinstance(given, Mapping) else ())
        if isinstance(sites, list) and not {"..", "/"} & {*Path(app).parts}
    }  # fmt: skip


def _sites(meta: Mapping[str, Any]) -> int | None:
    """How many sites an app is deployed to, if the job names them."""
    each = [site for sites in _deployed(meta).values() for site in sites if isinstance(site, str)]
    named_sites = {site for site in each if site != "server" and not site.startswith("@")}
    return len(named_sites) or None


# -- what they say -----------------------------------------------------------------------------------------------------


def _read_server(draft: Draft, config: Mapping[str, Any], app: Path, base: Path) -> None:
    """Rounds, clients, weights and the model."""
    for part in [*_parts(config, "workflows"), *_parts(config, "components")]:
        kind, args = _kind(part), _args(part)
        draft.rounds = _count(args.get("num_rounds")) or draft.rounds
        draft.clients = draft.clients or _count(args.get("num_clients")) or _count(args.get("min_clients"))
        if weights := args.get("aggregation_weights"):
            draft.note(f"aggregate: the job weights its clients by {weights}; the recipe by their examples")
        if kind not in ("FedAvg", "ScatterAndGather", *_QUIET) and "Aggregat" not in kind and "Persistor" not in kind:
            draft.note(f"{kind} at the server is not understood, and is not in the recipe")
        model = args.get("model")
        draft.model += [use for use in (_model(model, app, base),) if use]
    for chain, place, number, each in _filters(config):
        draft.note(f"{chain}[{place}].filters[{number}] at the server, {_kind(each)}, is not in the recipe")


def _scope(site: Path, name: str) -> Mapping[str, Any]:
    """The scope of a site's policy in which a job of that scope runs there; empty where the site has no policy.

    Raises:
        SetupError: there is no folder, or the site refuses the job.
    """
    # NVFlare reads no privacy.conf, and no privacy.json.sample that a new site has.
    place = next((each for each in (site / "local", site) if (each / "privacy.json").is_file()), None)
    if place is None:
        if not site.is_dir():
            raise SetupError(f"--site {site}: there is no such folder; name that of a site, with local/privacy.json")
        return {}
    policy = _read(place, "privacy") or {}
    listed = _parts(policy, "scopes")
    scopes = {str(scope.get("name", "")): scope for scope in listed}
    default = str(policy.get("default_scope") or "")
    if len(scopes) < len(listed) or (scopes and default and default not in scopes):
        wrong = "two scopes have one name" if len(scopes) < len(listed) else f"default_scope {default} is none of its"
        raise SetupError(f"{place}: {wrong}; a site does not start with that, so mend it: it has {', '.join(scopes)}")
    wanted = name or default
    if scopes and wanted not in scopes:
        of_job = f"scope {name}" if name else "no scope, and the site has no default_scope"
        raise SetupError(f"{place}: the job has {of_job}; this site refuses it: it allows {', '.join(scopes)}")
    return scopes.get(wanted, {})


def _read_policy(draft: Draft, scope: Mapping[str, Any], site: Path, config: Mapping[str, Any]) -> None:
    """The filters that a site puts before those of any job."""
    sent = "update" if _sends_differences(config) else "weights"
    for chain in ("task_data_filters", "task_result_filters"):
        for number, each in enumerate(_parts(scope, chain)):
            place = f"{site}: scope {scope.get('name')}, {chain}[{number}]"
            usual = "in" if chain == "task_data_filters" else "out"
            if chain == "task_data_filters" or str(each.get("direction") or usual).lower() not in (usual, "inout"):
                draft.note(f"{place}, {_kind(each)}, filters no update that is sent, and is not in the recipe")
            else:
                _filter(draft, each, place, sent)


def _sends_differences(config: Mapping[str, Any]) -> bool:
    """Whether clients send updates and not weights."""
    executors = (part.get("executor") for part in _parts(config, "executors"))
    return any(_args(each).get("params_transfer_type") == "DIFF" for each in executors if isinstance(each, Mapping))


def _read_client(draft: Draft, config: Mapping[str, Any], app: Path, base: Path) -> None:
    """The filters of what clients send, and the numbers of their training."""
    scripts, given = [], dict[str, Any]()
    sent = "update" if _sends_differences(config) else "weights"
    executors = _parts(config, "executors")
    tasks = [task for executor in executors for task in _tasks(executor)]
    if tasks and not any(fnmatch.fnmatchcase("train", task) for task in tasks):
        raise SetupError(
            f"the clients of {app} do {', '.join(tasks)}, and not the task train; only jobs that train a model become "
            "recipes"
        )
    for executor in executors:
        args = _args(executor["executor"]) if isinstance(executor.get("executor"), Mapping) else {}
        command = f"{args.get('task_script_path', '')} {args.get('task_script_args', '')} {args.get('command', '')}"
        try:
            words = shlex.split(command)
        except ValueError:  # quotes that nothing closes
            words = command.split()
        draft.train |= numbers(words)
        given |= options(words)
        scripts += [word for word in words if word.endswith(".py")]
    for chain, place, number, each in _filters(config):
        if chain == "task_result_filters":
            _filter(draft, each, f"{chain}[{place}].filters[{number}]", sent)
        elif _kind(each) != DECRYPTOR:
            where = f"{chain}[{place}].filters[{number}], {_kind(each)},"
            draft.note(f"{where} is not understood, and is not in the recipe")
    draft.note(
        f"train: {', '.join(scripts) or 'the training code'} was not run; a trainer with the numbers of its arguments "
        "stands in"
    )
    custom = app / "custom"
    if custom.is_dir():
        draft.model += [use for use in models(custom, base, named) if use not in draft.model]
        _scan(draft, custom, given)


def _filters(config: Mapping[str, Any]) -> Iterator[tuple[str, int, int, Mapping[str, Any]]]:
    """Each filter of the training, with its place."""
    for chain in ("task_data_filters", "task_result_filters"):
        for place, entry in enumerate(_parts(config, chain)):
            if any(fnmatch.fnmatchcase("train", task) for task in _tasks(entry)):
                for number, each in enumerate(_parts(entry, "filters")):
                    yield chain, place, number, each


def _tasks(part: Mapping[str, Any]) -> list[str]:
    """The tasks that an entry is for; `*` stands for any text."""
    found = part.get("tasks")
    return [str(task) for task in found] if isinstance(found, list) else []


def _parts(config: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """A list of components of a configuration.

    Raises:
        SetupError: it is something else.
    """
    found = config.get(key) or []
    if not isinstance(found, list) or not all(isinstance(part, Mapping) for part in found):
        raise SetupError(f"{key} in the job's configuration is {found!r:.60}; it must be a list of dictionaries")
    return found


def _args(part: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a component; none where they are no dictionary."""
    found = part.get("args")
    return dict(found) if isinstance(found, Mapping) else {}


def _count(value: Any) -> int | None:
    """A number of rounds or clients, if it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6 else None


def _filter(draft: Draft, each: Mapping[str, Any], place: str, of: str) -> None:
    """One filter of what clients send."""
    kind, path = _kind(each), str(each.get("path", each.get("class_path", each.get("name", ""))))
    args = {key: value for key, value in _args(each).items() if value is not None}
    kinds = args.pop("data_kinds", None)
    kinds = [str(one) for one in kinds] if isinstance(kinds, list) and kinds else ["WEIGHT_DIFF", "WEIGHTS"]
    sent = "WEIGHT_DIFF" if of == "update" else "WEIGHTS"
    ours = not path.count(".") or path.startswith("nvflare.")
    if ours and kind in ("PercentilePrivacy", "SVTPrivacy", "ExcludeVars", ENCRYPTOR) and sent not in kinds:
        draft.note(f"{place}, {kind}, is for {', '.join(kinds)}, and the clients send {sent}: it does nothing")
    elif ours and kind in ("PercentilePrivacy", "SVTPrivacy"):
        use = "deployed.percentile_privacy" if kind == "PercentilePrivacy" else "deployed.svt_privacy"
        gamma, percentile = args.get("gamma", 1), args.get("percentile", 10)
        if not isinstance(gamma, int | float) or not isinstance(percentile, int | float):
            draft.note(f"{place}, {kind}: {args} are not numbers; it is not in the recipe")
            return
        if kind == "PercentilePrivacy" and not (gamma > 0 and 0 <= percentile <= 100):
            draft.note(f"{place}, {kind}: with {args} NVFlare sends updates as they are; so does the recipe")
            return
        draft.links.append({**args, **({} if of == "update" else {"of": of}), "use": use})
        if of == "weights":
            draft.note(f"{place}, {kind}: params_transfer_type is FULL, so NVFlare filters the weights, not the update")
    elif ours and kind == "ExcludeVars":
        wanted = args.get("exclude_vars")
        if not wanted or not isinstance(wanted, str | list) or not all(isinstance(name, str) for name in wanted):
            draft.note(f"{place}, {kind}: with exclude_vars={wanted!r} NVFlare excludes nothing")
        else:
            _plan(draft, {"use": "deployed.exclude_vars", "exclude_vars": wanted}, place)
    elif ours and kind == ENCRYPTOR:
        draft.seal = dict(_SEAL)
        wanted = args.get("encrypt_layers")
        if wanted and isinstance(wanted, str | list):
            _plan(draft, {"use": "deployed.encrypt_layers", "encrypt_layers": wanted}, place)
        if weights := args.get("aggregation_weights"):
            draft.note(f"{place}, {kind}: it multiplies by the weights {weights}; the recipe weights by examples")
        draft.note(f"{place}, {kind}: CKKS with the parameters of std.ckks; those of NVFlare are in baselines.ckks, "
                   "like: nvflare")  # fmt: skip
    else:
        draft.note(f"{place}, {path or kind}, is not understood, and is not in the recipe")


def _plan(draft: Draft, plan: dict[str, Any], place: str) -> None:
    if draft.plan is None:
        draft.plan = plan
    else:
        draft.note(f"{place}: the recipe chooses layers once, by {draft.plan['use']}; {plan} is not in it")


def _kind(part: Mapping[str, Any]) -> str:
    path = str(part.get("path", part.get("class_path", part.get("name", part.get("id", "?")))))
    return path.rpartition(".")[2]


def _model(model: Any, app: Path, base: Path) -> dict[str, Any] | None:
    """The use of a model that a persistor names: `net.Net`, alone or with arguments."""
    args: Mapping[str, Any] = {}
    if isinstance(model, Mapping):
        model, args = model.get("path", model.get("class_path", "")), _args(model)
    module, _, name = str(model or "").rpartition(".")
    path = app / "custom" / f"{module.replace('.', '/')}.py"
    return {**args, "use": f"{named(path, base)}:{name}"} if module and path.is_file() else None


def _scan(draft: Draft, custom: Path, given: Mapping[str, Any]) -> None:
    """What the job's Python files do to an update by themselves, as far as a name shows it."""
    for path in sorted(custom.rglob("*.py")):
        try:
            source = Source(path)
        except SetupError as error:
            draft.note(f"{path.name} was not read: {error}")
            continue
        source.config = {**source.defaults(), **given}
        read_opacus(draft, source)
        if "NUM_STEPS_CURRENT_ROUND" in path.read_text(encoding="utf-8") and draft.links:
            draft.note(f"{path.name} sends NUM_STEPS_CURRENT_ROUND, by which filters divide; write its number in steps")
