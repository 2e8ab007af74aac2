"""Text models of libodm: read as they are meant, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from optimargin.estimators import saved
from test_io import complaint

LIBODM = """instance 3
feature {d}
bias {bias}
solver 0
kernel {kernel}
"""


def test_a_linear_model_of_libodm_is_read_with_its_intercept(tmp_path: Path) -> None:
    path, X = tmp_path / "model.txt", np.array([[1.0, 2.0], [-3.0, 0.5]])
    path.write_text(LIBODM.format(d=3, bias=1, kernel=0) + "w\n0.5 -1.25 0.125 \n")
    model = saved.load(path)
    assert np.array_equal(model.decision_function(X), X @ [0.5, -1.25] + 0.125)
    assert list(model.predict(X)) == [-1, -1]
    assert list(model.classes_) == [-1, 1]
    path.write_text(LIBODM.format(d=2, bias=0, kernel=0) + "w\n0.5 -1.25 ")
    assert np.array_equal(saved.load(path).decision_function(X), X @ [0.5, -1.25])


@pytest.mark.parametrize("bias", [0, 1])
@pytest.mark.parametrize(
    ("number", "settings", "kernel"),
    [
        (1, "degree 3\ngamma 0.1\ncoef0 0.5\n", lambda A, B: (0.1 * A @ B.T + 0.5) ** 3),
        (2, "gamma 0.25\n", lambda A, B: np.exp(-0.25 * ((A[:, None] - B) ** 2).sum(axis=2))),
        (3, "gamma 0.1\ncoef0 -1\n", lambda A, B: np.tanh(0.1 * A @ B.T - 1)),
    ],
    ids=["poly", "rbf", "sigmoid"],
)
def test_a_kernel_model_of_libodm_scores_as_its_formula_says(
    tmp_path: Path, bias: int, number: int, settings: str, kernel: Any
) -> None:
    ones = " 3:1" * bias
    lines = f"total_sv 2\nsv\n-0.75 1:1.5 2:-2{ones} \n0.5 2:0.25{ones} \n"
    path = tmp_path / "model.txt"
    path.write_text(LIBODM.format(d=2 + bias, bias=bias, kernel=number) + settings + lines)
    X = np.random.default_rng(0).normal(size=(5, 2))
    constant = np.ones((5, bias))
    A = np.hstack([X, constant])
    B = np.hstack([[[1.5, -2.0], [0.0, 0.25]], constant[:2]])
    expected = kernel(A, B) @ [-0.75, 0.5]
    assert np.allclose(saved.load(path).decision_function(X), expected, rtol=1e-12, atol=1e-14)


def test_sparse_support_vectors_of_libodm_stay_sparse(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    head = LIBODM.format(d=1_000_000, bias=0, kernel=2)
    path.write_text(head + "gamma 0.5\ntotal_sv 2\nsv\n1 7:1\n-1 1000000:1 \n")
    model = saved.load(path)
    X = sp.csr_matrix(([1.0], ([0], [6])), shape=(1, 1_000_000))
    assert sp.issparse(model.support_vectors_)
    assert np.allclose(model.decision_function(X), 1 - np.exp(-1))


def test_a_model_of_libodm_can_be_saved_as_our_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LIBODM.format(d=2, bias=0, kernel=0) + "w\n0.5 -1.25 ")
    model = saved.load(tmp_path / "a.txt")
    model.save(tmp_path / "b")
    X = np.eye(2)
    assert np.array_equal(
        saved.load(tmp_path / "b").decision_function(X), model.decision_function(X)
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("kernel 0\n", "before its numbers begin"),
        ("kernel 0\nw\n", "before its numbers begin"),
        ("kernel 0\nw\n1 2 ", "3 weights announced, 2 found"),
        ("kernel 0\nw\n1 2 x ", "line 6 has something that is not a number"),
        ("kernel 0\nw\n1 2 nan ", "line 6 has a number that is not finite"),
        ("kernel 9\nw\n1 2 3 ", "its kernel is unknown"),
        ("kernel 2\ngamma 1\nsv\n1 1:1\n", "'total_sv' is missing"),
        ("kernel 2\ntotal_sv 1\nsv\n1 1:1\n", "'gamma' is missing"),
        ("kernel 2\ngamma 1\ntotal_sv 2\nsv\n1 1:1\n", "2 support vectors announced, 1 found"),
        ("kernel 2\ngamma 1\ntotal_sv 1\nsv\n1 1:1 2\n", "middle of a feature"),
        ("kernel 2\ngamma 1\ntotal_sv 1\nsv\n1 1:1 9:2\n", "feature 9 in a support vector"),
    ],
)
def test_a_damaged_model_of_libodm_is_refused_with_the_reason(
    tmp_path: Path, body: str, reason: str
) -> None:
    path = tmp_path / "model.txt"
    path.write_text("instance 3\nfeature 3\nbias 0\n" + body)
    words = complaint(path)
    assert "libodm" in words
    assert reason in words
