import numpy as np
import pytest
import scipy.sparse as sp

from optimargin.kernels import RBF, Custom, Laplacian, Linear, Polynomial, Sigmoid
from optimargin.rows import sqnorms
from oracle import laplacian, rbf

A = np.random.default_rng(0).normal(size=(7, 3))
B = np.random.default_rng(1).normal(size=(5, 3))
CASES = [
    (Linear(), lambda A, B: A @ B.T),
    (RBF(0.7), lambda A, B: rbf(A, B, 0.7)),
    (Laplacian(0.4), lambda A, B: laplacian(A, B, 0.4)),
    (Polynomial(0.5, 3, 1.0), lambda A, B: (0.5 * A @ B.T + 1) ** 3),
    (Sigmoid(0.3, -0.2), lambda A, B: np.tanh(0.3 * A @ B.T - 0.2)),
    (Custom(lambda A, B: A @ B.T), lambda A, B: A @ B.T),
]


@pytest.mark.parametrize(("kernel", "formula"), CASES)
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_blocks_and_diagonals_are_their_formulas(kernel, formula, rows):
    if isinstance(kernel, Custom) and rows is not np.asarray:
        kernel = Custom(lambda A, B: (A @ B.T).toarray())
    np.testing.assert_allclose(kernel.block(rows(A), rows(B)), formula(A, B), rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(rows(A)), np.diag(formula(A, A)), rtol=1e-12)


@pytest.mark.parametrize(("kernel", "formula"), CASES)
def test_single_precision_stays_single(kernel, formula):
    block = kernel.block(A.astype(np.float32), B.astype(np.float32))
    assert block.dtype == np.float32
    np.testing.assert_allclose(block, formula(A, B), rtol=1e-4, atol=1e-5)


def test_single_precision_exponentials_are_right_to_a_few_roundings():
    far = np.linspace(0.0, 100.0, 100_003, dtype=np.float32)[:, None]
    zero = np.zeros((1, 1), dtype=np.float32)
    found = Laplacian(1.0).block(far, zero).astype(np.float64)
    np.testing.assert_allclose(found, np.exp(-np.minimum(far.astype(float), 87.0)), rtol=5e-7)
    assert found[0, 0] == 1.0
    assert (np.diff(found[:, 0]) <= 1e-7 * found[:-1, 0]).all()
    assert np.isnan(Laplacian(1.0).block(np.full_like(zero, np.nan), zero)).all()


@pytest.mark.parametrize(("kernel", "formula"), CASES[:-1])
def test_dense_and_sparse_rows_mix_and_results_go_where_they_are_told(kernel, formula):
    for rows, columns in ((A, sp.csr_array(B)), (sp.csr_array(A), B), (A, B)):
        out = np.empty((7, 5))
        assert kernel.block(rows, columns, out) is out
        np.testing.assert_allclose(out, formula(A, B), rtol=1e-12)


def test_a_callable_fills_what_it_is_given():
    out = np.full((7, 5), np.nan)
    assert Custom(lambda A, B: A @ B.T).block(A, B, out) is out
    np.testing.assert_array_equal(out, A @ B.T)


def test_a_callable_of_the_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"kernel.*\(7, 5\).*\(5, 7\)"):
        Custom(lambda A, B: B @ A.T).block(A, B)


def test_squared_norms_of_sparse_rows_count_empty_rows():
    X = sp.csr_array(np.array([[0.0, 0], [3, 4], [0, 0], [1, 0], [0, 0]]))
    assert sqnorms(X).tolist() == [0, 25, 0, 1, 0]
