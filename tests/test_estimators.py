import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import ConvergenceWarning
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
    ODMClassifier,
)

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
BOTH = [LinearODMClassifier(random_state=0), ODMClassifier(random_state=0)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda m: type(m).__name__)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [LinearODMClassifier(), ODMClassifier(), LDMClassifier(), LinearLDMClassifier()]
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


# -- progress, limits, warm starts ---------------------------------------------------------


@both
def test_history_tells_every_round(model):
    model = clone(model).set_params(solver="dcd", lam=30.0, tol=1e-6).fit(X, y)
    history = model.history_
    assert set(history) == {"machine", "round", "objective", "gap", "time"}
    assert len(history["gap"]) == model.n_iter_ + 1
    assert (np.diff(history["gap"]) <= 0).all()
    assert (np.diff(history["time"]) >= 0).all()
    assert history["gap"][-1] == pytest.approx(model.dual_gap_)
    assert history["objective"][-1] == pytest.approx(model.objective_)


@both
def test_an_early_stop_says_how_good_the_answer_is(model):
    model = clone(model).set_params(solver="dcd", max_iter=1, lam=1e4, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="relative duality gap.*max_iter"):
        model.fit(X, y)
    assert model.status_ == "max_iter"
    assert model.dual_gap_ > 1e-9


@both
def test_a_warm_start_continues(model):
    cold = clone(model).set_params(solver="dcd", lam=1e3, tol=1e-6, max_iter=5000).fit(X, y)
    warm = clone(model).set_params(solver="dcd", lam=1e3, tol=1e-6, max_iter=3, warm_start=True)
    gaps = []
    for _ in range(4):
        with pytest.warns(ConvergenceWarning):
            warm.fit(X, y)
        gaps.append(warm.dual_gap_)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < gaps[0]
    warm.set_params(max_iter=5000).fit(X, y)
    assert warm.n_iter_ < cold.n_iter_
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-5)


@both
def test_a_warm_start_survives_other_data(model):
    warm = clone(model).set_params(warm_start=True).fit(X, y)
    warm.fit(X[::2], y[::2])
    warm.fit(X[:, :5], y)
    assert warm.score(X[:, :5], y) > 0.8
    digits, labels = load_digits(return_X_y=True)
    assert warm.fit(digits[:200], labels[:200]).score(digits[:200], labels[:200]) > 0.8


def test_a_time_limit_is_kept():
    model = ODMClassifier(solver="dcd", lam=1e8, tol=1e-12, max_iter=10**6, time_limit=0.2)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, y)
    assert model.status_ == "time_limit"
    assert model.history_["time"][-1] < 5


@both
def test_verbose_gives_one_live_line(model, capsys):
    clone(model).set_params(verbose=1).fit(X, y)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 2
    assert "relative gap" in printed
    assert "above the optimum" in printed


@both
def test_callbacks_follow_stop_and_score(model):
    callback = pytest.importorskip("sklearn.callback")

    class Recorder:
        def __init__(self, stop_at):
            self.stop_at, self.ends, self.scores = stop_at, 0, []

        def setup(self, estimator, context):
            self.began = True

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
            if context.parent is None:
                return False
            self.ends += 1
            self.scores.append(fitted_estimator.score(X, y))
            return self.ends == self.stop_at

        def teardown(self, estimator, context):
            self.done = True

    recorder = Recorder(stop_at=3)
    assert isinstance(recorder, callback.FitCallback)
    model = clone(model).set_params(solver="dcd", lam=30.0, tol=1e-12).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="callback"):
        model.fit(X, y)
    assert model.status_ == "callback"
    assert recorder.done
    assert recorder.ends == 3
    assert recorder.scores[-1] > 0.8


def test_many_classes_report_to_callbacks():
    callback = pytest.importorskip("sklearn.callback")
    data, labels = load_iris(return_X_y=True)
    model = LinearODMClassifier().set_callbacks(callback.ProgressBar())
    assert model.fit(data, labels).score(data, labels) > 0.7


# -- bad input: one clear sentence, and the estimator as it was ----------------------------

NAN, INF, BIG = X.copy(), X.copy(), X[:2]
NAN[3, 1], INF[3, 1] = np.nan, np.inf
BAD = [
    ({}, NAN, y, None, "NaN"),
    ({}, INF, y, None, "infinity"),
    ({}, X, np.zeros(len(y)), None, "class"),
    ({}, X, y[:-1], None, "inconsistent numbers of samples"),
    ({}, X, y, np.zeros(len(y)), "sample_weight.*positive"),
    ({}, X, y, -np.ones(len(y)), "[Nn]egative"),
    ({}, X, y, np.ones(3), "sample_weight"),
    ({}, X, y, np.where(y == 1, 1.0, 0.0), "class"),
    ({}, X[:1], y[:1], None, "minimum of 2"),
    ({}, X, np.linspace(0, 1, len(y)), None, "continuous"),
    ({"theta": 1.0}, X, y, None, r"theta.*\[0.*1.*\)"),
    ({"theta": -0.1}, X, y, None, "theta"),
    ({"lam": 0.0}, X, y, None, "lam.*float.*0"),
    ({"lam": "x"}, X, y, None, "lam"),
    ({"mu": -1.0}, X, y, None, "mu"),
    ({"solver": "sgd"}, X, y, None, "solver.*dcd"),
    ({"tol": -1.0}, X, y, None, "tol"),
    ({"max_iter": 0}, X, y, None, "max_iter"),
    ({"time_limit": 0}, X, y, None, "time_limit"),
    ({"class_weight": "even"}, X, y, None, "class_weight.*balanced"),
]
BAD_KERNEL = [
    ({"kernel": "rbfx"}, X, y, None, "kernel.*rbf"),
    ({"gamma": -1.0}, X, y, None, "gamma"),
    ({"kernel": "precomputed"}, X, y, None, "X.*square"),
    ({"kernel": lambda A, B: np.ones(3)}, X, y, None, "kernel.*shape"),
    ({"kernel": lambda A, B: np.full((len(A), len(B)), np.nan)}, X, y, None, "kernel.*NaN"),
    ({"memory_limit": "a lot"}, X, y, None, "memory_limit.*MB"),
]
CASES = [(m, *case) for m in BOTH for case in BAD] + [(BOTH[1], *case) for case in BAD_KERNEL]


@pytest.mark.parametrize(("model", "params", "data", "labels", "weight", "said"), CASES)
def test_bad_input_is_named_and_changes_nothing(model, params, data, labels, weight, said):
    fitted = clone(model).fit(X, y)
    fitted.set_params(**params)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match=said):
        fitted.fit(data, labels, sample_weight=weight)
    after = vars(fitted)
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)


def test_too_little_memory_is_refused_with_what_is_needed():
    with pytest.raises(MemoryError, match=r"memory_limit is 1\.0 kB.*needs at least"):
        ODMClassifier(memory_limit=1000).fit(X, y)


@both
def test_odd_but_legal_data_is_trained(model):
    constant = np.ones((10, 3))
    labels = np.arange(10) % 2
    assert set(clone(model).fit(constant, labels).predict(constant)) <= {0, 1}
    duplicates = np.tile(X[:4], (5, 1))
    clone(model).fit(duplicates, np.tile([0, 1, 0, 1], 5))
    two = clone(model).set_params(lam=10.0).fit([[0.0], [1.0]], ["a", "b"])
    assert list(two.predict([[0.0], [1.0]])) == ["a", "b"]


def test_an_interrupt_leaves_the_estimator_as_it_was():
    model = ODMClassifier().fit(X, y)
    before = model.dual_coef_

    def kernel(A, B):
        raise KeyboardInterrupt

    model.set_params(kernel=kernel)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.dual_coef_ is before


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_small_memory_limit_changes_time_but_not_the_answer(kernel):
    options = {"kernel": kernel, "lam": 30.0, "tol": 1e-8, "max_iter": 100_000}
    whole = ODMClassifier(**options).fit(X, y)
    for solver in ("dcd", "newton"):
        part = ODMClassifier(memory_limit="200kB", solver=solver, **options).fit(X, y)
        np.testing.assert_allclose(part.decision_function(X), whole.decision_function(X), atol=1e-3)
