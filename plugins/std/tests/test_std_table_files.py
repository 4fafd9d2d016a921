"""How files of tables are read: by Python, by pyarrow and from the cache, always as the same numbers and texts."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError
from fedplug_std import _table_cache
from fedplug_std._columns import Form, Rows
from fedplug_std._table_files import Reading, csv_rows, read
from fedplug_std.tables import Table
from table_toys import rows, write_csv

LARGE = "a,y\n" + "1,ill\n2,well\n" * 20


def parsed(text: str | bytes, fast: bool = False, **reading: Any) -> Rows:
    content = text.encode() if isinstance(text, str) else text
    return csv_rows(Path("t.csv"), content, Reading(**reading), fast)


def load(root: Path, text: str | bytes, **options: Any) -> Dataset:
    (root / "t.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return Table(Table.Options.model_validate({"file": "t.csv", "answer": "y", **options})).load(str(root))


def equal(one: Rows, other: Rows) -> bool:
    """Bit for bit, with types, texts and numbers of lines."""
    assert list(one.columns) == list(other.columns)
    assert one.numbers.tolist() == other.numbers.tolist()
    assert (one.unit, one.form, one.nameless) == (other.unit, other.form, other.nameless)
    for name, column in one.columns.items():
        there = other.columns[name]
        assert column.values.dtype == there.values.dtype, name
        assert column.values.tobytes() == there.values.tobytes(), name
        assert column.gaps.tolist() == there.gaps.tolist(), name
        assert column.words == there.words, name
        if column.readings is not None and there.readings is not None:
            assert column.readings.tobytes() == there.readings.tobytes(), name
    return True


NUMBERS = ("0", "-0", "7", "-12", "1.5", ".5", "5.", "1e3", "-2.5E-3", "9007199254740991", "0.1", "3.4028236e38")
SPECIAL = (
    "007", "+3", "1_000", "inf", "nan", "NA", "n/a", "-", "?", "", " 4 ", "9007199254740993", "1e400", "1.0",
    "99999999999999999999", "Infinity", "0x1f", "True", "FALSE", "é", "a b", "1,5", "1.000,5", "\u0661",
)  # fmt: skip


def test_pyarrow_reads_what_python_reads_bit_for_bit() -> None:
    pytest.importorskip("pyarrow", reason="the extra tables of fedplug-std")
    rng = np.random.default_rng(3)
    for trial in range(150):
        count, between = int(rng.integers(1, 30)), ",;\t"[trial % 3]
        columns = []
        for _ in range(4):
            some = [*rng.choice(NUMBERS, 3), *rng.choice(SPECIAL, int(rng.integers(0, 3)))]
            columns.append([str(rng.choice(some)) for _ in range(count)])
        quoted = [[f'"{v}"' if between in v or trial % 5 == 0 else v for v in column] for column in columns]
        lines = [between.join(row) for row in zip(*quoted, strict=True)]
        if trial % 4 == 0:
            lines.insert(int(rng.integers(len(lines) + 1)), "")
        ends = "\r\n" if trial % 2 else "\n"
        text = ends.join([between.join("abcd"), *lines]) + (ends if trial % 7 else "")
        for gaps in (Reading().gaps, frozenset({"", "7"})):
            given = {"delimiter": between, "gaps": gaps, "form": Form(",", ".") if trial % 6 == 0 else Form()}
            assert equal(parsed(text, True, **given), parsed(text, False, **given))


def test_pyarrow_is_asked_where_it_reads_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    csv = pytest.importorskip("pyarrow.csv", reason="the extra tables of fedplug-std")
    asked: list[int] = []
    whole = csv.read_csv
    monkeypatch.setattr(csv, "read_csv", lambda *given: (asked.append(1), whole(*given))[1])
    assert len(parsed("a,b\n1,2\n3,4\n", True)) == 2
    assert asked == [1]
    for text in ('a,b\n"1\n2",2\n', 'a,b\n"x""y",2\n', "a,b\r1,2\r", 'a,b\n"a,"b",c"\n'):
        monkeypatch.setattr(csv, "read_csv", lambda *given: pytest.fail("it might read that otherwise"))
        try:
            parsed(text, True)
        except DataError:
            assert text.endswith('c"\n'), "Python refuses the last one"


PLAIN = "x,s,y\n" + "".join(f"{n},{'fm'[n % 2]},{'ill' if n > 10 else 'well'}\n" for n in range(20))
GIVEN: dict[str, Any] = {"categories": {"s": ["f", "m"]}}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (("\ufeff" + PLAIN).encode(), {}),
        (PLAIN.encode("utf-16"), {}),
        (PLAIN.replace("\n", "\r\n").encode(), {}),
        (PLAIN.replace("\n", "\r").encode(), {}),
        (PLAIN.replace("\n", "\n\n"), {}),
        (PLAIN.replace("\n", ",\n"), {}),
        (PLAIN + ",,\n , ,NA\n", {}),
        (PLAIN.replace(",", ", "), {}),
        (PLAIN.replace(",f", ', "f"'), {}),
        ("sep=;\n" + PLAIN.replace(",", ";"), {}),
        (PLAIN.replace(",", ";"), {"delimiter": ";"}),
        (PLAIN.replace(",", ";").replace("\n7;", "\n7,0;"), {"delimiter": ";", "decimal": ","}),
        (PLAIN.replace("\n7,", '\n"7.0",'), {}),
        (gzip.compress(PLAIN.encode(), mtime=0), {}),
        (PLAIN.replace("f,", "F,", 3), {"replace": {"s": {"F": "f"}}}),
        (PLAIN.replace("ill", "ill ", 2), {}),
        (PLAIN.replace("ill", "Ö").encode("cp1252"), {"encoding": "cp1252", "replace": {"y": {"Ö": "ill"}}}),
        (PLAIN + "77,f,\n", {"drop_gaps": ["y"]}),
        (PLAIN + "77,f,?\n", {"drop_gaps": ["y"]}),
    ],
)  # fmt: skip
def test_the_same_content_is_the_same_table(tmp_path: Path, text: str | bytes, options: dict[str, Any]) -> None:
    plain, found = load(tmp_path, PLAIN, **GIVEN), load(tmp_path, text, **GIVEN, **options)
    assert found.columns == plain.columns
    assert found.classes == plain.classes
    assert np.array_equal(found.train.inputs, plain.train.inputs)
    assert np.array_equal(found.test.labels, plain.test.labels)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (PLAIN.replace(",", ";"), {}, r"has one column, .*; write delimiter: ';'$"),
        (PLAIN.replace(",", ";").replace("\n7;", "\n7,5;"), {}, r"write delimiter: ';' and decimal: ','"),
        (PLAIN.replace("\n7,", '\n"7,5",'), {}, r"first '7,5'; for 7\.5 write decimal: \",\""),
        (PLAIN.replace("\n7,", '\n"1,100",'), {}, r"for 1100 write thousands: \",\", for 1\.1 write decimal: \",\""),
        (PLAIN.replace("\n7,", "\n1.5,").replace(",", ";"), {"delimiter": ";", "decimal": ","}, r"first '1\.5'"),
        (PLAIN.replace("\n7,", '\n"1,10",'), {"thousands": ","}, r"first '1,10'"),
        (PLAIN.replace("ill", "ö").encode("cp1252"), {}, r"line 13, is not utf-8 .* '11,m,ö', write encoding: cp1252"),
        (PLAIN.replace("7,m", "7\0,m"), {}, r"line 9: a byte of value 0"),
        (PLAIN.replace("\n", ",9\n", 3).replace(",9", "", 1), {}, r"line 2: 4 values, .* correct it and 1 more"),
        (PLAIN.rsplit(",", 1)[0], {}, r"line 21: 2 values"),
        (b"", {}, "is empty; the first line must name every column"),
        ("x,s,y\n", {}, "has no rows"),
        (PLAIN.replace("x,s,y", "x,x,y"), {}, "several columns named x"),
        (PLAIN.replace("x,s,y\n", ""), {}, r"no column y, which answer names; .*The first line seems to hold values"),
        (PLAIN.replace("x,s,y", ",s,y"), {}, r"column 1 has no name in the first line \(it holds 0, 1, 2 and"),
        (PLAIN.replace("x,s,y", "x,s,Y"), {}, r"no column y, .* Write Y"),
        (b"PK\x03\x04" + PLAIN.encode(), {}, "an Excel workbook .* save its sheet as CSV UTF-8"),
        (b"PAR1", {}, "rename it to end with .parquet"),
        ('x,s,y\n"a"b,f,ill\n', {}, "line 2, cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_one_line_with_the_place_and_the_remedy(
    tmp_path: Path, text: str | bytes, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        load(tmp_path, text, **GIVEN, **options)
    assert str(tmp_path / "t.csv") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_word_that_the_recipe_names_is_no_gap(tmp_path: Path) -> None:
    text = PLAIN.replace(",f,", ",none,").replace(",m,", ",?,")
    data = load(tmp_path, text, categories={"s": ["none", "?"]})
    assert data.train.inputs[:, 1:].sum() == len(data.train)
    with pytest.raises(DataError, match=r"column s has no value in any row"):
        load(tmp_path, text, categories={"s": ["a"]})


# -- the cache ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDPLUG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_table_cache, "LEAST", 100)
    return tmp_path / "cache" / "tables"


def test_a_table_is_parsed_once_and_kept_private(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "data.csv", [*rows(), ["x", "", "f", "1.5", "Ill é"]])
    first = read(path, Reading())
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    with monkeypatch.context() as patched:
        patched.setattr("fedplug_std._table_files.csv_rows", lambda *given: pytest.fail("it was parsed before"))
        moved = path.rename(tmp_path / "moved.csv")
        again = read(moved, Reading())
    assert equal(again, first)
    assert again.place == str(moved)
    whole = kept.read_bytes()
    at = whole.index(b"PK\x01\x02")
    # Torn; then a flag and methods in the list of contents that numpy does not expect.
    changed = [(8, 0xFF), (10, 0x63), (10, 8)]
    for damaged in (whole[:-200], *(whole[: at + k] + bytes([v]) + whole[at + k + 1 :] for k, v in changed)):
        kept.write_bytes(damaged)
        assert equal(read(moved, Reading()), first), "a damaged file is replaced"
    assert kept.read_bytes() == whole
    read(moved, Reading(form=Form(",")))
    moved.write_text(moved.read_text(encoding="utf-8").replace("well", "fine"), encoding="utf-8")
    assert "fine" in (read(moved, Reading()).columns["outcome"].words or ())
    assert len([*cache.iterdir()]) == 3, "another way to read, and another content, are other tables"


def test_what_nobody_used_for_a_month_is_deleted_and_off_keeps_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "data.csv", rows())
    read(path, Reading())
    (old,) = cache.iterdir()
    os.utime(old, (1, 1))
    read(path, Reading(form=Form(",")))
    assert not old.exists()
    (kept,) = cache.iterdir()
    kept.unlink()
    monkeypatch.setenv("FEDPLUG_CACHE", "off")
    read(path, Reading())
    assert not [*cache.iterdir()]


def test_what_is_another_users_in_the_cache_is_not_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A cache in a folder that several share: another user could put other values there."""
    (tmp_path / "a.csv").write_text(LARGE)
    read(tmp_path / "a.csv", Reading())
    (kept,) = cache.iterdir()
    arrays = dict(np.load(kept))
    np.savez(kept, **{**arrays, "values0": arrays["values0"] + 100})
    assert read(tmp_path / "a.csv", Reading()).columns["a"].values[0] == 101, "one's own is read"
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    assert read(tmp_path / "a.csv", Reading()).columns["a"].values[0] == 1


def test_columns_of_other_lengths_in_the_cache_are_damage(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.csv").write_text(LARGE)
    whole = len(read(tmp_path / "a.csv", Reading()).columns["a"])
    (kept,) = cache.iterdir()
    arrays = dict(np.load(kept))
    np.savez(kept, **{**arrays, "values0": arrays["values0"][:1]})
    assert len(read(tmp_path / "a.csv", Reading()).columns["a"].values) == whole


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path, cache: Path) -> None:
    path = write_csv(tmp_path / "data.csv", rows())
    cache.parent.write_text("a file in its place")
    assert len(read(path, Reading())) == 60


def test_processes_that_write_at_once_leave_a_whole_file(tmp_path: Path, cache: Path) -> None:
    path = write_csv(tmp_path / "data.csv", rows(2000))
    code = (
        "import sys; from pathlib import Path; from fedplug_std import _table_cache as c; c.LEAST = 0;"
        "from fedplug_std._table_files import read, Reading; print(len(read(Path(sys.argv[1]), Reading())))"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0].split() for process in started] == [[b"2000"]] * 2
    (kept,) = cache.iterdir()
    assert equal(read(path, Reading()), csv_rows(path, path.read_bytes(), Reading()))
    assert kept.suffix == ".npz"
