"""The scikit-learn classes."""

from optimargin.estimators.kernel import ODMClassifier
from optimargin.estimators.ldm import LDMClassifier, LinearLDMClassifier
from optimargin.estimators.linear import LinearODMClassifier

__all__ = ["LDMClassifier", "LinearLDMClassifier", "LinearODMClassifier", "ODMClassifier"]
