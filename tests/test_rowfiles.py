"""Rows in files: the same numbers as the whole matrix, in bounded memory."""

import decimal
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimargin import open_rows
from optimargin.datafile import DataFileError
from optimargin.rowparts import RowGroup

KINDS = ("npy", "parquet")
TYPES = {
    "float32": [np.float32, np.float16, np.int16, np.uint8, np.bool_],
    "float64": [np.float64, np.int32, np.int64, np.dtype(">f8")],
}


def names(width):
    return [f"x{j}" for j in range(width)]


def put(folder, blocks, kind, group=3, order="C"):
    """Write each matrix to a file of its own; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, X in enumerate(blocks):
        if kind == "npy":
            np.save(folder / f"part-{k:03}.npy", np.asarray(X, order=order))
        else:
            native = np.asarray(X).astype(X.dtype.newbyteorder("="))
            table = pa.table(dict(zip(names(X.shape[1]), native.T, strict=True)))
            pq.write_table(table, folder / f"part-{k:03}.parquet", row_group_size=group)
    return folder


def complaint(error, path, *arguments, **settings):
    """What is said of a bad file: one line that names it."""
    with pytest.raises(error) as caught:
        open_rows(*arguments, **settings).checked()
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert text.endswith(".")
    return text


@st.composite
def matrices(draw):
    """Matrices for one folder, from a seed; some have no rows."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any))
    width = draw(st.integers(1, 5))
    kinds = draw(st.sampled_from([*TYPES.values(), [*TYPES["float32"], *TYPES["float64"]]]))
    return [
        rng.integers(0, 100, size=(n, width)).astype(draw(st.sampled_from(kinds))) for n in sizes
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(blocks=matrices(), data=st.data())
def test_every_slice_and_sample_is_that_of_the_whole_matrix(tmp_path_factory, kind, blocks, data):
    order, group = data.draw(st.sampled_from("CF")), data.draw(st.integers(1, 10))
    width = blocks[0].shape[1]
    columns = data.draw(st.permutations(range(width)))[: data.draw(st.integers(1, width))]
    features = data.draw(st.sampled_from([None, columns]))
    if features is not None and kind == "parquet":
        features = [f"x{j}" for j in columns]
    whole = np.concatenate(blocks).astype(np.float64)
    whole = whole if features is None else whole[:, columns]

    folder = put(tmp_path_factory.mktemp("rows") / "of", blocks, kind, group, order)
    rows = open_rows(folder, features=features).checked()
    assert rows.shape == whole.shape
    assert len(rows) == len(whole)
    assert rows.ndim == 2
    small = all(block.dtype in TYPES["float32"] for block in blocks)
    assert rows.dtype == (np.float32 if small else np.float64)

    ends = st.none() | st.integers(-len(whole) - 2, len(whole) + 2)
    index = data.draw(st.lists(st.integers(-len(whole), len(whole) - 1), max_size=20))
    for key in (slice(data.draw(ends), data.draw(ends)), slice(None), np.array(index, int)):
        found = rows[key]
        assert found.dtype == rows.dtype
        assert found.flags.c_contiguous
        assert found.flags.writeable
        np.testing.assert_array_equal(found, whole[key])
    np.testing.assert_array_equal(rows[index], found)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_a_column_apart(tmp_path, kind):
    X = np.arange(40.0).reshape(10, 4)
    X[:, 1] = np.arange(10) % 3
    folder = put(tmp_path, [X[:4], X[4:]], kind)
    rows = open_rows(folder, label={"npy": -3, "parquet": "x1"}[kind])
    np.testing.assert_array_equal(rows.y, X[:, 1])
    assert rows.y.dtype == np.int64
    assert rows.y is rows.y
    np.testing.assert_array_equal(rows[:], X[:, [0, 2, 3]])
    assert rows.feature_names == {"npy": None, "parquet": ["x0", "x2", "x3"]}[kind]
    assert open_rows(folder).y is None
    few = {"npy": {"label": 1, "features": [3]}, "parquet": {"label": "x1", "features": ["x3"]}}
    picked = open_rows(folder, **few[kind])
    np.testing.assert_array_equal(picked[2:7], X[2:7, [3]])


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array(["b", "a", "b"]), ["b", "a", "b"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
        (pa.array([True, False, True]), [True, False, True]),
        (pa.array([1.5, 2.0, 1.5]), [1.5, 2.0, 1.5]),
        (pa.array([decimal.Decimal("1.0"), decimal.Decimal("2.0"), None][:2] * 2)[:3], [1, 2, 1]),
    ],
)
def test_parquet_labels_may_be_text_or_numbers(tmp_path, column, wanted):
    for part in range(2):
        pq.write_table(pa.table({"y": column, "a": [1, 2, 3]}), tmp_path / f"{part}.pq")
    y = open_rows(tmp_path, label="y").y
    assert y.tolist() == wanted * 2
    assert y.dtype.kind == {str: "O", bool: "b", float: "f", int: "i"}[type(wanted[0])]


def test_a_full_dictionary_has_room_for_a_missing_label(tmp_path):
    codes = pa.array([*range(128), None], pa.int8())
    texts = pa.array([f"kind {k}" for k in range(128)])
    table = pa.table({"y": pa.DictionaryArray.from_arrays(codes, texts), "x": range(129)})
    pq.write_table(table, tmp_path / "0.parquet")
    with pytest.raises(DataFileError, match="row 129: the label is missing"):
        _ = open_rows(tmp_path, label="y").y
    pq.write_table(table[:128], tmp_path / "0.parquet")
    assert open_rows(tmp_path, label="y").y.tolist() == texts.to_pylist()


def test_foreign_byte_orders_end_in_the_files(tmp_path):
    rows = open_rows(put(tmp_path, [np.full((3, 2), 0.5, dtype=">f8")], "npy"), label=1)
    assert rows.y.dtype.isnative
    assert rows[:].dtype.isnative


def test_columns_of_parquet_files_are_found_by_name(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [2], "__index_level_0__": [7]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": [4], "a": [3]}), tmp_path / "1.parquet")
    np.testing.assert_array_equal(open_rows(tmp_path)[:], [[1, 2], [3, 4]])
    pq.write_table(pa.table({"c": ["?"], "b": [6]}), tmp_path / "2.parquet")
    np.testing.assert_array_equal(open_rows(tmp_path, features=["b"])[:], [[2], [4], [6]])


def test_decimals_and_booleans_are_numbers_and_a_missing_one_is_found(tmp_path):
    values = [decimal.Decimal("1.5"), decimal.Decimal("2.5")]
    pq.write_table(pa.table({"a": values, "b": [True, False]}), tmp_path / "0.parquet")
    np.testing.assert_array_equal(open_rows(tmp_path)[:], [[1.5, 1], [2.5, 0]])
    pq.write_table(pa.table({"a": values, "b": [True, None]}), tmp_path / "1.parquet")
    text = complaint(DataFileError, tmp_path / "1.parquet", tmp_path)
    assert "row 2, column 'b'" in text


def test_a_file_and_a_list_of_files_will_do(tmp_path, monkeypatch):
    X = np.arange(12.0).reshape(6, 2)
    put(tmp_path, [X[:2], X[2:]], "npy")
    for other in ("_SUCCESS", "._part-000.npy", "_old.npy", "notes.txt"):
        (tmp_path / other).write_text("?")
    first, second = tmp_path / "part-000.npy", tmp_path / "part-001.npy"
    np.testing.assert_array_equal(open_rows(str(second))[:], X[2:])
    np.testing.assert_array_equal(open_rows([second, str(first)])[:], np.r_[X[2:], X[:2]])
    assert repr(open_rows(first)) == "RowFiles(1 file, 2 x 2, float64)"
    monkeypatch.chdir(tmp_path)
    rows = open_rows(".")
    assert repr(rows) == "RowFiles(2 files, 6 x 2, float64)"
    monkeypatch.chdir(tmp_path.parent)
    np.testing.assert_array_equal(rows[:], X)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_survive_pickling(tmp_path, kind):
    X = np.arange(20.0).reshape(10, 2)
    rows = open_rows(put(tmp_path, [X], kind), label={"npy": 1, "parquet": "x1"}[kind])
    assert rows[4:5].shape == (1, 1)
    copy = pickle.loads(pickle.dumps(rows))
    assert repr(copy) == repr(rows)
    assert copy.feature_names == rows.feature_names
    np.testing.assert_array_equal(copy[:], rows[:])
    np.testing.assert_array_equal(copy.y, rows.y)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_read_at_once(tmp_path, kind):
    X = np.random.default_rng(0).normal(size=(600, 3))
    rows = open_rows(
        put(tmp_path, np.split(X, 4), kind, group=50), label={"npy": 2, "parquet": "x2"}[kind]
    )

    def look(seed):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            a, b = np.sort(rng.integers(0, 601, size=2))
            index = rng.integers(0, 600, size=30)
            np.testing.assert_array_equal(rows[a:b], X[a:b, :2])
            np.testing.assert_array_equal(rows[index], X[index, :2])
        return rows.y

    with ThreadPoolExecutor(8) as pool:
        labels = list(pool.map(look, range(16)))
    assert all(y is labels[0] for y in labels)


def test_a_row_group_is_read_once_by_a_sample_and_by_slices_in_turn(tmp_path, monkeypatch):
    X = np.arange(60.0).reshape(30, 2)
    rows = open_rows(put(tmp_path, [X], "parquet", group=10))
    read, asked = RowGroup.read, []

    def counted(group, *arguments):
        asked.append(group.group)
        return read(group, *arguments)

    monkeypatch.setattr(RowGroup, "read", counted)
    rows[[29, 0, 15, 1, 28, 16, 2]]
    assert asked == [0, 1, 2]
    for a in range(0, 30, 4):
        rows[a : a + 4]
    assert asked == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_that_of_the_block_asked_for(tmp_path, kind):
    X = np.random.default_rng(0).normal(size=(60_000, 20))
    rows = open_rows(put(tmp_path, np.split(X, 6), kind, group=2_000))
    rows[:1]
    tracemalloc.start()
    before, most = pa.total_allocated_bytes(), 0
    for a in range(0, len(X), 1_500):
        rows[a : a + 1_500]
        most = max(most, pa.total_allocated_bytes() - before)
    rows[np.arange(0, len(X), 50)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= X.nbytes / 8
    assert most <= X.nbytes / 8


RESIDENT = """
import sys
import numpy as np, psutil
from optimargin import open_rows

rows = open_rows(sys.argv[1], label=-1)
rows[:1]

def resident():
    return psutil.Process().memory_info().rss

before, most = resident(), 0
for a in range(0, len(rows), 20_000):
    rows[a : a + 20_000]
    most = max(most, resident() - before)
rows[np.arange(0, len(rows), 40)]
rows.y
rows.checked()
print(max(most, resident() - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is counted as Linux does")
def test_touched_pages_of_a_file_do_not_stay(tmp_path):
    X = np.zeros((1_000_000, 16), dtype=np.float32)
    put(tmp_path, [X], "npy")
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= X.nbytes / 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (slice(0, 4, 2), "step 1, got 2"),
        (slice(None, None, -1), "step 1, got -1"),
        (3, "a slice or by a one-dimensional array of integers"),
        ((1, 2), "a slice or by a one-dimensional array of integers"),
        (np.array([True] * 5), "a slice or by a one-dimensional array of integers"),
        ([0.5], "a slice or by a one-dimensional array of integers"),
        ([[0, 1]], "a slice or by a one-dimensional array of integers"),
        ([0, 5], "row 5 is out of range, there are 5 rows"),
        ([-6], "row -6 is out of range"),
    ],
)
def test_other_ways_to_take_rows_are_refused(tmp_path, kind, key, sentence):
    rows = open_rows(put(tmp_path, [np.ones((5, 2))], kind))
    with pytest.raises(IndexError, match=sentence):
        rows[key]


def test_rows_are_not_taken_into_memory_unasked(tmp_path):
    rows = open_rows(put(tmp_path, [np.ones((5, 2))], "npy"))
    with pytest.raises(TypeError, match=r"read in blocks.*rows\[:\].*80 bytes"):
        np.asarray(rows)
    with pytest.raises(TypeError, match="iterable"):
        list(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_checked_names_the_file_and_the_row(tmp_path, kind, value):
    X = np.ones((20, 3))
    X[14, 2] = value
    put(tmp_path, [X[:7], X[7:]], kind)
    column = {"npy": "column 3", "parquet": "column 'x2'"}[kind]
    path = tmp_path / f"part-001.{kind}"
    text = complaint(ValueError, path, tmp_path)
    assert f"{path}, row 8, {column}: the value is missing or not finite." == text
    label = {"npy": 2, "parquet": "x2"}[kind]
    rows = open_rows(tmp_path, label=label).checked()
    with pytest.raises(DataFileError, match="row 8: the label is missing or not finite") as caught:
        _ = rows.y
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("missing", [None, "", " NaN"])
def test_missing_text_labels_are_refused(tmp_path, missing):
    pq.write_table(pa.table({"y": ["a", "b", missing], "x": [1, 2, 3]}), tmp_path / "0.parquet")
    with pytest.raises(DataFileError, match=r"0\.parquet, row 3: the label is missing"):
        _ = open_rows(tmp_path, label="y").y


def test_folders_without_use_are_refused(tmp_path):
    assert "no .npy or Parquet files" in complaint(DataFileError, tmp_path, tmp_path)
    absent = tmp_path / "absent.npy"
    assert "no such file" in complaint(DataFileError, absent, absent)
    assert "must end in .npy" in complaint(DataFileError, tmp_path / "no", tmp_path / "no")
    assert "no .npy or Parquet files" in complaint(DataFileError, "", [])
    for kind in KINDS:
        folder = put(tmp_path / kind, [np.ones((0, 2))], kind)
        assert "the file has no rows" in complaint(DataFileError, folder, folder)
        put(tmp_path, [np.ones((2, 2))], kind)
    text = complaint(DataFileError, tmp_path / "part-000.parquet", tmp_path)
    assert "a Parquet file, but" in text
    assert "is a .npy file" in text


@pytest.mark.parametrize("kind", KINDS)
def test_different_numbers_of_columns_are_refused(tmp_path, kind):
    put(tmp_path, [np.ones((2, 3)), np.ones((2, 4))], kind)
    text = complaint(DataFileError, tmp_path / f"part-001.{kind}", tmp_path)
    assert "4 columns, but" in text
    assert "part-000" in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [0, 3, 100, 900])
def test_files_cut_short_are_refused(tmp_path, kind, left):
    put(tmp_path, [np.random.default_rng(0).normal(size=(100, 3))] * 2, kind)
    path = tmp_path / f"part-001.{kind}"
    path.write_bytes(path.read_bytes()[:left])
    assert "damaged" in complaint(DataFileError, path, tmp_path)


def test_damage_found_while_reading_names_the_file(tmp_path):
    put(tmp_path, [np.random.default_rng(0).normal(size=(1000, 3))], "parquet", group=1000)
    path = tmp_path / "part-000.parquet"
    bytes_ = bytearray(path.read_bytes())
    bytes_[4:2000] = b"\xff" * 1996
    rows = open_rows(path)
    path.write_bytes(bytes_)
    for _ in range(2):  # the failure is not kept
        with pytest.raises(DataFileError, match=r"part-000\.parquet: not a Parquet file"):
            rows[:2]
    path.unlink()
    with pytest.raises(DataFileError, match="no such file"):
        rows[:2]


def test_files_that_change_name_themselves(tmp_path):
    for other in (np.ones((8, 2)), np.ones((6, 2)), np.ones((9, 1))):
        rows = open_rows(put(tmp_path / "a", [np.ones((9, 2))], "parquet"))
        put(tmp_path / "a", [other], "parquet")
        with pytest.raises(DataFileError, match=r"part-000\.parquet: the file has changed"):
            rows[:]
    rows = open_rows(put(tmp_path / "b", [np.ones((9, 2))], "npy"))
    put(tmp_path / "b", [np.ones((8, 2))], "npy")
    with pytest.raises(DataFileError, match=r"part-000\.npy: not a \.npy file.*damaged"):
        rows[:]


def test_what_is_not_a_number_is_refused(tmp_path):
    path = tmp_path / "rows.npy"
    for array, sentence in (
        (np.ones(3), "must have 2 dimensions, it has 1"),
        (np.ones((2, 2), complex), "complex128 is no type of number"),
        (np.array([["a"]]), "<U1 is no type of number"),
        (np.array([[None]], dtype=object), "not a .npy file of numbers"),
        (np.ones((3, 0)), "no column is left for the features"),
    ):
        np.save(path, array)
        assert sentence in complaint(DataFileError, path, path)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1], "b": ["x"], "c": [[1]]}), path)
    assert "column 'b': text is no type of number" in complaint(DataFileError, path, path)
    text = complaint(DataFileError, path, path, label="c", features=["a"])
    assert "column 'c': list<" in text
    assert "is no type of label" in text


def test_parquet_files_that_do_not_agree_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "0.parquet")
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a": [1], "c": [2]}), path)
    assert "no column 'b', which" in complaint(DataFileError, path, tmp_path)
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), path)
    assert "text in all files or in none" in complaint(DataFileError, path, tmp_path, label="b")
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), path)
    assert "two columns have the same name" in complaint(DataFileError, path, path)


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        ("npy", {"label": "x1"}, "label must call columns of .npy files by number, got 'x1'"),
        ("npy", {"features": [0.5]}, "features must call columns of .npy files by number"),
        ("npy", {"label": 3}, r"part-000.npy: label: no column 3 \(there are 3\)"),
        ("npy", {"features": [-4]}, r"part-000.npy: features: no column -4 \(there are 3\)"),
        ("npy", {"label": -1, "features": [2]}, "features must not hold the label's column, -1"),
        ("npy", {"features": [0, -3]}, "features must not hold a column twice"),
        ("npy", {"features": []}, "no column is left for the features"),
        ("parquet", {"label": 1}, "label must call columns of Parquet files by name, got 1"),
        ("parquet", {"label": "y"}, r"label: no column 'y' \(columns: x0, x1, x2\)"),
        ("parquet", {"features": ["y"]}, "part-000.parquet: features: no column 'y'"),
        ("parquet", {"features": "x1"}, "features must be a list of columns or None"),
    ],
)
def test_arguments_without_a_column_are_refused(tmp_path, kind, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        open_rows(put(tmp_path, [np.ones((2, 3))], kind), **settings)


def test_the_package_says_what_parquet_needs(tmp_path, monkeypatch):
    put(tmp_path, [np.ones((2, 3))], "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install 'optimargin\[cli\]'"):
        open_rows(tmp_path)
