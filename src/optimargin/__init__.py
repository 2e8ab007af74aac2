"""Optimal margin distribution machines: classifiers that shape the whole distribution of margins."""

from optimargin.estimators import LinearODMClassifier, ODMClassifier
from optimargin.margins import margin_statistics, margins

__version__ = "0.1.0"

__all__ = [
    "LinearODMClassifier",
    "ODMClassifier",
    "margin_statistics",
    "margins",
]
