"""The scikit-learn classes."""

from optimargin.estimators.features import LandmarkFeatures
from optimargin.estimators.kernel import ODMClassifier
from optimargin.estimators.kernel_cv import ODMClassifierCV
from optimargin.estimators.ldm import LDMClassifier, LinearLDMClassifier
from optimargin.estimators.linear import LinearODMClassifier
from optimargin.estimators.linear_cv import LinearODMClassifierCV
from optimargin.estimators.local import LocalODMClassifier
from optimargin.estimators.svm import LinearSVMClassifier, SVMClassifier

__all__ = [
    "LDMClassifier",
    "LandmarkFeatures",
    "LinearLDMClassifier",
    "LinearODMClassifier",
    "LinearODMClassifierCV",
    "LinearSVMClassifier",
    "LocalODMClassifier",
    "ODMClassifier",
    "ODMClassifierCV",
    "SVMClassifier",
]
