"""Partitions: each row once, equal shares of what should be equal, and the seed decides."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optimargin.kernels import RBF, Linear
from optimargin.partition import (
    PARTITIONS,
    cells,
    centres,
    clusters,
    deal,
    make_strata,
    partition,
    sorted_by,
    strata,
)
from optimargin.threads import blas_threads
from strategies import datasets

EVEN = [kind for kind in PARTITIONS if kind != "kmeans"]
KERNELS = [Linear(), RBF(0.5)]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 5)) + 3.0 * RNG.integers(0, 3, size=(500, 1))
y = np.where(X[:, 0] + RNG.normal(size=500) > 2.0, 1.0, -1.0)


def parted(kind, X, y, count, seed=0, kernel=KERNELS[0], n_strata=8):
    return partition(kind, X, y, count, np.random.default_rng(seed), kernel, n_strata)


@settings(max_examples=60)
@given(
    datasets(most=60),
    st.sampled_from(PARTITIONS),
    st.integers(1, 9),
    st.integers(1, 12),
    st.sampled_from(KERNELS),
    st.integers(0, 99),
)
def test_every_row_is_in_one_part(data, kind, count, n_strata, kernel, seed):
    X, y = data
    count = min(count, len(y))
    part = parted(kind, X, y, count, seed, kernel, n_strata)
    assert part.shape == y.shape
    assert part.min() >= 0
    assert part.max() < count
    sizes = np.bincount(part, minlength=count)
    assert sizes.sum() == len(y)
    if kind in EVEN:
        assert sizes.max() - sizes.min() <= 1


@settings(max_examples=40)
@given(
    datasets(most=60),
    st.sampled_from(["stratified", "kmeans-strata"]),
    st.integers(2, 9),
    st.sampled_from(KERNELS),
    st.integers(0, 99),
)
def test_parts_have_equal_shares_of_every_class_and_stratum(data, kind, count, kernel, seed):
    X, y = data
    part = parted(kind, X, y, count, seed, kernel)
    cell = cells(kind, X, y, np.random.default_rng(seed), kernel, 8)
    for number in np.unique(cell):
        assert set(np.unique(y[cell == number])) in ({1.0}, {-1.0})
        shares = np.bincount(part[cell == number], minlength=count)
        assert shares.max() - shares.min() <= 1
    for label in (-1.0, 1.0):  # a run of cells, so they make up for each other
        shares = np.bincount(part[y == label], minlength=count)
        assert shares.max() - shares.min() <= 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(1, 12))
def test_deals_are_even_in_every_cell_and_in_all(cell, count):
    cell = np.array(cell)
    part = deal(cell, count, np.random.default_rng(0))
    for chosen in [cell == number for number in np.unique(cell)] + [cell >= 0]:
        shares = np.bincount(part[chosen], minlength=count)
        assert shares.max() - shares.min() <= 1


@pytest.mark.parametrize("kind", PARTITIONS)
def test_the_seed_decides_everything(kind):
    first, again = (parted(kind, X, y, 7, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    if kind != "blocks":
        assert (first != parted(kind, X, y, 7, seed=4)).any()


@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("kernel", KERNELS, ids=["linear", "rbf"])
def test_sparse_rows_go_where_dense_ones_go(kind, kernel):
    S = np.where(np.abs(X) > 1.0, X, 0.0)
    dense, sparse = (parted(kind, rows, y, 6, 0, kernel) for rows in (S, sp.csr_array(S)))
    sizes = np.bincount(sparse, minlength=6)
    assert sizes.sum() == len(y)
    if kind in ("random", "blocks", "kmeans"):
        np.testing.assert_array_equal(dense, sparse)
    else:
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("kind", PARTITIONS)
def test_one_part_has_all_rows(kind):
    np.testing.assert_array_equal(parted(kind, X, y, 1), 0)


def test_blocks_are_rows_that_follow_each_other():
    assert (np.diff(parted("blocks", X, y, 7)) >= 0).all()


def test_clusters_are_parts_or_strata():
    centre = np.repeat([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]], 40, axis=0)
    Z, z = centre + RNG.normal(size=(120, 2)), np.tile([1.0, -1.0], 60)
    apart = parted("kmeans", Z, z, 3, seed=1)
    mixed = parted("kmeans-strata", Z, z, 4, seed=1, n_strata=3)
    together = clusters(Z, 3, np.random.default_rng(1))
    np.testing.assert_array_equal(apart, together)
    for number in np.unique(together):
        shares = np.bincount(mixed[together == number], minlength=4)
        assert shares.max() - shares.min() <= 2  # one for each class


def test_strata_are_nearest_landmarks_in_the_space_of_the_kernel():
    centre = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]], 30, axis=0)
    Z = centre + 0.1 * RNG.normal(size=(120, 2))
    found = strata(Z, RBF(0.1), 4, np.random.default_rng(0))
    assert len(np.unique(found)) == 4
    for k in range(4):
        assert len(np.unique(found[30 * k : 30 * (k + 1)])) == 1


@pytest.mark.parametrize("kind", ["stratified", "kmeans", "kmeans-strata"])
def test_threads_do_not_decide_where_rows_go(kind):
    """Features of few values: many rows are as near to one landmark as to another."""
    Z = np.random.default_rng(0).integers(0, 2, size=(9000, 68)).astype(np.float32)
    z = np.where(Z[:, :3].sum(axis=1) > 1, 1.0, -1.0)
    found = []
    for threads in (1, 2):
        with blas_threads(threads):
            found.append(parted(kind, Z, z, 4, kernel=RBF(0.1), n_strata=32))
    np.testing.assert_array_equal(*found)


def test_rows_as_near_to_two_landmarks_go_to_the_first():
    Z = np.random.default_rng(0).integers(0, 2, size=(2000, 30)).astype(np.float32)
    found = make_strata(Z, RBF(0.05), 16)
    whole = found.numbers(Z)
    one_by_one = np.concatenate([found.numbers(Z[k : k + 1]) for k in range(len(Z))])
    np.testing.assert_array_equal(whole, one_by_one)


def test_a_stratum_is_that_of_the_nearest_landmark_on_any_number_of_threads():
    Z = np.random.default_rng(0).normal(size=(5000, 4))
    found = make_strata(Z[:300], RBF(0.3), 16)
    apart = ((Z[:, None] - found.centre - found.Z) ** 2).sum(axis=2)
    for threads in (1, 2):
        np.testing.assert_array_equal(found.numbers(Z, threads), apart.argmin(axis=1))


@given(st.lists(st.integers(0, 9) | st.integers(0, 10**6), max_size=60))
def test_rows_are_sorted_by_number_and_equal_ones_stay_in_order(number):
    number = np.array(number, dtype=np.intp)
    np.testing.assert_array_equal(sorted_by(number), np.argsort(number, kind="stable"))


def test_rows_that_are_all_the_same_are_one_stratum():
    part = parted("stratified", np.ones((20, 3)), np.tile([1.0, -1.0], 10), 4)
    np.testing.assert_array_equal(np.bincount(part), 5)


def test_clusters_of_very_wide_sparse_rows_are_refused():
    wide = sp.csr_array((1000, 1 << 20))
    with pytest.raises(ValueError, match="too many"):
        clusters(wide, 3, np.random.default_rng(0))


def test_centres_of_rows_that_are_the_same_need_no_warning():
    rows = np.repeat(np.arange(4.0)[:, None], 50, axis=0)
    found = centres(rows, 12, np.random.default_rng(0))
    assert set(found.ravel()) <= set(range(4))
