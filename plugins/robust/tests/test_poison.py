"""Clients that lie in rounds: exactly as their lies say, on all engines, and seen by no message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from engine_toys import Checked
from fedplug import Dataset, Examples, Noise
from fedplug.api import codec
from fedplug.api.errors import RecipeError, SetupError
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from fedplug_robust import poisoned
from fedplug_robust.lies import LabelFlip, Lie
from fedplug_runs.checkpoint import read_file
from party_toys import Beside
from toy_components import paraaegis, pushed, recipe_of, toy_catalog
from toy_protocol import initial_vector, read_clients, run_protocol

PUSH = {"use": "toy.push"}
MEAN = {"use": "std.mean", "weighting": "uniform"}
DATA = {"use": "std.digits", "clients": 10, "partition": {"use": "std.iid"}}


def poisoned_recipe(lie: str, clients: Any = (1, 3), **options: Any) -> dict[str, Any]:
    """Known updates, so that a lie can be worked out by hand."""
    poison = {"clients": [*clients] if isinstance(clients, tuple) else clients, "use": f"robust.{lie}", **options}
    return recipe_of(train=PUSH, aggregate=MEAN, rounds=1, poison=poison)


def moved(plain: dict[str, Any], engine: Any = "local") -> Any:
    """How far one round moves the model."""
    return run_protocol(plain, engine).vector - initial_vector(plain)


def honest(plain: dict[str, Any]) -> Any:
    """What each of the four clients would send, (4, P)."""
    return np.array([pushed(initial_vector(plain), plain["seed"], client, 0) for client in range(4)])


LIES: dict[str, Any] = {
    "sign_flip": ({"factor": 3.0}, lambda sent: -3 * sent[[1, 3]]),
    "ipm": ({"factor": 2.0}, lambda sent: -2 * sent[[1, 3]].mean(0)),
    "ipm of all": ({"factor": 2.0, "sees": "all"}, lambda sent: -2 * sent.mean(0)),
    "alie": ({"z": 1.5}, lambda sent: poisoned.alie(sent[[1, 3]].astype(float), 1.5)),
    "min_max": ({"sees": "all"}, lambda sent: poisoned.min_max(sent.astype(float), "std")),
    "min_sum": ({"sees": "all", "direction": "unit"}, lambda sent: poisoned.min_sum(sent.astype(float), "unit")),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_what_it_says_and_others_are_honest(name: str) -> None:
    options, lie = LIES[name]
    plain = poisoned_recipe(name.partition(" ")[0], **options)
    sent = honest(plain)
    expected = sent.copy()
    expected[[1, 3]] = lie(sent)
    assert moved(plain) == pytest.approx(expected.mean(0), abs=2e-6)


def test_engines_agree_also_where_liars_of_two_processes_share_examples() -> None:
    plain = poisoned_recipe("alie", z=1.5) | {"train": recipe_of()["train"], "rounds": 2}
    one, two = run_protocol(plain), run_protocol(plain, "processes", workers=2)
    assert np.array_equal(one.vector, two.vector)
    assert not np.array_equal(one.vector, run_protocol({**plain, "poison": None}).vector)


@pytest.mark.parametrize("sees", ["liars", "all"])
def test_a_party_of_a_liar_lies_as_one_in_the_servers_process(sees: str, tmp_path: Path) -> None:
    plain = poisoned_recipe("alie", z=1.5, sees=sees) | {"train": recipe_of()["train"], "rounds": 2}
    checked = Checked(plain, Beside(tmp_path / "parties", plain).engine, tmp_path)
    checked.set_up()
    checked.protocol.run()
    found, expected = checked.vectors(tmp_path), run_protocol(plain).vector
    checked.engine.close()
    assert len(found) == 4
    assert all(np.array_equal(each, expected) for each in found.values())


def test_messages_tell_nobody() -> None:
    """The same calls to all, and from those who are honest the same bytes as ever."""
    told = []
    for poison in ({"clients": [1], "use": "robust.sign_flip"}, None):
        outcome = run_protocol(recipe_of(train=PUSH, aggregate=MEAN, rounds=1, poison=poison))
        sent = outcome.wire.messages
        told.append([(each.sender, each.receiver, each.size) for each in sent if each.phase != "finish"])
    assert told[0] == told[1]


def test_before_and_after_their_rounds_they_do_as_asked() -> None:
    plain = poisoned_recipe("sign_flip", from_round=2, to_round=2) | {"rounds": 3}
    sent = [
        np.array([pushed(initial_vector(plain), plain["seed"], client, round) for client in range(4)])
        for round in range(3)
    ]
    sent[1][[1, 3]] *= -1
    assert moved(plain) == pytest.approx(sum(each.mean(0) for each in sent), abs=5e-6)


def figures(plain: dict[str, Any], folder: Path) -> dict[str, float]:
    """Of the last round."""
    row = fedplug.run(plain, output=folder).metrics[-1]
    return {**row.figures, "accuracy": row.accuracy or 0.0}


def test_a_backdoor_takes_a_mean_over_and_krum_keeps_it_out(tmp_path: Path) -> None:
    poison = {"clients": "20%", "use": "robust.backdoor", "target": 3}
    plain = recipe_of(data=DATA, rounds=4, min_clients=10, aggregate=MEAN, poison=poison)
    open_to_it = figures(plain, tmp_path)
    assert open_to_it["backdoor success"] > 0.9
    assert open_to_it["lies kept out"] == 0
    kept = figures(plain | {"aggregate": {"use": "robust.krum", "f": 2}}, tmp_path)
    assert kept["backdoor success"] < 0.2
    assert kept["lies kept out"] == 1
    assert kept["accuracy"] > 0.6


def test_flipped_labels_teach_what_is_wrong(tmp_path: Path) -> None:
    plain = recipe_of(data=DATA, rounds=4, aggregate=MEAN)
    flips = {"clients": 6, "use": "robust.label_flip"}
    assert figures(plain | {"poison": flips}, tmp_path)["accuracy"] < 0.5 < figures(plain, tmp_path)["accuracy"]


def test_a_weight_that_is_claimed_counts(tmp_path: Path) -> None:
    """9 of 9 + 9 parts for two of four clients with equal data, so 0.9 of the result is theirs, not 0.5."""
    poison = {"clients": [1, 3], "use": "robust.weight", "factor": 9}
    plain = recipe_of(data=DATA | {"clients": 4}, rounds=1, poison=poison)
    assert figures(plain, tmp_path)["lies kept out"] == pytest.approx(1 - 0.9 / 0.5, abs=0.01)


def test_what_lies_count_is_unknown_where_a_function_adds_up(tmp_path: Path) -> None:
    aggregate = {"use": "fedre.pda_pam", "samples": 2}
    poison = {"clients": [1], "use": "robust.sign_flip"}
    data = DATA | {"clients": 4, "public": 20}
    found = figures(recipe_of(data=data, rounds=1, aggregate=aggregate, poison=poison), tmp_path)
    assert "lies kept out" not in found


def test_noise_that_liars_leave_out_voids_every_promise() -> None:
    noise = {"use": "std.gaussian", "noise_multiplier": 1000}
    recipe = recipe_of("noised", [{"use": "std.clip", "norm": 0.5}, noise], aggregate=MEAN, rounds=1)
    honest_run = run_protocol(recipe)
    assert honest_run.protocol.ledger.verdict().toward("server").state == "guaranteed"
    bare = run_protocol(recipe | {"poison": {"clients": [0, 1, 2], "use": "robust.leave_out"}})
    assert {bare.protocol.ledger.verdict().toward(party).state for party in ("server", "client", "released_model")} == {
        "none"
    }
    ratio = np.std(bare.vector - initial_vector(recipe)) / np.std(honest_run.vector - initial_vector(recipe))
    assert ratio == pytest.approx(0.5, abs=0.05)  # one of four equal shares of noise is left


def test_a_clip_that_is_left_out_lets_a_lie_of_any_length_through() -> None:
    recipe = recipe_of("noised", [{"use": "std.clip", "norm": 1e-3}], aggregate=MEAN, rounds=1)
    lies = [{"use": "robust.gaussian", "std": 10.0}, {"use": "robust.leave_out", "what": ["clip"]}]
    for used, far in ((lies[:1], False), (lies, True)):
        moved_ = moved(recipe | {"poison": {"clients": [2], "lies": used}})
        assert (np.linalg.norm(moved_) > 10) == far


def test_scores_that_lie_steer_a_vote_away_from_what_matters(tmp_path: Path) -> None:
    """Three of four clients say that the least matters most: what is encrypted is not what all would encrypt."""
    labels = []
    for number, poison in enumerate((None, {"clients": 3, "use": "robust.scores"})):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in run_protocol(paraaegis(ratio=0.3, poison=poison)).files.items():
            (folder / name).write_bytes(content)
        labels.append(codec.decode(read_file(folder / read_clients(folder)[0]["plan"]["labels"])))
    assert (labels[0] != labels[1]).mean() > 0.3


@pytest.mark.parametrize(
    ("poison", "says"),
    [
        ({"clients": "lots", "use": "robust.sign_flip"}, "'lots' is no share of the clients; write one such as 20%"),
        ({"clients": 0, "use": "robust.sign_flip"}, "nobody lies"),
        ({"clients": 4, "use": "robust.sign_flip"}, "4 of 4 clients lie, and one at least must be honest"),
        ({"clients": "99%", "use": "robust.sign_flip"}, "4 of 4 clients lie, and one at least must be honest"),
        ({"clients": [4], "use": "robust.sign_flip"}, "there is no client 4"),
        ({"clients": 1, "use": "robust.leave_out"}, "robust.leave_out leaves out noise, and protect has none"),
        ({"clients": 1}, "poison needs 'lies', a list such as"),
        ({"clients": 1, "use": "robust.scores"}, "it lies about scores, and the recipe has no score_parameters"),
        ({"clients": 1, "use": "robust.alie", "zz": 1}, "zz"),
        ({"clients": 1, "use": "robust.alie", "from_round": 3}, "rounds 3 to 2 are none of rounds=2"),
        ({"clients": 1, "use": "robust.weight", "factor": 2}, "gives all the same weight"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(poison: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(recipe_of(aggregate=MEAN, poison=poison))


@pytest.mark.parametrize(
    ("zone", "chain", "says"),
    [
        ("encrypted", ["std.bfv"], "since nobody reads what std.bfv closes; robust.leave_out shows what follows"),
        ("noised", [], "can bound it: aggregate: {use: robust.norm_bound}"),
    ],
)
def test_a_note_says_on_whose_word_a_lie_is_bounded(zone: str, chain: list[str], says: str) -> None:
    bounded = [{"use": "std.clip", "norm": 1.0}, *({"use": use} for use in chain)]
    lying = recipe_of(zone, bounded, aggregate=MEAN, poison={"clients": 1, "use": "robust.sign_flip"})
    (note,) = Recipe.from_plain(lying).notes
    assert note.startswith(f"poison: std.clip bounds a lie in zone {zone} on the word of the client")
    assert note.endswith(says)
    assert not Recipe.from_plain(lying | {"poison": None}).notes


def test_what_is_wrong_elsewhere_is_said_where_somebody_lies() -> None:
    clipped = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}], poison={"clients": 1, "use": "robust.sign_flip"})
    with pytest.raises(RecipeError, match=r"unknown option .zz. of std\.digits"):
        Recipe.from_plain(clipped | {"data": DATA | {"zz": 1}})


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"use": "robust.label_flip", "source": 1, "target": 10}, "target=10 is no class of the data, which has 0 to"),
        ({"use": "robust.label_flip", "source": 12}, "source=12 is no class"),
        ({"use": "robust.backdoor", "target": 10}, "target=10 is no class"),
    ],
)
def test_a_class_that_the_data_lacks_is_refused(lie: dict[str, Any], says: str) -> None:
    """Else liars fail in training, drop out, and whatever the server does seems to keep them out."""
    with pytest.raises(SetupError, match=rf"recipe.poison.lies.0: {lie['use']}: {says}"):
        run_protocol(recipe_of(aggregate=MEAN, poison={"clients": 1, **lie}))


def test_lies_about_classes_take_data_with_one_class_an_example() -> None:
    flip = {"clients": 1, "use": "robust.label_flip"}
    Recipe.from_plain(recipe_of(task={"use": "std.classification"}, poison=flip))
    with pytest.raises(RecipeError, match=r"task: std\.regression may have none"):
        Recipe.from_plain(recipe_of(task={"use": "std.regression"}, poison=flip))
    inputs, labels = np.zeros((2, 1, 8, 8), np.uint8), np.zeros(2, np.int64)
    pixels = Examples(inputs, labels, targets=np.zeros((2, 8, 8), np.uint8))
    data = Dataset(train=pixels, test=pixels, classes=("0", "1"), mean=(), std=())
    assert "an answer is something else" in LabelFlip({}).misfit(data)


def test_a_mark_on_a_table_is_the_same_in_training_and_in_tests(tmp_path: Path) -> None:
    """Where it is that of whatever examples are at hand, a backdoor seems to fail."""
    data = {"use": "std.breast_cancer", "clients": 5, "partition": {"use": "std.iid"}}
    poison = {"clients": 1, "use": "robust.backdoor"}
    plain = recipe_of(data=data, rounds=2, aggregate=MEAN, poison=poison, train=recipe_of()["train"] | {"lr": 0.1})
    assert figures(plain, tmp_path)["backdoor success"] > 0.9


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lie", [{"use": "robust.sign_flip", "factor": 1e300}, {"use": "robust.gaussian", "std": 1e39}])
def test_a_lie_of_any_size_can_be_sent(lie: dict[str, Any]) -> None:
    """It is the server that refuses it, or the model that suffers."""
    run_protocol(recipe_of(train=PUSH, aggregate=MEAN, rounds=1, poison={"clients": 1, **lie}))


def test_as_many_examples_are_claimed_as_a_server_takes_for_true(tmp_path: Path) -> None:
    poison = {"clients": [1], "use": "robust.weight", "factor": 1e300}
    found = figures(recipe_of(data=DATA | {"clients": 4}, rounds=1, poison=poison), tmp_path)
    assert found["lies kept out"] == pytest.approx(1 - 4, abs=1e-3)


class Silent(Lie):
    """A lie of somebody else."""

    leaves_out = (Noise,)


def test_what_a_lie_does_to_promises_follows_from_what_it_says_and_it_does_no_more() -> None:
    """A class of any distribution, with options of any name."""
    chain = [{"use": "std.clip", "norm": 0.5}, {"use": "std.gaussian", "noise_multiplier": 10}]
    recipe = recipe_of("noised", chain, aggregate=MEAN, rounds=1)
    looks = {"clients": 1, "use": "robust.ipm", "sees": "all"}
    verdict = run_protocol(recipe | {"poison": looks}).protocol.ledger.verdict()
    assert "sees updates of others, which no noise covers" in verdict.toward("server").reason
    among = run_protocol(recipe | {"poison": looks | {"sees": "liars"}}).protocol.ledger.verdict()
    assert among.toward("server").state == "guaranteed"
    catalog = toy_catalog()
    catalog.right = {}
    catalog.groups["poison"]["toy.silent"] = Entry("toy.silent", "poison", f"{__name__}:Silent", "toys", "0", Silent)
    silent = Recipe.from_plain(recipe | {"poison": {"clients": 1, "use": "toy.silent"}}, catalog)
    (said,) = silent.sections["poison"].reveals(silent)
    assert (said.what, said.voids) == ("noise left out", True)


def test_one_lie_is_written_flat_or_as_a_list_and_reads_back() -> None:
    flat = Recipe.from_plain(recipe_of(poison={"clients": "20%", "use": "robust.alie", "z": 2}))
    listed = Recipe.from_plain(recipe_of(poison={"clients": "20%", "lies": [{"use": "robust.alie", "z": 2}]}))
    assert flat.digest == listed.digest == Recipe.from_plain(flat.to_plain()).digest
    assert "20% of the clients lie: robust.alie" in flat.sections["poison"].describe()


def test_every_lie_is_a_lie() -> None:
    for entry in Catalog.discover().groups["poison"].values():
        assert issubclass(entry.load(), Lie), entry
