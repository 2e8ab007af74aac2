"""Theorem 1 of the SODM paper: how far machines on parts can be from the machine on all rows."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimargin.gram import make_gram
from optimargin.kernels import RBF
from optimargin.loss import odm
from optimargin.partition import partition
from optimargin.problem import Problem, Start, Stop, drive
from optimargin.solvers.kernel_newton import KernelNewton
from oracle import rbf, two_sided_dual
from strategies import datasets


def best_dual(X, y, lam, mu, theta):
    """The signed dual variables of the machine on these rows, as zeta and beta."""
    gram = make_gram(RBF(0.5), X, 0.0, 10**8)
    problem = Problem(X, y, None, odm(lam, mu, theta, len(y)), gram=gram)
    found = drive(KernelNewton().points(problem, Start()), Stop(1e-10))
    a = found.coef * y
    return np.stack([np.maximum(a, 0.0), np.maximum(-a, 0.0)])


@settings(max_examples=40)
@given(
    datasets(most=40),
    st.integers(1, 4),
    st.floats(0.1, 100.0),
    st.floats(0.05, 1.0),
    st.floats(0.0, 0.8),
    st.sampled_from(["stratified", "random", "blocks"]),
)
def test_machines_on_parts_are_as_near_as_theorem_1_says(data, count, lam, mu, theta, kind):
    n = len(data[1]) // count * count
    assume(n >= 2)
    X, y = data[0][:n], data[1][:n]
    part = partition(kind, X, y, count, np.random.default_rng(0), RBF(0.5), 4)
    K, m = rbf(X, X, 0.5), n // count
    whole, parts = best_dual(X, y, lam, mu, theta), np.zeros((2, n))
    for k in range(count):  # a part's loss is divided by its own number of rows
        parts[:, part == k] = best_dual(X[part == k], y[part == k], lam, mu, theta)

    d_parts, d_whole = (two_sided_dual(K, y, *a, lam, mu, theta, n) for a in (parts, whole))
    c = (1 - theta) ** 2 / (2 * lam * mu)
    U = max(parts.max(), whole.max())
    Q = np.abs(K[part[:, None] != part]).sum()
    slack = 1e-7 * abs(d_whole)
    assert -slack <= d_parts - d_whole <= U**2 * (Q + n * (n - m) * c) + slack

    # So near are the variables then, d being strongly convex; the paper has 1 for the 2.
    apart = ((parts - whole) ** 2).sum()
    assert apart <= 2 * (d_parts - d_whole + 2 * slack) / (n * c * mu)
    if count == 1:
        np.testing.assert_allclose(parts, whole)
