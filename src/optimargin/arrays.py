"""Arrays of other libraries: CuPy's, PyTorch's, and whatever follows the array-API standard.

The type of X decides where a machine is trained.  NumPy arrays and SciPy's sparse matrices go
through compiled loops; all others through array expressions, which stay on the device where X is.
The functions `at_least`, `at_most` and `pick` serve scalars inside compiled loops, NumPy arrays
and the others alike, so a formula written with them and with operators is written once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba.extending import overload

_PLAIN = (np.ndarray, np.generic, float, int, bool)


def is_foreign(x: Any) -> bool:
    """Whether this is an array of another library than NumPy, which may live on a device."""
    if isinstance(x, _PLAIN) or x is None or sp.issparse(x):
        return False
    return library(x) in ("torch", "cupy") or hasattr(x, "__array_namespace__")


def namespace(*arrays: Any) -> Any:
    """The array-API functions for these arrays."""
    from sklearn.externals.array_api_compat import array_namespace

    return array_namespace(*arrays)


def device_of(x: Any) -> Any:
    """Where an array is."""
    from sklearn.externals.array_api_compat import device

    return device(x)


def brought(values: Any, like: Any, dtype: Any = None) -> Any:
    """Values as an array beside ``like``; ``dtype`` is a name, None that of the values."""
    if not is_foreign(like):
        return np.asarray(values if not is_foreign(values) else on_host(values), dtype=dtype)
    xp = namespace(like)
    named = None if dtype is None else getattr(xp, str(np.dtype(dtype)))
    if is_foreign(values) and namespace(values) is not xp:
        values = xp.from_dlpack(values) if _share_a_gpu(values, like) else on_host(values)
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)
    return xp.asarray(values, dtype=named, device=device_of(like))


def library(x: Any) -> str:
    """The name of the library of an array."""
    return type(x).__module__.partition(".")[0]


def _share_a_gpu(x: Any, other: Any) -> bool:
    """Whether arrays of PyTorch and CuPy are on the same device, and need no copy."""
    if {library(x), library(other)} != {"torch", "cupy"}:
        return False
    tensor, array = (x, other) if library(x) == "torch" else (other, x)
    return tensor.is_cuda and (tensor.device.index or 0) == array.device.id


def on_host(x: Any) -> np.ndarray:
    """The array as NumPy's."""
    if not is_foreign(x):
        return np.asarray(x)
    if library(x) == "torch":
        return x.detach().cpu().numpy()
    if library(x) == "cupy":
        return x.get()
    return np.asarray(x)


def name_of_dtype(x: Any) -> str:
    """The type of an array's numbers, such as "float32"."""
    return str(x.dtype).rpartition(".")[2]


def cast(x: Any, dtype: Any) -> Any:
    """The array in another precision; itself where it has that one."""
    if not is_foreign(x):
        return x.astype(dtype, copy=False)
    xp = namespace(x)
    return xp.astype(x, getattr(xp, np.dtype(dtype).name), copy=False)


def zeros(shape: int | tuple[int, ...], like: Any, dtype: str = "float64") -> Any:
    """Zeros beside an array."""
    if not is_foreign(like):
        return np.zeros(shape, dtype=dtype)
    xp = namespace(like)
    return xp.zeros(shape, dtype=getattr(xp, dtype), device=device_of(like))


def taken(A: Any, rows: Any) -> Any:
    """Rows of a matrix, or entries of a vector: a slice, or by number."""
    if not is_foreign(A):
        return A[rows]
    if isinstance(rows, slice):
        return A[slice(*rows.indices(A.shape[0])), ...]
    return namespace(A).take(A, brought(rows, A, "int64"), axis=0)


def placed(n: int, index: Any, values: Any) -> Any:
    """A vector of length n with values at some places, and 0 elsewhere."""
    if is_foreign(values) and library(values) not in ("torch", "cupy"):
        return brought(placed(n, on_host(index), on_host(values)), values)  # no rule for these
    out = zeros(n, values)
    out[index] = values
    return out


def places(condition: Any) -> Any:
    """The numbers of the elements for which a condition holds."""
    return namespace(condition).nonzero(condition)[0]


def number(x: Any) -> float:
    """The sum of an array's elements, as a number on the host."""
    if not is_foreign(x):
        return float(x.sum())
    x = cast(x, "int64") if name_of_dtype(x) == "bool" else x
    return float(on_host(namespace(x).sum(x)))


def total_of(weight: Any, n: int) -> float:
    """What n rows weigh together; None is a weight of 1 each."""
    return float(n) if weight is None else number(weight)


# -- elements: one formula for compiled loops and for arrays of every library ---------------------


def at_least(x: Any, low: Any) -> Any:
    """The larger of the two, element by element."""
    if isinstance(x, float) and isinstance(low, float):
        return max(float(x), float(low))  # no NumPy scalar, which would make arrays NumPy's
    if not is_foreign(x):
        return np.maximum(x, low)
    return x if _is_infinite(low) else namespace(x).clip(x, low, None)


def at_most(x: Any, high: Any) -> Any:
    """The smaller of the two, element by element."""
    if not is_foreign(x):
        return np.minimum(x, high)
    return x if _is_infinite(high) else namespace(x).clip(x, None, high)


def _is_infinite(bound: Any) -> bool:
    return isinstance(bound, float) and abs(bound) == np.inf


def pick(condition: Any, x: Any) -> Any:
    """The elements x where the condition holds, and 0 elsewhere; x is finite."""
    if not is_foreign(condition):
        return condition * x
    xp = namespace(condition)
    x = x if is_foreign(x) else xp.asarray(x, dtype=xp.float64, device=device_of(condition))
    return xp.where(condition, x, xp.zeros_like(x))


@overload(at_least)
def _at_least(x, low):
    return lambda x, low: np.maximum(x, low)


@overload(at_most)
def _at_most(x, high):
    return lambda x, high: np.minimum(x, high)


@overload(pick)
def _pick(condition, x):
    return lambda condition, x: condition * x
