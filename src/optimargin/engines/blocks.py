"""Rows of a part in files beside the worker that reads them, mapped into its memory.

A block is a folder: X.npy, or data.npy, indices.npy and indptr.npy; y.npy; weight.npy and row.npy
(numbers of the rows in the whole) where there are some; and for every version of what belongs to
rows (`State`) a folder of arrays.  A folder gets its name when it is complete, so whoever sees it
may read it.  Chunks of rows may come in any order and are written as they come: memory is that of
a chunk.  An array of a state that a step leaves alone is a link to the file it had.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import scipy.sparse as sp

from optimargin.engines.local import State
from optimargin.problem import Problem

_HEAD = 128  # bytes before the numbers of a .npy file
_KEPT = 64  # blocks that a process keeps open
_BUFFER = 1 << 20  # bytes copied at a time
FIRST = 0  # version of the state that came with the rows

_open: OrderedDict[str, dict[str, np.ndarray]] = OrderedDict()
_posed: dict[str, tuple[Any, Problem]] = {}


class Lost(LookupError):
    """A block ("rows"), or a version of its state, that is not where it should be."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(what, path)
        self.what = what


class Chunk(NamedTuple):
    """Some rows of a block.

    ``order`` tells where they come among the others, ``row`` their numbers in the whole.
    ``bytes`` is what they weigh, where they came from another part, else 0.
    """

    order: tuple[int, int]
    X: Any
    y: np.ndarray
    weight: np.ndarray | None = None
    row: np.ndarray | None = None
    state: State | None = None
    bytes: int = 0


class Facts(NamedTuple):
    """What is known of a block: where it is, and what is in it."""

    part: int
    path: str
    rows: int
    features: int
    digest: int
    bytes: int
    tally: dict[float, tuple[int, float]]  # rows and weight of every label
    complaint: str = ""  # of the first bad row


class Pose(NamedTuple):
    """What makes a problem of rows: see `Problem`."""

    d: int
    loss: Any
    bias: float
    classes: int
    threads: int
    limit: float


def write(part: int, path: str, chunks: Iterable[Chunk]) -> Facts:
    """The chunks as a block of that path."""
    _forget(path)
    temporary = f"{path}.{uuid.uuid4().hex}"
    os.makedirs(temporary)
    try:
        facts = _written(part, path, temporary, chunks)
        _put(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return facts


def _written(part: int, path: str, folder: str, chunks: Iterable[Chunk]) -> Facts:
    columns: dict[str, _Column] = {}
    orders: list[tuple[int, int]] = []
    digest = moved = rows = features = 0
    tally: dict[float, tuple[int, float]] = {}
    try:
        for chunk in chunks:
            for name, values in _arrays(chunk).items():
                if name not in columns:
                    columns[name] = _Column(folder, name, values)
                columns[name].add(values)
            orders.append(chunk.order)
            digest = (digest + _digest(chunk)) % (1 << 62)
            moved += chunk.bytes
            rows += len(chunk.y)
            features = chunk.X.shape[1]
            _count(tally, chunk)
    finally:
        for column in columns.values():
            column.file.close()
    turn = sorted(range(len(orders)), key=orders.__getitem__)
    for column in columns.values():
        column.finish(turn)
    return Facts(part, path, rows, features, digest, moved, tally)


def _put(temporary: str, path: str) -> None:
    """Give a complete folder its name; one that somebody has put there meanwhile may stay."""
    try:
        os.rename(temporary, path)
    except OSError:
        if not _is_sound(path):
            shutil.rmtree(path, ignore_errors=True)
            os.rename(temporary, path)
            return
        first = f"state-{FIRST}"
        if os.path.isdir(os.path.join(temporary, first)) and not has_state(path, FIRST):
            os.rename(os.path.join(temporary, first), os.path.join(path, first))


def _is_sound(path: str) -> bool:
    try:
        _mapped(path)
    except (OSError, ValueError):
        return False
    return True


def _arrays(chunk: Chunk) -> dict[str, np.ndarray]:
    """The arrays of a chunk by the names of their files; row lengths in place of ``indptr``."""
    X = chunk.X
    if sp.issparse(X):
        found = {"data": X.data, "indices": X.indices, "lengths": np.diff(X.indptr)}
    else:
        found = {"X": X}
    found["y"] = chunk.y
    for name in ("weight", "row"):
        values = getattr(chunk, name)
        if values is not None:
            found[name] = values
    state = chunk.state or {}
    return found | {
        os.path.join(f"state-{FIRST}", quote(name, "")): values for name, values in state.items()
    }


def _digest(chunk: Chunk) -> int:
    """A number that tells chunks apart, whatever the order in which they come."""
    code = zlib.crc32(repr(chunk.order).encode())
    for name, values in _arrays(chunk).items():
        if not name.startswith("state"):
            code = zlib.crc32(np.ascontiguousarray(values).data, code)
    return code + (len(chunk.y) << 32)


def _count(tally: dict[float, tuple[int, float]], chunk: Chunk) -> None:
    labels, code = np.unique(chunk.y, return_inverse=True)
    counts = np.bincount(code, minlength=len(labels))
    weights = counts if chunk.weight is None else np.bincount(code, chunk.weight, len(labels))
    for label, count, weight in zip(labels.tolist(), counts, weights, strict=True):
        before = tally.get(label, (0, 0.0))
        tally[label] = before[0] + int(count), before[1] + float(weight)


class _Column:
    """A .npy file that grows by the entries of chunks."""

    def __init__(self, folder: str, name: str, first: np.ndarray) -> None:
        self.name, self.path = name, os.path.join(folder, f"{name}.npy")
        self.dtype, self.shape = first.dtype, first.shape[1:]
        self.sizes: list[int] = []
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self.file = open(self.path, "wb")  # noqa: SIM115
        self.file.write(bytes(_HEAD))

    def add(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, dtype=self.dtype)
        self.file.write(values.data if values.size else b"")
        self.sizes.append(values.nbytes)

    def finish(self, turn: list[int]) -> None:
        """Put the chunks in order, and say what the file holds."""
        if turn != sorted(turn):
            self._reorder(turn)
        stride = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        count = sum(self.sizes) // stride if stride else 0
        with open(self.path, "r+b") as file:
            file.write(_header(self.dtype, (count, *self.shape)))
        if self.name == "lengths":
            indptr = np.concatenate([[0], np.cumsum(np.load(self.path), dtype=np.int64)])
            if indptr[-1] >= 1 << 31:
                raise ValueError(
                    f"n_partitions: a part has {indptr[-1]:,} entries, more than 2**31;"
                    " choose more of them."
                )
            np.save(os.path.join(os.path.dirname(self.path), "indptr.npy"), indptr.astype(np.int32))
            os.unlink(self.path)

    def _reorder(self, turn: list[int]) -> None:
        starts = np.cumsum([_HEAD, *self.sizes])
        with open(self.path, "rb") as old:
            os.unlink(self.path)  # it is read on; a new file takes the name
            with open(self.path, "wb") as new:
                new.write(bytes(_HEAD))
                for k in turn:
                    old.seek(starts[k])
                    left = self.sizes[k]
                    while left:
                        piece = old.read(min(left, _BUFFER))
                        new.write(piece)
                        left -= len(piece)


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The head of a .npy file, of a fixed length."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False})
    text = f"{text[:-1]}, 'shape': {shape}}}".ljust(_HEAD - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


def _mapped(path: str) -> dict[str, np.ndarray]:
    """The arrays of a block or of a state."""
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.endswith(".npy"):
                found[unquote(entry.name[:-4])] = _map(entry.path)
    if not found:
        raise FileNotFoundError(path)
    return found


def _map(path: str) -> np.ndarray:
    """An array in a file.

    What is written to it stays in memory: compiled loops see the same type of array as elsewhere,
    and need not be compiled again for one that is read only.
    """
    try:
        return np.load(path, mmap_mode="c").view(np.ndarray)
    except ValueError:  # nothing to map: no rows
        return np.load(path)


def opened(path: str, pose: Pose) -> Problem:
    """The problem of a block."""
    if not os.path.isdir(path):
        _forget(path)
        raise Lost("rows", path)
    if path not in _open:
        for other in [other for other in _open if not os.path.isdir(other)]:
            _forget(other)
        try:
            _open[path] = _mapped(path)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) == errno.ENOMEM:
                raise MemoryError(
                    "a worker may not map the rows of its part: leave spark.executor.pyspark.memory"
                    " unset, which limits files too, or ask for more partitions."
                ) from None
            raise Lost("rows", path) from None
        while len(_open) > _KEPT:
            _forget(next(iter(_open)))
    _open.move_to_end(path)
    known = _posed.get(path)
    if known is not None and known[0] == pose:
        return known[1]  # with the norms of its rows, if they were asked for
    arrays = _open[path]
    X: Any = arrays.get("X")
    if X is None:
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        X = sp.csr_array(parts, shape=(len(arrays["y"]), pose.d), copy=False)
    problem = Problem(
        X,
        arrays["y"],
        arrays.get("weight"),
        pose.loss,
        pose.bias,
        classes=pose.classes,
        threads=pose.threads,
        limit=pose.limit,
    )
    _posed[path] = pose, problem
    return problem


def numbers(path: str, first: int) -> np.ndarray:
    """The numbers of a block's rows in the whole, which follow ``first`` where none are kept."""
    arrays = _open[path]
    return arrays["row"] if "row" in arrays else first + np.arange(len(arrays["y"]))


def has_state(path: str, version: int) -> bool:
    """Whether a version of the state is there."""
    return version == FIRST or os.path.isdir(_state_path(path, version))


def read_state(path: str, version: int) -> State:
    """A version of the state; rows come without any where there is no first one."""
    folder = _state_path(path, version)
    try:
        return _mapped(folder)
    except OSError:
        if version == FIRST or os.path.isdir(folder):  # a state may be empty
            return {}
        raise Lost("state", folder) from None


def write_state(path: str, version: int, state: State, before: State, known: int) -> None:
    """A new version of the state; ``before`` is that of version ``known``."""
    folder, old = _state_path(path, version), _state_path(path, known)
    temporary = f"{folder}.{uuid.uuid4().hex}"
    os.makedirs(temporary)
    try:
        for name, values in state.items():
            file = f"{quote(name, '')}.npy"
            if values is before.get(name):
                try:
                    os.link(os.path.join(old, file), os.path.join(temporary, file))
                    continue
                except OSError:
                    pass  # a file system without links
            np.save(os.path.join(temporary, file), values)
        os.rename(temporary, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def drop_states(path: str, versions: Iterable[int]) -> None:
    """Remove versions of the state that nobody will ask for; others rest on the first one."""
    for version in set(versions) - {FIRST}:
        shutil.rmtree(_state_path(path, version), ignore_errors=True)


def remove(folder: str) -> None:
    """Remove a folder of blocks."""
    for path in list(_open):
        if path.startswith(folder):
            _forget(path)
    shutil.rmtree(folder, ignore_errors=True)


def _forget(path: str) -> None:
    _open.pop(path, None)
    _posed.pop(path, None)


def _state_path(path: str, version: int) -> str:
    return os.path.join(path, f"state-{version}")
