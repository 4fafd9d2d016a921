"""What names of the ledger and of recipes are called where people read them, and a glossary of the words that stay."""

from __future__ import annotations

import re
from typing import Any

from fedplug_ledger.verdict_words import BRIEF

_PEOPLE = {
    "client_and_server": "a client with the server", "released_model": "released model",
    "zero_out": "add-or-remove", "replace_one": "replace-one", "epsilon_exact": "exact",
    "epsilon_without_sampling": "without credit for sampling", "epsilon_rdp": "by Rényi DP",
    "epsilon_pld": "by loss distributions", "std": "standard deviation",
    "HE": "HE",
}  # fmt: skip

NOUNS = {
    "train": "training", "score": "scoring", "negotiate": "negotiation", "protect": "protection",
    "aggregate": "aggregation", "open": "opening", "evaluate": "evaluation",
}  # fmt: skip
"""The phases of a round, as heads of columns name them."""

GLOSSARY = {
    "zone": "A part of the model's numbers that is protected in one way. Encrypted (HE, homomorphic encryption): the "
    "server adds up ciphertexts that it cannot read. Noised: random noise is added. Retained: it never leaves the "
    "client. Clear: it is sent as it is.",
    "epsilon, ε": "How much more likely one client's data can make anything that is seen: at most e^ε times. 0 gives "
    "nothing away, 1 is strict, above 20 it says nothing useful.",
    "delta, δ": "The probability with which the promise of epsilon may fail. It should be far below 1 / clients.",
    "DP": "Differential privacy: an epsilon and a delta hold, whatever else anybody knows.",
    "without noise": "Sent, or seen as a sum, as it is. For such values there is no epsilon.",
    "unit": "Whose data epsilon is about: a client with all its data, unless another level is named, such as a record.",
    "add-or-remove, replace-one": "The two runs that nobody may tell apart. Add-or-remove: one with a client's "
    "contribution, one with zeros in its place (zero-out). Replace-one: one with it, one with any other in its place. "
    "This costs more.",
    "local, central, distributed": "Who adds the noise. Local: each client before it sends. Central: the server, "
    "which the clients then trust. Distributed: all clients together, so that only their sum has enough.",
    "server, key server": "The server receives the uploads. The key server, where there is one, holds "
    "the key and opens sums. A client sees the sums, and everybody may see the released model.",
    "not covered by epsilon": "It depends on clients' data and somebody sees it. Epsilon does not count it.",
}
"""Each word that the verdict and the ledger use, in plain English."""

UNBROKEN = re.compile(
    r"(\S*\d\S*\s(?:ms|s|min|h|B|kB|MB|GB|TB|dB|nats)(?!\w)[.,;:)]*|\S*\d\S*[-=./]\S+|\S*=\S*\d\S*)"
)
"""What no line may end in: a browser breaks `1e-05` and `4 s`."""


def in_words(name: Any) -> str:
    """A name as people read it: `client_and_server` is `a client with the server`, `key_server` is `key server`."""
    return _PEOPLE.get(str(name), str(name).replace("_", " "))


def capital(title: str) -> str:
    """A title with a capital letter; one such as `mean IoU` or `R2` keeps the others."""
    return title[:1].upper() + title[1:]


def of_sites(words: str) -> str:
    """The same of a run with data at sites, where each judges on its own examples: there is no common test set."""
    for common, own in (("common test set", "test data of the sites"), (", common set", ", sites' data")):
        words = words.replace(f"the {common}", own).replace(f"The {common}", capital(own)).replace(common, own)
    return words


def is_name(value: str) -> bool:
    """Whether a text is such a name, and no sentence or path."""
    return value in _PEOPLE or value in BRIEF
