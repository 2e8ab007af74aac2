"""Reading data files: what comes out, and what is said of files that are no good."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from optimargin import datasets
from optimargin.datasets import DataFileError

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """A function that writes a file and tells its path."""

    def write(text: str | bytes, name: str = "rows.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def complaint(path: Path, **arguments: object) -> str:
    """What is said of a bad file, which must be one line that names the file."""
    with pytest.raises(DataFileError) as caught:
        datasets.read(path, **arguments)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert text.endswith(".")
    return text


@settings(deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda d: st.lists(
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=d, max_size=d),
            min_size=1,
            max_size=5,
        )
    ),
    st.booleans(),
)
def test_every_double_survives_a_csv_file(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]], named: bool
) -> None:
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    head = [",".join(f"x{i}" for i in range(len(rows[0]))) + ",y"] if named else []
    path.write_text("\n".join([*head, *(",".join(map(repr, row)) + ",a" for row in rows)]))
    X, y, _ = datasets.read(path, header=named)
    assert np.array_equal(X, np.array(rows))
    assert y is not None
    assert list(y) == ["a"] * len(rows)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["rows", "rows.csv", "rows.data.xz"])
def test_compressed_text_is_read_whatever_its_name(
    put: Put, compress: Callable[[bytes], bytes], name: str
) -> None:
    X, y, names = datasets.read(put(compress(b"a,b,kind\n1,2,x\n3,4.5,y\n"), name))
    assert np.array_equal(X, [[1, 2], [3, 4.5]])
    assert y is not None
    assert list(y) == ["x", "y"]
    assert names == ["a", "b"]


def test_a_libsvm_file_is_known_by_its_contents_and_stays_sparse(put: Put) -> None:
    X, y, names = datasets.read(put("# comment\n+1 2:0.5\n-1 7:1 9:2\n", "a9a"))
    assert sp.issparse(X)
    assert X.shape == (2, 9)
    assert X.indices.dtype == np.int32
    assert X[0, 1] == 0.5
    assert X[1, 8] == 2
    assert names is None
    assert y is not None
    assert y.dtype == np.int64
    assert list(y) == [1, -1]


def test_a_full_libsvm_file_becomes_dense_unless_told_not_to(put: Put) -> None:
    path = put("1 1:3 2:4\n2 1:5 2:6\n", "rows.svm")
    assert np.array_equal(datasets.read(path).X, [[3, 4], [5, 6]])
    assert sp.issparse(datasets.read(path, dense=False).X)


def test_a_libsvm_file_that_counts_from_zero_is_refused_until_it_is_said(put: Put) -> None:
    path = put("1 1:1\n2 0:5 1:6\n", "rows.svm")
    assert "line 2: feature number 0" in complaint(path)
    assert np.array_equal(datasets.read(path, zero_based=True, dense=True).X, [[0, 1], [5, 6]])


def test_an_unknown_label_costs_no_row(put: Put) -> None:
    path = put("0 1:1 2:2\n0 1:3 2:4\n", "rows.svm")
    assert datasets.read(path, label=None).y is None
    assert datasets.read(path, label=None).X.shape == (2, 2)


def test_libsvm_rows_may_use_fewer_features_than_expected_but_not_more(put: Put) -> None:
    path = put("1 1:1\n2 4:1\n", "rows.svm")
    assert datasets.read(path, n_features=6).X.shape == (2, 6)
    assert "line 2: feature number 4, but only 3" in complaint(path, n_features=3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("spam 1:1", "label 'spam' is not a finite number"),
        ("1:1 2:3", "the label is missing"),
        ("1 1:1 3:x", "value 'x' of feature 3"),
        ("1 1:1 3:nan", "value 'nan' of feature 3"),
        ("1 1:1 3:-inf", "value '-inf' of feature 3"),
        ("nan 1:1", "label 'nan'"),
        ("1 2:1 1:1", "1 comes after 2"),
        ("1 2:1 2:1", "2 comes after 2"),
        ("1 2=1", "'2=1' is not of the form number:value"),
        ("1 99999999999:1", "line 5000"),
    ],
)
def test_the_first_bad_libsvm_line_is_named(put: Put, line: str, reason: str) -> None:
    good = ["1 1:1 2:0.5 # comment", "-1 2:3"] * 5000
    text = complaint(put("\n".join([*good[:4999], line, *good, line]), "rows.svm"))
    assert "line 5000" in text
    assert reason in text


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 5000), st.integers(1, 5000))
def test_the_search_for_a_bad_line_finds_the_first(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int
) -> None:
    path = tmp_path_factory.mktemp("svm") / "rows.svm"
    path.write_text("1 1:1\n" * before + "1 1:oops\n" * 2 + "\n" * after)
    assert f"line {before + 1}:" in complaint(path)


def test_libsvm_files_written_by_scikit_learn_come_back(tmp_path: Path) -> None:
    X = sp.random(40, 30, density=0.2, random_state=0, format="csr")
    y = np.arange(40) % 3
    dump_svmlight_file(X, y, str(tmp_path / "rows"), zero_based=False)
    back = datasets.read(tmp_path / "rows", n_features=30)
    assert np.allclose(back.X.toarray(), X.toarray(), rtol=1e-12)
    assert np.array_equal(back.y, y)


@pytest.mark.parametrize(
    ("label", "labels", "names"),
    [
        ("last", [0, 1], ["a"]),
        ("kind", ["x", "y"], ["a", "b"]),
        (1, [1.5, 2.5], ["b"]),
        (-3, ["x", "y"], ["a", "b"]),
    ],
)
def test_the_label_is_the_last_column_or_the_one_that_is_named(
    put: Put, label: str | int, labels: list, names: list[str]
) -> None:
    data = datasets.read(put("kind,a,b\nx,1.5,0\ny,2.5,1\n"), label=label, columns=names)
    assert data.y is not None
    assert list(data.y) == labels
    assert data.feature_names == names


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1,2,x\n3,4,y\n", 2),  # text only in the last column
        ("a,b,c\n1,2,x\n", 1),  # nothing but names
        ("1,2,c\n1,2,3\n", 1),  # a name above a number
        ("0,1,2,kind\n5,6,7,x\n", 1),  # nameless columns of pandas
        ("1,2,3\n", 1),
        ("a;b;c\r\n1;2;x\r\n", 1),
        ("a\tb\tc\n\n1\t2\tx\n\n", 1),
        ("\ufeffa,b,c\n1,2,x", 1),
        ('"a","b ""2""",c\n1,2,"x\ny"\n1,2,z\n', 2),
    ],
)
def test_the_line_of_names_is_told_from_the_first_row(put: Put, text: str, rows: int) -> None:
    assert datasets.read(put(text)).X.shape[0] == rows


def test_columns_are_found_by_name_in_any_order_and_others_are_left_out(put: Put) -> None:
    path = put("id,b,note,a\n7,1,free text,2\n8,3,,4\n")
    X, y, names = datasets.read(path, label=None, columns=["a", "b"])
    assert np.array_equal(X, [[2, 1], [4, 3]])
    assert y is None
    assert names == ["a", "b"]
    assert "no column 'c'" in complaint(path, label=None, columns=["a", "c"])


def test_columns_without_names_are_taken_by_position(put: Put) -> None:
    path = put("1,2\n3,4\n")
    assert datasets.read(path, label=None, columns=["a", "b"]).X.shape == (2, 2)
    assert "2 feature columns, but 3" in complaint(path, label=None, columns=["a", "b", "c"])


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("oops", "'oops' is not a finite number"), ("", "empty"), ("nan", "'nan'"), ("inf", "'inf'")],
)
@pytest.mark.parametrize("head", ["a,b,kind\n", ""])
def test_a_bad_cell_is_named_by_line_and_column(
    put: Put, cell: str, reason: str, head: str
) -> None:
    text = complaint(put(f"{head}1,2,x\n\n3,{cell},y\n4,bad,z\n"), header=bool(head))
    assert f"line {4 if head else 3}, column {repr('b') if head else 2}: " in text
    assert reason in text


def test_a_bad_record_of_several_lines_is_named_by_its_first(put: Put) -> None:
    text = complaint(put('a,b,kind\n1,2,x\n3,oops,"y\nz"\n'))
    assert "line 3, column 'b'" in text


@pytest.mark.parametrize("row", ["1,2", "1,2,3,4"])
def test_a_row_of_another_width_is_named_by_line(put: Put, row: str) -> None:
    text = complaint(put(f'a,b,kind\n1,2,"x\ny"\n{row}\n'))
    assert f"line 4: {row.count(',') + 1} columns" in text


@pytest.mark.parametrize("cell", ["", " ", "nan"])
def test_a_missing_label_is_named_by_line(put: Put, cell: str) -> None:
    assert "line 3, column 'y': the label is missing" in complaint(put(f"a,y\n1,2\n3,{cell}\n"))


def test_bytes_that_are_not_text_are_named_by_line(put: Put) -> None:
    assert "line 3, column 'a'" in complaint(put(b"a,y\n1,2\n\xff,3\n"))
    assert "line 3, column 'y': the label is not UTF-8" in complaint(put(b"a,y\n1,2\n2,\xff\n"))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1,1\n1,2\n", [1, 2]),
        ("1,1.0\n1,2.0\n", [1, 2]),
        ("1,1\n1,2.5\n", [1.0, 2.5]),
        ("1,1\n1,b\n", ["1", "b"]),
        ("1, b\n1,b \n", ["b", "b"]),
        ("1,2020-01-01\n1,true\n", ["2020-01-01", "true"]),
    ],
)
def test_labels_are_whole_numbers_numbers_or_text(put: Put, text: str, labels: list) -> None:
    y = datasets.read(put(text), header=False).y
    assert y is not None
    assert list(y) == labels
    assert {type(label) for label in y.tolist()} == {type(label) for label in labels}


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("", "rows.csv", "empty"),
        ("\n\n", "rows.csv", "no rows"),
        ("a,b\n", "rows.csv", "no rows"),
        ("y\nx\n", "rows.csv", "no features"),
        ("1\n2\n", "rows.svm", "no features"),
        ("# nothing\n", "rows.svm", "no rows"),
        (",a,y\n0,1,x\n", "rows.csv", "index=False"),
        ("a,a,y\n0,1,x\n", "rows.csv", "two columns are called 'a'"),
        (b"not parquet", "rows.parquet", "not a Parquet file"),
        (gzip.compress(b"1,2\n" * 999, mtime=0)[:-9], "rows.csv.gz", "cut short or damaged"),
        (lzma.compress(b"1 1:2\n" * 999)[:-9], "rows.svm.xz", "cut short or damaged"),
    ],
)
def test_a_file_without_rows_or_features_is_refused(
    put: Put, text: str | bytes, name: str, reason: str
) -> None:
    assert reason in complaint(put(text, name))


def test_a_missing_file_or_label_column_is_named(put: Put, tmp_path: Path) -> None:
    assert "no such file" in complaint(tmp_path / "absent.csv")
    assert "no such file" in complaint(tmp_path / "absent.parquet")
    path = put("a,b\n1,2\n")
    assert "no column 'c' for the labels (columns: a, b)" in complaint(path, label="c")
    assert "position 2" in complaint(path, label=2)
    assert "position -3" in complaint(path, label=-3)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([pa.float32(), pa.float32()], np.float32),
        ([pa.float32(), pa.float64()], np.float64),
        ([pa.int8(), pa.bool_()], np.float32),
        ([pa.int64(), pa.float32()], np.float64),
        ([pa.float16(), pa.float32()], np.float32),
        ([pa.decimal128(22, 2), pa.float32()], np.float64),
    ],
)
def test_parquet_stays_in_single_precision_where_nothing_is_lost(
    tmp_path: Path, types: list[pa.DataType], expected: type
) -> None:
    columns = [pa.array([1, 0, 1]).cast(kind) for kind in types]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table([*columns, pa.array(["x", "y", "x"])], names=["a", "b", "y"]), path)
    X, y, names = datasets.read(path)
    assert X.dtype == expected
    assert np.array_equal(X, [[1, 1], [0, 0], [1, 1]])
    assert y is not None
    assert list(y) == ["x", "y", "x"]
    assert names == ["a", "b"]


def test_parquet_labels_may_be_categories_or_booleans(tmp_path: Path) -> None:
    table = pa.table(
        {"a": [1.0, 2.0], "b": pa.array(["x", "y"]).dictionary_encode(), "c": [True, False]}
    )
    pq.write_table(table, tmp_path / "rows")
    assert list(datasets.read(tmp_path / "rows", label="b", columns=["a"]).y) == ["x", "y"]
    assert datasets.read(tmp_path / "rows", label="c", columns=["a"]).y.dtype == bool


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([1.0, None]), "row 2, column 'a'"),
        (pa.array([1.0, float("nan")]), "row 2, column 'a'"),
        (pa.array([float("inf"), 1.0]), "row 1, column 'a'"),
        (pa.array([1, None]), "row 2, column 'a'"),
        (pa.array(["x", "y"]), "column 'a': string is not a type of number"),
    ],
)
def test_a_bad_parquet_cell_is_named_by_row_and_column(
    tmp_path: Path, column: pa.Array, reason: str
) -> None:
    pq.write_table(pa.table({"a": column, "y": [0, 1]}), tmp_path / "rows.parquet")
    assert reason in complaint(tmp_path / "rows.parquet")


def test_a_missing_parquet_label_is_named_by_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": ["x", None]}), tmp_path / "rows.parquet")
    assert "row 2, column 'y'" in complaint(tmp_path / "rows.parquet")


def test_column_names_are_known_without_reading_the_rows(put: Put) -> None:
    assert datasets.column_names(put("a,b\n1,oops\n")) == ["a", "b"]
    assert datasets.column_names(put("1,2\n")) is None
    assert datasets.column_names(put("1 1:2\n", "rows.svm")) is None
