"""The records of results: written and read back, and refused by the name of the field that is wrong."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from fedplug import Finds
from fedplug.api.errors import SetupError
from fedplug_attacks.workshop.records import AttackSummary, TargetResult
from fedplug_attacks.workshop.report_section import Attacks
from fedplug_attacks.workshop.results import read_result, read_summary, results, write_result, write_summary
from target_toys import a_target, an_attack_summary, an_outcome


def test_what_is_written_is_read_back_numbers_that_are_none_included(tmp_path: Path) -> None:
    odd = an_outcome("diverged", metrics={"mse": None, "psnr": "inf"}, losses=[1.0, None], counts=[0.5, None])
    target = a_target(forms={"naive": odd}, headline=None)
    write_result(tmp_path, target)
    found = read_result(tmp_path, target.key)
    assert found is not None
    assert found.meaning == target.meaning
    outcome = found.forms["naive"]
    assert math.isnan(outcome.metrics["mse"])
    assert outcome.metrics["psnr"] == math.inf
    assert repr(outcome.counts) == "[0.5, nan]"
    assert found.to_json() == target.to_json()
    summary = write_summary(tmp_path, {"server": "reads all"})
    assert summary.rows[0].metrics["mse"].to_plain(for_json=True) == {"mean": None, "std": None}
    assert read_summary(tmp_path) is not None
    assert [each.key for each in results(tmp_path)] == [target.key]  # the summary is not one of them


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(TargetResult)])
def test_a_field_that_is_missing_or_of_another_type_is_named(field: str) -> None:
    plain = a_target().to_plain()
    with pytest.raises(ValueError, match=rf"^{field}\b"):
        TargetResult.from_plain({**plain, field: {"x": [1]} if field != "options" else 3})
    if plain.pop(field, None) is None and field not in ("headline", "picture"):
        return  # empty, which is the default
    with pytest.raises(ValueError, match=f"^{field}: field required"):
        TargetResult.from_plain(plain)


def test_a_summary_that_is_damaged_is_made_anew_and_one_that_is_whole_is_added_to(tmp_path: Path) -> None:
    write_result(tmp_path, a_target())
    (tmp_path / "summary.json").write_text("{")
    assert list(write_summary(tmp_path, {"server": "a"}, left={"one": "a"}).adversaries) == ["server"]
    both = write_summary(tmp_path, {"client": "b"})
    assert both.adversaries == {"server": "a", "client": "b"}
    assert both.left == {"one": "a"}
    assert AttackSummary.from_json(both.to_json()) == both


def test_what_a_sweep_keeps_is_read_back_as_leaks_and_damage_is_named(tmp_path: Path) -> None:
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "summary.json").write_text(an_attack_summary().to_json())
    record = Attacks().record(tmp_path)
    (leak,) = Attacks().leaks(record)
    assert (leak.attack, leak.metric, leak.value, leak.guess) == ("toy.copy server probe 8", "MSE", 1.5e-6, 0.0801)
    assert (leak.guessed_by, leak.lower_is_worse, leak.succeeded, leak.targets) == ("mean image", True, 0.8, 5)
    with pytest.raises(SetupError, match=r"sweep.jsonl is damaged.*stronger: field required.*remove"):
        Attacks().leaks({"x": {key: value for key, value in record[leak.attack].items() if key != "stronger"}})


def test_words_that_could_not_be_read_back_are_refused_where_an_attack_says_them() -> None:
    with pytest.raises(ValueError, match=r"headline=.*'high' or 'low'"):
        Finds(needs=None, what=frozenset(), headline=("mse", "small"), success=("", ">=", 1.0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"success=.*threshold"):
        Finds(needs=None, what=frozenset(), headline=("mse", "low"), success=("", "<", 1.0))  # type: ignore[arg-type]
