"""The function that watches a training run: what it sees, when, and that it changes nothing but the end."""

from dataclasses import replace

import attsvm
import numpy as np
import pytest


def same(a, b):
    """Bit for bit, however they ended."""
    assert replace(a, status=b.status) == b


def test_records_are_not_copied_each_time(sphere):
    seen = []
    run = attsvm.train(sphere().problem, steps=50, record=1, callback=seen.append)
    assert all(np.shares_memory(part.weights, run.weights) and not np.shares_memory(part.W, run.W) for part in seen)


@pytest.mark.parametrize("name", ["steps", "weights", "loss", "norm", "log_grad_norm", "head_records"])
@pytest.mark.parametrize("runs", [None, 2])
def test_it_cannot_write_over_the_records(name, runs, sphere):
    options = dict(steps=50, runs=runs, train_head=True)
    with pytest.raises(ValueError, match="read-only") as caught:
        attsvm.train(sphere().problem, **options, callback=lambda run: getattr(run, name).fill(0))
    run = attsvm.train(sphere().problem, **options, callback=lambda run: None)
    assert all(getattr(ended, name).flags.writeable for ended in (caught.value.partial, run))


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("answer", [True, np.True_])
def test_true_stops_the_run(progress, answer, sphere, capsys):
    problem = sphere().problem
    run = attsvm.train(problem, record=10, progress=progress, callback=lambda run: run.steps[-1] == 40 and answer)
    assert run.status == "stopped" and "stopped" in repr(run)
    same(run, attsvm.train(problem, steps=40, record=10))


@pytest.mark.parametrize("answer", [None, False, 1, "yes", np.ones(3), np.False_])
@pytest.mark.parametrize("steps", [0, 20])
def test_nothing_else_stops_it_nor_true_at_its_end(answer, steps, sphere):
    options = dict(steps=steps, record=5, callback=lambda run: run.steps[-1] == steps or answer)
    assert attsvm.train(sphere().problem, **options).status == "completed"


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("raised", [ValueError("mine"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_its_exceptions_keep_the_run_so_far(progress, raised, sphere, capsys):
    def watch(run):
        if run.steps[-1] == 30:
            raise raised

    problem = sphere().problem
    with pytest.raises(type(raised)) as caught:
        attsvm.train(problem, record=10, progress=progress, callback=watch)
    assert caught.value is raised and raised.partial.status == "interrupted"
    same(raised.partial, attsvm.train(problem, steps=30, record=10))


def test_it_sees_where_a_run_ends_at_its_target(sphere):
    s, seen = sphere(), []
    target = s.problem.loss(np.zeros((10, 10))) - 1e-3
    options = dict(rule=attsvm.rules.polyak(target_loss=target), record=0)
    run = attsvm.train(s.problem, callback=seen.append, **options)
    assert run.status == "target reached" and len(seen) == 2 and seen[-1].steps[-1] == run.steps[-1] > 0
    with pytest.raises(ZeroDivisionError) as caught:
        attsvm.train(s.problem, callback=lambda run: 1 / (2 - len(run.steps)), **options)
    same(caught.value.partial, run)


def test_it_may_train_itself(sphere):
    """The kernels keep nothing between calls."""
    problem, inner = sphere().problem, []
    run = attsvm.train(problem, steps=30, callback=lambda run: inner.append(attsvm.train(problem, steps=30)))
    assert [run] * 2 == inner
