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
