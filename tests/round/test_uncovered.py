"""Replies to the server must be stated, or nothing is promised: bits, set-ups, the key server, ballots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import (
    Ballots,
    Block,
    Client,
    Clip,
    Cohort,
    Facts,
    FedplugError,
    Noise,
    Operations,
    Reveals,
    Settings,
    at_client,
    at_key_server,
)
from fedplug.api.errors import ProtectionError, TooFewClients
from fedplug.api.events import Event, MessageUncovered, RoundStarted
from fedplug.mechanisms.closing import Closing
from fedplug.recipe.catalog import Entry
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.wording import PLAIN_VALUES
from fedplug_runs.execution import resume, start
from fedplug_runs.folder import read_ledger
from fedplug_std.single_zone import SingleZone
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

PUSH = {"use": "toy.push"}
CLIP = {"use": "std.clip", "norm": 1.0}
NOISE = {"use": "std.gaussian", "noise_multiplier": 5.0}
ONE_ZONE = {"use": "toy.odd", "zone": "noised"}


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a negotiation known to recipes as `toy.odd`. Returns a recipe with it."""

    def known(found: type, *seal: Any, **changes: Any) -> dict[str, Any]:
        there = toy_components.TOYS["negotiate_mask"]
        monkeypatch.setitem(toy_components.TOYS, "negotiate_mask", {**there, "toy.odd": found})
        zone = "encrypted" if seal else "noised"
        odd = {"use": "toy.odd", "zone": zone}
        return recipe_of(zone, [CLIP, NOISE, *seal], train=PUSH, negotiate_mask=odd, rounds=1) | changes

    return known


def verdict(plain: dict[str, Any]) -> Verdict:
    return run_protocol(plain).protocol.ledger.verdict()


def of(folder: Path) -> Verdict:
    """That of a run."""
    return read_ledger(folder).verdict


def promised(found: Verdict) -> bool:
    """Whether each existing party has a guarantee; false only where none has."""
    assert found.status in ("protected_from_all", "no_protection")
    return found.status == "protected_from_all"


def because(found: Verdict) -> str:
    """Why no party has a guarantee: the same reason for all existing parties."""
    assert not promised(found)
    (why,) = {line.detail for line in found.lines if line.state != "absent"}
    return why


# -- a bit is an answer ------------------------------------------------------------------------------------------------


class Bits(SingleZone):
    """Ask for the sign of a value, as None or True."""

    class Options(SingleZone.Options):
        """Whether all answers are the same."""

        alike: bool = False

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        for number in range(8):
            cohort.ask(self.positive, number)

    @at_client
    def positive(self, client: Client, number: int) -> Any:
        assert client.update is not None
        return True if self.options.alike or client.update[number] > 0 else None


def test_none_or_true_is_a_bit_where_it_is_not_always_the_same(odd: Any) -> None:
    plain = odd(Bits)
    assert because(verdict(plain)).startswith("toy.odd asks clients for positive, and says nowhere")
    plain["negotiate_mask"]["alike"] = True
    assert promised(verdict(plain))


class Free(SingleZone):
    """Ask for something that it says costs nothing."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.length)

    @at_client
    def length(self, client: Client) -> Any:
        assert client.update is not None
        return float(np.linalg.norm(client.update))

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("a nonce", ("server",), covered_by="nothing to pay", asked=("length",))]


def test_that_a_reply_costs_nothing_is_on_the_word_of_who_says_so(odd: Any) -> None:
    found = verdict(odd(Free))
    assert promised(found)
    assert all("on the word of toy.odd" in line.rests_on for line in found.lines if line.state == "guaranteed")


# -- the set-up --------------------------------------------------------------------------------------------------------


class Early(SingleZone):
    """Ask for counts of classes before round 1."""

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        cohort.ask(self.counts)

    @at_client
    def counts(self, client: Client) -> Any:
        return np.bincount(client.data.train.labels, minlength=10)


class Stop(fedplug.Extension):
    """Stop before round 1."""

    hears = (RoundStarted,)

    def observe(self, event: Event) -> None:
        raise FedplugError("not today")


def stopped(plain: dict[str, Any], extension: type, folder: Path) -> tuple[Path, Any]:
    """Runs a recipe until an extension stops it. Returns the run folder and the catalog."""
    catalog = toy_catalog()
    catalog.groups["extension"]["toy.stop"] = Entry("toy.stop", "extension", "toys:Stop", "toys", "0", extension)
    settings = Settings(device="cpu", output=folder, quiet=True, listeners=("toy.stop",), muted=("lab.report",))
    with pytest.raises(FedplugError):
        start(Recipe.from_plain(plain, catalog), settings, catalog)
    (found,) = folder.iterdir()
    return found, catalog


def test_a_run_that_goes_on_knows_what_its_set_up_asked_for(odd: Any, tmp_path: Path) -> None:
    folder, catalog = stopped(odd(Early), Stop, tmp_path)
    assert resume(folder, Settings(device="cpu", quiet=True, muted=("lab.report",)), catalog=catalog) == 0
    assert because(of(folder)).startswith("toy.odd asks clients for counts, and says nowhere")


# -- the key server ----------------------------------------------------------------------------------------------------


class Peeking(SingleZone):
    """Have the clients encrypt their updates, and the key server open the sum for the server."""

    class Options(SingleZone.Options):
        """Whether it states what the sum reveals."""

        says: bool = False

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        sealed = cohort.ask(self.sealed)
        total = Closing.of("encrypted", facts).add(sealed, cohort.server.weights, cohort.server)
        cohort.server.memory(self)["seen"] = cohort.key_server.ask(self.opened, total, sorted(sealed))

    @at_client
    def sealed(self, client: Client) -> Any:
        assert client.update is not None
        block = Block("encrypted", len(client.update), client.update, divisor=client.weight)
        return Closing.of("encrypted", client.facts).close(block, client)

    @at_key_server
    def opened(self, key_server: Any, total: Block, senders: list[int]) -> Any:
        return Closing.of("encrypted", key_server.facts).open(total, senders, key_server).mean()

    def reveals(self, facts: Facts) -> list[Reveals]:
        sealed = Reveals("ciphertexts", ("server",), covered_by="nothing to pay", asked=("sealed",))
        bare = Reveals("the mean update", ("server",), asked=("opened",), voids=True, note="opened")
        return [sealed, bare] if self.options.says else [sealed]


def test_what_the_key_server_tells_the_server_is_an_answer_too(odd: Any) -> None:
    plain = odd(Peeking, {"use": "std.bfv"})
    assert because(verdict(plain)).startswith("toy.odd asks the key server for opened, and says nowhere")
    plain["negotiate_mask"]["says"] = True
    assert verdict(plain).toward("server").reason == "sees the mean update, which no noise covers"


# -- ballots -----------------------------------------------------------------------------------------------------------


class Counts(SingleZone, Ballots):
    """Ask for counts of classes with noise."""

    class Options(SingleZone.Options):
        """For which rounds it states this."""

        every: bool = True

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.histogram)

    @at_client
    def histogram(self, client: Client) -> Any:
        counts = np.bincount(client.data.train.labels, minlength=10)
        noised = client.facts.round == 0 or self.options.every
        return client.release(self, counts) if noised else counts

    def ballots(self, facts: Facts) -> Operations:
        return (Clip(1.0), Noise.gaussian(5.0)) if facts.round == 0 or self.options.every else ()

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("histograms", ("server",), covered_by="epsilon", asked=("histogram",))]


@pytest.mark.parametrize(
    ("options", "rounds", "holds"),
    [({}, 2, True), ({"every": False}, 1, True), ({"every": False}, 2, False)],
)
def test_each_ballot_that_is_cast_is_paid_for(odd: Any, options: dict[str, Any], rounds: int, holds: bool) -> None:
    plain = odd(Counts, rounds=rounds)
    plain["negotiate_mask"] |= options
    found = verdict(plain)
    assert promised(found) == holds
    if not holds:
        assert because(found).startswith("toy.odd has clients answer histogram more often in a round than")


class Twice(Counts):
    """Ask for them again."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.histogram)
        super().negotiate_mask(cohort, facts)


class TwoNames(Counts):
    """Ask for the same under another name: the mean of both has half the noise that is charged."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.second)
        super().negotiate_mask(cohort, facts)

    @at_client
    def second(self, client: Client) -> Any:
        return self.histogram(client)

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("histograms", ("server",), covered_by="epsilon", asked=("histogram", "second"))]


class SumTwice(Counts):
    """Have the server add noise to one sum twice."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        answers = cohort.ask(self.histogram)
        few, rest = dict([*answers.items()][:1]), dict([*answers.items()][1:])
        cohort.server.release(self, few)  # of other clients it is another release, which they pay for
        cohort.server.release(self, rest)
        if self.options.every:
            cohort.server.release(self, few)
        SingleZone.negotiate_mask(self, cohort, facts)

    @at_client
    def histogram(self, client: Client) -> Any:
        return np.bincount(client.data.train.labels, minlength=10).astype(np.float32)

    def ballots(self, facts: Facts) -> Operations:
        return (Clip(1.0), Noise.gaussian(5.0, trust="central"))


@pytest.mark.parametrize("kind", [Twice, TwoNames])
def test_a_second_ballot_of_a_round_is_not_released_whatever_it_is_called(odd: Any, kind: type) -> None:
    with pytest.raises(TooFewClients, match=r"toy\.odd: a second release of ballots in round 1, and a round is"):
        verdict(odd(kind, rounds=1))


def test_the_server_adds_noise_to_a_clients_ballot_once_a_round(odd: Any) -> None:
    plain = odd(SumTwice, rounds=2)
    with pytest.raises(ProtectionError, match=r"toy\.odd: a second release of ballots in round 1"):
        verdict(plain)
    plain["negotiate_mask"]["every"] = False
    assert verdict(plain).toward("released_model").state == "guaranteed"


# -- an extension that stops a run because of an event -----------------------------------------------------------------


class Late(Early):
    """Ask for counts of classes in round 2."""

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        """Nothing."""

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        if facts.round == 1:
            cohort.ask(self.counts)


class Guard(Stop):
    """Stop at an answer that no component states."""

    hears = (MessageUncovered,)


def test_the_ledger_hears_what_an_extension_stops_a_run_for(odd: Any, tmp_path: Path) -> None:
    folder, _ = stopped(odd(Late, rounds=3), Guard, tmp_path)
    assert because(of(folder)).startswith("toy.odd asks clients for counts, and says nowhere")


# -- public plans ------------------------------------------------------------------------------------------------------


class Reads(SingleZone):
    """Have public plans, and ask for what is not public."""

    class Options(SingleZone.Options):
        """Its question, and whether it states what the answers show."""

        what: str = "nothing"
        says: bool = False

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.found)

    @at_client
    def found(self, client: Client) -> Any:
        return READS[self.options.what](client)

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("it", ("server",), asked=("found",))] if self.options.says else []


READS: dict[str, Any] = {
    "nothing": lambda client: client.num_examples and None,
    "examples": lambda client: float(client.data.train.inputs.mean()),
    "scores": lambda client: float(client.scores_by(None)[0]),
    "update": lambda client: float(client.update[0]),
    "local model": lambda client: float(client.local[0]),
}


@pytest.mark.parametrize("what", READS)
def test_what_is_asked_where_plans_are_public_is_stated_as_anywhere(odd: Any, what: str) -> None:
    plain = odd(Reads, score_parameters=[{"use": "std.magnitude"}])
    plain["negotiate_mask"]["what"] = what
    if what == "nothing":
        assert promised(verdict(plain))
        return
    assert because(verdict(plain)).startswith("toy.odd asks clients for found, and says nowhere")
    plain["negotiate_mask"]["says"] = True
    line = verdict(plain).toward("server")
    # A client of a recorded run finds plain values of its update among its answers.
    assert "it" in line.not_covered or line.detail == PLAIN_VALUES
