"""Cholesky factors by LAPACK with the interpreter's lock released, so that threads work at once.

SciPy's own wrappers of these two routines hold the lock.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg.cython_lapack  # loaded now, so that `threads.blas_threads` knows of it
from numba.extending import get_cython_function_address

_CHAR, _INT = ctypes.POINTER(ctypes.c_char), ctypes.POINTER(ctypes.c_int)


def cholesky(A: np.ndarray) -> np.ndarray:
    """The factor of a C-ordered matrix, of which the lower triangle is read and overwritten.

    Raises LinAlgError where the matrix is not positive definite.
    """
    n, info = ctypes.c_int(len(A)), ctypes.c_int(0)
    # LAPACK reads columns where numpy has rows: its upper triangle is our lower one.
    _routine("potrf", A.dtype.char)(b"U", n, A.ctypes.data, n, info)
    if info.value:
        raise np.linalg.LinAlgError(f"row {info.value} is not above the ones before it")
    return A


def solve(factor: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The solution for one right-hand side, in the precision of the factor."""
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
