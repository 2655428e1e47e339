"""Solves of several seconds: what makes the problem, and the options; by what takes the time."""

import attsvm
import numpy as np
from problems import Case, ball, gaussian, planted_margin


def pairs(n, T, d):
    """Two selected tokens in every window, of equal logits under some W or not."""
    rng = np.random.default_rng(0)
    data = attsvm.cross_attention(rng.standard_normal((n, T, d)), rng.standard_normal((n, d)))
    return Case(data, np.argsort(rng.random((n, T)), axis=1) < 2)


# Each takes several seconds when nobody interrupts it, nearly all of them in what the name says.
LONG = {
    "rows of the entrywise norm": (lambda: gaussian(0, 300, 24, 90), {"norm": 3.0}),
    "weights of the entrywise norm": (lambda: gaussian(0, 700, 10, 50), {"norm": 1.3}),
    "interior point on rows": (lambda: gaussian(0, 200, 32, 90), {"method": "interior"}),
    "interior point on weights": (lambda: gaussian(0, 700, 12, 56), {"method": "interior"}),
    "equality rows": (lambda: pairs(2500, 3, 80), {}),
    "active set": (lambda: planted_margin(0, 60, 40, 40, 1e-6), {"method": "active"}),
    "large active set": (lambda: gaussian(0, 250, 30, 120), {"method": "active"}),
    "block ascent": (lambda: ball(0, 900, 64, 64), {"method": "block"}),
    "block ascent beyond rounding": (lambda: gaussian(0, 400, 64, 24), {"method": "block", "max_iter": 10**9}),
    "projected gradient": (lambda: planted_margin(0, 40, 40, 24, 1e-6), {"method": "gradient", "max_iter": 10**9}),
    "soft margin": (lambda: gaussian(0, 128, 40, 64), {"C": 1e4, "method": "interior"}),
    "soft margin by block ascent": (lambda: ball(0, 900, 64, 64), {"C": 100.0, "method": "block"}),
    "nuclear norm": (lambda: gaussian(0, 150, 60, 90), {"norm": "nuclear", "method": "interior"}),
    "nuclear norm in factors": (lambda: ball(0, 300, 40, 96), {"norm": "nuclear", "method": "factored"}),
    "row generation": (lambda: gaussian(0, 2000, 300, 24), {"tol": 1e-9}),
    "rank cap": (lambda: gaussian(0, 400, 20, 60), {"norm": "nuclear", "rank": 2}),
}
