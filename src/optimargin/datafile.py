"""What every reader of data files needs: their bytes, their complaint, their numbers."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_COMPRESSED: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class DataFileError(ValueError):
    """A data file that cannot be used; the message names the file, the line and the reason."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed; every failure to get at them is a DataFileError."""
    try:
        with path.open("rb") as raw:
            start = raw.read(6)
            raw.seek(0)
            if not start:
                raise DataFileError(f"{path}: the file is empty.")
            opener = next((o for magic, o in _COMPRESSED.items() if start.startswith(magic)), None)
            if opener is None:
                yield raw
            else:
                with opener(raw) as file:
                    yield file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataFileError(f"{path}: the compressed file is cut short or damaged.") from error
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise DataFileError(f"{path}: {reason or error}.") from error


def finite(text: Any) -> float | None:
    """The finite number that a cell holds, or None."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and "_" not in str(text) else None


def whole(y: np.ndarray) -> np.ndarray:
    """Integers where every label is a whole number, so that 1 is not written as 1.0."""
    exact = y.size > 0 and np.all(y == np.rint(y)) and np.abs(y).max() < 2**53
    return y.astype(np.int64) if exact else y


def is_missing(label: Any) -> bool:
    """Whether a cell holds no label."""
    text = str(label).strip().lower()
    return label is None or not text or text in ("nan", "inf", "-inf", "+inf")


def import_pyarrow(what: str) -> Any:
    """Arrow's module, or a sentence on what to install in order to read ``what`` files."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"Reading {what} files needs pyarrow: pip install 'optimargin[cli]'."
        ) from error
    return pyarrow
