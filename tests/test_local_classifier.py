"""Machines of clusters."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from optimargin import LocalODMClassifier, ODMClassifier, load, margins
from optimargin.cells import make_centres, neighbours, ranked
from optimargin.engines.local import LocalEngine

X, y = make_moons(3000, noise=0.2, random_state=0)
UNSEEN, TRUTH = make_moons(1000, noise=0.2, random_state=1)


def local(**changes):
    return LocalODMClassifier(**{"n_clusters": 8, "gamma": 2.0, "random_state": 0, **changes})


def board(n, seed):
    """A board of 16 x 16 fields, black and white."""
    A = np.random.default_rng(seed).random((n, 2))
    return A, (np.floor(16 * A).sum(axis=1) % 2).astype(int)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([LocalODMClassifier(), LocalODMClassifier(n_landmarks=20)])
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


# -- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_cells_are_of_about_equal_size(rows):
    A = make_blobs([9000, 500, 500], random_state=0)[0]
    centres = make_centres(rows(A), 20, np.random.default_rng(0))
    sizes = np.bincount(ranked(rows(A), centres, 1).cell[:, 0])
    assert len(sizes) == 20
    assert sizes.max() < 5 * sizes.min()


@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array])
def test_the_nearest_cells_come_first(rows, shift):
    A = X[:200] + shift
    centres = A[:7].copy()
    near = ranked(rows(A), centres, 3)
    slow = ((A[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_allclose(near.distance, np.sort(slow, axis=1)[:, :3], atol=1e-8)
    np.testing.assert_allclose(np.take_along_axis(slow, near.cell, 1), near.distance, atol=1e-8)
    np.testing.assert_allclose(near.weight.sum(axis=1), 1.0)
    assert (np.diff(near.weight) <= 0).all()


def test_neighbours_are_the_rows_just_outside():
    A = np.linspace(0, 3, 31)[:, None]
    centres = np.array([[0.5], [1.5], [2.5]])
    near = ranked(A, centres, 2)
    row, cell = neighbours(near, centres, 0.2)
    np.testing.assert_array_equal(np.sort(row[cell == 0]), [11, 12])
    assert (near.cell[row, 1] == cell).all()
    assert (near.cell[row, 0] != cell).all()
    assert neighbours(near, centres, 0.0)[0].size == 0
    far = np.array([[0.5], [1.5], [20.0]])
    apart = np.append(A, [[20.0]], axis=0)
    assert 2 not in neighbours(ranked(apart, far, 2), far, 0.2)[1]


def test_equal_rows_stay_together():
    A = np.repeat([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]], 50, axis=0)
    assert len(make_centres(A, 10, np.random.default_rng(0))) == 3


# -- the answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"fit_intercept": True, "class_weight": "balanced"}])
def test_one_cluster_is_one_machine(changes):
    A, b = X[:1200], y[:1200]
    weight = np.random.default_rng(0).integers(0, 3, len(b)).astype(float)
    settings = {"gamma": 2.0, "random_state": 0, **changes}
    ours = LocalODMClassifier(n_clusters=1, **settings).fit(A, b, weight)
    plain = ODMClassifier(**settings).fit(A, b, weight)
    np.testing.assert_allclose(
        ours.decision_function(UNSEEN), plain.decision_function(UNSEEN), atol=1e-6
    )
    assert ours.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    assert ours.lam_ == pytest.approx(plain.lam_)
    np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])


def test_clusters_beat_one_machine_with_as_many_kernel_values_at_a_time():
    A, b = board(8_000, 0)
    B, truth = board(4_000, 1)
    settings = {"gamma": 800.0, "lam": 10.0 * len(b) * 0.9**2, "random_state": 0}
    ours = LocalODMClassifier(n_clusters=8, **settings).fit(A, b)
    count = int(ours.history_["rows"].max()) ** 2 // len(b)
    plain = ODMClassifier(solver="landmark", n_landmarks=count, **settings).fit(A, b)
    assert ours.score(B, truth) > plain.score(B, truth) + 0.01


def test_boundaries_do_no_harm():
    A, b = board(6_000, 0)
    B, truth = board(4_000, 1)
    settings = {"gamma": 800.0, "lam": 10.0 * len(b) * 0.9**2, "random_state": 0}
    whole = ODMClassifier(**settings).fit(A, b).score(B, truth)
    plain, better = (
        LocalODMClassifier(n_clusters=24, n_asked=k, overlap=share, **settings)
        .fit(A, b)
        .score(B, truth)
        for k, share in ((1, 0.0), (2, 0.5))
    )
    assert plain < better
    assert better > whole - 0.003


def test_a_row_has_the_same_weight_whatever_the_clusters():
    model = local(overlap=0.0).fit(X, y)
    nearest = ranked(X, model.cluster_centers_, 1).cell[:, 0]
    own = nearest == 3
    alone = ODMClassifier(gamma=2.0, random_state=0).fit(X[own], y[own])  # the weight 1, as well
    assert model.history_["objective"][3] == pytest.approx(alone.objective_, rel=1e-6)
    assert model.objective_ == pytest.approx(model.history_["objective"].sum())
    np.testing.assert_array_equal(model.cluster_sizes_, np.bincount(nearest))
    assert model.dual_gap_ == model.history_["gap"].max() <= 1e-3
    assert model.status_ == "converged"


def test_landmarks_inside_of_clusters():
    exact = local(n_landmarks=None).fit(X, y)
    few = local(n_landmarks=60).fit(X, y)
    np.testing.assert_array_equal(np.diff(few.support_ends_), 60)
    assert few.score(UNSEEN, TRUTH) > exact.score(UNSEEN, TRUTH) - 0.01
    many = local(n_landmarks=5000).fit(X, y)
    np.testing.assert_array_equal(many.dual_coef_, exact.dual_coef_)


@pytest.mark.parametrize("changes", [{}, {"n_landmarks": 60}])
def test_seeds_decide_and_threads_do_not(changes):
    one, two, other = (
        local(n_jobs=k, random_state=seed, **changes).fit(X, y).decision_function(UNSEEN)
        for k, seed in ((1, 0), (2, 0), (2, 1))
    )
    np.testing.assert_allclose(one, two, atol=1e-9)
    assert np.abs(one - other).max() > 1e-6


def test_an_engine_of_ones_own():
    class Counting(LocalEngine):
        def scatter(self, problem, part, state=None):
            self.shards = super().scatter(problem, part, state)
            return self.shards

    engine = Counting()
    model = local(engine=engine).fit(X, y)
    assert engine.shards.traffic.rounds == 1
    np.testing.assert_array_equal(model.dual_coef_, local().fit(X, y).dual_coef_)


# -- kinds of data --------------------------------------------------------------------------------


def test_a_cluster_of_one_class_says_so():
    A = make_blobs(600, centers=[[0, 0], [50, 50], [100, 0]], random_state=0, shuffle=False)[0]
    b = np.r_[np.zeros(200), np.ones(200), np.arange(200) % 2].astype(int)
    model = LocalODMClassifier(n_clusters=3, gamma=1.0, random_state=0).fit(A, b)
    assert sorted(model.cluster_sizes_) == [200, 200, 200]
    np.testing.assert_array_equal(model.decision_function([[0, 0], [50, 50]]), [-1, 1])
    np.testing.assert_array_equal(model.history_["rows"], 200)  # no row is near another cluster
    assert (model.history_["objective"] == 0).sum() == 2
    assert model.dual_gap_ <= 1e-3


def test_sparse_rows_give_the_same_machine():
    dense, sparse = (local().fit(A, y) for A in (X, sp.csr_array(X)))
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(UNSEEN)), dense.decision_function(UNSEEN), atol=1e-5
    )


def test_single_precision_says_nearly_the_same():
    double, single = (local().fit(A, y) for A in (X, X.astype(np.float32)))
    assert (double.kernel_dtype_, single.kernel_dtype_) == ("float64", "float32")
    assert single.support_vectors_.dtype == np.float32
    assert np.mean(double.predict(UNSEEN) == single.predict(UNSEEN.astype(np.float32))) > 0.995


def test_several_classes_have_a_score_each():
    A, b = load_digits(return_X_y=True)
    names = np.array(list("abcdefghij"))[b]
    model = local(n_clusters=5, gamma=0.001).fit(A[:1200], names[:1200])
    plain = ODMClassifier(multi_class="ovr", gamma=0.001).fit(A[:1200], names[:1200])
    assert model.decision_function(A[1200:]).shape == (597, 10)
    assert model.score(A[1200:], names[1200:]) > plain.score(A[1200:], names[1200:]) - 0.02
    assert margins(model, A[1200:], names[1200:]).shape == (597,)


def test_of_three_classes_a_cluster_may_have_two():
    A = make_blobs(400, centers=[[0, 0], [50, 50]], random_state=0, shuffle=False)[0]
    b = np.r_[np.arange(200) % 2, np.full(200, 2)]
    A[:200, 0] += 6 * b[:200]
    model = LocalODMClassifier(n_clusters=2, gamma=0.1, overlap=0.0, n_asked=1).fit(A, b)
    scores = model.decision_function(A[:200])
    np.testing.assert_allclose(scores[:, 0], -scores[:, 1])
    assert (scores[:, 2] == -1).all()
    assert (model.decision_function(A[200:]) == [-1, -1, 1]).all()
    assert model.score(A, b) > 0.99


# -- manners --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_matrix])
def test_files_and_pickles_bring_it_back(rows, tmp_path):
    model = local().fit(rows(X), y)
    model.save(tmp_path / "local.safetensors")
    for copy in (load(tmp_path / "local.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(
            copy.decision_function(rows(UNSEEN)), model.decision_function(rows(UNSEEN))
        )
        assert copy.get_params() == model.get_params()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0), ("n_clusters", "many"), ("n_asked", 0), ("overlap", -0.1),
        ("kernel", "precomputed"), ("n_landmarks", 0), ("landmarks", "kmeans"), ("engine", 3),
        ("lam", 0.0), ("theta", 1.0), ("memory_limit", "much"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        local(**{name: value}).fit(X, y)


def test_a_time_limit_is_kept_and_told():
    model = local(time_limit=1e-6, lam=1e6, n_landmarks=100)
    with pytest.warns(ConvergenceWarning, match="raise time_limit"):
        model.fit(X, y)
    assert model.status_ == "time_limit"
    assert model.score(UNSEEN, TRUTH) > 0.5


def test_an_interrupt_changes_nothing(monkeypatch):
    model = local().fit(X, y)
    before = dict(vars(model))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("optimargin.solvers.local.make_gram", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:1000], y[:1000])
    assert vars(model) == before
    assert vars(clone(model)).keys() < vars(model).keys()


def test_it_says_what_it_does(capsys):
    local(verbose=1).fit(X, y)
    said = capsys.readouterr().out
    assert "8 clusters of" in said
    assert "8 of 8 clusters converged" in said
