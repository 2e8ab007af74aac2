"""Estimators of pyspark.ml: machines on rows that stay on a cluster.

    from optimargin.spark import SparkLinearODMClassifier

    model = SparkLinearODMClassifier(lam=1e4).fit(frame)      # columns features and label
    model.transform(frame).select("prediction", "rawPrediction")
    model.summary, model.toLocal()

They need Spark 4.1 or newer and Java 17 or newer: ``pip install 'optimargin[spark]'``.
"""

try:
    import pyarrow  # noqa: F401
    from pyspark.sql.functions import arrow_udf  # noqa: F401  # there since Spark 4.1
except ImportError as error:
    raise ImportError(
        f"optimargin.spark needs pyspark 4.1 or newer, pyarrow and Java 17 or newer ({error});"
        " pip install 'optimargin[spark]'."
    ) from None

from optimargin.spark.estimators import (
    SparkLinearODMClassifier,
    SparkLinearSVMClassifier,
    SparkODMClassifier,
)
from optimargin.spark.models import (
    SparkLinearODMClassifierModel,
    SparkLinearSVMClassifierModel,
    SparkODMClassifierModel,
    Summary,
)

__all__ = [
    "SparkLinearODMClassifier",
    "SparkLinearODMClassifierModel",
    "SparkLinearSVMClassifier",
    "SparkLinearSVMClassifierModel",
    "SparkODMClassifier",
    "SparkODMClassifierModel",
    "Summary",
]

for _name in __all__:  # saved stages are found under this name, wherever their file moves
    globals()[_name].__module__ = __name__
