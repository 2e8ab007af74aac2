"""Factors and solutions, by LAPACK without the interpreter's lock."""

import numpy as np
import pytest

from optimargin.cholesky import cholesky, solve


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factor_solves_and_reads_one_triangle_only(dtype):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(20, 20))
    A, v = B @ B.T + np.eye(20), rng.normal(size=20)
    lower = np.tril(A).astype(dtype)
    lower[np.triu_indices(20, 1)] = np.nan
    x = solve(cholesky(lower), v)
    assert x.dtype == dtype
    np.testing.assert_allclose(
        x, np.linalg.solve(A, v), rtol=1e-10 if dtype == np.float64 else 0.02
    )


def test_what_is_not_positive_definite_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
