"""Several threads inside one call: the same answers, bit for bit from run to run; none is left behind."""

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import attsvm
import numpy as np
import pytest
from builders import paper
from compare import close
from numpy.testing import assert_allclose, assert_array_equal
from problems import Case, ball, sphere


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    attsvm.set_num_threads(1)


def ragged_float32():
    rng = np.random.default_rng(1)
    X = [sphere(rng, T, 64).astype(np.float32) for T in rng.integers(1, 60, 100)]
    data = attsvm.cross_attention(X, sphere(rng, 100, 48))
    return Case(data, data.select(rng.standard_normal((64, 48))))


def causal():
    rng = np.random.default_rng(2)
    data = attsvm.causal_attention(sphere(rng, 6, 40, 64))
    return Case(data, data.select(rng.standard_normal((64, 64))))


def equalities():
    rng = np.random.default_rng(3)
    kept = np.zeros((100, 40), dtype=bool)
    kept[:, [1, 5]] = True
    return Case(attsvm.cross_attention(sphere(rng, 100, 40, 80), sphere(rng, 100, 80)), kept)


# Large enough for every loop to be shared.
PROBLEMS = {"random": lambda: ball(0, 200, 32, 64), "few_queries": lambda: ball(4, 40, 60, 80)}
PROBLEMS |= {"ragged_float32": ragged_float32, "causal": causal, "equalities": equalities}


def solve(case, threads, norm, method):
    attsvm.set_num_threads(threads)
    return attsvm.solve_svm(case.data, case.selected, norm, method=method, tol=1e-9)


SHARED = [(name, "frobenius", "block") for name in PROBLEMS]
SHARED += [("longer", "frobenius", "gradient"), ("longer", "nuclear", "factored")]


@pytest.mark.parametrize(("name", "norm", "method"), SHARED)
def test_threads_change_nothing_but_rounding(name, norm, method):
    case = PROBLEMS.get(name, lambda: ball(5, 60, 40, 64))()
    one = solve(case, 1, norm, method)
    for threads in (2, 3):
        several, again = (solve(case, threads, norm, method) for _ in range(2))
        assert one.status == several.status == "optimal"
        assert several.margin == pytest.approx(one.margin, rel=2e-9)
        # Both within 1e-9 of the least norm: W, where it is unique, to the root of it.
        assert norm == "nuclear" or np.linalg.norm(several.W - one.W) <= 1e-4 * np.linalg.norm(one.W)
        assert_array_equal(several.W, again.W)
        assert several.iterations == again.iterations


def problem_of(n=700, T=12, d=20, head=None, single=False, **options):
    rng = np.random.default_rng(6)
    X, Z, v = rng.standard_normal((n, T, d)) / 4, rng.standard_normal((n, d)) / 4, rng.standard_normal(d)
    data = attsvm.cross_attention(X.astype(np.float32) if single else X, Z)
    return attsvm.Problem(data, rng.choice([-1, 1], n), head or attsvm.LinearHead(v), **options)


def weights(*shape):
    return 0.3 * np.random.default_rng(7).standard_normal(shape)


MLP = attsvm.MLPHead(weights(20, 5))
# What is trained, and how; an output head that is not linear is evaluated query by query: no sum changes at all.
TRAINED = {
    "W": ({}, {}),
    "K, Q": ({}, {"K": weights(20, 3), "Q": weights(20, 3)}),
    "runs": ({}, {"W": weights(3, 20, 20), "runs": 3}),
    "head": ({}, {"train_head": True}),
    "in the span of few queries": ({"n": 80, "T": 40, "d": 80}, {}),
    "in the span before an MLP": (
        {"n": 80, "T": 40, "d": 80, "head": attsvm.MLPHead(weights(80, 5)), "heads": 2},
        {"W": weights(2, 80, 80)},
    ),
    "MLP": ({"head": MLP}, {"W": weights(20, 20)}),
    "MLP, three heads": ({"head": MLP, "heads": 3, "single": True}, {"W": weights(3, 20, 20)}),
    "concatenated heads": (
        {"head": attsvm.LinearHead(weights(40)), "heads": 2, "combine": "concatenate"},
        {"W": weights(2, 20, 20)},
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_threads_change_training_by_rounding_only(name):
    of, options = TRAINED[name]
    problem, found = problem_of(**of), {}
    for count in (1, 2, 3):
        attsvm.set_num_threads(count)
        found[count], again = (attsvm.train(problem, **options, steps=20) for _ in range(2))
        assert again == found[count]  # bit for bit
    for count in (2, 3):
        for part in ("weights", "loss"):
            one, several = (getattr(found[k], part) for k in (1, count))
            close(several, one, 0 if "head" in of else 1e-12)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_no_thread_survives_the_call_and_a_fork_can_solve():
    case = PROBLEMS["random"]()
    before = len(os.listdir("/proc/self/task"))
    two = solve(case, 2, "frobenius", "block")
    # pthread_join may return a moment before the kernel takes the thread out of /proc: a thread that survives stays.
    deadline = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= before
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        margin = solve(case, 2, "frobenius", "block").margin
        os.write(writer, np.float64(margin).tobytes())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.frombuffer(os.read(reader, 8))[0] == two.margin
    os.close(reader)
    os.close(writer)


def test_eight_callers_share_objects_and_get_the_answers_they_would_get_alone():
    """One Data and one Problem; every thread makes every call, each from another one on, while the number of threads
    inside a call changes."""
    s = paper(80, 32, 48, 7)  # loops worth a second thread
    data, problem, selected = s.data, s.problem, s.data.select(np.outer(s.v, s.v))
    W = np.random.default_rng(7).standard_normal((48, 48))
    # With what of its size the answer may differ: the SVMs are within 1e-9 of the least norm, W to the root of it; the
    # others by rounding, which 100 steps of training multiply.
    calls = [
        (lambda: attsvm.solve_svm(data, selected).W, 1e-4),
        (lambda: attsvm.solve_svm(data, selected, method="block").W, 1e-4),
        (lambda: attsvm.train(problem, steps=100).W, 1e-9),
        (lambda: data.logits(W), 1e-14),
        (lambda: problem.loss_and_grad(W)[1], 1e-12),
        (lambda: attsvm.diagnose(problem).solution.W, 1e-4),
    ]
    alone, over = [call() for call, _ in calls], threading.Event()

    def work(first):
        for k in [*range(first, len(calls)), *range(first)]:
            call, part = calls[k]
            assert_allclose(call(), alone[k], rtol=0, atol=part * np.linalg.norm(alone[k]))

    def change():
        for k in itertools.count():
            attsvm.set_num_threads(1 + k % 3)
            assert 1 <= attsvm.get_num_threads() <= 3
            if over.is_set():
                return

    with ThreadPoolExecutor(9) as pool:
        changer = pool.submit(change)
        workers = [pool.submit(work, first % len(calls)) for first in range(8)]
        wait(workers)
        over.set()
    for one in (changer, *workers):
        one.result()
