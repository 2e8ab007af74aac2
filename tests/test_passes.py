"""Passes over rows: what is summed, whichever rows are skipped."""

import numpy as np
import pytest
import scipy.sparse as sp

from optimargin.loss import odm
from optimargin.problem import Problem
from optimargin.solvers.passes import curved
from optimargin.threads import _COLUMNS, _controller, blas_threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 7)) * (RNG.random((50, 7)) < 0.6)


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("curved_rows", [[], [0], [49], [3, 4, 40], range(50)])
def test_the_curvature_is_that_of_the_rows_that_have_one(rows, dtype, curved_rows):
    A, h, v = rows(X.astype(dtype)), np.zeros(50), RNG.normal(size=8)
    h[list(curved_rows)] = RNG.random(len(curved_rows)) + 0.5
    problem = Problem(A, np.ones(50), None, odm(1.0, 0.5, 0.1, 50.0), bias=2.0)
    full = np.column_stack([X.astype(dtype).astype(float), np.full(50, 2.0)])
    np.testing.assert_allclose(
        curved(problem, h, v), full.T @ (h * (full @ v)), rtol=1e-10, atol=1e-12
    )


def test_small_matrices_have_one_thread_of_blas():
    def most():
        return max(lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas")

    with blas_threads(1):
        with blas_threads(2, _COLUMNS - 1):
            assert most() == 1
        with blas_threads(2, _COLUMNS):
            assert most() == 2
        assert most() == 1
