"""Kernels: a block of values or a diagonal, nothing stored and nothing cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
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
from optimargin.device import city_blocks, exponentials
from optimargin.rows import compiled, sqnorms

_SMALLEST = -87.0  # exponent of the least single-precision number that is not slow to work with
_MIN, _MAX, _ONE = np.float32(_SMALLEST), np.float32(0.0), np.float32(1.0)
_LN2, _LOG2E = np.float32(np.log(2.0)), np.float32(1.0 / np.log(2.0))
_TO_E = tuple(  # (e^f - 1) / f as a polynomial, for |f| up to log(2) / 2: off by a part in 10^7
    np.float32(c) for c in (0.999999707, 0.499991495, 0.166676362, 0.0418979303, 0.00829031265)
)
_BIAS, _FRACTION = np.int32(127), np.int32(23)  # of the exponent, and bits below it
_STRIP = 256  # rows whose features stay in the cache while others meet them


class Kernel(Protocol):
    """K(A, B) for two matrices of rows, and K(x, x) for each row of one."""

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Kernel values, shape (len(A), len(B)), in the type of A; into ``out`` if given."""
        ...

    def diag(self, A: Any) -> np.ndarray:
        """K(x, x) for each row x of A, double precision."""
        ...


def products(A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
    """A @ B.T as a dense array, for dense or sparse rows."""
    if is_foreign(A):
        return A @ B.T
    if not (sp.issparse(A) or sp.issparse(B)):
        return np.matmul(A, B.T, out=out)
    P = A @ B.T
    return placed(P.toarray() if sp.issparse(P) else np.asarray(P), out)


def placed(K: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """K itself, or ``out`` with the values of K."""
    if out is None:
        return K
    out[...] = K
    return out


@dataclass(frozen=True)
class Linear:
    """x.z"""

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Inner products."""
        return products(A, B, out)

    def diag(self, A: Any) -> np.ndarray:
        """Squared norms."""
        return sqnorms(A)


@dataclass(frozen=True)
class RBF:
    """exp(-gamma |x - z|^2)"""

    gamma: float

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """The exponents come from one matrix product: 2 g x.z - g |x|^2 - g |z|^2."""
        left = -self.gamma * sqnorms(A)
        if is_foreign(A):
            B = B if isinstance(B, Extended) else self.extended(B)
            return exponentials(_joined(2.0 * self.gamma * A, left, 1.0) @ B.matrix.T)
        if isinstance(B, Extended) or not (sp.issparse(A) or sp.issparse(B)):
            two_A = _extended(A, 2.0 * self.gamma, left, 1.0, A.dtype)
            K = products(two_A, (B if isinstance(B, Extended) else self.extended(B)).matrix, out)
        else:
            K = products(A, B, out)
            K *= 2.0 * self.gamma
            K += left.astype(K.dtype)[:, None]
            K -= (self.gamma * sqnorms(B)).astype(K.dtype)
        return _exponentials(K)

    def extended(self, B: np.ndarray) -> Extended:
        """Dense rows as `block` wants them on its right: see `ready`."""
        if is_foreign(B):
            return Extended(_joined(B, 1.0, -self.gamma * sqnorms(B)))
        return Extended(_extended(B, 1.0, 1.0, -self.gamma * sqnorms(B), B.dtype))

    def diag(self, A: Any) -> np.ndarray:
        """Ones."""
        return zeros(A.shape[0], A) + 1.0


def _exponentials(K: np.ndarray) -> np.ndarray:
    """Exponents replaced by their exponentials: above 0 is rounding, below -87 is as good as -87.

    In single precision by a loop of our own, which takes half as long as clip and exp.
    """
    if K.dtype == np.float32:
        _raise_e(K)
        return K
    np.clip(K, _SMALLEST, 0.0, out=K)
    return np.exp(K, out=K)


@compiled
def _raise_e(K):
    """e^x = 2^k e^f with k whole: its bits are written down.  One pass, all vector units."""
    c1, c2, c3, c4, c5 = _TO_E
    for i in range(K.shape[0]):
        row = K[i]
        for j in range(len(row)):
            x = min(max(row[j], _MIN), _MAX)
            k = np.rint(x * _LOG2E)
            f = x - k * _LN2
            power = np.int32((np.int32(k) + _BIAS) << _FRACTION).view(np.float32)
            row[j] = power * (_ONE + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * c5)))))


class Extended(NamedTuple):
    """The rows [z, 1, -g |z|^2]."""

    matrix: np.ndarray


def _joined(A: Any, first: Any, second: Any) -> Any:
    """The matrix [A, first, second] on a device."""
    columns = [zeros(A.shape[0], A) + column for column in (first, second)]
    dtype = name_of_dtype(A)
    return namespace(A).concat([A, *(cast(c, dtype)[:, None] for c in columns)], axis=1)


def _extended(A: np.ndarray, scale: float, first: Any, second: Any, dtype: Any) -> np.ndarray:
    """The matrix [scale A, first, second]."""
    out = np.empty((A.shape[0], A.shape[1] + 2), dtype=dtype)
    np.multiply(A, scale, out=out[:, :-2], casting="same_kind")
    out[:, -2], out[:, -1] = first, second
    return out


@dataclass(frozen=True)
class Laplacian:
    """exp(-gamma |x - z|_1)"""

    gamma: float

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Distances come from a compiled loop: no product of matrices finds them."""
        if is_foreign(A):
            return exponentials(-self.gamma * city_blocks(A, B))
        A, B = (M.toarray() if sp.issparse(M) else M for M in (A, B))
        K = np.empty((A.shape[0], B.shape[0]), dtype=A.dtype) if out is None else out
        _city_blocks(A, np.ascontiguousarray(B.T), K)
        K *= -self.gamma
        return _exponentials(K)

    def diag(self, A: Any) -> np.ndarray:
        """Ones."""
        return zeros(A.shape[0], A) + 1.0


@compiled
def _city_blocks(A, columns, out):
    """Write |x - z|_1 to out, of rows x of A and z whose features are the columns."""
    for start in range(0, out.shape[1], _STRIP):
        stop = min(start + _STRIP, out.shape[1])
        for i in range(A.shape[0]):
            line = out[i, start:stop]
            line[:] = 0.0
            for k in range(A.shape[1]):
                x, column = A[i, k], columns[k, start:stop]
                for j in range(len(line)):
                    line[j] += abs(column[j] - x)


@dataclass(frozen=True)
class Polynomial:
    """(gamma x.z + coef0)^degree"""

    gamma: float
    degree: float
    coef0: float

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Powers of scaled inner products."""
        K = products(A, B, out)
        K *= self.gamma
        K += self.coef0
        return K**self.degree if is_foreign(K) else np.power(K, self.degree, out=K)

    def diag(self, A: Any) -> np.ndarray:
        """Powers of scaled squared norms."""
        return (self.gamma * sqnorms(A) + self.coef0) ** self.degree


@dataclass(frozen=True)
class Sigmoid:
    """tanh(gamma x.z + coef0); not positive semi-definite in general."""

    gamma: float
    coef0: float

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Tanh of scaled inner products."""
        K = products(A, B, out)
        K *= self.gamma
        K += self.coef0
        return namespace(K).tanh(K) if is_foreign(K) else np.tanh(K, out=K)

    def diag(self, A: Any) -> np.ndarray:
        """Tanh of scaled squared norms."""
        norms = sqnorms(A)
        return namespace(norms).tanh(self.gamma * norms + self.coef0)


@dataclass(frozen=True)
class Custom:
    """Any function of two matrices of rows that returns their kernel values."""

    function: Callable[[Any, Any], Any]

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """What the function returns, its shape checked."""
        K = self.function(A, B)
        K = K if is_foreign(A) and is_foreign(K) else brought(K, A)
        if tuple(K.shape) != (A.shape[0], B.shape[0]):
            raise ValueError(
                "kernel: the callable must return an array of shape"
                f" {(A.shape[0], B.shape[0])} for inputs of {A.shape[0]} and {B.shape[0]}"
                f" rows, but returned shape {K.shape}."
            )
        if not bool(namespace(K).all(namespace(K).isfinite(K))):
            raise ValueError(
                "kernel: the callable must return finite values; found NaN or infinity."
            )
        return placed(K, out)

    def diag(self, A: Any) -> np.ndarray:
        """The diagonal of small blocks."""
        width, found = 64, []
        for s in range(0, A.shape[0], width):
            some = taken(A, slice(s, s + width))
            found.append(np.diag(on_host(self.block(some, some))))
        return brought(np.concatenate(found), A, "float64")


@dataclass(frozen=True)
class Precomputed:
    """A holds the kernel values of its rows against all columns; B names the columns."""

    def block(self, A: Any, B: Any, out: np.ndarray | None = None) -> np.ndarray:
        """The columns of A that B stands for: all of them, in order."""
        return placed(A, out)

    def diag(self, A: Any) -> np.ndarray:
        """The diagonal of a square matrix of kernel values."""
        return np.diag(A).astype(np.float64)


def ready(kernel: Kernel, B: Any) -> Any:
    """Rows as ``block`` takes them on its right, made once for whoever asks again and again."""
    return kernel.extended(B) if isinstance(kernel, RBF) and not sp.issparse(B) else B


def make_kernel(
    kernel: str | Callable[[Any, Any], Any], gamma: float, degree: float, coef0: float
) -> Kernel:
    """The kernel of that name, or the one that a function computes."""
    if callable(kernel):
        return Custom(kernel)
    named: dict[str, Kernel] = {
        "linear": Linear(),
        "rbf": RBF(gamma),
        "laplacian": Laplacian(gamma),
        "poly": Polynomial(gamma, degree, coef0),
        "sigmoid": Sigmoid(gamma, coef0),
        "precomputed": Precomputed(),
    }
    return named[kernel]
