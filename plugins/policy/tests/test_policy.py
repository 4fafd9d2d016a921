"""What a site's policy refuses, before a study joins and in every round."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug.recipe.composition import Composition
from fedplug.round.parties import ClientHost
from fedplug.round.world import World
from fedplug_party import program
from fedplug_party.frames import Reply, Request
from fedplug_party.line import ask
from fedplug_policy.guard import SitePolicy
from fedplug_policy.policy import read_policy
from fedplug_runs.checkpoint import StateFiles
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from policy_toys import recipe


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    Path("dp.yaml").write_text(yaml.safe_dump(recipe()))
    bfv = {"negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "protect": {"encrypted": ["std.bfv"]},
           "postprocess": {"encrypted": ["std.bfv"]}}  # fmt: skip
    Path("bfv.yaml").write_text(yaml.safe_dump(recipe("bfv", **bfv)))
    bare = {"negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}
    Path("bare.yaml").write_text(yaml.safe_dump(recipe("bare", **bare)))


@pytest.mark.parametrize(("study", "policy", "said"), [
    ("dp", "least_clients: 5", "least_clients: 5, and the recipe has min_clients: 3"),
    ("dp", "rounds: 2", "rounds: 2, and the recipe has rounds: 3"),
    ("dp", "delta: 1.0e-6", "delta: 1e-06, and the recipe has delta: 1e-05"),
    ("dp", "epsilon: {server: 1}", "epsilon.server: 1, and the study costs epsilon 1.7 toward the server"),
    ("dp", "budget: {epsilon: 1.5, delta: 1.0e-5}", "and with this study epsilon reaches 1.7"),
    ("bare", "bare: false", "bare: false, and the server reads the zone clear without noise"),
    ("bare", "epsilon: {server: 9}", "nothing bounds what the study costs: reads the clear zone of every upload"),
    ("bfv", "encryptions: [secagg.*]", "encryptions: secagg.*, and std.bfv encrypts the zone encrypted"),
    ("bfv", "openers: [shares]", "openers: shares, and a key server can open sums of the zone encrypted"),
    ("dp", "{unit: record, epsilon: {server: 3}}", "toward the server nothing bounds what the study costs"),
])  # fmt: skip
def test_a_researcher_is_told_beforehand_what_a_site_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, study: str, policy: str, said: str
) -> None:
    Path("site.yaml").write_text(policy)
    assert call(monkeypatch, "check", f"{study}.yaml", "--policy", "site.yaml") == 1
    assert f"{study}.yaml: site.yaml, " in (out := capsys.readouterr().out)
    assert said in out


def test_what_a_policy_allows_is_well(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    Path("site.yaml").write_text(
        "{least_clients: 3, rounds: 3, epsilon: {server: 2}, bare: false, code: shipped, encryptions: [], openers: []}"
    )
    assert call(monkeypatch, "check", "dp.yaml", "--policy", "site.yaml") == 0
    assert "dp.yaml: ok" in capsys.readouterr().out


def test_everything_that_is_wrong_with_a_policy_is_said_with_its_place() -> None:
    Path("site.yaml").write_text("least_client: 3\nbudget: {epsilon: -1, delta: 2}\nbare: perhaps\n")
    with pytest.raises(SetupError) as refused:
        read_policy(Path("site.yaml"))
    said = str(refused.value)
    assert "site.yaml:1:1: unknown option 'least_client' of the policy; did you mean least_clients?" in said
    assert "site.yaml:2:19: the policy: budget.epsilon=-1 must be > 0" in said
    assert "site.yaml:2:30: the policy: budget.delta=2 must be < 1" in said
    assert "site.yaml:3:7: the policy: bare='perhaps' must be " in said


def test_a_run_of_parties_is_charged_and_the_next_study_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Client 0 has a policy. Each round is charged before its answer, and the next study meets the rest."""
    Path("site.yaml").write_text("engines: [parties]\nbudget: {epsilon: 3, delta: 1.0e-5}\n")
    outcomes: list[Any] = []

    def client(number: int) -> None:
        policy, state = Path("site.yaml") if number == 0 else None, Path(f"p/client-{number}")
        given = Path("dp.yaml"), None, f"client:{number}", state, Settings(device="cpu"), 1, True
        outcomes.append(program.be_party(*given, policy=policy))

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(3):
        while call(monkeypatch, "party", "--status", f"p/client-{number}"):
            assert threads[number].is_alive()
    joining = Request("client:0", load_recipe(Path("dp.yaml")).digest, "run", "session", 1, "", "join").to_bytes()
    relayed = Reply.read(ask(Path("p/client-0"), joining, 60, "flower"))
    assert (relayed.outcome, relayed.reason) == (
        "refused", "site.yaml, engines: parties, and flower carries this request"
    )  # fmt: skip
    assert call(monkeypatch, "run", "dp.yaml", "--engine", "parties", "--parties", "p", "--quiet") == 0
    for thread in threads:
        thread.join(60)
    assert outcomes == [0, 0, 0]
    capsys.readouterr()
    assert call(monkeypatch, "budget", "site.yaml") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "budget: epsilon 3 at delta 1e-05 for a client, shared by studies of the same files"
    assert lines[2].split()[:3:2] == ["dp", "3"]
    assert lines[2].split()[4:7] == ["1.7", "1.7", "1.3"]
    words = ["party", "dp.yaml", "--client", "0", "--state", "q", "--yes", "--policy", "site.yaml", "--set", "rounds=9"]
    assert call(monkeypatch, *words) == 1
    said = capsys.readouterr().err
    assert "this site's policy refuses the study dp:" in said
    assert "site.yaml, budget: epsilon 3 at delta 1e-05 toward the server, and with this study epsilon reaches" in said
    assert "after 1.7 by dp" in said


def test_who_goes_on_in_a_run_does_not_pay_twice_for_its_beginning() -> None:
    """After 3 of 3 rounds the same run may be joined again, and another one may not."""
    Path("site.yaml").write_text("budget: {epsilon: 2, delta: 1.0e-5}\n")
    site, read = SitePolicy(Path("site.yaml")), load_recipe(Path("dp.yaml"))
    world = World(read, Composition(read), None)
    client = ClientHost(read, Composition(read), [0], None, "cpu", StateFiles(), world).clients["client:0"]
    layout = world.model("cpu").layout
    joined = site.study(read, layout, client, None, "rows", 0, "")
    for round in range(3):
        joined.asked("run", round, 0, joined._upload)
    site.study(read, layout, client, None, "rows", 0, "run")
    with pytest.raises(SetupError, match=r"with this study epsilon reaches 2\.\d+ after 1\.7 by dp"):
        site.study(read, layout, client, None, "rows", 0, "")
    client.tells_classes = True  # by site.toml; no noise covers the counts
    with pytest.raises(SetupError, match="with this study no guarantee is left"):
        site.study(read, layout, client, None, "else", 0, "")


def test_noise_that_follows_from_what_a_run_will_publish_has_no_price_beforehand() -> None:
    """Flower's adaptive clip scales it to the next norm: planned for 13, rounds of which the norm fell cost 68."""
    name = "deployed.adaptive_clipping"
    use = {"use": name, "noise_multiplier": 0.7, "clipped_count_stddev": 2.0, "clip_norm_lr": 4.0}
    chains: dict[str, Any] = {"negotiate_mask": use, "protect": {"noised": [name]}, "postprocess": {"noised": [name]}}
    Path("site.yaml").write_text("epsilon: {released_model: 1000}\n")
    Path("moving.yaml").write_text(yaml.safe_dump(recipe("moving", **chains)))
    (problem,) = SitePolicy(Path("site.yaml")).beforehand(load_recipe(Path("moving.yaml")), None)
    assert "epsilon.released_model: 1000, and toward anybody who gets the model nothing bounds" in problem


def test_an_account_of_records_promises_nothing_to_who_sees_more() -> None:
    """DP-SGD covers the updates, and no noise the numbers of examples of each class."""
    Path("site.yaml").write_text("{unit: record, epsilon: {server: 50}, budget: {epsilon: 50, delta: 1.0e-5}}\n")
    train = {"use": "baselines.dp_sgd", "noise_multiplier": 2.0, "batch_size": 10}
    bare = {"negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}
    Path("records.yaml").write_text(yaml.safe_dump(recipe("records", train=train, **bare)))
    site, read = SitePolicy(Path("site.yaml")), load_recipe(Path("records.yaml"))
    world = World(read, Composition(read), None)
    client = ClientHost(read, Composition(read), [0], None, "cpu", StateFiles(), world).clients["client:0"]
    layout = world.model("cpu").layout
    site.study(read, layout, client, None, "rows", 0, "")
    client.tells_classes = True
    with pytest.raises(SetupError, match=r"epsilon.server: 50, and toward the server nothing bounds"):
        site.study(read, layout, client, None, "else", 0, "")


SOMETIMES = """
import fedplug
from fedplug import Clip, Noise


class Sometimes(fedplug.Protector):
    def protect(self, known, facts):
        return (Clip(1.0), Noise.gaussian(1.0)) if facts.round < 2 else ()
"""


def test_every_round_is_looked_at_and_each_thing_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    Path("site.yaml").write_text("bare: false")
    Path("sometimes.py").write_text(SOMETIMES)
    Path("some.yaml").write_text(yaml.safe_dump(recipe(rounds=4, protect={"noised": ["sometimes.py:Sometimes"]})))
    assert call(monkeypatch, "check", "some.yaml", "--policy", "site.yaml", "--trust") == 1
    assert capsys.readouterr().out.count("bare: false, and the server reads the zone noised without noise") == 1
