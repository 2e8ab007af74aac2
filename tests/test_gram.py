import tracemalloc

import numpy as np
import pytest

from optimargin.gram import make_gram
from optimargin.kernels import RBF, Linear, Precomputed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
K = RBF(0.3).block(X, X)
ROW = 300 * 8


@pytest.mark.parametrize("limit", [10**9, 100 * ROW, 10 * ROW])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_do_not_depend_on_what_is_kept(limit, threads):
    gram = make_gram(RBF(0.3), X, 1.0, limit, threads)
    v = RNG.normal(size=300)
    np.testing.assert_allclose(gram.apply(v), K @ v + v.sum(), rtol=1e-10)
    assert gram.is_whole == (limit == 10**9)


def test_blocks_cover_each_row_once():
    gram = make_gram(RBF(0.3), X, 0.0, 40 * ROW)
    wanted = RNG.permutation(300)[:170]
    seen = []
    for index, matrix, slot in gram.blocks(wanted):
        np.testing.assert_allclose(matrix[slot[index]], K[index], rtol=1e-12)
        seen.extend(index)
    assert sorted(seen) == sorted(wanted)


@pytest.mark.parametrize("rows", [10, 50, 150])
def test_memory_stays_inside_the_limit(rows):
    n = 2000
    X = np.random.default_rng(0).normal(size=(n, 5))
    limit = rows * n * 8
    gram = make_gram(RBF(0.2), X, 0.0, limit)
    v = np.ones(n)
    gram.apply(v)
    tracemalloc.start()
    gram = make_gram(RBF(0.2), X, 0.0, limit)
    gram.apply(v)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= limit + 10 * X.nbytes


def test_a_limit_below_a_few_rows_is_refused_with_what_is_needed():
    with pytest.raises(MemoryError, match=r"memory_limit.*2\.4 kB.*9\.6 kB.*720\.0 kB"):
        make_gram(RBF(0.3), X, 0.0, ROW)


def test_many_rows_are_kept_in_single_precision_and_few_in_double():
    few = make_gram(Linear(), np.zeros((10, 1)), 0.0, 10**9)
    many = make_gram(Linear(), np.zeros((5000, 1)), 0.0, 10**9)
    assert few.kept.dtype == np.float64
    assert many.kept.dtype == np.float32


def test_rows_far_from_the_origin_keep_their_distances():
    far = make_gram(RBF(0.3), (X + 1e4).astype(np.float32), 0.0, 10**9)
    np.testing.assert_allclose(far.kept, K, atol=2e-2)
    np.testing.assert_allclose(make_gram(RBF(0.3), X + 1e6, 0.0, 10**9).kept, K, atol=1e-8)


def test_a_precomputed_matrix_is_not_copied():
    assert make_gram(Precomputed(), K, 0.0, 10**9).kept is K
