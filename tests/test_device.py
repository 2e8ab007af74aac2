"""Arrays of other libraries: the same machines as with NumPy, wherever the arrays are."""

import importlib.util
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_classification

import optimargin
from optimargin import LDMClassifier, LinearODMClassifier, LinearSVMClassifier, ODMClassifier
from optimargin import device as devices
from optimargin.arrays import on_host
from optimargin.estimators import workplace


def _strict(x):
    import array_api_strict

    return array_api_strict.asarray(np.ascontiguousarray(x))


def _torch(place):
    def array(x):
        import torch

        return torch.asarray(np.ascontiguousarray(x), device=place)

    return array


def _cupy(x):
    import cupy

    return cupy.asarray(x)


def _has_gpu():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


LIBRARIES = [pytest.param(_strict, id="strict")]
if importlib.util.find_spec("torch") is not None:
    LIBRARIES.append(pytest.param(_torch("cpu"), id="torch"))
if _has_gpu():
    LIBRARIES.append(pytest.param(_torch("cuda"), id="cuda", marks=pytest.mark.gpu))
    if importlib.util.find_spec("cupy") is not None:
        LIBRARIES.append(pytest.param(_cupy, id="cupy", marks=pytest.mark.gpu))
if importlib.util.find_spec("array_api_strict") is None:  # where nothing can be installed
    LIBRARIES = LIBRARIES[1:]

X, Y = make_classification(600, 6, n_informative=4, random_state=0)
X3, Y3 = make_classification(500, 7, n_informative=5, n_classes=3, random_state=1)
WEIGHT = np.random.default_rng(0).integers(0, 3, len(Y)).astype(float)


def agree(model, reference, array, rows, labels, tol=1e-8):
    """Objective, scores, predictions and bounds of two fits, and the types of the answers."""
    A = array(rows)
    np.testing.assert_allclose(model.objective_, reference.objective_, rtol=tol)
    scores, found = model.decision_function(A), model.predict(A)
    assert type(scores) is type(A)
    assert type(found) is type(A)
    size = np.abs(reference.decision_function(rows)).max()
    np.testing.assert_allclose(
        on_host(scores), reference.decision_function(rows), atol=np.sqrt(tol) * size
    )
    np.testing.assert_allclose(model.loo_bound_, reference.loo_bound_, rtol=np.sqrt(tol))
    assert model.score(A, array(labels)) == pytest.approx(reference.score(rows, labels), abs=0.005)
    for name, value in vars(model).items():
        if name.endswith("_") and hasattr(value, "shape"):
            assert isinstance(value, np.ndarray | np.generic), name


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize(
    "arguments",
    [{}, {"fit_intercept": False, "mu": 0.0, "theta": 0.0}, {"class_weight": "balanced"}],
    ids=str,
)
def test_linear_machines_are_the_same(array, arguments):
    model, reference = (LinearODMClassifier(tol=1e-9, lam=500.0, **arguments) for _ in "ab")
    model.fit(array(X), array(Y), array(WEIGHT))
    agree(model, reference.fit(X, Y, WEIGHT), array, X, Y)
    assert model.dual_gap_ <= 1e-9


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize("kind", ["ovr", "ovo"])
def test_several_classes_are_machines_on_the_device(array, kind):
    model, reference = (LinearODMClassifier(tol=1e-9, multi_class=kind) for _ in "ab")
    agree(model.fit(array(X3), array(Y3)), reference.fit(X3, Y3), array, X3, Y3)


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "poly", "callable"])
def test_exact_kernel_machines_are_the_same(array, kernel):
    own = (lambda A, B: (A @ B.T / 8.0 + 1.0) ** 2) if kernel == "callable" else kernel
    settings = {"kernel": own, "lam": 1e4, "fit_intercept": True, "degree": 2.0}
    model, reference = (ODMClassifier(solver="newton", tol=1e-9, **settings) for _ in "ab")
    agree(model.fit(array(X), array(Y), array(WEIGHT)), reference.fit(X, Y, WEIGHT), array, X, Y)
    assert model.solver_ == "newton"


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize("factored", [0, 10_000])
def test_many_rows_are_solved_by_guided_conjugate_gradients(array, factored, monkeypatch):
    from optimargin.kernelmatrix import KernelMatrix

    monkeypatch.setattr(KernelMatrix, "exact_up_to", 50)
    monkeypatch.setattr(KernelMatrix, "factored_up_to", factored)
    model = ODMClassifier(solver="newton", lam=1e4, tol=1e-6).fit(array(X), array(Y))
    reference = ODMClassifier(solver="newton", lam=1e4).fit(X, Y)
    assert model.dual_gap_ <= 1e-6
    agree(model, reference, array, X, Y, tol=1e-5)


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize("rule", ["random", "greedy", "kmeans", "rows"])
def test_machines_over_the_same_landmarks_are_the_same(array, rule):
    settings = {"solver": "landmark", "random_state": 0, "precision": "double", "lam": 1e4}
    settings |= {"n_landmarks": 60, "landmarks": X[:60] if rule == "rows" else rule}
    model, reference = (ODMClassifier(tol=1e-7, **settings) for _ in "ab")
    agree(model.fit(array(X), array(Y), array(WEIGHT)), reference.fit(X, Y, WEIGHT), array, X, Y)
    assert model.solver_ == "landmark"
    np.testing.assert_array_equal(model.support_, reference.support_)
    assert model.residual_ == pytest.approx(reference.residual_)
    assert model.exact_gap_ == pytest.approx(reference.exact_gap_, rel=1e-5)


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize("count", [50, "auto"])
@pytest.mark.parametrize("rule", ["margin", "random"])
def test_landmarks_are_chosen_on_the_device(array, rule, count):
    settings = {"landmarks": rule, "n_landmarks": count, "multi_class": "ovr", "random_state": 0}
    model = ODMClassifier(solver="landmark", **settings).fit(array(X3), array(Y3))
    reference = ODMClassifier(solver="landmark", **settings).fit(X3, Y3)
    assert (model.dual_gap_ <= 1e-3).all()
    assert model.score(array(X3), array(Y3)) >= reference.score(X3, Y3) - 0.03
    assert model.residual_ <= 2.0 * reference.residual_ + 1e-3
    # with the landmarks it found, the machine is the one that NumPy finds
    settings |= {"landmarks": model.support_vectors_, "tol": 1e-6, "precision": "double"}
    again = ODMClassifier(solver="landmark", **settings)
    np.testing.assert_allclose(
        again.fit(array(X3), array(Y3)).objective_, again.fit(X3, Y3).objective_, rtol=1e-5
    )


@pytest.mark.parametrize("array", LIBRARIES)
def test_one_machine_of_several_classes_goes_to_the_cpu(array):
    for settings in ({"solver": "landmark", "n_landmarks": 40}, {}):
        model, reference = (ODMClassifier(random_state=0, **settings) for _ in "ab")
        model.fit(array(X3), array(Y3))
        reference.fit(X3, Y3)
        assert model.score(array(X3), array(Y3)) >= reference.score(X3, Y3) - 0.02
        assert model.predict(array(X3)).shape == (500,)


@pytest.mark.parametrize("array", LIBRARIES)
@pytest.mark.parametrize("room", [0.0, 3e4, 2e5])
def test_what_does_not_fit_is_made_again(array, room, monkeypatch):
    settings = {"solver": "landmark", "landmarks": "random", "n_landmarks": 40, "tol": 1e-6}
    settings |= {"random_state": 0, "precision": "double"}
    reference = ODMClassifier(**settings).fit(X, Y)
    for module in ("device", "features", "kernelmatrix"):
        monkeypatch.setattr(f"optimargin.{module}.free_bytes", lambda like: room)
    model = ODMClassifier(**settings).fit(array(X), array(Y))
    agree(model, reference, array, X, Y, tol=1e-6)
    exact = ODMClassifier(solver="newton").fit(array(X), array(Y))
    agree(exact, ODMClassifier(solver="newton").fit(X, Y), array, X, Y, tol=1e-6)


@pytest.mark.parametrize("array", LIBRARIES)
def test_rows_that_stay_on_the_host_are_moved_in_blocks(array, monkeypatch):
    like = array(np.zeros((0, 0)))
    for name in ("classifier", "large"):  # as device="cuda" would find it
        module = f"optimargin.estimators.{name}.workplace"
        monkeypatch.setattr(module, lambda X, device, work: like, raising=name == "classifier")
    monkeypatch.setattr(workplace, "_WHOLE", 0.0)
    for make in (
        lambda: LinearODMClassifier(tol=1e-8),
        lambda: ODMClassifier(solver="landmark", landmarks="random", n_landmarks=40, tol=1e-6,
                              precision="double", random_state=0),
    ):  # fmt: skip
        model = make().fit(X, Y)
        assert isinstance(model.predict(X), np.ndarray)
        moved = model.decision_function(X)
        monkeypatch.undo()
        reference = make().fit(X, Y)
        np.testing.assert_allclose(model.objective_, reference.objective_, rtol=1e-7)
        np.testing.assert_allclose(moved, reference.decision_function(X), atol=1e-3)
        monkeypatch.setattr(
            "optimargin.estimators.classifier.workplace", lambda X, device, work: like
        )
        monkeypatch.setattr(workplace, "_WHOLE", 0.0)


def test_work_that_runs_out_of_memory_goes_on_in_smaller_blocks():
    class OutOfMemoryError(RuntimeError):
        pass

    def work(rows):
        if rows.stop - rows.start > 300:
            raise OutOfMemoryError
        return list(range(rows.start, rows.stop))

    found = devices.in_smaller_blocks(work, slice(10, 2000))
    assert [row for part in found for row in part] == list(range(10, 2000))
    with pytest.raises(OutOfMemoryError):
        devices.in_smaller_blocks(lambda rows: work(slice(0, 301)), slice(0, 2000))
    with pytest.raises(ZeroDivisionError):
        devices.in_smaller_blocks(lambda rows: 1 // 0, slice(0, 2000))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("size", [5, 1024, 1500])
def test_half_precision_features_are_rounded_once(size):
    import torch

    rng = np.random.default_rng(size)
    place = "cuda" if _has_gpu() else "cpu"
    K = torch.asarray(rng.random((40, size)), device=place)
    # as much on the diagonal as keeps the inverse of a random triangle finite
    M = np.tril(rng.normal(size=(size, size)) / np.sqrt(size)) + 2.0 * np.eye(size)
    M = torch.asarray(20.0 * M, device=place)
    M /= (K @ M.T).abs().max(dim=0).values[:, None]
    triangle = devices.Triangle(M, "float16")
    found = triangle.applied(K.float()).double()
    # half a unit in the last place of half precision, and what single precision leaves
    torch.testing.assert_close(found, K @ triangle.N.double().T, rtol=2.0**-11 * 1.01, atol=2e-6)
    # the rounded triangle and the twist are the exact one
    torch.testing.assert_close(triangle.twist @ triangle.N.double(), M, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("count", [1, 3, 9])
def test_products_with_half_precision_are_as_good_as_single(count):
    import torch

    rng = np.random.default_rng(count)
    place = "cuda" if _has_gpu() else "cpu"
    A = torch.asarray(rng.normal(size=(300, 64)), device=place).half()
    W = torch.asarray(rng.normal(size=(64, count)) * 10.0 ** rng.integers(-6, 6, count))
    W = W.to(place)
    for B, w in ((A, W), (A.T, torch.cat([W] * 5)[:300])):
        exact = B.double() @ w
        error = (devices.times(B, w) - exact).abs().max(dim=0).values
        assert bool((error <= 1e-6 * exact.abs().max(dim=0).values).all())


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_rounding_that_shows_is_made_good_in_higher_precision(monkeypatch):
    import torch

    monkeypatch.setattr("optimargin.estimators.large.has_half", lambda like: True)
    settings = {"solver": "landmark", "landmarks": "random", "n_landmarks": 60, "lam": 1e4}
    settings |= {"random_state": 0, "tol": 1e-8}

    def objective(precision):
        A, a = torch.asarray(X), torch.asarray(Y)
        model = ODMClassifier(precision=precision, **settings).fit(A, a)
        assert model.dual_gap_ <= 1e-8
        return model.objective_

    single = objective("single")
    assert objective("half") == pytest.approx(single, rel=1e-6)
    monkeypatch.setattr(
        "optimargin.solvers.choose.refined", lambda problem, machines, found, stop, seed: found
    )
    alone = objective("half")
    assert alone == pytest.approx(single, rel=1e-4)
    assert abs(alone - single) > 1e-7 * single  # so there was something to make good


@pytest.mark.parametrize("array", LIBRARIES)
def test_models_are_saved_and_used_without_the_device(array, tmp_path):
    model = ODMClassifier(solver="newton").fit(array(X), array(Y))
    expected = on_host(model.decision_function(array(X)))
    for other in (pickle.loads(pickle.dumps(model)), _saved(model, tmp_path / "m.safetensors")):
        np.testing.assert_allclose(other.decision_function(X), expected, atol=1e-9)
        assert isinstance(other.predict(X), np.ndarray)
        assert type(other.predict(array(X))) is type(array(X))


def _saved(model, path):
    model.save(path)
    return optimargin.load(path)


@pytest.mark.parametrize("array", LIBRARIES)
def test_labels_that_are_text_come_back_as_text(array):
    names = np.array(["no", "yes"])[Y]
    model = LinearODMClassifier().fit(array(X), names)
    np.testing.assert_array_equal(np.unique(model.predict(array(X))), ["no", "yes"])
    assert model.score(array(X), names) > 0.6


@pytest.mark.parametrize("array", LIBRARIES)
def test_a_fit_goes_on_where_the_last_one_ended(array):
    A, a = array(X), array(Y)
    for make in (
        lambda **k: LinearODMClassifier(solver="newton", **k),
        lambda **k: ODMClassifier(solver="landmark", n_landmarks=30, random_state=0, **k),
        lambda **k: ODMClassifier(solver="newton", **k),
    ):
        model = make(warm_start=True, lam=1e4).fit(A, a)
        first = model.objective_
        assert model.fit(A, a).n_iter_ <= 1
        assert model.objective_ == pytest.approx(first, rel=2e-3)


@pytest.mark.parametrize("array", LIBRARIES)
def test_bad_input_is_refused_in_a_sentence(array):
    A, a = array(X), array(Y)
    bad = X.copy()
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        LinearODMClassifier().fit(array(bad), a)
    with pytest.raises(ValueError, match="2D array"):
        LinearODMClassifier().fit(array(X[:, 0]), a)
    with pytest.raises(ValueError, match="2D array"):
        ODMClassifier().fit(array(X[:, 0]), a)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ODMClassifier().fit(A, a[:-1])
    with pytest.raises(ValueError, match="two classes"):
        LinearODMClassifier().fit(A, array(np.zeros(len(Y), dtype=int)))
    with pytest.raises(ValueError, match="'dcd' works on NumPy arrays"):
        ODMClassifier(solver="dcd").fit(A, a)
    with pytest.raises(TypeError, match="LDMClassifier takes NumPy arrays"):
        LDMClassifier().fit(A, a)
    model = LinearODMClassifier().fit(A, a)
    with pytest.raises(ValueError, match="expecting 6 features"):
        model.predict(array(X[:, :4]))


@pytest.mark.parametrize("array", LIBRARIES)
def test_device_cpu_brings_rows_to_the_compiled_solvers(array):
    model = LinearODMClassifier(solver="dcd", device="cpu").fit(array(X), array(Y))
    assert model.solver_ == "dcd"
    assert type(model.predict(array(X))) is type(array(X))
    svm = LinearSVMClassifier(loss="hinge", device="cpu").fit(array(X), array(Y))
    assert svm.score(array(X), array(Y)) > 0.6


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="device must be None"):
        LinearODMClassifier(device="tpu").fit(X, Y)
    if not _has_gpu():
        with pytest.raises(ValueError, match="needs a GPU"):
            ODMClassifier(device="cuda").fit(X, Y)
    assert ODMClassifier(device="auto").fit(X, Y).score(X, Y) > 0.8


def test_small_work_stays_on_the_cpu_and_text_is_no_number():
    model = ODMClassifier(device="auto", solver="dcd").fit(X, Y)  # no device knows this solver
    assert model.solver_ == "dcd"


def test_a_checkout_needs_four_packages():
    """What the command line and files need is not asked for by an import or a fit."""
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"psutil", "safetensors", "rich", "typer", "pyarrow",
                                  "matplotlib", "pandas", "pyspark"}:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import numpy as np
from optimargin import LinearODMClassifier, ODMClassifier
X = np.random.default_rng(0).normal(size=(200, 5))
y = (X[:, 0] > 0).astype(int)
for model in (LinearODMClassifier(), ODMClassifier(solver="landmark", n_landmarks=20)):
    assert model.fit(X, y).score(X, y) > 0.9
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not _has_gpu(), reason="there is no GPU")
@pytest.mark.parametrize("precision", ["half", "single", "double"])
def test_precisions_find_the_same_machine_on_a_gpu(precision):
    import torch

    rng = np.random.default_rng(0)
    A = rng.normal(size=(40_000, 8)).astype(np.float32)
    a = (np.sin(2.0 * A[:, 0]) + A[:, 1] * A[:, 2] > 0.0).astype(int)
    settings = {"solver": "landmark", "landmarks": "random", "n_landmarks": 500, "tol": 1e-7}
    settings |= {"gamma": 0.1, "lam": 1e4, "random_state": 0}
    reference = ODMClassifier(precision="double", **settings).fit(A, a)
    model = ODMClassifier(precision=precision, **settings)
    model.fit(torch.asarray(A, device="cuda"), torch.asarray(a, device="cuda"))
    tolerance = {"half": 1e-4, "single": 1e-5, "double": 1e-8}[precision]
    assert model.objective_ == pytest.approx(reference.objective_, rel=tolerance)
    moved = ODMClassifier(precision=precision, device="cuda", **settings).fit(A, a)
    assert moved.objective_ == pytest.approx(model.objective_, rel=1e-6)
    assert isinstance(moved.predict(A), np.ndarray)


@pytest.mark.gpu
@pytest.mark.skipif(not _has_gpu(), reason="there is no GPU")
def test_a_full_gpu_is_no_reason_to_fail():
    import torch

    rng = np.random.default_rng(0)
    A = torch.asarray(rng.normal(size=(300_000, 8)).astype(np.float32), device="cuda")
    a = (A[:, 0] * A[:, 1] > 0.0).long()
    settings = {"landmarks": "random", "n_landmarks": 1000, "random_state": 0, "gamma": 0.1}
    expected = ODMClassifier(solver="landmark", **settings).fit(A, a).objective_
    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(int(free) - (900 << 20), dtype=torch.uint8, device="cuda")
    found = ODMClassifier(solver="landmark", **settings).fit(A, a).objective_
    del taken
    assert found == pytest.approx(expected, rel=2e-3)
