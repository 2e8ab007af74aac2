"""Margins, their statistics and the leave-one-out bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from optimargin import ODMClassifier
from optimargin.loss import (
    Loss,
    curvature,
    dual_of,
    hinge,
    odm,
    scaled,
    slope,
    value,
)
from optimargin.margins import (
    cumulative,
    loo_bound,
    margin_statistics,
    margins,
    margins_from_scores,
)

margin_vectors = st.integers(1, 30).flatmap(
    lambda n: arrays(np.float64, n, elements=st.floats(-100, 100, width=32))
)
counted_margins = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        arrays(np.float64, n, elements=st.floats(-100, 100, width=32)),
        arrays(np.int64, n, elements=st.integers(0, 4)).filter(np.any),
    )
)


def blobs(classes: int) -> tuple[np.ndarray, np.ndarray]:
    X, place = make_blobs(90, 3, centers=classes, cluster_std=4.0, random_state=classes)
    return X, np.array(["ash", "beech", "cedar", "date"])[place]


MODELS = {
    "svc": SVC(),
    "linear": LinearSVC(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "search": GridSearchCV(make_pipeline(StandardScaler(), LinearSVC()), {"linearsvc__C": [1.0]}),
}


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("model", MODELS)
def test_the_share_of_negative_margins_is_the_error(model: str, classes: int) -> None:
    X, y = blobs(classes)
    fitted = MODELS[model].fit(X, y)
    error = margin_statistics(margins(fitted, X, y)).error
    assert error > 0
    assert error == pytest.approx(1 - fitted.score(X, y))


@pytest.mark.parametrize("classes", [2, 3])
def test_permuted_rows_have_permuted_margins(classes: int) -> None:
    X, y = blobs(classes)
    model = LogisticRegression().fit(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(margins(model, X[order], y[order]), margins(model, X, y)[order])


@given(st.data(), st.integers(2, 5), st.integers(1, 12))
def test_margins_of_many_classes_by_their_definition(data, k: int, n: int) -> None:
    scores = data.draw(arrays(np.float64, (n, k), elements=st.floats(-9, 9)))
    y = data.draw(arrays(np.int64, n, elements=st.integers(0, k - 1)))
    expected = [s[c] - max(np.delete(s, c)) for s, c in zip(scores, y, strict=True)]
    np.testing.assert_array_equal(margins_from_scores(scores, y, np.arange(k)), expected)


@given(margin_vectors, st.data())
def test_two_columns_of_opposite_scores_are_one_column(f: np.ndarray, data) -> None:
    y = data.draw(arrays(np.int64, len(f), elements=st.integers(0, 1)))
    one = margins_from_scores(f, y, [0, 1])
    two = margins_from_scores(np.c_[-f / 2, f / 2], y, [0, 1])
    np.testing.assert_allclose(one, two)
    np.testing.assert_array_equal(margins_from_scores(-f, y, [1, 0]), one)


@pytest.mark.parametrize("scale", ["mean", "norm"])
def test_scaled_margins_forget_the_scale_of_the_model(scale: str) -> None:
    X, y = blobs(2)
    model = make_pipeline(StandardScaler(), LinearSVC()).fit(X, y)
    before = margins(model, X, y, scale=scale)
    model[-1].coef_ *= 7.0
    model[-1].intercept_ *= 7.0
    np.testing.assert_allclose(margins(model, X, y, scale=scale), before)
    assert not np.allclose(margins(model, X, y), before)


def test_the_norm_gives_distances_to_the_boundary() -> None:
    X, y = blobs(2)
    model = LinearSVC().fit(X, y)
    w = model.coef_[0]
    foot = X - np.outer(model.decision_function(X) / (w @ w), w)
    np.testing.assert_allclose(model.decision_function(foot), 0, atol=1e-9)
    distance = np.linalg.norm(X - foot, axis=1)
    np.testing.assert_allclose(np.abs(margins(model, X, y, scale="norm")), distance)


def test_the_mean_scale_follows_the_weights() -> None:
    X, y = blobs(3)
    weight = np.arange(len(y)) % 4
    u = margins(LogisticRegression().fit(X, y), X, y, scale="mean", sample_weight=weight)
    assert margin_statistics(u, weight).mean == pytest.approx(1)


@pytest.mark.parametrize(
    ("scores", "y", "classes", "argument"),
    [
        ([1.0, -1.0], [0, 7], [0, 1], "y"),
        ([1.0, -1.0], ["0", "1"], [0, 1], "y"),
        ([1.0, -1.0], [[0], [1]], [0, 1], "y"),
        ([1.0, -1.0, 2.0], [0, 1], [0, 1], "scores"),
        ([1.0, -1.0], [0, 1], [0, 1, 2], "scores"),
        (np.zeros((2, 6)), [0, 1], [0, 1, 2, 3], "scores"),
        ([1.0, np.nan], [0, 1], [0, 1], "scores"),
    ],
)
def test_impossible_arguments_are_named(scores, y, classes, argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^{argument} "):
        margins_from_scores(scores, y, classes)


def test_scores_of_pairs_of_three_classes_are_refused() -> None:
    X, y = blobs(3)
    model = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")).fit(X, y)
    assert model.decision_function(X).shape == (len(X), 3)
    with pytest.raises(ValueError, match="decision_function_shape"):
        margins(model, X, y)


@pytest.mark.parametrize("scale", ["norm", "none"])
def test_what_has_no_norm_or_no_scores_is_refused(scale: str) -> None:
    X, y = blobs(2)
    model = SVC().fit(X, y) if scale == "norm" else StandardScaler().fit(X)
    with pytest.raises(ValueError if scale == "norm" else TypeError):
        margins(model, X, y, scale=scale)


@given(counted_margins)
def test_weights_equal_repetitions_in_the_statistics(drawn) -> None:
    u, count = drawn
    weighted, repeated = margin_statistics(u, count), margin_statistics(np.repeat(u, count))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12, atol=1e-9)


@given(margin_vectors)
def test_the_statistics_are_those_of_numpy(u: np.ndarray) -> None:
    found = margin_statistics(u)
    np.testing.assert_allclose(found.mean, np.mean(u), atol=1e-9)
    np.testing.assert_allclose(found.variance, np.var(u), atol=1e-9)
    assert list(found[2:7]) == list(np.quantile(u, np.arange(5) / 4, method="inverted_cdf"))
    assert found.error == pytest.approx(np.mean(u < 0))


@given(counted_margins)
def test_the_cumulative_shares_rise_to_one_and_count_the_rows(drawn) -> None:
    u, count = drawn
    steps, shares = cumulative(u, count)
    assert (np.diff(steps) > 0).all()
    assert (np.diff(np.r_[0.0, shares]) > 0).all()
    assert shares[-1] == 1.0
    expected = [count[u <= step].sum() / count.sum() for step in steps]
    np.testing.assert_allclose(shares, expected)


@pytest.mark.parametrize("weight", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.inf]])
def test_impossible_weights_are_refused(weight: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^sample_weight "):
        margin_statistics([1.0, 2.0], weight)


# The leave-one-out bound.  The oracle refits without each row, by Newton on the primal.


class Case(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    loss: Loss


def minimise(case: Case, weight: np.ndarray) -> np.ndarray:
    """The w of |w|^2 / 2 + sum_i weight_i loss(y_i x_i.w), for a loss that is smooth."""
    Z, w = case.y[:, None] * case.X, np.zeros(case.X.shape[1])

    def objective(w: np.ndarray) -> float:
        return w @ w / 2 + weight @ value(case.loss, Z @ w)

    for _ in range(100):
        gradient = w + Z.T @ (weight * slope(case.loss, Z @ w))
        if np.abs(gradient).max() < 1e-11:
            break
        hessian = np.eye(len(w)) + (Z.T * (weight * curvature(case.loss, Z @ w))) @ Z
        step = np.linalg.solve(hessian, -gradient)
        size = 1.0
        while size > 1e-9 and objective(w + size * step) > objective(w):
            size /= 2
        w = w + size * step
    assert np.abs(gradient).max() < 1e-7
    return w


def draw(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 25)), int(rng.integers(1, 5))
    y = rng.choice([-1.0, 1.0], n)
    X = np.c_[rng.normal(size=(n, d)) + rng.uniform(0, 1.5) * y[:, None], np.ones(n)]
    loss = odm(10 ** rng.uniform(-1, 3), rng.choice([0.0, 0.1, 1.0]), rng.uniform(0, 0.9), n)
    return Case(X, y, loss)


def left_out_margins(case: Case, weight: np.ndarray, off: np.ndarray) -> np.ndarray:
    """The margin of each row at the machine that lacks ``off`` of that row's weight."""
    models = np.array([minimise(case, s) for s in weight - np.diag(off)])
    return case.y * (case.X * models).sum(axis=1)


def fitted(case: Case, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dual variables and squared norms."""
    u = case.y * (case.X @ minimise(case, weight))
    return dual_of(scaled(case.loss, weight), u), (case.X**2).sum(axis=1)


@pytest.mark.parametrize("seed", range(25))
def test_the_bound_is_above_the_leave_one_out_error(seed: int) -> None:
    case = draw(seed)
    weight = np.ones(len(case.y))
    left = left_out_margins(case, weight, weight)
    assert np.mean(left < 0) <= loo_bound(case.loss, *fitted(case, weight)) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_weights_equal_repetitions_in_the_bound(seed: int) -> None:
    case = draw(seed)
    count = np.random.default_rng(seed).integers(0, 4, len(case.y))
    weight = count.astype(float)
    repeated = Case(case.X.repeat(count, 0), case.y.repeat(count), case.loss)
    dual, diag = fitted(case, weight)
    for rule in ("count", "paper"):
        whole = loo_bound(case.loss, *fitted(repeated, np.ones(count.sum())), rule=rule)
        assert loo_bound(case.loss, dual, diag, weight, rule=rule) == pytest.approx(whole)
    left = left_out_margins(case, weight, np.minimum(weight, 1.0))
    assert np.average(left < 0, weights=weight) <= loo_bound(case.loss, dual, diag, weight)


@pytest.mark.parametrize("seed", range(8))
def test_a_scaled_loss_bounds_the_error_of_leaving_out_whole_rows(seed: int) -> None:
    case = draw(seed)
    weight = np.random.default_rng(seed).uniform(0.2, 4, len(case.y))
    left = left_out_margins(case, weight, weight)
    assert np.mean(left < 0) <= loo_bound(scaled(case.loss, weight), *fitted(case, weight))


def test_the_bound_holds_where_that_of_the_paper_fails() -> None:
    # Thirty rows just above 1 + theta take theta each off the paper's sum; three pairs
    # of equal rows with opposite labels are wrong whenever one of a pair is left out.
    X = np.repeat([[1.0, 0.0], [0.3, 0.0], [0.0, 0.1]], [30, 4, 6], axis=0)
    y = np.r_[np.ones(34), [1.0, -1.0] * 3]
    case, weight = Case(X, y, odm(60.0, 0.5, 0.4, 40)), np.ones(40)
    error = np.mean(left_out_margins(case, weight, weight) < 0)
    dual, diag = fitted(case, weight)
    assert loo_bound(case.loss, dual, diag, rule="paper") < error
    assert error <= loo_bound(case.loss, dual, diag)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_a_fitted_machine_is_above_its_leave_one_out_error(seed: int) -> None:
    X, y, _ = draw(seed)
    n, settings = len(y), {"kernel": "rbf", "gamma": 0.5, "mu": 0.3, "theta": 0.3, "tol": 1e-8}
    lam = 20.0
    fitted = ODMClassifier(lam=lam, **settings).fit(X, y)
    refit = ODMClassifier(lam=lam * (n - 1) / n, **settings)  # the losses of the others stay
    guess = cross_val_predict(refit, X, y, cv=LeaveOneOut())
    assert np.mean(guess != y) <= fitted.loo_count_ <= 1
    assert np.mean(guess != y) <= fitted.loo_bound_


def hinge_dual(Q: np.ndarray, C: float) -> np.ndarray:
    """The a of min a'Qa / 2 - sum_i a_i over 0 <= a <= C."""
    n = len(Q)
    return minimize(
        lambda a: (a @ Q @ a / 2 - a.sum(), Q @ a - 1),
        np.zeros(n),
        jac=True,
        bounds=[(0.0, C)] * n,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    ).x


@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_the_hinge_is_above_the_leave_one_out_error(C: float, seed: int) -> None:
    X, y, _ = draw(seed)
    Z = y[:, None] * X
    Q, rows = Z @ Z.T, np.arange(len(y))
    left = [Q[i, rows != i] @ hinge_dual(Q[rows != i][:, rows != i], C) for i in rows]
    assert np.mean(np.array(left) < 0) <= loo_bound(hinge(C), hinge_dual(Q, C), np.diag(Q))
