"""Rows of a Spark DataFrame where they are: checked, made arrays, dealt to parts, in chunks.

Every partition of the frame deals its own rows, by batches as they come from Arrow: the rows of a
cell (class and stratum) go to the parts in turn, from an offset that the seed decides.  One shuffle
of chunks of up to a megabyte brings them there.  What a part is made of is decided by the frame,
the seed and the rule alone, so a part can be made again.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.engines import rounds
from optimargin.engines.blocks import Chunk, Facts
from optimargin.partition import Strata, nearest

FEW = 64  # rows that tell what kind of rows there are
_SPARSE = 1 / 3  # share of stored numbers up to which rows of both kinds are kept as sparse ones
_CHUNK, _HELD = 1 << 20, 1 << 26  # bytes of a chunk, and of all that a worker gathers


class BadRow(ValueError):
    """A row that no machine can learn from, in a sentence."""


class Names(NamedTuple):
    """The columns of a frame."""

    features: str
    label: str
    weight: str | None
    part: str | None


class Deal(NamedTuple):
    """What every partition of a frame is told.

    ``near`` gives strata, or clusters where it is an array of their centres.
    """

    names: Names
    d: int
    is_sparse: bool
    dtype: np.dtype
    classes: int
    parts: int
    seed: int
    how: str
    near: Strata | np.ndarray | None


def dealt(deal: Deal, batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of a partition of the frame in chunks, each with the number of its part."""
    import pyarrow as pa
    from pyspark import TaskContext

    own: Any = TaskContext.get()
    for part, blob in _chunks(deal, own.partitionId(), batches):
        arrays = [pa.array([part], pa.int32()), pa.array([blob], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["part", "chunk"])


def _chunks(deal: Deal, own: int, batches: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
    """Chunks, pickled; a complaint goes to part 0 and is the last."""
    size, turn = int(np.clip(_HELD // (10 * deal.parts), 1 << 14, _CHUNK)), 0
    held: dict[int, list[Chunk]] = {}
    counts: dict[int, int] = {}
    rng = np.random.default_rng((deal.seed, own))
    try:
        for batch in batches:
            whole = _read(deal, batch)
            part = _parts(deal, batch, whole, counts, rng)
            order = np.argsort(part, kind="stable")
            ends = np.searchsorted(part[order], np.arange(deal.parts + 1))
            for k in np.flatnonzero(np.diff(ends)).tolist():
                pieces = held.setdefault(k, [])
                pieces.append(_taken(whole, order[ends[k] : ends[k + 1]]))
                if sum(_weight(piece) for piece in pieces) >= size:
                    yield k, pickle.dumps(_joined(held.pop(k), (own, turn)), 5)
                    turn += 1
    except BadRow as complaint:
        yield 0, pickle.dumps(str(complaint))
        return
    for k, pieces in sorted(held.items()):
        yield k, pickle.dumps(_joined(pieces, (own, turn)), 5)
        turn += 1


def _read(deal: Deal, batch: Any) -> Chunk:
    """A batch of rows as arrays, if they are good."""
    names = deal.names
    X = rows_of(batch.column("features"), deal)
    y = _values(batch.column("label"), f"label: column {names.label!r}")
    if deal.classes == 2:
        bad = (y != 1.0) & (y != -1.0)
        allowed = "-1 and 1"
    else:
        bad = (y < 0) | (y >= deal.classes) | (y != np.floor(y))
        allowed = f"0 to {deal.classes - 1}"
    if bad.any():
        raise BadRow(
            f"label: column {names.label!r} holds {y[bad][0]:g}; the labels of"
            f" {deal.classes} classes are {allowed}."
        )
    weight = None
    if names.weight is not None:
        what = f"weight: column {names.weight!r}"
        weight = _values(batch.column("weight"), what)
        if (weight < 0).any():
            raise BadRow(f"{what} holds {weight[weight < 0][0]:g}; weights are at least 0.")
    return Chunk((0, 0), X, y.astype(np.int8 if deal.classes == 2 else np.intp), weight)


def _values(column: Any, what: str) -> np.ndarray:
    """A column of finite numbers."""
    if column.null_count:
        raise BadRow(f"{what} holds nulls.")
    values = numbers(column)
    if not np.isfinite(values).all():
        raise BadRow(f"{what} holds NaN or infinite numbers.")
    return values


def numbers(column: Any) -> np.ndarray:
    """An Arrow column of numbers as an array."""
    found: np.ndarray = column.to_numpy(zero_copy_only=False)
    return found


def rows_of(column: Any, deal: Deal) -> Any:
    """Vectors or arrays of an Arrow column as a matrix."""
    what = f"features: column {deal.names.features!r}"
    if column.null_count:
        raise BadRow(f"{what} holds nulls.")
    if hasattr(column, "field"):
        X = _vectors(column, deal, what)
    else:
        X = _flat(column, what).reshape(_lengths(column, deal.d, what))
    values = X.data if sp.issparse(X) else X
    if not np.isfinite(values).all():
        raise BadRow(f"{what} holds NaN or infinite numbers.")
    return X.astype(deal.dtype, copy=False)


def _vectors(column: Any, deal: Deal, what: str) -> Any:
    """Vectors of either kind, or both."""
    is_dense, values = numbers(column.field("type")) == 1, column.field("values")
    if is_dense.all():
        X = _flat(values, what).reshape(_lengths(values, deal.d, what))
        return sp.csr_array(X) if deal.is_sparse else X
    size = numbers(column.field("size").fill_null(deal.d))
    lengths = np.diff(values.offsets.to_numpy())
    found = np.where(is_dense, lengths, size)
    _agree(found, deal.d, what)
    of_dense = np.repeat(is_dense, lengths)
    indices = np.empty(len(of_dense), dtype=np.int32)
    indices[of_dense] = np.tile(np.arange(deal.d, dtype=np.int32), int(is_dense.sum()))
    indices[~of_dense] = _flat(column.field("indices"), what)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    X = sp.csr_array((_flat(values, what), indices, indptr), shape=(len(size), deal.d))
    if not deal.is_sparse:
        return X.toarray()
    if is_dense.any():
        X = X.copy()
        X.eliminate_zeros()
    return X


def _flat(lists: Any, what: str) -> np.ndarray:
    """All numbers of a column of lists."""
    flat = lists.flatten()
    if flat.null_count:
        raise BadRow(f"{what} holds nulls.")
    return numbers(flat)


def _lengths(lists: Any, d: int, what: str) -> tuple[int, int]:
    """The shape of a column of lists that have a number for each feature."""
    _agree(np.diff(lists.offsets.to_numpy()), d, what)
    return len(lists), d


def _agree(lengths: np.ndarray, d: int, what: str) -> None:
    other = lengths != d
    if other.any():
        raise BadRow(f"{what} holds a row of {lengths[other][0]} features; others have {d}.")


def _parts(
    deal: Deal, batch: Any, rows: Chunk, counts: dict[int, int], rng: np.random.Generator
) -> np.ndarray:
    """The part of every row; ``counts`` are the rows that every cell has had."""
    if deal.names.part is not None:
        part = _values(batch.column("part"), f"part: column {deal.names.part!r}")
        if (part >= deal.parts).any():
            raise BadRow(
                f"part: column {deal.names.part!r} holds {part.max()}; with"
                f" {deal.parts} parts, numbers go up to {deal.parts - 1}."
            )
        return part.astype(np.intp)
    near = np.zeros(len(rows.y), dtype=np.intp)
    if isinstance(deal.near, Strata):
        near = deal.near.numbers(rows.X)
    elif deal.near is not None:
        near = nearest(rows.X, deal.near)
    if deal.how == "kmeans":
        return near
    cell = near
    if deal.how != "random":
        cell = near * deal.classes + ((rows.y > 0) if deal.classes == 2 else rows.y)
    part, order = np.empty(len(cell), dtype=np.intp), rng.permutation(len(cell))
    order = order[np.argsort(cell[order], kind="stable")]
    kinds, starts, sizes = np.unique(cell[order], return_index=True, return_counts=True)
    for kind, start, size in zip(kinds.tolist(), starts, sizes, strict=True):
        if kind not in counts:
            counts[kind] = int(rng.integers(deal.parts))
        part[order[start : start + size]] = (counts[kind] + np.arange(size)) % deal.parts
        counts[kind] += int(size)
    return part


def _taken(chunk: Chunk, index: np.ndarray) -> Chunk:
    weight = None if chunk.weight is None else chunk.weight[index]
    return Chunk(chunk.order, chunk.X[index], chunk.y[index], weight)


def _weight(chunk: Chunk) -> int:
    X = chunk.X
    return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)


def _joined(pieces: list[Chunk], order: tuple[int, int]) -> Chunk:
    X = [piece.X for piece in pieces]
    return Chunk(
        order,
        sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.concatenate(X),
        np.concatenate([piece.y for piece in pieces]),
        None
        if pieces[0].weight is None
        else np.concatenate([piece.weight for piece in pieces if piece.weight is not None]),
    )


def looked(column: Any, names: Names) -> tuple[int, bool]:
    """How many features rows have, and whether they are kept as sparse ones."""
    column = column.drop_null()
    if len(column) == 0:
        raise BadRow(f"features: column {names.features!r} holds nulls.")
    if not hasattr(column, "field"):
        return len(column[0]), False
    kinds, lengths = numbers(column.field("type")), column.field("values").value_lengths()
    sizes = np.where(kinds == 0, numbers(column.field("size").fill_null(0)), lengths.to_numpy())
    if kinds.all():
        return int(sizes[0]), False
    share = float(lengths.to_numpy().sum()) / max(float(sizes.sum()), 1.0)
    return int(sizes[0]), not kinds.any() or share <= _SPARSE


def first_of(count: int, batches: Iterable[Any]) -> Iterator[Any]:
    """The first rows of a partition of the frame, as they are."""
    for batch in batches:
        yield batch.slice(0, count)
        count -= batch.num_rows
        if count <= 0:
            return


def stayed(deal: Deal, lease: str, generation: int, batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of a partition of the frame as a block, here; or a complaint."""
    import pyarrow as pa

    rest = iter(batches)
    first = next((batch for batch in rest if batch.num_rows), None)
    if first is None:
        return
    own, complaint = int(first.column("own")[0].as_py()), ""

    def chunks() -> Iterator[Chunk]:
        nonlocal complaint, deal
        try:
            d, is_sparse = looked(first.column("features").slice(0, FEW), deal.names)
            deal = deal._replace(d=d, is_sparse=is_sparse)
            for turn, batch in enumerate(itertools.chain([first], rest)):
                yield _read(deal, batch)._replace(order=(own, turn))
        except BadRow as found:
            complaint = str(found)

    facts = rounds.store(lease, generation, own, chunks())._replace(complaint=complaint)
    blob = pa.array([pickle.dumps(facts)], pa.binary())
    yield pa.RecordBatch.from_arrays([blob], ["facts"])


def told(rows: Iterable[Any]) -> Iterator[Facts]:
    """The facts of blocks as they come from a frame."""
    for row in rows:
        yield pickle.loads(row[0])


def arrived(
    lease: str, generation: int, parts: Sequence[int], k: int, pairs: Iterable[tuple[int, Any]]
) -> Iterator[Facts]:
    """The block of a part, of the chunks that have come; or a complaint."""
    complaints: list[str] = []

    def chunks() -> Iterator[Chunk]:
        for _, blob in pairs:
            found = pickle.loads(blob)
            if isinstance(found, str):
                complaints.append(found)
            elif not complaints:
                yield found

    facts = rounds.store(lease, generation, parts[k], chunks())
    yield facts._replace(complaint=min(complaints, default=""))
