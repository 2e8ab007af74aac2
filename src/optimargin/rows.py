"""Rows of data as compiled loops see them: ``score`` reads a row, ``push`` adds it.

A loop written with ``score`` and ``push`` runs on dense features, CSR features and
kernel rows alike.  Features carry a constant column of value ``bias`` that is never
stored; vectors of feature size have length d + 1, the last entry belonging to it.
Sums are double precision whatever the type of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from optimargin.arrays import cast, is_foreign, namespace

# Compiled loops: quotients by zero follow IEEE rules, products may be fused into sums.
LOOP: Any = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
# Sums over contiguous numbers may be reordered, so that they use the vector units; not
# so over gathered ones, where the vector instruction is the slower way.
CONTIGUOUS: Any = {"error_model": "numpy", "fastmath": {"contract", "nsz", "reassoc"}}


def compiled(function: Callable[..., Any], contiguous: bool = False) -> Callable[..., Any]:
    """The function as a compiled loop: cached on disk, and free of the interpreter's lock."""
    options = CONTIGUOUS if contiguous else LOOP
    return njit(cache=True, nogil=True, **options)(function)


_LINE = 64  # bytes the cache takes at a time
_ONE, _TWO, _THREE, _FOUR = np.arange(1, 5, dtype=np.uint64)  # places: never negative


class DenseRows(NamedTuple):
    """Rows of a C-ordered matrix, with the vector w they are scored against."""

    X: Any
    bias: float
    w: Any


class SparseRows(NamedTuple):
    """Rows of a CSR matrix, with the vector w they are scored against."""

    data: Any
    indices: Any
    indptr: Any
    bias: float
    w: Any


class GramRows(NamedTuple):
    """Rows of a kernel matrix: row i is K[slot[i]] plus a constant, and f every row's score.

    ``shift`` is added to the diagonal.
    """

    K: Any
    slot: Any
    constant: float
    shift: float
    f: Any


def feature_rows(
    X: Any, bias: float, w: np.ndarray, part: slice | None = None
) -> DenseRows | SparseRows:
    """The rows of a dense or CSR matrix, or those of a range, without a copy."""
    if sp.issparse(X):
        indptr = X.indptr if part is None else X.indptr[part.start : part.stop + 1]
        return SparseRows(X.data, X.indices, indptr, float(bias), w)
    return DenseRows(X if part is None else X[part], float(bias), w)


def sqnorms(X: Any) -> np.ndarray:
    """Squared Euclidean norm of each row, double precision."""
    if is_foreign(X):
        X = cast(X, "float64")
        return namespace(X).sum(X * X, axis=1)
    if not sp.issparse(X):
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)
    out = np.empty(X.shape[0])
    _sums_of_squares(X.data, X.indptr, out)
    return out


@partial(compiled, contiguous=True)
def _sums_of_squares(data, indptr, out):
    for i in range(len(out)):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[k]) * data[k]
        out[i] = total


def score(rows, i):
    """Decision value f(x_i); for compiled loops only."""


def push(rows, i, step):
    """Add ``step`` times row i to the model; for compiled loops only."""


def fetch(rows, i):
    """Ask for row i to be brought into the cache; for compiled loops in random order."""


def add_outer(rows, i, h, H):
    """Add h x_i x_i' to the lower triangle of H; for compiled loops only."""


def is_kind(rows, kind):
    """Whether compiled code sees rows of this kind."""
    return isinstance(rows, types.NamedTuple) and rows.instance_class is kind


@overload(score, jit_options=CONTIGUOUS)
def _score_dense(rows, i):
    if not is_kind(rows, DenseRows):
        return None

    def implementation(rows, i):
        X, w = rows.X, rows.w
        total = rows.bias * w[X.shape[1]]
        for j in range(X.shape[1]):
            total += X[i, j] * w[j]
        return total

    return implementation


@overload(score, jit_options=LOOP)
def _score_sparse(rows, i):
    if not is_kind(rows, SparseRows):
        return None

    def implementation(rows, i):
        data, indices, w = rows.data, rows.indices, rows.w
        k, last = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])
        total = rows.bias * w[w.shape[0] - 1]
        s0 = s1 = s2 = s3 = 0.0  # four sums, which need not wait for each other
        while k + _FOUR <= last:
            s0 += data[k] * w[np.uint64(indices[k])]
            s1 += data[k + _ONE] * w[np.uint64(indices[k + _ONE])]
            s2 += data[k + _TWO] * w[np.uint64(indices[k + _TWO])]
            s3 += data[k + _THREE] * w[np.uint64(indices[k + _THREE])]
            k += _FOUR
        while k < last:
            total += data[k] * w[np.uint64(indices[k])]
            k += _ONE
        return total + ((s0 + s1) + (s2 + s3))

    return implementation


@overload(score, jit_options=LOOP)
def _score_gram(rows, i):
    if not is_kind(rows, GramRows):
        return None
    return lambda rows, i: rows.f[i]


@overload(push, jit_options=LOOP)
def _push_dense(rows, i, step):
    if not is_kind(rows, DenseRows):
        return None

    def implementation(rows, i, step):
        X, w = rows.X, rows.w
        for j in range(X.shape[1]):
            w[j] += step * X[i, j]
        w[X.shape[1]] += step * rows.bias

    return implementation


@overload(push, jit_options=LOOP)
def _push_sparse(rows, i, step):
    if not is_kind(rows, SparseRows):
        return None

    def implementation(rows, i, step):
        w = rows.w
        for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
            w[np.uint64(rows.indices[k])] += step * rows.data[k]
        w[w.shape[0] - 1] += step * rows.bias

    return implementation


@overload(push, jit_options=LOOP)
def _push_gram(rows, i, step):
    if not is_kind(rows, GramRows):
        return None

    def implementation(rows, i, step):
        f, row, constant = rows.f, rows.K[rows.slot[i]], step * rows.constant
        for j in range(f.shape[0]):
            f[j] += step * row[j] + constant
        f[i] += step * rows.shift

    return implementation


@overload(add_outer, jit_options=LOOP)
def _add_outer_sparse(rows, i, h, H):
    if not is_kind(rows, SparseRows):
        return None

    def implementation(rows, i, h, H):
        first, last, d = rows.indptr[i], rows.indptr[i + 1], H.shape[0] - 1
        for k in range(first, last):
            j, scale = np.uint64(rows.indices[k]), h * rows.data[k]
            for m in range(first, k + 1):
                H[j, np.uint64(rows.indices[m])] += scale * rows.data[m]
            H[d, j] += scale * rows.bias
        H[d, d] += h * rows.bias * rows.bias

    return implementation


@intrinsic
def _prefetch_instruction(typingctx, array, index):
    """The processor's prefetch instruction for one element of an array."""

    def generate(context, builder, signature, args):
        values = context.make_array(signature.args[0])(context, builder, args[0])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = builder.bitcast(builder.gep(values.data, [args[1]]), pointer)
        builder.call(call, [place, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = _prefetch_instruction


@overload(fetch, jit_options=LOOP)
def _fetch_sparse(rows, i):
    if not is_kind(rows, SparseRows):
        return None

    def implementation(rows, i):
        first, last = rows.indptr[i], rows.indptr[i + 1]
        for k in range(first, last, _LINE // rows.data.itemsize):
            prefetch(rows.data, k)
        for k in range(first, last, _LINE // rows.indices.itemsize):
            prefetch(rows.indices, k)

    return implementation


@overload(fetch, jit_options=LOOP)
def _fetch_dense(rows, i):
    if not is_kind(rows, DenseRows):
        return None

    def implementation(rows, i):
        d = rows.X.shape[1]
        for k in range(i * d, (i + 1) * d, _LINE // rows.X.itemsize):
            prefetch(rows.X, k)

    return implementation


@overload(fetch, jit_options=LOOP)
def _fetch_gram(rows, i):
    if not is_kind(rows, GramRows):
        return None
    return lambda rows, i: None  # a row is long, and the processor sees where it leads
