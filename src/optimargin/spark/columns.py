"""Columns of a DataFrame as the machine takes them: features, labels, weights.

Features may be a column of vectors (dense, sparse or both), a column of arrays, or several
numeric columns.  Labels are numbers of any kind; a machine knows its classes by their values,
sorted.  What is wrong with a column is said in one sentence that names the Param.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, FloatType, NumericType

from optimargin.spark.params import ColumnParams

_MOST_CLASSES = 1000


class Rows(NamedTuple):
    """A frame of ``features``, ``label`` and maybe ``weight``, and what is known of it.

    Labels are -1 and 1 for two classes, and numbers from 0 for more; ``classes`` has the values
    that they stand for.
    """

    frame: DataFrame
    weight: str | None
    classes: np.ndarray
    total: float


def features_of(frame: DataFrame, stage: ColumnParams) -> Column:
    """The features as vectors, or as arrays of numbers."""
    names = stage.getFeaturesCol()
    if not isinstance(names, str):
        if not names:
            raise ValueError("featuresCol must name at least one column; the list is empty.")
        return F.array(*[_number(frame, name, "featuresCol") for name in names])
    column, kind = _column(frame, names, "featuresCol")
    if isinstance(kind, VectorUDT):
        return column
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        single = isinstance(kind.elementType, FloatType)
        return column if single else column.cast("array<double>")
    if isinstance(kind, NumericType | BooleanType):
        return F.array(column.cast("double"))
    raise ValueError(
        f"featuresCol must name a column of vectors or of arrays of numbers, or a list of numeric"
        f" columns; {names!r} is of type {kind.simpleString()}."
    )


def prepared(frame: DataFrame, stage: ColumnParams) -> Rows:
    """What the engine takes, after one job that looks at all labels and weights."""
    columns = [
        features_of(frame, stage).alias("features"),
        _number(frame, stage.getLabelCol(), "labelCol").alias("label"),
    ]
    has_weight = stage.isDefined("weightCol") and bool(stage.getOrDefault("weightCol"))
    if has_weight:
        columns.append(_number(frame, stage.getWeightCol(), "weightCol").alias("weight"))
    chosen = frame.select(*columns)
    classes, total = _looked(chosen, stage, has_weight)
    label, values = F.col("label"), classes.tolist()
    if len(values) == 2:
        code = F.when(label == values[1], 1.0).otherwise(-1.0)
    else:
        code = F.array_position(F.array(*[F.lit(value) for value in values]), label) - 1.0
    weight = "weight" if has_weight else None
    return Rows(chosen.withColumn("label", code), weight, classes, total)


def _looked(chosen: DataFrame, stage: ColumnParams, has_weight: bool) -> tuple[np.ndarray, float]:
    """The classes, sorted, and the weight of all rows."""
    weight = F.col("weight") if has_weight else F.lit(1.0)
    good = weight.isNotNull() & ~F.isnan(weight) & (weight >= 0) & (weight < float("inf"))
    figures = [F.sum(weight).alias("weight"), F.count_if(~good).alias("bad")]
    found = chosen.groupBy("label").agg(*figures).limit(_MOST_CLASSES + 1).collect()
    name, kind = stage.getLabelCol(), type(stage).__name__
    if not found:
        raise ValueError(f"{kind} needs rows, and the DataFrame has none.")
    if len(found) > _MOST_CLASSES:
        raise ValueError(
            f"labelCol must name a column of classes; {name!r} has more than {_MOST_CLASSES}"
            " different values."
        )
    if any(row.label is None or not np.isfinite(row.label) for row in found):
        raise ValueError(
            f"labelCol must name a column of finite numbers; {name!r} has rows that are null, NaN"
            " or infinite."
        )
    if any(row.bad for row in found):
        raise ValueError(
            "weightCol must name a column of finite numbers that are not negative;"
            f" {stage.getWeightCol()!r} has others."
        )
    found.sort(key=lambda row: row.label)
    present = [row.label for row in found if row.weight > 0.0]
    if len(present) < 2:
        one = f"; found one class ({present[0]:g})" if present else ""
        raise ValueError(
            f"{kind} needs rows of at least two classes in labelCol ({name!r}) with a positive"
            f" weight{one}."
        )
    return np.array([row.label for row in found]), float(sum(row.weight for row in found))


def _number(frame: DataFrame, name: str, param: str) -> Column:
    """A numeric column, in double precision."""
    column, kind = _column(frame, name, param)
    if not isinstance(kind, NumericType | BooleanType):
        advice = " (for text, index it with StringIndexer first)" if param == "labelCol" else ""
        raise ValueError(
            f"{param} must name a numeric column; {name!r} is of type"
            f" {kind.simpleString()}{advice}."
        )
    return column.cast("double")


def _column(frame: DataFrame, name: str, param: str) -> tuple[Column, DataType]:
    """A column and its type: one of that name, whatever is in it, or a field of a struct."""
    known = _same(frame, name)
    if known is not None:
        name = "`" + known.replace("`", "``") + "`"
    elif not name.startswith("`") and _same(frame, name.partition(".")[0]) is None:
        raise _absent(frame, name, param)
    try:
        column = frame[name]
        return column, frame.select(column).schema[0].dataType
    except AnalysisException:
        raise _absent(frame, name, param) from None


def _absent(frame: DataFrame, name: str, param: str) -> ValueError:
    return ValueError(
        f"{param} names {name!r}, and the DataFrame has no such column; it has"
        f" {', '.join(frame.columns)}."
    )


def _same(frame: DataFrame, name: str) -> str | None:
    """The column that has this name, as Spark compares names."""
    if name in frame.columns:
        return name
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return None
    return next((known for known in frame.columns if known.lower() == name.lower()), None)


def check_new(frame: DataFrame, name: str, param: str) -> None:
    """Refuse to overwrite a column."""
    if _same(frame, name) is not None:
        raise ValueError(f"{param} names {name!r}, which the DataFrame has already.")
