"""The kernel values between all rows and the landmarks: kept, or computed in blocks.

A budget in bytes decides.  Values are in single precision when there are many rows; whoever
reads them sums in double precision, so a model over landmarks with large coefficients that
nearly cancel does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from optimargin.expansion import sums
from optimargin.landmarks import Landmarks
from optimargin.memory import in_words
from optimargin.partition import thinned
from optimargin.threads import blas_threads, blocks, spans, spread

_CACHE = 1 << 22  # bytes of a block that is filled, and read, while it stays in the cache
_BLOCKS = 1 << 23  # bytes of the blocks that are at work
_COPIES = 3  # rows of a block as they are read, relative to the centre, and with their norms
_SAMPLE = 2_000  # rows on which the residual is measured, at most
_ROWS = 64  # rows of a block at least
_ROOM = 0.25  # share of the budget for several machines at the same time


@dataclass(frozen=True)
class Sketch:
    """K(X, Z) as a matrix of n rows and S columns, of which ``kept`` holds the first rows."""

    landmarks: Landmarks
    X: Any
    kept: np.ndarray
    threads: int
    room: float = 0.0  # bytes of the budget for further machines at the same time

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and landmarks."""
        return self.X.shape[0], len(self.landmarks)

    @property
    def dtype(self) -> Any:
        """The precision of the values."""
        return self.landmarks.moved.dtype

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.shape[0] * self.shape[1]

    @cached_property
    def diag(self) -> np.ndarray:
        """K(x, x) of each row, the constant included."""
        kernel, out = self.landmarks.kernel, np.empty(self.shape[0])
        for span in blocks(self.X):
            out[span] = kernel.diag(self.X[span])
        return out + self.landmarks.bias**2

    @cached_property
    def left_out(self) -> float:
        """The share of the kernel matrix's trace that the landmarks leave out, on some rows."""
        n = self.shape[0]
        rows = thinned(n, min(n, _SAMPLE), np.random.default_rng(0))
        left, total = 0.0, float(self.diag[rows].sum())
        with blas_threads(self.threads, self.shape[1]):
            for span in spans(len(rows), self.width):
                some = rows[span]
                left += float(self.landmarks.residual(self.X[some], self[some]).sum())
        return left / total if total > 0.0 else 0.0

    def holds(self, rows: slice) -> bool:
        """Whether the values of a range of rows are kept."""
        return rows.stop <= len(self.kept)

    def spans(self, part: slice) -> list[slice]:
        """A range of rows in the blocks in which they are best asked for."""
        edge = min(max(len(self.kept), part.start), part.stop)
        made = [slice(edge + s.start, edge + s.stop) for s in spans(part.stop - edge, self.width)]
        return [slice(part.start, edge), *made] if edge > part.start else made

    @property
    def width(self) -> int:
        """How many rows stay in the cache with their values and two copies on the way there."""
        columns = self.shape[1] + _COPIES * self.X.shape[1]
        return max(_ROWS, _CACHE // (np.dtype(self.dtype).itemsize * columns))

    def __getitem__(self, rows: Any) -> np.ndarray:
        """The values of a slice, or of rows by number."""
        if isinstance(rows, slice):
            rows = slice(*rows.indices(self.shape[0])[:2])
            if self.holds(rows):
                return self.kept[rows]
            if rows.stop - rows.start <= self.width:
                return self.landmarks.values(self.X[rows])
            rows = np.arange(rows.start, rows.stop)
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        held = rows < len(self.kept)
        out[held] = self.kept[rows[held]]
        missing = np.flatnonzero(~held)

        def task(part: slice) -> None:
            out[missing[part]] = self.landmarks.values(self.X[rows[missing[part]]])

        spread(task, spans(len(missing), self.width), self.threads)
        return out

    def scores(self, models: list[np.ndarray]) -> np.ndarray:
        """The scores of all rows under some expansions, a column each."""
        out, B = np.empty((self.shape[0], len(models))), np.stack(models)
        for span in self.spans(slice(0, self.shape[0])):
            sums(self[span], B, out[span])
        return out

    def residual(self) -> np.ndarray:
        """What the landmarks leave out of the kernel's diagonal."""
        return self.landmarks.residual(self.X, self[:])

    def of_others(self, X: Any) -> Sketch:
        """The values of other rows, of which none are kept."""
        return replace(self, X=X, kept=self.kept[:0])

    def features(self) -> np.ndarray:
        """All rows as features: for solvers of linear machines."""
        out = np.empty(self.shape, dtype=self.dtype)
        for span in spans(self.shape[0], max(self.shape[1], 4096)):
            out[span] = self.landmarks.features(self[span])
        return out

    def inward(self, g: np.ndarray) -> np.ndarray:
        """What a pass says, in features."""
        return self.landmarks.contract(g[:-1])

    def part(self, rows: np.ndarray) -> Sketch:
        """Some of the rows, their values kept."""
        return replace(self, X=self.X[rows], kept=self[rows])


def make_sketch(
    landmarks: Landmarks, X: Any, limit: float, threads: int, machines: int = 1
) -> Sketch:
    """The values of all rows, of which as many are kept as fit ``limit`` bytes.

    Up to a quarter of what there is goes to ``machines`` that are trained at the same time.
    """
    n, S, dtype = X.shape[0], len(landmarks), landmarks.moved.dtype
    spare = limit - footprint(n, S, 0)
    if spare < 0:
        raise MemoryError(
            f"memory_limit is {in_words(limit)}, but {S} landmarks for {n} rows need"
            f" {in_words(footprint(n, S, 0))} beside the kernel values; choose fewer with"
            " n_landmarks."
        )
    room = min(_ROOM * spare, (machines - 1) * beside(n, S))
    count = int(min(n, (spare - room) // (S * np.dtype(dtype).itemsize)))
    sketch = Sketch(landmarks, X, np.empty((count, S), dtype=dtype), threads, room)
    spread(
        lambda part: landmarks.values(X[part], sketch.kept[part]),
        spans(count, sketch.width),
        threads,
    )
    return sketch


def footprint(n: int, S: int, kept: float) -> float:
    """Bytes that training takes beside X at its peak: values, factors, margins.

    The factor of the landmarks, the guide of the solver and the rows it is made of (see
    `solvers.landmark`): three matrices of S x S in double precision with copies of one while it
    is factored, and 4 S x S values; some numbers for every row; and blocks of rows.
    """
    return _BLOCKS + kept + 8.0 * 5 * S * S + 8.0 * 4 * S * S + 8.0 * 12 * n


def beside(n: int, S: int) -> float:
    """Bytes that a further machine takes at the same time: its guide, and numbers for every row."""
    return 8.0 * 2 * S * S + 8.0 * 9 * n
