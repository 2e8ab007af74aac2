"""A Spark DataFrame of rows as parts: its columns, and how its rows are dealt; on the driver."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from optimargin.engines.blocks import Facts
from optimargin.engines.cluster import Lease
from optimargin.engines.dealing import FEW, Deal, Names, dealt, first_of, looked, rows_of, stayed
from optimargin.kernels import Kernel
from optimargin.partition import PARTITIONS, centres, make_strata

_POOL = 4096  # rows of a sample
_SAMPLE = 1 << 26  # bytes of a sample
KEPT = "kept"  # rows stay in the partition of the frame where they are
_RULES = (*(rule for rule in PARTITIONS if rule != "blocks"), KEPT)


class Rule(NamedTuple):
    """Which rows go where: see `partition`."""

    how: str
    strata: int
    kernel: Kernel
    seed: int


def deal(
    frame: Any, names: Names, rule: Rule, shape: tuple[int, int, str | None], lease: Lease
) -> Deal:
    """What a look at a few rows decides: their kind and length, and landmarks or centres."""
    count, classes, dtype = shape
    if count < 1:
        raise ValueError(f"n_partitions: must be at least 1, not {count}.")
    if rule.how not in _RULES:
        raise ValueError(f"how: must be one of {', '.join(_RULES)} for a frame, not {rule.how!r}.")
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype: must be 'float32', 'float64' or None, not {dtype!r}.")
    kind = _checked(frame, names)
    chosen = np.dtype(dtype or kind)
    if rule.how == KEPT:  # every partition looks at its own
        return Deal(names, 0, False, chosen, classes, count, rule.seed, rule.how, near=None)
    column = frame.select(_features(frame, names).alias("features"))
    few = lease.run(column.limit(FEW).toArrow).column("features")
    if len(few) == 0:
        raise ValueError("frame: has no rows.")
    d, is_sparse = looked(few.combine_chunks(), names)
    found = Deal(names, d, is_sparse, chosen, classes, count, rule.seed, rule.how, near=None)
    if names.part is not None or rule.how == "random" or count == 1:
        return found
    from pyspark.sql import functions as F

    size = _POOL if is_sparse else max(min(_POOL, _SAMPLE // (8 * d)), 1)
    if rule.how == "stratified":  # a few rows of every partition will do, and no other is computed
        column = column.mapInArrow(partial(first_of, size), column.schema)
    sampled = column.orderBy(F.rand(rule.seed)).limit(size)
    pool = rows_of(lease.run(sampled.toArrow).column("features").combine_chunks(), found)
    if rule.how == "stratified":
        return found._replace(near=make_strata(pool, rule.kernel, rule.strata))
    wanted = count if rule.how == "kmeans" else rule.strata
    rng = np.random.default_rng(rule.seed)
    return found._replace(near=centres(pool, min(wanted, pool.shape[0]), rng))


def pairs(frame: Any, names: Names, deal: Deal, lease: Lease) -> Any:
    """The number of a part and a chunk of its rows, in the partition of that number.

    Java moves the chunks: an RDD's own shuffle would take them through Python once more.
    """
    rows = frame.select(*_wanted(frame, names))
    chunks = rows.mapInArrow(partial(dealt, deal), "part int, chunk binary")
    return lease.run(lambda: chunks.repartitionById(deal.parts, "part").rdd)


def blocks(frame: Any, names: Names, deal: Deal, lease: Lease, generation: int, most: int) -> Any:
    """The blocks that partitions of the frame become where they are.

    None where there are fewer of them than parts; more than ``most`` are joined, to as many as
    parts.  The number of a block is that of its partition, which a column tells: a task that makes
    a few of them again is numbered otherwise.
    """
    from pyspark.sql import functions as F

    def made(rows: Any) -> Any:
        numbered = rows.withColumn("own", F.spark_partition_id())
        write = partial(stayed, deal, lease.id, generation)
        return lease.run(lambda: numbered.mapInArrow(write, "facts binary").rdd)

    rows = frame.select(*_wanted(frame, names))
    plain = made(rows)
    count = plain.getNumPartitions()
    if count < deal.parts:
        return None
    return plain if count <= most else made(rows.coalesce(deal.parts))


def _wanted(frame: Any, names: Names) -> list[Any]:
    """The columns that are read, by names of our own."""
    wanted = [
        _features(frame, names).alias("features"),
        _column(names.label).cast("double").alias("label"),
    ]
    for name, column, kind in (("weight", names.weight, "double"), ("part", names.part, "long")):
        if column is not None:
            wanted.append(_column(column).cast(kind).alias(name))
    return wanted


def check(facts: Iterable[Facts], lease: Lease) -> None:
    """Give up where a row was bad, or where there is none."""
    found = list(facts)
    complaints = sorted(one.complaint for one in found if one.complaint)
    lengths = sorted({one.features for one in found if one.rows})
    if not complaints and len(lengths) > 1:
        complaints = [f"features: there are rows of {lengths[0]} and of {lengths[1]} features."]
    if complaints or not any(one.rows for one in found):
        lease.free()
        raise ValueError(complaints[0] if complaints else "frame: has no rows.")


def _checked(frame: Any, names: Names) -> str:
    """The type of numbers in the features; a sentence where columns are not as they should be."""
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import ArrayType, BooleanType, FloatType, NumericType

    types = {field.name: field.dataType for field in frame.schema.fields}
    for argument, name in names._asdict().items():
        if name is not None and name not in types:
            raise ValueError(f"{argument}: the frame has no column {name!r}; it has {list(types)}.")
        if name is None or argument == "features":
            continue
        if not isinstance(types[name], NumericType | BooleanType):
            said = types[name].simpleString()
            raise ValueError(f"{argument}: column {name!r} must hold numbers, not {said}.")
    kind = types[names.features]
    if isinstance(kind, VectorUDT):
        return "float64"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        return "float32" if isinstance(kind.elementType, FloatType) else "float64"
    raise ValueError(
        f"features: column {names.features!r} must hold vectors or arrays of numbers, not"
        f" {kind.simpleString()}."
    )


def _features(frame: Any, names: Names) -> Any:
    from pyspark.ml.linalg import VectorUDT

    column = _column(names.features)
    is_vector = isinstance(frame.schema[names.features].dataType, VectorUDT)
    return unwrapped(column) if is_vector else column


def unwrapped(vectors: Any) -> Any:
    """Vectors as their parts, as Arrow takes them quickly.

    A dense vector's indices are null, and Spark takes four times as long to hand such rows to
    Python as it does where they are empty.
    """
    from pyspark.sql import functions as F

    parts = F.unwrap_udt(vectors)
    none = F.array().cast("array<int>")
    fields = {name: parts[name] for name in ("type", "size", "indices", "values")}
    fields["indices"] = F.coalesce(fields["indices"], none)
    return F.when(vectors.isNotNull(), F.struct(*(v.alias(k) for k, v in fields.items())))


def _column(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")
