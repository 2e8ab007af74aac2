import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from optimargin import (
    LDMClassifier,
    LinearLDMClassifier,
    LinearODMClassifier,
    LinearSVMClassifier,
    ODMClassifier,
    SVMClassifier,
)

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
BOTH = [LinearODMClassifier(random_state=0), ODMClassifier(random_state=0)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda m: type(m).__name__)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        LinearODMClassifier(),
        LinearSVMClassifier(),
        ODMClassifier(),
        SVMClassifier(),
        LDMClassifier(),
        LinearLDMClassifier(),
    ]
)
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


# -- the answer ---------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["dcd", "newton", "svrg"])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_without_an_upper_side_it_is_liblinears_machine(solver, C):
    theirs = LinearSVC(C=C, tol=1e-10, max_iter=1_000_000, dual=False).fit(X, y)
    w = np.append(theirs.coef_, theirs.intercept_)
    u = (2 * y - 1) * theirs.decision_function(X)
    objective = 0.5 * w @ w + C * (np.maximum(1 - u, 0) ** 2).sum()
    ours = LinearODMClassifier(
        lam=C * len(y), mu=0, theta=0, solver=solver, tol=1e-8, max_iter=100_000, random_state=0
    ).fit(X, y)
    assert ours.objective_ == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)


@pytest.mark.parametrize("solver", ["dcd", "newton"])
def test_kernel_and_linear_machines_agree_on_a_linear_kernel(solver):
    options = {"lam": 20.0, "theta": 0.3, "tol": 1e-9, "max_iter": 100_000, "random_state": 0}
    linear = LinearODMClassifier(**options).fit(X, y)
    kernel = ODMClassifier(kernel="linear", fit_intercept=True, solver=solver, **options)
    kernel.fit(X, y)
    np.testing.assert_allclose(kernel.coef_, linear.coef_, atol=1e-4)
    np.testing.assert_allclose(kernel.intercept_, linear.intercept_, atol=1e-4)
    np.testing.assert_allclose(kernel.decision_function(X), linear.decision_function(X), atol=1e-3)


def test_named_precomputed_and_callable_kernels_agree():
    options = {"lam": 20.0, "tol": 1e-10, "max_iter": 10_000, "random_state": 0}
    named = ODMClassifier(kernel="rbf", gamma=0.02, **options).fit(X, y)
    called = ODMClassifier(kernel=lambda A, B: rbf_kernel(A, B, 0.02), **options).fit(X, y)
    K = rbf_kernel(X, X, 0.02)
    given = ODMClassifier(kernel="precomputed", **options).fit(K, y)
    scores = named.decision_function(X)
    np.testing.assert_allclose(called.decision_function(X), scores, atol=1e-3)
    np.testing.assert_allclose(given.decision_function(K), scores, atol=1e-3)
    np.testing.assert_allclose(
        K[:, named.support_] @ named.dual_coef_[0] + named.intercept_, scores, atol=1e-6
    )


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "poly", "sigmoid"])
def test_every_kernel_learns_something(kernel):
    model = ODMClassifier(kernel=kernel, lam=50.0, coef0=0.5).fit(X[::2], y[::2])
    assert model.status_ == "converged"
    assert model.score(X[1::2], y[1::2]) > 0.85


def test_an_indefinite_kernel_is_shifted_until_it_is_not():
    model = ODMClassifier(kernel="sigmoid", gamma=1.0, lam=100.0, tol=1e-6).fit(X, y)
    assert model.kernel_shift_ > 0
    assert model.dual_gap_ <= 1e-6
    assert ODMClassifier(lam=100.0).fit(X, y).kernel_shift_ == 0


@both
@pytest.mark.parametrize("rows", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
def test_sparse_and_dense_rows_give_the_same_machine(model, rows):
    Z = np.where(np.abs(X) > 1, X, 0)
    dense = clone(model).set_params(tol=1e-9).fit(Z, y)
    sparse = clone(model).set_params(tol=1e-9).fit(rows(Z), y)
    np.testing.assert_allclose(
        sparse.decision_function(rows(Z)), dense.decision_function(Z), atol=1e-6
    )


@both
def test_sparse_entries_stored_twice_are_added(model):
    rows, columns = np.nonzero(np.abs(X) > 1)
    half = X[rows, columns] / 2
    twice = sp.coo_array((np.r_[half, half], (np.r_[rows, rows], np.r_[columns, columns])))
    order = np.argsort(np.r_[rows, rows], kind="stable")
    doubled = sp.csr_matrix(
        (
            np.r_[half, half][order],
            np.r_[columns, columns][order],
            np.searchsorted(np.sort(np.r_[rows, rows]), np.arange(len(X) + 1)),
        ),
        shape=X.shape,
    )
    before = doubled.nnz
    np.testing.assert_allclose(
        clone(model).fit(doubled, y).decision_function(X),
        clone(model).fit(twice.tocsr(), y).decision_function(X),
        atol=1e-2,
    )
    assert doubled.nnz == before


@both
def test_long_indices_are_taken(model):
    Z = sp.csr_array(X)
    Z.indices, Z.indptr = Z.indices.astype(np.int64), Z.indptr.astype(np.int64)
    assert clone(model).set_params(lam=30).fit(Z, y).score(Z, y) > 0.9


def test_single_precision_is_not_copied_to_double():
    from optimargin.problem import Problem

    seen = []

    class Spy(LinearODMClassifier):
        def _adopt(self, whole: Problem, machines):
            seen.append(whole.X)
            super()._adopt(whole, machines)

    Z = X.astype(np.float32)
    Spy().fit(Z, y)
    assert seen[0] is Z or np.shares_memory(seen[0], Z)
    Spy().fit((X > 0).astype(np.int8), y)
    assert seen[1].dtype == np.float32


@both
def test_many_classes_may_be_one_against_the_rest(model):
    data, labels = load_iris(return_X_y=True)
    data = StandardScaler().fit_transform(data)
    model = clone(model).set_params(multi_class="ovr", lam=50.0, tol=1e-8).fit(data, labels)
    assert model.decision_function(data).shape == (150, 3)
    single = clone(model).fit(data, labels == 2)
    np.testing.assert_allclose(
        model.decision_function(data)[:, 2], single.decision_function(data), atol=1e-3
    )
    assert model.objective_.shape == model.dual_gap_.shape == model.loo_bound_.shape == (3,)


@both
def test_labels_of_any_kind_come_back_sorted(model):
    names = np.array(["benign" if t else "malignant" for t in y], dtype=object)
    model = clone(model).fit(X, names)
    assert list(model.classes_) == ["benign", "malignant"]
    malignant = model.decision_function(X) > 0
    assert (model.predict(X) == np.where(malignant, "malignant", "benign")).all()


@both
def test_class_weights_multiply_the_losses_of_a_class(model):
    weights = np.where(y == 1, 3.0, 1.0)
    a = clone(model).set_params(class_weight={0: 1.0, 1: 3.0}, lam=5.0, tol=1e-9).fit(X, y)
    lam = 5.0 * weights.sum() / len(y)
    b = (
        clone(model).set_params(lam=lam, tol=1e-9, gamma=1 / 30)
        if hasattr(model, "gamma")
        else (clone(model).set_params(lam=lam, tol=1e-9))
    )
    if hasattr(model, "gamma"):
        a.set_params(gamma=1 / 30).fit(X, y)
    b.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=1e-5)


# -- at home in scikit-learn ---------------------------------------------------------------


@both
def test_it_works_inside_what_people_build(model):
    pipeline = make_pipeline(StandardScaler(), clone(model))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85
    search = GridSearchCV(clone(model), {"lam": [1.0, 30.0]}, cv=2, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.9
    calibrated = CalibratedClassifierCV(clone(model), cv=3).fit(X, y)
    chance = calibrated.predict_proba(X)
    np.testing.assert_allclose(chance.sum(axis=1), 1)
    assert get_scorer("neg_log_loss")(calibrated, X, y) > -0.3
    stack = StackingClassifier([("odm", clone(model))], LogisticRegression(), cv=2).fit(X, y)
    assert stack.score(X, y) > 0.9


@both
def test_pickles_and_clones_predict_alike(model):
    fitted = clone(model).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    assert clone(fitted).get_params() == model.get_params()


@both
def test_feature_names_are_kept_and_checked(model):
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    model = clone(model).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


@both
def test_sample_weights_are_routed(model):
    weight = np.where(y == 1, 1.0, 0.01)
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = clone(model).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, routed).fit(X, y, sample_weight=weight)
    direct = clone(model).fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(
        pipeline.decision_function(X), direct.decision_function(X), atol=1e-3
    )
