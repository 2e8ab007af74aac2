"""Rows of a DataFrame are dealt to parts where they are: each once, evenly, the same every time."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from optimargin.engines.dealing import BadRow, Deal, Names, _chunks, rows_of
from optimargin.kernels import RBF
from optimargin.partition import make_strata

pa = pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
N, D, PARTS = 500, 4, 3
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.7)
y = np.where(RNG.random(N) < 0.3, 1.0, -1.0)
WEIGHT = RNG.uniform(0.5, 2.0, size=N)


def deal(**changes):
    given = Deal(
        Names("features", "label", "weight", None),
        D,
        is_sparse=False,
        dtype=np.dtype("float64"),
        classes=2,
        parts=PARTS,
        seed=0,
        how="stratified",
        near=make_strata(X, RBF(0.5), 5),
    )
    return given._replace(**changes)


def vectors(matrix, dense):
    """Vectors as Spark hands them over, of either kind."""
    rows = []
    for row, is_dense in zip(matrix, dense, strict=True):
        places = np.flatnonzero(row)
        if is_dense:
            rows.append({"type": 1, "size": None, "indices": None, "values": row.tolist()})
        else:
            values = row[places].tolist()
            rows.append({"type": 0, "size": D, "indices": places.tolist(), "values": values})
    kind = [("type", pa.int8()), ("size", pa.int32())]
    kind += [("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
    return pa.array(rows, pa.struct(kind))


def batches(size=120, features=None, **columns):
    features = pa.array(list(X)) if features is None else features
    given = {"features": features, "label": pa.array(y), "weight": pa.array(WEIGHT), **columns}
    return pa.table(given).to_batches(max_chunksize=size)


def received(given, found):
    """What every part receives; a complaint is an error."""
    parts = {}
    for part, blob in _chunks(given, 0, found):
        chunk = pickle.loads(blob)
        if isinstance(chunk, str):
            raise BadRow(chunk)
        parts.setdefault(part, []).append(chunk)
    return parts


@pytest.mark.parametrize("how", ["stratified", "random"])
def test_every_row_goes_somewhere_once_and_parts_are_alike(how):
    given = deal() if how == "stratified" else deal(how=how, near=None)
    parts = received(given, batches())
    rows = {k: np.vstack([chunk.X for chunk in chunks]) for k, chunks in parts.items()}
    labels = {k: np.concatenate([chunk.y for chunk in chunks]) for k, chunks in parts.items()}
    weights = np.concatenate([c.weight for k in sorted(parts) for c in parts[k]])
    both = np.column_stack([np.vstack([rows[k] for k in sorted(rows)]), weights])
    expected = np.column_stack([X, WEIGHT])
    np.testing.assert_array_equal(both[both[:, -1].argsort()], expected[WEIGHT.argsort()])
    assert sorted(rows) == list(range(PARTS))
    cells = 10 if how == "stratified" else 1
    sizes = [len(block) for block in rows.values()]
    assert max(sizes) - min(sizes) <= cells
    if how == "stratified":
        for stratum in range(5):
            counts = [np.count_nonzero(given.near.numbers(r) == stratum) for r in rows.values()]
            assert max(counts) - min(counts) <= 2  # one for each class
        positive = [np.count_nonzero(own > 0) for own in labels.values()]
        assert max(positive) - min(positive) <= 5  # one for each stratum


def test_the_same_seed_deals_the_same():
    first, again = (list(_chunks(deal(), 2, batches())) for _ in range(2))
    assert first == again
    assert first != list(_chunks(deal(seed=1), 2, batches()))
    orders = [pickle.loads(blob).order for _, blob in first]
    assert orders == [(2, j) for j in range(len(orders))]


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_vectors_of_any_kind_are_rows(kind, is_sparse):
    dense = {"dense": np.ones(N, bool), "sparse": np.zeros(N, bool), "mixed": X[:, 0] > 0}[kind]
    whole = vectors(X, dense)
    for column, rows in ((whole, X), (whole.slice(17, 100), X[17:117])):
        found = rows_of(column, deal(is_sparse=is_sparse))
        assert sp.issparse(found) == is_sparse
        np.testing.assert_array_equal(found.toarray() if is_sparse else found, rows)


def test_arrays_that_begin_in_the_middle_are_rows():
    column = pa.array(list(X.astype(np.float32))).slice(30, 50)
    found = rows_of(column, deal(dtype=np.dtype("float32")))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X[30:80].astype(np.float32))


def test_parts_of_ones_own():
    own = RNG.integers(-1, PARTS, size=N)
    given = deal(names=Names("features", "label", "weight", "part"), near=None)
    parts = received(given, batches(part=pa.array(own)))
    for k in range(PARTS):
        found = np.concatenate([chunk.weight for chunk in parts[k]])
        np.testing.assert_array_equal(np.sort(found), np.sort(WEIGHT[own == k]))
    with pytest.raises(BadRow, match=r"part: column 'part' holds .*numbers go up to 2"):
        received(given, batches(part=pa.array(own + 1)))


def test_clusters_may_be_the_parts():
    middles = X[:PARTS].copy()
    parts = received(deal(how="kmeans", near=middles), batches())
    for k, chunks in parts.items():
        rows = np.vstack([chunk.X for chunk in chunks])
        away = ((rows[:, None] - middles) ** 2).sum(axis=2)
        np.testing.assert_array_equal(away.argmin(axis=1), k)


def test_classes_are_numbers_where_there_are_more_than_two():
    labels = pa.array(RNG.integers(0, 3, size=N).astype(float))
    parts = received(deal(classes=3), batches(label=labels))
    assert {int(v) for chunks in parts.values() for c in chunks for v in c.y} == {0, 1, 2}
    for wrong in (3.0, 0.5, -1.0):
        bad = labels.to_numpy(zero_copy_only=False).copy()
        bad[7] = wrong
        with pytest.raises(BadRow, match="the labels of 3 classes are 0 to 2"):
            received(deal(classes=3), batches(label=pa.array(bad)))


def test_a_complaint_ends_the_partition():
    bad = X.copy()
    bad[200, 1] = np.nan
    found = list(_chunks(deal(), 0, batches(features=pa.array(list(bad)))))
    part, blob = found[-1]
    assert part == 0
    assert "features: column 'features' holds NaN" in pickle.loads(blob)
