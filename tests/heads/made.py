"""Heads of random weights that read random sentences."""

from dataclasses import replace

import numpy as np
from attsvm import heads
from numpy.testing import assert_allclose, assert_array_equal

WORDS = ("a", "b", "c")


def make_heads(rng, n=50, lengths=(2, 9), d=8, m=3, sharpness=3.0, count=1, words=WORDS, causal=False):
    """[CLS] first and [SEP] last; without words the tokens are numbers."""
    sizes = rng.integers(*lengths, n)
    X = [rng.standard_normal((T, d)) for T in sizes]
    tokens = [["[CLS]", *rng.choice(words, T - 2), "[SEP]"] for T in sizes] if words else None
    Wq, Wk = sharpness * rng.standard_normal((2, m * count, d)) / np.sqrt(d)
    bq, bk = rng.standard_normal((2, m * count))
    return heads.from_arrays(X, Wq, bq, Wk, bk, heads=count, tokens=tokens, causal=causal, layer=2)


def make_head(*args, **options):
    return make_heads(*args, **options)[0]


def briefly(head, **options):
    """Its report without controls, on one split."""
    return heads.analyze_head(head, **{"threshold": 0.7, "nuclear_queries": 0, "null": False, "splits": 1} | options)


def check_own_choices(head):
    """What is known of its queries is what its weights choose."""
    known, own = np.flatnonzero(np.isfinite(head.choices.top)), replace(head, known=None).choices
    assert_array_equal(head.choices.selected[known], own.selected[known])
    assert_allclose(head.choices.top[known], own.top[known], rtol=1e-5)


def rebuilt(head, fit):
    """The W that its support tokens and multipliers give: sum multiplier (x_selected - x_rival) z^T."""
    begin = head.text.begin[fit.rows[:, 0]]
    query, selected, rival = (head.keys[begin + tokens] for tokens in fit.rows[:, 1:].T)
    return (fit.multipliers[:, None] * (selected - rival)).T @ query
