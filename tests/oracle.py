"""Slow, obvious versions of what the package does fast; nothing here is shared with it."""

import numpy as np
from scipy.optimize import minimize


def odm_value(u, lam, mu, theta, n):
    c = lam / (n * (1 - theta) ** 2)
    return c * (max(1 - theta - u, 0) ** 2 + mu * max(u - 1 - theta, 0) ** 2)


def hinge_value(u, C):
    return C * max(1 - u, 0)


def squared_hinge_value(u, C):
    return C * max(1 - u, 0) ** 2


def rbf(A, B, gamma):
    return np.array([[np.exp(-gamma * np.sum((a - b) ** 2)) for b in B] for a in A])


def laplacian(A, B, gamma):
    return np.array([[np.exp(-gamma * np.sum(np.abs(a - b))) for b in B] for a in A])


def primal(X, y, w, lam, mu, theta, weight=None):
    """P(w) for explicit features, the weights normalised as repetitions."""
    weight = np.ones(len(y)) if weight is None else weight
    margins = y * (X @ w)
    losses = [odm_value(u, lam, mu, theta, weight.sum()) for u in margins]
    return 0.5 * w @ w + weight @ np.array(losses)


def minimise(X, y, lam, mu, theta, weight=None):
    """The minimiser of P over explicit features, by a general-purpose method."""
    weight = np.ones(len(y)) if weight is None else weight
    c = lam / (weight.sum() * (1 - theta) ** 2)

    def gradient(w):
        u = y * (X @ w)
        pull = 2 * np.maximum(1 - theta - u, 0) - 2 * mu * np.maximum(u - 1 - theta, 0)
        return w - c * X.T @ (weight * pull * y)

    found = minimize(
        lambda w: primal(X, y, w, lam, mu, theta, weight),
        np.zeros(X.shape[1]),
        jac=gradient,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-10},
    )
    return found.x, found.fun


def features_of(K):
    """Explicit features with K = F F'."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0))


def ldm_primal(X, y, w, lam1, lam2, C, weight=None):
    """The objective of the LDM for explicit features, the weights as repetitions."""
    weight = np.ones(len(y)) if weight is None else weight
    u = y * (X @ w)
    mean = np.average(u, weights=weight)
    variance = np.average((u - mean) ** 2, weights=weight)
    hinges = np.average(np.maximum(1 - u, 0), weights=weight)
    return 0.5 * w @ w + lam1 * variance - lam2 * mean + C * hinges


def ldm_minimise(X, y, lam1, lam2, C, weight=None):
    """Its minimiser, by a general method with one slack a row for the kink of the hinge."""
    n, d = X.shape
    p = (np.ones(n) if weight is None else weight) / (n if weight is None else weight.sum())
    Z = y[:, None] * X
    centred = Z - p @ Z
    M = np.eye(d) + 2 * lam1 * centred.T @ (p[:, None] * centred)

    def objective(v):
        w, slack = v[:d], v[d:]
        value = 0.5 * w @ M @ w - lam2 * p @ Z @ w + C * p @ slack
        return value, np.r_[M @ w - lam2 * p @ Z, C * p]

    rows = np.c_[Z, np.eye(n)]
    found = minimize(
        objective,
        np.r_[np.zeros(d), np.ones(n)],
        jac=True,
        method="SLSQP",
        bounds=[(None, None)] * d + [(0, None)] * n,
        constraints={"type": "ineq", "fun": lambda v: rows @ v - 1, "jac": lambda v: rows},
        options={"maxiter": 500, "ftol": 1e-13},
    )
    return found.x[:d]


def two_sided_dual(K, y, zeta, beta, lam, mu, theta, rows):
    """d(zeta, beta) of the SODM paper, to be minimised, with a loss divided by ``rows``.

    Ours: c' = (1-theta)^2 / (2 lam mu), so that rows c' is the ridge of beta.
    """
    c = (1 - theta) ** 2 / (2 * lam * mu)
    a = zeta - beta
    ridge = 0.5 * rows * c * (mu * zeta @ zeta + beta @ beta)
    return 0.5 * (a * y) @ K @ (a * y) + ridge + (theta - 1) * zeta.sum() + (theta + 1) * beta.sum()
