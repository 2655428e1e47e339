"""Training on shards: as many threads as workers here, with a barrier for a network."""

import re
import secrets
import threading
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm.common.workers import Workers
from builders import starts
from compare import close, same_run
from network import Network
from numpy.testing import assert_allclose, assert_array_equal

SIZES = [(6,), (4, 2), (1, 5), (2, 2, 2)]


def shards(sizes):
    """A problem and its parts."""
    rng, n = np.random.default_rng(0), sum(sizes)
    X, Z = rng.standard_normal((n, 6, 5)), rng.standard_normal((n, 4))
    y, v = rng.choice([-1, 1], n), rng.standard_normal(5)

    def problem(rows):
        return attsvm.Problem(attsvm.cross_attention(X[rows], Z[rows]), y[rows], attsvm.LinearHead(v))

    parts = [problem(rows) for rows in np.split(np.arange(n), np.cumsum(sizes)[:-1])]
    whole = problem(slice(None))
    return SimpleNamespace(whole=whole, parts=parts, rng=rng, data=whole.data)


def apart(parts, network=None, each=None, **options):
    """What training each part returns or raises, all side by side; `each` are options of a part's own."""
    own = [{"problem": part} | more for part, more in zip(parts, each or [{}] * len(parts), strict=True)]
    return (network or Network(len(parts))).apart(attsvm.train, own, **options)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("rule", list(attsvm._core.UPDATE_RULE))
def test_shards_follow_the_whole(sizes, trained, rule, monkeypatch):
    Network.in_order(monkeypatch)  # no two workers draw the same slot
    s, network = shards(sizes), Network(len(sizes))
    options = starts(s, trained) | dict(rule=rule, steps=30, record=4)
    runs, expected = apart(s.parts, network=network, **options), attsvm.train(s.whole, **options)
    for run, part in zip(runs, s.parts, strict=True):
        same_run(run, expected, 1e-12 if len(sizes) > 1 else 0.0)
        same_run(run, runs[0], 0.0)
        assert len(run.selected) == len(part.data)
    # Two a step; at the start slots, a check of the sum, whether all are fine with their arguments, counts, what polyak
    # aims at, and whether all agree.
    assert network.calls == 62 + 6


@pytest.mark.parametrize(
    "options",
    [
        dict(ridge=1e-2),
        dict(train_head=True),
        dict(runs=3, lr=[[0.1], [0.05], [0.2]]),
        dict(ball=("nuclear", 1.0)),
        dict(momentum=0.9, rule="sign"),
        dict(weight_decay=0.1, rule="spectral"),
        dict(rule=attsvm.rules.adam(betas=(0.9, 0.9), eps=1e-3)),
        dict(rule=attsvm.rules.shampoo(eps=1e-2)),
        dict(rule=attsvm.rules.mirror(p=3.0), train_head=True),
        dict(lr=np.linspace(0.1, 0.0, 30)),
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("trained", ["W", "KQ"])
def test_whatever_else_is_asked(options, trained):
    s = shards((4, 2))
    options = starts(s, trained, options.get("runs")) | options | dict(steps=30, record=10)
    for run in apart(s.parts, **options):
        same_run(run, attsvm.train(s.whole, **options))


@pytest.mark.parametrize("record", [1, 7, 100])
def test_a_bar_asks_for_no_gradient_more(record):
    """It may be shown by one worker alone: the others would wait for its calls."""
    pytest.importorskip("tqdm")
    networks = [Network(1), Network(1)]
    for network, progress in zip(networks, (False, True), strict=True):
        apart(shards((3,)).parts, network=network, steps=400, record=record, progress=progress)
    assert networks[0].calls == networks[1].calls > 400


def test_scales_that_no_double_holds():
    """At a norm of 1e5 the shards' gradients lie e^thousands apart, and all of them vanish in double precision."""
    s, W = shards((2, 3)), np.random.default_rng(3).standard_normal((5, 4))
    options = dict(W=W * 1e5 / np.linalg.norm(W), steps=30, record=5)
    expected = attsvm.train(s.whole, **options)
    assert expected.log_grad_norm.max() < -1000
    moved = expected.W - options["W"]
    for run in apart(s.parts, **options):
        close(run.W - options["W"], moved, 1e-9)
        assert_allclose(run.log_grad_norm, expected.log_grad_norm, rtol=1e-12)


def test_a_shard_that_adds_nothing_does_not_drown_the_others():
    """One token a window: its gradient is exactly zero, on no scale at all."""
    some, W = shards((2,)).whole, 3000.0 * np.random.default_rng(5).standard_normal((5, 4))
    none = attsvm.Problem(attsvm.cross_attention(np.ones((1, 1, 5)), np.ones((1, 4))), None, some.head)
    alone = attsvm.train(some, W, steps=10)
    assert alone.log_grad_norm.max() < -300
    for run in apart([some, none], W=W, steps=10):
        close(run.W, alone.W)
    assert [run.status for run in apart([none, none], W=W, steps=10)] == ["stationary"] * 2


def test_a_factor_without_gradient_keeps_the_scale_of_the_other():
    """K = 0: dQ = dW^T K is exactly zero, dK = dW Q is not."""
    s = shards((3, 2))
    options = dict(K=np.zeros((5, 3)), Q=s.rng.standard_normal((4, 3)), steps=1)
    for run in apart(s.parts, **options):
        same_run(run, attsvm.train(s.whole, **options))
        assert run.K.any()


def test_infinite_losses_have_no_mean():
    network = Network(2)

    def work(loss):
        workers, losses, gradient = Workers(network.reduce), np.array([loss]), np.ones((1, 4))
        workers.weigh(1)
        workers.combine(gradient.reshape(-1), losses, np.zeros(1), [(gradient, slice(0, 1))])
        return losses[0]

    assert np.isnan(network.run([lambda: work(np.inf), lambda: work(-np.inf)])).all()


def test_they_end_together():
    s = shards((3, 2))
    far = dict(W=np.zeros((5, 4)), rule="constant", lr=1e308, steps=50)
    for error in apart(s.parts, **far):
        assert isinstance(error, FloatingPointError)
        assert str(error) == str(pytest.raises(FloatingPointError, attsvm.train, s.whole, **far).value)
    target = s.whole.loss(np.zeros((5, 4))) - 1e-3
    first, second = apart(s.parts, rule=attsvm.rules.polyak(target_loss=target))
    assert first.status == "target reached" and first.steps[-1] > 0
    same_run(first, second, 0.0)


def test_a_callback_of_one_stops_all():
    each = [dict(callback=lambda run, last=last: run.steps[-1] == last) for last in (20, 1000)]
    for run in apart(shards((3, 2)).parts, record=10, each=each):
        assert run.status == "stopped"
        assert_array_equal(run.steps, [0, 10, 20])


def test_an_exception_keeps_what_all_have_recorded():
    s, calls = shards((3,)), []

    def reduce(array):
        calls.append(1)
        if len(calls) == 6 + 2 * 15:
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError) as caught:
        attsvm.train(s.whole, record=10, reduce=reduce)
    assert caught.value.partial.status == "interrupted"
    assert_array_equal(caught.value.partial.weights, attsvm.train(s.whole, steps=10, record=10).weights)


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (dict(lr=0.1), dict(lr=0.2), "lr"),
        ({}, dict(steps=31), "steps or record"),
        ({}, dict(record=5), "steps or record"),
        ({}, dict(W=np.ones((5, 4))), "W"),
        ({}, dict(rule="constant", lr=0.1), "rule"),
        ({}, dict(ridge=1.0), "ridge"),
        ({}, dict(callback=lambda run: None), "callback (given or not)"),
        (dict(rule="polyak"), dict(rule=attsvm.rules.polyak(target_loss=0.1)), "target"),
    ],
)
def test_workers_that_differ_are_told(one, other, name):
    for error in apart(shards((3, 2)).parts, each=[one, other], steps=30, lr=0.1):
        assert isinstance(error, ValueError) and "same settings" in str(error)
        assert str(error).endswith(f"got others of {name}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.ones((2, 3)), np.ones((3, 2))),
        (np.arange(3.0), np.array([0.0, 1.0, 2.5])),
        ("sum", "mean"),
        (None, 0.0),
        (None, "None"),
        (["linear", np.ones(2)], ["linear", np.ones((2, 1))]),
        (["a", None], ["a"]),
    ],
    ids=str,
)
def test_what_differs_in_value_or_shape_differs(one, other):
    network = Network(2)
    works = [lambda own=own: Workers(network.reduce).agree(same=one, setting=own, too=3) for own in (one, other)]
    assert [str(error).rpartition("of ")[2] for error in network.run(works)] == ["setting"] * 2
    assert network.run([lambda: Workers(network.reduce).agree(setting=one)] * 2) == [None] * 2


def check_told(errors, bad, kind):
    """The worker ``bad`` raises its own error, the others one that quotes it."""
    own = errors[bad]
    assert isinstance(own, kind) and not isinstance(own, RuntimeError)
    for error in (error for error in errors if error is not own):
        assert isinstance(error, RuntimeError)
        assert re.fullmatch(
            rf"of {len(errors)} workers (rank \d+, )?process \d+ on \S+ failed, so all stop: .*", str(error), re.DOTALL
        )
        assert str(own) in str(error)


@pytest.mark.parametrize(
    "wrong",
    [
        dict(problem=None),
        dict(rule="fast"),
        dict(steps=-1),
        dict(lr=[0.1]),
        dict(W=np.ones((4, 5))),
        dict(record=[99]),
        dict(callback=1),
        dict(runs=0),
        dict(train_head=1),
        dict(momentum=1.0),
    ],
    ids=lambda wrong: f"{next(iter(wrong))}",
)
@pytest.mark.parametrize("bad", [0, 2])
def test_what_one_worker_refuses_stops_all(wrong, bad):
    each = [wrong if i == bad else {} for i in range(3)]
    errors = apart(shards((2, 2, 2)).parts, each=each, steps=30)
    check_told(errors, bad, (ValueError, TypeError))


def test_an_error_in_one_callback_stops_all():
    def fails(run):
        if run.steps[-1] == 20:
            raise LookupError("no such file: \N{SNOWMAN}")

    each = [dict(callback=call) for call in (lambda run: None, fails)]
    errors = apart(shards((3, 2)).parts, record=10, each=each)
    check_told(errors, 1, LookupError)
    for error in errors:
        assert error.partial.status == "interrupted"
        assert_array_equal(error.partial.steps, [0, 10, 20])


@pytest.mark.parametrize("trained", ["W", "KQ"])
def test_an_error_in_one_head_stops_all(trained):
    """A head is called between two exchanges, where the others wait for a gradient."""
    s, calls = shards((3, 2)), []

    def head(o):
        return o[:, 0], np.eye(5)[np.zeros(len(o), dtype=int)]

    def fails(o):
        calls.append(1)
        return head(o) if len(calls) < 15 else (np.ones(7), o)

    parts = [part._with(head=attsvm.CallableHead(h)) for part, h in zip(s.parts, (head, fails), strict=True)]
    errors = apart(parts, record=10, **starts(s, trained))
    check_told(errors, 1, ValueError)
    for error in errors:
        assert_array_equal(error.partial.steps, [0, 10])


@pytest.mark.parametrize("one_slot", [False, True])
@pytest.mark.parametrize("add", [lambda a, b: (a + b) / 2, np.maximum, np.minimum], ids=["mean", "max", "min"])
def test_another_reduction_than_a_sum_is_noticed_by_all(add, one_slot, monkeypatch):
    """Also when both draw the same slot, where it looks like the sum over a single worker."""
    draw = secrets.randbelow
    monkeypatch.setattr(secrets, "randbelow", lambda n: 5 if one_slot and n == 64 else draw(n))
    for error in apart(shards((3, 2)).parts, network=Network(2, add)):
        assert isinstance(error, ValueError) and "reduce must add" in str(error)


@pytest.mark.parametrize("reduce", [lambda a: a.fill(2.0), lambda a: a.fill(0.0)])
def test_nonsense_is_noticed(reduce):
    with pytest.raises(ValueError, match="reduce must add its argument up over all workers"):
        attsvm.train(shards((3,)).whole, reduce=reduce)


def test_slots_that_clash_are_drawn_again(monkeypatch):
    drawn = {}

    def below(slots):
        mine = drawn.setdefault(threading.get_ident(), [])
        mine.append(slots)
        return 5 if len(mine) < 3 else sorted(drawn).index(threading.get_ident())

    monkeypatch.setattr(secrets, "randbelow", below)
    network = Network(2)
    found = network.run([lambda: Workers(network.reduce).table([1.0]).tolist()] * 2)
    assert found == [[[1.0], [1.0]]] * 2 and all(slots[:-1] == [64, 512, 4096] for slots in drawn.values())
