"""Class labels and sample weights, of NumPy or of arrays on a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from optimargin.arrays import brought, is_foreign, namespace, on_host, taken


class Labels(NamedTuple):
    """The classes, in order, and the number of each row's class, an array beside the rows."""

    classes: np.ndarray
    code: Any


def labels_of(y: Any, beside: Any) -> Labels:
    """Classes and their numbers; for rows on a device these are found there."""
    if not is_foreign(beside):
        classes = np.unique(y)
        return Labels(classes, np.searchsorted(classes, y))
    if not is_foreign(y) and np.asarray(y).dtype.kind not in "biuf":  # text has no place there
        classes, code = np.unique(y, return_inverse=True)
        return Labels(classes, brought(code, beside))
    y = brought(y, beside)
    found = namespace(y).unique_inverse(y)
    return Labels(on_host(found.values), found.inverse_indices)


def checked_labels(y: Any, X: Any) -> Any:
    """The labels of rows on a device: a vector, as long as there are rows."""
    if not is_foreign(y):
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
    elif y.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {tuple(y.shape)} instead.")
    elif "float" in str(y.dtype) and not bool(namespace(y).all(y == namespace(y).round(y))):
        check_classification_targets(on_host(y))
    if y.shape[0] != X.shape[0]:
        check_consistent_length(X, y)
    return y


def has_rows(labels: Labels, weight: Any) -> np.ndarray:
    """Whether each class has a row of positive weight."""
    if not is_foreign(labels.code):
        return np.bincount(labels.code, weight, minlength=len(labels.classes)) > 0
    if weight is None:
        return np.ones(len(labels.classes), dtype=bool)
    found = on_host(namespace(weight).unique_values(labels.code[weight > 0.0]))
    return np.isin(np.arange(len(labels.classes)), found)


def class_factors(class_weight: Any, labels: Labels, y: Any, weight: Any) -> Any:
    """The factor on the loss of each row that its class gives it."""
    if is_foreign(labels.code):
        y = labels.classes[on_host(labels.code)]
    factors = compute_class_weight(
        class_weight,
        classes=labels.classes,
        y=y,
        sample_weight=None if weight is None else on_host(weight),
    )
    return taken(brought(factors, labels.code), labels.code)


def weight_of(sample_weight: Any, X: Any) -> Any:
    """The weights of the rows, or None where there is nothing to weigh."""
    if sample_weight is None:
        return None
    if is_foreign(sample_weight):
        sample_weight = on_host(sample_weight)
    if not np.asarray(sample_weight).any():
        raise ValueError("sample_weight must have at least one positive entry; all are zero.")
    rows = np.empty((X.shape[0], 0)) if is_foreign(X) else X
    found = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    return brought(found, X) if is_foreign(X) else found
