"""The scikit-learn classes."""

from optimargin.estimators.kernel import ODMClassifier
from optimargin.estimators.linear import LinearODMClassifier

__all__ = ["LinearODMClassifier", "ODMClassifier"]
