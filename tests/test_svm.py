"""Support vector machines: those of LinearSVC and SVC, wherever their rows are."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import optimargin
from optimargin import LinearODMClassifier, LinearSVMClassifier, ODMClassifier, SVMClassifier
from optimargin.engines.local import LocalEngine

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)[::2]
y = y[::2]
IRIS, KIND = load_iris(return_X_y=True)
IRIS = StandardScaler().fit_transform(IRIS)
C = 0.02
losses = pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
ON_PARTS = ("bqo", "disdca", "dsvm-ave", "admm", "admm-acc")


def liblinear(loss, X=X, y=y, weight=None, **given):
    peer = LinearSVC(loss=loss, C=C, tol=1e-10, max_iter=10**7, dual=True, random_state=0, **given)
    return peer.fit(X, y, sample_weight=weight)


def objective(model, loss, X=X, y=y, weight=None):
    w, u = np.append(model.coef_, model.intercept_), (2 * y - 1) * model.decision_function(X)
    short = np.maximum(1 - u, 0) ** (1 if loss == "hinge" else 2)
    return 0.5 * w @ w + C * (short if weight is None else weight * short).sum()


@losses
@pytest.mark.parametrize("solver", ["auto", "dcd", "newton", *ON_PARTS])
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_it_is_liblinears_machine(loss, solver, rows):
    best = objective(liblinear(loss), loss)
    model = LinearSVMClassifier(
        loss=loss, C=C, solver=solver, n_partitions=3, tol=1e-4, max_iter=5000, random_state=0
    ).fit(rows(X), y)
    assert model.dual_gap_ <= 1e-4
    assert objective(model, loss) == pytest.approx(model.objective_, rel=1e-9)
    assert best * (1 - 1e-9) <= model.objective_ <= best * (1 + 1.01e-4)
    assert hasattr(model, "traffic_") == (solver in ON_PARTS)
    assert solver in ("auto", model.solver_)


@losses
def test_weights_and_class_weights_multiply_losses(loss):
    weight = np.where(np.arange(len(y)) % 3, 1.0, 2.0) * np.where(y == 1, 0.5, 1.0)
    best = objective(liblinear(loss, weight=weight), loss, weight=weight)
    model = LinearSVMClassifier(loss=loss, C=C, class_weight={0: 1.0, 1: 0.5}, tol=1e-6)
    model.fit(X, y, np.where(np.arange(len(y)) % 3, 1.0, 2.0))
    assert model.objective_ == pytest.approx(best, rel=2e-6)


@losses
@pytest.mark.parametrize("solver", ["bqo", "admm"])
def test_classes_against_the_rest_share_their_rounds(loss, solver):
    given = {"loss": loss, "C": 0.1, "tol": 1e-3, "random_state": 0}
    model = LinearSVMClassifier(solver=solver, n_partitions=3, **given).fit(IRIS, KIND)
    plain = LinearSVMClassifier(**{**given, "tol": 1e-6}).fit(IRIS, KIND)
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1.1e-3)
    assert (model.dual_gap_ <= 1e-3).all()
    assert model.traffic_["rounds"] == model.n_iter_ + 1
    assert np.mean(model.predict(IRIS) == plain.predict(IRIS)) > 0.98
    peer = LinearSVC(loss=loss, C=0.1, tol=1e-8, max_iter=10**6, dual=True).fit(IRIS, KIND)
    np.testing.assert_allclose(plain.coef_, peer.coef_, atol=0.02)
    assert not np.isnan(model.history_["gap"]).any()


@losses
def test_pairs_keep_their_C(loss):
    model = LinearSVMClassifier(loss=loss, C=C, multi_class="ovo", tol=1e-8).fit(IRIS, KIND)
    for k, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        inside = (i == KIND) | (j == KIND)
        peer = liblinear(loss, IRIS[inside], KIND[inside] == j)
        np.testing.assert_allclose(model.coef_[k], peer.coef_[0], atol=1e-3)
    assert model.predict(IRIS).shape == KIND.shape


@pytest.mark.parametrize("kind", [LinearSVMClassifier, LinearODMClassifier])
def test_armijo_steps_are_other_steps(kind):
    exact, armijo = (
        kind(solver="bqo", line_search=how, n_partitions=3, tol=1e-2, random_state=0).fit(X, y)
        for how in ("exact", "armijo")
    )
    assert armijo.solver_ == exact.solver_ == "bqo"
    assert armijo.dual_gap_ <= 1e-2
    assert not np.array_equal(armijo.coef_, exact.coef_)


def test_a_stiff_hinge_is_rounded_and_certified():
    """Where coordinate descent would need thousands of epochs."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(600, 6))
    a = A @ rng.normal(size=6) + rng.normal(size=600) > 0
    best = LinearSVC(loss="hinge", C=50.0, tol=1e-8, max_iter=10**6).fit(A, a)
    w, u = np.append(best.coef_, best.intercept_), (2 * a - 1) * best.decision_function(A)
    theirs = 0.5 * w @ w + 50.0 * np.maximum(1 - u, 0).sum()
    for rows in (A, sp.csr_array(A)):
        model = LinearSVMClassifier(C=50.0, tol=1e-6).fit(rows, a)
        assert model.solver_ == "newton"
        assert model.dual_gap_ <= 1e-6
        assert model.objective_ <= theirs * (1 + 1.1e-6)
        assert np.isfinite(model.loo_bound_)
        warm = LinearSVMClassifier(C=50.0, tol=1e-6, warm_start=True).fit(rows, a)
        assert warm.fit(rows, a).n_iter_ <= model.n_iter_ // 2
    assert LinearSVMClassifier(C=1e-3).fit(A, a).solver_ == "dcd"


def test_classes_share_newtons_rounds_with_the_hinge():
    given = {"C": 0.1, "random_state": 0}
    model = LinearSVMClassifier(
        solver="newton", engine=LocalEngine(), n_partitions=3, tol=1e-4, **given
    ).fit(IRIS, KIND)
    plain = LinearSVMClassifier(solver="dcd", tol=1e-6, **given).fit(IRIS, KIND)
    assert (model.dual_gap_ <= 1e-4).all()
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1.1e-4)
    alone = [
        LinearSVMClassifier(
            solver="newton", engine=LocalEngine(), n_partitions=3, tol=1e-4, **given
        ).fit(IRIS, kind == KIND)
        for kind in range(3)
    ]
    assert model.traffic_["rounds"] == max(one.traffic_["rounds"] for one in alone)


def test_an_engine_chooses_by_the_loss():
    given = {"engine": LocalEngine(), "C": C, "n_partitions": 3, "random_state": 0}
    assert LinearSVMClassifier(loss="squared_hinge", **given).fit(X, y).solver_ == "newton"
    model = LinearSVMClassifier(loss="hinge", **given).fit(X, y)
    assert model.dual_gap_ <= 1e-4
    assert np.isnan(model.loo_bound_)  # the dual variables are with the parts
    assert model.solver_ == "bqo"
    few = LinearSVMClassifier(loss="hinge", **given).fit(X[:, :4], y)  # many rows to a feature
    assert few.solver_ == "newton"
    assert few.dual_gap_ <= 1e-4


@pytest.mark.parametrize("solver", ["tron", "dsvrg", "csvrg"])
def test_a_solver_that_needs_a_slope_says_so(solver):
    with pytest.raises(ValueError, match=f"solver='{solver}' needs a loss with a slope .* loss="):
        LinearSVMClassifier(solver=solver).fit(X, y)
    with pytest.raises(ValueError, match=f"solver='{solver}' needs a loss with a slope"):
        LinearSVMClassifier(solver=solver, engine=LocalEngine()).fit(IRIS, KIND)


def test_what_cannot_be_is_refused():
    for wrong in ({"loss": "log"}, {"C": 0.0}, {"line_search": "none"}, {"multi_class": "mcodm"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LinearSVMClassifier(**wrong).fit(X, y)
    with pytest.raises(ValueError, match="needs all rows in one place"):
        LinearSVMClassifier(solver="dcd", engine=LocalEngine()).fit(X, y)


def test_one_average_is_an_answer_without_a_warning():
    model = LinearSVMClassifier(solver="pa", n_partitions=3, random_state=0).fit(X, y)
    assert model.status_ == "averaged"
    assert model.n_iter_ == 1
    assert model.dual_gap_ > 1e-4


def test_model_files_and_copies(tmp_path):
    model = LinearSVMClassifier(solver="admm", n_partitions=2, engine=LocalEngine(), tol=1e-3)
    model.fit(X, y).save(tmp_path / "model")
    again = optimargin.load(tmp_path / "model")
    assert again.engine is None
    assert again.traffic_ == model.traffic_
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert clone(again).get_params()["solver"] == "admm"


def test_verbose_machines_take_turns(capsys):
    model = LinearSVMClassifier(solver="admm", n_partitions=2, tol=1e-2, verbose=1, C=C)
    quiet = clone(model).set_params(verbose=0, random_state=0).fit(IRIS, KIND)
    model.set_params(random_state=0).fit(IRIS, KIND)
    np.testing.assert_array_equal(model.coef_, quiet.coef_)
    assert "LinearSVMClassifier" in capsys.readouterr().out


def test_warm_starts_go_on():
    model = LinearSVMClassifier(solver="admm", C=C, warm_start=True, random_state=0, tol=1e-3)
    first = model.fit(X, y).n_iter_
    assert model.fit(X, y).n_iter_ <= first
    assert model.dual_gap_ <= 1e-3


# -- with a kernel -------------------------------------------------------------------------

CASCADES = {
    "Cascade": {"partition": "random", "survivors": True, "fan_in": 2},
    "DC": {"partition": "kmeans"},
    "DiP": {"partition": "kmeans-strata", "survivors": True},
}


def kernel_objective(model, loss):
    f = model.decision_function(X)
    short = np.maximum(1 - (2 * y - 1) * f, 0) ** (1 if loss == "hinge" else 2)
    return 0.5 * model.dual_coef_[0] @ f[model.support_] + short.sum()


def test_with_a_kernel_it_is_the_machine_of_svc():
    """The intercept of SVC is free, so it is compared where none is needed: on mirrored rows."""
    A, a = np.vstack([X, -X]), np.append(y, 1 - y)
    theirs = SVC(kernel="linear", C=0.1, tol=1e-8).fit(A, a)
    ours = SVMClassifier(kernel="linear", C=0.1, tol=1e-8, max_iter=10**5).fit(A, a)
    assert abs(theirs.intercept_[0]) < 1e-6
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


def test_the_squared_hinge_is_an_odm_without_an_upper_side():
    ours = SVMClassifier(loss="squared_hinge", C=0.5, tol=1e-8).fit(X, y)
    odm = ODMClassifier(lam=0.5 * len(y), mu=0, theta=0, tol=1e-8).fit(X, y)
    assert ours.objective_ == pytest.approx(odm.objective_, rel=1e-7)
    np.testing.assert_allclose(ours.decision_function(X), odm.decision_function(X), atol=1e-3)


@losses
@pytest.mark.parametrize("rival", CASCADES)
def test_parts_make_cascade_dc_and_dip(loss, rival):
    exact = SVMClassifier(loss=loss, tol=1e-6, max_iter=10**5).fit(X, y)
    model = SVMClassifier(
        loss=loss, solver="sodm", n_partitions=4, random_state=0, **CASCADES[rival]
    ).fit(X, y)
    assert kernel_objective(exact, loss) == pytest.approx(exact.objective_, rel=1e-6)
    assert model.solver_ == "sodm"
    assert model.traffic_["rounds"] > 0
    best = 1.001 if rival == "DC" else 1.1  # survivors are fewer rows
    assert exact.objective_ * (1 - 1e-6) <= kernel_objective(model, loss)
    assert kernel_objective(model, loss) <= best * exact.objective_
    assert model.score(X, y) > exact.score(X, y) - 0.01


def test_a_kernel_machine_is_saved_and_cloned(tmp_path):
    model = SVMClassifier(solver="sodm", n_partitions=2, random_state=0, **CASCADES["DiP"])
    model = clone(model).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    again = optimargin.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert SVMClassifier(multi_class="ovo").fit(IRIS, KIND).score(IRIS, KIND) > 0.95
    with pytest.raises(ValueError, match="kernel='precomputed'"):
        SVMClassifier(kernel="precomputed", solver="sodm").fit(X @ X.T, y)
