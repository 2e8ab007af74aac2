"""Features in which the variance of the margins costs nothing, for the LDM.

With shares p_i of the rows, z_i = y_i phi(x_i) and m = sum_i p_i z_i, the variance of the
margins is a quadratic form in w, and joins |w|^2:

    1/2 |w|^2 + lam1 var(u) = 1/2 w'M w,   M = I + 2 lam1 sum_i p_i (z_i - m)(z_i - m)'

So the machine is one without a variance on the rows M^{-1/2} phi(x_i), whose Gram matrix is
H = G (I + A G)^{-1} (up to the signs y, as in odm.txt, section 4.1.1).  There A = F F', with
F = diag(e) (I - r r'), e_i = sqrt(2 lam1 p_i) and the unit vector r_i = y_i sqrt(p_i), because
I - r r' is a projection; and by Woodbury's formula

    H = G - G F (I + F'G F)^{-1} F'G,   one Cholesky factor, no inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optimargin.gram import Gram, make_gram
from optimargin.kernels import Precomputed
from optimargin.memory import in_words


def whitened_gram(gram: Gram, kept: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Gram:
    """The matrix H of the rows ``kept``, whose signs are y; ``weight`` is lam1 p.

    Raises numpy.linalg.LinAlgError where the kernel is not positive semi-definite.
    """
    n = len(kept)
    if 24 * n**2 > gram.spare:  # three matrices in double precision
        raise MemoryError(
            f"memory_limit leaves {in_words(gram.spare)}, but the variance of the margins of"
            f" {n} rows needs {in_words(24 * n**2)}; set lam1=0, use fewer rows, or use"
            " LinearLDMClassifier."
        )
    G = gram.square(kept, np.float64)
    e = np.sqrt(2.0 * weight)
    r = y * np.sqrt(weight / weight.sum())
    V = e[:, None] * G
    V -= np.outer(r, r @ V)  # F'G
    B = V * e
    B -= np.outer(B @ r, r)  # F'G F
    B[np.diag_indices(n)] += 1.0
    L = np.linalg.cholesky(B)
    del B
    V = scipy.linalg.solve_triangular(L, V, lower=True, overwrite_b=True, check_finite=False)
    del L
    G -= V.T @ V
    return make_gram(Precomputed(), G, 0.0, gram.limit, gram.threads)


def whitened_features(X: Any, bias: float, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The rows M^{-1/2} x_i, the constant feature among them; ``weight`` is lam1 p."""
    n, d = X.shape
    lam1 = float(weight.sum())
    scaled = X.multiply(weight[:, None]).tocsr() if sp.issparse(X) else X * weight[:, None]
    M = np.empty((d + 1, d + 1))
    inner = scaled.T @ X
    M[:d, :d] = inner.toarray() if sp.issparse(inner) else inner
    M[d, :d] = M[:d, d] = bias * (weight @ X)
    M[d, d] = bias**2 * lam1
    m = np.append((weight * y) @ X, bias * (weight @ y))
    M = 2.0 * (M - np.outer(m, m) / lam1)
    M[np.diag_indices(d + 1)] += 1.0
    rows = np.column_stack([X.toarray() if sp.issparse(X) else X, np.full(n, bias)])
    L = np.linalg.cholesky(M)
    return np.ascontiguousarray(scipy.linalg.solve_triangular(L, rows.T, lower=True).T)
