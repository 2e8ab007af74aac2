"""The parts of a matrix kept in files: .npy files, and the row groups of Parquet files.

What is known of a part comes from headers alone.  A .npy file is mapped anew at each access:
pages that were touched count as the process's memory until the map is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from optimargin.datafile import DataFileError, import_pyarrow, is_missing
from optimargin.threads import spans

_BATCH = 2**14  # rows that pass at once from Arrow's columns to our rows: they fit into a cache
_BYTES = 2**23  # of a .npy file that are mapped and touched at once
_SCATTERED = 2048  # places in it touched at once: each may bring 64 kB of neighbours


@dataclass(frozen=True)
class NpyFile:
    """A .npy file that holds a matrix of numbers."""

    path: Path
    n: int
    width: int
    dtype: np.dtype
    offset: int
    order: Literal["C", "F"]
    first: int = 0

    def mapped(self) -> np.ndarray:
        """The matrix; a row is read when it is touched."""
        with _sound(self.path, ".npy"):
            shape = (self.n, self.width)
            return np.memmap(self.path, self.dtype, "r", self.offset, shape, self.order)

    @property
    def block(self) -> int:
        """Consecutive rows to be touched together."""
        return max(1, _BYTES // (self.dtype.itemsize * self.width))

    @property
    def sample(self) -> int:
        """Scattered rows to be touched together."""
        return _SCATTERED if self.order == "C" else max(1, _SCATTERED // self.width)

    def labels(self, column: int) -> np.ndarray:
        """The numbers in one column, all of them finite."""
        # Through short-lived maps: the column touches every page of the file.
        y = np.empty(self.n, dtype=self.dtype.newbyteorder("="))
        for span in spans(self.n, self.block):
            y[span] = self.mapped()[span, column]
        if not np.isfinite(y).all():
            raise _no_label(self.path, int(np.argmin(np.isfinite(y))))
        return y


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file; ``first`` is its first row's number in the file."""

    path: Path
    n: int
    group: int
    first: int
    block = sample = _BATCH

    def read(self, names: Sequence[str], dtype: np.dtype) -> np.ndarray:
        """These columns as a dense matrix; a missing value is NaN."""
        X = np.empty((self.n, len(names)), dtype=dtype)
        for place, batch in self._batches(names):
            for j, name in enumerate(names):
                X[place, j] = _numbers(batch.column(name))
        return X

    def labels(self, name: str) -> np.ndarray:
        """One column as numbers or as text, with none missing."""
        found = []
        for place, batch in self._batches([name]):
            y, bad = _label_values(batch.column(name))
            if bad.any():
                raise _no_label(self.path, self.first + place.start + int(np.argmax(bad)))
            found.append(y)
        return np.concatenate(found)

    def _batches(self, names: Sequence[str]) -> Iterator[tuple[slice, Any]]:
        """Arrow's record batches, each with its place in the group."""
        import_pyarrow("Parquet")
        from pyarrow import parquet

        done = 0
        with _sound(self.path, "Parquet"), parquet.ParquetFile(self.path) as file:
            sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            same = sizes[self.group : self.group + 1] == [self.n]
            if not (same and set(names) <= set(file.schema_arrow.names)):
                raise DataFileError(f"{self.path}: the file has changed since it was opened.")
            for batch in file.iter_batches(_BATCH, row_groups=[self.group], columns=list(names)):
                yield slice(done, done + len(batch)), batch
                done += len(batch)


class Layout(NamedTuple):
    """A file's parts, and its columns by name or number.

    A column's kind is NumPy's type of number, or else a word: "text", or what Arrow calls it.
    """

    path: Path
    parts: Sequence[NpyFile | RowGroup]
    columns: dict[Any, np.dtype | str]
    named: bool

    def find(self, argument: str, column: Any) -> Any:
        """A column by its name or by its number, which may count from the end."""
        width = len(self.columns)
        if not isinstance(column, str if self.named else int | np.integer):
            by = "Parquet files by name" if self.named else ".npy files by number"
            raise ValueError(f"{argument} must call columns of {by}, got {column!r}.")
        found = column if isinstance(column, str) or column >= 0 else column + width
        if found not in self.columns:
            among = f"columns: {', '.join(self.columns)}" if self.named else f"there are {width}"
            raise DataFileError(f"{self.path}: {argument}: no column {column!r} ({among}).")
        return found

    def check(self, first: Layout, features: list, label: Any, alike: bool) -> None:
        """Complain if the columns are of no use, or not those of the first file."""
        if alike and len(self.columns) != len(first.columns):
            raise DataFileError(
                f"{self.path}: {len(self.columns)} columns, but {first.path} has"
                f" {len(first.columns)}."
            )
        for column in features if label is None else [*features, label]:
            if column not in self.columns:
                raise DataFileError(f"{self.path}: no column {column!r}, which {first.path} has.")
            kind = self.columns[column]
            if not isinstance(kind, np.dtype) and (column != label or kind != "text"):
                what = "number" if column != label else "label"
                raise DataFileError(f"{self.path}, column {column!r}: {kind} is no type of {what}.")
        if label is not None and self._has_text(label) != first._has_text(label):
            raise DataFileError(
                f"{self.path}, column {label!r}: labels must be text in all files or in none."
            )

    def _has_text(self, column: Any) -> bool:
        return isinstance(self.columns[column], str)


def npy_layout(path: Path) -> Layout:
    """What the header of a .npy file says."""
    with _sound(path, ".npy"):
        X = np.lib.format.open_memmap(path, mode="r")
    if X.ndim != 2:
        raise DataFileError(f"{path}: the array must have 2 dimensions, it has {X.ndim}.")
    if X.dtype.kind not in "biuf":
        raise DataFileError(f"{path}: {X.dtype} is no type of number.")
    order: Literal["C", "F"] = "C" if X.flags.c_contiguous else "F"
    file = NpyFile(path, X.shape[0], X.shape[1], X.dtype, X.offset, order)
    return Layout(path, [file], dict.fromkeys(range(file.width), X.dtype), named=False)


def parquet_layout(path: Path) -> Layout:
    """What the metadata of a Parquet file says."""
    import_pyarrow("Parquet")
    from pyarrow import parquet

    with _sound(path, "Parquet"), parquet.ParquetFile(path) as file:
        schema, about = file.schema_arrow, file.metadata
        sizes = [about.row_group(g).num_rows for g in range(about.num_row_groups)]
    # pandas writes its row numbers as a column of this name.
    fields = [field for field in schema if field.name != "__index_level_0__"]
    columns = {field.name: _kind(field.type) for field in fields}
    if len(columns) < len(fields):
        raise DataFileError(f"{path}: two columns have the same name.")
    starts = np.cumsum([0, *sizes]).tolist()
    groups = [RowGroup(path, n, g, starts[g]) for g, n in enumerate(sizes)]
    return Layout(path, groups, columns, named=True)


def _kind(arrow: Any) -> np.dtype | str:
    """NumPy's type for numbers of an Arrow type, "text", or the name of the type."""
    kinds = import_pyarrow("Parquet").types
    if kinds.is_decimal(arrow):
        return np.dtype(np.float64)
    if kinds.is_boolean(arrow) or kinds.is_integer(arrow) or kinds.is_floating(arrow):
        return np.dtype(arrow.to_pandas_dtype())
    values = arrow.value_type if kinds.is_dictionary(arrow) else arrow
    return "text" if kinds.is_string(values) or kinds.is_large_string(values) else str(arrow)


def _numbers(column: Any) -> np.ndarray:
    """An Arrow array of numbers as NumPy's; NaN where one is missing."""
    pyarrow = import_pyarrow("Parquet")
    kinds = pyarrow.types
    if kinds.is_decimal(column.type) or (kinds.is_boolean(column.type) and column.null_count):
        column = column.cast(pyarrow.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)


def _label_values(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Labels of a batch, and which are missing; each kind of text is looked at once."""
    if isinstance(_kind(column.type), np.dtype):
        y = _numbers(column)
        return y, ~np.isfinite(y)
    codes = column.dictionary_encode()
    texts = [*codes.dictionary.to_pylist(), None]
    # As 64-bit numbers: the codes of a short dictionary may have no room for one more.
    order = codes.indices.cast("int64").fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
    missing = np.array([is_missing(text) for text in texts])
    return np.array(texts, dtype=object)[order], missing[order]


def _no_label(path: Path, row: int) -> DataFileError:
    return DataFileError(f"{path}, row {row + 1}: the label is missing or not finite.")


@contextmanager
def _sound(path: Path, kind: str) -> Iterator[None]:
    """Whatever a reader says inside against the file becomes a sentence that names it."""
    try:
        yield
    except DataFileError:
        raise
    except (ValueError, EOFError, NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
            raise DataFileError(f"{path}: {reason}.") from error
        raise DataFileError(f"{path}: not a {kind} file of numbers, or a damaged one.") from error
