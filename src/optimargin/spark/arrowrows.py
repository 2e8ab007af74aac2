"""Rows out of Arrow arrays: of lists of numbers, or of Spark's vectors as structs.

A batch of dense vectors or lists is read where it lies; one with a sparse vector among them
becomes CSR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp


def rows_of(column: pa.Array) -> Any:
    """The rows as a dense or CSR matrix."""
    if column.null_count:
        raise ValueError("featuresCol has rows without features (null).")
    if pa.types.is_struct(column.type):
        kind, size, indices, values = column.flatten()
        is_sparse = kind.to_numpy(zero_copy_only=False) == 0
        if is_sparse.any():
            return _sparse(is_sparse, size, indices, values)
        column = values
    return _dense(column)


def _dense(lists: pa.Array) -> np.ndarray:
    values, lengths = lists.flatten(), _lengths(lists)
    if values.null_count:
        raise ValueError("featuresCol has rows in which a feature is missing (null).")
    d = _one(lengths)
    return values.to_numpy(zero_copy_only=False).reshape(len(lists), d)


def _sparse(is_sparse: np.ndarray, size: pa.Array, indices: pa.Array, values: pa.Array) -> Any:
    """Sparse vectors, and dense ones among them as rows without zeros left out."""
    lengths = _lengths(values)
    sizes = np.where(is_sparse, size.fill_null(0).to_numpy(zero_copy_only=False), lengths)
    d = _one(sizes)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.empty(indptr[-1], dtype=np.int32)
    stored = np.repeat(is_sparse, lengths)
    columns[stored] = indices.flatten().to_numpy(zero_copy_only=False)
    columns[~stored] = np.tile(np.arange(d, dtype=np.int32), np.count_nonzero(~is_sparse))
    data = values.flatten().to_numpy(zero_copy_only=False)
    return sp.csr_matrix((data, columns, indptr), shape=(len(lengths), d))


def _lengths(lists: pa.Array) -> np.ndarray:
    return lists.value_lengths().to_numpy(zero_copy_only=False)


def _one(sizes: np.ndarray) -> int:
    """The number of features, which all rows have."""
    least, most = int(sizes.min()), int(sizes.max())
    if least != most:
        raise ValueError(f"featuresCol has rows of {least} and of {most} features.")
    return most
