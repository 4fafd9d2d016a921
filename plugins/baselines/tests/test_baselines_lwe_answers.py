"""LWE sums: which clients answer when a sum is opened, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Client, at_client
from fedplug.api.errors import MessageError, OpenedBefore, ProtectionError, RecipeError, TooFewClients
from fedplug.api.events import Released
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.lwe import Lwe
from fedplug_baselines.lwe_field import Q
from fedplug_ledger.charging import Charging
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.settings import Settings
from lwe_toys import CLIENTS, SIZE, AtServer, Line, lwe, opened, parts, recipe, update, upload
from toy_components import toy_catalog
from toy_protocol import run_protocol

# -- who answers -------------------------------------------------------------------------------------------------------


def test_clients_that_drop_out_after_the_upload_stay_in_the_sum(parties: dict[int, Client]) -> None:
    component = lwe(threshold=3, grid=2.0**-19)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    expected = sum(parts(component, client, update(c))[0] for c, client in parties.items())
    found = opened(component, blocks, parties, silent={2})
    assert np.array_equal(found.plain().astype(np.float64) * 2**19, expected)


def test_a_client_without_an_upload_is_neither_needed_nor_asked(parties: dict[int, Client]) -> None:
    component = lwe(threshold=3, grid=2.0**-19)
    there = {c: client for c, client in parties.items() if c != 1}
    blocks = {c: upload(component, client, update(c)) for c, client in there.items()}
    found = opened(component, blocks, there)
    expected = sum(parts(component, client, update(c))[0] for c, client in there.items())
    assert np.array_equal(found.plain().astype(np.float64) * 2**19, expected)
    assert not len(parties[1].openings)


def test_too_few_answers_open_nothing(parties: dict[int, Client]) -> None:
    component = lwe(threshold=3)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    with pytest.raises(TooFewClients, match=r"2 of the 4 clients .* threshold=3 are needed"):
        opened(component, blocks, parties, silent={0, 2})


@pytest.mark.parametrize(("broken", "opens"), [([2], True), ([1, 2], False)])
def test_a_run_survives_as_many_as_the_threshold_allows(
    monkeypatch: pytest.MonkeyPatch, broken: list[int], opens: bool
) -> None:
    real = Lwe.read_letters

    def breaks(component: Lwe, client: Client, letters: dict[int, bytes], about: str) -> Any:
        if client.client_id in broken:
            raise RuntimeError("out of battery")
        return real(component, client, letters, about)

    whole = run_protocol(recipe())
    monkeypatch.setattr(Lwe, "read_letters", breaks)
    if opens:
        assert np.array_equal(run_protocol(recipe()).vector, whole.vector)
    else:
        with pytest.raises(TooFewClients, match="2 of the 4 clients"):
            run_protocol(recipe())


def test_a_client_answers_for_one_set_of_shares_a_round_and_not_for_few(parties: dict[int, Client]) -> None:
    component, asked = lwe(), parties[0]
    boxes = {c: upload(component, client, update(c)).meta["letters"][0] for c, client in parties.items()}
    for few in ({}, {1: boxes[1]}, {1: boxes[1], 7: boxes[2]}):
        with pytest.raises(ProtectionError, match=f"shares of {len(few)} clients were asked for"):
            component.sum_of_shares(asked, ("encrypted", few))
    assert component.sum_of_shares(asked, ("encrypted", boxes)).shape == (710,)
    with pytest.raises(OpenedBefore, match="a sum of zone encrypted in round 1 was opened before, from other"):
        component.sum_of_shares(asked, ("encrypted", {c: boxes[c] for c in (0, 1)}))
    again = component.sum_of_shares(asked, ("encrypted", dict(reversed(boxes.items()))))
    assert np.array_equal(again, component.sum_of_shares(asked, ("encrypted", boxes)))
    fresh = {c: upload(component, client, update(c)).meta["letters"][0] for c, client in parties.items()}
    with pytest.raises(OpenedBefore, match="with other ciphertexts"):
        component.sum_of_shares(asked, ("encrypted", fresh))


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_round_that_is_repeated_after_its_sum_was_opened_goes_on_without_it(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt dies before its checkpoint: every client has answered, and refuses the fresh shares."""
    settings = Settings.load().replace({"engine": engine, "workers": 1, "output": tmp_path, "quiet": True})
    charge, catalog = Charging._released, toy_catalog()

    def killed(self: Charging, event: Released) -> None:
        if event.round == 1:
            raise ZeroDivisionError
        charge(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(Charging, "_released", killed)
        with pytest.raises(ZeroDivisionError):
            execution.start(Recipe.from_plain({**recipe(), "rounds": 3}, catalog), settings, catalog)
    (folder,) = tmp_path.iterdir()
    assert execution.resume(folder, settings, None, catalog) == 0
    said = "round 2 was repeated; zone encrypted was not opened a second time"
    assert said in json.loads((folder / "ledger.json").read_text())["warnings"]
    rows = read_rows(folder)
    assert [row.clients.dropped for row in rows] == [{}, {}, {}]  # a refusal is not a failure
    assert rows[0].loss == rows[1].loss != rows[2].loss
    notes = [json.loads(note) for note in (folder / "openings" / "client-0.jsonl").read_text().splitlines()]
    for c in range(CLIENTS):
        assert [note["round"] for note in notes if c in note.get("by", [0])] == [0, 1, 2]


def test_a_box_that_holds_no_share_is_refused(parties: dict[int, Client]) -> None:
    component = lwe()
    boxes = {c: component.write_letters(parties[c], {0: bytes(8)}, "encrypted")[0] for c in (1, 2)}
    with pytest.raises(MessageError, match="client 1 dealt 2 numbers as a share, expected 710"):
        component.sum_of_shares(parties[0], ("encrypted", boxes))


@pytest.mark.parametrize("answer", [None, "x", np.zeros(3, np.uint32), np.zeros(710)])
def test_an_answer_that_is_no_share_costs_its_client_the_round(parties: dict[int, Client], answer: Any) -> None:
    component = lwe(threshold=3)
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    server = AtServer(component, parties)

    class Odd(Line):
        def ask_each(self, method: Any, payloads: dict[int, Any]) -> dict[int, Any]:
            return super().ask_each(method, payloads) | {1: answer}

    server.line = Odd(parties)
    server.open(server.add(blocks))
    assert server.line.dropped == {1: "its sum of shares is not 710 residues"}


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda b: {"ciphertexts": (b.ciphertexts[0][:-4],)}, "does not hold 600 masked values"),
    (lambda b: {"ciphertexts": (b"\xff" * 2400,)}, "holds a number that is not a residue"),
    (lambda b: {"meta": {}}, "no sealed share for each client"),
    (lambda b: {"meta": {"letters": {0: b""}}}, "no sealed share for each client"),
    (lambda b: {"meta": {"letters": dict.fromkeys(range(5), b"x")}}, "no sealed share for each client"),
    (lambda b: {"meta": {"letters": dict.fromkeys(range(4), b"x")}}, "not of 2868 bytes each"),
])  # fmt: skip
def test_an_upload_that_cannot_be_added_is_blamed_on_its_client(
    parties: dict[int, Client], spoil: Any, said: str
) -> None:
    component = lwe()
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    blocks[2] = blocks[2].replace(**spoil(blocks[2]))
    with pytest.raises(MessageError, match=f"client 2: .*{said}") as caught:
        AtServer(component, parties).add(blocks)
    assert caught.value.client_id == 2


def test_a_sum_that_cannot_be_is_found_and_not_used(parties: dict[int, Client]) -> None:
    """One upload is noise over the whole ring: the sum is uniform, and most of it exceeds any sum of four updates."""
    component = lwe()
    blocks = {c: upload(component, client, update(c)) for c, client in parties.items()}
    junk = np.random.default_rng(0).integers(0, Q, SIZE).astype("<u4").tobytes()
    blocks = {c: blocks[c] for c in (1, 2)} | {3: blocks[3].replace(ciphertexts=(junk,))}
    with pytest.raises(ProtectionError, match="has wrapped around the modulus, or an upload or a share was wrong"):
        opened(component, blocks, parties)


def test_a_client_refuses_positions_that_differ_between_clients(parties: dict[int, Client]) -> None:
    with pytest.raises(ProtectionError, match="let the negotiation share the zone"):
        upload(lwe(), parties[0], update(0), positions=np.arange(SIZE, dtype=np.uint32))


def test_the_set_up_needs_the_key_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Lwe.make_key

    @at_client
    def make_key(self: Lwe, client: Client) -> bytes:
        return real(self, client)[client.client_id % 2 :]

    monkeypatch.setattr(Lwe, "make_key", make_key)
    with pytest.raises(TooFewClients, match=r"client 1: baselines.lwe: its public key is not 32 bytes"):
        run_protocol(recipe())


@pytest.mark.parametrize(("plain", "problem"), [
    (recipe() | {"aggregate": {"use": "std.mean"}}, "masked updates cannot be weighted"),
    (recipe() | {"min_clients": 1}, "min_clients: 1 would open single updates"),
    (recipe(threshold=5), "threshold=5 must be at most the number of clients, 4"),
    (recipe(packing=3), "packing=3 must be below threshold=3"),
    (recipe(shared_by=4), "shared_by=4 must be below the number of clients, 4"),
    (recipe() | {"sampling": {"scheme": "poisson", "rate": 0.9}}, "threshold=3 is more than the min_clients=2"),
    (recipe(noise_multiplier=1e-4), "too small for a norm of 0.5 and sums of 4 clients"),
    (recipe(decay=1e-4), "too small for a norm of 0.5 and sums of 4 clients"),
    (recipe(noise_multiplier=0), "noise_multiplier"),
    (recipe(grid=0.3), "grid=0.3 must be a power of two"),
    (recipe(grid=2.0**-40), "the sum of 4 clients could wrap"),
    (recipe(grid=0.5), r"2\^15 steps to the noise of one client"),
    (recipe(dimension=100), "dimension"),
])  # fmt: skip
def test_what_cannot_work_is_said_before_the_run(plain: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Recipe.from_plain(plain, toy_catalog())
