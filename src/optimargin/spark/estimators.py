"""Estimators of pyspark.ml whose rows stay with the executors."""

from __future__ import annotations

import re
from inspect import signature
from typing import Any, ClassVar, Self

from pyspark import keyword_only
from pyspark.ml.classification import Classifier
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from optimargin.estimators import LinearODMClassifier, LinearSVMClassifier, ODMClassifier
from optimargin.memory import limit_in_bytes
from optimargin.problem import Stop
from optimargin.solvers.on_parts import NAMED, refuse_kinks
from optimargin.solvers.place import HOW
from optimargin.spark.kernels import learn_kernel
from optimargin.spark.models import (
    FittedModel,
    SparkLinearODMClassifierModel,
    SparkLinearSVMClassifierModel,
    SparkODMClassifierModel,
)
from optimargin.spark.params import (
    KernelParams,
    LinearParams,
    ODMParams,
    SVMParams,
    TrainingParams,
    snake,
)
from optimargin.spark.training import learn_linear, trained

_PARTITIONS = ("stratified", "random", "kmeans", "kmeans-strata")
_KERNELS = ("rbf", "linear", "laplacian", "poly", "sigmoid")
_ON_PARTS = ("auto", "newton", *NAMED)
_ON_KERNELS = ("auto", "landmark", "sodm")


class SparkClassifier(
    Classifier, TrainingParams, DefaultParamsReadable[Any], DefaultParamsWritable
):
    """What the estimators share.

    ``_local`` is the scikit-learn class that knows what Params mean and may be.
    """

    _local: ClassVar[Any]
    _model: ClassVar[type[FittedModel]]
    _input_kwargs: dict[str, Any]
    _allowed: ClassVar[dict[str, tuple[str, ...]]] = {
        "partition": _PARTITIONS,
        "solver": _ON_PARTS,
    }

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        own = {snake(param.name): param.name for param in self.params}
        for name, argument in signature(self._local).parameters.items():
            if name in own and argument.default is not None:
                self._setDefault(**{own[name]: argument.default})
        self._setDefault(seed=0)
        self._set(**{name: value for name, value in params.items() if value is not None})

    def setParams(self, **params: Any) -> Self:
        """Set several Params by name."""
        for name in params:
            if not self.hasParam(name):
                raise ValueError(
                    f"{type(self).__name__} has no Param {name!r}; it has"
                    f" {', '.join(param.name for param in self.params)}."
                )
        return self._set(**params)

    def _fit(self, dataset: DataFrame) -> FittedModel:
        fitted = trained(self._settings(), dataset, self, self._learn)
        return self._copyValues(self._model(fitted)._resetUid(self.uid))

    def _learn(self, local: Any, shards: Any, stop: Stop) -> None:
        """Have the classifier learn from the parts."""
        learn_linear(local, shards, stop)

    def _settings(self) -> Any:
        """A scikit-learn classifier with these Params, all of them checked."""
        for name, allowed in self._allowed.items():
            value = self.getOrDefault(name)
            if value not in allowed:
                choices = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} must be one of {choices} on Spark; got {value!r}.")
        known = self._local._get_param_names()
        given = {snake(p.name): self.getOrDefault(p) for p in self.params if self.isDefined(p)}
        local = self._local(multi_class="ovr", **{k: v for k, v in given.items() if k in known})
        try:
            local._validate_params()
            limit_in_bytes(local.memory_limit)
        except ValueError as error:
            raise ValueError(self._in_spark(str(error))) from None
        return local

    def _in_spark(self, said: str) -> str:
        """What was said of an argument, said of the Param."""
        own = {snake(param.name): param.name for param in self.params}
        said = re.sub(r"^(\w+) must be", lambda m: f"{own.get(m[1], m[1])} must be", said)
        said = re.sub(r"'(\w+)' parameter", lambda m: f"'{own.get(m[1], m[1])}' Param", said)
        return said.replace(self._local.__name__, type(self).__name__)


class SparkLinearODMClassifier(SparkClassifier, LinearParams, ODMParams):
    """Linear optimal margin distribution machine: `LinearODMClassifier` where the rows are.

    More than two classes are one machine each against the rest, in one pass over the rows.

    Parameters
    ----------
    featuresCol : str or list of str, default="features"
        A column of vectors (dense, sparse or both) or of arrays, or several numeric columns.
    labelCol, weightCol : str
        Labels are numbers of any kind; a weight w >= 0 counts as w copies of the row.
    predictionCol, rawPredictionCol : str
        The label of the class, and a vector with a score for each class (-f and f for two); the
        empty text leaves a column out.
    lam, mu, theta, tol, maxIter, fitIntercept, timeLimit, memoryLimit, nStrata : optional
        As in `LinearODMClassifier`, with the same defaults.
    solver : str, default="auto"
        "newton", which is also what "auto" is, "tron", "bqo", "disdca", "dsvm-ave", "admm",
        "admm-acc", "dsvrg", "csvrg", "pa", "dwpa" or "dwpa-acc".
    lineSearch : {"exact", "line", "armijo"}, default="exact"
        The step of "bqo", as in `LinearODMClassifier`.
    nPartitions : int, optional
        Parts of the rows; unset: one for each core of the cluster.
    partition : {"stratified", "random", "kmeans", "kmeans-strata"}, optional
        Which rows make a part, as in `LinearODMClassifier`.  Unset: with "auto", "newton" and
        "tron" rows stay in the partitions of the DataFrame, with other solvers "stratified".
    seed : int, default=0
        Decides all that is random.
    """

    _local = LinearODMClassifier
    _model = SparkLinearODMClassifierModel

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str | list[str] = "features",
        labelCol: str = "label",
        weightCol: str | None = None,
        predictionCol: str = "prediction",
        rawPredictionCol: str = "rawPrediction",
        lam: float | str = "scale",
        mu: float = 0.5,
        theta: float = 0.6,
        solver: str = "auto",
        lineSearch: str = "exact",
        nPartitions: int | None = None,
        partition: str = "stratified",
        nStrata: int = 32,
        fitIntercept: bool = True,
        tol: float = 1e-4,
        maxIter: int = 1000,
        timeLimit: float | None = None,
        memoryLimit: float | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(self._input_kwargs)


class SparkLinearSVMClassifier(SparkClassifier, LinearParams, SVMParams):
    """Linear support vector machine: `LinearSVMClassifier` where the rows are.

    Parameters
    ----------
    C : float, default=1.0
        Weight of every row's loss; Spark's ``LinearSVC(regParam=r)`` has C = 1 / (n r).
    loss : {"hinge", "squared_hinge"}, default="hinge"
        The loss of a margin.
    solver : str, default="auto"
        "newton", but "bqo" with the hinge where there are fewer than 50 rows to a feature; or
        one of those of `SparkLinearODMClassifier`.
    featuresCol, labelCol, weightCol, predictionCol, rawPredictionCol : optional
        As in `SparkLinearODMClassifier`, and so are all other Params.
    """

    _local = LinearSVMClassifier
    _model = SparkLinearSVMClassifierModel

    def _settings(self) -> Any:
        local = super()._settings()
        refuse_kinks(local.solver, local._loss(1.0))
        return local

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str | list[str] = "features",
        labelCol: str = "label",
        weightCol: str | None = None,
        predictionCol: str = "prediction",
        rawPredictionCol: str = "rawPrediction",
        loss: str = "hinge",
        C: float = 1.0,
        solver: str = "auto",
        lineSearch: str = "exact",
        nPartitions: int | None = None,
        partition: str = "stratified",
        nStrata: int = 32,
        fitIntercept: bool = True,
        tol: float = 1e-4,
        maxIter: int = 1000,
        timeLimit: float | None = None,
        memoryLimit: float | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(self._input_kwargs)


class SparkODMClassifier(SparkClassifier, KernelParams):
    """Optimal margin distribution machine with a kernel: `ODMClassifier` where the rows are.

    More than two classes are one machine each against the rest.

    Parameters
    ----------
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid"}, default="rbf"
        Which kernel; gamma, degree and coef0 as in `ODMClassifier`.
    solver : {"auto", "landmark", "sodm"}, default="auto"
        "landmark", which is also what "auto" is: landmarks are placed in a sample of the rows, all
        rows become features of kernel values where they are, and Newton's method sends one matrix
        of nLandmarks x nLandmarks for each part and step.  "sodm": machines on parts of the rows,
        merged level by level; the last one is trained on one executor, unless ``levels`` ends
        before, and its support rows come to the driver.
    nLandmarks : int or "auto", default="auto"
        How many; "auto" doubles their number until held-out rows of the sample gain no more.
    landmarks : {"margin", "greedy", "random", "kmeans"}, default="margin"
        Which rows of the sample become landmarks.
    nPartitions, fanIn, levels, merge, survivors : optional
        Of "sodm", as in `ODMClassifier`.
    featuresCol, labelCol, weightCol, predictionCol, rawPredictionCol : optional
        As in `SparkLinearODMClassifier`, and so are all other Params.
    """

    _local = ODMClassifier
    _model = SparkODMClassifierModel
    _allowed: ClassVar[dict[str, tuple[str, ...]]] = {
        "partition": _PARTITIONS,
        "kernel": _KERNELS,
        "solver": _ON_KERNELS,
        "landmarks": HOW,
    }

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str | list[str] = "features",
        labelCol: str = "label",
        weightCol: str | None = None,
        predictionCol: str = "prediction",
        rawPredictionCol: str = "rawPrediction",
        kernel: str = "rbf",
        lam: float | str = "scale",
        mu: float = 0.5,
        theta: float = 0.1,
        gamma: float | str = "scale",
        degree: float = 3.0,
        coef0: float = 0.0,
        solver: str = "auto",
        nLandmarks: int | str = "auto",
        landmarks: str = "margin",
        nPartitions: int | None = None,
        fanIn: int = 4,
        partition: str = "stratified",
        nStrata: int = 32,
        levels: int | None = None,
        merge: str = "auto",
        survivors: bool = False,
        fitIntercept: bool = False,
        tol: float = 1e-3,
        maxIter: int = 1000,
        timeLimit: float | None = None,
        memoryLimit: float | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(self._input_kwargs)

    def _learn(self, local: Any, shards: Any, stop: Stop) -> None:
        learn_kernel(local, shards, stop)
