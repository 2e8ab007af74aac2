"""How a fit goes: progress, limits, warm starts, and what is refused."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from optimargin import (
    LinearODMClassifier,
    ODMClassifier,
)

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
BOTH = [LinearODMClassifier(random_state=0), ODMClassifier(random_state=0)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda m: type(m).__name__)


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
    announced = isinstance(model, ODMClassifier)  # what it will do, and what that takes
    assert printed.count("\n") == 2 + announced
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
