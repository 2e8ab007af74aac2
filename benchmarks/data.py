"""The data sets: public files found by name in a data directory, and generated ones."""

from __future__ import annotations

import io
import lzma
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import StandardScaler

_DENSE_UP_TO = 10**7  # values of a matrix that is handed out dense


class NoData(LookupError):
    """The data directory does not hold this set."""


class Entry(NamedTuple):
    """A line of the data directory's INDEX.md."""

    rows: int
    features: int
    classes: int


def index(directory: Path | None) -> dict[str, Entry]:
    """The sets of a data directory, by name."""
    if directory is None or not (directory / "INDEX.md").is_file():
        return {}
    line = re.compile(r"^\| *([^| ]+) *\| *(\d+) *\| *(\d+) *\| *(\d+) *\|")
    found = map(line.match, (directory / "INDEX.md").read_text(encoding="utf-8").splitlines())
    return {m[1]: Entry(int(m[2]), int(m[3]), int(m[4])) for m in found if m}


def read(name: str, directory: Path | None) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows and integer labels 0, 1, ... of a set, in the order of the file."""
    entry = index(directory).get(name)
    path = None if directory is None else directory / f"{name}.xz"
    if entry is None or path is None or not path.is_file():
        raise NoData(name)
    with lzma.open(path) as file:
        X, y = load_svmlight_file(io.BytesIO(file.read()), n_features=entry.features)
    # scikit-learn's LinearSVC refuses 64-bit indices
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, np.unique(y, return_inverse=True)[1]


def dense_if_small(X: sp.csr_matrix) -> Any:
    """A dense matrix, unless that would be large."""
    return X.toarray() if X.shape[0] * X.shape[1] <= _DENSE_UP_TO else X


def to_unit_interval(X: np.ndarray) -> np.ndarray:
    """Each feature scaled to [0, 1]; a constant one becomes 0."""
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - low) / np.where(high > low, high - low, 1.0)


def shuffled(X: Any, y: np.ndarray, seed: int = 0) -> tuple[Any, np.ndarray]:
    """The same rows in another order: several files are sorted by class."""
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


def standardised(train: Any, test: Any) -> tuple[Any, Any]:
    """Both parts with the mean (of dense data) and variance of the training part removed."""
    scaler = StandardScaler(with_mean=not sp.issparse(train)).fit(train)
    return scaler.transform(train), scaler.transform(test)
