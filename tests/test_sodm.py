"""SODM and its rivals: certificates, equality with the exact machine, and manners."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_moons

import optimargin
from optimargin import LocalODMClassifier, ODMClassifier
from optimargin.engines.local import LocalEngine
from optimargin.gram import make_gram
from optimargin.kernels import RBF
from optimargin.loss import hinge, odm, squared_hinge
from optimargin.problem import Problem, Start, Stop
from optimargin.solvers.parting import Parting
from optimargin.solvers.sodm import SODM

X, y = make_moons(900, noise=0.2, random_state=0)
UNSEEN, TRUTH = make_moons(1000, noise=0.2, random_state=1)
RULES = ("stratified", "random", "kmeans", "kmeans-strata", "blocks")


def sodm(**changes):
    given = {"solver": "sodm", "n_partitions": 8, "fan_in": 2, "gamma": 2.0, "lam": 1e3}
    return ODMClassifier(**{**given, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def exact():
    return ODMClassifier(gamma=2.0, lam=1e3, solver="newton", tol=1e-12).fit(X, y)


def test_one_part_is_the_exact_machine(exact):
    model = sodm(n_partitions=1, tol=1e-12).fit(X, y)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    # |f(x) - f*(x)|^2 <= 2 (P - P*) K(x, x), twice, because both machines are certified
    far = 2 * np.sqrt(2 * 1e-12 * exact.objective_)
    np.testing.assert_allclose(
        model.decision_function(UNSEEN), exact.decision_function(UNSEEN), rtol=0.0, atol=far
    )
    assert model.solver_ == "sodm"
    assert model.status_ == "converged"


@pytest.mark.parametrize("partition", RULES)
@pytest.mark.parametrize("merge", ["auto", "rescaled", "blend", "concatenate", "same"])
def test_all_merges_lead_to_the_machine_of_all_rows(partition, merge, exact):
    model = sodm(partition=partition, merge=merge, tol=1e-5).fit(X, y)
    assert model.status_ == "converged"
    assert model.dual_gap_ <= 1e-5
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-5)
    ahead = partition != "kmeans" if merge == "auto" else merge == "blend"
    levels = 4 + ahead  # 8, 4, 2 and 1 parts; in the last, rows with a say may go ahead
    assert model.history_["round"][-1] == model.n_iter_ == levels


def test_rows_with_a_say_go_ahead_after_the_last_merge(exact):
    """They make nearly the machine of all rows, which is what comes next."""
    model = sodm(tol=1e-6).fit(X, y)
    *_, before, ahead, last = model.history_["objective"]
    assert last == pytest.approx(exact.objective_, rel=1e-6)
    assert last < ahead < min(before, 1.05 * last)
    assert model.status_ == "converged"
    assert (
        len(model.history_["objective"])
        == len(sodm(merge="rescaled").fit(X, y).history_["gap"]) + 1
    )


@pytest.mark.parametrize("partition", ["random", "kmeans", "kmeans-strata"])
def test_survivors_make_about_the_same_machine(partition, exact):
    model = sodm(partition=partition, survivors=True).fit(X, y)
    assert exact.objective_ * (1 - 1e-6) <= model.objective_ < 1.3 * exact.objective_
    assert model.score(UNSEEN, TRUTH) > exact.score(UNSEEN, TRUTH) - 0.01


def test_the_average_of_stratified_parts_is_close_already(exact):
    model = sodm(levels=1).fit(X, y)
    assert model.status_ == "levels"
    assert model.n_iter_ == 1
    assert exact.objective_ < model.objective_ < 1.1 * exact.objective_
    assert model.score(UNSEEN, TRUTH) > exact.score(UNSEEN, TRUTH) - 0.01
    assert model.dual_gap_ >= 1.0 - exact.objective_ / model.objective_


def test_the_objective_and_gap_of_an_average_are_true():
    """All rows are the sample, so what a level says of its machine can be checked."""
    model = sodm(levels=2).fit(X, y)
    K = np.exp(-2.0 * ((X[:, None] - X) ** 2).sum(axis=2))
    b = np.zeros(len(X))
    b[model.support_] = model.dual_coef_[0]
    u = np.where(y == 1, 1.0, -1.0) * (K @ b)
    low, high = np.maximum(0.9 - u, 0.0), np.maximum(u - 1.1, 0.0)
    loss = 1e3 / len(X) / 0.81 * (low @ low + 0.5 * high @ high)
    assert model.objective_ == pytest.approx(0.5 * b @ K @ b + loss, rel=1e-9)


def test_a_start_that_is_rescaled_is_better_than_the_printed_one():
    """The average is near the answer; as many times as it has parts is far beyond."""
    average = sodm(levels=1, partition="stratified").fit(X, y)
    f = average.decision_function(X)
    u, norm2 = np.where(y == 1, f, -f), float(average.dual_coef_[0] @ f[average.support_])

    def objective(times):
        low, high = np.maximum(0.9 - times * u, 0.0), np.maximum(times * u - 1.1, 0.0)
        loss = 1e3 / len(X) / 0.81 * (low @ low + 0.5 * high @ high)
        return 0.5 * times**2 * norm2 + loss

    assert objective(1.0) < 0.2 * objective(0.0) < objective(8.0)


def test_it_stops_when_a_merge_changes_nothing():
    model = sodm(tol=0.05).fit(X, y)
    assert model.n_iter_ < 4
    assert model.status_ in ("levels", "converged")


def test_threads_do_not_matter_and_seeds_do():
    one, two = (sodm(n_jobs=k, levels=2).fit(X, y) for k in (1, 2))
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    other = sodm(random_state=1, levels=2).fit(X, y)
    assert other.objective_ != one.objective_


def test_weights_count_as_repetitions():
    """Parts differ, so only the machine of all rows is the same."""
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    weighted = sodm(tol=1e-7).fit(X, y, sample_weight=counts)
    repeated = sodm(tol=1e-7).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)


@pytest.mark.parametrize("weight", [None, 1.0 + np.arange(len(X)) % 3])
def test_sparse_rows_and_a_constant(weight):
    dense = sodm(levels=2, fit_intercept=True).fit(X, y, sample_weight=weight)
    sparse = sodm(levels=2, fit_intercept=True).fit(sp.csr_matrix(X), y, sample_weight=weight)
    np.testing.assert_allclose(
        dense.decision_function(UNSEEN), sparse.decision_function(UNSEEN), atol=1e-3
    )


def test_every_class_against_the_rest():
    three = np.where(X[:, 0] > 1.0, 2, y)
    model = sodm(multi_class="ovr").fit(X, three)
    assert model.score(X, three) > 0.93
    with pytest.raises(ValueError, match="multi_class='ovr'"):
        sodm().fit(X, three)


def test_a_validation_set_is_judged_at_every_level():
    model = sodm().fit(X, y, validation=(UNSEEN, TRUTH))
    assert len(model.history_["accuracy"]) == model.n_iter_
    assert model.history_["accuracy"][-1] == model.score(UNSEEN, TRUTH)
    with pytest.raises(ValueError, match="validation must be a pair"):
        sodm().fit(X, y, validation=UNSEEN)


def test_kernel_matrices_of_parts_keep_to_the_limit():
    small = sodm(memory_limit=900 * 900 * 2, n_jobs=1).fit(X, y)
    assert small.dual_gap_ <= 1e-3
    with pytest.raises(ValueError, match="precomputed"):
        sodm(kernel="precomputed").fit(X @ X.T, y)


def test_what_it_takes_is_said_before():
    rows = np.empty((100_000, 20), dtype=np.float32)
    whole, some = sodm(n_partitions=64).explain(rows), sodm(n_partitions=64, levels=3).explain(rows)
    assert whole["solver"] == some["solver"] == "sodm"
    assert some["seconds"] < whole["seconds"]
    assert some["bytes"] < whole["bytes"]
    assert Parting(fan_in=4).levels_of(20_000) == [16, 4, 1]
    assert Parting(5, fan_in=2, levels=3).levels_of(20_000) == [5, 3, 2]


def test_a_fit_can_go_on_from_the_last():
    model = sodm(levels=1, warm_start=True).fit(X, y)
    before = model.objective_
    model.set_params(levels=None).fit(X, y)
    assert model.dual_gap_ <= 1e-3
    assert model.objective_ < before


def test_early_prediction_asks_the_nearest_cluster():
    given = {"partition": "kmeans", "levels": 2, "final": "local"}
    model = sodm(**given).fit(X, y)
    cells = LocalODMClassifier(
        n_clusters=4, n_asked=1, overlap=0.0, n_landmarks=None, gamma=2.0, lam=1e3, random_state=0
    ).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(UNSEEN), cells.decision_function(UNSEEN))
    assert model.n_clusters_ == 4
    assert model.score(UNSEEN, TRUTH) > 0.95
    near = ((UNSEEN[:, None] - model.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    ends = model.support_ends_
    for k in range(4):  # the machine of the cluster alone
        rows = slice(ends[k], ends[k + 1])
        apart = ((UNSEEN[near == k][:, None] - model.support_vectors_[rows]) ** 2).sum(axis=2)
        f = np.exp(-2.0 * apart) @ model.dual_coef_[0, rows] + model.intercept_[k, 0]
        np.testing.assert_allclose(model.decision_function(UNSEEN[near == k]), f, atol=1e-6)
    before = model.predict(UNSEEN)
    with pytest.raises(ValueError, match="partition='kmeans'"):
        model.set_params(partition="random").fit(X, y)
    np.testing.assert_array_equal(model.predict(UNSEEN), before)
    average = model.set_params(**{**given, "final": "average"}).fit(X, y)
    assert not hasattr(average, "cluster_centers_")
    assert (average.decision_function(UNSEEN) != cells.decision_function(UNSEEN)).any()


def test_early_prediction_of_several_classes_is_saved(tmp_path):
    three = np.where(X[:, 0] > 1.0, 2, y)
    given = {"partition": "kmeans", "levels": 1, "final": "local"}
    with pytest.raises(ValueError, match="multi_class='ovr'"):
        sodm(**given).fit(X, three)
    model = sodm(**given, multi_class="ovr").fit(X, three)
    assert model.score(X, three) > 0.93
    model.save(tmp_path / "m.safetensors")
    again = optimargin.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("loss", [hinge(4.0), squared_hinge(4.0)], ids=["hinge", "squared hinge"])
@pytest.mark.parametrize(("partition", "survivors"), [("random", True), ("kmeans", False)])
def test_losses_of_svms_make_their_cascades(loss, partition, survivors):
    signs = np.where(y == 1, 1, -1).astype(np.int8)
    gram = make_gram(RBF(2.0), X, 0.0, 1 << 30, keep=False)
    problem = Problem(X, signs, None, loss, gram=gram)
    parting = Parting(4, partition, fan_in=2, survivors=survivors, engine=LocalEngine())
    found = SODM(0, parting).solve(problem, Start(), Stop(tol=1e-4))
    whole = SODM(0, Parting(1)).solve(problem, Start(), Stop(tol=1e-6))
    assert whole.gap <= 1e-6
    assert found.primal == pytest.approx(whole.primal, rel=0.05 if survivors else 1e-3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n_partitions": 0}, "n_partitions"),
        ({"fan_in": 1}, "fan_in"),
        ({"partition": "rings"}, "partition"),
        ({"levels": 0}, "levels"),
        ({"merge": "glue"}, "merge"),
        ({"final": "last"}, "final"),
        ({"engine": 3}, "engine"),
    ],
)
def test_wrong_settings_are_named(wrong, said):
    with pytest.raises(ValueError, match=f"The '{said}' parameter"):
        sodm(**wrong).fit(X, y)


def test_rows_without_a_say_wait_until_the_last_merge():
    """A part of several looks at rows with a coefficient; the machine of all rows at all."""
    signs = np.where(y == 1, 1, -1).astype(np.int8)
    gram = make_gram(RBF(2.0), X, 0.0, 1 << 30, keep=False)
    problem = Problem(X, signs, None, odm(1e3, 0.5, 0.6, len(y)), gram=gram)
    parting = Parting(8, fan_in=2)
    seen = []

    class Watched(LocalEngine):
        def scatter(self, *given):
            return Shards(super().scatter(*given))

    class Shards:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def __len__(self):
            return len(self.inner)

        def step(self, task, *shared):
            after, said = self.inner.step(task, *shared)
            seen.append(np.abs(after.gather("dual")) + np.abs(after.gather("own")))
            return Shards(after), said

        def merge(self, *given):
            return Shards(self.inner.merge(*given))

    given = replace(parting, engine=Watched())
    found = SODM(0, given).solve(problem, Start(), Stop(tol=1e-6))
    _, first, second, third, ahead, last = seen  # what `begin` leaves; 8, 4 and 2 parts; and 1
    waits = first == 0.0
    assert waits.mean() > 0.3
    assert not second[waits].any()
    assert not third[second == 0.0].any()
    assert not ahead[third == 0.0].any()
    assert last[waits].any()
    exact = SODM(0, Parting(1)).solve(problem, Start(), Stop(tol=1e-8))
    assert found.primal == pytest.approx(exact.primal, rel=1e-6)
