"""Keys of an encryption as they arrive: at the server that relays them, and at the clients that are to use them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Client, KeyServer
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.parties import Server
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from he_toys import facts_of, make

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


class Asked:
    """Clients, or a key server, that answer alike whatever they are asked, and note what they are told."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.client_ids, self.told = answer, [0, 1, 2], []
        self.server, self.published = Server(), {}

    def only(self, client_ids: list[int]) -> SimpleNamespace:
        return SimpleNamespace(ask=lambda method, *payload: dict.fromkeys(client_ids, self.answer))

    def ask(self, method: Any, *payload: Any) -> Any:
        return self.answer

    def tell(self, method: Any, *payload: Any) -> None:
        self.told.append(payload)

    def publish(self, component: Any, values: Any, *, covered_by: str | None = None) -> None:
        assert covered_by == "nothing to pay"
        self.published = values


def distribute(component: Any, asked: Asked) -> None:
    component.setup(asked, asked, facts_of(component, 3, 2))  # type: ignore[arg-type]


def client_that_heard(component: Any, terms: Any) -> Client:
    client = Client(client_id=1)
    client.facts = facts_of(component, 3, 2, terms=terms)
    return client


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
@pytest.mark.parametrize("case", WRONG)
def test_the_server_relays_nothing_that_is_no_key(case: str, key_holder: str) -> None:
    answer, said = WRONG[case]
    component, asked = make(Bfv, key_holder=key_holder), Asked(answer)
    with pytest.raises(ProtectionError) as caught:
        distribute(component, asked)
    maker = "client 0" if key_holder == "clients" else "the key server"
    assert str(caught.value).startswith(f"std.bfv: {maker} makes the keys, but ")
    assert said in str(caught.value)
    assert str(caught.value).endswith("; start the run again")
    assert not asked.told
    assert not asked.published
    assert not asked.server.memory(component)


def test_what_is_right_is_stored_published_and_told() -> None:
    component, asked = make(Bfv), Asked(MADE)
    distribute(component, asked)
    assert asked.server.memory(component) == {"context": b"parameters"}
    assert asked.published == {"terms": TERMS}
    assert asked.told == [(b"public key",)]


def test_the_keys_that_schemes_make_are_right() -> None:
    for component in (make(Bfv), make(Ckks)):
        asked = Asked(component.make_keys(KeyServer(), 3))
        distribute(component, asked)
        ((keys,),) = asked.told
        component.adopt_keys(client_that_heard(component, asked.published["terms"]), keys)


@pytest.mark.parametrize(
    ("keys", "terms", "said"),
    [("text", TERMS, "keys is 'text', which must be bytes"), (b"", [1], "terms are a list, which must be"),
     (b"", None, "terms are None, which must be"),
     (b"", {"max_clients": 3, "key": 1}, "terms do not fit the scheme: they lack ")],
    ids=["keys", "terms", "nothing published", "names"],
)  # fmt: skip
def test_a_client_takes_no_keys_that_are_none(keys: Any, terms: Any, said: str) -> None:
    component = make(Bfv)
    client = client_that_heard(component, terms)
    with pytest.raises(MessageError, match=said):
        component.adopt_keys(client, keys)
    assert not client.memory(component)


def test_keys_of_another_run_are_other_facts() -> None:
    """A client whose stored state is of another run uploads under a key that nobody here has; the core finds it by the
    fingerprint of the facts, for each key has its number among them."""
    component = make(Bfv)
    one, other = (facts_of(component, 3, 2, terms=component.make_keys(KeyServer(), 3)["terms"]) for _ in range(2))
    assert one.fingerprint != other.fingerprint
