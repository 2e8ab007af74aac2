"""Tables: CSV and Parquet, read by pyarrow.

A CSV file is read twice only when it is bad: pyarrow says that something is wrong, and a
second, slow reading says in which line and cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optimargin.datafile import DataFileError, finite, import_pyarrow, is_missing, opened, whole


class Layout(NamedTuple):
    """How a table is laid out: its columns, and for CSV where its first row begins."""

    names: list[str] | None
    width: int
    delimiter: str = ","
    skip: int = 0


class _BadCell(Exception):
    """A cell of a table, by position, that holds no finite number or no label."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__(f"row {row + 1}, column {column + 1}")
        self.row, self.column = row, column


def choose(
    path: Path,
    layout: Layout,
    label: str | int | None,
    columns: Sequence[str] | None,
    n_features: int | None,
) -> tuple[int | None, list[int]]:
    """Positions of the label's column and of the features' columns."""
    names = layout.names or []
    target: int | None
    if label is None:
        target = None
    elif label in names:
        target = names.index(str(label))
    elif isinstance(label, str) and label != "last":
        among = f"columns: {', '.join(names)}" if names else "the file has no line of names"
        raise DataFileError(f"{path}: no column {label!r} for the labels ({among}).")
    else:
        position = -1 if label == "last" else int(label)
        target = position + layout.width if position < 0 else position
        if not 0 <= target < layout.width:
            raise DataFileError(
                f"{path}: no column at position {label} for the labels, there are {layout.width}."
            )
    if columns is not None and names:
        absent = [name for name in columns if name not in names]
        if absent:
            raise DataFileError(f"{path}: no column {absent[0]!r}.")
        features = [names.index(name) for name in columns]
    else:
        features = [i for i in range(layout.width) if i != target]
        n_features = n_features if columns is None else len(columns)
    if n_features is not None and len(features) != n_features:
        hint = "" if label is not None else "; is one of them the label's?"
        raise DataFileError(
            f"{path}: {len(features)} feature columns, but {n_features} were expected{hint}."
        )
    if not features:
        raise DataFileError(f"{path}: the rows have labels but no features.")
    return target, features


def _arrays(
    table: Any, target: int | None, features: list[int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray | None]:
    """Matrix and labels from an Arrow table whose columns are called by position."""
    X = np.empty((table.num_rows, len(features)), dtype=dtype)
    for j, i in enumerate(features):
        column = table.column(str(i))
        X[:, j] = column.to_numpy()  # a missing value becomes NaN
        if not np.isfinite(X[:, j]).all():
            raise _BadCell(int(np.argmin(np.isfinite(X[:, j]))), i)
    y = None if target is None else _labels(table.column(str(target)), target)
    return X, y


def _labels(column: Any, position: int) -> np.ndarray:
    """Labels as whole numbers, numbers or text; each kind of label is looked at once."""
    codes = column.combine_chunks().dictionary_encode()
    kinds = codes.dictionary.to_pylist()
    missing = [i for i, kind in enumerate(kinds) if is_missing(kind)]
    order = codes.indices.to_numpy(zero_copy_only=False)
    bad = np.isnan(order) | np.isin(order, missing)
    if bad.any():
        raise _BadCell(int(np.argmax(bad)), position)
    if all(isinstance(kind, bool) for kind in kinds):
        values = np.array(kinds)
    elif all(finite(kind) is not None for kind in kinds):
        values = whole(np.array([float(kind) for kind in kinds]))
    else:
        values = np.array([str(kind).strip() for kind in kinds], dtype=object)
    return values[order.astype(np.int64)]


def _called(layout: Layout, position: int) -> str:
    return f"column {layout.names[position]!r}" if layout.names else f"column {position + 1}"


@contextmanager
def _records(path: Path, delimiter: str) -> Iterator[Any]:
    """The records of a CSV file as lists of text; ``line_num`` tells where they end."""
    with opened(path) as file:
        # A byte that is not UTF-8 must reach the complaint instead of stopping it.
        text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield csv.reader(text, delimiter=delimiter)
        except csv.Error as error:
            raise DataFileError(f"{path}: {error}.") from error
        finally:
            text.detach()


def csv_layout(path: Path, header: bool | None) -> Layout:
    """Delimiter, names and width of a CSV file, from its first two records."""
    with _records(path, "\0") as lines:
        first = next(("".join(line) for line in lines if line), "")
    delimiter = max(",\t;", key=first.count)
    with _records(path, delimiter) as records:
        top = next((record for record in records if record), None)
        if top is None:
            raise DataFileError(f"{path}: the file has no rows.")
        skip = records.line_num
        second = next((record for record in records if record), None)
    if header is None:
        header = _is_header(top, second)
    if not header:
        return Layout(None, len(top), delimiter, skip - 1)
    if second is None:
        raise DataFileError(f"{path}: the file has a line of names but no rows.")
    names = [name.strip() for name in top]
    _check_names(path, names)
    return Layout(names, len(names), delimiter, skip)


def _is_header(top: list[str], second: list[str] | None) -> bool:
    """Whether the first record holds names.

    It does when no cell is a number, when a cell that is not a number stands above one
    that is, or when its numbers are 0, 1, 2, ... (pandas' names for nameless columns).
    """
    numbers = [finite(cell) for cell in top]
    counted = [i for i, number in enumerate(numbers) if number is not None]
    if not counted:
        return True
    below = [finite(cell) for cell in second or ()]
    if any(a is None and b is not None for a, b in zip(numbers, below, strict=False)):
        return True
    return len(counted) >= 3 and all(top[i].strip() == str(i) for i in counted)


def _check_names(path: Path, names: list[str]) -> None:
    for i, name in enumerate(names):
        if not name:
            raise DataFileError(
                f"{path}: column {i + 1} has no name; if it holds row numbers written by"
                " pandas, write the file with index=False."
            )
        if name in names[:i]:
            raise DataFileError(f"{path}: two columns are called {name!r}.")


def read_csv(
    path: Path, layout: Layout, target: int | None, features: list[int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Features in double precision, and labels."""
    pyarrow = import_pyarrow("CSV")
    from pyarrow import csv as reader

    types = {str(i): pyarrow.float64() for i in features}
    if target is not None:
        types[str(target)] = pyarrow.string()
    try:
        with opened(path) as file:
            table = reader.read_csv(
                file,
                reader.ReadOptions(
                    column_names=[str(i) for i in range(layout.width)], skip_rows=layout.skip
                ),
                reader.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
                reader.ConvertOptions(column_types=types, include_columns=list(types)),
            )
        return _arrays(table, target, features, np.dtype(np.float64))
    except (pyarrow.ArrowInvalid, _BadCell) as error:
        complaint = _csv_complaint(path, layout, target, features)
        raise DataFileError(complaint or f"{path}: {str(error).splitlines()[0]}.") from error


def _csv_complaint(path: Path, layout: Layout, target: int | None, features: list[int]) -> str:
    """A sentence on the first bad record; empty if nothing is found."""
    with _records(path, layout.delimiter) as records:
        line = 0
        for record in records:
            # A record may span lines; it is known by its first one.
            start, line = line + 1, records.line_num
            if line <= layout.skip or not record:
                continue
            if len(record) != layout.width:
                return (
                    f"{path}, line {start}: {len(record)} columns, but the first line has"
                    f" {layout.width}."
                )
            for i in features:
                if finite(record[i]) is None:
                    return f"{path}, line {start}, {_called(layout, i)}: {_fault(record[i])}."
            if target is not None and (fault := _label_fault(record[target])):
                return f"{path}, line {start}, {_called(layout, target)}: the label is {fault}."
    return ""


def _label_fault(cell: str) -> str:
    """Why a cell cannot be used as a label; empty if it can."""
    if is_missing(cell):
        return "missing"
    return "" if cell.isascii() or cell.encode("utf-8", "replace").decode() == cell else "not UTF-8"


def _fault(cell: str) -> str:
    """Why a cell cannot be used as a number."""
    if not cell.strip():
        return "the cell is empty"
    return f"{cell.encode('utf-8', 'replace').decode()!r} is not a finite number"


def parquet_layout(path: Path) -> Layout:
    """Names of the columns of a Parquet file, without the row numbers of pandas."""
    pyarrow = import_pyarrow("Parquet")
    from pyarrow import parquet

    try:
        with opened(path) as file:
            names = parquet.read_schema(file).names
    except pyarrow.ArrowInvalid as error:
        raise DataFileError(f"{path}: not a Parquet file, or a damaged one.") from error
    names = [name for name in names if name != "__index_level_0__"]
    return Layout(names, len(names))


def read_parquet(
    path: Path, layout: Layout, target: int | None, features: list[int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Features in the smallest floating-point type that holds all columns, and labels."""
    pyarrow = import_pyarrow("Parquet")
    from pyarrow import parquet

    assert layout.names is not None  # Parquet columns always have names
    wanted = [*features, *([] if target is None else [target])]
    try:
        with opened(path) as file:
            table = parquet.read_table(file, columns=[layout.names[i] for i in wanted])
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise DataFileError(f"{path}: {str(error).splitlines()[0]}.") from error
    table = table.rename_columns([str(i) for i in wanted])
    kinds = pyarrow.types
    dtype: np.dtype = np.dtype(np.float32)  # the smallest type to compute in
    for i in features:
        kind = table.column(str(i)).type
        if kinds.is_decimal(kind):
            dtype = np.dtype(np.float64)
        elif kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
            dtype = np.result_type(dtype, kind.to_pandas_dtype())
        else:
            raise DataFileError(f"{path}, {_called(layout, i)}: {kind} is not a type of number.")
    try:
        return _arrays(table, target, features, dtype)
    except _BadCell as bad:
        where = f"{path}, row {bad.row + 1}, {_called(layout, bad.column)}"
        raise DataFileError(f"{where}: the value is missing or not finite.") from bad
