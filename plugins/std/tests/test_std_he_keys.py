"""Keys of an encryption as they arrive: at the server that relays them, and at the clients that are to use them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Client, KeyServer, Layout
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.facts import Facts
from fedplug.api.parties import Server
from fedplug_std import he_keys
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks

TERMS = {"field_bits": 18, "bits": 15, "max_clients": 3, "key": 2**31}
MADE = {"adding": b"parameters", "keys": b"public key", "terms": TERMS}
WRONG: dict[str, tuple[Any, str]] = {
    "no keys": ([MADE], "its answer is a list, not keys by name"),
    "nothing": (None, "its answer is None, not keys by name"),
    "adding": (MADE | {"adding": "parameters"}, "adding is 'parameters', which must be bytes"),
    "keys": (MADE | {"keys": np.ones(3)}, "keys is a ndarray, which must be bytes"),
    "no terms": ({"adding": b"", "keys": b""}, "terms are None, which must be whole numbers by name"),
    "a term's name": (MADE | {"terms": {**TERMS, 5: 1}}, "terms are a dict, which must be whole numbers by name"),
    "a float": (MADE | {"terms": {**TERMS, "bits": 8.0}}, "terms say bits=8.0, which must be a whole number >= 0"),
    "true": (MADE | {"terms": {**TERMS, "key": True}}, "terms say key=True, which must be a whole number"),
    "below 0": (MADE | {"terms": {**TERMS, "bits": -1}}, "terms say bits=-1, which must be"),
    "huge": (MADE | {"terms": {**TERMS, "bits": 10**5000}}, "terms say bits=a whole number of 16610 bits, which"),
    "no number": (MADE | {"terms": {k: v for k, v in TERMS.items() if k != "key"}}, "terms lack key"),
    "a name of the scheme": (
        MADE | {"terms": {k: v for k, v in TERMS.items() if k != "bits"}},
        "terms do not fit the scheme: they lack 'bits'",
    ),
    "a choice of the scheme": (MADE | {"terms": TERMS | {"field_bits": 31}}, "they lack 31, or mean a choice that it"),
    "a number of the scheme": (MADE | {"terms": TERMS | {"field_bits": 99}}, "field_bits=99 must be 2 to 31"),
    "fewer clients": (MADE | {"terms": TERMS | {"max_clients": 2}}, "for sums of 2 clients, not of 3"),
    "error": ({"error": 5}, "adding is None, which must be bytes"),
}


def context_of(party: Any) -> Facts:
    return Facts(
        round=-1, rounds=1, layout=Layout.of([("w", (3,))]), zones=("encrypted",), num_clients=3, min_clients=2, seed=1,
        digest="d", party=party,
    )  # fmt: skip


class Asked:
    """Clients, or a key server, that answer alike whatever they are asked, and note what they are told."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.client_ids, self.told = answer, [0, 1, 2], []

    def only(self, client_ids: list[int]) -> SimpleNamespace:
        return SimpleNamespace(ask=lambda method, *payload: dict.fromkeys(client_ids, self.answer))

    def ask(self, method: Any, *payload: Any) -> Any:
        return self.answer

    def tell(self, method: Any, *payload: Any) -> None:
        self.told.append(payload)


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
@pytest.mark.parametrize("case", WRONG)
def test_the_server_relays_nothing_that_is_no_key(case: str, key_holder: str) -> None:
    answer, said = WRONG[case]
    component, server, asked = Bfv(Bfv.Options.model_validate({"key_holder": key_holder})), Server(), Asked(answer)
    with pytest.raises(ProtectionError) as caught:
        he_keys.distribute(component, asked, asked, context_of(server))  # type: ignore[arg-type]
    maker = "client 0" if key_holder == "clients" else "the key server"
    assert str(caught.value).startswith(f"std.bfv: {maker} makes the keys, but ")
    assert said in str(caught.value)
    assert str(caught.value).endswith("; start the run again")
    assert not asked.told
    assert not server.memory(component)


def test_what_is_right_is_stored_and_told() -> None:
    component, server, asked = Bfv(Bfv.Options()), Server(), Asked(MADE)
    he_keys.distribute(component, asked, asked, context_of(server))  # type: ignore[arg-type]
    assert server.memory(component) == {"context": b"parameters", "terms": TERMS}
    assert asked.told == [(b"public key", TERMS)]


def test_the_keys_that_schemes_make_are_right() -> None:
    for component in (Bfv(Bfv.Options()), Ckks(Ckks.Options())):
        asked = Asked(component.make_keys(KeyServer(), 3))
        he_keys.distribute(component, asked, asked, context_of(Server()))  # type: ignore[arg-type]
        (told,) = asked.told
        component.adopt_keys(Client(client_id=1), *told)


@pytest.mark.parametrize(
    ("keys", "terms", "said"),
    [("text", TERMS, "keys is 'text', which must be bytes"), (b"", [1], "terms are a list, which must be"),
     (b"", {"max_clients": 3, "key": 1}, "terms do not fit the scheme: they lack ")],
    ids=["keys", "terms", "names"],
)  # fmt: skip
def test_a_client_takes_no_keys_that_are_none(keys: Any, terms: Any, said: str) -> None:
    component, client = Bfv(Bfv.Options()), Client(client_id=1)
    with pytest.raises(MessageError, match=said):
        component.adopt_keys(client, keys, terms)
    assert not client.memory(component)
