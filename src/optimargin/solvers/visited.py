"""A kernel matrix whose rows are computed when somebody first asks for them, and stay.

Where a solver goes on from a model, most rows without a dual variable are never visited: their
margins follow from the rows that have one, because the matrix is symmetric.  So of n^2 kernel
values only those of the visited rows are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimargin.gram import Gram, make_gram
from optimargin.kernels import Kernel
from optimargin.rows import compiled
from optimargin.threads import blas_threads, shares, spans, spread

_CACHE = 1 << 23  # bytes of a block that is filled while it stays in the cache
_WIDTH = 1024  # rows that are computed at a time


@dataclass(frozen=True)
class Visited(Gram):
    """Kernel values as a `Gram` has them; ``kept`` has room for rows that nobody asked for yet."""

    @property
    def is_whole(self) -> bool:
        """Whether every row has been asked for, and all were kept."""
        return len(self.kept) == self.n and bool((self.slot >= 0).all())

    def blocks(self, index: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The rows of ``index``, as (their numbers, a matrix, each row's place in it)."""
        held = self.slot[index] >= 0
        if held.any():
            yield index[held], self.kept, self.slot
        missing = index[~held]
        room = len(self.kept) - int((self.slot >= 0).sum())
        for span in spans(min(len(missing), room), _WIDTH):
            part = missing[:room][span]
            self._keep(part)
            yield part, self.kept, self.slot
        if len(missing) > room:
            yield from super().blocks(missing[room:])

    def apply(self, v: np.ndarray) -> np.ndarray:
        """K @ v, constant and shift included, summed in double precision."""
        out, some = np.zeros(self.n), np.flatnonzero(v)
        for rows, K, slot in self.blocks(some):
            place, factor = slot[rows], v[rows]

            def task(part: slice, K=K, place=place, factor=factor) -> None:
                _add(K, place, factor, part.start, part.stop, out)

            spread(task, shares(self.n, 4 * self.threads), self.threads)
        out += self.bias**2 * v.sum() + self.shift * v
        return out

    def _keep(self, index: np.ndarray) -> None:
        """Compute these rows, and remember where they are."""
        first = int((self.slot >= 0).sum())
        out = self.kept[first : first + len(index)]

        def task(part: slice) -> None:
            self.kernel.block(self.X[index[part]], self.X, out[part])

        width = max(8, _CACHE // max(out.itemsize * self.n, 1))
        with blas_threads(1):  # ours are enough, and theirs would wait for each other
            spread(task, spans(len(index), width), self.threads)
        self.slot[index] = np.arange(first, first + len(index))


@compiled
def _add(K, place, factor, start, stop, out):
    """Add to a part of ``out`` the same part of some rows of K, each times its factor.

    Four rows at a time: ``out`` is then read and written a quarter as often.
    """
    target, four = out[start:stop], len(place) // 4 * 4
    for k in range(0, four, 4):
        r0, r1 = K[place[k], start:stop], K[place[k + 1], start:stop]
        r2, r3 = K[place[k + 2], start:stop], K[place[k + 3], start:stop]
        t0, t1, t2, t3 = factor[k], factor[k + 1], factor[k + 2], factor[k + 3]
        for j in range(len(target)):
            target[j] += (t0 * r0[j] + t1 * r1[j]) + (t2 * r2[j] + t3 * r3[j])
    for k in range(four, len(place)):
        row, times = K[place[k], start:stop], factor[k]
        for j in range(len(target)):
            target[j] += times * row[j]


def visited(kernel: Kernel, X: Any, bias: float, limit: int, threads: int) -> Visited:
    """The kernel matrix of the rows of X within ``limit`` bytes, none of them computed yet."""
    gram = make_gram(kernel, X, bias, limit, threads, keep=False)
    row = gram.n * gram.kept.itemsize
    room = min(gram.n, max((limit - 4 * gram.width * row) // row, 0))
    if gram.n * row <= limit:
        room = gram.n
    kept = np.empty((room, gram.n), dtype=gram.kept.dtype)
    slot = np.full(gram.n, -1, dtype=np.int64)
    return Visited(
        gram.kernel, gram.X, bias, gram.diag, kept, slot, gram.width, threads, limit, gram.shift
    )
