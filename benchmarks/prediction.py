"""How fast a machine over landmarks predicts: against a product of matrices, and for one row.

The scores of n rows with d features under S landmarks take 2 n S d operations for inner products,
n S exponentials, and 2 n S operations for the sums.  The first are counted, and set against the
rate of a product of the same shape in the same precision.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.methods import Options
from benchmarks.report import Table
from benchmarks.timing import timed
from optimargin import ODMClassifier

SHAPES = ((60_000, 784, 2000), (200_000, 100, 1000), (200_000, 18, 500))
HALF, ONE_ROW = 0.5, 1e-3  # what is asked for: share of the rate, seconds beyond the arithmetic
_CALLS = 200


def table(options: Options) -> Table:
    """A line for each shape."""
    columns = ["rows", "features", "landmarks", "seconds", "product, s", "share of its rate"]
    columns += ["one row, ms", "its product, ms", "overhead below 1 ms"]
    shapes = ((500, 10, 20),) if options.quick else SHAPES
    rows = [[f"{n:,}", d, S, *_figures(n, d, S, options.repeats)] for n, d, S in shapes]
    note = (
        "Seconds of decision_function on float32 rows, RBF kernel, and of the product of the rows"
        " with as many landmarks. Half of its rate is asked for on large batches; with few features"
        " a kernel value's exponential takes longer than its inner product."
    )
    return Table("Prediction", columns, rows, note)


def _figures(n: int, d: int, S: int, repeats: int) -> list[object]:
    rng = np.random.default_rng(0)
    X = rng.random((n, d), dtype=np.float32)
    y = X[:, 0] > X[:, 1]
    few = min(n, max(5000, S))
    model = ODMClassifier(
        solver="landmark", landmarks="random", n_landmarks=S, gamma=1.0 / d, random_state=0, tol=0.1
    ).fit(X[:few], y[:few])
    Z = np.ascontiguousarray(model.support_vectors_)
    out = np.empty((n, S), dtype=np.float32)
    model.decision_function(X)
    np.matmul(X, Z.T, out=out)
    whole = min(timed(partial(model.decision_function, X))[0] for _ in range(repeats))
    product = min(timed(partial(np.matmul, X, Z.T, out=out))[0] for _ in range(repeats))
    one = _each(lambda: model.decision_function(X[:1]))
    little = _each(lambda: X[:1] @ Z.T)
    cells = [whole, product, product / whole]
    return [*cells, 1e3 * one, 1e3 * little, bool(one - little < ONE_ROW)]


def _each(call: object) -> float:
    """Seconds of a call, in the mean of many."""
    assert callable(call)
    call()
    return timed(lambda: [call() for _ in range(_CALLS)])[0] / _CALLS
