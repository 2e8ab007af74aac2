"""Stages of pyspark.ml: the answers of the local classifiers, and the manners of Spark."""

import subprocess
import sys
from inspect import signature

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs, make_moons

from optimargin import LinearODMClassifier, LinearSVMClassifier, ODMClassifier

pytest.importorskip("pyspark", reason="pyspark is not installed: Spark estimators are not tested")

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
from optimargin.spark.kernels import united

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
    rows = [
        (*map(float, x), float(t), float(w), i)
        for i, (x, t, w) in enumerate(zip(X, y, WEIGHT, strict=True))
    ]
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
    return np.array([r.prediction for r in rows]), np.array(
        [r.rawPrediction.toArray() for r in rows]
    )


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
    assert own.score(X, y) > 0.85


def test_the_summary_tells_rounds_bytes_and_status(model):
    summary = model.summary
    assert summary.status == "converged"
    assert summary.solver == "newton"
    assert summary.rounds >= summary.iterations  # one for each step that needs no other length
    assert summary.bytes > 0
    assert 0.0 < summary.secondsPerRound < 60.0
    assert summary.history["gap"][-1] == summary.dualGap


def test_other_losses_and_solvers(table):
    model = SparkLinearSVMClassifier(C=0.01, nPartitions=2, tol=1e-3).fit(table)
    local = LinearSVMClassifier(C=0.01, tol=1e-6).fit(X, y)
    assert model.summary.dualGap <= 1e-3
    assert model.summary.objective == pytest.approx(local.objective_, rel=1.1e-3)
    assert type(model.toLocal()) is LinearSVMClassifier
    assert model.summary.solver == "newton"  # what "auto" is where rows are many for each feature


def test_weights_count_as_repetitions(table):
    stage = SparkLinearODMClassifier(weightCol="weight", nPartitions=2, tol=1e-6)
    found = stage.fit(table).toLocal()
    counts = WEIGHT.astype(int)
    local = LinearODMClassifier(tol=1e-8).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert found.lam_ == local.lam_
    assert found.objective_ == pytest.approx(local.objective_, rel=1e-6)


def test_vectors_of_all_kinds_arrays_and_columns_are_the_same_rows(spark, table, model):
    raw = predicted(model, table)[1]
    mixed = [
        (i, float(t), Vectors.sparse(D, range(D), x) if i % 3 else Vectors.dense(x))
        for i, (x, t) in enumerate(zip(X, y, strict=True))
    ]
    both = spark.createDataFrame(mixed, ["id", "label", "features"])
    array = F.array(*COLUMNS)
    frames = {
        "array": table.select("id", "label", array.alias("features")),
        "floats": table.select("id", "label", array.cast("array<float>").alias("features")),
        "columns": table.select("id", "label", *COLUMNS),
        "both": both,
        "sparse": both.where("id % 3 != 0"),
    }
    for kind, frame in frames.items():
        other = model.copy({model.featuresCol: COLUMNS if kind == "columns" else "features"})
        rows = np.arange(N) % 3 != 0 if kind == "sparse" else np.ones(N, dtype=bool)
        tol = 1e-5 if kind == "floats" else 1e-12
        np.testing.assert_allclose(predicted(other, frame)[1], raw[rows], rtol=tol, atol=tol)
    for kind in ("columns", "sparse"):
        stage = SparkLinearODMClassifier(nPartitions=2)
        stage.setFeaturesCol(COLUMNS if kind == "columns" else "features")
        rows = np.arange(N) % 3 != 0 if kind == "sparse" else np.ones(N, dtype=bool)
        local = LinearODMClassifier().fit(X[rows], y[rows])
        found = stage.fit(frames[kind]).toLocal()
        assert found.objective_ == pytest.approx(local.objective_, rel=2e-4)


# -- several classes, kernels ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(spark):
    points, label = make_blobs(400, centers=3, cluster_std=2.5, random_state=1)
    rows = [
        (Vectors.dense(x), float(2 * c), i)
        for i, (x, c) in enumerate(zip(points, label, strict=True))
    ]
    return points, 2.0 * label, spark.createDataFrame(rows, ["features", "label", "id"]).cache()


def test_every_class_against_the_rest_in_one_pass(three):
    points, label, frame = three
    model = SparkLinearODMClassifier(nPartitions=2).fit(frame)
    local = LinearODMClassifier(multi_class="ovr").fit(points, label)
    np.testing.assert_array_equal(model.classes, [0.0, 2.0, 4.0])
    assert model.numClasses == 3
    np.testing.assert_allclose(model.summary.objective, local.objective_, rtol=2e-4)
    prediction, raw = predicted(model, frame)
    assert raw.shape == (400, 3)
    np.testing.assert_array_equal(prediction, local.predict(points))
    row = Vectors.dense(points[0])
    assert model.predict(row) == prediction[0]
    np.testing.assert_allclose(model.predictRaw(row).toArray(), raw[0], rtol=1e-12)
    one = SparkLinearODMClassifier(nPartitions=2).fit(frame.where("label < 4"))
    assert model.summary.rounds < 2 * one.summary.rounds


def test_landmarks_are_those_of_a_sample_and_the_machine_is_exact_over_them(three):
    points, label, frame = three
    stage = SparkODMClassifier(nLandmarks=40, gamma=0.2, nPartitions=2, fitIntercept=True)
    model = stage.fit(frame)
    own = model.toLocal()
    local = ODMClassifier(
        solver="landmark",
        landmarks=own.support_vectors_,
        gamma=0.2,
        multi_class="ovr",
        fit_intercept=True,
    ).fit(points, label)
    assert own.dual_coef_.shape == (3, 40)
    assert (own.dual_gap_ <= 1e-3).all()
    np.testing.assert_allclose(own.objective_, local.objective_, rtol=2e-3)
    assert 0.0 <= own.residual_ < 1.0
    np.testing.assert_array_equal(predicted(model, frame)[0], own.predict(points))
    assert own.score(points, label) > local.score(points, label) - 0.01


def test_sodm_leads_to_the_machine_of_all_rows(spark):
    points, label = make_moons(300, noise=0.2, random_state=0)
    rows = [(x.tolist(), int(t), i) for i, (x, t) in enumerate(zip(points, label, strict=True))]
    frame = spark.createDataFrame(rows, "features array<double>, label int, id int")
    stage = SparkODMClassifier(solver="sodm", nPartitions=4, fanIn=2, tol=1e-4)
    model = stage.fit(frame)
    local = ODMClassifier(tol=1e-6).fit(points, label)
    own = model.toLocal()
    assert own.gamma_ == pytest.approx(local.gamma_, rel=1e-12)
    assert own.objective_ == pytest.approx(local.objective_, rel=2e-4)
    assert own.dual_gap_ <= 1e-4
    assert model.summary.iterations == 4  # 4, 2 and 1 parts, of which the last takes two steps
    np.testing.assert_array_equal(predicted(model, frame)[0], own.predict(points))
    np.testing.assert_allclose(
        own.decision_function(points), local.decision_function(points), atol=0.1
    )


def test_rows_of_several_machines_are_kept_once():
    rows = RNG.normal(size=(5, 2))
    Z, B = united([[(rows[:3], np.ones(3)), (rows[3:], np.ones(2))], [(rows[2:], np.full(3, 2.0))]])
    np.testing.assert_array_equal(Z, rows)
    np.testing.assert_array_equal(B, [[1, 1, 1, 1, 1], [0, 0, 2, 2, 2]])
    Z, B = united(
        [[(sp.csr_array(rows[[0, 0]]), np.ones(2))], [(sp.csr_array(rows[1:2]), np.ones(1))]]
    )
    np.testing.assert_array_equal(Z.toarray(), rows[:2])
    np.testing.assert_array_equal(B, [[2, 0], [0, 1]])


# -- the manners of Spark ------------------------------------------------------------------------


def test_a_pipeline_and_its_files(table, tmp_path):
    scaler = StandardScaler(inputCol="features", outputCol="scaled", withMean=True)
    stage = SparkLinearODMClassifier(featuresCol="scaled", nPartitions=2, lam=50.0)
    pipeline = Pipeline(stages=[scaler, stage])
    pipeline.save(str(tmp_path / "unfitted"))
    loaded = Pipeline.load(str(tmp_path / "unfitted"))
    assert loaded.getStages()[1].extractParamMap() == stage.extractParamMap()
    fitted = loaded.fit(table)
    fitted.save(str(tmp_path / "fitted"))
    again = PipelineModel.load(str(tmp_path / "fitted"))
    for ours, theirs in zip(predicted(fitted, table), predicted(again, table), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    last = again.stages[1]
    assert last.uid == stage.uid
    assert last.getLam() == 50.0
    assert last.summary.objective == fitted.stages[1].summary.objective
    assert not np.isnan(last.summary.secondsPerRound)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".crc"]
    assert {path.suffix for path in files} == {"", ".txt", ".parquet"}  # "" is _SUCCESS
    area = BinaryClassificationEvaluator(labelCol="binary").evaluate(
        again.transform(table.withColumn("binary", (F.col("label") == 5).cast("double")))
    )
    assert area > 0.85


def test_a_model_is_saved_over_another_and_knows_its_class(model, table, tmp_path):
    path = str(tmp_path / "model")
    model.save(path)
    model.write().overwrite().save(path)
    loaded = SparkLinearODMClassifierModel.load(path)
    np.testing.assert_array_equal(loaded.coefficients, model.coefficients)
    np.testing.assert_array_equal(loaded.intercept, model.intercept)
    assert loaded.numFeatures == D
    with pytest.raises(ValueError, match="SparkODMClassifierModel"):
        SparkODMClassifierModel.load(path)


def test_a_cross_validator_chooses_among_params(table):
    stage = SparkLinearODMClassifier(nPartitions=2)
    grid = ParamGridBuilder().addGrid(stage.featuresCol, [["d"], COLUMNS]).build()  # d is noise
    judge = MulticlassClassificationEvaluator(metricName="accuracy")
    search = CrossValidator(
        estimator=stage, estimatorParamMaps=grid, evaluator=judge, numFolds=2, seed=1
    )
    found = search.fit(table)
    assert found.bestModel.getFeaturesCol() == COLUMNS
    assert len(found.avgMetrics) == 2
    assert stage.getFeaturesCol() == "features"


def test_one_vs_rest_of_spark_takes_our_classifier(three, tmp_path):
    frame = three[2].withColumn("label", F.col("label") / 2).withColumn("weight", F.lit(2.0))
    whole = OneVsRest(classifier=SparkLinearODMClassifier(nPartitions=2), weightCol="weight")
    fitted = whole.fit(frame)
    assert len(fitted.models) == 3
    scored = fitted.transform(frame)
    judge = MulticlassClassificationEvaluator(metricName="accuracy")
    assert judge.evaluate(scored) > 0.8
    fitted.save(str(tmp_path / "rest"))
    assert judge.evaluate(OneVsRestModel.load(str(tmp_path / "rest")).transform(frame)) > 0.8


def test_other_columns_stay_and_ours_are_named_by_params(model, table):
    other = model.copy({model.predictionCol: "", model.rawPredictionCol: "scores"})
    assert other.transform(table).columns == [*table.columns, "scores"]
    assert model.getPredictionCol() == "prediction"
    with pytest.raises(ValueError, match="predictionCol names 'id'"):
        model.copy({model.predictionCol: "id"}).transform(table)


def test_params_have_setters_getters_and_the_defaults_of_the_local_classifiers(spark):
    for stage in (SparkLinearODMClassifier, SparkLinearSVMClassifier, SparkODMClassifier):
        written = signature(stage).parameters
        made = stage()
        for param in made.params:
            if param.name in written and made.hasDefault(param):
                assert made.getOrDefault(param) == written[param.name].default
    made = SparkODMClassifier().setKernel("poly").setNLandmarks(7).setFanIn(3).setSeed(5)
    assert (made.getKernel(), made.getNLandmarks(), made.getFanIn(), made.getSeed()) == (
        "poly",
        7,
        3,
        5,
    )
    assert made.setParams(gamma=0.5, lam=3).getGamma() == 0.5
    assert made.copy({made.lam: 4.0}).getLam() == 4.0
    assert "gamma" in made.explainParams()


# -- what is wrong is said in a sentence ---------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"featuresCol": "nothing"}, "featuresCol names 'nothing'"),
        ({"featuresCol": []}, "at least one column"),
        ({"featuresCol": ["a", "word"]}, "featuresCol must name a numeric column; 'word'"),
        ({"featuresCol": "word"}, "a column of vectors or of arrays of numbers"),
        ({"labelCol": "word"}, "StringIndexer"),
        ({"labelCol": "one"}, "at least two classes"),
        ({"labelCol": "hole"}, "finite numbers"),
        ({"weightCol": "minus"}, "not negative"),
        ({"featuresCol": ["a", "hole"]}, "featuresCol.* holds N|featuresCol.* null"),
        ({"lam": -1.0}, "'lam' Param of SparkLinearODMClassifier"),
        ({"maxIter": 0}, "'maxIter' Param"),
        ({"partition": "blocks"}, "partition must be one of"),
        ({"solver": "dcd"}, "solver must be one of"),
        ({"memoryLimit": "2 apples"}, "memoryLimit must be a number of bytes"),
    ],
)
def test_bad_input_is_named(table, given, said):
    frame = table.select(
        "*",
        F.lit("text").alias("word"),
        F.lit(1.0).alias("one"),
        F.when(F.col("id") == 7, F.lit(float("nan"))).otherwise(F.col("label")).alias("hole"),
        (-F.col("weight")).alias("minus"),
    )
    with pytest.raises(ValueError, match=said):
        SparkLinearODMClassifier(nPartitions=2, **given).fit(frame)


def test_names_of_columns_are_taken_as_spark_takes_them(table):
    frame = table.withColumnRenamed("a", "a.x").withColumn("s", F.struct("b", F.col("c") > 0))
    stage = SparkLinearODMClassifier(nPartitions=2, tol=0.1)
    model = stage.setFeaturesCol(["a.x", "B", "`a.x`", "s.b", "s.col2"]).fit(frame)
    assert model.numFeatures == 5
    weights = model.coefficients.ravel()
    np.testing.assert_allclose(weights[[0, 1]], weights[[2, 3]], rtol=1e-6)
    with pytest.raises(ValueError, match="predictionCol names 'prediction', which the DataFrame"):
        model.transform(frame.withColumn("Prediction", F.lit("mine")))
    with pytest.raises(ValueError, match=r"featuresCol names 's\.z'"):
        stage.setFeaturesCol(["s.z"]).fit(frame)
    with pytest.raises(TypeError, match=r"DataFrame of Spark, not DataFrame|not dict"):
        stage.fit({"features": [[1.0]], "label": [1.0]})


def test_what_cannot_be_trained_is_said_before_work_begins(table):
    with pytest.raises(ValueError, match="'tron' needs a loss with a slope everywhere"):
        SparkLinearSVMClassifier(solver="tron")._settings()


def test_unknown_params_are_named(spark):
    with pytest.raises(ValueError, match="has no Param 'gama'"):
        SparkODMClassifier().setParams(gama=1.0)
    with pytest.raises(TypeError, match="lam"):
        SparkODMClassifier(lam=[1])


def test_without_pyspark_the_import_says_what_to_install():
    code = "import sys; sys.modules['pyspark'] = None; import optimargin.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: optimargin.spark needs pyspark 4.1")
    assert "pip install 'optimargin[spark]'" in last
