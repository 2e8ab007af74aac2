"""Landmarks: the features they make, how they are chosen, and the solver over them."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_moons

from optimargin.classes import signs
from optimargin.gram import make_gram
from optimargin.kernels import RBF, Polynomial, Sigmoid
from optimargin.landmarks import make_landmarks, pivoted_cholesky
from optimargin.loss import odm, squared_hinge
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.sketch import footprint, make_sketch
from optimargin.solvers import exactness
from optimargin.solvers.exactness import exact_gap
from optimargin.solvers.kernel_newton import KernelNewton
from optimargin.solvers.landmark import LandmarkNewton
from optimargin.solvers.newton import Newton
from optimargin.solvers.place import HOW, Wish, greedy, place

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2))


def columns(index):
    return K[:, index].copy()


def moons(n, noise=0.2, seed=0):
    rows, y = make_moons(n, noise=noise, random_state=seed)
    return rows, y


def wish(count, how="margin", *, kernel=None, dtype=np.float64, limit=10**9):
    return Wish(kernel or RBF(2.0), count, how, dtype, limit)


def posed(n=1500, lam=1000.0, mu=0.3, theta=0.2, weight=None, dtype=np.float64):
    rows, y = moons(n)
    return Problem(rows.astype(dtype), y, weight, odm(lam, mu, theta, n), threads=2)


def two_classes(problem):
    return problem.binary(signs(problem.y == 1))


def first(starts):
    return starts[0] if starts else Start()


# -- the pivoted factor -----------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 7])
def test_a_pivoted_factor_explains_all_but_the_residual(block):
    F, pivots, rest = pivoted_cholesky(columns, np.ones(300), 60, block)
    left = K - F @ F.T
    np.testing.assert_allclose(np.diag(left), rest, atol=1e-7)
    assert np.linalg.eigvalsh(left).min() > -1e-7
    assert len(set(pivots)) == 60
    assert rest.sum() < 0.2 * np.trace(K)


def test_a_pivoted_factor_of_low_rank_stops_by_itself():
    G = X @ X.T
    F, _, rest = pivoted_cholesky(lambda i: G[:, i].copy(), np.diag(G), 50)
    assert F.shape == (300, 4)
    assert rest.max() < 1e-9


def test_the_greedy_choice_takes_the_largest_schur_complement():
    chosen = [0]  # all residuals are equal to begin with
    for _ in range(14):
        Z = K[np.ix_(chosen, chosen)]
        left = 1.0 - np.einsum("ij,ji->i", K[:, chosen], np.linalg.solve(Z, K[chosen]))
        chosen.append(int(left.argmax()))
    assert list(pivoted_cholesky(columns, np.ones(300), 15).pivots) == chosen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_choosing_in_blocks_leaves_hardly_more_than_one_by_one(dtype):
    rows = moons(2000)[0].astype(dtype)
    one = pivoted_cholesky(lambda i: RBF(5.0).block(rows, rows[i]), np.ones(2000), 100, dtype=dtype)
    many = greedy(wish(100, kernel=RBF(5.0), dtype=dtype), rows, 0.0, 100, 1)
    landmarks = make_landmarks(RBF(5.0), rows[many], many, 0.0, dtype)
    left = landmarks.residual(rows, landmarks.values(rows)).sum()
    assert left < 1.5 * one.residual.sum() + 1e-3


def test_rows_that_are_there_twice_are_chosen_once():
    twice = np.vstack([X, X])
    chosen = greedy(wish(400, kernel=RBF(9.0)), twice, 0.0, 400, 1)
    assert len(chosen) == 300
    assert len(set(chosen % 300)) == len(chosen)


# -- features -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [RBF(0.3), Polynomial(0.5, 2, 1.0)])
@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_features_of_all_rows_have_the_kernel_as_inner_products(kernel, bias):
    landmarks = make_landmarks(kernel, X, np.arange(300), bias, np.float64)
    phi = landmarks.features(landmarks.values(X))
    np.testing.assert_allclose(phi @ phi.T, kernel.block(X, X) + bias**2, atol=1e-5)
    assert landmarks.residual(X, landmarks.values(X)).max() < 1e-5


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_features_explain_a_part_of_the_kernel_and_never_more(count, seed):
    index = np.random.default_rng(seed).permutation(300)[:count]
    landmarks = make_landmarks(RBF(0.3), X[index], index, 0.0, np.float64)
    phi = landmarks.features(landmarks.values(X))
    left = K - phi @ phi.T
    assert np.linalg.eigvalsh(left).min() > -1e-8
    np.testing.assert_allclose(landmarks.residual(X, landmarks.values(X)), np.diag(left), atol=1e-8)


def test_a_model_and_its_expansion_score_alike():
    landmarks = make_landmarks(RBF(0.3), X[:50], np.arange(50), 0.0, np.float64)
    values = landmarks.values(X)
    w = RNG.normal(size=50)
    b = landmarks.expand(w)
    np.testing.assert_allclose(values @ b, landmarks.features(values) @ w, atol=1e-9)
    np.testing.assert_allclose(landmarks.lift(b), w, atol=1e-9)


def test_blocks_are_the_same_as_the_whole():
    landmarks = make_landmarks(RBF(0.3), X[:50], np.arange(50), 0.0, np.float64)
    kept = make_sketch(landmarks, X, 10**9, 2)
    assert len(kept.kept) == 300
    for count in (0, 40, 250):
        made = make_sketch(landmarks, X, footprint(300, 50, 8 * 50 * count) + 1, 2)
        assert len(made.kept) == count
        for rows in (slice(3, 200), slice(None), np.array([5, 250, 17])):
            np.testing.assert_allclose(made[rows], kept[rows], atol=1e-14)
        np.testing.assert_allclose(made.features(), kept.features(), atol=1e-12)
        assert [i for s in made.spans(slice(20, 290)) for i in range(300)[s]] == [*range(20, 290)]


def test_sparse_rows_have_the_features_of_dense_ones():
    dense = X * (np.abs(X) > 0.7)
    a = make_landmarks(RBF(0.3), dense[:50], np.arange(50), 0.0, np.float64)
    b = make_landmarks(RBF(0.3), sp.csr_array(dense[:50]), np.arange(50), 0.0, np.float64)
    np.testing.assert_allclose(b.values(sp.csr_array(dense)), a.values(dense), atol=1e-10)


def test_rows_far_from_the_origin_keep_their_distances():
    landmarks = make_landmarks(RBF(0.3), X[:50] + 1e6, np.arange(50), 0.0, np.float64)
    np.testing.assert_allclose(landmarks.values(X + 1e6), K[:, :50], atol=1e-8)


def test_a_kernel_with_negative_eigenvalues_is_refused():
    with pytest.raises(ValueError, match="not positive semi-definite"):
        make_landmarks(Sigmoid(5.0, -3.0), X, np.arange(300), 0.0, np.float64)


# -- the solver -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [odm(500.0, 0.3, 0.2, 600), odm(1e5, 1.0, 0.6, 600),
                                  squared_hinge(2.0)])  # fmt: skip
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_with_every_row_a_landmark_the_machine_is_the_exact_one(loss, bias):
    rows, y = moons(600)
    gram = make_gram(RBF(2.0), rows, bias, 10**9)
    exact = drive(
        KernelNewton().points(Problem(rows, signs(y == 1), None, loss, bias, gram), Start()),
        Stop(1e-10),
    )
    problem, start = place(Problem(rows, y, None, loss, bias), wish(600), 0)
    assert problem.sketch.shape == (600, 600)
    found = drive(LandmarkNewton(0, 1e-8).points(two_classes(problem), first(start)), Stop(1e-8))
    assert found.gap <= 1e-8
    assert found.primal == pytest.approx(exact.primal, rel=1e-6)
    np.testing.assert_allclose(found.margin, exact.margin, atol=2e-3)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kept", [0, 600, 1500])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_choice_of_landmarks_ends_with_a_certificate(how, kept, weighted):
    limit = footprint(1500, 100, 8 * 100 * kept) + 1
    weight = RNG.uniform(0.0, 2.0, 1500).round(1) if weighted else None
    problem, start = place(posed(weight=weight), wish(100, how, limit=limit), 0)
    assert len(problem.sketch.kept) == kept
    assert problem.sketch.shape == (1500, 100)
    found = drive(LandmarkNewton(0, 1e-6).points(two_classes(problem), first(start)), Stop(1e-6))
    assert found.status is Status.CONVERGED
    other = drive(Newton().points(two_classes(problem).featured, Start()), Stop(1e-9))
    assert found.primal == pytest.approx(other.primal, rel=1e-5)


@pytest.mark.parametrize("lam", [1.0, 1e4, 1e7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_weight_of_the_losses_does_no_harm(lam, dtype):
    problem, start = place(posed(5000, lam, dtype=dtype), wish(300, dtype=dtype), 0)
    found = drive(
        LandmarkNewton(0, 1e-3).points(two_classes(problem), first(start)), Stop(1e-3, 60)
    )
    assert found.status is Status.CONVERGED


def test_the_foretold_bound_is_one():
    problem, _ = place(posed(), wish(80), 0)
    problem = two_classes(problem)
    best = drive(LandmarkNewton(0, 1e-12).points(problem, Start()), Stop(1e-12))
    for point in LandmarkNewton(0, 1e-3).points(problem, Start()):
        assert point.bound <= best.primal * (1 + 1e-9)
        if point.rounds > 4:
            break


def test_the_exact_gap_is_above_the_distance_to_the_exact_machine():
    problem = posed(1200)
    gram = make_gram(RBF(2.0), problem.X, 0.0, 10**9)
    whole = two_classes(problem).changed(gram=gram)
    optimum = drive(KernelNewton().points(whole, Start()), Stop(1e-9)).primal
    gaps = []
    for count in (10, 40, 160, 1200):
        sketched, start = place(problem, wish(count), 0)
        machine = two_classes(sketched)
        found = drive(LandmarkNewton(0, 1e-6).points(machine, first(start)), Stop(1e-6))
        gaps.append(exact_gap(machine, found, share=1e3))
        assert found.primal >= optimum * (1 - 1e-9)
        assert (found.primal - optimum) / found.primal <= gaps[-1] + 1e-9
    assert gaps[-1] < 1e-4 < gaps[0]


def test_the_trace_bounds_the_gap_where_too_many_rows_pull(monkeypatch):
    sketched, start = place(posed(1200), wish(200), 0)
    machine = two_classes(sketched)
    found = drive(LandmarkNewton(0, 1e-6).points(machine, first(start)), Stop(1e-6))
    near = exact_gap(machine, found, share=1e3)
    monkeypatch.setattr(exactness, "_FREE", 0)
    assert near <= exact_gap(machine, found, share=0.0) <= 1.0


# -- placing --------------------------------------------------------------------------------------


def test_rows_that_pull_make_better_landmarks_than_any_rows():
    problem = posed(6000, 1e4)
    primal = {}
    for how in ("margin", "random"):
        ends = []
        for seed in range(3):
            sketched, start = place(problem, wish(60, how, kernel=RBF(20.0)), seed)
            points = LandmarkNewton().points(two_classes(sketched), first(start))
            ends.append(drive(points, Stop(1e-3)).primal)
        primal[how] = np.mean(ends)
    assert primal["margin"] < 0.98 * primal["random"]


def test_their_number_grows_while_it_pays():
    few = place(posed(4000), wish(None, kernel=RBF(0.1)), 0)[0].sketch.shape[1]
    many = place(posed(4000, 1e5), wish(None, kernel=RBF(50.0)), 0)[0].sketch.shape[1]
    assert few < many <= 4000


def test_rows_without_weight_are_no_landmarks():
    weight = np.ones(1500)
    weight[::2] = 0.0
    for how in ("margin", "random", "greedy"):
        index = place(posed(weight=weight), wish(200, how), 0)[0].sketch.landmarks.index
        assert (index % 2 == 1).all()


@pytest.mark.parametrize("how", HOW)
def test_the_seed_decides_everything(how):
    first, second = (place(posed(), wish(50, how), 3)[0].sketch.landmarks.Z for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_landmarks_that_do_not_fit_are_refused():
    with pytest.raises(MemoryError, match="n_landmarks"):
        place(posed(), wish(500, "random", limit=10**6), 0)


def test_memory_stays_inside_what_is_announced():
    rows, y = moons(40_000)
    problem = Problem(rows.astype(np.float32), y, None, odm(4e4, 0.3, 0.2, 40_000), threads=2)
    for kept in (True, False):
        room = footprint(40_000, 200, 4 * 40_000 * 200) if kept else 25e6
        tracemalloc.start()
        sketched, start = place(problem, wish(200, dtype=np.float32, limit=room), 0)
        drive(LandmarkNewton().points(two_classes(sketched), first(start)), Stop(1e-3))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (len(sketched.sketch.kept) == 40_000) == kept
        assert peak <= room
