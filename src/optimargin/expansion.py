"""Scores of rows under expansions over others: support rows, or landmarks.

Kernel values are made in blocks that stay in the cache, a thread each, in the precision in which
the machine was trained; sums are double precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from optimargin.arrays import brought, cast, device_of, is_foreign, namespace, taken
from optimargin.device import times, width_of
from optimargin.kernels import Kernel, ready
from optimargin.landmarks import centre_of, moved
from optimargin.rows import compiled
from optimargin.threads import blas_threads, spans, spread

_BLOCK = 1 << 20  # kernel values in a block
_LEAST = 8  # rows in a block


@dataclass(frozen=True, eq=False)
class Expansion:
    """The functions sum_j B[m, j] K(z_j, .), one for each row of B."""

    kernel: Kernel
    Z: Any
    B: np.ndarray
    dtype: Any

    @cached_property
    def _centre(self) -> np.ndarray | None:
        return centre_of(self.kernel, self.Z)

    @cached_property
    def _near(self) -> Any:
        """The rows z_j as the kernel wants them."""
        return ready(self.kernel, moved(self.Z, self._centre, self.dtype))

    @cached_property
    def _coefficients(self) -> np.ndarray:
        return np.ascontiguousarray(self.B, dtype=np.float64)

    def scores(self, X: Any, threads: int = 1) -> np.ndarray:
        """The values at the rows of X, an array of shape (rows of X, rows of B)."""
        if is_foreign(X):
            return self._on_device(X)
        n, out = X.shape[0], np.empty((X.shape[0], len(self.B)))
        centre, near, B = self._centre, self._near, self._coefficients

        def task(part: slice) -> None:
            K = self.kernel.block(moved(X[part], centre, self.dtype), near)
            sums(np.ascontiguousarray(K), B, out[part])

        parts = spans(n, max(_LEAST, _BLOCK // max(self.Z.shape[0], 1)))
        if threads <= 1 or len(parts) <= 1:
            for part in parts:
                task(part)
        else:
            with blas_threads(1):  # ours are enough
                spread(task, parts, threads)
        return out

    @cached_property
    def _copies(self) -> dict[Any, Expansion]:
        """Copies on devices, made when they are first asked for."""
        return {}

    def _on_device(self, X: Any) -> Any:
        place = type(X).__module__, str(device_of(X))
        if place not in self._copies:
            Z, B = brought(self.Z, X, np.dtype(self.dtype)), brought(self.B, X, "float64")
            self._copies[place] = Expansion(self.kernel, Z, B, self.dtype)
        here, found = self._copies[place], []
        dtype = np.dtype(self.dtype).name
        width = width_of(self.Z.shape[0], 12, X)
        for start in range(0, X.shape[0], width):
            rows = slice(start, start + width)
            K = self.kernel.block(moved(taken(X, rows), here._centre, dtype), here._near)
            found.append(times(cast(K, "float64"), here.B.T))
        return namespace(X).concat(found) if len(found) != 1 else found[0]


@partial(compiled, contiguous=True)
def sums(K, B, out):
    """Write K B' to out, summed in double precision whatever the type of K."""
    for i in range(K.shape[0]):
        row = K[i]
        for m in range(B.shape[0]):
            total = 0.0
            for j in range(B.shape[1]):
                total += row[j] * B[m, j]
            out[i, m] = total
