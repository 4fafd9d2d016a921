"""Classes read from ballots, vectors and masks: by hand, on two protocols, and where a key hides their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import Runs, attack_catalog, attacked
from fedplug import Facts, Layout
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.told import Told
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.negotiation import Negotiation, counts_of, last_rows
from fedplug_kit.static import check_component
from fedplug_runs.overlay import load_recipe
from toy_components import recipe_of

RECIPES = Path(__file__).parents[3] / "recipes"
LAYOUT = Layout.of([("fc1.weight", (2, 4)), ("fc2.weight", (3, 2)), ("fc2.bias", (3,))])
ROWS = [[8, 9, 14], [10, 11, 15], [12, 13, 16]]
FEW_CLASSES = ("data.partition={use: std.categories, categories: 4}", "data.clients=12", "model.hidden=[64]")


BALLOTS = {
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "baselines.maskcrypt", "ratio": 0.1},
    "protect": {"encrypted": [{"use": "std.bfv"}], "clear": []},
    "postprocess": {"encrypted": ["std.bfv"]},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def told(value: Any, client_id: int = 0, **more: Any) -> Told:
    return Told("some.negotiation", "answer", more.pop("round", 0), client_id, value, **more)


def found_in(heard: list[Told], target: int = 0, **options: Any) -> AttackReport:
    attacker = Attacker(facts=Facts(0, 1, LAYOUT, ("encrypted", "clear"), 3, 1, 7, ""))
    view = View("server", target=target, num_classes=3, heard=tuple(heard))
    return Negotiation(Negotiation.Options(**options)).attack(view, attacker)


def ballot(*named: int) -> Any:
    return np.packbits(np.isin(np.arange(LAYOUT.size), named))


def of_class(values: list[float]) -> Any:
    """A vector that holds one number over each class's row and bias, and noise elsewhere."""
    vector = np.random.default_rng(5).random(LAYOUT.size).astype(np.float32)
    vector[np.array(ROWS)] = np.array(values)[:, None]
    return vector


def test_conforms() -> None:
    check_component("attacks.negotiation")
    check_component("attacks.presence")


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_the_rows_of_a_class_are_its_weights_and_its_bias() -> None:
    assert last_rows(LAYOUT, 3).tolist() == ROWS
    bare = Layout.of([("fc.weight", (3, 2))])
    assert last_rows(bare, 3).tolist() == [[0, 1, 6], [2, 3, 6], [4, 5, 6]]


def test_a_ballot_says_how_much_of_each_class_it_names() -> None:
    report = found_in([told(ballot(0, 8, 9, 14, 12))])
    assert report.presence == pytest.approx([1, 0, 1 / 3])
    assert report.counts is not None
    assert report.counts.tolist() == [1, 0, 1]  # how many examples there are was not told


def test_a_vector_gives_counts_in_proportion_where_the_client_told_its_size() -> None:
    hello = told({"num_examples": 80}, round=-1)
    report = found_in([hello, told(of_class([0.3, 0.01, 0.1]))])
    assert report.presence == pytest.approx([0.3, 0.01, 0.1])
    assert report.counts is not None
    assert report.counts.tolist() == [60, 0, 20]


def test_rounds_are_averaged() -> None:
    report = found_in([told(of_class([1, 0, 4]), round=0), told(of_class([3, 2, 0]), round=1)])
    assert report.presence == pytest.approx([2, 1, 2])


def test_compared_with_clients_a_class_that_all_tell_most_of_does_not_stand_out() -> None:
    heard = [told(of_class([9, 1, 3])), told(of_class([9, 1, 1]), 1), told(of_class([9, 3, 1]), 2)]
    assert found_in(heard).presence == pytest.approx([9, 1, 3])
    assert found_in(heard, compare="clients").presence == pytest.approx([0, -1, 2])
    assert found_in(heard[:1], compare="clients").presence == pytest.approx([9, 1, 3])


def test_masks_are_the_encrypted_positions_or_what_an_open_zone_leaves_out() -> None:
    where = np.array([8, 9, 14, 10], np.uint32)
    expected = [1, 1 / 3, 0]
    assert found_in([told(where, zone="encrypted")]).presence == pytest.approx(expected)
    rest = np.setdiff1d(np.arange(LAYOUT.size), where).astype(np.uint32)
    assert found_in([told(rest, zone="noised")]).presence == pytest.approx(expected)


def test_vectors_come_before_ballots_and_ballots_before_masks() -> None:
    heard = [told(np.array([8], np.uint32), zone="encrypted"), told(ballot(10)), told(of_class([0.1, 0.2, 0.9]))]
    for read, most in (("any", 2), ("vectors", 2), ("ballots", 1), ("masks", 0)):
        presence = found_in(heard, read=read).presence
        assert presence is not None
        assert int(np.argmax(presence)) == most


def test_large_scores_may_stand_for_absence() -> None:
    report = found_in([told(of_class([0.5, 0.1, 0.0]))], large="absent")
    assert report.presence == pytest.approx([-0.5, -0.1, 0])
    assert report.counts is not None
    assert report.counts.tolist() == [0, 1, 1]


@pytest.mark.parametrize("heard", [[], [told({"num_examples": 3})], [told(ballot(8), 1)], [told(ballot(8))]])
def test_without_anything_about_scalars_it_is_not_applicable(heard: list[Told]) -> None:
    report = found_in(heard, read="vectors" if heard and heard[0].client_id == 0 else "any")
    assert report.status == "not_applicable"
    assert "the client sent no" in report.reason


def test_counts_without_any_score_are_those_of_equal_classes() -> None:
    assert counts_of(np.zeros(4), 8).tolist() == [2, 2, 2, 2]
    assert counts_of(np.array([-1.0, 0.0, 2.0, 2.0]), 9).tolist() == [0, 0, 5, 4]


# -- on protocols, every client's data of digits -----------------------------------------------------------------------


def areas(runs: Runs, recipe: Path, *sets: str, **scope: Any) -> dict[str, list[float]]:
    """By adversary, the presence AUC of each client that lacks a class, in the first round."""
    plain = load_recipe(recipe, ["rounds=1", *sets], attack_catalog()).to_plain()
    plain.pop("attack", None)
    folder = runs.of(plain)
    found = attacked(folder, "attacks.negotiation", metrics=["attacks.presence"], **scope)
    by_adversary: dict[str, list[float]] = {}
    for result in (result for result in found.values() if "forms" in result):
        numbers = result["forms"]["adaptive"]["metrics"]
        if "presence_auc" in numbers:
            by_adversary.setdefault(result["adversary"], []).append(numbers["presence_auc"])
    return by_adversary


@pytest.mark.slow
def test_the_ballots_of_selective_shield_name_classes_at_epsilon_8_with_a_key_server(runs: Runs) -> None:
    found = areas(runs, RECIPES / "selectiveshield.yaml")["server"]
    assert len(found) == 9  # one of ten clients has every class
    assert np.mean(found) > 0.95
    assert min(found) > 0.85


def test_the_bare_vectors_of_sense_crypt_name_every_clients_classes(runs: Runs) -> None:
    found = areas(runs, RECIPES / "sensecrypt.yaml", targets=list(range(8)))["server"]
    assert found == [1.0] * 8


@pytest.mark.slow
def test_noise_on_the_vectors_hides_them(runs: Runs) -> None:
    quiet = "{use: sensecrypt.clusters, epsilon: 1, source: reproducible}"
    found = areas(runs, RECIPES / "sensecrypt.yaml", f"groups={quiet}")["server"]
    assert np.mean(found) == pytest.approx(0.5, abs=0.15)


@pytest.mark.slow
def test_masks_name_classes_where_no_ballot_is_sent(runs: Runs) -> None:
    """The sensitivities stay at the clients, but positions of what is encrypted travel with the ciphertexts."""
    found = areas(runs, RECIPES / "selectiveshield.yaml", *FEW_CLASSES, sets=["attack.attacks.0.read=masks"])["server"]
    assert np.mean(found) > 0.95


@pytest.mark.slow
def test_a_key_on_the_ballots_hides_them_from_the_server_and_not_from_a_server_with_a_client(runs: Runs) -> None:
    """ParaAegis' vote on the very scores that give SelectiveShield's clients away."""
    sets = ("score_parameters=[{use: selectiveshield.fisher}]", *FEW_CLASSES)
    both = areas(runs, RECIPES / "paraaegis-dynamic.yaml", *sets, adversaries=["server", "server+client"])
    assert np.mean(both["server+client"]) > 0.95
    # Each run draws another key, and all clients share it: the mean is 0.5 with a standard deviation of about 0.1.
    assert np.mean(both["server"]) < 0.85


def test_a_probe_of_a_batch_is_asked_about_all_of_the_clients_data(runs: Runs) -> None:
    """Negotiations look at all of a client's data, whatever batch is probed; so does the question."""
    folder = runs.of(recipe_of(rounds=1, **BALLOTS))
    scope = {"probe": {"batch_size": 2}, "rounds": [1], "targets": [0]}
    found = attacked(folder, "attacks.negotiation", "attacks.ilrg", metrics=["attacks.label_accuracy"], **scope)
    told, ilrg = (
        next(result for key, result in found.items() if key.startswith(attack))
        for attack in ("attacks.negotiation", "attacks.ilrg")
    )
    assert sum(ilrg["truth"]["counts"]) == 2
    assert sum(told["truth"]["counts"]) > 20
    assert told["probe"]["batch_size"] == ilrg["probe"]["batch_size"] == 2
