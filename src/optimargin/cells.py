"""Cells: clusters of about equal size, which of them are near a row, and who is just outside.

K-means leaves clusters whose sizes differ by orders of magnitude, and the largest decides how long
a machine in each of them takes.  Here the largest cell is cut in two, by 2-means, until there are
enough; then a row's cell is that of its nearest centre.  Sparse rows stay sparse.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.threads import blocks, spread

_POOL = 5_000  # rows among which centres are found, at least
_EACH = 200  # the same for each cell
_ROUNDS = 10  # of 2-means
_TRIALS = 8  # rows looked at for one that differs from another
_FALL = 16  # power of the ratio of squared distances by which a farther cell counts less
_LEAST = 1e-4  # share below which a cell counts nothing, and need not be asked


class Near(NamedTuple):
    """The cells nearest to each row, the nearest first, and their squared distances."""

    cell: np.ndarray
    distance: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """What each of them counts, in shares: equally on a boundary, far from it the own alone."""
        tiny = np.finfo(np.float64).tiny
        share = ((self.distance[:, :1] + tiny) / (self.distance + tiny)) ** _FALL
        share[share < _LEAST] = 0.0
        return share / share.sum(axis=1, keepdims=True)


def make_centres(X: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Centres of at most so many cells; fewer where rows are equal."""
    pool = X[np.sort(rng.permutation(X.shape[0])[: max(_POOL, _EACH * count)])]
    heap = [(-pool.shape[0], 0, np.arange(pool.shape[0]))]  # the largest cell is the first
    done: list[np.ndarray] = []
    made = 1
    while heap and len(heap) + len(done) < count:
        cell = heappop(heap)[2]
        second = _halved(pool[cell], rng)
        if second.all() or not second.any():
            done.append(cell)
            continue
        for half in (cell[~second], cell[second]):
            heappush(heap, (-len(half), made, half))
            made += 1
    found = [*done, *(cell for _, _, cell in heap)]
    return np.concatenate([_mean(pool[cell]) for cell in found])


def _halved(X: Any, rng: np.random.Generator) -> np.ndarray:
    """Which rows are in the second of two clusters; none, if rows do not differ."""
    n = X.shape[0]
    places = rng.permutation(n)[: _TRIALS + 1]
    some = _dense(X[places])
    differs = np.flatnonzero((some != some[0]).any(axis=1))
    second = np.zeros(n, dtype=bool)
    if not len(differs):
        return second
    centres = some[[0, differs[0]]]
    for _ in range(_ROUNDS):
        before, second = second, ranked(X, centres, 1).cell[:, 0] == 1
        if second.all() or not second.any() or np.array_equal(before, second):
            break
        centres = np.concatenate([_mean(X[~second]), _mean(X[second])])
    return second


def _mean(X: Any) -> np.ndarray:
    """The mean of rows, as a matrix of one row of their type."""
    return np.asarray(X.mean(axis=0), dtype=np.float64).reshape(1, -1).astype(X.dtype)


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else X


def ranked(X: Any, centres: np.ndarray, count: int, threads: int = 1) -> Near:
    """The ``count`` nearest centres of every row."""
    # distances come from inner products, which cancel badly far from the origin
    origin = None if sp.issparse(X) else centres.mean(axis=0, keepdims=True)
    near = (centres if origin is None else centres - origin).astype(X.dtype, copy=False)
    size, count = np.einsum("ij,ij->i", near, near), min(count, len(centres))
    cell = np.empty((X.shape[0], count), dtype=np.intp)
    distance = np.empty((X.shape[0], count))

    def task(span: slice) -> None:
        A = X[span] if origin is None else X[span] - origin
        D = A @ near.T
        D *= -2.0
        D += size
        own = A.multiply(A).sum(axis=1) if sp.issparse(A) else np.einsum("ij,ij->i", A, A)
        for k in range(count):
            best = D.argmin(axis=1)
            line = np.arange(len(best))
            cell[span, k], distance[span, k] = best, D[line, best] + np.asarray(own).ravel()
            D[line, best] = np.inf

    spread(task, blocks(X), threads)
    return Near(cell, np.maximum(distance, 0.0, out=distance))


def neighbours(near: Near, centres: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows just outside of a cell, and that cell: ``share`` times as many as it has of its own.

    They are rows for which the cell is the second nearest, those nearest to the boundary first.
    There are fewer where the cell is far from all others: no row is farther from the boundary than
    those inside are from the centre, in the mean.
    """
    (own, other), (d_own, d_other) = near.cell.T, near.distance.T
    size = np.bincount(own, minlength=len(centres))
    radius = np.sqrt(np.bincount(own, d_own, minlength=len(centres)) / np.maximum(size, 1))
    apart = np.linalg.norm(centres[own] - centres[other], axis=1)
    depth = (d_other - d_own) / np.maximum(2.0 * apart, 1e-300)
    row = np.flatnonzero(depth <= radius[other])
    row = row[np.lexsort((depth[row], other[row]))]
    rank = np.arange(len(row)) - np.searchsorted(other[row], other[row])
    row = row[rank < np.rint(share * size)[other[row]]]
    return row, other[row]
