"""Machines that share the parts find what each finds alone, in as many passes as the slowest."""

import threading
from functools import partial

import numpy as np
import pytest

from optimargin.classes import parts
from optimargin.engines.local import LocalEngine
from optimargin.engines.together import together
from optimargin.loss import odm
from optimargin.problem import Problem, Start, Stop, drive
from optimargin.solvers.on_parts import on_parts
from optimargin.solvers.parting import Parting

RNG = np.random.default_rng(0)
N, D, K = 120, 5, 4
X = RNG.normal(size=(N, D))
y = np.digitize(X @ RNG.normal(size=D) + 0.3 * RNG.normal(size=N), [-1.0, 0.0, 1.0])
LOSS = odm(50.0, 0.5, 0.2, N)
OWNS = parts("ovr", 4)


def scattered():
    whole = Problem(X, y, None, LOSS, 1.0, classes=4)
    return LocalEngine().scatter(whole, np.arange(N) % K)


def size(part, factor=1):
    return factor * part.problem.n


def positives(part):
    return int((part.problem.y > 0).sum())


def noted(part, value):
    return {**part.state, "seen": np.full(part.problem.n, value)}, value


def recalled(part):
    return float(part.state["seen"].sum()) if "seen" in part.state else -1.0


def wrong(part):
    raise ZeroDivisionError("a part is broken")


@pytest.mark.parametrize("name", ["bqo", "admm", "newton", "tron", "dsvrg", "dwpa"])
def test_every_solver_finds_what_it_finds_alone(name):
    solver = on_parts(name, scattered().whole, 0, Parting(K), 1e-5)
    stop = Stop(1e-5, 60)
    shards = scattered()
    joint = together(shards, OWNS, lambda m, view: drive(solver.points(view, Start()), stop))
    rounds = []
    for own, found in zip(OWNS, joint, strict=True):
        alone = LocalEngine().scatter(own(shards.whole), np.arange(N) % K)
        single = drive(solver.points(alone, Start()), stop)
        np.testing.assert_array_equal(single.coef, found.coef)
        assert (single.primal, single.bound, single.rounds) == (
            found.primal,
            found.bound,
            found.rounds,
        )
        rounds.append(alone.traffic.rounds)
    assert shards.traffic.rounds >= max(rounds)
    if name != "dsvrg":  # whose turns are of different parts
        assert shards.traffic.rounds == max(rounds)


def test_machines_that_are_done_are_not_waited_for():
    def run(m, view):
        return [view.sum(size) for _ in range(m)]

    shards = scattered()
    assert together(shards, OWNS, run) == [[N] * m for m in range(4)]
    assert shards.traffic.rounds == 3


def test_each_sees_its_own_labels_and_state():
    def run(m, view):
        assert len(view) == K
        assert view.sum(recalled) == -K
        first, said = view.step(noted, m)
        assert said == K * m
        second, _ = first.step(noted, 10 * m)
        # the version before is still there, another step replaces the one that came from it
        assert (first.sum(recalled), second.sum(recalled)) == (N * m, 10 * N * m)
        third, _ = first.step(noted, 100 * m)
        assert (first.sum(recalled), third.sum(recalled)) == (N * m, 100 * N * m)
        return view.sum(positives), view.turn(m, positives)

    found = together(scattered(), OWNS, run)
    for m, (every, one) in enumerate(found):
        assert every == (y == m).sum()
        assert one == (y[m::K] == m).sum()


def test_machines_run_one_at_a_time_and_in_order():
    running, seen = [0], []

    def run(m, view):
        for turn in range(3):
            running[0] += 1
            assert running[0] == 1
            seen.append((turn, m))
            running[0] -= 1
            view.sum(size, turn)
        return m

    together(scattered(), OWNS, run)
    assert seen == [(turn, m) for turn in range(3) for m in range(4)]


@pytest.mark.parametrize("where", ["machine", "part", "start", "halt"])
def test_an_error_of_one_ends_all(where):
    ended = []

    def run(m, view):
        try:
            if where == "start" and m == 1:
                raise ZeroDivisionError("at once")
            view.sum(size)
            if where == "machine" and m == 2:
                raise ZeroDivisionError("in the middle")
            if where == "halt" and m == 2:
                raise KeyboardInterrupt
            view.sum(wrong if where == "part" and m == 0 else size)
            while True:
                view.sum(size)
        finally:
            ended.append(m)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt if where == "halt" else ZeroDivisionError):
        together(scattered(), OWNS, run)
    assert threading.active_count() == before
    started = 2 if where == "start" else 4
    assert sorted(ended) == list(range(started))


def test_one_machine_needs_no_company():
    assert together(scattered(), OWNS[:1], lambda m, view: view.sum(size)) == [N]
    assert together(scattered(), [], lambda m, view: 0) == []


def test_what_travels_can_be_pickled():
    """As an engine on other computers will do."""
    import pickle

    class Far:
        def __init__(self, shards):
            self.shards, self.whole = shards, shards.whole

        def __len__(self):
            return len(self.shards)

        def sum(self, task, *shared):
            return self.shards.sum(*pickle.loads(pickle.dumps((task, *shared))))

        def step(self, task, *shared):
            after, said = self.shards.step(*pickle.loads(pickle.dumps((task, *shared))))
            return Far(after), said

    solver = on_parts("bqo", scattered().whole, 0, Parting(K), 1e-4)

    def run(m, view):
        return drive(solver.points(view, Start()), Stop(1e-2, 30)).primal

    assert together(Far(scattered()), OWNS, run) == together(scattered(), OWNS, run)


def test_partial_tasks_are_tasks():
    found = together(scattered(), OWNS, lambda m, view: view.sum(partial(size, factor=m)))
    assert found == [0, N, 2 * N, 3 * N]
