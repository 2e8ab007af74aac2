"""Blocks of rows in files: what was written is read, whatever the order and whatever fails."""

import errno
import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from cluster_tasks import biased, doubled, noted, total, wrong
from optimargin.engines import blocks, rounds
from optimargin.engines.blocks import FIRST, Chunk, Lost, Pose
from optimargin.engines.rounds import Known, Order, Step
from optimargin.loss import odm

RNG = np.random.default_rng(0)
N, D = 40, 3
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.5)
y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
WEIGHT, VALUE = RNG.uniform(0.5, 2.0, size=N), RNG.normal(size=N)
POSE = Pose(D, odm(10.0, 0.5, 0.2, N), 1.0, 2, 1, np.inf)


def chunks(rows=np.asarray, width=7):
    matrix = rows(X)
    for j, start in enumerate(range(0, N, width)):
        span = slice(start, start + width)
        state = {"value": VALUE[span], "a/b": VALUE[span] + 1.0}
        yield Chunk((0, j), matrix[span], y[span], WEIGHT[span], np.arange(N)[span], state)


def written(tmp_path, rows=np.asarray, order=None):
    found = list(chunks(rows))
    return blocks.write(
        4, str(tmp_path / "1-4"), found if order is None else [found[k] for k in order]
    )


def order(version, task, *shared, makes=None, **more):
    known = {4: Known(0, more.pop("digest"), 0)}
    return Order(POSE, version, known, pickle.dumps((task, shared)), makes, **more)


def reply(given, facts):
    (found,) = rounds.replied(pickle.dumps(given), [facts])
    return found


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("turn", [None, [5, 0, 3, 1, 4, 2]], ids=["in order", "shuffled"])
def test_a_block_is_its_rows_in_whatever_order_they_came(tmp_path, rows, turn):
    facts = written(tmp_path, rows, turn)
    assert (facts.rows, facts.features) == (N, D)
    problem = blocks.opened(facts.path, POSE)
    own = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    np.testing.assert_array_equal(own, X)
    np.testing.assert_array_equal(problem.y, y)
    np.testing.assert_array_equal(problem.weight, WEIGHT)
    np.testing.assert_array_equal(blocks.numbers(facts.path, 0), np.arange(N))
    state = blocks.read_state(facts.path, FIRST)
    np.testing.assert_array_equal(state["value"], VALUE)
    np.testing.assert_array_equal(state["a/b"], VALUE + 1.0)
    assert facts.tally[1.0] == (np.count_nonzero(y == 1.0), pytest.approx(WEIGHT[y == 1.0].sum()))
    assert facts.digest == written(tmp_path / "again", rows).digest


def test_other_rows_have_another_digest(tmp_path):
    found = list(chunks())
    first = blocks.write(0, str(tmp_path / "a"), found)
    found[2] = found[2]._replace(X=found[2].X + 1e-9)
    assert blocks.write(0, str(tmp_path / "b"), found).digest != first.digest


def test_files_are_ordinary_ones(tmp_path):
    facts = written(tmp_path, order=[1, 0, 2, 3, 4, 5])
    np.testing.assert_array_equal(np.load(os.path.join(facts.path, "X.npy")), X)


def test_a_block_without_rows_is_one(tmp_path):
    assert blocks.write(0, str(tmp_path / "empty"), []).rows == 0


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def few():
        yield next(chunks())
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        blocks.write(0, str(tmp_path / "1-0"), few())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_block_is_written_anew(tmp_path):
    facts = written(tmp_path)
    os.unlink(os.path.join(facts.path, "y.npy"))
    os.truncate(os.path.join(facts.path, "X.npy"), 100)
    written(tmp_path)
    np.testing.assert_array_equal(blocks.opened(facts.path, POSE).X, X)


def test_rows_that_are_not_there_are_said_to_be_lost(tmp_path):
    facts = written(tmp_path)
    blocks.remove(facts.path)
    with pytest.raises(Lost):
        blocks.opened(facts.path, POSE)
    assert reply(order(FIRST, total, 1.0, digest=facts.digest), facts).kind == "lost rows"


def test_rows_that_may_not_be_mapped_are_not_lost(tmp_path, monkeypatch):
    def refused(path):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    facts = written(tmp_path)
    monkeypatch.setattr(blocks, "_map", refused)
    with pytest.raises(MemoryError, match=r"spark\.executor\.pyspark\.memory"):
        blocks.opened(facts.path, POSE)


def test_arrays_that_a_step_leaves_alone_are_not_written_again(tmp_path):
    facts = written(tmp_path)
    said = reply(order(FIRST, noted, makes=9, digest=facts.digest), facts)
    assert (said.kind, said.value) == ("said", N)
    old, new = (os.path.join(facts.path, f"state-{v}", "value.npy") for v in (FIRST, 9))
    assert os.path.samefile(old, new)
    np.testing.assert_array_equal(blocks.read_state(facts.path, 9)["0/1/more"], VALUE + 1.0)
    blocks.drop_states(facts.path, [FIRST, 9])
    assert not blocks.has_state(facts.path, 9)
    np.testing.assert_array_equal(blocks.read_state(facts.path, FIRST)["value"], VALUE)


def test_a_state_that_is_lost_is_made_again_by_its_steps(tmp_path):
    facts = written(tmp_path)
    log = tuple(Step(v, POSE, pickle.dumps((doubled, (2.0,)))) for v in (5, 6, 7))
    ask = order(7, total, 1.0, digest=facts.digest)
    assert reply(ask, facts).kind == "lost state"
    said = reply(ask._replace(log=log), facts)
    assert said.value == pytest.approx(8.0 * VALUE.sum())
    blocks.drop_states(facts.path, [5, 7])
    assert reply(ask._replace(log=log), facts).value == said.value  # from version 6
    assert not blocks.has_state(facts.path, 5)


def test_a_state_that_is_lost_is_made_again_from_a_copy(tmp_path):
    facts = written(tmp_path)
    step = Step(7, POSE, pickle.dumps((doubled, (2.0,))))
    copy = {4: {"value": VALUE + 3.0}}
    ask = order(7, total, 1.0, digest=facts.digest, log=(step,), base=6)
    assert reply(ask, facts).kind == "lost state"
    said = reply(ask._replace(states=copy), facts)
    assert said.value == pytest.approx(2.0 * (VALUE + 3.0).sum())


def test_rows_that_are_others_than_before_are_an_error(tmp_path):
    facts = written(tmp_path)
    with pytest.raises(ValueError, match="frame: its rows are others"):
        reply(order(FIRST, total, 1.0, digest=facts.digest + 1), facts)


def test_an_error_of_a_task_travels(tmp_path):
    facts = written(tmp_path)
    said = reply(order(FIRST, wrong, digest=facts.digest), facts)
    assert said.kind == "failed"
    assert str(said.value) == "lam: must be positive."


def test_old_generations_go(tmp_path):
    facts = written(tmp_path)
    other = blocks.write(4, str(tmp_path / "2-4"), chunks())
    reply(order(FIRST, total, 1.0, digest=facts.digest, rubbish=(2,)), facts)
    assert os.path.isdir(facts.path)
    assert not os.path.isdir(other.path)


def test_steps_are_repeated_under_the_loss_that_they_had(tmp_path):
    facts = written(tmp_path)
    other = POSE._replace(bias=7.0)
    log = (Step(5, other, pickle.dumps((biased, ()))),)
    said = reply(order(5, total, 1.0, digest=facts.digest, log=log), facts)
    assert said.value == 7.0 * N
