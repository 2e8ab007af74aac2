"""All rows as features of the landmarks, on a device: kept in blocks, or made again in blocks.

What `sketch.Sketch` is for compiled loops.  Kernel values of two like rows nearly cancel in a
model, which half and single precision would not survive; features phi = L^{-1} k do, so here the
values are turned into features at once, by products with the inverse of L.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from optimargin.arrays import at_least, cast, namespace, number, on_host, taken, zeros
from optimargin.device import (
    Triangle,
    beside,
    free_bytes,
    in_smaller_blocks,
    is_out_of_memory,
    release,
    squared,
    times,
    width_of,
)
from optimargin.kernels import ready
from optimargin.landmarks import Landmarks, moved
from optimargin.partition import thinned

_SAMPLE = 2_000  # rows on which the residual is measured, at most
_FINER = {"float16": "float32", "float32": "float64"}
_GUIDE = 24.0  # bytes that a guide takes on its way, for each two landmarks
_SPARE = 0.2  # share of a device's free memory that is left to work with


@dataclass(frozen=True)
class Features:
    """Phi as a matrix of n rows and S columns in the precision ``dtype``.

    ``kept`` holds the blocks of the first rows, which end at ``edges``; ``width`` rows are made
    at a time.
    """

    landmarks: Landmarks
    X: Any
    dtype: str
    width: int
    kept: list[Any]
    edges: list[int]
    room = 1e18  # bytes of the budget for further machines: there is no such budget here

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and landmarks."""
        return int(self.X.shape[0]), len(self.landmarks)

    @property
    def size(self) -> int:
        """How many features there are."""
        return self.shape[0] * self.shape[1]

    @cached_property
    def triangle(self) -> Triangle:
        """What makes features of kernel values."""
        return Triangle(self.landmarks.inverse, self.dtype)

    @cached_property
    def unit(self) -> Any:
        """What the identity is in the features that are kept; None where it is the identity."""
        return self.triangle.unit(self.landmarks.factor)

    @cached_property
    def _near(self) -> Any:
        return ready(self.landmarks.kernel, self.landmarks.moved)

    @cached_property
    def diag(self) -> Any:
        """K(x, x) of each row, the constant included."""
        out = zeros(self.shape[0], beside(self.X))
        for span in self.spans(slice(0, self.shape[0])):
            out[span] = self.landmarks.kernel.diag(taken(self.X, span))
        return out + self.landmarks.bias**2

    @cached_property
    def left_out(self) -> float:
        """The share of the kernel matrix's trace that the landmarks leave out, on some rows."""
        n = self.shape[0]
        rows = thinned(n, min(n, _SAMPLE), np.random.default_rng(0))
        total = self.landmarks.kernel.diag(taken(self.X, rows)) + self.landmarks.bias**2
        left = total - _norms(self.exactly(rows))
        whole = number(total)
        return max(number(left), 0.0) / whole if whole > 0.0 else 0.0

    def spans(self, part: slice) -> list[slice]:
        """A range of rows in blocks: those that are kept, then such as are worked on at once."""
        starts = [0, *self.edges]
        found = [slice(a, b) for a, b in zip(starts, self.edges, strict=False)]
        width = self.width
        for start in range(starts[-1], self.shape[0], width):
            found.append(slice(start, min(start + width, self.shape[0])))
        cut = [slice(max(s.start, part.start), min(s.stop, part.stop)) for s in found]
        return [s for s in cut if s.start < s.stop]

    def exactly(self, rows: Any) -> Any:
        """The features L^{-1} k of rows, from those that are kept."""
        return self.triangle.straight(cast(self[rows], "float64").T).T

    def of(self, A: Any) -> Any:
        """The features of rows."""
        landmarks = self.landmarks
        K = landmarks.kernel.block(landmarks.near(A), self._near)
        if landmarks.bias:
            K += landmarks.bias**2
        return self.triangle.applied(K)

    def __getitem__(self, rows: Any) -> Any:
        """The features of rows: one of `spans`, or by number."""
        if isinstance(rows, slice):
            starts = [0, *self.edges]
            for k, block in enumerate(self.kept):
                if starts[k] <= rows.start and rows.stop <= self.edges[k]:
                    return block[rows.start - starts[k] : rows.stop - starts[k], ...]
            return self.of(taken(self.X, rows))
        if self.kept and self.edges[-1] == self.shape[0]:
            return self._gathered(rows)
        return self.of(taken(self.X, rows))

    def _gathered(self, rows: Any) -> Any:
        """Rows by number, in rising order, out of the blocks."""
        rows, found, first = on_host(rows), [], 0
        for k, block in enumerate(self.kept):
            last = int(np.searchsorted(rows, self.edges[k]))
            if last > first:
                found.append(taken(block, rows[first:last] - (self.edges[k - 1] if k else 0)))
            first = last
        return namespace(found[0]).concat(found) if len(found) > 1 else found[0]

    def scores(self, models: list[Any]) -> Any:
        """The scores of all rows under some expansions, a column each."""
        W = namespace(models[0]).stack([self.landmarks.lift(b) for b in models], axis=1)
        W = self.triangle.twisted(W)
        out = zeros((self.shape[0], len(models)), W)
        for span in self.spans(slice(0, self.shape[0])):
            out[span, ...] = times(self[span], W)
        return out

    def residual(self) -> Any:
        """What the landmarks leave out of the kernel's diagonal."""
        left = 1.0 * self.diag
        for span in self.spans(slice(0, self.shape[0])):
            left[span] -= _norms(self.exactly(span))
        return at_least(left, 0.0)

    def of_others(self, X: Any) -> Features:
        """The features of other rows, of which none are kept."""
        others = replace(self, X=X, kept=[], edges=[])
        vars(others)["triangle"] = self.triangle
        return others

    def features(self) -> Any:
        """All rows as one matrix."""
        found = [self.exactly(span) for span in self.spans(slice(0, self.shape[0]))]
        return namespace(found[0]).concat(found)

    def finer(self) -> Features | None:
        """The features of the same rows in the next finer precision, none of them kept yet."""
        dtype = _FINER.get(self.dtype)
        if dtype is None:
            return None
        landmarks = self.landmarks
        if dtype == "float64":
            near = moved(landmarks.Z, landmarks.centre, "float64")
            landmarks = replace(landmarks, moved=near)
        return replace(self, landmarks=landmarks, dtype=dtype, kept=[], edges=[])

    def filled(self) -> Features:
        """The same, of which as many are kept as the device has room for."""
        return filled(self)

    def in_double(self, rows: Any, b: Any) -> Any:
        """The scores of rows under an expansion, in double precision all the way."""
        landmarks = self.landmarks
        A, Z = (moved(M, landmarks.centre, "float64") for M in (taken(self.X, rows), landmarks.Z))
        return (landmarks.kernel.block(A, Z) + landmarks.bias**2) @ b

    def part(self, rows: np.ndarray) -> Features:
        """Some of the rows, their features kept; the same ones, if the last were the same."""
        known = self._parts
        if not known or not np.array_equal(known[0], rows):
            X = taken(self.X, rows)
            part = replace(self, X=X, kept=[], edges=[])
            if self.kept and self.edges[-1] == self.shape[0]:
                part = replace(part, kept=[self._gathered(rows)], edges=[len(rows)])
            else:
                part = filled(part)
            vars(part).update(triangle=self.triangle, unit=self.unit)
            known[:] = [rows, part]
        return known[1]

    @cached_property
    def _parts(self) -> list[Any]:
        return []

    def inward(self, g: Any) -> Any:
        """What a pass says, in features."""
        return self.triangle.straight(g[:-1])

    def hessian(self, rows: Any, h: Any) -> Any:
        """The sum of h times the squares of some rows as they are kept.

        For features in half precision this is, in single precision, T^{-1} Phi' diag(h) Phi T^{-T}
        with the twist T.
        """
        total, width = None, self.width
        root, count = namespace(h).sqrt(h), int(rows.shape[0])
        largest = float(namespace(h).max(root)) if count else 1.0
        for start in range(0, count, width):
            some = slice(start, min(start + width, count))
            phi = self[taken(rows, some)]
            phi *= cast(root[some] / largest, self.dtype)[:, None]
            H = squared(phi)
            total = H if total is None else total + H
        S = self.shape[1]
        return zeros((S, S), h, "float32") if total is None else total * largest**2


def _norms(phi: Any) -> Any:
    """The squared norm of each row."""
    return namespace(phi).sum(phi * phi, axis=1)


def filled(features: Features) -> Features:
    """The same features, of which as many are kept as the device has room for."""
    n, S = features.shape
    like, size = beside(features.X), np.dtype(features.dtype).itemsize
    kept: list[Any] = []
    edges: list[int] = []
    triangle, unit = features.triangle, features.unit
    room = (1.0 - _SPARE) * free_bytes(like) - _GUIDE * S * S
    for span in features.spans(slice(0, n)):
        room -= (span.stop - span.start) * S * size
        if room < 0.0:
            break
        try:
            blocks = in_smaller_blocks(lambda rows: features.of(taken(features.X, rows)), span)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            release()
            break
        for block in blocks:
            kept.append(block)
            edges.append((edges[-1] if edges else 0) + int(block.shape[0]))
    full = replace(features, kept=kept, edges=edges)
    vars(full).update(triangle=triangle, unit=unit)
    return full


def make_features(landmarks: Landmarks, X: Any, dtype: str) -> Features:
    """The features of all rows, in a precision: "float16", "float32" or "float64"."""
    width = width_of(len(landmarks), 8, beside(X))
    return filled(Features(landmarks, X, dtype, width, [], []))
