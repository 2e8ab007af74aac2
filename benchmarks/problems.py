"""The problems of the speed benchmarks: which rows, which labels, which scaling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.data import read, shuffled, to_unit_interval

Rows = tuple[Any, np.ndarray]


class LinearProblem(NamedTuple):
    """Rows and labels -1, +1 by name, and the speed-up over LinearSVC that is asked for."""

    name: str
    load: Callable[[Path | None], Rows]
    target: float
    is_generated: bool = False


class KernelProblem(NamedTuple):
    """Training and test rows, features in [0, 1] or near it."""

    name: str
    load: Callable[[Path | None, int], tuple[Rows, Rows]]
    is_generated: bool = False


def signs(positive: np.ndarray) -> np.ndarray:
    """+1 where true, -1 elsewhere."""
    return np.where(positive, 1.0, -1.0)


def tall(n: int, d: int = 18, seed: int = 0) -> Rows:
    """N rows of d correlated features, two overlapping classes (the shape of SUSY)."""
    rng = np.random.default_rng(seed)
    mix = np.eye(d) + 0.3 * rng.standard_normal((d, d)) / np.sqrt(d)
    X = rng.standard_normal((n, d)) @ mix
    f = X @ rng.standard_normal(d) / np.sqrt(d) + 0.4 * (X[:, 0] ** 2 - 1.0) + 0.2
    return X, signs(f + 0.7 * rng.standard_normal(n) > 0)


def curved(n: int, d: int = 10, seed: int = 0) -> Rows:
    """N rows in [0, 1]^d; the label depends on products and waves, with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    Z = 2.0 * X - 1.0
    f = np.sin(3.0 * Z[:, 0]) + 2.0 * Z[:, 1] * Z[:, 2] + Z[:, 3] ** 2 - 0.4 + 0.5 * Z[:, 4]
    return X, signs(f + 0.3 * rng.standard_normal(n) > 0)


def _covtype(directory: Path | None) -> Rows:
    X, y = read("covtype", directory)
    return shuffled(sp.csr_matrix(to_unit_interval(X.toarray())), signs(y == 1))


def _news20(directory: Path | None) -> Rows:
    X, y = read("news20", directory)
    return shuffled(X, signs(y < 10))


def _w8a(directory: Path | None) -> Rows:
    X, y = read("w8a", directory)
    return shuffled(X, signs(y == 1))


def _news20_unit(directory: Path | None) -> Rows:
    X, y = _news20(directory)
    return normalize(X), y


def _covtype_dense(directory: Path | None) -> Rows:
    X, y = _covtype(directory)
    return X.toarray(), y


def linear(quick: bool) -> list[LinearProblem]:
    """The linear problems: dense ones are to be 3 times as fast as LinearSVC, sparse ones 2."""
    rows = 5_000 if quick else 500_000
    return [
        LinearProblem(f"dense {rows:,} x 18", lambda _: tall(rows), 3.0, is_generated=True),
        LinearProblem("covtype", _covtype_dense, 3.0),
        LinearProblem("news20, raw counts", _news20, 2.0),
        LinearProblem("news20, unit rows", _news20_unit, 2.0),
        LinearProblem("w8a", _w8a, 2.0),
    ]


def _split(X: Any, y: np.ndarray, n: int) -> tuple[Rows, Rows]:
    return (X[:n], y[:n]), (X[n : 2 * n], y[n : 2 * n])


def _binary(name: str, directory: Path | None, n: int) -> tuple[Rows, Rows]:
    X, y = shuffled(*read(name, directory))
    n = min(n, 8 * len(y) // 11)
    return _split(to_unit_interval(X[: 2 * n].toarray()), signs(y == 1)[: 2 * n], n)


def kernel() -> list[KernelProblem]:
    """The RBF problems."""
    return [
        KernelProblem("generated", lambda _, n: _split(*curved(2 * n), n), is_generated=True),
        KernelProblem("phishing", lambda directory, n: _binary("phishing", directory, n)),
        KernelProblem("ijcnn1", lambda directory, n: _binary("ijcnn1", directory, n)),
        KernelProblem("a7a", lambda directory, n: _binary("a7a", directory, n)),
    ]
