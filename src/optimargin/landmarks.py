"""Landmarks: the greedy choice of rows that leaves the least of the kernel unexplained."""

from __future__ import annotations

import numpy as np

from optimargin.gram import Gram


def pivoted_cholesky(gram: Gram, rank: int, tol: float = 1e-10) -> tuple[np.ndarray, np.ndarray]:
    """F with K ~ F F' (n x rank or fewer columns), and the diagonal of K - F F'.

    Each column takes the row with the largest residual diagonal: the greedy Schur
    complement of sodm.txt, eq. (6).  Needs ``rank`` rows of K and O(n rank^2) arithmetic.
    """
    residual = gram.diag.copy()
    F = np.zeros((gram.n, rank))
    floor = tol * max(float(residual.max(initial=0.0)), np.finfo(float).tiny)
    for k in range(rank):
        pivot = int(residual.argmax())
        if residual[pivot] <= floor:
            return F[:, :k], residual
        column = gram.rows(np.array([pivot]))[0].astype(np.float64) + gram.bias**2
        column[pivot] += gram.shift
        column -= F[:, :k] @ F[pivot, :k]
        F[:, k] = column / np.sqrt(residual[pivot])
        residual -= F[:, k] ** 2
        np.maximum(residual, 0.0, out=residual)
        residual[pivot] = 0.0
    return F, residual
