"""The classifier over landmarks, and their features on their own."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_moons
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from optimargin import (
    LandmarkFeatures,
    LinearODMClassifier,
    ODMClassifier,
    ODMClassifierCV,
    load,
    open_rows,
)

X, y = make_moons(3000, noise=0.2, random_state=0)
UNSEEN, TRUTH = make_moons(1000, noise=0.2, random_state=1)


def landmark(**changes):
    given = {"solver": "landmark", "n_landmarks": 100, "gamma": 2.0, "random_state": 0, **changes}
    return ODMClassifier(**given)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([ODMClassifier(solver="landmark"), LandmarkFeatures()])
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


# -- the classifier -------------------------------------------------------------------------------


def test_it_is_about_the_exact_machine():
    exact = ODMClassifier(gamma=2.0, solver="newton").fit(X, y)
    model = landmark(n_landmarks=200).fit(X, y)
    assert model.solver_ == "landmark"
    assert model.objective_ == pytest.approx(exact.objective_, rel=0.02)
    assert np.mean(model.predict(UNSEEN) == exact.predict(UNSEEN)) > 0.99
    assert model.exact_gap_ >= (model.objective_ - exact.objective_) / model.objective_
    assert exact.residual_ == 0.0 < model.residual_ < 0.2


def test_landmarks_by_margin_are_unlike_each_other():
    """The first are any rows, which may be the same; those that join later are not."""
    few, labels = make_moons(400, noise=0.2, random_state=3)
    model = landmark(n_landmarks=120, gamma=8.0, lam=1e4)
    model.fit(np.repeat(few, 3, axis=0), np.repeat(labels, 3))
    first, joined = np.split(model.support_ // 3, [60])
    assert len(np.unique(joined)) == 60
    assert not np.isin(joined, first).any()


@pytest.mark.parametrize("how", ["margin", "greedy", "random", "kmeans", X[:70]])
def test_landmarks_are_its_support(how):
    model = landmark(landmarks=how).fit(X, y)
    if isinstance(how, str) and how != "kmeans":
        np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    else:
        assert (model.support_ == -1).all()
    assert model.dual_coef_.shape == (1, 100 if isinstance(how, str) else 70)
    assert model.score(UNSEEN, TRUTH) > 0.94


def test_the_objective_is_that_of_the_docstring():
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    model = landmark(fit_intercept=True, tol=1e-6).fit(X, y, weight)
    Z, b = model.support_vectors_, model.dual_coef_[0]
    K = np.exp(-2.0 * ((Z[:, None] - Z) ** 2).sum(axis=2)) + 1.0
    u = np.where(y == 1, 1, -1) * model.decision_function(X)
    c = model.lam_ / weight.sum() / 0.9**2
    losses = np.maximum(0.9 - u, 0) ** 2 + 0.5 * np.maximum(u - 1.1, 0) ** 2
    assert model.objective_ == pytest.approx(b @ K @ b / 2 + c * weight @ losses, rel=1e-6)


def test_single_precision_says_nearly_the_same():
    double, single = (landmark().fit(A, y) for A in (X, X.astype(np.float32)))
    assert (double.kernel_dtype_, single.kernel_dtype_) == ("float64", "float32")
    same = double.predict(UNSEEN) == single.predict(UNSEEN.astype(np.float32))
    assert same.mean() > 0.995


def test_sparse_rows_give_the_same_machine():
    dense, sparse = (landmark().fit(A, y) for A in (X, sp.csr_array(X)))
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(UNSEEN)), dense.decision_function(UNSEEN), atol=1e-3
    )


def test_one_machine_for_several_classes_keeps_to_the_memory_limit():
    rows, labels = load_digits(return_X_y=True)
    model = landmark(gamma=1e-3, n_landmarks=200, memory_limit="30MB")
    with pytest.raises(MemoryError, match="multi_class='ovr', which keeps to any limit"):
        model.set_params(memory_limit="10MB").fit(rows, labels)
    model.set_params(memory_limit="30MB").fit(rows, labels)
    assert model.score(rows, labels) > 0.97


@pytest.mark.parametrize("kind", ["mcodm", "ovr", "ovo"])
def test_several_classes_over_the_same_landmarks(kind):
    A, b = load_digits(return_X_y=True)
    model = landmark(multi_class=kind, gamma=0.001, n_landmarks=500).fit(A[:1200], b[:1200])
    exact = ODMClassifier(multi_class=kind, gamma=0.001).fit(A[:1200], b[:1200])
    assert model.score(A[1200:], b[1200:]) > exact.score(A[1200:], b[1200:]) - 0.015
    assert model.decision_function(A[1200:]).shape == (597, 10)


def test_a_warm_start_has_nothing_left_to_do():
    model = landmark(warm_start=True, tol=1e-5).fit(X, y)
    assert model.n_iter_ > 1
    before = model.support_
    assert model.fit(X, y).n_iter_ <= 1
    np.testing.assert_array_equal(model.support_, before)


def test_a_warm_start_across_solvers_begins_anew():
    model = landmark(warm_start=True, solver="newton").fit(X[:500], y[:500])
    over = model.set_params(solver="landmark").fit(X[:500], y[:500])
    assert over.dual_coef_.shape == (1, 100)
    assert model.set_params(solver="newton").fit(X[:500], y[:500]).dual_gap_ < 1e-6


def test_threads_do_not_change_the_answer():
    one, two = (landmark(n_jobs=k).fit(X, y).dual_coef_ for k in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6 * np.abs(one).max())


def test_a_model_file_brings_it_back(tmp_path):
    model = landmark().fit(X.astype(np.float32), y)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.decision_function(UNSEEN), model.decision_function(UNSEEN))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kernel": "precomputed"}, "kernel='precomputed'"),
        ({"landmarks": np.zeros((5, 3))}, "landmarks must have the 2 features"),
        ({"landmarks": "best"}, "'landmarks' parameter"),
        ({"n_landmarks": 0}, "'n_landmarks' parameter"),
        ({"kernel": "sigmoid", "gamma": 5.0, "coef0": -3.0}, "not positive semi-definite"),
    ],
)
def test_wrong_arguments_get_a_sentence(changes, sentence):
    rows = np.eye(len(y)) if changes.get("kernel") == "precomputed" else X
    with pytest.raises(ValueError, match=sentence):
        landmark(**changes).fit(rows, y)


# -- the choice between exact and landmark --------------------------------------------------------


def test_few_rows_are_exact_and_many_have_landmarks():
    model = ODMClassifier()
    assert model.explain(X)["solver"] == "exact"
    assert model.explain(np.empty((1_000_000, 18), dtype=np.float32))["solver"] == "landmark"
    assert ODMClassifier(solver="dcd").explain(np.empty((10**6, 18)))["solver"] == "exact"
    assert landmark().explain(X)["n_landmarks"] == 100


def test_what_is_explained_is_what_is_done(capsys):
    found = landmark(verbose=1)
    told = found.explain(X)
    found.fit(X, y)
    assert "landmark with 100 landmarks" in capsys.readouterr().out
    assert found.solver_ == told["solver"]
    assert told["bytes"] < told["memory_limit"]
    assert told["other"]["solver"] == "exact"


def test_many_rows_choose_landmarks_by_themselves():
    A, b = make_moons(80_000, noise=0.2, random_state=0)
    model = ODMClassifier(gamma=2.0, random_state=0).fit(A, b)
    assert model.solver_ == "landmark"
    assert model.score(UNSEEN, TRUTH) > 0.95


# -- data larger than memory ----------------------------------------------------------------------


def test_a_memory_map_and_a_folder_give_the_machine_of_the_matrix(tmp_path):
    A, b = make_moons(20_000, noise=0.2, random_state=0)
    A = A.astype(np.float32)
    np.save(tmp_path / "all.npy", A)
    parts = tmp_path / "parts"
    parts.mkdir()
    for k, part in enumerate(np.array_split(np.column_stack([A, b.astype(np.float32)]), 3)):
        np.save(parts / f"{k}.npy", part)
    rows = open_rows(parts, label=-1)
    whole = landmark().fit(A, b)
    mapped = landmark().fit(np.load(tmp_path / "all.npy", mmap_mode="r"), b)
    filed = landmark().fit(rows, rows.y)
    np.testing.assert_array_equal(mapped.dual_coef_, whole.dual_coef_)
    np.testing.assert_allclose(filed.dual_coef_, whole.dual_coef_)
    np.testing.assert_allclose(filed.decision_function(rows), whole.decision_function(A))
    found, wanted = (landmark(gamma="scale").fit(R, b).gamma_ for R in (rows, A))
    assert found == pytest.approx(wanted)
    few = open_rows([parts / "0.npy"], label=-1)
    assert ODMClassifier(gamma=2.0).fit(few, few.y).solver_ != "landmark"
    with pytest.raises(TypeError, match="solver='landmark'"):
        LinearODMClassifier().fit(rows, rows.y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        landmark().fit(rows, rows.y[:-1])


def test_rows_in_files_are_never_whole_in_memory(tmp_path):
    n, d = 60_000, 400
    A = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    b = (A[:, 0] * A[:, 1] > 0).astype(int)
    for k, part in enumerate(np.array_split(A, 6)):
        np.save(tmp_path / f"{k}.npy", part)
    size = A.nbytes
    del A, part
    rows = open_rows(tmp_path)
    model = landmark(n_landmarks=50, landmarks="random", memory_limit="20MB", gamma=0.01)
    model.fit(rows[:1000], b[:1000])  # loops are compiled before memory is counted
    tracemalloc.start()
    model.fit(rows, b)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * size


@pytest.mark.parametrize("gamma", [2.0, 6.0, 12.0])
def test_stiff_machines_in_single_precision_are_certified(gamma):
    """Rows that come and go leave rounding in the matrix that guides the steps."""
    rng = np.random.default_rng(0)
    A = rng.random((2000, 2)).astype(np.float32)
    b = A[:, 0] + 0.3 * np.sin(6.0 * A[:, 1]) + 0.1 * rng.normal(size=2000) > 0.6
    model = landmark(n_landmarks=400, gamma=gamma, lam=1000.0 * 2000, mu=0.1, theta=0.6).fit(A, b)
    assert model.dual_gap_ <= 1e-3
    assert model.score(A, b) > 0.88


# -- search ---------------------------------------------------------------------------------------


def test_a_search_finds_what_a_grid_search_finds():
    grid = {"lam": [10.0, 1000.0], "theta": [0.1, 0.6], "gamma": [0.1, 2.0]}
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    model = landmark(landmarks="random", tol=1e-6)
    slow = GridSearchCV(model, grid, cv=cv).fit(X[:1500], y[:1500])
    quick = ODMClassifierCV(
        lams=grid["lam"], thetas=grid["theta"], gammas=grid["gamma"], cv=cv, solver="landmark",
        landmarks="random", n_landmarks=100, random_state=0, tol=1e-6,
    ).fit(X[:1500], y[:1500])  # fmt: skip
    np.testing.assert_allclose(
        quick.cv_results_["mean_test_score"], slow.cv_results_["mean_test_score"], atol=0.002
    )
    assert quick.best_score_ == pytest.approx(slow.best_score_, abs=0.002)


# -- features -------------------------------------------------------------------------------------


def test_features_are_nystroems_up_to_a_rotation():
    theirs = Nystroem(gamma=2.0, n_components=80, random_state=0).fit(X)
    ours = LandmarkFeatures(gamma=2.0, landmarks=theirs.components_).fit(X)
    A, B = theirs.transform(UNSEEN), ours.transform(UNSEEN)
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-6)


@pytest.mark.parametrize("how", ["auto", "margin", "greedy", "random", "kmeans"])
def test_features_serve_a_linear_machine(how):
    features = LandmarkFeatures(gamma=2.0, landmarks=how, random_state=0)
    model = make_pipeline(features, LinearODMClassifier()).fit(X, y)
    assert model.score(UNSEEN, TRUTH) > 0.95
    assert len(features.get_feature_names_out()) == 100
    assert 0.0 <= features.residual_ < 0.2
    copy = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(copy.transform(UNSEEN), features.transform(UNSEEN))


def test_features_by_margins_need_labels():
    with pytest.raises(ValueError, match="pass y to fit"):
        LandmarkFeatures(landmarks="margin").fit(X)
