"""From a DataFrame to a fitted classifier: rows go to the engine, and only models come back.

Columns are read once, where they are, and become parts on the executors.  What the driver gets to
see are labels and how many rows have them, a bounded sample where landmarks are placed, and what
the solvers' heads tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from optimargin.engines import cluster
from optimargin.engines.frames import KEPT
from optimargin.engines.spark import SparkEngine
from optimargin.memory import limit_in_bytes
from optimargin.problem import Solution, Start, Stop
from optimargin.solvers import placed
from optimargin.solvers.on_parts import ANYHOW, on_parts
from optimargin.solvers.train import Machine
from optimargin.spark.columns import Rows, prepared
from optimargin.spark.params import TrainingParams

Learn = Callable[[Any, Any, Stop], None]  # a classifier learns from parts

_UNKNOWN = np.full(2, np.nan)


def trained(local: Any, dataset: DataFrame, stage: TrainingParams, learn: Learn) -> Any:
    """The scikit-learn classifier, fitted to the rows of the DataFrame."""
    began = time.perf_counter()
    if not isinstance(dataset, DataFrame):
        raise TypeError(
            f"dataset must be a DataFrame of Spark, not {type(dataset).__name__}; make one by"
            " spark.createDataFrame, or fit the classifier of scikit-learn to it."
        )
    cluster.context(dataset.sparkSession)
    rows = prepared(dataset, stage)
    local.classes_ = rows.classes
    loss = local._loss(rows.total)
    with _placed(rows, local, stage, dataset.sparkSession) as shards:
        local.n_features_in_ = shards.whole.d
        limit = limit_in_bytes(local.memory_limit)
        shards = shards.posed(loss=loss, bias=float(local.fit_intercept), limit=limit)
        seconds = local.time_limit
        if seconds is not None:
            seconds = max(seconds - (time.perf_counter() - began), 1e-3)
        learn(local, shards, Stop(local.tol, local.max_iter, seconds))
        local.traffic_["seconds"] = shards.traffic.seconds
    return local


def _placed(rows: Rows, local: Any, stage: TrainingParams, session: Any) -> Any:
    """The rows in their parts; they stay where they are if the solver does not mind."""
    how = local.partition
    if not stage.isSet(stage.partition) and local.solver in ("auto", *ANYHOW):
        how = KEPT
    try:
        return SparkEngine(session).place(
            rows.frame,
            local.n_partitions,
            how=how,
            strata=local.n_strata,
            seed=seed_of(local),
            classes=len(rows.classes),
            weight=rows.weight,
        )
    except ValueError as error:  # names columns as they are called here
        own = f"featuresCol: {stage.getFeaturesCol()!r}"
        raise ValueError(str(error).replace("features: column 'features'", own)) from None


def learn_linear(local: Any, shards: Any, stop: Stop) -> None:
    """Weights of features."""
    whole = shards.whole
    solver = on_parts(local._solver(), whole, seed_of(local), local._parting(), stop.tol)
    starts = [Start()] * len(local.classes_)
    found = placed.linear(shards, solver, starts, stop)
    adopt(local, local._attributes(whole, found), found)


def adopt(local: Any, model: dict[str, Any], found: list[Solution]) -> None:
    """The classifier takes the answers; of rows that were left out they say nothing."""
    machines = [Machine(solution, _UNKNOWN, np.nan) for solution in found]
    local._note(model, machines)
    local._report(machines)


def seed_of(local: Any) -> int:
    """What decides all that is random."""
    return int(local.random_state)
