"""Tables of named columns: what is read, by which rule, and what is refused with file, column and line."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError, RecipeError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_kit.static import check_component
from fedplug_std.tables import Table, TextTable
from table_toys import AT_SITES, GIVEN, TITLES, recipe, rows, write_csv


def load(root: Path, **options: Any) -> Dataset:
    return Table(Table.Options.model_validate({**GIVEN, **options})).load(str(root))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_csv(tmp_path / "data.csv", rows())
    return tmp_path


def test_conforms() -> None:
    check_component("std.table", {"answer": "y"})


def test_columns_become_what_the_recipe_says(folder: Path) -> None:
    data = load(folder)
    assert data.columns == ("age", "sex=f", "sex=m", "income")
    assert data.classes == ("ill", "well")
    assert (data.shape, data.mean, data.std) == ((4,), (), ())
    assert (len(data.train), len(data.test)) == (48, 12)
    ages = data.train.inputs[:, 0] * 10 + 50
    assert np.allclose(ages, np.rint(ages), atol=1e-4)
    assert (data.train.inputs[:, 1] + data.train.inputs[:, 2] == 1).all()
    assert ((data.train.labels == 0) == (ages > 50)).all()
    chosen = load(folder, features=["income", "age"], leave_out=[], categories={}, scale={})
    assert chosen.columns == ("income", "age")
    assert chosen.train.inputs[:, 0].mean() > 500


def test_the_test_rows_are_a_fraction_a_columns_word_or_another_files(folder: Path) -> None:
    assert not np.array_equal(load(folder).test.inputs, load(folder, split_seed=1).test.inputs)
    assert len(load(folder, test_fraction=0.5).test) == 30
    write_csv(folder / "more.csv", rows(10, 1))
    assert (len(load(folder, test_file="more.csv").train), len(load(folder, test_file="more.csv").test)) == (60, 10)
    told = [[*row, "held out" if row[0] < 7 else "seen"] for row in rows()]
    write_csv(folder / "told.csv", told, (*TITLES, "part"))
    by_column = load(folder, file="told.csv", test_column="part", test_value="held out")
    assert (len(by_column.train), len(by_column.test), by_column.shape) == (53, 7, (4,))
    with pytest.raises(DataError, match=r"test_column part holds test in no rows; it holds held out, seen"):
        load(folder, file="told.csv", test_column="part")
    with pytest.raises(ValueError, match="test_file and test_column both select"):
        load(folder, test_file="more.csv", test_column="part")


def test_a_column_says_whose_a_row_is_and_no_model_sees_it(folder: Path) -> None:
    people = [[f"P{row[0] % 7}", *row[1:]] for row in rows()]
    write_csv(folder / "people.csv", people)
    data = load(folder, file="people.csv", leave_out=[], user="id")
    assert data.columns == ("age", "sex=f", "sex=m", "income")
    assert data.train.users is not None
    assert data.train.users.dtype == np.int64
    of = {  # by age and income, which identify a row
        (round(age), round(income, 2)): int(who[1:]) for who, age, _, income, _ in people
    }
    found = [
        of[round(row[0] * 10 + 50), round(float(row[3]) * 100 + 900, 2)] for row in data.train.inputs.tolist()
    ]
    assert len({*zip(found, data.train.users.tolist(), strict=True)}) == len({*found})
    assert load(folder).train.users is None
    write_csv(folder / "gap.csv", [["", *people[0][1:]], *people[1:]])
    with pytest.raises(DataError, match=r"column id names no user in 1 line \(2\)") as caught:
        load(folder, file="gap.csv", leave_out=[], user="id")
    drafted = "\n".join(caught.value.__notes__)
    assert "  user: id\n" in drafted
    assert "  drop_gaps: id\n" in drafted or "  drop_gaps: [id]\n" in drafted
    assert "categories: {sex: [f, m]}" in drafted
    assert len(load(folder, file="gap.csv", leave_out=[], user="id", drop_gaps=["id"]).train) > 40
    with pytest.raises(ValueError, match="id is in leave_out and in user; a column can be only one of the two"):
        load(folder, user="id")
    with pytest.raises(DataError, match="patient"):
        load(folder, user="patient")


def test_numbers_and_several_labels(folder: Path) -> None:
    numbers = load(folder, answer="income", predict="numbers", features=["age"], leave_out=[], categories={}, scale={})
    assert numbers.train.targets is not None
    assert (numbers.train.targets.shape, numbers.train.targets.dtype) == ((48, 1), np.float32)
    assert (numbers.classes, len(numbers.kinds)) == (("income",), 5)
    write_csv(folder / "labels.csv", [[n, n % 2, n % 3 == 0] for n in range(20)], ["x", "odd", "third"])
    given = {"file": "labels.csv", "answer": ["odd", "third"], "predict": "labels", "leave_out": [], "categories": {}}
    labels = load(folder, **given, scale={})
    assert labels.train.targets is not None
    numbered = labels.train.inputs[:, 0]
    assert np.array_equal(labels.train.targets, np.stack([numbered % 2, numbered % 3 == 0], 1))
    assert (labels.classes, labels.train.targets.dtype) == (("odd", "third"), np.int64)
    declared = [Table(Table.Options.model_validate({"answer": "y", "predict": kind})).declares.task for kind in (
        "classes", "numbers", "labels")]  # fmt: skip
    assert declared == ["", "std.regression", "std.multi_label"]


def test_other_ways_to_write_a_csv_file(folder: Path) -> None:
    plain = load(folder)
    text = (folder / "data.csv").read_text(encoding="utf-8")
    (folder / "packed.csv.gz").write_bytes(gzip.compress(("\ufeff" + text).encode()))
    write_csv(folder / "tabs.tsv", rows(), between="\t")
    write_csv(folder / "semicolons.csv", rows(), between=";")
    for options in ({"file": "packed.csv.gz"}, {"file": "tabs.tsv"}, {"file": "semicolons.csv", "delimiter": ";"}):
        assert np.array_equal(load(folder, **options).train.inputs, plain.train.inputs)
    with pytest.raises(DataError, match=r"has one column, .*; write delimiter: ';'"):
        load(folder, file="semicolons.csv")


def test_parquet_is_the_same_table(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet is read by pyarrow, the extra tables of fedplug-std")
    parquet = pytest.importorskip("pyarrow.parquet", reason="see above")
    columns = dict(zip(TITLES, map(list, zip(*rows(), strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), folder / "data.parquet")
    found, plain = load(folder, file="data.parquet"), load(folder)
    assert np.array_equal(found.train.inputs, plain.train.inputs)
    assert np.array_equal(found.test.labels, plain.test.labels)
    columns["age"][3] = None
    parquet.write_table(pyarrow.table(columns), folder / "gaps.parquet")
    said = r"gaps\.parquet: column age has no value in 1 row \(4\); .*missing_indicators: \[age\]"
    with pytest.raises(DataError, match=said):
        load(folder, file="gaps.parquet")
    assert len(load(folder, file="gaps.parquet", fill={"age": 50}).train) == 48
    (folder / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"broken\.parquet cannot be read"):
        load(folder, file="broken.parquet")


def test_without_pyarrow_the_remedy_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (folder / "data.parquet").write_bytes(b"PAR1")
    with pytest.raises(SetupError, match=r"pip install pyarrow, or write it as CSV"):
        load(folder, file="data.parquet")


def changed(line: int, column: str, value: Any) -> list[list[Any]]:
    found = rows()
    found[line][TITLES.index(column)] = value
    return found


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (rows(), {"categories": {}}, r"column sex has texts \(f, m\); state its categories: \{sex: \[f, m\]\}"),
        (changed(3, "sex", "x"), {}, r"column sex holds x in 1 line \(5\), but categories\.sex has f, m"),
        (changed(3, "age", ""), {}, r"column age has no value in 1 line \(5\); .*missing_indicators: \[age\]"),
        (changed(3, "sex", "NA"), {}, r"column sex has no value in 1 line \(5\); .*missing_indicators: \[sex\]"),
        (changed(3, "outcome", ""), {}, r"column outcome has no value in 1 line \(5\); .*drop_gaps: \[outcome\]"),
        (changed(3, "outcome", "None"), {}, r"None counts as a gap; to keep it, name it among the classes"),
        (changed(3, "sex", "NA"), {}, r"NA counts as a gap; to keep it, name it among the categories of sex"),
        (changed(3, "age", "old"), {}, r"column age holds values that are not numbers in 1 line \(5\), first 'old'"),
        (changed(3, "age", "inf"), {}, r"column age holds inf, which is not a finite number, in 1 line \(5\)"),
        (rows(), {"features": ["weight"], "leave_out": []}, r"no column weight, which features names; it has id, age"),
        (rows(), {"answer": "result"}, "has no column result, which answer names"),
        (rows(), {"fill": {"weight": 1}}, "fill names weight, which are not inputs of the model"),
        (rows(), {"scale": {"agee": [1, 1]}}, "scale names agee, which are not inputs of the model"),
        (rows(), {"answer": "income", "scale": {}}, "column income holds numbers such as .* write predict: numbers"),
        (rows(), {"predict": "numbers"}, "column outcome holds values that are not numbers in 60 lines"),
        (rows(), {"answer": ["age"], "predict": "labels", "scale": {}, "features": ["income"]}, "each must be 0 or 1"),
        (rows(), {"classes": ["ill"]}, r"column outcome holds well in \d+ lines .* the classes are ill"),
        ([*rows(), [1, 2]], {}, r"line 62: 2 values, but the first line names 5 columns"),
        ([], {}, "has no rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_column_and_line(
    tmp_path: Path, lines: list[list[Any]], options: dict[str, Any], said: str
) -> None:
    path = write_csv(tmp_path / "data.csv", lines)
    if options.get("features"):
        options = {"leave_out": [], "categories": {}, "scale": {}, **options}
    with pytest.raises(DataError, match=said) as caught:
        load(tmp_path, **options)
    assert str(path) in str(caught.value)


def test_gaps_take_the_value_that_is_stated(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", changed(3, "sex", ""))
    assert len(load(tmp_path, fill={"sex": "f"}).train) == 48
    write_csv(tmp_path / "data.csv", changed(3, "age", "NaN"))
    assert np.isfinite(load(tmp_path, fill={"age": 50}).train.inputs).all()
    write_csv(tmp_path / "wards.csv", [[n % 3 or "", n % 2] for n in range(30)], ["ward", "outcome"])
    given = {"file": "wards.csv", "leave_out": [], "categories": {"ward": [1, 2, 3]}, "scale": {}, "fill": {"ward": 3}}
    assert load(tmp_path, **given).train.inputs[:, 2].sum() > 0


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*data\.csv"):
        load(tmp_path)
    (tmp_path / "data.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match=r"data\.xlsx is a workbook, .*save its sheet as CSV UTF-8"):
        load(tmp_path, file="data.xlsx")
    (tmp_path / "data.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="line 2, is not utf-8"):
        load(tmp_path)
    (tmp_path / "data.csv").write_text("a,a\n1,2\n")
    with pytest.raises(DataError, match="several columns named a"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"answer": []}, "answer"),
        ({"answer": ["a", "b"]}, "predict: labels, for several numbers predict: numbers"),
        ({"leave_out": ["outcome"]}, "outcome is in answer and in leave_out"),
        ({"scale": {"age": [50, 0]}}, "scale"),
        ({"scale": {"sex": [0, 1]}}, "sex is in categories and in scale"),
        ({"predict": "numbers", "classes": ["a"]}, "classes are for predict: classes"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Table.Options.model_validate({**GIVEN, **options})


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_table_is_learnt_from(folder: Path) -> None:
    run = fedplug.run(recipe(file=str(folder / "data.csv"), **GIVEN), output=folder / "runs", quiet=True, rounds=8)
    assert run.metrics[-1].accuracy is not None
    assert run.metrics[-1].accuracy > 0.7


def test_a_regression_needs_no_task_in_the_recipe(folder: Path) -> None:
    data = {"file": str(folder / "data.csv"), "answer": "age", "predict": "numbers", "features": ["income"]}
    made = Recipe.from_plain(recipe(**data, scale={"income": [900, 100]}))
    assert made.task is not None
    assert made.task.use == "std.regression"


def write_sites(root: Path, **changes: list[list[Any]]) -> Path:
    for client_id in range(3):
        lines = changes.get(f"client_{client_id}", rows(40, client_id))
        write_csv(root / f"client-{client_id}" / "data.csv", lines)
    return root


def test_each_site_has_a_file_of_its_own(tmp_path: Path) -> None:
    run = fedplug.run(recipe(**AT_SITES), data=str(write_sites(tmp_path)), output=tmp_path / "runs", quiet=True)
    assert run.complete
    with_numbers = {
        **AT_SITES, "answer": "income", "predict": "numbers", "features": ["age", "sex"], "scale": {"age": [50, 10]},
        "agreed": {"shape": [3], "classes": ["income"], "mean": [], "std": []},
    }  # fmt: skip
    made = recipe(**with_numbers) | {"task": {"use": "std.regression", "centre": 900, "scale": 100}}
    assert fedplug.run(made, data=str(tmp_path), output=tmp_path / "runs", quiet=True).complete


def test_a_site_whose_columns_differ_is_told_file_column_and_rule(tmp_path: Path) -> None:
    root = write_sites(tmp_path)
    write_csv(root / "client-1" / "data.csv", [row[1:] for row in rows(40)], ("years", *TITLES[2:]))
    said = r"client 1: \S*client-1/data\.csv has no column age, which features names; it has years, sex"
    with pytest.raises(DataError, match=said):
        fedplug.run(recipe(**AT_SITES), data=str(root), output=tmp_path / "runs", quiet=True)


def test_columns_in_another_order_are_the_same_columns(tmp_path: Path) -> None:
    write_csv(tmp_path / "a" / "data.csv", rows())
    write_csv(tmp_path / "b" / "data.csv", [row[::-1] for row in rows()], TITLES[::-1])
    options = {"features": ["age", "sex", "income"], "leave_out": []}
    assert np.array_equal(load(tmp_path / "a", **options).train.inputs, load(tmp_path / "b", **options).train.inputs)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": []}, r"with data at sites, name the columns, features: \[\.\.\.\]"),
        ({"agreed": {**AT_SITES["agreed"], "shape": [5]}}, r"make 4 columns, but data\.agreed\.shape says \[5\]"),
        ({"agreed": {**AT_SITES["agreed"], "mean": [0.5] * 4, "std": [1.0] * 4}}, "columns of a table are scaled by"),
    ],
)
def test_a_recipe_for_sites_says_what_every_site_must_know(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Recipe.from_plain(recipe(**{**AT_SITES, **changes}))


# -- gaps, other texts, and classes that look alike --------------------------------------------------------------------


def test_an_indicator_marks_gaps_and_invents_no_value(tmp_path: Path) -> None:
    lines = [[n if n % 4 else "", "f" if n % 5 else "NA", "ab"[n % 2]] for n in range(40)]
    write_csv(tmp_path / "data.csv", lines, ("crp", "sex", "y"))
    given: dict[str, Any] = {
        "answer": "y", "leave_out": [], "categories": {"sex": ["f", "m"]}, "scale": {"crp": [20, 10]},
        "missing_indicators": ["crp", "sex"],
    }  # fmt: skip
    data = load(tmp_path, **given)
    assert data.columns == ("crp", "crp=missing", "sex=f", "sex=m", "sex=missing")
    inputs = np.concatenate([data.train.inputs, data.test.inputs])
    assert (inputs[inputs[:, 1] == 1, 0] == 0).all(), "the centre of scale"
    assert (inputs[:, 1].sum(), inputs[:, 4].sum()) == (10, 8)
    assert (inputs[:, 2:].sum(1) == 1).all()
    filled = load(tmp_path, **given, fill={"crp": 30})
    assert (filled.train.inputs[filled.train.inputs[:, 1] == 1, 0] == 1).all()
    assert len(load(tmp_path, **{**given, "missing_indicators": ["crp"]}, drop_gaps=["sex"]).train) == 25
    declared = Table(Table.Options.model_validate({**given, "features": ["crp", "sex"]})).declares
    assert declared.shape == (5,)
    with pytest.raises(ValueError, match="has a category missing"):
        Table.Options.model_validate({**given, "categories": {"sex": ["f", "missing"]}})


def test_other_texts_are_read_as_the_recipe_says(tmp_path: Path) -> None:
    lines = [["999" if n % 4 == 0 else 100 + n, "F" if n % 3 == 0 else "f", n % 2] for n in range(40)]
    write_csv(tmp_path / "data.csv", lines, ("pressure", "sex", "y"))
    given: dict[str, Any] = {"answer": "y", "leave_out": [], "scale": {}, "categories": {"sex": ["f"]}}
    data = load(tmp_path, **given, replace={"pressure": {999: ""}, "sex": {"F": "f"}}, fill={"pressure": 120})
    assert data.train.inputs[:, 0].max() < 140
    assert (data.train.inputs[:, 1] == 1).all()
    with pytest.raises(DataError, match=r"column sex holds F in 14 lines .* write replace: \{sex: \{F: f\}\}, add"):
        load(tmp_path, **given)


def test_numbers_are_replaced_in_a_file_with_decimal_commas(tmp_path: Path) -> None:
    lines = [["1,125" if n % 2 else "90,5", n % 3, n % 2] for n in range(40)]
    write_csv(tmp_path / "data.csv", lines, ("dose", "ward", "y"))
    given: dict[str, Any] = {"answer": "y", "leave_out": [], "scale": {}, "categories": {}}
    given |= {"decimal": ",", "thousands": ".", "replace": {"dose": {"90.5": 2.5}, "ward": {"2": 2.5}}}
    data = load(tmp_path, **given)
    assert np.unique(data.train.inputs[:, 0]).tolist() == [1.125, 2.5]
    assert np.unique(data.train.inputs[:, 1]).tolist() == [0, 1, 2.5]
    same = load(tmp_path, **given | {"replace": {"dose": {"90,5": "2,5"}, "ward": {"2": "2,5"}}})
    assert np.array_equal(same.train.inputs, data.train.inputs)
    with pytest.raises(DataError, match=r"column ward holds values that are not numbers in 13 lines") as caught:
        load(tmp_path, **given | {"replace": {"ward": {"2": "many"}}})
    assert "leave_out: [ward]" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("words", "classes"),
    [
        (["1", "1.0", "0"], ("0", "1")),
        (["True", "False", "True"], ("False", "True")),
        (["9007199254740993", "9007199254740992", "9007199254740993"], ("9007199254740992", "9007199254740993")),
        (["99999999999999999999", "99999999999999999998", "99999999999999999998"],
         ("99999999999999999998", "99999999999999999999")),
        (["01", "02", "02"], ("01", "02")),
        (["Ill", "ill", "well"], r"Ill \(10\) and ill \(10\), which look like one class; .*\{\"y\": \{ill: Ill\}\}"),
        (["01", "1", "2"], r"01 \(10\) and 1 \(10\), which look like one class"),
        (["True", "1", "0"], r"look like one class"),
        (["very ill", "very  ill", "well"], r"look like one class"),
    ],
)  # fmt: skip
def test_what_looks_like_one_class_is_one_or_a_question(tmp_path: Path, words: list[str], classes: Any) -> None:
    write_csv(tmp_path / "data.csv", [[n, words[n % 3]] for n in range(30)], ("x", "y"))
    given: dict[str, Any] = {"answer": "y", "leave_out": [], "categories": {}, "scale": {}}
    if isinstance(classes, tuple):
        data = load(tmp_path, **given)
        assert data.classes == classes
        assert len(np.unique(data.train.labels)) == 2
        return
    with pytest.raises(DataError, match=classes):
        load(tmp_path, **given)
    assert load(tmp_path, **given, classes=list(dict.fromkeys(words))).classes == tuple(words), "the recipe decides"


def test_categories_match_numbers_however_they_are_written(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [[f"{n % 2 + 1}.50", n % 2] for n in range(20)], ("dose", "y"))
    data = load(tmp_path, answer="y", leave_out=[], scale={}, categories={"dose": [1.5, 2.5]})
    assert (data.train.inputs.sum(1) == 1).all()


def test_what_a_site_lacks_is_named_with_the_site(tmp_path: Path) -> None:
    root = write_sites(tmp_path, client_1=[row for row in rows(40, 1) if row[2] == "f"])
    lines = [[*row[:2], "d" if row[0] == 3 else row[2], *row[3:]] for row in rows(40, 2)]
    write_csv(root / "client-2" / "data.csv", lines)
    said = r"client 2: \S*client-2/data\.csv: column sex holds d in 1 line \(5\)"
    with pytest.raises(DataError, match=said) as caught:
        fedplug.run(recipe(**AT_SITES), data=str(root), output=tmp_path / "runs", quiet=True)
    assert "client 1" not in str(caught.value), "a site may lack a category"
    for client_id in (0, 2):
        write_csv(root / f"client-{client_id}" / "data.csv", [row[3:] for row in rows(40)], TITLES[3:])
    with pytest.raises(DataError) as caught:
        fedplug.run(recipe(**AT_SITES), data=str(root), output=tmp_path / "runs", quiet=True)
    for client_id in (0, 2):
        assert re.search(rf"client {client_id}: .* has no columns age, sex, which features names", str(caught.value))


# -- texts with an answer each -----------------------------------------------------------------------------------------

LETTERS = 'id,body,kind\n' + "".join(
    f'{row},"Dear {row}, hello","ham"\n{row},"WIN, now\nat once",spam\n' for row in range(10)
)


def of_texts(root: Path, **options: Any) -> Dataset:
    given = {"file": "letters.csv", "text": "body", "answer": "kind", "length": 12, **options}
    return TextTable(TextTable.Options.model_validate(given)).load(str(root))


def test_a_column_of_texts_becomes_bytes(tmp_path: Path) -> None:
    (tmp_path / "letters.csv").write_text(LETTERS)
    data = of_texts(tmp_path)
    assert (data.shape, data.classes, data.mean, data.train.inputs.dtype) == ((12,), ("ham", "spam"), (), np.int64)
    assert (len(data.train), len(data.test)) == (16, 4)
    found = {bytes(row.astype(np.uint8)).rstrip(b"\0") for row in data.train.inputs[data.train.labels == 1]}
    assert found == {b"WIN, now\nat "}
    rows = TextTable(TextTable.Options(file="letters.csv", text="body", answer="kind", length=12)).declares
    assert (rows.shape, rows.task) == ((12,), "")
    many = of_texts(tmp_path, answer=["id"], predict="numbers")
    assert many.train.targets is not None
    assert many.train.targets.shape == (16, 1)


def test_a_text_that_is_missing_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "letters.csv").write_text(LETTERS + "11,n/a,ham\n")
    with pytest.raises(DataError, match=r"body has no text in 1 line \(\d+\); n/a counts as a gap \(gaps\); leave"):
        of_texts(tmp_path)
    assert len(of_texts(tmp_path, drop_gaps=["body"]).train) == 16
    with pytest.raises(DataError, match="has no column words, which text names; it has id, body, kind"):
        of_texts(tmp_path, text="words")


def test_options_for_several_columns_are_refused_where_one_is_read() -> None:
    data = {"use": "std.text_table", "file": "letters.csv", "answer": "kind", "features": ["id"]}
    with pytest.raises(RecipeError, match="features is for tables, and text names one column"):
        Recipe.from_plain(recipe(**data))
