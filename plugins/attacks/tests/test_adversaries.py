"""Who reads and holds what; and that nothing an attack is given leads to anybody's data."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attack_toys import Echo, Runs, attacked, machinery, reachable
from fedplug.api.data import ClientData, Dataset
from fedplug.api.errors import CheckpointError
from fedplug.api.parties import KEY_SERVER, SERVER, Client, client_address
from fedplug.engines.local import LocalEngine
from fedplug.recipe.composition import Composition
from fedplug.round.hosted import HostedClient
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.round.protocol import Protocol
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.views.adversaries import Adversary, read_client
from fedplug_attacks.views.rewind import Moment, Rewound
from fedplug_attacks.workshop.run import AttackRun
from fedplug_attacks.workshop.scorer import Scorer, pixels
from fedplug_runs.wire_record import Message
from toy_components import paraaegis, recipe_of

PRIVATE = (
    ClientData, Dataset, HostedClient, Client, ClientHost, KeyServerHost, LocalEngine, Rewound, Moment, Scorer, Truth,
    AttackRun, Composition, Protocol,
)  # fmt: skip
PUBLIC = {"use": "std.digits", "clients": 4, "public": 50, "partition": {"use": "std.iid"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def between(one: str, other: str) -> list[Message]:
    return [Message(*ends, 0, "upload", b"", 0, {}) for ends in ((one, other), (other, one))]


def reads(name: str, one: str, other: str, protected: bool = False, target: int = 0) -> bool:
    adversary = Adversary.of(name, target, range(4), protected)
    assert adversary is not None
    found = {adversary.reads(message) for message in between(one, other)}
    assert len(found) == 1  # both directions alike
    return found.pop()


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "protected", "clients", "key_line"),
    [
        ("server", False, "0123", True), ("server", True, "0123", True),
        ("eavesdropper", False, "0123", True), ("eavesdropper", True, "", False),
        ("client", False, "0123", True), ("client", True, "1", False), ("client:3", True, "3", False),
        ("key_server", False, "", True), ("key_server", True, "", True),
        ("released", False, "", False), ("released", True, "", False),
        ("client+key_server", True, "1", True), ("eavesdropper+client:2", True, "2", False),
        ("server+client", True, "0123", True),
    ],
)  # fmt: skip
def test_who_reads_which_line(name: str, protected: bool, clients: str, key_line: bool) -> None:
    for number in range(4):
        assert reads(name, SERVER, client_address(number), protected) == (str(number) in clients)
    assert reads(name, SERVER, KEY_SERVER, protected) == key_line


def test_colluders_read_what_any_of_them_reads() -> None:
    lines = [(SERVER, client_address(0)), (SERVER, client_address(1)), (SERVER, KEY_SERVER)]
    for pair in itertools.combinations(("server", "eavesdropper", "client", "key_server"), 2):
        for line, protected in itertools.product(lines, (False, True)):
            alone = [reads(name, *line, protected) for name in pair]
            assert reads("+".join(pair), *line, protected) == any(alone)


def test_a_client_of_the_adversary_is_never_the_target() -> None:
    for target in range(3):
        adversary = Adversary.of("client", target, range(3), False)
        assert adversary is not None
        assert len(adversary.clients) == 1
        assert target not in adversary.clients
    assert Adversary.of("client:1", 1, range(3), False) is None
    assert Adversary.of("server+client:1", 1, range(3), False) is None
    assert Adversary.of("client", 2, [2], False) is None  # nobody else took part


def test_several_clients_may_collude() -> None:
    adversary = Adversary.of("server+client:1+client:3", 0, range(5), True)
    assert adversary is not None
    assert (adversary.clients, adversary.roles) == ((1, 3), {"server", "client"})
    said = adversary.sentence(shared_key=False)
    assert "client 1, 3, who collude, with their keys, none of which opens" in said
    assert "with their keys, which open the others' ciphertexts, and their plans" in adversary.sentence(shared_key=True)
    assert "2 clients' shares, of the 3 that open an upload" in adversary.sentence(shared_key=False, shares=3)
    assert "enough shares to open the others' ciphertexts" in adversary.sentence(shared_key=False, shares=2)
    assert Adversary.of("server+client:1+client:3", 3, range(5), True) is None
    other = Adversary.of("client:1+client", 0, range(5), True)
    assert other is not None
    assert other.clients == (1, 2)
    assert Adversary.of("client:1+client", 0, range(2), True) is None


def test_each_sentence_says_what_is_seen() -> None:
    def said(name: str, protected: bool = False, shared: bool = False) -> str:
        adversary = Adversary.of(name, 0, range(4), protected)
        assert adversary is not None
        return adversary.sentence(shared_key=shared)

    assert "no secret key" in said("server")
    assert "lengths only" in said("eavesdropper", True)
    assert "every message" in said("eavesdropper")
    assert "client 2" in said("client:2")
    assert "nothing: the links are protected" in said("client", True)
    assert "none of which opens" in said("client:2")
    assert "which open the others' ciphertexts" in said("client:2", shared=True)
    assert "its secret key" in said("key_server")
    assert "no message" in said("released")
    assert said("server+key_server") == f"{said('server')}; {said('key_server')}"


# -- holding -----------------------------------------------------------------------------------------------------------


def test_an_insider_brings_its_keys_its_plan_and_its_model_and_no_data(runs: Runs) -> None:
    folder = runs.of(paraaegis()) / "checkpoint" / "round-0001"
    insider = read_client(folder, 2)
    assert insider.plan is not None
    assert insider.vector is not None
    assert isinstance(insider.party, Client)
    assert insider.party.data is None
    assert not [path for path, found in reachable(insider) if isinstance(found, ClientData | HostedClient)]


def test_a_damaged_state_of_an_insider_is_named(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state of client:2 is missing"):
        read_client(tmp_path, 2)
    (tmp_path / "clients-2.state").write_bytes(b"no state")
    with pytest.raises(CheckpointError, match=r"clients-2\.state is damaged"):
        read_client(tmp_path, 2)


# -- what an attack is given -------------------------------------------------------------------------------------------


def private_arrays(folder: Path, **scope: Any) -> tuple[set[bytes], list[Any]]:
    """Every client's training images, each as stored, as float32 in [0, 1] and standardised; and all label vectors."""
    images, labels = set(), []
    with machinery(folder, **scope) as run:
        for client_id in range(run.recipe.data.clients):
            data = run.rewound.client(client_id).data
            unit = pixels(data.train)
            ready = (unit - np.float32(data.mean[0])) / np.float32(data.std[0])
            for form in (data.train.inputs, unit, ready, unit.astype(np.float64)):
                images |= {np.ascontiguousarray(image).tobytes() for image in form}
            labels.append(data.train.labels)
    return images, labels


def shows(found: Any, images: set[bytes], labels: list[Any]) -> str:
    """Which private thing an array or a tensor shows; empty if none."""
    if isinstance(found, torch.Tensor):
        found = found.detach().cpu().numpy()
    if not isinstance(found, np.ndarray):
        return ""
    size = 64  # of an image of the digits
    if found.size and found.size % size == 0:
        rows = np.ascontiguousarray(found).reshape(-1, size)
        if any(row.tobytes() in images for row in rows):
            return "an image"
    if found.dtype.kind in "iu" and any(found.shape == mine.shape and np.array_equal(found, mine) for mine in labels):
        return "labels"
    return ""


def test_the_walk_finds_what_is_hidden_in_odd_places() -> None:
    """Closures, bound methods, slots, partial functions, bases of arrays: the proof below is worth what this is."""
    secret = np.arange(3.0)

    class Slots:
        __slots__ = ("held",)

        def method(self) -> None: ...

    slots = Slots()
    slots.held = secret
    hidden: list[Any] = [
        lambda: secret, slots, slots.method, functools.partial(print, secret), secret[1:], {"a": [(secret,)]},
        (secret for _ in [1]), functools.wraps(lambda: secret)(lambda: None),
    ]  # fmt: skip
    for place in hidden:
        assert any(found is secret for _, found in reachable(place)), place


@pytest.mark.parametrize("kind", ["run", "probe"])
@pytest.mark.parametrize(
    "plain",
    [paraaegis(), recipe_of(data=PUBLIC), paraaegis(seal={"use": "std.bfv", "key_holder": "key_server"})],
    ids=["paraaegis", "public", "key server"],
)
def test_nothing_an_attack_is_given_leads_to_data(runs: Runs, plain: Any, kind: str) -> None:
    folder = runs.of(plain)
    scope: dict[str, Any] = {"adversaries": ["server", "client", "server+client", "eavesdropper"]}
    if "'key_server'" in str(plain):
        scope["adversaries"] += ["key_server", "server+key_server"]
    scope |= {"targets": [0, 1], "rounds": [2]} | ({"probe": {"batch_size": 8}} if kind == "probe" else {})
    images, labels = private_arrays(folder)
    attacked(folder, "toy.echo", sets=["attack.attacks.0.finds=[]"], **scope)  # nothing found, no picture to draw
    given = list(Echo.heard)
    assert len(given) >= 8
    seen = 0
    for view, attacker in given:
        for path, found in reachable(view, attacker):
            seen += 1
            assert not isinstance(found, PRIVATE), f"{view.adversary}: {path} is a {type(found).__name__}"
            assert not (what := shows(found, images, labels)), f"{view.adversary}: {path} shows {what}"
    assert seen > 1000  # the walk went somewhere


def test_the_candidates_of_a_challenge_are_the_one_exception(runs: Runs) -> None:
    folder = runs.of(recipe_of())
    images, labels = private_arrays(folder)
    sets = ['attack.attacks.0.finds=["members"]']
    attacked(folder, "toy.echo", adversaries=["released"], targets=[0], candidates=20, sets=sets)
    ((view, attacker),) = Echo.heard
    assert view.candidates is not None
    shown = {path for path, found in reachable(view, attacker) if shows(found, images, labels)}
    assert shown
    assert all(".candidates" in path for path in shown)
    assert all(not isinstance(found, PRIVATE) for _, found in reachable(view, attacker))
    # Each array of the candidates is its own: no base that holds more than the question.
    assert view.candidates.inputs.base is None or len(view.candidates.inputs.base) <= 20


def test_the_walk_would_see_a_leak(runs: Runs) -> None:
    """The same walk over what the scorer has finds the data at once."""
    folder = runs.of(recipe_of())
    images, labels = private_arrays(folder)
    with machinery(folder, adversaries=["server"]) as run:
        occasion = next(run.occasions.of(0, False))
        truth = run.truths.of(occasion.round, 0, occasion.moment, None)
        assert any(shows(found, images, labels) == "an image" for _, found in reachable(truth))
        assert any(shows(found, images, labels) == "labels" for _, found in reachable(truth))
        assert any(isinstance(found, PRIVATE) for _, found in reachable(run))
