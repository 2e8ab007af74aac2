"""Rows of data against k models at once: ``scores`` reads a row, ``push_classes`` adds it.

The kinds of rows are those of `rows`.  For features ``w`` is a matrix of shape (d + 1, k); for
kernel rows ``f`` has shape (k, n), so that a kernel row is added to a model's scores in one
stretch of memory.

A row meets all classes, or the few of a list.  Where it meets all, the k weights of a feature
lie side by side (C order), and one entry of the row meets them in one go.  Where it meets a
few, the weights of a model lie side by side (Fortran order), and the row meets one model after
the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from optimargin.rows import (
    CONTIGUOUS,
    LOOP,
    DenseRows,
    GramRows,
    SparseRows,
    compiled,
    is_kind,
    push,
    score,
)


def block_scores(rows: Any, part: slice) -> np.ndarray:
    """All decision values of consecutive rows, of shape (rows, k).

    ``w`` must be in C order.
    """
    if isinstance(rows, GramRows):
        return np.ascontiguousarray(rows.f[:, part].T)
    if isinstance(rows, DenseRows):
        return rows.X[part] @ rows.w[:-1] + rows.bias * rows.w[-1]
    F = np.empty((part.stop - part.start, rows.w.shape[1]))
    _score_rows(rows, part.start, F)
    return F


@compiled
def _score_rows(rows, first, F):
    for t in range(len(F)):
        scores(rows, first + t, None, F[t])


def scores(rows, i, classes, out):
    """Write the decision values of row i to ``out``; for compiled loops only.

    ``classes`` are the classes it meets, None all of them.
    """


def model(rows, m):
    """The rows against model m alone; for compiled loops only."""


@overload(model, jit_options=LOOP)
def _model(rows, m):
    if is_kind(rows, DenseRows):
        return lambda rows, m: DenseRows(rows.X, rows.bias, rows.w[:, m])
    if is_kind(rows, SparseRows):
        return lambda rows, m: SparseRows(
            rows.data, rows.indices, rows.indptr, rows.bias, rows.w[:, m]
        )
    return lambda rows, m: GramRows(rows.K, rows.slot, rows.constant, rows.shift, rows.f[m])


@register_jitable
def class_at(classes, c):
    """The class at place c of those a row meets."""
    return c if classes is None else classes[c]


@register_jitable
def push_classes(rows, i, classes, change):
    """Add ``change`` times row i to the models of the classes; for compiled loops only."""
    for c in range(len(change)):
        if change[c] != 0.0:
            push(model(rows, class_at(classes, c)), i, change[c])


@overload(scores, jit_options=LOOP)
def _scores(rows, i, classes, out):
    if is_kind(rows, GramRows) or not isinstance(classes, types.NoneType):
        return lambda rows, i, classes, out: _scores_in_turn(rows, i, classes, out)
    if is_kind(rows, DenseRows):
        return lambda rows, i, classes, out: _scores_dense(rows, i, out)
    return lambda rows, i, classes, out: _scores_sparse(rows, i, out)


@register_jitable
def _scores_in_turn(rows, i, classes, out):
    for c in range(len(out)):
        out[c] = score(model(rows, class_at(classes, c)), i)


@register_jitable(**CONTIGUOUS)
def _scores_dense(rows, i, out):
    X, W, k = rows.X, rows.w, len(out)
    d = X.shape[1]
    for m in range(k):
        out[m] = rows.bias * W[d, m]
    whole = d - d % 4  # four features at a time: ``out`` is read and written less often
    for j in range(0, whole, 4):
        x0, x1, x2, x3 = X[i, j], X[i, j + 1], X[i, j + 2], X[i, j + 3]
        if x0 != 0.0 or x1 != 0.0 or x2 != 0.0 or x3 != 0.0:
            for m in range(k):
                out[m] += (x0 * W[j, m] + x1 * W[j + 1, m]) + (x2 * W[j + 2, m] + x3 * W[j + 3, m])
    for j in range(whole, d):
        for m in range(k):
            out[m] += X[i, j] * W[j, m]


@register_jitable(**CONTIGUOUS)
def _scores_sparse(rows, i, out):
    W, k = rows.w, len(out)
    d = W.shape[0] - 1
    for m in range(k):
        out[m] = rows.bias * W[d, m]
    first, last = rows.indptr[i], rows.indptr[i + 1]
    whole = last - (last - first) % 2
    for p in range(first, whole, 2):
        x0, j0 = rows.data[p], np.uint64(rows.indices[p])
        x1, j1 = rows.data[p + 1], np.uint64(rows.indices[p + 1])
        for m in range(k):
            out[m] += x0 * W[j0, m] + x1 * W[j1, m]
    for p in range(whole, last):
        x, j = rows.data[p], np.uint64(rows.indices[p])
        for m in range(k):
            out[m] += x * W[j, m]
