"""Data files: LIBSVM, CSV and Parquet in, a matrix and labels out.

The reading itself is left to scikit-learn (LIBSVM) and pyarrow (CSV, Parquet).  What is
added: one call for all of them, compressed text, and complaints that name the file, the
line and the cell.  The line is looked for only after a reader has failed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin import tables
from optimargin.datafile import DataFileError, finite, opened, whole

__all__ = ["Data", "DataFileError", "column_names", "read"]

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
}


class Data(NamedTuple):
    """Rows, labels (None where none were asked for) and names (None where there are none)."""

    X: Any
    y: np.ndarray | None
    feature_names: list[str] | None


def read(
    path: str | os.PathLike[str],
    *,
    label: str | int | None = "last",
    columns: Sequence[str] | None = None,
    n_features: int | None = None,
    format: str | None = None,
    header: bool | None = None,
    zero_based: bool = False,
    dense: bool | None = None,
) -> Data:
    """Read rows and labels from a LIBSVM, CSV or Parquet file.

    Text may be compressed with gzip, bzip2 or xz, whatever its name.

    Parameters
    ----------
    path : path-like
        The file.
    label : str, int or None, default="last"
        The column of the labels in CSV and Parquet: a name, a position counted from 0, or
        "last".  None: the file has no labels, or they are not wanted.
    columns : sequence of str, optional
        Names of the feature columns, in the order wanted; other columns are left out.  A
        file without names must have just these.  All columns but the label's by default.
    n_features : int, optional
        The number of features there must be.  A LIBSVM file may use fewer of them.
    format : {"libsvm", "csv", "parquet"}, optional
        Guessed from the name, or else from the contents.
    header : bool, optional
        Whether the first line of a CSV file holds names.  Guessed by default.
    zero_based : bool, default=False
        Whether feature numbers in a LIBSVM file begin at 0 instead of 1.  It is never
        guessed: a file that happens to lack the first feature would be read shifted.
    dense : bool, optional
        Whether a LIBSVM file becomes a dense array.  By default it does when that takes
        less memory than a sparse matrix (more than two thirds of the cells are in use).

    Returns
    -------
    X : ndarray or csr_matrix of shape (n, d)
        Finite numbers.  Double precision; single where every Parquet column fits into it.
    y : ndarray of shape (n,) or None
        Integers where all labels are whole numbers, else floats or text.
    feature_names : list of str or None
        Names of the columns of X, where the file has names.

    Raises
    ------
    DataFileError
        When the file cannot be used, with the number of the first bad line.
    """
    path = Path(path)
    format = format or _guess_format(path)
    if format == "libsvm":
        rows, labels = _read_libsvm(path, n_features, zero_based)
        cells = rows.shape[0] * rows.shape[1]
        if dense or (dense is None and 8 * cells <= 12 * rows.nnz):
            rows = rows.toarray()
        return Data(rows, None if label is None else labels, None)
    layout = _layout(path, format, header)
    target, features = tables.choose(path, layout, label, columns, n_features)
    read_table = tables.read_csv if format == "csv" else tables.read_parquet
    X, y = read_table(path, layout, target, features)
    names = layout.names and [layout.names[i] for i in features]
    return Data(X, y, names)


def column_names(
    path: str | os.PathLike[str], *, format: str | None = None, header: bool | None = None
) -> list[str] | None:
    """Names of all columns of a CSV or Parquet file; None where there are none."""
    path = Path(path)
    format = format or _guess_format(path)
    return None if format == "libsvm" else _layout(path, format, header).names


def _layout(path: Path, format: str, header: bool | None) -> tables.Layout:
    if format == "csv":
        return tables.csv_layout(path, header)
    if format == "parquet":
        return tables.parquet_layout(path)
    raise ValueError(f"format must be 'libsvm', 'csv' or 'parquet', got {format!r}.")


def _guess_format(path: Path) -> str:
    """The format by the name's suffix, or else by the first line that is not empty."""
    for suffix in reversed(path.suffixes[-2:]):
        if suffix.lower() in _SUFFIXES:
            return _SUFFIXES[suffix.lower()]
    with opened(path) as file:
        if file.read(4) == b"PAR1":
            return "parquet"
    with opened(path) as file:
        lines = (line.split(b"#")[0].split() for line in file)
        words = next((words for words in lines if words), [])
    pairs = words[1:] or words[:1]
    plain = len(words) == 1 and not any(mark in words[0] for mark in (b",", b";"))
    return "libsvm" if plain or (pairs and all(b":" in pair for pair in pairs)) else "csv"


def _read_libsvm(
    path: Path, n_features: int | None, zero_based: bool
) -> tuple[sp.csr_matrix, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    def parse(file: Any) -> tuple[sp.csr_matrix, np.ndarray]:
        X, y = load_svmlight_file(file, n_features=n_features, zero_based=zero_based)
        if not (np.isfinite(X.data).all() and np.isfinite(y).all()):
            raise ValueError("not finite")
        return X, y

    try:
        with opened(path) as file:
            X, y = parse(file)
    except DataFileError:
        raise
    except (ValueError, OverflowError) as error:
        number, line = _first_bad_line(path, parse)
        complaint = _libsvm_complaint(line, n_features, zero_based) or str(error)
        raise DataFileError(f"{path}, line {number}: {complaint}.") from error
    if len(y) == 0:
        raise DataFileError(f"{path}: the file has no rows.")
    if n_features is None and X.nnz == 0:
        raise DataFileError(f"{path}: the rows have labels but no features.")
    if max(X.nnz, X.shape[1]) <= np.iinfo(np.int32).max:  # half the memory for indices
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, whole(y)


def _first_bad_line(path: Path, parse: Callable[[Any], Any]) -> tuple[int, str]:
    """Number and text of the first line that does not parse: blocks first, then halves."""

    def fails(lines: list[bytes]) -> bool:
        try:
            parse(io.BytesIO(b"".join(lines)))
        except (ValueError, OverflowError):
            return True
        return False

    passed = 0
    with opened(path) as file:
        while block := list(islice(file, 4096)):
            if not fails(block):
                passed += len(block)
                continue
            while len(block) > 1:
                half = len(block) // 2
                if fails(block[:half]):
                    block = block[:half]
                else:
                    passed, block = passed + half, block[half:]
            return passed + 1, block[0].decode("utf-8", "replace")
    return passed, ""


def _libsvm_complaint(line: str, n_features: int | None, zero_based: bool) -> str:
    """What is wrong with a line that scikit-learn refused; empty if nothing is found."""
    words = line.split("#")[0].split()
    if not words:
        return ""
    if ":" in words[0]:
        return "the label is missing (write 0 where it is not known)"
    if finite(words[0]) is None:
        return f"the label {words[0]!r} is not a finite number"
    first, previous = 0 if zero_based else 1, -1
    for word in words[1:]:
        index, colon, text = word.partition(":")
        if index == "qid":
            continue
        if not colon or not index.lstrip("-").isdigit():
            return f"{word!r} is not of the form number:value"
        if int(index) < first:
            hint = "" if zero_based else "; does the file count from zero?"
            return f"feature number {index}, but they begin at {first}{hint}"
        if int(index) <= previous:
            return f"feature number {index} comes after {previous}, but they must increase"
        if n_features is not None and int(index) - first >= n_features:
            return f"feature number {index}, but only {n_features} features were expected"
        if finite(text) is None:
            return f"the value {text!r} of feature {index} is not a finite number"
        previous = int(index)
    return ""
