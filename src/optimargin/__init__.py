"""Optimal margin distribution machines: classifiers that shape the distribution of margins.

Names are imported at first use, so that ``import optimargin`` and the command line's help
cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimargin import margins as margins
    from optimargin.curves import TrainingCurveDisplay
    from optimargin.estimators import (
        LandmarkFeatures,
        LDMClassifier,
        LinearLDMClassifier,
        LinearODMClassifier,
        LinearODMClassifierCV,
        LinearSVMClassifier,
        LocalODMClassifier,
        ODMClassifier,
        ODMClassifierCV,
        SVMClassifier,
    )
    from optimargin.estimators.saved import load, save
    from optimargin.margins import (
        MarginStatistics,
        loo_bound,
        margin_statistics,
        rademacher_bound,
    )
    from optimargin.plots import MarginDistributionDisplay
    from optimargin.rowfiles import open_rows

__version__ = "0.1.0"

_HOME = {
    "LDMClassifier": "optimargin.estimators",
    "LandmarkFeatures": "optimargin.estimators",
    "LinearLDMClassifier": "optimargin.estimators",
    "LinearODMClassifier": "optimargin.estimators",
    "LinearODMClassifierCV": "optimargin.estimators",
    "LinearSVMClassifier": "optimargin.estimators",
    "LocalODMClassifier": "optimargin.estimators",
    "MarginDistributionDisplay": "optimargin.plots",
    "MarginStatistics": "optimargin.margins",
    "ODMClassifier": "optimargin.estimators",
    "ODMClassifierCV": "optimargin.estimators",
    "SVMClassifier": "optimargin.estimators",
    "TrainingCurveDisplay": "optimargin.curves",
    "load": "optimargin.estimators.saved",
    "loo_bound": "optimargin.margins",
    "margin_statistics": "optimargin.margins",
    "margins": "optimargin.margins",
    "open_rows": "optimargin.rowfiles",
    "rademacher_bound": "optimargin.margins",
    "save": "optimargin.estimators.saved",
}

__all__ = [
    "LDMClassifier",
    "LandmarkFeatures",
    "LinearLDMClassifier",
    "LinearODMClassifier",
    "LinearODMClassifierCV",
    "LinearSVMClassifier",
    "LocalODMClassifier",
    "MarginDistributionDisplay",
    "MarginStatistics",
    "ODMClassifier",
    "ODMClassifierCV",
    "SVMClassifier",
    "TrainingCurveDisplay",
    "load",
    "loo_bound",
    "margin_statistics",
    "margins",
    "open_rows",
    "rademacher_bound",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'optimargin' has no attribute {name!r}")
    module = import_module(_HOME[name])
    # The module ``margins`` is callable and stands for the function of that name.
    value = module if name == "margins" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
