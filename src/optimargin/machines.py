"""What the program does with machines and data files, without the talking."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin import datasets
from optimargin.datasets import DataFileError
from optimargin.estimators import LinearODMClassifier, ODMClassifier, saved
from optimargin.margins import (
    MarginStatistics,
    final_estimator,
    margin_statistics,
    margins_from_scores,
)
from optimargin.memory import limit_in_bytes

_UNEVEN = 100.0  # ratio of ranges beyond which one feature drowns the others


class Machine(NamedTuple):
    """A model from a file, with what the file says of the columns it was trained on."""

    estimator: Any
    columns: dict[str, Any]

    @property
    def classes(self) -> np.ndarray:
        """Labels, in the order of the scores."""
        return np.asarray(self.estimator.classes_)

    @property
    def features(self) -> list[str] | None:
        """Names of the features, if they are known."""
        known = getattr(self.estimator, "feature_names_in_", None)
        return self.columns.get("features") if known is None else [str(name) for name in known]


class Rows(NamedTuple):
    """Training rows, with the names of their columns."""

    X: Any
    y: np.ndarray
    features: list[str] | None
    label: str | None


def blank(linear: bool, params: dict[str, Any]) -> Any:
    """A classifier that is not fitted yet, its parameters known to be sound."""
    kind = LinearODMClassifier if linear else ODMClassifier
    classifier = kind(**{name: value for name, value in params.items() if value is not None})
    classifier._validate_params()
    limit_in_bytes(classifier.memory_limit)
    return classifier


def read_training_rows(path: Path, reading: dict[str, Any]) -> Rows:
    """Rows with labels, and the name of the label's column."""
    X, y, features = datasets.read(path, **reading)
    assert y is not None  # training always asks for labels
    names = None
    if features is not None:
        names = datasets.column_names(path, format=reading["format"], header=reading["header"])
    rest = [name for name in names or [] if name not in (features or [])]
    return Rows(X, y, features, rest[0] if rest else None)


def fit(classifier: Any, rows: Rows, scale: str, live: bool, note: Callable[[str], None]) -> Any:
    """Train the classifier, behind a scaler if one is wanted."""
    sparse = sp.issparse(rows.X)
    if scale == "auto":
        # Sparse rows are mostly text or flags, which scaling would not help.
        scale = "none" if sparse else "standard"
    if scale == "none":
        _advise_scaling(rows.X, note)
    classifier.set_params(verbose=int(live))
    model = saved.scaled(classifier, scale, sparse)
    model.fit(rows.X, rows.y)
    classifier.set_params(verbose=0)  # a wish of this run, no part of the model
    return model


def _advise_scaling(X: Any, note: Callable[[str], None]) -> None:
    high, low = X.max(axis=0), X.min(axis=0)
    if sp.issparse(X):
        high, low = high.toarray(), low.toarray()
    reach = np.maximum(np.abs(high), np.abs(low))
    used = reach[reach > 0]
    if used.size and used.max() > _UNEVEN * used.min():
        ratio = used.max() / used.min()
        note(
            f"Note: the largest feature is {ratio:.0f} times the smallest;"
            " --scale standard or --scale minmax may help."
        )


def save(model: Any, path: Path, rows: Rows) -> None:
    """Write the model, with the names of its columns if it has any."""
    columns = None if rows.features is None else {"features": rows.features, "label": rows.label}
    saved.save(model, path, columns=columns)


def open_machine(path: Path) -> Machine:
    """A model from a file."""
    header, arrays = saved.contents(path)
    return Machine(saved.restore(path, header, arrays), header.get("columns") or {})


def read_rows(
    machine: Machine, path: Path, reading: dict[str, Any]
) -> tuple[Any, np.ndarray | None]:
    """Rows as the machine takes them, and their labels if a label is asked for."""
    X, y, _ = datasets.read(
        path, columns=machine.features, n_features=machine.estimator.n_features_in_, **reading
    )
    first = machine.estimator[0] if hasattr(machine.estimator, "steps") else None
    centred = getattr(first, "with_mean", False) or hasattr(first, "data_min_")
    if sp.issparse(X) and centred:
        X = X.toarray()  # as the training rows were
    return X, y


def read_labelled_rows(
    machine: Machine, path: Path, reading: dict[str, Any]
) -> tuple[Any, np.ndarray]:
    """Rows and labels; the labels are those of the machine, or this raises."""
    if reading["label"] is None:
        reading = {**reading, "label": _label_column(machine, path, reading)}
    X, y = read_rows(machine, path, reading)
    assert y is not None  # a label was asked for
    if machine.classes.dtype.kind in "OU" and y.dtype.kind not in "OU":
        y = y.astype(str).astype(object)  # this file happens to have labels that look like numbers
    unknown = set(y.tolist()) - set(machine.classes.tolist())
    if unknown:
        known = ", ".join(map(str, machine.classes[:12]))
        raise DataFileError(
            f"{path}: the label {min(unknown, key=str)!r} is not a class of the model ({known})."
        )
    return X, y


def _label_column(machine: Machine, path: Path, reading: dict[str, Any]) -> str:
    """The column called as in training, or the only one that is no feature, or the last."""
    names = datasets.column_names(path, format=reading["format"], header=reading["header"])
    label = machine.columns.get("label")
    if names is None:
        return "last"
    if isinstance(label, str) and label in names:
        return label
    rest = [name for name in names if name not in (machine.features or [])]
    return rest[0] if len(rest) == 1 else "last"


def decide(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels by decision values, as ``predict`` gives them."""
    best = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
    return classes[best]


def evaluate(machine: Machine, X: Any, y: np.ndarray) -> dict[str, Any]:
    """Accuracy, figures of each class, confusion counts, and the margins in two numbers."""
    classes, k = machine.classes, len(machine.classes)
    scores = machine.estimator.decision_function(X)
    predicted = decide(scores, classes)
    cells = np.searchsorted(classes, y) * k + np.searchsorted(classes, predicted)
    confusion = np.bincount(cells, minlength=k * k).reshape(k, k)  # true by predicted
    right, rows, called = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    figures = {
        "precision": right / np.maximum(called, 1),
        "recall": right / np.maximum(rows, 1),
        "f1": 2 * right / np.maximum(rows + called, 1),
        "rows": rows,
    }
    statistics = margin_statistics(margins_from_scores(scores, y, classes))
    return {
        "rows": len(y),
        "accuracy": float(np.mean(predicted == y)),
        "margin": {"mean": statistics.mean, "variance": statistics.variance},
        "classes": {
            str(label): {name: figure[i].item() for name, figure in figures.items()}
            for i, label in enumerate(classes.tolist())
        },
        "confusion": confusion.tolist(),
    }


def margin_facts(machine: Machine, scores: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The margin distribution in a few numbers."""
    statistics: MarginStatistics = margin_statistics(
        margins_from_scores(scores, y, machine.classes)
    )
    return {"rows": len(y), **statistics._asdict()}


def draw_margins(
    machine: Machine, scores: np.ndarray, y: np.ndarray, path: Path, kind: str, name: str
) -> None:
    """Draw the margin distribution into a file, whose suffix decides its format."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # no window
    from optimargin.io import replacing
    from optimargin.plots import MarginDistributionDisplay

    display = MarginDistributionDisplay.from_predictions(
        y, scores, classes=machine.classes, kind=kind, name=name
    )
    with replacing(path) as temporary:
        figure: Any = display.figure_
        figure.savefig(temporary, format=path.suffix[1:] or "png")


def describe(model: Any) -> dict[str, Any]:
    """Parameters and results of a fitted model, by name."""
    final = final_estimator(model)
    params = final.get_params(deep=False)
    facts: dict[str, Any] = {
        "machine": type(final).__name__,
        "scaler": type(model[0]).__name__ if model is not final else None,
        "parameters": {name: params[name] for name in _TOLD if name in params},
        "classes": np.asarray(model.classes_).tolist(),
        "features": int(model.n_features_in_),
    }
    if "kernel" in params:
        facts["gamma_used"] = final.gamma_
        facts["support_vectors"] = len(final.support_)
    for attribute, name in _RESULTS.items():
        value = getattr(final, attribute, None)
        # mcODM has no leave-one-out bound, and JSON no word for what is not a number
        if value is not None and not (isinstance(value, float) and np.isnan(value)):
            facts[name] = value.tolist() if isinstance(value, np.ndarray) else value
    return facts


_RESULTS = {
    "solver_": "solver",
    "status_": "status",
    "n_iter_": "rounds_of_solver",
    "objective_": "objective",
    "dual_gap_": "dual_gap",
    "loo_bound_": "loo_bound",
}


_TOLD = (
    "kernel",
    "loss",
    "C",
    "lam",
    "mu",
    "theta",
    "gamma",
    "degree",
    "coef0",
    "multi_class",
    "fit_intercept",
    "class_weight",
    "tol",
    "max_iter",
)
