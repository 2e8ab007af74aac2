"""Consensus: every part has a model of its own, and all are drawn together (ADMM).

Problem   min_z  1/2 z'Gz + sum_m f_m(x_m)  with x_m = z,  f_m the losses of part m
Update    x_m <- argmin f_m(x) + rho/2 |x - v_m|^2 with v_m = z - u_m, by sweeps over the dual
          variables a of the part's rows: x_m = v_m + s_m(a) / rho, s_m(a) = sum_i a_i y_i x_i;
          x^_m = alpha x_m + (1 - alpha) z;  z <- (G + K rho I)^-1 K rho mean(x^_m + u_m);
          u_m <- u_m + x^_m - z
Source    dwpa.txt, section 2.3, in the standard scaled form (math.md section 5: in print, a sign
          is flipped and a factor lost).  Ours: no part keeps a vector of features.  From the
          update of u, rho u_m = s_m(c) + rho t, where c <- (1 - alpha) c + alpha a belongs to
          rows, and t <- (1 - alpha) t + z_old - z is the same for all parts; so u_m is made
          again when it is needed, and a change of rho rescales t alone.  rho follows the two
          residuals, each relative to what it is a difference of, and settles
Bound     the dual variables a are feasible for the whole problem: P(z) - D(a) =
          sum_i (loss_i(u_i) + psi_i(a_i) + a_i u_i) + 1/2 |Gz - s(a)|^2 in the norm of G^-1
Rounds    one for each z; it also judges the last one
Bytes     16 (d+1) out and back for every part, in z, t, s(a) and s(c).  Dual variables stay
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.solvers.parted import own
from optimargin.solvers.passes import margins
from optimargin.solvers.sweeps import Metric, certificate, model, sweep, variables

RELAXED = 1.6  # alpha of the accelerated variants
_UNEVEN = 2.0  # ratio of the residuals beyond which rho changes
_MOST = 10.0  # times that it changes at once
_NOTHING = 1e-12  # eigenvalue, relative to the largest: models that are blends of others
_WAIT = 4  # rounds between two changes, and half as many more for each change that there was


class Stand(NamedTuple):
    """What all agree on, its objective and a bound, and how far the parts are from it.

    ``residual`` is the norm of all x_m - z together, in the round that led here; ``shards`` are
    the parts with their next dual variables.
    """

    z: np.ndarray
    value: float
    bound: float
    residual: float
    shards: LocalShards


class Ridge(NamedTuple):
    """The norm z'Gz: |z|^2, or by the eigenvalues and eigenvectors of another G."""

    values: Any = 1.0
    vectors: np.ndarray | None = None

    def times(self, z: np.ndarray) -> np.ndarray:
        """The product G z."""
        return z if self.vectors is None else self.vectors @ (self.values * (z @ self.vectors))

    def solve(self, g: np.ndarray, weight: float) -> np.ndarray:
        """The z with (G + weight I) z = g."""
        if self.vectors is None:
            return g / (1.0 + weight)
        return self.vectors @ ((g @ self.vectors) / (self.values + weight))

    def inverse_square(self, r: np.ndarray) -> float:
        """The product r'G^-1 r, for r in the range of G."""
        if self.vectors is None:
            return float(r @ r)
        there = self.values > _NOTHING * self.values[-1]
        return float(np.sum((r @ self.vectors)[there] ** 2 / self.values[there]))


def ridge_of(models: np.ndarray) -> Ridge:
    """The squared norm of sum_k z_k w_k, w_k the rows of ``models``."""
    return Ridge(*np.linalg.eigh(models @ models.T))


class Pace(NamedTuple):
    """What a part has to know beside z: see the head of this file."""

    t: np.ndarray
    alpha: float
    rho: float
    sweeps: int
    seed: tuple[int, int]


class Told(NamedTuple):
    """What parts say: losses and gaps at z; s(a) and s(c); |x_m - z|^2 and |rho u_m|^2."""

    total: float
    gap: float
    pulled: np.ndarray
    held: np.ndarray
    apart: float
    force: float


@dataclass(frozen=True)
class Consensus:
    """ADMM over the parts; ``alpha`` above 1 over-relaxes, ``sweeps`` solve a local problem."""

    seed: int
    alpha: float = 1.0
    sweeps: int = 4

    def stands(
        self, shards: LocalShards, ridge: Ridge, z: np.ndarray, pulled: np.ndarray
    ) -> Generator[Stand, None, None]:
        """What all agree on after each round.

        Parts may have dual variables; ``pulled`` is s(a), their sum over all parts.
        """
        K, alpha, held, t = len(shards), self.alpha, pulled, np.zeros_like(z)
        rho, residual, rounds, changed, changes = 1.0 / K, 0.0, 0, 0, 0
        while True:
            pace = Pace(t, alpha, rho, self.sweeps, (self.seed, rounds))
            shards, said = shards.step(_draw, z, pace)
            told = Told(*said)
            value = 0.5 * float(z @ ridge.times(z)) + float(told.total)
            gap = float(told.gap) + 0.5 * ridge.inverse_square(ridge.times(z) - pulled)
            yield Stand(z, value, value - gap, residual, shards)
            new = ridge.solve(K * rho * (z + (1.0 - alpha) * t) + told.held, K * rho)
            move, away = new - z, (told.pulled - held) / rho - K * t  # the sum of x_m - z
            square, turn = float(told.apart), K * float(move @ move)
            residual = _root(square - 2.0 * float(move @ away) + turn)
            size = _root(square + 2.0 * float(z @ away) + K * float(z @ z))
            pulled, held, z, t = told.pulled, told.held, new, (1.0 - alpha) * t - move
            rounds += 1
            if rounds - changed >= _WAIT + changes // 2:
                change = _balance(residual * _root(told.force), rho * _root(turn) * size)
                if change != 1.0:
                    rho, t, changed, changes = rho * change, t / change, rounds, changes + 1


def _root(square: float) -> float:
    return float(np.sqrt(max(square, 0.0)))


def _balance(primal: float, dual: float) -> float:
    """By what to multiply rho, where one residual is much larger than the other."""
    if not (primal > 0.0 and dual > 0.0):
        return 1.0
    ratio = float(np.sqrt(primal / dual))
    if 1.0 / _UNEVEN <= ratio <= _UNEVEN:
        return 1.0
    return min(max(ratio, 1.0 / _MOST), _MOST)


def _draw(part: Part, z: np.ndarray, pace: Pace) -> tuple[State, Told]:
    """Judge z, and solve the local problem around it."""
    problem, state, (t, alpha, rho, times, seed) = own(part), part.state, pace
    q, a = variables(problem, state)
    c = state.get("held", a)
    total, gap = certificate(problem, a, margins(problem, z))
    held = model(problem, c)
    pulled = held if c is a else model(problem, a)
    v = z - t - held / rho
    x = v + pulled / rho
    b = sweep(problem, q, a, x, Metric(1.0 / rho), np.random.default_rng(seed), times=times)
    pulled, force, away = rho * (x - v), rho * t + held, x - z
    left: State = {**state, "dual": b, "sqnorm": q}
    if alpha != 1.0:
        left["held"] = (1.0 - alpha) * c + alpha * b
    held = (1.0 - alpha) * held + alpha * pulled
    return left, Told(total, gap, pulled, held, float(away @ away), float(force @ force))
