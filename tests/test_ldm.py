"""The LDM (ODM^L): whitened rows, pulled duals, stochastic gradients, and its classifiers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import optimargin
from optimargin import LDMClassifier, LinearLDMClassifier
from oracle import features_of, ldm_minimise, ldm_primal, rbf

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
SHARP: dict[str, Any] = {"tol": 1e-10, "max_iter": 100_000, "random_state": 0}
WEIGHTS = [(0.0, 0.0), (3.0, 0.0), (0.0, 2.0), (1.0, 1.0), (50.0, 20.0)]
BOTH = [LDMClassifier(random_state=0), LinearLDMClassifier(random_state=0)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda m: type(m).__name__)


def draw(seed: int, n: int = 24, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    signs = np.where(np.arange(n) % 3 == 0, -1.0, 1.0)
    return rng.normal(size=(n, d)) + 0.7 * signs[:, None], signs


# -- the answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(("lam1", "lam2"), WEIGHTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_kernel_machine_reaches_the_minimum(lam1: float, lam2: float, weighted: bool) -> None:
    rows, signs = draw(1)
    weight = np.random.default_rng(2).integers(0, 4, len(signs)).astype(float) if weighted else None
    F, C = features_of(rbf(rows, rows, 0.3)), 20.0
    least = ldm_primal(
        F, signs, ldm_minimise(F, signs, lam1, lam2, C, weight), lam1, lam2, C, weight
    )
    model = LDMClassifier(lam1=lam1, lam2=lam2, C=C, gamma=0.3, **SHARP)
    model.fit(rows, signs, sample_weight=weight)
    assert model.dual_gap_ <= 1e-10
    assert model.objective_ == pytest.approx(least, abs=1e-7)
    t = np.zeros(len(signs))
    t[model.support_] = model.dual_coef_[0]
    w = F.T @ t
    assert ldm_primal(F, signs, w, lam1, lam2, C, weight) == pytest.approx(model.objective_)


@pytest.mark.parametrize(("lam1", "lam2"), WEIGHTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_linear_machine_reaches_the_minimum(lam1: float, lam2: float, weighted: bool) -> None:
    rows, signs = draw(3)
    weight = np.random.default_rng(4).integers(0, 4, len(signs)).astype(float) if weighted else None
    Z, C = np.c_[rows, np.ones(len(signs))], 20.0
    least = ldm_minimise(Z, signs, lam1, lam2, C, weight)
    model = LinearLDMClassifier(lam1=lam1, lam2=lam2, C=C, **SHARP)
    model.fit(rows, signs, sample_weight=weight)
    assert model.dual_gap_ <= 1e-10
    w = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(w, least, atol=1e-5)
    assert ldm_primal(Z, signs, w, lam1, lam2, C, weight) == pytest.approx(model.objective_)


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_without_moments_it_is_liblinears_machine(C: float) -> None:
    theirs = LinearSVC(
        C=C, loss="hinge", fit_intercept=False, tol=1e-9, max_iter=1_000_000, random_state=0
    ).fit(X, y)
    ours = LinearLDMClassifier(
        lam1=0, lam2=0, C=C * len(y), fit_intercept=False, **{**SHARP, "tol": 1e-7}
    ).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    kernel = LDMClassifier(lam1=0, lam2=0, C=C * len(y), kernel="linear", tol=1e-6).fit(X, y)
    assert kernel.objective_ == pytest.approx(ours.objective_, rel=1e-5)


def test_without_moments_it_lies_below_libsvms_kernel_machine() -> None:
    # SVC's intercept is free; the machine without one can only be worse.
    theirs = SVC(gamma=0.03, tol=1e-8).fit(X, y)
    u = (2 * y - 1) * theirs.decision_function(X)
    f = theirs.decision_function(X[theirs.support_]) - theirs.intercept_
    value = 0.5 * theirs.dual_coef_[0] @ f + np.maximum(1 - u, 0).sum()
    ours = LDMClassifier(lam1=0, lam2=0, gamma=0.03, tol=1e-8, max_iter=10_000).fit(X, y)
    assert ours.objective_ >= value * (1 - 1e-6)
    assert ours.objective_ == pytest.approx(value, rel=0.1)


def test_kernel_and_linear_machines_agree_on_a_linear_kernel() -> None:
    options = {"lam1": 5.0, "lam2": 3.0, "C": 30.0, **SHARP}
    linear = LinearLDMClassifier(**options).fit(X, y)
    kernel = LDMClassifier(kernel="linear", fit_intercept=True, **options).fit(X, y)
    np.testing.assert_allclose(kernel.coef_, linear.coef_, atol=1e-4)
    np.testing.assert_allclose(kernel.intercept_, linear.intercept_, atol=1e-4)
    assert kernel.loo_bound_ == pytest.approx(linear.loo_bound_, rel=1e-3)


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("lam1", "lam2"), [(0.0, 0.0), (1.0, 1.0), (5.0, 0.5)])
def test_stochastic_gradients_reach_the_reference(rows: Any, lam1: float, lam2: float) -> None:
    options = {"lam1": lam1, "lam2": lam2, "C": 10.0, "random_state": 0}
    reference = LinearLDMClassifier(solver="dcd", tol=1e-8, max_iter=10_000, **options).fit(X, y)
    model = LinearLDMClassifier(solver="svrg", **options).fit(rows(X), y)
    assert model.solver_ == "svrg"
    assert model.dual_gap_ <= 1e-3
    assert model.objective_ == pytest.approx(reference.objective_, rel=1e-3)
    assert model.objective_ >= reference.objective_ - 1e-8
    assert model.loo_bound_ >= reference.loo_bound_ - 1e-3


def test_larger_weights_of_the_moments_move_the_moments() -> None:
    def moments(**weights: float) -> tuple[float, float]:
        model = LDMClassifier(C=10.0, tol=1e-6, max_iter=10_000, **weights).fit(X, y)
        u = optimargin.margins(model, X, y)
        return float(u.mean()), float(u.var())

    mean, variance = moments(lam1=1.0, lam2=1.0)
    assert moments(lam1=20.0, lam2=1.0)[1] < variance
    assert moments(lam1=1.0, lam2=20.0)[0] > mean


# -- weights ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (LDMClassifier(random_state=0), "dcd"),
        (LinearLDMClassifier(random_state=0), "dcd"),
        (LinearLDMClassifier(random_state=0), "svrg"),
    ],
)
def test_weights_are_repetitions(model: Any, solver: str) -> None:
    rows, labels = X[:80], y[:80]
    count = np.random.default_rng(0).integers(0, 4, 80)
    model = clone(model).set_params(lam1=3.0, lam2=2.0, C=5.0, solver=solver)
    if solver == "dcd":
        model.set_params(**SHARP)
    weighted = clone(model).fit(rows, labels, sample_weight=count)
    repeated = clone(model).fit(rows.repeat(count, 0), labels.repeat(count))
    near = 1e-8 if solver == "dcd" else 2e-3
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=near)
    if solver == "dcd":
        np.testing.assert_allclose(
            weighted.decision_function(rows), repeated.decision_function(rows), atol=1e-4
        )
        assert weighted.loo_count_ == pytest.approx(repeated.loo_count_, abs=0.02)


@both
def test_class_weights_are_weights_with_the_same_hinge(model: Any) -> None:
    weights = np.where(y == 1, 3.0, 1.0)
    model = clone(model).set_params(C=5.0, **SHARP)
    if isinstance(model, LDMClassifier):
        model.set_params(gamma=1 / 30)
    by_class = clone(model).set_params(class_weight={0: 1.0, 1: 3.0}).fit(X, y)
    C = 5.0 * weights.sum() / len(y)
    by_row = clone(model).set_params(C=C).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(
        by_class.decision_function(X), by_row.decision_function(X), atol=1e-4
    )


# -- manners ------------------------------------------------------------------------------


@both
def test_scale_gives_every_hinge_the_weight_one(model: Any) -> None:
    fitted = clone(model).fit(X, y, sample_weight=np.full(len(y), 2.0))
    assert 2.0 * len(y) == fitted.C_
    assert fitted.dual_gap_ <= 1e-3


@both
@pytest.mark.parametrize("kind", ["ovr", "ovo"])
def test_many_classes_are_many_machines(model: Any, kind: str) -> None:
    data, labels = load_wine(return_X_y=True)
    data = StandardScaler().fit_transform(data)
    fitted = clone(model).set_params(multi_class=kind).fit(data, labels)
    assert fitted.score(data, labels) > 0.95
    assert fitted.objective_.shape == fitted.loo_bound_.shape == (3,)
    assert fitted.decision_function(data).shape == (len(labels), 3)


@both
def test_a_pair_of_classes_knows_nothing_of_the_third(model: Any) -> None:
    data, labels = load_iris(return_X_y=True)
    inside = labels != 2
    options = {"multi_class": "ovo", "C": 20.0, **SHARP}
    if isinstance(model, LDMClassifier):
        options["gamma"] = 0.3
    whole = clone(model).set_params(**options).fit(data, labels)
    pair = clone(model).set_params(**options).fit(data[inside], labels[inside])
    assert whole.objective_[0] == pytest.approx(pair.objective_, rel=1e-7)
    assert whole.loo_count_[0] == pytest.approx(pair.loo_count_)


@both
def test_sparse_rows_give_the_same_machine(model: Any) -> None:
    Z = np.where(np.abs(X) > 1, X, 0)
    dense = clone(model).set_params(tol=1e-8, max_iter=10_000).fit(Z, y)
    sparse = clone(model).set_params(tol=1e-8, max_iter=10_000).fit(sp.csr_matrix(Z), y)
    np.testing.assert_allclose(sparse.decision_function(Z), dense.decision_function(Z), atol=1e-3)


@both
def test_files_and_pickles_predict_alike(model: Any, tmp_path: Any) -> None:
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    fitted = clone(model).fit(frame, y)
    fitted.save(tmp_path / "model.safetensors")
    for again in (
        optimargin.load(tmp_path / "model.safetensors"),
        pickle.loads(pickle.dumps(fitted)),
    ):
        assert type(again) is type(fitted)
        assert again.get_params() == fitted.get_params()
        assert list(again.feature_names_in_) == ["a", "b", "c"]
        np.testing.assert_array_equal(
            again.decision_function(frame), fitted.decision_function(frame)
        )


@both
def test_a_warm_start_continues(model: Any) -> None:
    cold = clone(model).set_params(tol=1e-7, max_iter=5000).fit(X, y)
    warm = clone(model).set_params(max_iter=8, tol=1e-7, warm_start=True)
    with pytest.warns(ConvergenceWarning):
        warm.fit(X, y)
    reached = warm.dual_gap_
    warm.set_params(max_iter=5000).fit(X, y)
    assert warm.history_["gap"][0] < 2 * reached < 0.1 * cold.history_["gap"][0]
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-6)


def test_an_indefinite_kernel_is_shifted_until_it_is_not() -> None:
    model = LDMClassifier(kernel="sigmoid", gamma=1.0, max_iter=10_000).fit(X, y)
    assert model.kernel_shift_ > 0
    assert model.dual_gap_ <= 1e-3


def test_rows_too_wide_to_be_whitened_are_drawn_instead() -> None:
    model = LinearLDMClassifier(C=10.0, memory_limit="100kB", random_state=0).fit(X, y)
    assert model.solver_ == "svrg"
    with pytest.raises(MemoryError, match="LinearLDMClassifier"):
        LDMClassifier(memory_limit="3MB").fit(X, y)


@both
@pytest.mark.parametrize(
    ("params", "said"),
    [({"lam1": -1.0}, "lam1"), ({"lam2": -1.0}, "lam2"), ({"C": 0.0}, "C"), ({"C": "n"}, "C")],
)
def test_bad_weights_are_named(model: Any, params: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"'{said}' parameter"):
        clone(model).set_params(**params).fit(X, y)
