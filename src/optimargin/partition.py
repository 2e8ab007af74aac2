"""Which rows go where: functions that give every row the number of its part.

stratified      sodm.txt, eq. (5)-(6): landmarks by the greedy choice (ours: some at a time), a
                row's stratum is its nearest landmark in the kernel's space, and every part has an
                equal share of every stratum; ours: of every class of it too
random          equal shares of everything                                   (cascade)
kmeans          clusters are the parts                                       (DC)
kmeans-strata   clusters are the strata, of which every part has its share   (DiP)
blocks          rows that follow each other
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.cluster.vq import kmeans2

from optimargin.kernels import Kernel, ready
from optimargin.landmarks import centre_of, moved, pivoted_cholesky
from optimargin.rows import compiled
from optimargin.threads import blas_threads, blocks, spans, spread

PARTITIONS = ("stratified", "random", "kmeans", "kmeans-strata", "blocks")
_POOL = 5_000  # rows among which centres are found
_EACH = 25  # the same for each stratum, whose landmark is a row that is far from others
_AT_ONCE = 8  # landmarks that are chosen in one look, where they do not resemble each other
_WIDTH = 2048  # rows whose kernel values with the landmarks stay in the cache
_FEW = 1 << 15  # numbers below this are sorted by their digits
_DENSE = 1 << 28  # numbers that clustering may make dense
_ROUNDS = 10  # of k-means
_TIED = 1e-5  # difference of squared distances that counts as none, in those of a landmark


def partition(
    kind: str,
    X: Any,
    y: np.ndarray,
    count: int,
    rng: np.random.Generator,
    kernel: Kernel,
    n_strata: int,
    threads: int = 1,
) -> np.ndarray:
    """The number of every row's part, from 0 to ``count`` - 1, by the rule of that name."""
    n = X.shape[0]
    if kind == "blocks" or count <= 1:
        return np.arange(n) * count // n
    if kind == "random":
        return deal(np.zeros(n, dtype=np.intp), count, rng)
    with blas_threads(1):  # how sums are rounded decides where rows go that are in between
        if kind == "kmeans":
            return clusters(X, count, rng)
        return deal(cells(kind, X, y, rng, kernel, n_strata, threads), count, rng)


def cells(
    kind: str,
    X: Any,
    y: np.ndarray,
    rng: np.random.Generator,
    kernel: Kernel,
    n_strata: int,
    threads: int = 1,
) -> np.ndarray:
    """The number of every row's class and stratum together."""
    if kind == "kmeans-strata":
        stratum = clusters(X, n_strata, rng)
    else:
        stratum = strata(X, kernel, n_strata, rng, threads)
    positive = np.unique(y, return_inverse=True)[1]
    return positive * (int(stratum.max()) + 1) + stratum


def deal(cell: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows dealt out to so many parts, cell by cell and at random within a cell.

    One deal goes on where the last ended: so parts have equal shares of every cell, of every run
    of cells, and of all rows, up to one row.
    """
    order = rng.permutation(len(cell))
    order = order[sorted_by(cell[order])]
    part = np.empty(len(cell), dtype=np.intp)
    part[order] = np.arange(len(cell)) % count
    return part


def sorted_by(number: np.ndarray) -> np.ndarray:
    """The order of rows by a number each has, equal ones as they come; fast where it is small."""
    if len(number) and number.max() < _FEW:
        number = number.astype(np.int16)
    return np.argsort(number, kind="stable")


class Strata(NamedTuple):
    """Landmarks among a pool of the rows; the nearest one, in the kernel's space, is a stratum."""

    kernel: Kernel
    centre: np.ndarray | None
    Z: Any
    own: np.ndarray

    def numbers(self, X: Any, threads: int = 1) -> np.ndarray:
        """The number of every row's stratum."""
        out = np.empty(X.shape[0], dtype=np.intp)
        Z, tied = ready(self.kernel, self.Z), _TIED * np.abs(self.own).max()

        def task(span: slice) -> None:
            K = self.kernel.block(moved(X[span], self.centre, X.dtype), Z)
            _nearest(K, self.own, tied, out[span])

        spread(task, spans(len(out), _WIDTH), threads)
        return out


@compiled
def _nearest(K, own, tied, out):
    """Of the landmarks that are as near as any, the first, or rounding would choose."""
    for i in range(len(out)):
        least = np.inf
        for j in range(len(own)):
            least = min(least, own[j] - 2.0 * K[i, j])
        j = 0
        while own[j] - 2.0 * K[i, j] > least + tied:
            j += 1
        out[i] = j


def make_strata(pool: Any, kernel: Kernel, count: int) -> Strata:
    """So many strata, from some of the rows."""
    centre = centre_of(kernel, pool)
    A = moved(pool, centre, pool.dtype)
    B = ready(kernel, A)
    with blas_threads(1):  # a column at a time: threads would wait for each other, and round
        found = pivoted_cholesky(
            lambda index: kernel.block(A[index], B).T,
            kernel.diag(A),
            min(count, A.shape[0]),
            block=_AT_ONCE,
            dtype=A.dtype,
        )
    Z = A[found.pivots]
    return Strata(kernel, centre, Z, kernel.diag(Z))


def strata(
    X: Any, kernel: Kernel, count: int, rng: np.random.Generator, threads: int = 1
) -> np.ndarray:
    """The number of the landmark that is nearest in the kernel's space, for every row."""
    n = X.shape[0]
    pool = np.sort(rng.choice(n, min(n, _EACH * count), replace=False, shuffle=False))
    return make_strata(X[pool], kernel, count).numbers(X, threads)


def clusters(X: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """The number of the nearest of so many centres, found by k-means on a pool of the rows."""
    pool = np.sort(rng.permutation(X.shape[0])[: max(_POOL, 20 * count)])
    return nearest(X, centres(X[pool], min(count, len(pool)), rng))


def centres(X: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Centres of clusters by k-means, from rows chosen at random."""
    if sp.issparse(X):
        if X.shape[0] * X.shape[1] > _DENSE:
            raise ValueError(
                f"k-means makes rows dense, and {X.shape[1]} features are too many for that;"
                " choose another rule for landmarks or partition."
            )
        X = X.toarray()
    first = X[rng.choice(len(X), count, replace=False)]
    with warnings.catch_warnings():  # where rows are the same, some centres have none; they stay
        warnings.simplefilter("ignore", UserWarning)
        return kmeans2(X, first, iter=_ROUNDS, minit="matrix")[0].astype(X.dtype)


def nearest(X: Any, centres: np.ndarray) -> np.ndarray:
    """The number of the nearest centre, for every row."""
    out, half = np.empty(X.shape[0], dtype=np.intp), 0.5 * np.einsum("ij,ij->i", centres, centres)
    for span in blocks(X):
        out[span] = (half - X[span] @ centres.T).argmin(axis=1)
    return out


def thinned(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many of n row numbers, in order: one at random of each run of rows of the same length.

    Rows that are sorted by anything are all represented, and no permutation of n is made.
    """
    edges = np.arange(count + 1) * n // count
    return edges[:-1] + (rng.random(count) * np.diff(edges)).astype(np.intp)
