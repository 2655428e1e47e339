"""Random problems of every awkward kind (campaign.py): none answered wrongly, next to none left open."""

from __future__ import annotations

import ctypes

import attsvm
import pytest
from campaign import KINDS, judge, problem, run


def check(problems, first, most_open):
    counts, _, remarks = run(problems, first)
    wrong = [remark[:5] for remark in remarks if remark[4] is not None]
    assert not wrong
    assert len(remarks) <= most_open * problems, [remark[:4] for remark in remarks]
    for kind in KINDS:  # no kind is all of one answer
        met = counts[kind, "frobenius"] + counts[kind, "nuclear"]
        assert met["optimal"] and (met["infeasible"] or kind == "n = 1"), (kind, met)


def test_a_few_of_every_kind():
    check(312, 0, 0.0)


def test_blas_has_nothing_to_say(capfd):
    """A query that loses the last of its support, and a polish that begins with none; BLAS writes to stdout what it
    takes for a mistake."""
    sol, wrong = judge(problem("spread norms", 35741), "frobenius", method="block")
    assert wrong is None and sol.status == "optimal"
    data = attsvm.cross_attention([[[0.0, 1.0, 0.7], [0.7, 1.6, -1.2], [1e-6, 1.0, 0.7]]], [[1.0]])
    assert attsvm.solve_svm(data, [0], "spectral").status == "optimal"
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_two_thousand():
    check(2016, 312, 5e-3)
