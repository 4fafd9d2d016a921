"""Scripts in benchmarks/ that measure single claims: what they print, and what they refuse."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import script

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_a_value_by_itself_takes_the_bytes_of_the_table(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    module = script(BENCHMARKS / "paillier_or_ckks.py")
    monkeypatch.setattr(sys, "argv", ["paillier_or_ckks.py", "--values", "2", "--bits", "1024"])
    assert module.main() == 0
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    found = {line[1]: int(line[4].removesuffix(" |")) for line in lines}
    assert found["Paillier, 1024 bits"] == 256, "twice the modulus"
    assert found["CKKS, one value each"] > 300_000
    assert found["CKKS, packed"] == pytest.approx(found["CKKS, one value each"] / 2, rel=0.01)


def test_numbers_of_values_that_no_ciphertext_holds_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    module = script(BENCHMARKS / "paillier_or_ckks.py")
    monkeypatch.setattr(sys, "argv", ["paillier_or_ckks.py", "--values", "5000"])
    with pytest.raises(SystemExit):
        module.main()
    assert "--values 5000 must be 1 to 4096" in capsys.readouterr().err


def test_passes_are_multiplied(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    module = script(BENCHMARKS / "fedml_he_passes.py")
    monkeypatch.setattr(module, "seconds_a_pass", lambda passes: (1e-3, 50_890))
    monkeypatch.setattr(sys, "argv", ["fedml_he_passes.py"])
    assert module.main() == 0
    assert "2.83 h by one pass a label" in capsys.readouterr().out, "1 ms x 50,890 x 200"


def test_a_pass_is_of_all_parameters_of_the_paper() -> None:
    seconds, parameters = script(BENCHMARKS / "fedml_he_passes.py").seconds_a_pass(2)
    assert seconds > 0
    assert parameters == 50_890


def test_a_sender_that_is_slow_with_large_values_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(BENCHMARKS / "fas_outsider.py")
    monkeypatch.setattr(module, "GAMES", 20)
    clock = [0]
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: clock[0])

    class Slow:
        def send(self, values: Any) -> bytes:
            clock[0] += 1 + int(np.abs(values).max() > 0.01)
            return b""

    assert module.slower(Slow(), np.random.default_rng(0)) == 1


def test_noise_does_not_save_a_static_key_from_chosen_plaintexts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(BENCHMARKS / "fas_outsider.py")
    static = module.Noised(module.Scrambled("static"))
    zeros = np.zeros(module.COUNT, np.float32)
    first, second = (static.read(static.send(zeros)) for _ in range(2))
    assert not np.array_equal(first, second), "the noise is drawn anew for each message"
    assert np.abs(first).mean() == pytest.approx(2 * module.NORM / module.EPSILON, rel=0.1)
    monkeypatch.setattr(module, "GAMES", 50)
    assert module.chosen_plaintexts(static, np.random.default_rng(0)) == 1, "as a guess has it once in 2^50 times"
    fresh = module.Noised(module.Scrambled("keyed"))  # its keys are drawn by the system, so each run is another
    monkeypatch.setattr(module, "GAMES", 1250)
    monkeypatch.setattr(module, "COUNT", 511)
    assert module.chosen_plaintexts(fresh, np.random.default_rng(0)) <= 0.57, "a guess, and five standard deviations"


def test_the_norm_of_the_noised_part_is_of_the_whole_update() -> None:
    module = script(BENCHMARKS / "theorem1.py")
    clients = [{"whole": np.array([3.0, 4.0, 0.0]), "places": np.array([0, 2])}]
    assert module.norm_left([clients, clients]) == {"norm of the noised part, % of the update": pytest.approx(60)}


def test_documents_of_one_format_have_scores_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(BENCHMARKS / "fedre_regions.py")
    monkeypatch.setattr(module, "MODELS", {"LeNet-5": module.MODELS["LeNet-5"]})
    same, other = module.formats(2, 48)["LeNet-5"]
    assert 0 < same < other
    assert module._percent([math.log(1.25)]) == pytest.approx(25)
