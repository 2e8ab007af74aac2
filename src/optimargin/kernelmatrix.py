"""The kernel matrix of rows on a device: kept in blocks, or computed in blocks.

What `gram.Gram` is for compiled loops, as far as Newton's method asks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from optimargin.arrays import at_least, cast, namespace, number, on_host, taken, zeros
from optimargin.cholesky import add_to_diagonal
from optimargin.device import free_bytes, is_out_of_memory, release, times, width_of
from optimargin.gram import Gram, make_gram
from optimargin.kernels import Kernel, ready
from optimargin.landmarks import Landmarks, Pivoted, centre_of, make_landmarks, moved
from optimargin.memory import limit_in_bytes

EXACT_UP_TO = 16_384  # rows for which nobody expects anything else than an exact machine
_DOUBLE_UP_TO = 16_384  # rows; larger matrices are single precision, unless asked for otherwise
_KEPT = 0.7  # share of a device's free memory that the matrix may take
_RANK = 3072  # of the low-rank matrix that guides conjugate gradients


@dataclass(frozen=True)
class KernelMatrix:
    """Kernel values among the rows of X, plus a constant feature of value bias."""

    kernel: Kernel
    X: Any
    bias: float
    diag: Any
    dtype: str
    width: int
    kept: list[Any] = field(default_factory=list)
    shift: float = 0.0
    factored_up_to = 16_384  # rows of a system that is factored in single precision, as a guide
    exact_up_to = 8192  # rows of a system that is solved at once in double precision

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def is_double(self) -> bool:
        """Whether the values are double precision."""
        return self.dtype == "float64"

    @property
    def spare(self) -> float:
        """Bytes that are free on the device."""
        return free_bytes(self.X)

    @cached_property
    def _ready(self) -> Any:
        return ready(self.kernel, self.X)

    def _spans(self) -> list[slice]:
        width = self.width
        return [slice(s, min(s + width, self.n)) for s in range(0, self.n, width)]

    def _blocks(self) -> Any:
        """The rows of the matrix, block by block."""
        for k, span in enumerate(self._spans()):
            known = k < len(self.kept)
            yield span, self.kept[k] if known else self.block(taken(self.X, span))

    def block(self, A: Any) -> Any:
        """Kernel values of rows with all, constant and shift left out."""
        return self.kernel.block(A, self._ready)

    def apply(self, v: Any) -> Any:
        """K @ v, constant and shift included."""
        out = zeros(self.n, self.X)
        for span, K in self._blocks():
            out[span] = times(K, v)
        return out + self.bias**2 * number(v) + self.shift * v

    def square(self, index: Any, dtype: Any) -> Any:
        """K[index, index] in some precision, constant and shift included."""
        name = np.dtype(dtype).name
        A = cast(taken(self.X, index), name)
        K = self.kernel.block(A, ready(self.kernel, A)) + self.bias**2
        add_to_diagonal(K, self.shift)
        return K

    def on_host(self, threads: int) -> Gram:
        """The matrix as compiled loops read it."""
        limit = limit_in_bytes(None)
        return make_gram(self.kernel, on_host(self.X), self.bias, limit, threads)

    def low_rank(self, seed: int) -> tuple[Pivoted, Landmarks]:
        """K ~ F F' over random rows, and what that leaves of the diagonal; these landmarks."""
        count = min(_RANK, max(self.n // 8, 1))
        rows = np.random.default_rng(seed).choice(self.n, count, replace=False)
        landmarks = make_landmarks(self.kernel, taken(self.X, rows), rows, self.bias, np.float32)
        M, F = cast(landmarks.inverse, "float32"), zeros((self.n, count), self.X, "float32")
        left = zeros(self.n, self.X)
        for span in self._spans():
            F[span, ...] = landmarks.values(taken(self.X, span)) @ M.T
            squares = cast(F[span, ...], "float64") ** 2
            left[span] = self.diag[span] - namespace(F).sum(squares, axis=1)
        return Pivoted(F, rows, at_least(left, 0.0)), landmarks


def make_matrix(kernel: Kernel, X: Any, bias: float, dtype: str | None) -> KernelMatrix:
    """The kernel matrix of rows on a device, of which as much is kept as there is room for."""
    if dtype is None:
        dtype = "float64" if X.shape[0] <= _DOUBLE_UP_TO else "float32"
    A = moved(X, centre_of(kernel, X), dtype)
    width = width_of(A.shape[0], np.dtype(dtype).itemsize, A)
    found = KernelMatrix(kernel, A, bias, kernel.diag(A) + bias**2, dtype, width)
    if not bool(namespace(A).all(namespace(A).isfinite(found.diag))):
        raise ValueError(
            "kernel: its values overflow on these rows; scale X, or lower gamma or degree."
        )
    room, kept = _KEPT * free_bytes(X), []
    for span in found._spans():
        room -= (span.stop - span.start) * found.n * np.dtype(dtype).itemsize
        if room < 0.0:
            break
        try:
            kept.append(found.block(taken(A, span)))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            release()
            break
    return replace(found, kept=kept)
