"""Params of the Spark stages, each with a setter and a getter.

A Param that a scikit-learn classifier has too carries its name in Spark's spelling (``max_iter``
is ``maxIter``), and what it means and may be is said and checked there, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasFitIntercept,
    HasLabelCol,
    HasMaxIter,
    HasPredictionCol,
    HasRawPredictionCol,
    HasSeed,
    HasSolver,
    HasTol,
    HasWeightCol,
)

S = TypeVar("S", bound=type)


def _columns(value: Any) -> str | list[str]:
    """The name of a column, or a list of names."""
    if TypeConverters._can_convert_to_string(value):
        return TypeConverters.toString(value)
    return TypeConverters.toListString(value)


def _number_or_word(value: Any) -> float | str:
    return value if isinstance(value, str) else TypeConverters.toFloat(value)


def _count_or_word(value: Any) -> int | str:
    return value if isinstance(value, str) else TypeConverters.toInt(value)


def _param(name: str, doc: str, convert: Callable[[Any], Any]) -> Param[Any]:
    return Param(Params._dummy(), name, doc, typeConverter=convert)


def with_accessors(stage: S) -> S:
    """The class, with ``setX`` and ``getX`` for every Param x that has none yet."""
    for name in dir(stage):
        param = getattr(stage, name)
        if not isinstance(param, Param):
            continue
        title = name[0].upper() + name[1:]
        for method, made in ((f"set{title}", _setter(param)), (f"get{title}", _getter(param))):
            if not hasattr(stage, method):
                made.__name__, made.__qualname__ = method, f"{stage.__qualname__}.{method}"
                setattr(stage, method, made)
    return stage


def _setter(param: Param[Any]) -> Callable[..., Any]:
    def put(self: Any, value: Any) -> Any:
        return self._set(**{param.name: value})

    put.__doc__ = f"Set ``{param.name}``: {param.doc}"
    return put


def _getter(param: Param[Any]) -> Callable[..., Any]:
    def get(self: Any) -> Any:
        return self.getOrDefault(param.name)

    get.__doc__ = f"The value of ``{param.name}``: {param.doc}"
    return get


def snake(name: str) -> str:
    """The name of a Param as scikit-learn classifiers spell it."""
    if name == "seed":
        return "random_state"
    return re.sub("(?<=[a-z0-9])[A-Z]", lambda found: f"_{found[0].lower()}", name)


@with_accessors
class ColumnParams(
    HasRawPredictionCol, HasLabelCol, HasFeaturesCol, HasPredictionCol, HasWeightCol
):
    """Which columns are read, and which are added."""

    featuresCol = _param(
        "featuresCol",
        "a column of vectors or arrays, or a list of numeric columns.",
        _columns,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(featuresCol="features", labelCol="label")
        self._setDefault(predictionCol="prediction", rawPredictionCol="rawPrediction")


@with_accessors
class TrainingParams(ColumnParams, HasTol, HasMaxIter, HasFitIntercept, HasSolver, HasSeed):
    """What all machines have."""

    nPartitions = _param(
        "nPartitions", "parts of the rows; unset: as many as seem right.", TypeConverters.toInt
    )
    partition = _param(
        "partition",
        "which rows make a part: 'stratified', 'random', 'kmeans' or 'kmeans-strata'.",
        TypeConverters.toString,
    )
    nStrata = _param("nStrata", "strata of which parts have equal shares.", TypeConverters.toInt)
    timeLimit = _param(
        "timeLimit", "seconds after which to stop with the best answer.", TypeConverters.toFloat
    )
    memoryLimit = _param(
        "memoryLimit",
        "bytes, or text such as '2GB', that a Hessian, landmarks or a part's kernel matrix may"
        " take; unset: half of what is free.",
        _number_or_word,
    )


@with_accessors
class ODMParams(TrainingParams):
    """What the losses of an ODM have."""

    lam = _param(
        "lam",
        "weight of the losses, or 'scale', which gives every row's loss the weight 1.",
        _number_or_word,
    )
    mu = _param("mu", "weight of margins above 1 + theta.", TypeConverters.toFloat)
    theta = _param(
        "theta",
        "half-width of the band around 1 where margins cost nothing.",
        TypeConverters.toFloat,
    )


@with_accessors
class KernelParams(ODMParams):
    """What a machine with a kernel has."""

    kernel = _param(
        "kernel", "'rbf', 'linear', 'laplacian', 'poly' or 'sigmoid'.", TypeConverters.toString
    )
    gamma = _param("gamma", "coefficient of the kernel, or 'scale' or 'auto'.", _number_or_word)
    degree = _param("degree", "degree of poly.", TypeConverters.toFloat)
    coef0 = _param("coef0", "constant in poly and sigmoid.", TypeConverters.toFloat)
    nLandmarks = _param("nLandmarks", "how many landmarks, or 'auto'.", _count_or_word)
    landmarks = _param(
        "landmarks",
        "which rows of a sample become landmarks: 'margin', 'greedy', 'random' or 'kmeans'.",
        TypeConverters.toString,
    )
    fanIn = _param("fanIn", "how many parts become one in a merge.", TypeConverters.toInt)
    levels = _param("levels", "levels of 'sodm' after which to stop.", TypeConverters.toInt)
    merge = _param("merge", "where a merged part starts from.", TypeConverters.toString)
    survivors = _param(
        "survivors",
        "whether rows whose dual variable is 0 are left behind in a merge.",
        TypeConverters.toBoolean,
    )


@with_accessors
class LinearParams(TrainingParams):
    """What solvers of linear machines have."""

    lineSearch = _param(
        "lineSearch", "the step of 'bqo': 'exact', 'line' or 'armijo'.", TypeConverters.toString
    )


@with_accessors
class SVMParams(TrainingParams):
    """What a support vector machine has."""

    C = _param("C", "weight of every row's loss.", TypeConverters.toFloat)
    loss = _param("loss", "'hinge' or 'squared_hinge'.", TypeConverters.toString)
