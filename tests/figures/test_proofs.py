"""Every SVM that a figure solves is proved."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from attsvm import figures  # noqa: E402
from attsvm.report.proofs import ProvedAnswers  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", figures.FIGURES)
def test_all_answers_of_a_figure_are_proved(name):
    with ProvedAnswers(everything=True) as answers:
        figures.measure(figures.load(name), 4)
    groups, missing = answers.claims()
    assert not missing and groups["Proofs"][0].verdict == "holds"
