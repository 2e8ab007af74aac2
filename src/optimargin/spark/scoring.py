"""Predictions of a fitted classifier, by Arrow batches where the rows are.

Only the features travel to Python, and two columns come back; all others stay where they are.
The classifier travels with the function, once for each task.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from optimargin.classes import winners
from optimargin.engines.frames import unwrapped
from optimargin.spark.arrowrows import rows_of

_RETURNS = "struct<prediction: double, raw: array<double>>"


def scored(classifier: Any, features: Column, kind: DataType) -> Column:
    """A column of structs: the class, and a score for each class.

    For two classes the scores are -f and f.
    """
    given = unwrapped(features) if isinstance(kind, VectorUDT) else features
    single = copy(classifier).set_params(n_jobs=1)  # other cores have other tasks

    def score(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for batch in batches:
            yield _answers(single, batch)

    # Types as objects: Spark reads them, and texts would be looked up in this module.
    score.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    typed: Any = F.arrow_udf
    return typed(score, returnType=_RETURNS)(given)


def _answers(classifier: Any, batch: pa.Array) -> pa.Array:
    if not len(batch):
        return pa.array(
            [], type=pa.struct({"prediction": pa.float64(), "raw": pa.list_(pa.float64())})
        )
    raw = scores_of(classifier, rows_of(batch))
    best = classifier.classes_[winners(raw[:, 1] if raw.shape[1] == 2 else raw)]
    ends = np.arange(len(raw) + 1, dtype=np.int32) * raw.shape[1]
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(raw.ravel()))
    return pa.StructArray.from_arrays([pa.array(best), lists], ["prediction", "raw"])


def scores_of(classifier: Any, X: Any) -> np.ndarray:
    """A score for each class, for every row."""
    Z = getattr(classifier, "support_vectors_", None)
    if Z is not None and sp.issparse(X) and not sp.issparse(Z):
        X = X.toarray()
    scores = classifier.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
