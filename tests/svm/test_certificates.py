"""What the gate lets through as a proof."""

import attsvm
import numpy as np
from attsvm import _core
from attsvm.svm.request import Answer
from problems import sphere


def test_what_is_no_proof_is_refused():
    """Multipliers that combine the rows to nothing are a certificate; the same with one changed are not."""
    rng = np.random.default_rng(0)
    a, b, c = sphere(rng, 3, 4)
    data = attsvm.cross_attention([[a, b], [b, c], [c, a]], np.tile(sphere(rng, 4), (3, 1)))
    reference_token = np.zeros(3, dtype=np.intp)

    def proposed(dual):
        dual = np.array(dual, dtype=float)
        return Answer(*_core.check(data._handle, reference_token, None, None, 1e-9, 0, 0.0, 2.0, 0, dual, None, None))

    proof = proposed([0, 3e200, 0, 3e200, 0, 3e200])
    assert _core.STATUS[proof.status] == "infeasible" and proof.method == "presolve"
    # A multiplier is scaled by its length, and back.
    assert 1 <= proof.dual[1] < 2 and np.ptp(proof.dual[1::2]) <= 1e-15
    for dual in ([0, 1, 0, 1, 0, 1.001], [0, 1, 0, 1, 0, 0], [0] * 6, [0, -1, 0, -1, 0, -1], [0, np.nan, 0, 1, 0, 1]):
        assert _core.STATUS[proposed(dual).status] == "undecided", dual


def test_a_product_of_rounding_alone_proves_nothing():
    """Differences x, y and -(x + y), margins s, t and -(s + t): multipliers of 1 combine the rows to nothing, and what
    they ask to exactly zero, whatever rounding makes of it.  Two independent differences can be met."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(-9, 10, (2, 3)).astype(float)
        s, t = rng.integers(1, 20, 2)
        data = attsvm.cross_attention([[0 * x, -x, -y, x + y]], [[1.0, 2.0]])
        options = np.zeros(1, dtype=np.intp), None, np.array([0.0, s, t, -s - t]), 1e-9, 0, 0.0, 2.0, 0
        proposed = Answer(*_core.check(data._handle, *options, np.array([0.0, 1.0, 1.0, 1.0]), None, None))
        assert _core.STATUS[proposed.status] == "undecided" and proposed.upper == np.inf, seed
