"""Bounds lie above the error they speak of, over many draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import make_blobs
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from optimargin import LDMClassifier, LinearLDMClassifier, LinearODMClassifier, rademacher_bound
from optimargin.loss import hinge
from optimargin.margins import MeanProducts, ldm_loo_bound, loo_bound, margins
from optimargin.problem import Problem, Start, Stop, drive
from optimargin.solvers.ldm import LDM

SHARP: dict[str, Any] = {"tol": 1e-8, "max_iter": 20_000, "random_state": 0}


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """A few rows of two classes, and weights of an LDM over some powers of ten."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 18)), int(rng.integers(1, 4))
    y = rng.choice([-1.0, 1.0], n)
    y[:4] = 1.0, 1.0, -1.0, -1.0
    X = np.c_[rng.normal(size=(n, d)) + rng.uniform(0, 1.5) * y[:, None], np.ones(n)]
    lam1, lam2 = 10 ** rng.uniform(-2, 1.5, 2)
    return X, y, {"lam1": lam1, "lam2": lam2, "C": 10 ** rng.uniform(-1, 3)}


def leave_one_out_error(model: Any, X: np.ndarray, y: np.ndarray, weights: dict) -> float:
    """Of the machines without a row, in which the terms of the others stay."""
    share = (len(y) - 1) / len(y)
    model = model.set_params(**{name: share * value for name, value in weights.items()})
    return float(np.mean(cross_val_predict(model, X, y, cv=LeaveOneOut()) != y))


@pytest.mark.parametrize("seed", range(24))
def test_the_count_of_an_ldm_is_above_its_leave_one_out_error(seed: int) -> None:
    X, y, weights = draw(seed)
    kind = {"kernel": ["rbf", "linear"][seed % 2], "gamma": 0.5}
    model = LDMClassifier(**kind, **weights, **SHARP).fit(X, y)
    bound = model.loo_count_
    assert leave_one_out_error(model, X, y, weights) <= bound <= 1


@pytest.mark.parametrize("seed", range(8))
def test_the_count_holds_on_rows_that_are_not_whitened(seed: int) -> None:
    X, y, weights = draw(seed)
    loss = hinge(weights["C"] / len(y))
    problem = Problem(X, y, None, loss, lam1=weights["lam1"], lam2=weights["lam2"])
    found = drive(LDM().points(problem, Start()), Stop(1e-10, 10_000))
    lean = (y[:, None] * X) @ (y @ X) / len(y)
    products = MeanProducts(problem.sqnorms, lean, float(lean.mean()))
    moments = {"lam1": weights["lam1"], "lam2": weights["lam2"]}
    loose = ldm_loo_bound(found.dual, found.margin, products, whitened=False, **moments)
    model = LinearLDMClassifier(fit_intercept=False, **weights, **SHARP).fit(X, y)
    assert model.loo_count_ <= loose <= 1


def pulled_dual(H: np.ndarray, pull: float, C: np.ndarray) -> np.ndarray:
    """The a of min a'Ha / 2 + (pull H e - e)'a over 0 <= a <= C, as the paper has it."""
    q = pull * H.sum(axis=1) - 1
    return minimize(
        lambda a: (a @ H @ a / 2 + q @ a, H @ a + q),
        np.zeros(len(H)),
        jac=True,
        bounds=[(0.0, most) for most in C],
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    ).x


@pytest.mark.parametrize("seed", range(24))
def test_theorem_2_is_above_the_error_of_leaving_out_hinges(seed: int) -> None:
    X, y, weights = draw(seed)
    n = len(y)
    G, A = X @ X.T, 2 * weights["lam1"] * (n * np.eye(n) - np.outer(y, y)) / n**2
    H = y[:, None] * (G @ np.linalg.inv(np.eye(n) + A @ G)) * y
    H, pull, C = (H + H.T) / 2, weights["lam2"] / n, np.full(n, weights["C"] / n)
    # a row whose variable must be 0 has no hinge, but its pull stays
    left = [H[i] @ (pulled_dual(H, pull, C * (np.arange(n) != i)) + pull) for i in range(n)]
    bounds = [
        loo_bound(hinge(C[0]), pulled_dual(H, pull, C), np.diag(H), rule=rule)
        for rule in ("paper", "count")
    ]
    assert np.mean(np.array(left) < -1e-9) <= min(bounds) + 1e-6
    fitted = LinearLDMClassifier(fit_intercept=False, **weights, **SHARP).fit(X, y)
    assert fitted.loo_bound_ == pytest.approx(bounds[0], abs=1e-3)


def test_theorem_2_may_fall_short_where_the_count_does_not() -> None:
    # The first row outweighs two others in the mean, and its hinge is at rest.  Without the
    # row the mean turns round; without its hinge alone, which is the theorem, nothing happens.
    X, y = np.array([[3.0], [-1.0], [1.0], [-0.1]]), np.array([1, 1, -1, -1])
    weights = {"lam1": 1e-3, "lam2": 60.0, "C": 0.1}
    model = LinearLDMClassifier(fit_intercept=False, **weights, **SHARP).fit(X, y)
    theorem, count = model.loo_bound_, model.loo_count_
    error = leave_one_out_error(model, X, y, weights)
    assert theorem < error <= count


@pytest.mark.parametrize("seed", range(8))
def test_weights_equal_repetitions_in_the_count(seed: int) -> None:
    X, y, weights = draw(seed)
    copies = np.random.default_rng(seed).integers(1, 4, len(y))
    problem = Problem(
        X, y, copies.astype(float), hinge(0.1), lam1=weights["lam1"], lam2=weights["lam2"]
    )
    found = drive(LDM().points(problem, Start()), Stop(1e-10, 10_000))
    assert found.dual is not None
    G = problem.whitened.X @ problem.whitened.X.T
    lean = y * (G @ (problem.shares * y))
    products = MeanProducts(np.diag(G), lean, float(problem.shares @ lean))
    moments = {"lam1": weights["lam1"], "lam2": weights["lam2"]}
    weighted = ldm_loo_bound(found.dual, found.margin, products, copies, **moments)
    repeated = ldm_loo_bound(
        (found.dual / copies).repeat(copies),
        found.margin.repeat(copies),
        MeanProducts(np.diag(G).repeat(copies), lean.repeat(copies), products.square),
        **moments,
    )
    assert weighted == pytest.approx(repeated)


@pytest.mark.parametrize("seed", range(12))
def test_the_rademacher_bound_is_above_the_error_on_new_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, theta = 60_000, rng.uniform(0, 0.9)
    X = rng.uniform(-1, 1, (n, 2)) / np.sqrt(2)
    X[:, 0] = np.sign(X[:, 0]) * np.maximum(np.abs(X[:, 0]), 0.5)
    y = np.sign(X[:, 0]) * np.where(rng.uniform(size=n) < rng.uniform(0, 0.2), -1, 1)
    half = n // 2
    model = LinearODMClassifier(lam=1.0, theta=theta, mu=0.5, fit_intercept=False)
    model.fit(X[:half], y[:half])
    u = margins(model, X[:half], y[:half])
    # known beforehand: |w|^2 / 2 <= lam; w stands for the pair w/2, -w/2
    bound = rademacher_bound(u, 1.0, np.sqrt(model.lam_), theta=theta)
    assert np.mean(model.predict(X[half:]) != y[half:]) <= bound
    tighter = rademacher_bound(u, 1.0, np.linalg.norm(model.coef_) / np.sqrt(2), theta=theta)
    assert np.mean(model.predict(X[half:]) != y[half:]) <= tighter < 1


def test_the_rademacher_bound_holds_for_more_classes_and_is_the_formula() -> None:
    X, y = make_blobs(3000, 2, centers=4, cluster_std=2.0, random_state=0)
    radius = float(np.linalg.norm(X, axis=1).max())
    model = LinearODMClassifier(lam=10.0, fit_intercept=False).fit(X[:1500], y[:1500])
    u = margins(model, X[:1500], y[:1500])
    bound = rademacher_bound(u, radius, np.sqrt(20.0), theta=0.6, n_classes=4, delta=0.1)
    assert np.mean(model.predict(X[1500:]) != y[1500:]) <= bound
    losses = [1.0 if v <= 0 else (v - 0.4) ** 2 / 0.16 if v <= 0.4 else 0.0 for v in u]
    capacity = 16 * radius * np.sqrt(20.0) / 0.4 * np.sqrt(8 * np.pi / 1500)
    assert bound == pytest.approx(np.mean(losses) + capacity + 3 * np.sqrt(np.log(20) / 3000))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"theta": 1.0}, "theta"),
        ({"delta": 0.0}, "delta"),
        ({"norm": -1.0}, "norm"),
        ({"n_classes": 1}, "n_classes"),
        ({"margins": []}, "margins"),
    ],
)
def test_numbers_without_a_bound_are_named(change: dict[str, Any], said: str) -> None:
    given = {"margins": [1.0], "radius": 1.0, "norm": 1.0, "theta": 0.5, **change}
    with pytest.raises(ValueError, match=said):
        rademacher_bound(**given)
