"""Bounds of the error, from dual variables or margins of the training rows alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optimargin.arrays import pick
from optimargin.loss import Loss

_AT_BOUND = 1.0 - 1e-9  # of a_max: solvers stop this close to a bound they mean to reach


def loo_bound(
    loss: Loss, dual: Any, diag: Any, weight: Any = None, *, rule: str = "count"
) -> float:
    """Upper bound of the leave-one-out error of a binary machine, from one fit.

    The bound counts the rows whose own push a_i K_ii makes up their whole margin:

        leave-one-out error <= share of rows with a_i > 0 and a_i K_ii >= u_i

    Let w' be the machine without row i, and u_i' its margin there.  The objective
    without the row is strongly convex, has the gradient 0 at w' and a_i y_i phi(x_i) at
    w, so a_i (u_i - u_i') >= |w - w'|^2 >= (u_i - u_i')^2 / K_ii, and u_i' is at least
    u_i - max(a_i, 0) K_ii.  Rows with a_i <= 0 are right and stay so.

    Parameters
    ----------
    loss : Loss
        Loss of a row of weight 1.
    dual : array-like of shape (n,)
        Signed dual variables a at the optimum.
    diag : array-like of shape (n,)
        K_ii, the square of the constant feature included.
    weight : array-like of shape (n,), default=None
        Weights of the fit, as repetitions: one copy of a row of weight 2 is left out
        and the other stays.  To leave out whole rows, each counted once, pass
        ``scaled(loss, weight)`` as the loss and no weight here.
    rule : {"count", "paper"}, default="count"
        "count" is the bound above, never more than 1.  "paper" is theorem 3 of
        odm.txt, kept for reproduction: a larger number on most data, which may exceed 1,
        but no bound where rows with small a_i < 0 abound, each of which takes theta off:

            sum_{a_i>0} (a_i (K_ii + ridge_lo) + theta)
                + sum_{a_i<0} (|a_i| (K_ii + ridge_hi) - theta), divided by n

        Where a is bounded, as for the hinge, rows at a_max count 1 each instead: this is
        theorem 2, about the LDM, with h_ii for ``diag``.

    Returns
    -------
    float
        The bound, as a share of the rows.

    Notes
    -----
    Leaving a row out keeps the loss of the others, that is c = lam / (n (1-theta)^2)
    stays that of all n rows: a refit by hand needs lam (n - 1) / n.  For the LDM, K_ii is
    h_ii, the squared norm of a whitened row, and the theorem takes off a row's hinge only:
    the row stays in the mean and the variance of the margins.  See `ldm_loo_bound`.
    """
    a, weight = with_weights(dual, weight, "dual", keep_zero=True)
    diag = np.asarray(diag, dtype=np.float64)
    if diag.shape != a.shape:
        raise ValueError(f"diag has shape {diag.shape}, but dual has {a.shape}.")
    a = a / np.where(weight > 0.0, weight, 1.0)  # the share of one copy
    return float(np.average(risk(loss, a, diag, rule), weights=weight))


def risk(loss: Loss, a: Any, diag: Any, rule: str) -> Any:
    """What a row adds to `loo_bound`, by the dual variable of one copy of it."""
    below = a * (diag + loss.ridge_lo)  # >= lo where a K_ii >= u, since u = lo - ridge_lo a
    # At a_max (hinge) the margin may be anything below lo: such a row is at risk.
    stuck = a >= loss.a_max * _AT_BOUND
    if rule == "count":
        return pick((a > 0.0) & ((below >= loss.lo) | stuck), 1.0)
    if rule == "paper":
        above = -a * (diag + loss.ridge_hi)
        return (
            pick((a > 0.0) & stuck, 1.0)
            + pick((a > 0.0) & ~stuck, below + 1.0 - loss.lo)
            + pick(a < 0.0, above + 1.0 - loss.hi)
        )
    raise ValueError(f"rule must be 'count' or 'paper', not {rule!r}.")


class MeanProducts(NamedTuple):
    """Inner products of the rows z_i = y_i phi(x_i) and of their mean m = sum_i p_i z_i."""

    diag: np.ndarray  # z_i.z_i
    lean: np.ndarray  # z_i.m
    square: float  # m.m


def ldm_loo_bound(
    dual: Any,
    margins: Any,
    products: MeanProducts,
    weight: Any = None,
    *,
    lam1: float,
    lam2: float,
    whitened: bool = True,
) -> float:
    """Upper bound of the leave-one-out error of an LDM, which theorem 2 of odm.txt is not.

    The theorem takes off a row's hinge, but a row that is left out leaves the mean and the
    variance as well: over random draws theorem 2 falls short of the error now and then.

    The objective is R(w) + h_i(w), R that of the others and h_i convex.  At the optimum w of
    all rows the gradient of h_i is v, so that of R is -v, and the step to the optimum w' of
    R has <-v, w - w'> >= |w - w'|^2 in the metric of R's quadratic part.  So w - w' lies in
    the ball around -v/2 through 0, and the margin falls by no more than
    (|v| |z_i| - v.z_i) / 2.  The bound counts the rows that have no more than that.

    Parameters
    ----------
    dual, margins : array-like of shape (n,)
        Dual variables of the hinge, and margins, at the optimum.
    products : MeanProducts
        Of whitened rows, or of the rows as given, which makes the bound looser.
    weight : array-like of shape (n,), default=None
        Weights of the fit as repetitions; one copy is left out, or a whole row that
        weighs less.
    lam1, lam2 : float
        Weights of the variance and of the mean.
    whitened : bool, default=True
        Whether the products are those of whitened rows.

    Returns
    -------
    float
        The bound, as a share of the rows.

    Notes
    -----
    Leaving a row out keeps the terms of the others: a refit by hand needs lam1, lam2 and C
    times (n - 1) / n.
    """
    a, weight = with_weights(dual, weight, "dual", keep_zero=True)
    u = np.asarray(margins, dtype=np.float64)
    p = weight / weight.sum()
    share = np.minimum(weight, 1.0) / weight.sum()  # what leaves; the rest is 1 - share
    copy = np.divide(share, p, out=np.zeros_like(p), where=p > 0.0)
    zz, lean, rest = products.diag, products.lean, 1.0 - share
    zq = (zz - lean) / rest  # q = z_i - mean of the others
    qq = (zz - 2.0 * lean + products.square) / rest**2
    # R lacks kappa q q' of the quadratic part that the rows were whitened with.
    kappa = 2.0 * lam1 * share * rest if whitened else 0.0
    more = 1.0 / (1.0 - kappa * qq)
    zz, zq, qq = zz + kappa * more * zq**2, zq * more, qq * more
    along = a * copy + lam2 * share  # v = -along z + aside q
    aside = 2.0 * lam1 * share * (u - p @ u)
    vz = aside * zq - along * zz
    vv = along**2 * zz - 2.0 * along * aside * zq + aside**2 * qq
    fall = 0.5 * (np.sqrt(np.maximum(vv * zz, 0.0)) - vz)
    return float(np.average(u <= fall, weights=weight))


def rademacher_bound(
    margins: Any,
    radius: float,
    norm: float,
    *,
    theta: float,
    n_classes: int = 2,
    delta: float = 0.05,
) -> float:
    """Upper bound of the error on new rows, from the margins of the training rows.

    Theorem 1 of mcodm.txt: with probability at least 1 - delta over m training rows, every
    machine with sum_l |w_l|^2 <= norm^2 has::

        error <= mean Phi(u_i) + 16 radius norm / (1-theta) sqrt(2 pi k / m)
                 + 3 sqrt(ln(2 / delta) / (2 m))

    where Phi(u) is 1 for u <= 0, (1 - u / (1-theta))^2 up to 1-theta, and 0 beyond.

    Parameters
    ----------
    margins : array-like of shape (m,)
        Margins of the training rows, independent draws, each counted once.
    radius : float
        What no row's norm sqrt(K(x, x)) exceeds, new rows included: 1 for an RBF kernel.
    norm : float
        A bound on the norm of the machine.  The theorem wants it chosen before the data are
        seen: for an ODM sqrt(2 lam) is, since the objective of no machine at all is lam.  The
        norm of the machine itself gives a smaller number that is only an estimate.  A machine
        of two classes with one vector w counts as w/2 and -w/2, whose norm is |w| / sqrt(2).
    theta : float
        In [0, 1); margins below 1-theta cost something.  Fixed before the data are seen, too.
    n_classes : int, default=2
        Number k of classes.
    delta : float, default=0.05
        Probability that the bound may fail with.

    Returns
    -------
    float
        The bound, which says nothing when it is above 1: it takes some ten thousand rows.
    """
    u, _ = with_weights(margins, None)
    if not 0.0 <= theta < 1.0:
        raise ValueError(f"theta must lie in [0, 1), not be {theta!r}.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie between 0 and 1, not be {delta!r}.")
    if not (radius >= 0.0 and norm >= 0.0):
        raise ValueError(f"radius and norm must not be negative: {radius!r}, {norm!r}.")
    if n_classes < 2:
        raise ValueError(f"n_classes must be 2 or more, not {n_classes!r}.")
    m, width = len(u), 1.0 - theta
    losses = np.clip(1.0 - u / width, 0.0, 1.0) ** 2
    capacity = 16.0 * radius * norm / width * np.sqrt(2.0 * np.pi * n_classes / m)
    return float(losses.mean() + capacity + 3.0 * np.sqrt(np.log(2.0 / delta) / (2.0 * m)))


def with_weights(
    values: Any, sample_weight: Any, name: str = "margins", keep_zero: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Values and weights of the same length, rows of weight zero left out by default."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"{name} must be a non-empty vector, not of shape {values.shape}.")
    if sample_weight is None:
        return values, np.ones(len(values))
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != values.shape:
        raise ValueError(f"sample_weight has shape {weight.shape}, but {name} {values.shape}.")
    if not np.isfinite(weight).all() or (weight < 0.0).any() or not weight.any():
        raise ValueError("sample_weight must be finite, non-negative and not all zero.")
    if keep_zero:
        return values, weight
    return values[weight > 0.0], weight[weight > 0.0]
