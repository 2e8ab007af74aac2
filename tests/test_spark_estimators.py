"""Stages of pyspark.ml: the answers of the local classifiers, and the manners of Spark."""

import os
import subprocess
import sys
from inspect import signature

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons

from optimargin import LinearODMClassifier, LinearSVMClassifier, ODMClassifier

pytest.importorskip("pyspark", reason="pyspark is not installed: Spark estimators not tested")

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import OneVsRest, OneVsRestModel
from pyspark.ml.evaluation import BinaryClassificationEvaluator, MulticlassClassificationEvaluator
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions as F

from optimargin.spark import (
    SparkLinearODMClassifier,
    SparkLinearODMClassifierModel,
    SparkLinearSVMClassifier,
    SparkODMClassifier,
    SparkODMClassifierModel,
)

pytestmark = pytest.mark.xdist_group("spark")

RNG = np.random.default_rng(0)
N, D = 600, 4
X = RNG.normal(size=(N, D)) * [1.0, 2.0, 0.5, 1.0]
y = np.where(X @ [1.0, -0.5, 1.0, 0.0] + 0.5 * RNG.normal(size=N) > 0.2, 5.0, 3.0)
WEIGHT = RNG.integers(0, 3, size=N).astype(float)
COLUMNS = list("abcd")


@pytest.fixture(scope="module")
def table(spark):
    """Columns a to d, label, weight and id; in one job, kept."""
    rows = [(*map(float, x), float(t), float(w), i) for i, (x, t, w) in enumerate(zip(X, y, WEIGHT, strict=True))]
    frame = spark.createDataFrame(rows, [*COLUMNS, "label", "weight", "id"]).repartition(3)
    assembled = VectorAssembler(inputCols=COLUMNS, outputCol="features").transform(frame).cache()
    yield assembled
    assembled.unpersist()


@pytest.fixture(scope="module")
def model(table):
    return SparkLinearODMClassifier(nPartitions=3).fit(table)


def predicted(model, frame):
    """Predictions and scores, in the order of id."""
    rows = model.transform(frame).select("id", "prediction", "rawPrediction").collect()
    rows.sort(key=lambda row: row.id)
    return np.array([r.prediction for r in rows]), np.array([r.rawPrediction.toArray() for r in rows])


# -- the same answers ----------------------------------------------------------------------------


def test_a_fit_is_that_of_the_local_classifier(model, table):
    local = LinearODMClassifier().fit(X, y)
    own = model.toLocal()
    assert model.summary.dualGap <= 1e-4
    assert model.summary.objective == pytest.approx(local.objective_, rel=2e-4)
    prediction, raw = predicted(model, table)
    np.testing.assert_array_equal(prediction, own.predict(X))
    np.testing.assert_allclose(raw[:, 1], own.decision_function(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(raw[:, 0], -raw[:, 1])
    np.testing.assert_array_equal(prediction, local.predict(X))
    np.testing.assert_array_equal(own.classes_, [3.0, 5.0])
    assert own.lam_ == local.lam_
    assert type(own) is LinearODMClassifier
    assert own.score(X, y) > 0.9


def test_the_summary_tells_rounds_bytes_and_status(model):
    summary = model.summary
    assert summary.status == "converged"
    assert summary.solver == "newton"
    assert summary.rounds >= 2 * summary.iterations
    assert summary.bytes > 0
    assert 0.0 < summary.secondsPerRound < 60.0
    assert summary.history["gap"][-1] == summary.dualGap


@pytest.mark.parametrize("solver", ["bqo", "admm"])
def test_other_losses_and_solvers(table, solver):
    model = SparkLinearSVMClassifier(C=0.1, solver=solver, nPartitions=2, tol=1e-3).fit(table)
    local = LinearSVMClassifier(C=0.1, tol=1e-6).fit(X, y)
    assert model.summary.dualGap <= 1e-3
    assert model.summary.objective == pytest.approx(local.objective_, rel=1.1e-3)
    assert type(model.toLocal()) is LinearSVMClassifier


def test_weights_count_as_repetitions(table):
    stage = SparkLinearODMClassifier(weightCol="weight", nPartitions=2, tol=1e-6)
    found = stage.fit(table).toLocal()
    counts = WEIGHT.astype(int)
    local = LinearODMClassifier(tol=1e-8).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert found.lam_ == local.lam_
    assert found.objective_ == pytest.approx(local.objective_, rel=1e-6)


def test_vectors_of_all_kinds_arrays_and_columns_are_the_same_rows(spark, table, model):
    prediction, raw = predicted(model, table)
    sparse = F.udf(lambda v: Vectors.sparse(D, {i: float(x) for i, x in enumerate(v)}), "")
    kinds = {
        "array": table.select("id", "label", F.array(*COLUMNS).alias("features")),
        "floats": table.select("id", "label", F.array(*COLUMNS).cast("array<float>").alias("features")),
        "columns": table.select("id", "label", *COLUMNS),
        "sparse": spark.createDataFrame(
            [
                (i, float(t), Vectors.sparse(D, range(D), x) if i % 3 else Vectors.dense(x))
                for i, (x, t) in enumerate(zip(X, y, strict=True))
            ],
            ["id", "label", "features"],
        ),
    }
    for kind, frame in kinds.items():
        columns = COLUMNS if kind == "columns" else "features"
        other = model.copy({model.featuresCol: columns})
        tol = 1e-5 if kind == "floats" else 1e-12
        np.testing.assert_allclose(predicted(other, frame)[1], raw, rtol=tol, atol=tol)
        if kind != "floats":
            fitted = SparkLinearODMClassifier(featuresCol=columns, nPartitions=2).fit(frame)
            assert fitted.summary.objective == pytest.approx(model.summary.objective, rel=2e-4)
