"""Rows of data against k models at once: ``scores`` reads a row, ``push_classes`` adds it.

The kinds of rows are those of `rows`.  For features ``w`` is a matrix of shape (d + 1, k),
one line a feature, so that a row's entry meets all k models in one stretch of memory; for
kernel rows ``f`` has shape (k, n), so that a kernel row is added to a model's scores in one.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from optimargin.rows import (
    CONTIGUOUS,
    LOOP,
    DenseRows,
    GramRows,
    SparseRows,
    is_kind,
)


def scores(rows, i, out):
    """Write the k decision values of row i to ``out``; for compiled loops only."""


def push_classes(rows, i, change):
    """Add ``change[l]`` times row i to model l, for all l; for compiled loops only."""


@overload(scores, jit_options=CONTIGUOUS)
def _scores_dense(rows, i, out):
    if not is_kind(rows, DenseRows):
        return None

    def implementation(rows, i, out):
        X, W, k = rows.X, rows.w, len(out)
        d = X.shape[1]
        for m in range(k):
            out[m] = rows.bias * W[d, m]
        whole = d - d % 4  # four features at a time: ``out`` is read and written less often
        for j in range(0, whole, 4):
            x0, x1, x2, x3 = X[i, j], X[i, j + 1], X[i, j + 2], X[i, j + 3]
            if x0 != 0.0 or x1 != 0.0 or x2 != 0.0 or x3 != 0.0:
                for m in range(k):
                    out[m] += (x0 * W[j, m] + x1 * W[j + 1, m]) + (
                        x2 * W[j + 2, m] + x3 * W[j + 3, m]
                    )
        for j in range(whole, d):
            for m in range(k):
                out[m] += X[i, j] * W[j, m]

    return implementation


@overload(scores, jit_options=CONTIGUOUS)
def _scores_sparse(rows, i, out):
    if not is_kind(rows, SparseRows):
        return None

    def implementation(rows, i, out):
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

    return implementation


@overload(scores, jit_options=LOOP)
def _scores_gram(rows, i, out):
    if not is_kind(rows, GramRows):
        return None

    def implementation(rows, i, out):
        for m in range(len(out)):
            out[m] = rows.f[m, i]

    return implementation


@overload(push_classes, jit_options=LOOP)
def _push_dense(rows, i, change):
    if not is_kind(rows, DenseRows):
        return None

    def implementation(rows, i, change):
        X, W = rows.X, rows.w
        d = X.shape[1]
        for m in range(len(change)):
            if change[m] != 0.0:
                for j in range(d):
                    W[j, m] += change[m] * X[i, j]
                W[d, m] += change[m] * rows.bias

    return implementation


@overload(push_classes, jit_options=LOOP)
def _push_sparse(rows, i, change):
    if not is_kind(rows, SparseRows):
        return None

    def implementation(rows, i, change):
        W = rows.w
        d = W.shape[0] - 1
        for m in range(len(change)):
            if change[m] != 0.0:
                for p in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
                    W[np.uint64(rows.indices[p]), m] += change[m] * rows.data[p]
                W[d, m] += change[m] * rows.bias

    return implementation


@overload(push_classes, jit_options=LOOP)
def _push_gram(rows, i, change):
    if not is_kind(rows, GramRows):
        return None

    def implementation(rows, i, change):
        row = rows.K[rows.slot[i]]
        for m in range(len(change)):
            if change[m] != 0.0:
                f, step, constant = rows.f[m], change[m], change[m] * rows.constant
                for j in range(len(row)):
                    f[j] += step * row[j] + constant
                f[i] += step * rows.shift

    return implementation
