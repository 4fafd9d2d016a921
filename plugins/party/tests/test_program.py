"""A party's program: it uses only its own data, and it writes its model at the end."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from fedplug.api import secrets
from fedplug.api.blocks import Layout
from fedplug.api.errors import DataError, SetupError
from fedplug.round.parties import ClientHost
from fedplug_party.program import Noticing, Site, _secret, data_digest, run_party, write_models
from fedplug_party.state import State
from party_toys import Beside
from site_toys import Noted, arrays, at_sites, write_sites
from toy_components import TOYS, recipe_of, toy_catalog
from toy_protocol import build, run_protocol


def test_with_data_at_sites_each_party_loads_its_own_and_the_server_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model equals that of one process with all the folders. The data set records which process loads what."""
    monkeypatch.setitem(TOYS["dataset"], "toy.noted", Noted)
    plain = at_sites("toy.noted", rounds=2)
    sites = write_sites(tmp_path / "sites")
    beside = Beside(tmp_path / "parties", plain, sites=sites)
    loads = (sites / "loads.txt").read_text().splitlines()
    assert {line.split()[1] for line in loads} == {"client-0", "client-1", "client-2"}
    protocol, engine, _ = build(plain, beside.engine)
    assert len((sites / "loads.txt").read_text().splitlines()) == len(loads)  # the server has no folder of data
    protocol.setup()
    protocol.run()
    (tmp_path / "round-0003").mkdir()
    engine.save(tmp_path / "round-0003")
    host = beside.parties["client:1"].host
    assert host is not None
    write_models(host, tmp_path)
    assert (tmp_path / "model.npz").stat().st_mode & 0o777 == 0o600
    with np.load(tmp_path / "model.npz") as model:
        named = [model[each.name].ravel() for each in protocol.layout.parameters]
    local = run_protocol(plain, data_root=str(sites))
    assert np.array_equal(np.concatenate(named), local.vector)


def test_data_that_do_not_fit_are_refused_before_anybody_joins(tmp_path: Path) -> None:
    sites = write_sites(tmp_path / "sites")
    np.savez(sites / "client-1/data.npz", **arrays(12, train_labels=np.full(12, 7)))
    with pytest.raises(DataError, match="client 1"):
        Beside(tmp_path / "parties", at_sites(), sites=sites)


def test_what_is_odd_about_the_data_is_told_at_the_site(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    table = {f"{split}_inputs": np.ones((6, 3), np.float32) for split in ("train", "test")}
    table |= {f"{split}_labels": np.arange(6) % 2 for split in ("train", "test")}
    np.savez(folder / "data.npz", classes=["low", "high"], **table)
    plain = at_sites(agreed={"shape": [3], "mean": [], "std": []})
    site = Site(Beside.read(plain), "client:1", tmp_path, str(folder), "cpu", toy_catalog())
    said: list[str] = []
    with contextlib.closing(State(tmp_path / "state")) as state:
        assert run_party(site, state, 0, lambda text: False, said.append) == 1
    assert said[0].startswith(f"warning: data of client 1, in {folder}: 3 columns of the inputs are the same")


def test_other_data_have_another_digest(tmp_path: Path) -> None:
    site = Site(Beside.read(recipe_of()), "client:0", tmp_path, None, "cpu", toy_catalog())
    client = site.client()
    assert client is not None
    data = client.data
    assert data_digest(data) == data_digest(dataclasses.replace(data))
    labels = data.train.labels.copy()
    labels[0] = 9 - labels[0]
    other = dataclasses.replace(data, train=dataclasses.replace(data.train, labels=labels))
    assert data_digest(other) != data_digest(data)
    fewer = dataclasses.replace(data, own_test=data.own_test.take(np.arange(len(data.own_test) - 1)))
    assert data_digest(fewer) != data_digest(data)


@pytest.mark.parametrize("address", ["client:4", "client:-1", "somebody"])
def test_a_recipe_has_the_parties_that_it_has(address: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=rf"recipe toy has no {address}; it has client:0 to client:3"):
        Site(Beside.read(recipe_of()), address, tmp_path, None, "cpu", toy_catalog())
    assert os.listdir(tmp_path) == []


def test_a_client_whose_key_the_recipe_lists_brings_it(tmp_path: Path) -> None:
    pairs = [secrets.signing_pair() for _ in range(4)]
    wire = [b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + public for _, public in pairs]
    lines = [f"client:{c} ssh-ed25519 {base64.b64encode(key).decode()}\n" for c, key in enumerate(wire)]
    (tmp_path / "signers").write_text("".join(lines))
    use = {"use": "secagg.bonawitz", "signed": True, "signers": str(tmp_path / "signers")}
    plain = recipe_of("encrypted", [{"use": "std.clip", "norm": 1.0}, use], postprocess={"encrypted": [use["use"]]})
    plain |= {"min_clients": 4, "aggregate": {"use": "std.mean", "weighting": "uniform"}}
    recipe, catalog = Beside.read(plain), toy_catalog()
    client = Site(recipe, "client:1", tmp_path, None, "cpu", catalog, pairs[1][0]).client()
    assert client is not None
    assert client.signing_key == pairs[1][0]
    for key, problem in ((None, "client 1 has no signing key"), (pairs[0][0], "is not the one that the recipe lists")):
        with pytest.raises(SetupError, match=problem):
            Site(recipe, "client:1", tmp_path, None, "cpu", catalog, key)
    (tmp_path / "key").write_bytes(b"")
    (tmp_path / "key").chmod(0o644)
    for file, problem in (("key", "has mode 0644.*chmod 600"), ("none", "none cannot be read")):
        with pytest.raises(SetupError, match=problem):
            _secret(tmp_path / file)


def test_a_model_with_rows_that_no_training_makes_is_told_at_the_site_once(tmp_path: Path) -> None:
    plain = recipe_of(rounds=2)
    beside = Beside(tmp_path, plain)
    build(plain, beside.engine)[0].setup()
    host = beside.parties["client:0"].host
    assert isinstance(host, ClientHost)
    client = host.clients["client:0"]
    noticing = Noticing(Layout.of([("fc.weight", (4, 5)), ("fc.bias", (4,))]))
    rng = np.random.default_rng(0)
    client.vector = rng.standard_normal(24).astype(np.float32)
    assert noticing(host) == []  # there is no earlier model
    client.vector = client.vector + rng.standard_normal(24).astype(np.float32)
    assert noticing(host) == []
    planted = np.tile(client.vector[:5], 5)[:24]
    client.vector = planted
    assert noticing(host) == ["100% of the rows of a layer are multiples of each other"]
    assert noticing(host) == []
    client.vector = planted + np.float32(0.1)
    assert noticing(host) == []  # as it was before
