import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import fbeta_score, get_scorer, make_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from optimargin import (
    LinearODMClassifier,
    LinearODMClassifierCV,
    ODMClassifier,
    ODMClassifierCV,
    load,
)

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)[::2]
y = y[::2]
IRIS, KIND = load_iris(return_X_y=True)
PLAIN = {ODMClassifierCV: ODMClassifier, LinearODMClassifierCV: LinearODMClassifier}
GRID = {"lam": [64.0, 1.0, 1024.0], "mu": [0.2, 0.8], "theta": [0.1, 0.6]}
both = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)


def tuned(kind, grid=GRID, **options):
    grids = {f"{name}s": values for name, values in grid.items()}
    return kind(**grids, **{"tol": 1e-6, "random_state": 0, **options})


def searched(kind, grid=GRID, *, cv=None, scoring=None, **options):
    if kind is ODMClassifierCV:
        grid = {"gamma": ["scale"], **grid}
    plain = PLAIN[kind](**{"tol": 1e-6, "random_state": 0, **options})
    return GridSearchCV(plain, grid, cv=cv, scoring=scoring)


def assert_same_search(ours, theirs):
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    for name, values in theirs.cv_results_.items():
        if name.endswith("score") and "time" not in name and "rank" not in name:
            np.testing.assert_allclose(ours.cv_results_[name], values, atol=1e-9, err_msg=name)
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_index_ == theirs.best_index_
    assert ours.best_score_ == pytest.approx(theirs.best_score_)


SHORT = {"lams": [1.0, 64.0], "thetas": [0.1]}  # these checks are about manners


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
@parametrize_with_checks([LinearODMClassifierCV(**SHORT), ODMClassifierCV(**SHORT)])
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


# -- the same choice as GridSearchCV --------------------------------------------------------


@both
def test_it_finds_what_a_grid_search_finds(kind):
    ours, theirs = tuned(kind).fit(X, y), searched(kind).fit(X, y)
    assert_same_search(ours, theirs)
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), rtol=1e-3, atol=1e-3
    )


def test_contenders_are_trained_as_exactly_as_the_plain_classifier_trains_them():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(600, 4))
    labels = np.sin(2 * Z[:, 0]) + Z[:, 1] * Z[:, 2] + 0.8 * rng.normal(size=600) > 0
    grid = {**GRID, "theta": [0.1, 0.4, 0.6]}
    ours = tuned(ODMClassifierCV, grid, tol=1e-3).fit(Z, labels)
    theirs = searched(ODMClassifierCV, grid, tol=1e-3).fit(Z, labels)
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_score_ == theirs.best_score_
    best = [ours.cv_results_[f"split{k}_test_score"][ours.best_index_] for k in range(5)]
    assert best == [theirs.cv_results_[f"split{k}_test_score"][ours.best_index_] for k in range(5)]


@both
@pytest.mark.parametrize("multi_class", ["mcodm", "ovr", "ovo"])
def test_it_finds_what_a_grid_search_finds_among_several_classes(kind, multi_class):
    options = {"multi_class": multi_class, "cv": KFold(3, shuffle=True, random_state=0)}
    ours = tuned(kind, **options).fit(IRIS, KIND)
    assert_same_search(ours, searched(kind, **options).fit(IRIS, KIND))


@pytest.mark.parametrize("options", [{}, {"memory_limit": 400_000}, {"kernel": "laplacian"}])
def test_gammas_are_searched_with_and_without_a_shared_matrix(options):
    grid = {**GRID, "gamma": [0.003, 0.1, "scale", "auto"]}
    ours = tuned(ODMClassifierCV, grid, **options).fit(X, y)
    assert_same_search(ours, searched(ODMClassifierCV, grid, **options).fit(X, y))


def test_a_given_kernel_matrix_is_cut_into_folds():
    K = rbf_kernel(X, X, 0.02)
    options = {"kernel": "precomputed", "tol": 1e-10}
    ours = tuned(ODMClassifierCV, **options).fit(K, y)
    assert_same_search(ours, searched(ODMClassifierCV, **options).fit(K, y))
    assert ours.score(K, y) > 0.9


def test_an_indefinite_kernel_is_made_convex_on_the_way():
    grid = {"lam": [1.0, 100.0, 1000.0], "mu": [0.5], "theta": [0.2], "gamma": [1.0]}
    ours = tuned(ODMClassifierCV, grid, kernel="sigmoid", tol=1e-5).fit(X, y)
    theirs = searched(ODMClassifierCV, grid, kernel="sigmoid", tol=1e-5).fit(X, y)
    assert_same_search(ours, theirs)


@both
def test_scale_stands_for_a_number_of_its_own_in_each_fold(kind):
    grid = {**GRID, "lam": [4.0, "scale", 5000.0]}
    options = {"fit_intercept": True, "class_weight": "balanced"}
    ours = tuned(kind, grid, **options).fit(X, y)
    assert_same_search(ours, searched(kind, grid, **options).fit(X, y))


@both
def test_sparse_rows_give_the_same_choice(kind):
    Z = np.where(np.abs(X) > 1, X, 0)
    dense, sparse = tuned(kind).fit(Z, y), tuned(kind).fit(sp.csr_array(Z), y)
    assert sparse.best_params_ == dense.best_params_
    np.testing.assert_allclose(
        sparse.cv_results_["mean_test_score"], dense.cv_results_["mean_test_score"], atol=0.01
    )


# -- folds and scores -----------------------------------------------------------------------


def asks_for_more(model, X, y):
    """A scorer that looks at other rows than its own, and at fitted attributes."""
    assert model.predict(X[:3]).shape == (3,)
    return np.mean(model.predict(X) == y) - round(1e-3 * abs(model.intercept_).sum(), 4)


@both
@pytest.mark.parametrize(
    "scoring",
    ["roc_auc", "f1", make_scorer(fbeta_score, beta=2), asks_for_more],
    ids=["roc_auc", "f1", "fbeta", "callable"],
)
def test_any_scorer_judges(kind, scoring):
    ours = tuned(kind, scoring=scoring).fit(X, y)
    assert_same_search(ours, searched(kind, scoring=scoring).fit(X, y))
    judge = get_scorer(scoring) if isinstance(scoring, str) else scoring
    assert ours.score(X, y) == judge(ours, X, y)


@both
@pytest.mark.parametrize("cv", [3, ShuffleSplit(2, random_state=0), "pairs"])
def test_folds_are_given_in_any_form(kind, cv):
    cv = list(KFold(4).split(X)) if cv == "pairs" else cv
    ours = tuned(kind, cv=cv).fit(X, y)
    assert_same_search(ours, searched(kind, cv=cv).fit(X, y))
    assert ours.n_splits_ == (
        cv if isinstance(cv, int) else len(list(ours.cv)) if isinstance(cv, list) else 2
    )


@both
def test_results_do_not_depend_on_the_number_of_threads(kind):
    one, two = (tuned(kind, n_jobs=n, tol=1e-3).fit(X, y) for n in (1, 2))
    for name, values in one.cv_results_.items():
        if "time" not in name and name != "params":
            np.testing.assert_array_equal(two.cv_results_[name], values, err_msg=name)


@both
def test_weights_count_as_copies_in_training_and_in_the_score(kind):
    times = np.random.default_rng(0).integers(0, 3, len(y))
    fold = np.arange(len(y)) % 3
    copied = np.repeat(fold, times)
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    many = [(np.flatnonzero(copied != k), np.flatnonzero(copied == k)) for k in range(3)]
    weighed = tuned(kind, cv=splits).fit(X, y, sample_weight=times)
    repeated = tuned(kind, cv=many).fit(X.repeat(times, axis=0), y.repeat(times))
    np.testing.assert_allclose(
        weighed.cv_results_["mean_test_score"], repeated.cv_results_["mean_test_score"]
    )


# -- the leave-one-out bound ----------------------------------------------------------------


@both
def test_the_bound_chooses_without_folds(kind):
    ours = tuned(kind, cv="loo_bound").fit(X, y)
    bounds = [
        PLAIN[kind](**params, tol=1e-6, random_state=0).fit(X, y).loo_count_
        for params in ours.cv_results_["params"]
    ]
    np.testing.assert_allclose(ours.cv_results_["loo_count"], bounds, atol=2.1 / len(y))
    assert ours.n_splits_ == 0
    assert ours.loo_count_ == pytest.approx(min(bounds), abs=2.1 / len(y))
    assert ours.best_score_ == -min(ours.cv_results_["loo_count"])


def test_the_bound_of_several_classes_is_the_mean_over_machines():
    ours = tuned(LinearODMClassifierCV, cv="loo_bound", multi_class="ovr").fit(IRIS, KIND)
    assert -ours.best_score_ == pytest.approx(ours.loo_count_.mean(), abs=0.03)
    with pytest.raises(ValueError, match="'ovr'"):
        tuned(LinearODMClassifierCV, cv="loo_bound").fit(IRIS, KIND)
    with pytest.raises(ValueError, match="scoring"):
        tuned(LinearODMClassifierCV, cv="loo_bound", scoring="f1").fit(X, y)


# -- as an estimator ------------------------------------------------------------------------


@both
def test_after_the_search_it_is_the_plain_classifier(kind, tmp_path):
    ours = tuned(kind).fit(X, y)
    plain = PLAIN[kind](**ours.best_params_, tol=1e-6, random_state=0).fit(X, y)
    best = ours.best_estimator_
    assert type(best) is PLAIN[kind]
    assert best.get_params() == plain.get_params()
    assert {name for name in vars(plain) if name.endswith("_")} <= set(vars(ours))
    ours.save(tmp_path / "model.safetensors")
    for model in (
        ours,
        best,
        pickle.loads(pickle.dumps(ours)),
        load(tmp_path / "model.safetensors"),
    ):
        np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))


@both
def test_without_refit_there_are_results_only(kind):
    model = tuned(kind).fit(X, y).set_params(refit=False).fit(X, y)
    assert model.best_params_
    assert not hasattr(model, "best_estimator_")
    assert not hasattr(model, "loo_count_")
    with pytest.raises(NotFittedError):
        model.predict(X)


@both
def test_it_works_behind_a_scaler_and_after_clone(kind):
    model = clone(make_pipeline(StandardScaler(), tuned(kind)))
    assert model.fit(IRIS[:100], KIND[:100]).score(IRIS[:100], KIND[:100]) == 1.0


def test_one_line_follows_the_whole_search(capsys):
    tuned(ODMClassifierCV, verbose=1, cv=3).fit(X, y)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "36 of 36 fits" in said


def test_fits_that_stop_early_are_counted_once():
    with pytest.warns(ConvergenceWarning) as caught:
        tuned(LinearODMClassifierCV, solver="dcd", max_iter=1, refit=False).fit(X, y)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [({"lams": []}, "lams"), ({"thetas": [0.2, 1.5]}, "theta"), ({"gammas": ["large"]}, "gamma")],
)
def test_values_that_make_no_sense_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        ODMClassifierCV(**options).fit(X, y)
