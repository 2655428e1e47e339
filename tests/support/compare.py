"""Arrays that are equal but for rounding."""

import io

import attsvm
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal


def close(found, expected, tol=1e-12):
    """Relative to the largest entry."""
    assert_allclose(found, expected, rtol=0, atol=tol * np.abs(expected).max(initial=0.0))


def same_run(found, expected, tol=1e-12):
    """Thirty steps add as many roundings; a log scale of L is itself rounded to L eps."""
    assert found.status == expected.status
    assert_array_equal(found.steps, expected.steps)
    for name in ("W", "K", "Q", "v", "weights", "loss", "norm", "log_grad_norm", "head_records"):
        mine, theirs = getattr(found, name), getattr(expected, name)
        if theirs is not None:
            close(mine, theirs, tol)


def reloaded(result):
    """Out of a file."""
    file = io.BytesIO()
    result.save(file)
    file.seek(0)
    return attsvm.load(file)
