"""The loss of a row with k scores, its conjugate, and the best step of its dual variables.

With y the row's class and f its scores, the margin is u = f_y - max_{l != y} f_l.  The
upper side of an ODM loss makes u's loss non-convex; it is replaced by a convex one that
depends on v >= u (mcodm.txt section 4; math.md section 3):

    v = f_y - f_r     r the runner-up when it was last looked up: an upper bound that touches
    v = f_y - M       M the runner-up's score then: the rule of the paper

    loss(f) = value(min(u, lo)) + value(max(v, hi))        the two sides of `loss.value`

Its dual variables are alpha_l <= 0 for l != y with alpha_y = -sum alpha_l, and beta >= 0:

    psi(alpha, beta) = conjugate(alpha_y) + conjugate(-beta) + beta M
    a row's share in the models is alpha - beta e_y + beta e_r      (M or e_r, as above)
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from optimargin.loss import conjugate, value
from optimargin.rows import CONTIGUOUS

_inlined = register_jitable(**CONTIGUOUS)  # loops over the classes use vector units


@register_jitable
def runner_up(f, y):
    """The best class beside y."""
    best = -1
    for m in range(len(f)):
        if m != y and (best < 0 or f[m] > f[best]):
            best = m
    return best


@register_jitable
def ahead(f, y, r, M):
    """How far class y is ahead of the class r, or of the score M where r < 0."""
    return f[y] - f[r] if r >= 0 else f[y] - M


@register_jitable
def row_loss(loss, u, v):
    """The convex loss of a row with the margin u and, on the upper side, v."""
    return value(loss, min(u, loss.lo)) + value(loss, max(v, loss.hi))


@register_jitable
def row_conjugate(loss, own, beta, M):
    """Psi of a row whose alpha_y is ``own``."""
    return conjugate(loss, own) + conjugate(loss, -beta) + beta * M


@_inlined
def level(B, P, Q):
    """The nu with P + sum_l (B_l - nu)_+ = Q nu, over the rivals: B of the own class is -inf.

    The difference of both sides is convex and decreasing, so Newton's method from the left
    ends after a few pieces, each with fewer rivals above nu than the last; the sort of
    mcodm.txt, Algorithm 2, finds the same number.
    """
    nu, before = P / Q, len(B) + 1
    while True:
        excess, above = 0.0, 0
        for j in range(len(B)):
            over = B[j] - nu
            excess += max(over, 0.0)
            above += over > 0.0
        if above == 0 or above >= before:
            return nu
        nu += (P - Q * nu + excess) / (Q + above)
        before = above


@_inlined
def row_step(loss, A, f, y, r, M, alpha, beta, rest, B, change):
    """The best alpha and beta of one row, the other rows held (mcodm.txt, eq. 6).

    ``A`` is K_ii and ``f`` the scores now.  Classes may be left out: their alpha stay, and
    ``rest`` is what they add to alpha_y.  Writes to ``change`` what the step adds to the
    row's share in the models, and returns what the dual gains and the step of beta; the
    step of alpha is ``change`` without beta's part.  ``B`` is working space.

    With M fixed both are found at once.  With r fixed beta meets two of the scores:
    first alpha, then beta takes its best value.
    """
    D, joint = A + loss.ridge_lo, r < 0 and loss.a_min < 0.0
    share = beta if joint else 0.0
    for m in range(len(f)):
        B[m] = f[m] - A * alpha[m] + loss.lo
    own, B[y] = B[y] + A * share - loss.lo, -np.inf
    nu = level(B, A * own / D + A * rest, A / D)
    new = share
    if joint:
        E, F = A + loss.ridge_hi, M + loss.hi - own
        new = 0.0
        if nu > own + D * F / A:
            det = D * E - A * A
            nu = level(B, (A * E * own + A * A * F) / det + A * rest, A * E / det)
            new = max((A * (E * nu - A * F - E * own) / det - F) / E, 0.0)
    total, inverse = rest, 1.0 / A
    for m in range(len(f)):
        to = min((nu - B[m]) * inverse, 0.0)
        change[m] = to - alpha[m]
        total -= to
    change[y] = total - alpha[y]
    if not joint:
        new = beta
        if loss.a_min < 0.0:
            lead = f[y] - f[r] + A * (change[y] - change[r])
            new = max(
                beta + (lead - loss.hi - beta * loss.ridge_hi) / (2.0 * A + loss.ridge_hi), 0.0
            )
    step = new - beta
    gain = row_conjugate(loss, alpha[y], beta, M) - row_conjugate(loss, total, new, M)
    change[y] -= step
    if r >= 0:
        change[r] += step
    for m in range(len(f)):
        gain -= change[m] * (f[m] + 0.5 * A * change[m])
    return gain, step


@register_jitable
def close_classes(f, y, r, alpha, change, bar, first, out):
    """Write to ``out`` the classes a row is to meet for a while; returns how many.

    The own class, the frozen rival where there is one (so the two are the first), those that
    move in the next step, and as far as there is room those that have a dual variable
    or a score above ``bar``.  The search begins at the class ``first``: where there are too many,
    another one finds others.
    """
    out[0], size = y, 1
    if r >= 0:
        out[1], size = r, 2
    for late in (False, True):
        for start, stop in ((first, len(f)), (0, first)):
            for m in range(start, stop):
                moves = change[m] != 0.0
                near = not moves and (alpha[m] < 0.0 or f[m] > bar)
                if (near if late else moves) and m != y and m != r:
                    if size == len(out):
                        return size
                    out[size] = m
                    size += 1
    return size


@_inlined
def row_prox(loss, tau, f, y, r, M, alpha, beta, B, new):
    """The alpha and beta that belong to scores f, if leaving (alpha, beta) has a price.

    Minimises psi + share.f + tau |. - (alpha, beta)|^2 / 2; writes the new alpha to ``new``
    and returns the new beta and the minimum.
    """
    D = tau + loss.ridge_lo
    for m in range(len(f)):
        B[m] = f[m] - tau * alpha[m] + loss.lo
    own, B[y] = B[y] - loss.lo, -np.inf
    nu = level(B, tau * own / D, tau / D)
    total, inverse = 0.0, 1.0 / tau
    for m in range(len(f)):
        new[m] = min((nu - B[m]) * inverse, 0.0)
        total -= new[m]
    new[y] = total
    lead, to = ahead(f, y, r, M), 0.0
    if loss.a_min < 0.0:
        to = max((tau * beta + lead - loss.hi) / (tau + loss.ridge_hi), 0.0)
    least = row_conjugate(loss, total, to, 0.0) - to * lead + 0.5 * tau * (to - beta) ** 2
    for m in range(len(f)):
        least += new[m] * f[m] + 0.5 * tau * (new[m] - alpha[m]) ** 2
    return to, least


@register_jitable
def row_turn(loss, tau, y, r, alpha, beta, v, out):
    """How the share of `row_prox` answers to a small change v of the scores, sign reversed."""
    own = 1.0 / (tau + loss.ridge_lo)
    weight, total = own, own * v[y]
    for m in range(len(v)):
        if m != y and alpha[m] < 0.0:
            weight += 1.0 / tau
            total += v[m] / tau
    mean = total / weight
    for m in range(len(v)):
        out[m] = (v[m] - mean) / tau if m != y and alpha[m] < 0.0 else 0.0
    out[y] = own * (v[y] - mean)
    if beta > 0.0:
        step = (v[y] - (v[r] if r >= 0 else 0.0)) / (tau + loss.ridge_hi)
        out[y] += step
        if r >= 0:
            out[r] -= step
