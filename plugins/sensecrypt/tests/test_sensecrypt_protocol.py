"""SenseCrypt as a whole: it finds categories, each client has its own mask, and each cluster has its own mean."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import phe
import pytest
import yaml
from fedplug import GroundTruth, gaussian_epsilon
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs.folder import read_ledger
from fedplug_sensecrypt._phe import Phe
from fedplug_sensecrypt.simulated_clock import SimulatedTime, Work
from fedplug_terminal.main import main
from toy_components import recipe_of
from toy_protocol import Outcome, initial_vector, run_protocol

PROFILES = [
    {"of": [0, 3], "cpus": 24, "bandwidth": 50},
    {"of": [1, 4], "cpus": 12, "bandwidth": 40},
    {"of": [2, 5], "cpus": 8, "bandwidth": 30},
]
PAPER = [
    {"of": [k, k + 5, k + 10, k + 15], "cpus": cpus, "bandwidth": bandwidth}
    for k, (cpus, bandwidth) in enumerate(zip([24, 16, 12, 10, 8], [50, 45, 40, 35, 30], strict=True))
]


def sensecrypt(
    seal: str = "sensecrypt.paillier", *, select: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Six clients in two categories, reproducible except for the randomness of encryption."""
    plain: dict[str, Any] = recipe_of(
        data={"use": "std.digits", "clients": 6, "partition": {"use": "std.categories", "categories": 2}},
        profiles=PROFILES, min_clients=3,
        score_parameters=[{"use": "sensecrypt.sensitivity"}],
        groups={"use": "sensecrypt.clusters", "epsilon": None},
        negotiate_mask={"use": "sensecrypt.select", **(select or {})},
        protect={"encrypted": [{"use": seal}], "clear": []},
        postprocess={"encrypted": [seal]},
    )  # fmt: skip
    return plain | changes


FEW = {"budget": 0.02}  # 13 scalars per client
ALONE: dict[str, Any] = {"groups": None, "min_clients": 1}


@pytest.fixture(autouse=True)
def _short_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of 256 bits in this process, with which phe does the same in a hundredth of the time."""
    monkeypatch.setattr(Phe, "new_context", lambda self, bits: phe.generate_paillier_keypair(n_length=256)[1])


def uploads(outcome: Outcome, round: int = 0) -> dict[int, dict[str, Any]]:
    """Each client's upload in a round, as the server read it."""
    found = {}
    for message in outcome.sent(receiver="server", round=round):
        value = message.decode().get("value") if message.phase == "upload" else None
        if isinstance(value, dict) and "blocks" in value:
            found[int(message.sender.partition(":")[2])] = value["blocks"]
    return found


def test_rows_say_what_no_sum_holds_and_what_it_takes() -> None:
    """Recounted from the uploads, and priced by the slowest client's encryptions."""
    outcome = run_protocol(sensecrypt(select=FEW, groups=None, rounds=1))
    found, row = uploads(outcome), outcome.rows[0]
    covers: Counter[int] = Counter()
    for blocks in found.values():
        covers.update(blocks["encrypted"].positions.tolist())
    alone = {position for position, clients in covers.items() if clients < 3}
    assert row.log["sensecrypt.paillier.encrypted"] == sum(covers.values())
    assert row.log["sensecrypt.paillier.in_no_sum"] == sum(covers[position] for position in alone) > 0
    said = Work.of(row).in_vain["sensecrypt.paillier.encrypt"]
    for client_id, blocks in found.items():
        positions = blocks["encrypted"].positions.tolist()
        in_vain = sum(position in alone for position in positions) / len(positions)
        assert said[client_id] == pytest.approx(in_vain)
    simulated = SimulatedTime.of(row)
    assert simulated is not None
    assert 0 < simulated.left_out < simulated.seconds == row.simulated_seconds
    union = run_protocol(sensecrypt(select=FEW, groups=None, rounds=1, min_clients=1)).rows[0]
    assert union.log["sensecrypt.paillier.in_no_sum"] == 0
    simulated = SimulatedTime.of(union)
    assert simulated is not None
    assert simulated.left_out == 0


def test_four_categories_are_found() -> None:
    """Sec. 4.1's statistical scenario on digits, without noise: 4 of 4 categories, a model each."""
    plain = sensecrypt("std.bfv", rounds=1, profiles=PAPER) | {
        "data": {"use": "std.digits", "clients": 20, "partition": {"use": "std.categories", "categories": 4}},
        "train": {"use": "std.sgd", "epochs": 3, "batch_size": 16, "lr": 0.05},
    }
    outcome = run_protocol(plain)
    groups = outcome.protocol.server.groups
    assert sorted(groups.values()) == [list(range(5 * k, 5 * k + 5)) for k in range(4)]
    assert len({outcome.vectors[5 * k].tobytes() for k in range(4)}) == 4
    assert all(np.array_equal(outcome.vectors[k], outcome.vectors[k - k % 5]) for k in range(20))
    log = outcome.rows[0].log
    assert log["sensecrypt.clusters.clusters"] == 4
    alphas = [log[f"sensecrypt.select.security_level.client_{k}"] for k in range(5)]
    np.testing.assert_allclose(alphas, 1 - 0.7 * np.exp(-1.3 * np.array([1, 2 / 3, 0.5, 10 / 24, 1 / 3])))
    component = outcome.protocol.composition.components["sensecrypt.clusters"]
    truth = GroundTruth(classes=[], examples={}, categories=[k // 5 for k in range(20)])
    assert component.assess(outcome.protocol.server, truth)["adjusted_rand_index"] == 1


def test_own_masks_give_the_plain_mean() -> None:
    """Items 28 and 29: encrypted and plain parts add up to FedAvg's mean over the union (`min_clients: 1`)."""
    plain = sensecrypt(select=FEW, rounds=1) | ALONE
    mixed = run_protocol(plain)
    fedavg = run_protocol(recipe_of(rounds=1, data=plain["data"]))
    np.testing.assert_allclose(mixed.vector, fedavg.vector, atol=1e-6)
    assert np.abs(fedavg.vector - initial_vector(plain)).max() > 1e-2
    masks = [set(blocks["encrypted"].positions.tolist()) for blocks in uploads(mixed).values()]
    assert all(len(mask) == 13 for mask in masks)
    assert len(set.union(*masks)) > 13 > len(set.intersection(*masks))


def test_nothing_encrypted_is_also_sent_in_clear() -> None:
    """A sum of fewer than `min_clients` ciphertexts never reaches the key server (item 37)."""
    outcome = run_protocol(sensecrypt(select=FEW, rounds=1))
    sent = uploads(outcome)
    assert len(sent) == 6
    for blocks in sent.values():
        encrypted, clear = blocks["encrypted"], blocks["clear"]
        assert encrypted.values is None
        assert not set(encrypted.positions.tolist()) & set(clear.positions.tolist())
        assert encrypted.size + clear.size == 650
        assert len(encrypted.ciphertexts) == 13
    groups = outcome.protocol.server.groups
    often = {
        name: {
            position for position in range(650)
            if sum(position in sent[k]["encrypted"].positions for k in ids) >= 3
        }
        for name, ids in groups.items()
    }  # fmt: skip
    asked = [message for message in outcome.sent(receiver="key_server", round=0) if message.phase == "open"]
    opened = [blocks_in(message.decode()) for message in asked]
    assert sorted(opened) == sorted(len(positions) for positions in often.values() if positions)
    single = {bytes(c) for blocks in sent.values() for c in blocks["encrypted"].ciphertexts}
    data = b"".join(message.data for message in asked)
    assert not any(ciphertext in data for ciphertext in single)


def blocks_in(body: Any) -> int:
    """The number of ciphertexts in a call to the key server."""
    if hasattr(body, "ciphertexts"):
        return len(body.ciphertexts)
    parts = body.values() if isinstance(body, dict) else body if isinstance(body, list | tuple) else ()
    return sum(map(blocks_in, parts))


def test_both_engines_agree() -> None:
    """Encryption leaves no trace in the results, so the engines agree bit for bit."""
    plain = sensecrypt(select={"budget": 0.003}, rounds=2)
    plain["groups"] = {"use": "sensecrypt.clusters", "epsilon": 1e4, "source": "reproducible"}
    local, processes = run_protocol(plain), run_protocol(plain, "processes")
    assert list(local.vectors) == list(processes.vectors)
    assert all(np.array_equal(local.vectors[k], processes.vectors[k]) for k in local.vectors)
    assert local.protocol.server.groups == processes.protocol.server.groups


def test_clients_that_hold_the_key_open_the_sums_themselves() -> None:
    """The paper's other arrangement (Sec. 2.3): clients hold the key, the server does not."""
    plain = sensecrypt(select=FEW, rounds=1)
    shared = plain | {"protect": {"encrypted": [{"use": "sensecrypt.paillier", "key_holder": "clients"}], "clear": []}}
    outcome, other = run_protocol(shared), run_protocol(plain)
    assert all(np.array_equal(outcome.vectors[k], other.vectors[k]) for k in outcome.vectors)
    assert not outcome.sent(receiver="key_server")


def test_vectors_with_noise_are_in_the_ledger() -> None:
    """Item 40: all clients pay once, in round 1. The multiplier is that of sensitivity 2G at epsilon 1."""
    plain = sensecrypt("std.bfv", rounds=2) | {"groups": {"use": "sensecrypt.clusters", "epsilon": 1.0, "norm": 0.5}}
    ledger = run_protocol(plain).protocol.ledger
    entries = [entry for entry in ledger.log if "ballots of sensecrypt.clusters" in entry.zones]
    assert [(entry.round, entry.charged) for entry in entries] == [(1, "all")]
    (release,) = entries[0].zones["ballots of sensecrypt.clusters"].releases
    assert release.noise_multiplier == pytest.approx(2 * 3.7306, abs=1e-3)
    assert release.clipping_norm == 0.5
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(2 * 3.7306, 1e-5), abs=1e-3)  # zero-out


def written(plain: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> LedgerReport:
    """The ledger of a run from the command line."""
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(plain), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["fedplug", "run", str(path), "--output", str(folder / "runs"), "--quiet"])
    assert int(main() or 0) == 0
    (run_dir,) = (folder / "runs").iterdir()
    return read_ledger(run_dir)


ALL: dict[str, Any] = {"select": {"budget": 1.0, "B": 0.0, "C": 0.0}, "rounds": 1, "protect": {
    "encrypted": [{"use": "std.bfv", "key_holder": "clients"}], "clear": [],
}}  # fmt: skip
"""Every scalar is encrypted and opened by clients. The server reads ciphertexts, and the replies to its questions."""


def test_bare_vectors_leave_no_guarantee_toward_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else is encrypted, but the vectors name every client's classes."""
    ledger = written(sensecrypt("std.bfv", **ALL), tmp_path, monkeypatch)
    for who in ("server", "client_and_server"):
        line = ledger.views[who]
        assert (line.state, line.epsilons) == ("none", None)
        assert line.reason.startswith("sees sensitivity vectors, ")
        assert "sees sensitivity vectors: |w * gradient| of each client" in line.detail
    assert not ledger.uncovered_messages


def test_the_server_can_read_only_noised_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"use": "sensecrypt.clusters", "epsilon": 1.0}
    ledger = written(sensecrypt("std.bfv", **ALL, groups=groups), tmp_path, monkeypatch)
    line = ledger.views["server"]
    assert line.state == "guaranteed"
    assert line.epsilons is not None
    assert line.epsilons.replace_one["epsilon_exact"] == pytest.approx(1.0, rel=1e-6)
    assert line.epsilons.zero_out["epsilon_exact"] == pytest.approx(gaussian_epsilon(2 * 3.7306, 1e-5), abs=1e-3)
    assert not ledger.uncovered_messages


@pytest.mark.parametrize(
    ("options", "to"),
    [
        ({"key_holder": "clients"}, ["client"]), ({"sums_visible_to": "clients"}, ["key_holder", "client"]),
        ({}, ["key_holder"]),
    ],
)  # fmt: skip
def test_divisors_of_single_positions_are_listed(options: dict[str, Any], to: list[str]) -> None:
    """Masks differ, so each position is divided by the weight of the clients that chose it. The opener learns it."""
    protect = {"encrypted": [{"use": "sensecrypt.paillier", **options}], "clear": []}
    outcome = run_protocol(sensecrypt(select=FEW, rounds=1, protect=protect, groups=None))
    (shown,) = [each for each in outcome.protocol.ledger.reveals if each.what == "divisors of positions"]
    assert list(shown.to) == to
    assert "the clients behind each position of the encrypted sum" in shown.note
    told = set()
    for who, address in (("client", "client:0"), ("key_holder", "key_server")):
        for message in outcome.sent(receiver=address):
            for *_, method, payload in message.decode().get("calls", ()):
                if method not in ("open", "adopt"):
                    continue
                block = payload[1] if method == "open" else payload[0]["encrypted"]
                if np.ndim(block.divisor):
                    assert len(block.divisor) == block.size
                    told.add(who)
    assert told == set(to)


def test_where_all_lie_alike_no_divisors_are_listed() -> None:
    outcome = run_protocol(recipe_of("encrypted", [{"use": "std.bfv"}], rounds=1))
    assert not [each for each in outcome.protocol.ledger.reveals if each.what == "divisors of positions"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profiles": PROFILES[:2]}, "no profile for client 2, 5"),
        ({"profiles": []}, "or set budget for all"),
        ({"min_clients": 2}, "min_clients=2 must be 3 or more"),
        ({"score_parameters": []}, "add score_parameters"),
        ({"sampling": {"rate": 0.5}}, "remove sampling"),
    ],
)
def test_recipes_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.from_plain(sensecrypt("std.bfv") | changes)
