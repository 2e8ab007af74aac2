"""The kernel matrix of the training rows: kept whole, kept in part, or never kept.

A budget in bytes decides.  Rows that fit it are computed once and stay; the others are
computed again, in blocks, each time somebody asks.  Coordinate descent visits all rows
in turn, so keeping a fixed share of them is the best any store can do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from optimargin.cholesky import cholesky
from optimargin.kernels import RBF, Kernel, Laplacian, Linear, Precomputed
from optimargin.memory import in_words
from optimargin.rows import compiled
from optimargin.threads import blas_threads, shares, spans, spread

_DOUBLE_UP_TO = 4096  # rows; larger kernel matrices are kept in single precision
_DENSE_UP_TO = 500  # rows of a matrix whose eigenvalues are all computed
_CACHE = 1 << 23  # bytes of a block that is filled while it stays in the cache


@dataclass(frozen=True)
class Gram:
    """Kernel values among the training rows, plus a constant feature of value bias.

    ``kept`` holds the rows i with ``slot[i] >= 0``, in single or double precision and
    without the constant; ``width`` more rows may be computed at a time.  ``shift`` is added
    to the diagonal: see `convex`.
    """

    kernel: Kernel
    X: Any
    bias: float
    diag: np.ndarray
    kept: np.ndarray
    slot: np.ndarray
    width: int
    threads: int
    limit: int
    shift: float = 0.0
    factored_up_to = 12_000  # rows of a system that is factored in single precision, as a guide
    exact_up_to = 2500  # rows of a system that is solved at once in double precision

    @property
    def dtype(self) -> str:
        """The precision of the values."""
        return self.kept.dtype.name

    @property
    def is_double(self) -> bool:
        """Whether the values are double precision."""
        return self.dtype == "float64"

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.slot)

    @property
    def spare(self) -> int:
        """Bytes of the budget that are not taken by kept rows."""
        return max(self.limit - self.kept.nbytes, 0)

    @property
    def is_whole(self) -> bool:
        """Whether every row is kept."""
        return len(self.kept) == self.n

    def rows(self, index: np.ndarray) -> np.ndarray:
        """K[index], constant and shift left out; a copy."""
        if len(index) and (self.slot[index] >= 0).all():
            return self.kept[self.slot[index]]
        return compute(self.kernel, self.X, index, self.kept.dtype)

    def blocks(self, index: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The rows of ``index``, as (their numbers, a matrix, each row's place in it)."""
        held = self.slot[index] >= 0
        if held.any():
            yield index[held], self.kept, self.slot
        missing = index[~held]
        for span in spans(len(missing), self.width):
            part = missing[span]
            slot = np.full(self.n, -1, dtype=np.int64)
            slot[part] = np.arange(len(part))
            yield part, self.rows(part), slot

    def square(self, index: np.ndarray, dtype: Any) -> np.ndarray:
        """K[index, index], constant and shift included."""
        out = np.empty((len(index), len(index)), dtype=dtype)
        place = np.full(self.n, -1)
        place[index] = np.arange(len(index))
        for rows, K, slot in self.blocks(index):

            def task(part: slice, rows=rows, K=K, slot=slot) -> None:
                _copy(K, slot[rows[part]], index, place[rows[part]], out)

            spread(task, shares(len(rows), 4 * self.threads), self.threads)
        out += self.bias**2
        out[np.diag_indices(len(index))] += self.shift
        return out

    def apply(self, v: np.ndarray) -> np.ndarray:
        """K @ v, constant and shift included, summed in double precision."""
        out = np.empty(self.n)
        for index, K, slot in self.blocks(np.arange(self.n)):
            place = slot[index]

            def task(part: slice, K=K, index=index, place=place) -> None:
                _apply(K, place[part], v, index[part], out)

            spread(task, shares(len(index), 4 * self.threads), self.threads)
        out += self.bias**2 * v.sum() + self.shift * v
        return out


@partial(compiled, contiguous=True)
def _apply(K, place, v, index, out):
    for k in range(len(index)):
        row, total = K[place[k]], 0.0
        for j in range(len(v)):
            total += row[j] * v[j]
        out[index[k]] = total


@partial(compiled, contiguous=True)
def _copy(K, rows, columns, place, out):
    for k in range(len(rows)):
        row, to = K[rows[k]], out[place[k]]
        for j in range(len(columns)):
            to[j] = row[columns[j]]


def product(A: np.ndarray, v: np.ndarray, threads: int) -> np.ndarray:
    """A @ v, summed in double precision."""
    out, every = np.empty(len(A)), np.arange(len(A))

    def task(part: slice) -> None:
        _apply(A, every[part], v, every[part], out)

    spread(task, shares(len(A), 4 * threads), threads)
    return out


def compute(kernel: Kernel, X: Any, index: np.ndarray, dtype: Any) -> np.ndarray:
    """Rows ``index`` of the kernel matrix, in blocks that stay in the cache."""
    if isinstance(kernel, Precomputed):
        return X[index].astype(dtype, copy=False)
    out = np.empty((len(index), X.shape[0]), dtype=dtype)
    width = max(8, _CACHE // max(out.itemsize * X.shape[0], 1))
    for span in spans(len(index), width):
        kernel.block(X[index[span]], X, out[span])
    return out


def make_gram(
    kernel: Kernel, X: Any, bias: float, limit: int, threads: int = 1, keep: bool = True
) -> Gram:
    """The kernel matrix of the rows of X within ``limit`` bytes, or a clear refusal.

    Not to ``keep`` any of it is for those who need little of it.
    """
    n = X.shape[0]
    dtype = precision(kernel, X)
    if isinstance(kernel, Precomputed):
        diag, kept, slot, width = kernel.diag(X), X, np.arange(n), n
    else:
        X = _prepared(kernel, X, dtype)
        diag = kernel.diag(X)
        if not np.isfinite(diag).all():
            raise ValueError(
                "kernel: its values overflow on these rows; scale X, or lower gamma or degree."
            )
        row = n * np.dtype(dtype).itemsize
        fits = n * row <= limit
        width = n if fits else min(max(limit // 8 // row, 1), max(1, (64 << 20) // row))
        count = n if fits else max((limit - 4 * width * row) // row, 0)
        if not keep:
            count, width = 0, max(1, min(n, (64 << 20) // row))
        if not fits and 4 * row > limit:
            raise MemoryError(
                f"memory_limit is {in_words(limit)}, but a kernel machine on {n} rows"
                f" needs at least {in_words(4 * row)}; the whole kernel matrix would take"
                f" {in_words(n * row)}."
            )
        slot = np.full(n, -1, dtype=np.int64)
        slot[:count] = np.arange(count)
        kept = np.empty((count, n), dtype=dtype)
        _fill(kernel, X, kept, threads)
    return Gram(kernel, X, bias, diag + bias**2, kept, slot, width, threads, limit)


def part(gram: Gram, index: np.ndarray) -> Gram:
    """The kernel matrix of some of the rows, copied out of one that is kept whole."""
    kept = gram.kept[np.ix_(index, index)]
    X = kept if isinstance(gram.kernel, Precomputed) else gram.X[index]
    n = len(index)
    return replace(
        gram, X=X, diag=gram.diag[index], kept=kept, slot=np.arange(n), width=n, threads=1
    )


def is_definite(gram: Gram) -> bool:
    """Whether no eigenvalue can be negative, by the kernel's kind or by a factorisation."""
    if isinstance(gram.kernel, RBF | Laplacian | Linear):
        return True
    if not gram.is_whole:
        return False
    K = gram.square(np.arange(gram.n), np.float64)
    K[np.diag_indices(gram.n)] += 1e-12 * np.trace(K)
    try:
        cholesky(K)
    except np.linalg.LinAlgError:
        return False
    return True


def convex(gram: Gram) -> Gram:
    """The same matrix, its diagonal raised until no eigenvalue is negative.

    A sigmoid or home-made kernel may have some, and then the machine has no minimum.
    """
    operator = LinearOperator((gram.n, gram.n), matvec=lambda v: gram.apply(v.ravel()))
    if gram.n <= _DENSE_UP_TO:
        lowest = np.linalg.eigvalsh(operator @ np.eye(gram.n)).min()
    else:
        start = np.random.default_rng(0).normal(size=gram.n)
        lowest = eigsh(operator, 1, which="SA", tol=1e-2, v0=start, return_eigenvectors=False)[0]
    return raised(gram, max(-1.05 * float(lowest), 0.0))


def raised(gram: Gram, shift: float) -> Gram:
    """The same matrix with so much more on its diagonal."""
    return replace(gram, shift=gram.shift + shift, diag=gram.diag + shift)


def _fill(kernel: Kernel, X: Any, kept: np.ndarray, threads: int) -> None:
    def task(part: slice) -> None:
        kernel.block(X[part], X, kept[part])

    width = max(8, _CACHE // max(kept.itemsize * X.shape[0], 1))
    with blas_threads(1):  # ours are enough, and theirs would wait for each other
        spread(task, spans(len(kept), width), threads)


def precision(kernel: Kernel, X: Any, n: int | None = None) -> Any:
    """The type in which kernel values among the rows of X, or n such rows, are kept."""
    if isinstance(kernel, Precomputed) or X.dtype == np.float32:
        return X.dtype
    return np.float64 if (n or X.shape[0]) <= _DOUBLE_UP_TO else np.float32


def _prepared(kernel: Kernel, X: Any, dtype: Any) -> Any:
    """X in the precision of the matrix; centred first where only differences count.

    Squared distances come from inner products, which cancel badly when all rows are far
    from the origin.
    """
    if isinstance(kernel, RBF | Laplacian) and not sp.issparse(X):
        X = X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
    return X.astype(dtype, copy=False)
