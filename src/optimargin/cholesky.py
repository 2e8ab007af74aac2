"""Cholesky factors by LAPACK with the interpreter's lock released, so that threads work at once.

SciPy's own wrappers of these two routines hold the lock.  On a device the factor is kept as its
inverse, with which a solution is two products: there, substitution waits for itself.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
import scipy.linalg.cython_lapack  # loaded now, so that `threads.blas_threads` knows of it
from numba.extending import get_cython_function_address

from optimargin.arrays import (
    brought,
    cast,
    device_of,
    is_foreign,
    name_of_dtype,
    namespace,
    zeros,
)
from optimargin.device import triangular

_CHAR, _INT = ctypes.POINTER(ctypes.c_char), ctypes.POINTER(ctypes.c_int)


def cholesky(A: np.ndarray) -> np.ndarray:
    """The factor of a C-ordered matrix, of which the lower triangle is read and overwritten.

    Raises LinAlgError where the matrix is not positive definite.  What comes back is for `solve`.
    """
    if is_foreign(A):
        return inverse_of(lower_factor(A))
    n, info = ctypes.c_int(len(A)), ctypes.c_int(0)
    # LAPACK reads columns where numpy has rows: its upper triangle is our lower one.
    _routine("potrf", A.dtype.char)(b"U", n, A.ctypes.data, n, info)
    if info.value:
        raise np.linalg.LinAlgError(f"row {info.value} is not above the ones before it")
    return A


def solve(factor: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The solution for one right-hand side, in the precision of the factor."""
    if is_foreign(factor):
        return factor.T @ (factor @ cast(v, name_of_dtype(factor)))
    x, n, one, info = v.astype(factor.dtype), ctypes.c_int(len(v)), ctypes.c_int(1), ctypes.c_int(0)
    _routine("potrs", factor.dtype.char)(
        b"U", n, one, factor.ctypes.data, n, x.ctypes.data, n, info
    )
    return x


@cache
def _routine(name: str, precision: str) -> Any:
    """LAPACK's routine for single (f) or double (d) precision."""
    address = get_cython_function_address(
        scipy.linalg.cython_lapack.__name__, {"f": "s", "d": "d"}[precision] + name
    )
    arguments: list[Any] = {
        "potrf": [_CHAR, _INT, ctypes.c_void_p, _INT, _INT],
        "potrs": [_CHAR, _INT, _INT, ctypes.c_void_p, _INT, ctypes.c_void_p, _INT, _INT],
    }[name]
    return ctypes.CFUNCTYPE(None, *arguments)(address)


def lower_factor(A: Any) -> Any:
    """The lower triangular factor, on whatever device A is; A stays as it is.

    Raises LinAlgError where the matrix is not positive definite.
    """
    if not is_foreign(A):
        return np.linalg.cholesky(A)
    xp = namespace(A)
    try:
        L = xp.linalg.cholesky(A)
    except RuntimeError as error:  # PyTorch's own kind
        raise np.linalg.LinAlgError(str(error)) from error
    if not bool(xp.all(xp.isfinite(L))):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return L


def inverse_of(L: Any) -> Any:
    """The inverse of a lower triangular matrix on a device."""
    xp = namespace(L)
    return triangular(L, xp.eye(L.shape[0], dtype=L.dtype, device=device_of(L)))


def add_to_diagonal(A: Any, x: Any) -> None:
    """Add a number, or one for each row, to the diagonal of a square matrix."""
    if not is_foreign(A):
        A[np.diag_indices(len(A))] += x
        return
    xp, n = namespace(A), A.shape[0]
    x = x if is_foreign(x) else zeros(n, A, name_of_dtype(A)) + x
    eye = xp.eye(n, dtype=A.dtype, device=device_of(A))
    A += eye * cast(brought(x, A), name_of_dtype(A))


def substituted(L: Any, B: Any) -> Any:
    """L^{-1} B for a lower triangular L."""
    if is_foreign(L):
        return triangular(L, B)
    return scipy.linalg.solve_triangular(L, B, lower=True, check_finite=False)
