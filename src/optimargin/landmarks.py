"""Landmarks: a few rows whose kernel functions stand for those of all rows.

The machine is sought among f = sum_j b_j K(z_j, .) over S landmarks z_j, where |f|^2 = b'K_ZZ b.
With the triangular factor K_ZZ + ridge I = L L' and w = L'b this is a linear machine,

    f(x) = w.phi(x),   phi(x) = L^{-1} k(Z, x),   |f|^2 = |w|^2 (a little less, by the ridge)

and the kernel it has is phi(x).phi(x') in place of K(x, x').  What that leaves out of K is positive
semi-definite, so its trace, the sum of K(x, x) - |phi(x)|^2, measures it (math.md section 7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optimargin.arrays import (
    brought,
    cast,
    is_foreign,
    name_of_dtype,
    namespace,
    on_host,
    taken,
    zeros,
)
from optimargin.cholesky import add_to_diagonal, inverse_of, lower_factor, substituted
from optimargin.kernels import RBF, Kernel, Laplacian

_RIDGE = 1.0  # roundings of the largest diagonal value, added to it
_REJECT = 0.5  # share of the least residual of a block below which a row waits for the next


class Pivoted(NamedTuple):
    """K ~ F F', the rows that were chosen for it, and the diagonal of what it leaves out."""

    factor: np.ndarray
    pivots: np.ndarray
    residual: np.ndarray


def pivoted_cholesky(
    columns: Callable[[np.ndarray], np.ndarray],
    diag: np.ndarray,
    rank: int,
    block: int = 1,
    tol: float = 1e-10,
    dtype: Any = np.float64,
) -> Pivoted:
    """The incomplete Cholesky factor of a kernel matrix, largest residual first.

    ``columns(index)`` gives K[:, index] as a new array of that ``dtype``.  With ``block=1`` each
    column takes the row with the largest residual diagonal: the greedy Schur complement of
    sodm.txt, eq. (6).  With more, candidates are that many rows at a time, and those that
    resemble others of the block wait; then the O(n rank^2) arithmetic is a product of matrices.
    """
    residual = diag.astype(np.float64)
    floor = tol * max(float(residual.max(initial=0.0)), np.finfo(float).tiny)
    F, pivots = None, np.empty(rank, dtype=np.intp)
    k = 0
    while k < rank and residual.max(initial=0.0) > floor:
        count = min(block, rank - k)
        best = np.array([residual.argmax()])
        if count > 1:
            best = np.argpartition(-residual, count - 1)[:count]
        best = best[residual[best] > floor]
        C = columns(best)
        F = zeros((len(diag), rank), C, np.dtype(dtype).name) if F is None else F
        C -= F[:, :k] @ taken(F[:, :k], best).T
        chosen, L = _unlike(on_host(taken(C, best)).astype(np.float64), residual[best])
        new = substituted(brought(L, C, dtype), taken(C.T, chosen))
        stop = k + len(chosen)
        F[:, k:stop], pivots[k:stop] = new.T, best[chosen]
        residual -= on_host(squares(new))
        np.maximum(residual, 0.0, out=residual)
        residual[best[chosen]] = 0.0
        k = stop
    F = np.zeros((len(diag), 0), dtype=dtype) if F is None else F
    return Pivoted(F[:, :k], pivots[:k], residual)


def squares(F: Any) -> Any:
    """The sum of the squares of each column, in double precision."""
    if not is_foreign(F):
        return np.einsum("ij,ij->j", F, F, dtype=np.float64)
    F = cast(F, "float64")
    return namespace(F).sum(F * F, axis=0)


def _unlike(C: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the rows in a block that the ones taken before them do not explain; their factor.

    ``C`` is what is left of their kernel values, ``residual`` its diagonal, which is known better.
    """
    left, bar = residual.copy(), _REJECT * float(residual.min())
    taken: list[int] = []
    F = np.zeros_like(C)
    while len(taken) < len(left):
        place = int(left.argmax())
        if taken and left[place] < bar:
            break
        column = C[:, place] - F @ F[place]
        column[taken] = 0.0
        column[place] = left[place]
        F[:, len(taken)] = column / np.sqrt(left[place])
        left -= F[:, len(taken)] ** 2
        taken.append(place)
        left[taken] = -np.inf
    return np.array(taken), F[np.ix_(taken, range(len(taken)))]


@dataclass(frozen=True)
class Landmarks:
    """The landmarks of a kernel, and the factor that makes features of kernel values.

    ``Z`` holds the landmarks as they were given, ``moved`` as kernel values are computed from
    them: relative to ``centre``, in the precision of the values.  ``index`` are their row
    numbers, -1 where they are no rows.
    """

    kernel: Kernel
    Z: Any
    index: np.ndarray
    bias: float
    centre: np.ndarray | None
    moved: Any
    factor: np.ndarray

    def __len__(self) -> int:
        return int(self.factor.shape[0])

    @cached_property
    def inverse(self) -> Any:
        """The inverse of the factor, with which a device makes features and expansions."""
        return inverse_of(self.factor)

    def near(self, A: Any) -> Any:
        """Rows as kernel values are computed from them."""
        return moved(A, self.centre, name_of_dtype(self.moved))

    def values(self, A: Any, out: np.ndarray | None = None) -> np.ndarray:
        """K(A, Z), the constant included, in the precision of the landmarks."""
        K = self.kernel.block(self.near(A), self.moved, out)
        if self.bias:
            K += self.bias**2
        return K

    def features(self, K: np.ndarray) -> np.ndarray:
        """The features of rows whose kernel values are K; in their precision."""
        return whitened(self.factor, K)

    def expand(self, w: np.ndarray) -> np.ndarray:
        """The expansion b over the landmarks of a model in features: b = L^{-T} w."""
        if is_foreign(self.factor):
            return w @ self.inverse
        return scipy.linalg.solve_triangular(
            self.factor, w.T, lower=True, trans="T", check_finite=False
        ).T

    def contract(self, v: np.ndarray) -> np.ndarray:
        """What a vector K(Z, X) s of landmarks is in features: L^{-1} v."""
        if is_foreign(self.factor):
            return self.inverse @ v
        return scipy.linalg.solve_triangular(self.factor, v, lower=True, check_finite=False)

    def lift(self, b: np.ndarray) -> np.ndarray:
        """The model in features of an expansion: w = L'b."""
        return b @ self.factor

    def residual(self, A: Any, K: np.ndarray) -> np.ndarray:
        """What the landmarks leave out of the kernel's diagonal, for rows A with values K."""
        phi = self.features(K)
        left = self.kernel.diag(A) + self.bias**2
        left -= np.einsum("ij,ij->i", phi, phi, dtype=np.float64)
        return np.maximum(left, 0.0)


def whitened(L: np.ndarray, K: np.ndarray, in_place: bool = False) -> np.ndarray:
    """The rows L^{-1} k of a block of kernel values, which may be overwritten."""
    (solve,) = scipy.linalg.get_blas_funcs(("trsm",), (K,))
    # BLAS reads columns where numpy has rows, so no copy is made of a C-ordered block.
    return solve(1.0, L.astype(K.dtype, order="F"), K.T, lower=1, overwrite_b=in_place).T


def moved(A: Any, centre: np.ndarray | None, dtype: Any) -> Any:
    """Rows relative to a centre, in some precision."""
    return cast(A if centre is None else A - centre, dtype)


def centre_of(kernel: Kernel, Z: Any) -> np.ndarray | None:
    """What to take off all rows where only differences count.

    Squared distances come from inner products, which cancel badly far from the origin.
    """
    if not isinstance(kernel, RBF | Laplacian) or sp.issparse(Z) or not Z.shape[0]:
        return None
    if is_foreign(Z):
        return cast(namespace(Z).mean(cast(Z, "float64"), axis=0), name_of_dtype(Z))
    return Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)


def make_landmarks(kernel: Kernel, Z: Any, index: np.ndarray, bias: float, dtype: Any) -> Landmarks:
    """Landmarks and their factor, which is computed in double precision.

    The ridge is what rounding of the values may be, and more where that is not enough.
    """
    centre = centre_of(kernel, Z)
    double = moved(Z, centre, "float64")
    K, dtype = kernel.block(double, double) + bias**2, np.dtype(dtype)
    if not bool(namespace(K).all(namespace(K).isfinite(K))):
        raise ValueError(
            "kernel: its values overflow on these rows; scale X, or lower gamma or degree."
        )
    near = moved(Z, centre, dtype.name)
    try:
        L = factor_of(K, dtype)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "kernel: it is not positive semi-definite on these rows, as solver='landmark' needs;"
            " choose another kernel (for sigmoid, a smaller gamma or coef0) or another solver."
        ) from error
    return Landmarks(kernel, Z, index, bias, centre, near, L)


def factor_of(K: Any, dtype: Any) -> Any:
    """The factor of a kernel matrix, which is overwritten, whose values are of some precision.

    A ridge is added: what rounding of the values may be, and more where that is not enough.
    """
    largest = on_host(namespace(K).linalg.diagonal(K)).max(initial=0.0)
    ridge = _RIDGE * float(np.finfo(dtype).eps) * float(largest) or 1.0
    for _ in range(8):
        add_to_diagonal(K, ridge)
        try:
            return lower_factor(K)
        except np.linalg.LinAlgError:
            ridge *= 9.0
    raise np.linalg.LinAlgError("the kernel is not positive semi-definite on these rows")
