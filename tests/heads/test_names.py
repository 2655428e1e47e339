"""Directions of a head made by hand are named by the words and places that they were made of."""

from dataclasses import replace

import attsvm
import numpy as np
import pytest
from attsvm.heads.directions import name_directions
from attsvm.heads.faithful import Faithfulness, LostDirection
from attsvm.heads.why import svm_weights
from made import briefly

WORDS = ["cat", "dog", "fish", "bird", "the", "a"]
T = 7


@pytest.fixture
def head(rng):
    """Queries "cat" choose "fish", twice as much as "dog" choose "bird", and "the" the token after it."""
    ids = rng.integers(0, 6, (60, T))
    places = np.broadcast_to(np.eye(T), (60, T, T))
    inputs = np.concatenate([np.eye(6)[ids], places], axis=2)
    left, right = np.zeros((2, 6 + T, 3))
    right[0, 0], left[2, 0] = 4, 4  # cat -> fish
    right[1, 1], left[3, 1] = 3, 3  # dog -> bird
    right[4, 2], left[6, 2] = 2, 2  # the -> the first place
    words = [[WORDS[i] for i in sentence] for sentence in ids]
    (found,) = attsvm.heads.from_arrays(inputs, right.T, None, left.T, None, scale=1.0, tokens=words)
    return found


def test_words_and_places_of_directions(head):
    rows = np.array([(i, q, head.choices.selected[i * T + q]) for i in range(60) for q in range(T)])
    named = name_directions(head, rows)
    assert [direction.value for direction in named] == pytest.approx([16, 9, 4])
    assert [(d.queries, d.tokens) for d in named[:2]] == [(["cat"], ["fish"]), (["dog"], ["bird"])]
    assert str(named[0]) == "“cat” → “fish”" and str(named[2]) == "“the” → the first token"
    assert sum(d.share for d in named) == pytest.approx(1) and named[0].share > named[1].share > 0
    # The sign of a singular pair is nobody's choice.
    other = name_directions(replace(head, K=-head.K, Q=-head.Q), rows)
    assert [str(d) for d in other] == [str(d) for d in named]


def test_a_place_relative_to_the_query(rng):
    inputs = np.concatenate([rng.standard_normal((40, T, 3)), np.broadcast_to(np.eye(T), (40, T, T))], axis=2)
    shift = np.zeros((T, 3 + T))
    shift[:, 3:] = 4 * np.eye(T)
    after = np.zeros((T, 3 + T))
    after[: T - 1, 4:] = 4 * np.eye(T - 1)  # the key of place t + 1 meets the query of place t
    (head,) = attsvm.heads.from_arrays(inputs, shift, None, after, None, scale=1.0)
    named = name_directions(head, attsvm.heads.hard_queries(head))
    assert [d.place for d in named] == ["the token after"] * len(named)
    assert str(named[0]) == "queries → the token after"


def test_why_has_the_svm_beside_and_the_damage_where_it_is_known(head):
    report = briefly(head, threshold=0.5)
    lost = LostDirection(head.label, 1, "", 0.2, 9.0, 0.031, 0.002, "")
    other = replace(lost, label="L9H9", number=0)
    measured = Faithfulness([head.label], {}, "KL", {}, {}, {}, [lost, other])
    reason = attsvm.heads.why(report, *report.train[0, :2], faithfulness=measured)
    assert reason.names[:2] == ["“cat” → “fish”", "“dog” → “bird”, damage 0.031 (random direction 0.002)"]
    named = name_directions(head, report.train, svm_weights(report))
    assert reason.svm_names == [str(one) for one in named] and "“cat” → “fish”" in reason.svm_names[:2]
    assert all(part in repr(reason) for part in (reason.names[1], "the SVM's W", "queries → tokens"))
    given = attsvm.heads.why(report, *report.train[0, :2], W=head.W, faithfulness=measured)
    assert given.svm_names == [] and "damage" not in repr(given)  # of another W nothing is known


def test_queries_whose_logits_overflow_are_left_out():
    (head,) = attsvm.heads.from_arrays(np.full((9, 5, 8), 1e200), np.eye(8), None, np.eye(8), None)
    assert name_directions(head, []) == []
