"""FAS's scrambling in runs: the wire, sums equal to those of plain uploads, and the ledger."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Known, Words
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.api.norms import Bound
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.view import View
from fedplug_fas.scramble import Scramble
from fedplug_fas.words import FixedWords, Scrambler
from fedplug_kit.static import check_component
from toy_components import pushed, recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol, weights_of

KEY = bytes(range(32))
CLIP = {"use": "std.clip_l1", "norm": 0.5}
NOISE = {"use": "std.laplace", "noise_multiplier": 0.01, "source": "reproducible"}


def recipe(chain: list[Any] | None = None, scramble: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A toy in one zone that is noised and scrambled."""
    last = {"use": "fas.scramble", **(scramble or {})}
    plain = recipe_of("noised", [*([CLIP, NOISE] if chain is None else chain), last], train={"use": "toy.push"})
    return plain | {"postprocess": {"noised": ["fas.scramble"]}} | changes


def uploads_of(outcome: Any) -> dict[tuple[int, int], Block]:
    """The noised blocks on the wire, by round and client."""
    view = View("eavesdropper", tuple(outcome.wire.messages))
    return {(round, client_id): blocks["noised"] for round, client_id, blocks in view.uploads()}


def test_conforms() -> None:
    check_component("fas.scramble")


# -- on the wire -------------------------------------------------------------------------------------------------------


def test_bytes_differ_for_each_client_and_round() -> None:
    """Item 30: with equal values, no two messages share a block. In the literal style they are the same message."""
    same = {"use": "toy.push", "scale": 0.0}
    keyed = uploads_of(run_protocol(recipe([], train=same)))
    assert len(keyed) == 8
    chunks = [{m[i : i + 16] for i in range(0, len(m), 16)} for m in (block.ciphertexts[0] for block in keyed.values())]
    assert not any(chunks[i] & chunks[j] for i in range(8) for j in range(i))
    static = uploads_of(run_protocol(recipe([], {"style": "static"}, train=same)))
    assert len({block.ciphertexts[0] for block in static.values()}) == 1


def test_two_attempts_at_a_message_share_no_keystream() -> None:
    """A round that is repeated sends different noise under the same key, client and round.

    Under one keystream, the words of both attempts would differ in only as many bits as their values.
    """
    scrambler, values = Scrambler(KEY), np.linspace(-1, 1, 4000, dtype=np.float32)
    header = ("upload", 3, 5, "noised")
    sent = []
    for attempt in (values, values + np.float32(2**-20)):
        words, _ = FixedWords(32).encode(attempt.astype(np.float64))
        message = scrambler.scramble(words, *header)
        assert np.array_equal(scrambler.unscramble(message, len(words), *header), words)
        sent.append(message)
    assert sent[0][:16] != sent[1][:16]  # the random part
    bits = [np.unpackbits(np.frombuffer(message[16:-32], np.uint8)) for message in sent]
    assert abs(float((bits[0] != bits[1]).mean()) - 0.5) < 6 * 0.5 / math.sqrt(len(bits[0]))
    again = np.unpackbits(np.frombuffer(scrambler.scramble(words, *header)[16:-32], np.uint8))
    assert abs(float((bits[1] != again).mean()) - 0.5) < 6 * 0.5 / math.sqrt(len(again))  # and of equal words too


@pytest.mark.parametrize("framing", ["binary", "hex"])
def test_eavesdropper_finds_no_value_of_the_zone(framing: str) -> None:
    """Neither values, nor words, nor sums, in any framing. The same search does find them in plain uploads."""

    def hits(outcome: Any, truth: list[Any]) -> int:
        needles = [
            piece
            for values in truth
            for number in range(0, 650, 7)
            for piece in (values[number].tobytes(), np.float64(values[number]).tobytes(),
                          FixedWords(32).encode(np.float64(values[number : number + 1]))[0].tobytes())
            if values[number] != 0
        ]  # fmt: skip
        wire = b"\0".join(message.data for message in outcome.wire.messages)
        return sum(piece in wire or piece.hex().encode() in wire for piece in needles)

    bare = run_protocol(recipe_of("noised", [CLIP, NOISE], train={"use": "toy.push"}))
    truth = [block.plain() for block in uploads_of(bare).values()]
    assert hits(bare, truth) >= 650 // 7 * 8
    outcome = run_protocol(recipe(scramble={"framing": framing}))
    assert hits(outcome, [*truth, outcome.vector]) <= 2  # of 2500: four bytes may occur by chance (5e-3 in all)
    assert all(block.values is None for block in uploads_of(outcome).values())
    lengths = {len(block.ciphertexts[0]) for block in uploads_of(outcome).values()}
    assert lengths == {(8 * 650 + 48) * (2 if framing == "hex" else 1)}


def test_key_does_not_cross_the_wire_and_is_the_same_everywhere() -> None:
    outcome = run_protocol(recipe())
    key = outcome.protocol.server.state["fas.scramble"]["key"]
    wire = b"".join(message.data for message in outcome.wire.messages)
    assert len(key) == 32
    assert key not in wire
    assert sum(data.count(key) for name, data in outcome.files.items() if name.startswith("clients-")) == 4


# -- sums --------------------------------------------------------------------------------------------------------------


def test_model_is_that_of_plain_uploads_to_fixed_point() -> None:
    """It is the weighted mean of the clients' pushes, without noise."""
    for chain in ([CLIP, NOISE], []):
        plain = run_protocol(recipe_of("noised", chain, train={"use": "toy.push"}))
        scrambled = run_protocol(recipe(chain))
        assert np.abs(plain.vector - scrambled.vector).max() < 1e-7
    expected, weights = initial_vector(recipe([])), weights_of(scrambled)
    for round in range(2):
        updates = {client_id: pushed(expected, 7, client_id, round) for client_id in weights}
        expected = expected + sum(weights[c] * u for c, u in updates.items()) / sum(weights.values())
    assert np.abs(scrambled.vector - expected).max() < 1e-6


def test_both_engines_and_both_styles_agree() -> None:
    plain, static = recipe(), recipe(scramble={"style": "static", "framing": "hex"})
    local, processes = run_protocol(plain), run_protocol(plain, "processes")
    assert np.array_equal(local.vector, processes.vector)
    assert np.array_equal(local.vector, run_protocol(static).vector)
    assert local.rows[-1].log == processes.rows[-1].log
    assert local.rows[-1].log["fas.scramble.saturated"] == 0


def test_works_where_masks_differ_between_clients() -> None:
    """Each position is divided by the clients that sent it, in the clear or scrambled."""
    masks = {"use": "toy.masks", "other_zone": "noised"}
    zones: dict[str, list[str]] = {"encrypted": [], "noised": []}
    plain = recipe_of(negotiate_mask=masks, train={"use": "toy.push"}, protect=zones)
    scrambled = plain | {
        "protect": {"encrypted": [], "noised": ["fas.scramble"]}, "postprocess": {"noised": ["fas.scramble"]}
    }  # fmt: skip
    outcome = run_protocol(scrambled)
    assert np.abs(run_protocol(plain).vector - outcome.vector).max() < 1e-7
    assert all(block.positions is not None and block.values is None for block in uploads_of(outcome).values())


def test_one_bad_upload_costs_only_its_client_the_round() -> None:
    """One upload was altered, one was cut short, and one is missing."""

    def damage(how: Callable[[Block], Block]) -> Any:
        def prepare(protocol: Any, engine: Any) -> None:
            original = protocol.rules.read

            def read(upload: Any, *facts: Any) -> Any:
                calls.append(1)
                if len(calls) == 2:
                    upload["blocks"]["noised"] = how(upload["blocks"]["noised"])
                return original(upload, *facts)

            calls: list[int] = []
            protocol.rules.read = read

        return run_protocol(recipe(), prepare=prepare)

    def flip(block: Block) -> Block:
        message = block.ciphertexts[0]
        return block.replace(ciphertexts=(message[:-1] + bytes([message[-1] ^ 1]),))

    for how, reason in (
        (flip, "do not open"),
        (lambda block: block.replace(ciphertexts=(block.ciphertexts[0][:-8],)), "expected 5248"),
        (lambda block: block.replace(ciphertexts=()), "those of most others 650 scalars in 1 part"),
    ):
        outcome = damage(how)
        assert outcome.rows[0].clients.answered == 3
        ((client_id, why),) = outcome.rows[0].clients.dropped.items()
        assert int(client_id) == 1
        assert reason in why
        assert outcome.rows[1].clients.answered == 4
        assert len(outcome.vectors) == 4


def test_has_no_key_before_setup() -> None:
    component = bare_scramble()
    with pytest.raises(ProtectionError, match="has no key at this party"):
        component.seal(Words("noised", np.ones(1, np.uint64)), fedplug.Client(client_id=3), SimpleNamespace(round=0))


def bare_scramble(**options: Any) -> Any:
    component = Scramble(Scramble.Options(**options))
    component.name = "fas.scramble"
    return component


# -- ledger and recipes ------------------------------------------------------------------------------------------------


def test_ledger_counts_the_zone_as_sent_in_the_clear() -> None:
    """The server holds the key. So epsilon is that of the noise alone, and without noise there is none."""
    noise = {"use": "std.laplace", "epsilon": 4.0, "delta": 1e-5}
    ledgers = []
    for last in ([], ["fas.scramble"]):
        plain = recipe_of("noised", [CLIP, noise, *last], train={"use": "toy.push"})
        plain["postprocess"] = {"noised": last} if last else {}
        ledgers.append(run_protocol(plain).protocol.ledger.report())
    assert ledgers[0].views == ledgers[1].views
    seen = ledgers[1].views["server"]
    assert "sees the noised zone of every upload, after the noise" in seen.detail
    assert seen.epsilon == pytest.approx(4.0, rel=1e-6)
    bare = run_protocol(recipe([])).protocol.ledger.report()
    assert bare.views["server"].reason.startswith("reads the so-called noised zone of every upload")
    assert bare.zones["noised"].encrypted is False
    assert bare.uncovered_messages == []


def test_it_says_that_the_server_sees_through() -> None:
    for style in ("keyed", "static"):
        component = bare_scramble(style=style)
        shown, keys = component.reveals(None)
        assert "server" in shown.to
        assert "hides nothing" in shown.note
        assert ("without a key" in shown.note) == (style == "static")
        assert (keys.asked, keys.covered_by) == (("publish",), "nothing to pay")
        assert "sees through" in component.describe()


@pytest.mark.parametrize(("style", "hides"), [("keyed", "values"), ("static", "nothing proved")])
def test_it_states_its_words_and_who_reads_them(style: str, hides: Any) -> None:
    known = Known(zone="noised", layers=(4,), bounds=(Bound(1.0),))
    (stated,) = bare_scramble(style=style, fraction_bits=20).protect(known, None)
    assert (stated.hides, stated.range, stated.step) == (hides, 2.0**42, 2.0**-20)
    behind = known.after(stated)
    assert (behind.closed, behind.closer, behind.weighted, behind.grid) == (stated, known.link, False, 2.0**-20)
    assert behind.norm() == pytest.approx(1 + 2 * 2.0**-21)  # four values, half a step each


@pytest.mark.parametrize(
    ("chain", "post", "message"),
    [
        (["fas.scramble", CLIP], ["fas.scramble"], "std.clip_l1 must not come after encryption"),
        ([CLIP, "fas.scramble"], [], "nothing opens the sum"),
        (["fas.scramble", {"use": "fas.scramble", "name": "again"}], ["again", "fas.scramble"],
         "again must not come after encryption .* fas.scramble has closed it; keep one of the two"),
        ([{"use": "std.clip", "norm": 1.0}, "fas.scramble"],
         [{"use": "std.central_gaussian", "epsilon": 1, "delta": 1e-5, "norm": 1.0}, "fas.scramble"],
         "std.central_gaussian must not come after encryption .* put std.gaussian before the encryption"),
    ],
)  # fmt: skip
def test_recipes_that_cannot_work_are_refused(chain: list[Any], post: list[Any], message: str) -> None:
    plain = recipe_of("noised", chain) | {"postprocess": {"noised": post}}
    with pytest.raises(RecipeError, match=message):
        Recipe.from_plain(plain, toy_catalog())
