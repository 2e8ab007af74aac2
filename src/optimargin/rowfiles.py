"""Rows in files: a folder seen as one matrix that is never whole in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from optimargin.datafile import DataFileError, whole
from optimargin.memory import in_words
from optimargin.rowparts import NpyFile, RowGroup, npy_layout, parquet_layout
from optimargin.threads import spans

_SUFFIXES = {".npy": ".npy", ".parquet": "Parquet", ".pq": "Parquet"}


class RowFiles:
    """A matrix of rows that stay in their files; ``open_rows`` makes one.

    ``rows[a:b]`` and ``rows[index_array]`` are read into new arrays, by several threads at
    once if need be.  Memory is that of the rows asked for; with Parquet files also of one row
    group for each thread that reads, which threads share when they are in the same group.

    Attributes
    ----------
    shape : tuple of two ints
        Rows and features, n and d.
    dtype : dtype
        float32 where that holds every value of the files' types, else float64.
    ndim : int
        Always 2.
    y : ndarray of shape (n,) or None
        Labels, read at first use: integers where all are whole numbers, else floats, booleans
        or text.
    feature_names : list of str or None
        Names of the features, where the files have names.
    """

    ndim = 2
    __iter__ = None  # row by row would be slow beyond use

    def __init__(
        self,
        parts: Sequence[NpyFile | RowGroup],
        columns: list,
        dtype: np.dtype,
        label: Any,
        n_files: int,
    ) -> None:
        self._made_of = (parts, columns, dtype, label, n_files)
        self._parts, self._columns, self._label, self._n_files = parts, columns, label, n_files
        self._starts = np.cumsum([0, *(part.n for part in parts)])
        self.shape = (int(self._starts[-1]), len(columns))
        self.dtype = dtype
        named = isinstance(parts[0], RowGroup)
        self.feature_names: list[str] | None = list(columns) if named else None
        if not named:  # neighbouring columns as a slice, which makes no copy
            first, end = columns[0], columns[-1] + 1
            self._picked = slice(first, end) if columns == list(range(first, end)) else columns
        self._y: np.ndarray | None = None
        self._label_lock, self._lock = threading.Lock(), threading.Lock()
        # A row group lives as long as it is the last one that some thread has read.
        self._groups: WeakValueDictionary[int, Future[np.ndarray]] = WeakValueDictionary()
        self._mine = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return RowFiles, self._made_of

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        n, d = self.shape
        files = f"{self._n_files} file{'s' if self._n_files != 1 else ''}"
        return f"RowFiles({files}, {n:,} x {d}, {self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        size = in_words(self.shape[0] * self.shape[1] * self.dtype.itemsize)
        raise TypeError(
            f"{self!r} is read in blocks, rows[a:b]; rows[:] is all of it in memory, {size}."
        )

    def __getitem__(self, key: Any) -> np.ndarray:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise IndexError(f"a slice of rows must have step 1, got {step}.")
            return self._slice(start, max(start, stop))
        return self._sample(self._index(key))

    @property
    def y(self) -> np.ndarray | None:
        """Labels of all rows, or None where no column was named for them."""
        if self._label is None:
            return None
        with self._label_lock:
            if self._y is None:
                y = np.concatenate([part.labels(self._label) for part in self._parts])
                self._y = whole(y) if y.dtype.kind in "iuf" else y
        return self._y

    def checked(self) -> RowFiles:
        """Read all rows once, in blocks, and complain of the first that is not finite.

        Returns
        -------
        RowFiles
            The same object.

        Raises
        ------
        ValueError
            When a value is missing, NaN or infinite; the message has the file, the row and the
            column, counted from 1.
        """
        for k, part in enumerate(self._parts):
            for span in spans(part.n, part.block):
                sound = np.isfinite(self._take(k, span))
                if not sound.all():
                    row, j = np.argwhere(~sound)[0].tolist()
                    column = self._columns[j]
                    called = column + 1 if self.feature_names is None else repr(column)
                    raise DataFileError(
                        f"{part.path}, row {part.first + span.start + row + 1}, column {called}:"
                        " the value is missing or not finite."
                    )
        return self

    def _slice(self, start: int, stop: int) -> np.ndarray:
        X = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        while start < stop:
            k = int(np.searchsorted(self._starts, start, side="right")) - 1
            part, here = self._parts[k], int(self._starts[k])
            end = min(stop, here + part.n, start + part.block)
            place = len(X) - (stop - start)
            X[place : place + end - start] = self._take(k, slice(start - here, end - here))
            start = end
        return X

    def _sample(self, index: np.ndarray) -> np.ndarray:
        X = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        order = np.argsort(index, kind="stable")
        edges = np.searchsorted(index[order], self._starts)
        for k in np.flatnonzero(np.diff(edges)).tolist():
            mine = order[edges[k] : edges[k + 1]]
            for span in spans(len(mine), self._parts[k].sample):
                X[mine[span]] = self._take(k, index[mine[span]] - self._starts[k])
        return X

    def _index(self, key: Any) -> np.ndarray:
        """Row numbers from 0 to n - 1 out of what the user wrote in brackets."""
        index = np.asarray(None if isinstance(key, tuple) else key)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise IndexError("rows are taken by a slice or by a one-dimensional array of integers.")
        index = index.astype(np.int64)
        n = len(self)
        beyond = (index < -n) | (index >= n)
        if beyond.any():
            raise IndexError(f"row {index[np.argmax(beyond)]} is out of range, there are {n} rows.")
        return np.where(index < 0, index + n, index)

    def _take(self, k: int, rows: slice | np.ndarray) -> np.ndarray:
        """Features of some rows of a part, in the file's type."""
        part = self._parts[k]
        if isinstance(part, NpyFile):
            return part.mapped()[rows][:, self._picked]
        return self._group(k, part)[rows]

    def _group(self, k: int, part: RowGroup) -> np.ndarray:
        """A row group, which only one of the threads that ask for it reads."""
        with self._lock:
            group = self._groups.get(k)
            asked_first = group is None
            if group is None:
                group = self._groups[k] = Future()
        self._mine.last = group  # lets go of the one before, before this one is read
        if asked_first:
            try:
                group.set_result(part.read(self._columns, self.dtype))
            except BaseException as error:
                with self._lock:
                    self._groups.pop(k, None)
                group.set_exception(error)
        return group.result()


def open_rows(
    folder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    label: str | int | None = None,
    features: Sequence[str] | Sequence[int] | None = None,
) -> RowFiles:
    """Open .npy or Parquet files as one matrix that is never whole in memory.

    Only headers are read.  A row group of a Parquet file is read as a whole: write files with
    groups of some 100,000 rows.

    Parameters
    ----------
    folder : path-like or sequence of path-like
        A folder, whose files are taken in the order of their names (names that begin with a
        dot or an underscore, and other kinds of files, are passed over); or a file; or a list
        of files, taken in its order.  All are of one kind: .npy, or .parquet and .pq.
    label : str or int, optional
        The column of the labels: its name in Parquet files, its number counted from 0 (or from
        the end, if negative) in .npy files.  None: there are no labels in the files.
    features : sequence of str or int, optional
        Names (Parquet) or numbers (.npy) of the columns to take, in the order wanted.  All but
        the label's by default.

    Returns
    -------
    RowFiles
        With ``shape``, ``dtype``, ``y``, ``feature_names``, ``rows[a:b]``, ``rows[index_array]``
        and ``checked()``, which looks for values that are not finite.

    Raises
    ------
    DataFileError
        When a file cannot be used; a ValueError that names the file and the reason.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from optimargin import open_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(3):
    ...         np.save(f"{folder}/part-{part}.npy", np.full((4, 3), part, dtype=np.float32))
    ...     rows = open_rows(folder, label=-1)
    ...     print(rows, rows.y.sum(), rows[3:5].tolist())
    RowFiles(3 files, 12 x 2, float32) 12 [[0.0, 0.0], [1.0, 1.0]]
    """
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns or None, got {features!r}.")
    paths, kind = _paths(folder)
    files = [npy_layout(path) if kind == ".npy" else parquet_layout(path) for path in paths]
    target = None if label is None else files[0].find("label", label)
    wanted = [column for column in files[0].columns if column != target]
    if features is not None:
        wanted = [files[0].find("features", column) for column in features]
    if target is not None and target in wanted:
        raise ValueError(f"features must not hold the label's column, {label!r}.")
    if len(set(wanted)) < len(wanted):
        raise ValueError("features must not hold a column twice.")
    if not wanted:
        raise DataFileError(f"{paths[0]}: no column is left for the features.")
    for file in files:
        # Names still hold where a Parquet file has columns that nobody asked for.
        file.check(files[0], wanted, target, alike=features is None or not file.named)
    parts = [part for file in files for part in file.parts if part.n]
    if not parts:
        raise DataFileError(f"{paths[0]}: the {'files have' if paths[1:] else 'file has'} no rows.")
    small = all(np.can_cast(file.columns[c], np.float32) for file in files for c in wanted)
    return RowFiles(parts, wanted, np.dtype(np.float32 if small else float), target, len(paths))


def _paths(folder: Any) -> tuple[list[Path], str]:
    """The files in their order, and their kind."""
    alone = isinstance(folder, str | os.PathLike)
    paths = [Path(path).absolute() for path in ([folder] if alone else folder)]
    if alone and paths[0].is_dir():
        found = (p for p in paths[0].iterdir() if not p.name.startswith((".", "_")))
        paths = sorted(p for p in found if p.suffix.lower() in _SUFFIXES)
    if not paths:
        raise DataFileError(f"{folder}: no .npy or Parquet files here (.npy, .parquet, .pq).")
    kinds = [_SUFFIXES.get(path.suffix.lower()) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind is None:
            raise DataFileError(f"{path}: the name must end in .npy, .parquet or .pq.")
        if kind != kinds[0]:
            raise DataFileError(f"{path}: a {kind} file, but {paths[0]} is a {kinds[0]} file.")
    return paths, kinds[0] or ""
