"""`fedplug import`: jobs of NVFlare and apps of Flower become recipes that run, and none of their code does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug_deployed.draft import Draft, _flow, numbers, written
from fedplug_deployed.flower_app import read_app
from fedplug_deployed.nvflare_job import read_job
from fedplug_deployed.python_reader import Source, Unknown
from fedplug_runs.overlay import load_recipe
from fedplug_runs.trust import Consent
from fedplug_runs.yaml_source import read_text
from hypothesis import example, given
from hypothesis import strategies as st
from toy_protocol import run_protocol

FILTERS = "nvflare.app_common.filters."
NET = """
import torch

open({marker!r}, "w").close()  # shows that it ran

class Net(torch.nn.Module):
    def __init__(self, hidden: int = 8):
        super().__init__()
        self.fc1 = torch.nn.Linear(64, hidden)
        self.fc2 = torch.nn.Linear(hidden, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))
"""


def job(folder: Path, *filters: dict[str, Any], tasks: tuple[str, ...] = ("train",), **executor: Any) -> Path:
    """A job as `FedJob.export_job` of NVFlare 2.9.0 writes it, with these filters of what clients send."""
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {
            "path": "nvflare.app_common.executors.client_api_executor.ClientAPIExecutor",
            "args": {"task_script_path": "client.py", "task_script_args": "--epochs 2 --batch_size=16 --lr 0.1",
                     "params_transfer_type": "DIFF"} | executor,
        }}],
        "components": [], "task_data_filters": [],
        "task_result_filters": [{"tasks": list(tasks), "filters": list(filters)}] if filters else [],
    }  # fmt: skip
    workflow = {"id": "controller", "path": "nvflare.app_common.workflows.fedavg.FedAvg",
                "args": {"num_clients": 4, "num_rounds": 3}}  # fmt: skip
    persistor = {"id": "persistor", "path": "nvflare.app_opt.pt.file_model_persistor.PTFileModelPersistor",
                 "args": {"model": {"path": "net.Net", "args": {"hidden": 6}}}}  # fmt: skip
    server = {"format_version": 2, "workflows": [workflow], "components": [persistor]}
    meta = {"name": "Hello DP", "deploy_map": {"server_app": ["server"], "app": ["site-1", "site-2", "site-3"]}}
    for app, kind, config in (("server_app", "server", server), ("app", "client", client)):
        (folder / app / "config").mkdir(parents=True)
        (folder / app / "config" / f"config_fed_{kind}.json").write_text(json.dumps(config))
        (folder / app / "custom").mkdir()
        marker = str(folder / "it ran")
        (folder / app / "custom" / "net.py").write_text(NET.format(marker=marker))
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def filter_of(name: str, path: str = "", **args: Any) -> dict[str, Any]:
    return {"path": path or f"{FILTERS}x.{name}", "args": args}


def made(draft: Draft) -> dict[str, Any]:
    return draft.recipe("std.digits", {"use": "std.mlp", "hidden": []})


# -- NVFlare -----------------------------------------------------------------------------------------------------------


def test_a_job_becomes_a_recipe_that_runs_and_none_of_its_code_does(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", filter_of("PercentilePrivacy", percentile=20, data_kinds=["WEIGHT_DIFF"]))
    path = tmp_path / "made.yaml"
    notes = written(read_job(folder, tmp_path), path, "std.digits", trusted=False)
    recipe = load_recipe(path)
    plain = recipe.to_plain()
    assert (recipe.name, recipe.rounds, recipe.clients) == ("hello-dp", 3, 3)
    assert {"epochs": 2, "batch_size": 16, "lr": 0.1}.items() <= plain["train"].items()
    (link,) = plain["protect"]["clear"]
    assert (link["use"], link["percentile"], link["of"]) == ("deployed.percentile_privacy", 20, "update")
    assert run_protocol(made(read_job(folder, tmp_path))).protocol.ledger.epsilon() is None
    assert not (folder / "it ran").exists()
    assert any("net.py:Net is code of the job, which was not run" in note for note in notes)
    assert all(note.split()[0] in path.read_text() for note in notes)


POLICY = {
    "scopes": [
        {"name": "public", "task_data_filters": [{"name": "BadModelDetector"}],
         "task_result_filters": [{"name": "AddNoiseToMinMax", "args": {"min_noise_level": 0.2}},
                                 {"name": "PercentilePrivacy", "args": {"percentile": 10, "gamma": 0.02}}]},
        {"name": "private", "task_result_filters": [{"name": "SVTPrivacy", "args": {"fraction": 0.1, "epsilon": 0.2}}]},
    ],
    "default_scope": "public",
}  # fmt: skip
"""As NVFlare 2.9.0 has it in lighter/templates/master_template.yml, sample_privacy."""


def site(folder: Path, **changes: Any) -> Path:
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "privacy.json").write_text(json.dumps(POLICY | changes))
    return folder


def test_a_sites_filters_come_before_those_of_the_job(tmp_path: Path) -> None:
    """In the scope that the job names, or the site's default."""
    folder = job(tmp_path / "job", filter_of("SVTPrivacy", epsilon=1))
    draft = read_job(folder, tmp_path, [site(tmp_path / "a"), site(tmp_path / "b", default_scope="private")])
    assert [link["use"] for link in draft.links] == ["deployed.percentile_privacy", "deployed.svt_privacy"]
    assert (draft.links[0]["percentile"], draft.links[0]["gamma"]) == (10, 0.02)
    notes = "\n".join(draft.notes)
    assert "task_result_filters[0], AddNoiseToMinMax, is not understood" in notes
    assert "BadModelDetector, filters no update that is sent" in notes
    assert f"{tmp_path / 'b'}: its policy differs; all clients in the recipe keep that of {tmp_path / 'a'}" in notes
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"scope": "private"}))
    (first, second) = read_job(folder, tmp_path, [tmp_path / "a"]).links
    assert (first["epsilon"], second["epsilon"]) == (0.2, 1)


def test_a_site_refuses_a_scope_that_it_does_not_have(tmp_path: Path) -> None:
    folder = job(tmp_path / "job")
    with pytest.raises(SetupError, match="no scope, and the site has no default_scope; this site refuses it"):
        read_job(folder, tmp_path, [site(tmp_path / "a", default_scope="")])
    with pytest.raises(SetupError, match="there is no such folder"):
        read_job(folder, tmp_path, [tmp_path / "nowhere"])
    (tmp_path / "free").mkdir()
    assert not read_job(folder, tmp_path, [tmp_path / "free"]).links


def test_a_policy_that_nvflare_does_not_read_protects_nobody(tmp_path: Path) -> None:
    """2.9.0, fl_conf.py, create_privacy_manager: where there is no privacy.json, there is no policy."""
    folder = job(tmp_path / "job")
    for name in ("privacy.conf", "privacy.json.sample"):
        place = site(tmp_path / name) / "local"
        (place / "privacy.json").rename(place / name)
        assert not read_job(folder, tmp_path, [tmp_path / name]).links
    (note,) = (note for note in read_job(folder, tmp_path, [site(tmp_path / "a")]).notes if "sites were given" in note)
    assert note.startswith("1 of 3 sites were given; all clients in the recipe have the policy of")
    twice = POLICY["scopes"] + POLICY["scopes"][:1]
    for changes, says in ({"default_scope": "mine"}, "default_scope mine is none"), ({"scopes": twice}, "two scopes"):
        with pytest.raises(SetupError, match=says):
            read_job(folder, tmp_path, [site(tmp_path / says, **changes)])


def test_with_a_yes_the_jobs_model_is_in_the_recipe(tmp_path: Path) -> None:
    folder = job(tmp_path / "job")
    path = tmp_path / "made.yaml"
    written(read_job(folder, tmp_path), path, "std.digits", trusted=True)
    assert (folder / "it ran").exists()
    recipe = load_recipe(path, (), Catalog.discover().under(Consent(given=True)))
    assert recipe.model.use == "net.py:Net"
    assert "use: job/server_app/custom/net.py:Net" in path.read_text()
    assert recipe.to_plain()["model"]["hidden"] == 6


def test_a_model_that_does_not_fit_the_data_is_replaced_with_a_line(tmp_path: Path) -> None:
    folder = job(tmp_path / "job")
    for app in ("app", "server_app"):
        net = folder / app / "custom/net.py"
        net.write_text(net.read_text().replace("64, hidden", "3072, hidden"))
    notes = written(read_job(folder, tmp_path), tmp_path / "made.yaml", "std.digits", trusted=True)
    assert any("net.py:Net was tried, and std.mlp stands in for it" in note for note in notes)
    assert load_recipe(tmp_path / "made.yaml").model.use == "std.mlp"


def test_each_filter_is_taken_over(tmp_path: Path) -> None:
    draft = read_job(job(
        tmp_path, filter_of("ExcludeVars", exclude_vars="fc2"), filter_of("SVTPrivacy", epsilon=0.2, gamma=0.01),
    ), tmp_path)  # fmt: skip
    plain = made(draft)
    plain["model"]["hidden"] = [8]
    assert plain["negotiate_mask"] == {"use": "deployed.exclude_vars", "exclude_vars": "fc2", "other_zone": "noised"}
    assert plain["protect"] == {"noised": [{"use": "deployed.svt_privacy", "epsilon": 0.2, "gamma": 0.01}]}
    assert run_protocol(plain).protocol.ledger.epsilon() is not None


def test_encryption_is_that_of_the_clients_in_whole_or_in_part(tmp_path: Path) -> None:
    path = "nvflare.app_opt.he.model_encryptor.HEModelEncryptor"
    whole = made(read_job(job(tmp_path / "whole", filter_of("", path)), tmp_path))
    assert whole["protect"] == {"encrypted": [{"use": "std.ckks", "key_holder": "clients"}]}
    part = read_job(job(
        tmp_path / "part", filter_of("PercentilePrivacy", gamma=0.1),
        filter_of("", path, encrypt_layers=["fc2.weight"]),
    ), tmp_path)  # fmt: skip
    plain = made(part)
    plain["model"]["hidden"] = [8]
    filtered = {"use": "deployed.percentile_privacy", "gamma": 0.1}
    assert plain["protect"] == {"encrypted": [filtered, {"use": "std.ckks", "key_holder": "clients"}],
                                "clear": [filtered]}  # fmt: skip
    assert plain["negotiate_mask"]["encrypt_layers"] == ["fc2.weight"]
    assert "encrypted" in run_protocol(plain).protocol.ledger.sealed


def test_weights_are_filtered_where_the_clients_send_them(tmp_path: Path) -> None:
    """NVFlare's default; a filter for differences alone then does nothing."""
    filters = filter_of("PercentilePrivacy"), filter_of("SVTPrivacy", data_kinds=["WEIGHT_DIFF"])
    draft = read_job(job(tmp_path, *filters, params_transfer_type="FULL"), tmp_path)
    assert draft.links == [{"use": "deployed.percentile_privacy", "of": "weights"}]
    assert any("SVTPrivacy, is for WEIGHT_DIFF, and the clients send WEIGHTS" in note for note in draft.notes)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (filter_of("", "my_filters.Noise", std=1), r"my_filters.Noise, is not understood, and is not in the recipe"),
        (filter_of("", "my_filters.SVTPrivacy"), r"my_filters.SVTPrivacy, is not understood"),
        (filter_of("PercentilePrivacy", gamma=0), r"NVFlare sends updates as they are; so does the recipe"),
        (filter_of("ExcludeVars", exclude_vars=None), r"NVFlare excludes nothing"),
    ],
)
def test_what_is_not_taken_over_has_a_line(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    draft = read_job(job(tmp_path, given), tmp_path)
    assert draft.links == []
    assert any("task_result_filters[0].filters[0]" in note and says in note for note in draft.notes)


def test_filters_of_other_tasks_are_none_of_the_training(tmp_path: Path) -> None:
    draft = read_job(job(tmp_path, filter_of("PercentilePrivacy"), tasks=("validate",)), tmp_path)
    assert draft.links == []


def test_jobs_that_train_nothing_are_refused(tmp_path: Path) -> None:
    folder = job(tmp_path)
    path = folder / "app/config/config_fed_client.json"
    path.write_text(path.read_text().replace('["*"]', '["fed_stats"]'))
    with pytest.raises(SetupError, match="do fed_stats, and not the task train; only jobs that train"):
        read_job(folder, tmp_path)


def test_files_of_hocon_are_read_and_include_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyhocon")
    folder = job(tmp_path, filter_of("PercentilePrivacy"))
    path = folder / "app/config/config_fed_client.json"
    text = 'gamma = 0.5\ntask_result_filters = [{tasks = ["train"], filters = [{path = "' + FILTERS
    text += 'p.PercentilePrivacy", args {gamma = "{gamma}"}}]}]'
    path.rename(conf := path.with_suffix(".conf"))
    conf.write_text(text)
    (link,) = read_job(folder, tmp_path).links
    assert link["gamma"] == 0.5
    conf.write_text('include "/etc/passwd"\n' + text)
    with pytest.raises(SetupError, match=r"config_fed_client.conf includes other files .* write them out"):
        read_job(folder, tmp_path)
    conf.write_text("a = [")
    with pytest.raises(SetupError, match=r"config_fed_client.conf is not HOCON"):
        read_job(folder, tmp_path)


def test_folders_that_are_no_job_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"has no config_fed_client.json"):
        read_job(tmp_path, tmp_path)
    folder = job(tmp_path / "job")
    (folder / "meta.json").write_text("{")
    with pytest.raises(SetupError, match=r"meta.json:1:2: it is not JSON"):
        read_job(folder, tmp_path)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["train", "{x}", "a'b", "nvflare.x.ExcludeVars"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["path", "args", "filters", "tasks", "executor", "model", "num_rounds", "data_kinds", "gamma"]),
        inner, max_size=3,
    ), max_leaves=8,
)  # fmt: skip
KEYS = ("executors", "task_result_filters", "task_data_filters", "workflows", "components", "deploy_map")


@given(st.sampled_from(KEYS), ANY)
def test_a_configuration_of_any_shape_is_read_or_refused(tmp_path_factory: Any, key: str, value: Any) -> None:
    folder = job(tmp_path_factory.mktemp("any"))
    for path in [*folder.glob("*/config/*.json"), folder / "meta.json"]:
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    said = ""
    try:
        read_job(folder, folder)
    except SetupError as error:
        said = str(error)
    assert not said or key in said or "filters" in said


def test_no_file_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "made.yaml").write_text("mine")
    with pytest.raises(SetupError, match=r"made.yaml exists, and is not written over; .* --to"):
        written(read_job(job(tmp_path / "job"), tmp_path), tmp_path / "made.yaml", "std.digits", False)
    assert (tmp_path / "made.yaml").read_text() == "mine"


ENGINE = """
from opacus import PrivacyEngine
parser.add_argument("--noise", type=float, default=0.7)
engine.{call}(module=m, optimizer=o, data_loader=d, {told})
"""


@pytest.mark.parametrize(
    ("told", "noise"),
    [
        ("noise_multiplier=args.noise, max_grad_norm=args.max_grad_norm", 0.7),
        ("noise_multiplier=1.1, max_grad_norm=2", 1.1),
    ],
)
def test_dp_sgd_by_opacus_is_taken_over(tmp_path: Path, told: str, noise: float) -> None:
    folder = job(tmp_path, task_script_args="--max_grad_norm 2 --epochs 1")
    (folder / "app/custom/client.py").write_text(ENGINE.format(call="make_private", told=told))
    draft = read_job(folder, tmp_path)
    assert draft.train["use"] == "baselines.dp_sgd"
    assert (draft.train["noise_multiplier"], draft.train["clipping_norm"]) == (noise, 2)
    assert run_protocol(made(draft)).protocol.rows


def test_an_epsilon_that_opacus_is_told_is_none_of_all_rounds(tmp_path: Path) -> None:
    folder = job(tmp_path)
    told = "target_epsilon=1, target_delta=1e-5, epochs=1, max_grad_norm=1"
    (folder / "app/custom/client.py").write_text(ENGINE.format(call="make_private_with_epsilon", told=told))
    draft = read_job(folder, tmp_path)
    assert "use" not in draft.train
    assert any("its epsilon is for the epochs of one engine" in note for note in draft.notes)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("noise_multiplier=1.1, max_grad_norm=2, poisson_sampling=False", "with poisson_sampling=False"),
        ("noise_multiplier=1.1, max_grad_norm=2, clipping=KIND", "with clipping=KIND"),
        ("noise_multiplier=1.1, max_grad_norm=2)\nengine.make_private(noise_multiplier=0.1, max_grad_norm=2",
         "engines of Opacus in the lines 4, 5 differ"),
    ],
)  # fmt: skip
def test_dp_sgd_that_is_another_algorithm_is_left_out(tmp_path: Path, told: str, says: str) -> None:
    """Its price would be that of batches that coins draw, or of one engine of two."""
    folder = job(tmp_path)
    (folder / "app/custom/client.py").write_text(ENGINE.format(call="make_private", told=told))
    draft = read_job(folder, tmp_path)
    assert "use" not in draft.train
    assert any(says in note for note in draft.notes), draft.notes


def test_a_job_names_no_component_of_the_recipe(tmp_path: Path) -> None:
    """What a filter is called in the recipe follows from its class, also where an argument is called `use`."""
    draft = read_job(job(tmp_path, filter_of("PercentilePrivacy", use="std.gaussian", percentile=20)), tmp_path)
    assert draft.links == [{"use": "deployed.percentile_privacy", "percentile": 20}]


def test_text_of_a_job_stays_in_comments(tmp_path: Path) -> None:
    """A line of YAML also ends at some characters that no editor shows."""
    draft = read_job(job(tmp_path / "job", filter_of("", "mine.Odd\u2028rounds: 1\x85delta: 0.1\x1b[2Jx")), tmp_path)
    written(draft, tmp_path / "made.yaml", "std.digits", trusted=False)
    assert load_recipe(tmp_path / "made.yaml").rounds == 3
    assert all(note.isprintable() for note in draft.notes)


# -- Flower ------------------------------------------------------------------------------------------------------------

PROJECT = """
[project]
name = "hospital"

[tool.flwr.app.components]
serverapp = "hospital.server_app:app"
clientapp = "hospital.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 4
local-epochs = 2
learning-rate = 0.1
batch-size = 16
dp.noise = 1.5
clip = 0.7

[tool.flwr.federations]
default = "local"

[tool.flwr.federations.local]
options.num-supernodes = 6
"""
CLIENT = """
raise RuntimeError("it must not run")
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod, message_size_mod
DELTA = 1e-5
local = LocalDpMod(1.0, sensitivity=1e-4, epsilon=10, delta=DELTA)
app = ClientApp(mods=[{mods}])

@app.train()
def train(msg, context):
    ...
"""
SERVER = """
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import *

app = ServerApp()

@app.main()
def main(grid, context):
    cfg = context.run_config
    noise = float(cfg["dp.noise"])
    base = FedAvg(fraction_train={fraction})
    strategy = {strategy}
    strategy.start(grid, num_rounds=cfg.get("num-server-rounds", 3))
"""


def app(folder: Path, mods: str = "", strategy: str = "base", fraction: str = "1.0") -> Path:
    (folder / "hospital").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "hospital/client_app.py").write_text(CLIENT.format(mods=mods))
    (folder / "hospital/server_app.py").write_text(SERVER.format(strategy=strategy, fraction=fraction))
    return folder


def test_an_app_becomes_a_recipe_that_runs(tmp_path: Path) -> None:
    """The defaults of a hospital project: epsilon 10 in the file, 8.5e8 after four rounds by the ledger."""
    path = tmp_path / "made.yaml"
    notes = written(read_app(app(tmp_path / "app", "message_size_mod, local"), tmp_path), path, "std.digits", False)
    recipe = load_recipe(path)
    assert (recipe.name, recipe.rounds, recipe.clients) == ("hospital", 4, 6)
    assert {"epochs": 2, "batch_size": 16, "lr": 0.1}.items() <= recipe.to_plain()["train"].items()
    (link,) = recipe.to_plain()["protect"]["noised"]
    assert {"clipping_norm": 1.0, "sensitivity": 1e-4, "epsilon": 10, "delta": 1e-5}.items() <= link.items()
    assert run_protocol(recipe.to_plain()).protocol.ledger.epsilon() == pytest.approx(8.5e8, rel=0.01)
    assert not any("message_size_mod" in note for note in notes)


def test_a_strategy_of_central_privacy_is_taken_over(tmp_path: Path) -> None:
    made_of = 'DifferentialPrivacyClientSideFixedClipping(base, noise, cfg["clip"], num_sampled_clients=6)'
    draft = read_app(app(tmp_path, "fixedclipping_mod", made_of), tmp_path)
    assert draft.links == [{"use": "deployed.fixed_clipping", "noise_multiplier": 1.5, "clipping_norm": 0.7}]
    assert any("weights clients by num-examples" in note for note in draft.notes)
    assert run_protocol(made(draft)).protocol.ledger.epsilon() is None
    draft.weighting = "uniform"
    assert run_protocol(made(draft)).protocol.ledger.epsilon() is not None


@pytest.mark.parametrize(
    "before", ["noise *= 0.1", "for noise in (1, 2): pass", "noise, other = 0.1, 1", "def f(noise): pass"]
)
def test_a_number_that_changes_is_not_known_from_its_first_value(tmp_path: Path, before: str) -> None:
    folder = app(tmp_path, "fixedclipping_mod", "DifferentialPrivacyClientSideFixedClipping(base, noise, 0.5, 6)")
    server = folder / "hospital/server_app.py"
    server.write_text(server.read_text().replace("    base =", f"    {before}\n    base ="))
    draft = read_app(folder, tmp_path)
    assert not any("noise_multiplier" in link for link in draft.links)
    assert any("the value of noise does not follow from the text" in note for note in draft.notes)


def test_what_a_job_has_under_a_condition_is_said(tmp_path: Path) -> None:
    wrapped = "    strategy = DifferentialPrivacyServerSideFixedClipping(base, 1.0, 0.5, 6)"
    for condition, links in (("cfg['private']", 1), ("False", 0)):
        folder = app(tmp_path / condition, "")
        server = folder / "hospital/server_app.py"
        text = server.read_text().replace("    strategy = base", f"    if {condition}:\n    {wrapped}")
        server.write_text(text)
        draft = read_app(folder, tmp_path)
        assert len(draft.links) == links
        said = any(f"in the job only if {condition}" in note for note in draft.notes)
        assert said == bool(links)


def test_more_sampled_clients_than_there_are_stay_in_the_recipe(tmp_path: Path) -> None:
    made_of = "DifferentialPrivacyServerSideFixedClipping(base, 1.0, 0.5, 60)"
    draft = read_app(app(tmp_path, "", made_of), tmp_path)
    (link,) = draft.links
    assert (link["num_sampled_clients"], link["clips"]) == (60, "server")
    assert any("told 60 sampled clients, and 6 take part" in note for note in draft.notes)
    assert run_protocol(made(draft)).protocol.rows


def test_mods_act_from_the_last_to_the_first(tmp_path: Path) -> None:
    made_of = "DifferentialPrivacyClientSideFixedClipping(base, 1.0, 0.5, 6)"
    uses = {"local": "deployed.local_dp_mod", "fixedclipping_mod": "deployed.fixed_clipping"}
    for mods in (["local", "fixedclipping_mod"], ["fixedclipping_mod", "local"]):
        draft = read_app(app(tmp_path / mods[0], ", ".join(mods), made_of), tmp_path)
        assert [link["use"] for link in draft.links if isinstance(link, dict)] == [uses[mod] for mod in reversed(mods)]
        assert run_protocol(made(draft)).protocol.ledger.epsilon() is not None


def test_an_adaptive_strategy_of_some_clients_has_as_many(tmp_path: Path) -> None:
    made_of = "DifferentialPrivacyClientSideAdaptiveClipping(base, 0.2, 3, clipped_count_stddev=1.0)"
    draft = read_app(app(tmp_path, "adaptiveclipping_mod", made_of, "0.5"), tmp_path)
    assert (draft.clients, draft.sampling) == (3, None)
    plan = {"use": "deployed.adaptive_clipping", "noise_multiplier": 0.2, "clipped_count_stddev": 1.0}
    assert draft.plan == plan
    draft.weighting = "uniform"
    assert run_protocol(made(draft)).protocol.ledger.epsilon() is not None


def test_sampling_is_taken_over(tmp_path: Path) -> None:
    made_of = "DifferentialPrivacyClientSideFixedClipping(base, 1.0, 0.5, 3)"
    draft = read_app(app(tmp_path, "fixedclipping_mod", made_of, "0.5"), tmp_path)
    assert draft.sampling == {"scheme": "fixed", "rate": 0.5}
    assert "num_sampled_clients" not in draft.links[0]
    draft.weighting = "uniform"
    assert run_protocol(made(draft)).protocol.ledger.epsilon() is not None


@pytest.mark.parametrize(
    ("mods", "strategy", "says"),
    [
        ("my_mod", "base", "client_app.py:7: the mod my_mod is not understood, and is not in the recipe"),
        ("LocalDpMod(1.0, 1.0, budget(), 1e-5)", "base", "is not in the recipe, since epsilon cannot be read"),
        ("LocalDpMod(1.0, 1.0, 0, 1e-5)", "base", "adds noise that is no number"),
        ("LocalDpMod(1.0, 1.0, 'x', 1e-5)", "base", "adds noise that is no number"),
        ("fixedclipping_mod", "base", "without DifferentialPrivacyClientSideFixedClipping at the server"),
        ("", "DifferentialPrivacyClientSideFixedClipping(base, 1, 0.5, 6)", "expects clients to clip, and no mod does"),
        ("", "Krum()", "the strategy Krum is not in the recipe"),
    ],
)
def test_what_is_not_taken_over_from_an_app_has_a_line(tmp_path: Path, mods: str, strategy: str, says: str) -> None:
    draft = read_app(app(tmp_path, mods, strategy), tmp_path)
    assert any(says in note for note in draft.notes), draft.notes
    assert run_protocol(made(draft)).protocol.rows


def test_folders_that_are_no_app_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"pyproject.toml cannot be read: No such file"):
        read_app(tmp_path, tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'")
    with pytest.raises(SetupError, match=r"names no clientapp and serverapp"):
        read_app(tmp_path, tmp_path)
    folder = app(tmp_path / "app")
    (folder / "hospital/client_app.py").write_text("def f(:")
    with pytest.raises(SetupError, match=r"client_app.py:1: it is not Python"):
        read_app(folder, tmp_path)
    (folder / "hospital/client_app.py").unlink()
    with pytest.raises(SetupError, match=r"names hospital.client_app:app, and there is no .*client_app.py"):
        read_app(folder, tmp_path)


def test_secure_aggregation_is_that_of_secagg_plus(tmp_path: Path) -> None:
    folder = app(tmp_path, "secaggplus_mod, local", "SecAggPlusWorkflow(3, 2)")
    draft = read_app(folder, tmp_path)
    assert draft.seal == {"use": "secagg.plus"}
    (link,) = draft.links
    assert isinstance(link, dict)
    assert link["use"] == "deployed.local_dp_mod"
    assert "encrypted" in run_protocol(made(draft)).protocol.ledger.sealed
    bare = read_app(app(tmp_path / "bare", "secaggplus_mod", "SecAggPlusWorkflow(3, 2)"), tmp_path)
    assert bare.links == [{"use": "std.clip", "norm": 8.0}]  # masks need a bound
    assert "encrypted" in run_protocol(made(bare)).protocol.ledger.sealed


def test_masks_and_central_noise_go_together(tmp_path: Path) -> None:
    """As in Flower's example fl-dp-sa."""
    workflow = "DifferentialPrivacyClientSideFixedClipping(base, 0.2, 10, 6); x = SecAggPlusWorkflow(7, 4)"
    draft = read_app(app(tmp_path, "secaggplus_mod, fixedclipping_mod", workflow), tmp_path)
    plain = made(draft)
    assert [use["use"] for use in plain["protect"]["encrypted"]] == ["deployed.fixed_clipping", "secagg.plus"]
    assert plain["postprocess"] == {"encrypted": ["secagg.plus", "deployed.fixed_clipping"]}
    plain["aggregate"]["weighting"] = "uniform"
    assert run_protocol(plain).protocol.ledger.epsilon() is not None


def test_few_of_unknown_clients_are_enough_for_a_round(tmp_path: Path) -> None:
    folder = app(tmp_path / "app", fraction="0.05")
    project = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(project.replace("options.num-supernodes = 6", ""))
    written(read_app(folder, tmp_path), tmp_path / "made.yaml", "std.digits", False)
    assert load_recipe(tmp_path / "made.yaml").clients == 60


# -- Python, read ------------------------------------------------------------------------------------------------------


def source(folder: Path, text: str, **config: Any) -> Source:
    (folder / "x.py").write_text(text)
    return Source(folder / "x.py", config)


@given(st.integers(-1000, 1000), st.floats(0.01, 100), st.sampled_from("+-*/"))
def test_arithmetic_is_pythons(one: int, other: float, sign: str) -> None:
    import ast

    text = f"{one} {sign} {other!r}"
    reader = Source.__new__(Source)
    reader.config, reader._assigned = {}, {}
    assert reader.value(ast.parse(text, mode="eval").body) == eval(text)


def test_names_and_configuration_are_followed_and_what_is_assigned_twice_is_unknown(tmp_path: Path) -> None:
    text = "a = 2\nb = a * 1.5\nc = 1\nc = 2\ncfg = x.run_config\nd = d + 1\ne = h\nh = e\n"
    text += "f(b, c, y.run_config['lr'], cfg.get('x', 7), g(), e)\nk(d)"
    reader = source(tmp_path, text, lr=0.5)
    ((_, call),) = reader.calls("f")
    values: list[Any] = []
    for node in call.args:
        try:
            values.append(reader.value(node))
        except Unknown as error:
            values.append(str(error))
    assert values == [3.0, "c", 0.5, 7, "g()", "e"]
    ((_, call),) = reader.calls("k")
    with pytest.raises(Unknown):
        reader.value(call.args[0])


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.sampled_from(["no", "Null", "1e5", "a: b", "net.py:Net", "^fc", "x:", "~", "-", "0x1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4), max_leaves=8,
))  # fmt: skip
@example(value={"0" * 30 + "\u1e70" * 110: None})
def test_what_is_written_is_read_back(value: Any) -> None:
    assert read_text(f"it: {_flow(value)}\n", "x").data == {"it": value}


def test_numbers_of_a_command_line() -> None:
    assert numbers(["--local_epochs", "3", "--lr=0.1", "-x", "--batch-size", "none"]) == {"epochs": 3, "lr": 0.1}
    assert numbers([]) == numbers(["--lr"]) == {}


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_recipe_and_prints_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = app(tmp_path / "app", "local")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "import", "flower", str(folder)) == 0
    out = capsys.readouterr().out
    assert "recipe: hospital.yaml; to run it: fedplug run hospital.yaml" in out
    assert "note: data: the job's code loads the data, and was not run; std.digits stands in" in out
    assert load_recipe(tmp_path / "hospital.yaml").name == "hospital"
    assert call(monkeypatch, "import", "nvflare", str(tmp_path / "none")) == 1
    assert "is no folder; name that of a job of NVFlare" in capsys.readouterr().err
    assert call(monkeypatch, "import", "flower", str(folder), "--dataset", "std.digit", "--to", "x.yaml") == 1
    assert "the job gives no recipe that is right: " in capsys.readouterr().err
    assert not (tmp_path / "x.yaml").exists()
    assert not list(tmp_path.glob(".*"))
