"""The engine keeps rows where they are, adds up in order, and loses nothing."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from optimargin.engines.local import LocalEngine
from optimargin.loss import odm
from optimargin.problem import Problem

RNG = np.random.default_rng(0)
N, D = 60, 4
X = RNG.normal(size=(N, D))
y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
WEIGHT = RNG.uniform(0.5, 2.0, size=N)
PART = RNG.permutation(N) % 5
VALUE = RNG.normal(size=N) * 10.0 ** RNG.integers(-8, 8, size=N)  # a sum feels its order


def problem(rows=X, weight=WEIGHT, threads=1):
    return Problem(rows, y, weight, odm(10.0, 0.5, 0.2, N), threads=threads)


def scattered(part=PART, rows=X, **state):
    return LocalEngine().scatter(problem(rows), part, state)


def total(part, factor):
    return factor * float(part.state["value"].sum())


def pair(part):
    return part.problem.n, part.problem.X.sum(axis=0)


def doubled(part, factor):
    return {"value": factor * part.state["value"]}, part.problem.n


def doubled_value(part):
    return 2.0 * part.state["value"]


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array])
def test_rows_go_to_their_part_with_all_that_is_theirs(rows):
    shards = scattered(rows=rows(X), number=np.arange(N))
    assert len(shards) == 5
    for k, (index, part) in enumerate(zip(shards.rows, shards.parts, strict=True)):
        np.testing.assert_array_equal(index, np.flatnonzero(k == PART))
        own = part.problem.X.toarray() if sp.issparse(part.problem.X) else part.problem.X
        np.testing.assert_array_equal(own, X[index])
        np.testing.assert_array_equal(part.problem.y, y[index])
        np.testing.assert_array_equal(part.problem.weight, WEIGHT[index])
        np.testing.assert_array_equal(part.state["number"], index)


def test_negative_numbers_go_nowhere_and_empty_parts_are_none():
    part = np.where(PART == 2, -1, PART * 2)
    shards = scattered(part, value=VALUE)
    assert len(shards) == 4
    assert sum(len(rows) for rows in shards.rows) == np.count_nonzero(PART != 2)
    found = shards.gather("value")
    np.testing.assert_array_equal(found, np.where(PART == 2, 0.0, VALUE))


def test_rows_that_follow_each_other_are_not_copied():
    blocks = scattered(np.arange(N) // 20)
    assert all(np.shares_memory(part.problem.X, X) for part in blocks.parts)
    assert not any(np.shares_memory(part.problem.X, X) for part in scattered().parts)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_sums_are_made_in_the_order_of_the_parts(threads):
    shards = LocalEngine().scatter(problem(threads=threads), PART, {"value": VALUE})
    expected = 0.0
    for k in range(5):
        expected = expected + 3.0 * float(VALUE[k == PART].sum())
    assert shards.sum(total, 3.0) == expected
    rows, sums = shards.sum(pair)
    assert rows == N
    np.testing.assert_allclose(sums, X.sum(axis=0))


def test_a_step_replaces_the_state_of_new_parts_only():
    before = scattered(value=VALUE)
    after, rows = before.step(doubled, 2.0)
    assert rows == N
    np.testing.assert_array_equal(after.gather("value"), 2.0 * VALUE)
    np.testing.assert_array_equal(before.gather("value"), VALUE)
    assert after.parts[0].problem is before.parts[0].problem


def test_a_turn_is_a_task_of_one_part():
    shards = scattered(value=VALUE)
    np.testing.assert_array_equal(shards.turn(3, doubled_value), 2.0 * VALUE[PART == 3])


@pytest.mark.parametrize(("fan_in", "left"), [(2, 3), (3, 2), (5, 1), (9, 1), (1, 5)])
def test_merges_join_neighbours(fan_in, left):
    shards = scattered(number=np.arange(N)).merge(fan_in)
    assert len(shards) == left
    for k, (index, part) in enumerate(zip(shards.rows, shards.parts, strict=True)):
        assert set(index) == set(np.flatnonzero(PART // fan_in == k))
        np.testing.assert_array_equal(part.problem.X, X[index])
        np.testing.assert_array_equal(part.state["number"], index)
    np.testing.assert_array_equal(shards.gather("number"), np.arange(N))


def test_only_survivors_go_on():
    kept = np.where(RNG.random(N) < 0.5, VALUE, 0.0)
    kept[PART == 4] = 0.0
    shards = scattered(value=kept, number=np.arange(N)).merge(2, only="value")
    assert len(shards) == 2  # nobody of the last part survives
    assert sorted(np.concatenate(shards.rows)) == list(np.flatnonzero(kept))
    np.testing.assert_array_equal(shards.gather("value"), kept)
    np.testing.assert_array_equal(shards.gather("number"), np.where(kept != 0, np.arange(N), 0))


def test_traffic_counts_what_goes_out_and_back_and_rows_that_move():
    shards = scattered(value=VALUE)
    assert shards.traffic.seen == (0, 0)
    shards.sum(total, 3.0)
    assert shards.traffic.seen == (1, 5 * 8 + 5 * 8)
    shards.turn(0, doubled_value)
    rows = np.bincount(PART)
    assert shards.traffic.seen == (2, 80 + 8 * rows[0])
    moved = rows[1] + rows[3]
    merged = shards.merge(2)
    assert merged.traffic is shards.traffic
    assert shards.traffic.seen == (3, 80 + 8 * rows[0] + 8 * moved * (D + 2 + 1))
    shards.merge(1)
    assert shards.traffic.rounds == 3


def test_sparse_rows_move_as_they_are_stored():
    S = sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    shards = scattered(np.arange(N) // 30, S)
    shards.merge(2)
    stored = S[30:].nnz * (S.data.itemsize + S.indices.itemsize)
    assert shards.traffic.bytes == stored + 8 * 30 * 2


def test_rows_that_are_scattered_anew_are_counted():
    first = scattered(value=VALUE)
    first.sum(total, 1.0)
    again = LocalEngine().scatter(problem(), PART // 2, {"value": VALUE}, first.traffic)
    assert again.traffic.seen == (2, 80 + 8 * N * (D + 2))


def test_parts_share_the_threads():
    many = LocalEngine().scatter(problem(threads=8), np.arange(N) // 20)
    assert [part.problem.threads for part in many.parts] == [2, 2, 2]
    assert [part.problem.threads for part in many.merge(3).parts] == [8]


def test_rows_of_a_part_keep_their_order():
    assert all(a < b for rows in scattered().rows for a, b in pairwise(rows))
