"""Selections that a solution is known of: the tokens of largest logit under the identity, as a head's are under its own
weights.  On real data that is the usual case; random selections are the hard one."""

import attsvm
import numpy as np


def planted(n, T, d, steep=False, hard=False, seed=0, per_window=1, single=False):
    """Data and selection: n queries over windows of T tokens, `per_window` queries to a window.  Steep: coordinate i
    is scaled by 1 / sqrt(1 + i).  Hard: each query is scaled until its two largest logits differ by 3."""
    g = np.random.default_rng(seed)
    scale = 1 / np.sqrt(1 + np.arange(d)) if steep else np.ones(d)
    X = g.standard_normal((-(-n // per_window), T, d)) * scale
    Z = g.standard_normal((len(X), per_window, d)) * scale
    if hard:
        top = np.partition(np.einsum("ntd,nsd->nst", X, Z), -2, axis=2)[:, :, -2:]
        Z *= (3 / (top[..., 1] - top[..., 0]))[..., None]
    data = attsvm.cross_attention(X.astype(np.float32) if single else X, Z[:, 0] if per_window == 1 else Z)
    return data, data.select(np.eye(d))
