"""Fitted stages: a scikit-learn classifier that predicts on DataFrames."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.ml.classification import ClassificationModel
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vector, Vectors
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from optimargin.spark.columns import check_new, features_of
from optimargin.spark.params import (
    ColumnParams,
    KernelParams,
    LinearParams,
    ODMParams,
    SVMParams,
)
from optimargin.spark.saving import ModelReader, ModelWriter
from optimargin.spark.scoring import scored, scores_of


@dataclass(frozen=True)
class Summary:
    """How training went.

    Attributes
    ----------
    objective : float or ndarray
        The value of the objective, of every machine where there are several.
    dualGap : float or ndarray
        Relative duality gap: the objective is at most that far above the optimum.
    status, solver : str
        Why the solver stopped, and which one it was.
    iterations : int
        Its rounds: Newton steps, epochs, levels.
    rounds : int
        Calls of all parts and merges.
    bytes : int
        What went to the parts and back.
    secondsPerRound : float
        Time of training over calls.
    history : dict of ndarrays
        Columns machine, round, objective, gap and time.
    """

    objective: Any
    dualGap: Any
    status: str
    solver: str
    iterations: int
    rounds: int
    bytes: int
    secondsPerRound: float
    history: dict[str, np.ndarray]


class FittedModel(ClassificationModel, ColumnParams, MLReadable[Any], MLWritable):
    """What the models share; ``classifier`` is the fitted scikit-learn estimator."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self._classifier = classifier

    def toLocal(self) -> Any:
        """The fitted scikit-learn classifier, whose predictions are the same.

        Returns
        -------
        estimator
            Of the package's class of the same name; changing it changes this model.
        """
        return self._classifier

    @property
    def summary(self) -> Summary:
        """How training went."""
        local = self._classifier
        traffic = local.traffic_
        return Summary(
            local.objective_,
            local.dual_gap_,
            local.status_,
            local.solver_,
            local.n_iter_,
            traffic["rounds"],
            traffic["bytes"],
            traffic["seconds"] / max(traffic["rounds"], 1),
            local.history_,
        )

    @property
    def classes(self) -> np.ndarray:
        """The values of the label, sorted."""
        return self._classifier.classes_

    @property
    def numClasses(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def numFeatures(self) -> int:
        """How many features a row has."""
        return int(self._classifier.n_features_in_)

    def predict(self, value: Vector) -> float:
        """The class of one row."""
        return float(self._classifier.predict(np.atleast_2d(value.toArray()))[0])

    def predictRaw(self, value: Vector) -> Vector:
        """A score for each class, of one row; for two classes -f and f."""
        return Vectors.dense(scores_of(self._classifier, np.atleast_2d(value.toArray()))[0])

    def _transform(self, dataset: DataFrame) -> DataFrame:
        prediction, raw = self.getPredictionCol(), self.getRawPredictionCol()
        wanted = {"predictionCol": prediction, "rawPredictionCol": raw}
        for param, name in wanted.items():
            if name:
                check_new(dataset, name, param)
        features = features_of(dataset, self)
        kind = dataset.select(features.alias("features")).schema[0].dataType
        both = f"both_{uuid.uuid4().hex}"
        found = dataset.withColumn(both, scored(self._classifier, features, kind))
        if prediction:
            found = found.withColumn(prediction, F.col(f"{both}.prediction"))
        if raw:
            found = found.withColumn(raw, array_to_vector(F.col(f"{both}.raw")))
        return found.drop(both)

    def write(self) -> ModelWriter:
        """What writes the model to a file system of Spark."""
        return ModelWriter(self)

    @classmethod
    def read(cls) -> ModelReader:
        """What reads such models."""
        return ModelReader(cls)


class LinearModel(FittedModel, LinearParams):
    """What linear models share."""

    @property
    def coefficients(self) -> np.ndarray:
        """The weights, of shape (1, numFeatures) or (numClasses, numFeatures)."""
        return self._classifier.coef_

    @property
    def intercept(self) -> np.ndarray:
        """The intercepts, of shape (1,) or (numClasses,)."""
        return self._classifier.intercept_


class SparkLinearODMClassifierModel(LinearModel, ODMParams):
    """A fitted `SparkLinearODMClassifier`."""


class SparkLinearSVMClassifierModel(LinearModel, SVMParams):
    """A fitted `SparkLinearSVMClassifier`."""


class SparkODMClassifierModel(FittedModel, KernelParams):
    """A fitted `SparkODMClassifier`."""
