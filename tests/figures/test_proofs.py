"""Every SVM that a figure solves is proved."""

import attsvm
import numpy as np
import pytest
from builders import paper
from places import ROOT

pytest.importorskip("matplotlib")

from attsvm import reproduce  # noqa: E402
from attsvm.reproduce import proofs  # noqa: E402
from attsvm.reproduce.proofs import ProvedAnswers  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", reproduce.FIGURES)
def test_all_answers_of_a_figure_are_proved(name):
    with ProvedAnswers(everything=True) as answers:
        reproduce.measure(name, 4)
    groups, missing = answers.claims()
    assert not missing and groups["Proofs"][0].verdict == "holds"


def test_an_equation_that_depends_on_more_than_the_rest_decides():
    """Sentences with copies of a word: in some, an equation depends on others that depend on each other to rounding."""
    with ProvedAnswers(everything=True) as answers:
        reproduce.load("positional-encoding").experiment(np.random.default_rng(109))
    assert not answers.claims()[1]


OTHERS = ("07", "08", "13", "14")  # of trained models, or thousands of runs
NOTEBOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.stem[:2] not in OTHERS]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_answers_of_a_notebook_are_proved(path, tmp_path, monkeypatch):
    """But those of other people's models and of training them, whose rows are beyond what a file holds, and a sweep of
    thousands of runs."""
    nbformat = pytest.importorskip("nbformat")
    if path.stem == "00_start_here":
        pytest.importorskip("pandas")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook", "display": lambda *_: None}
    with ProvedAnswers(everything=True) as answers:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, path.stem, "exec"), names)
                pyplot.close("all")  # as a notebook does, cell by cell
    _, missing = answers.claims()
    assert not missing


def test_answers_in_a_metric_are_left_out():
    """The checker knows none: they are no failures of a proof."""
    data = paper(3, 4, 5).data
    with ProvedAnswers() as answers:
        attsvm.solve_svm(data, [0, 1, 2], metric=np.full((5, 5), 2.0))
        attsvm.solve_svm(data, [0, 1, 2])
    assert answers.seen == 1 and answers.claims()[1] == []


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("refused", [0, 1, 7])
def test_an_answer_without_proof_fails_the_claim(everything, refused, monkeypatch):
    """Ten of twelve answers are proved, or all, whatever their order; each refusal counts and is told."""
    data = [paper(3, 4, 5, k).data for k in range(12)]
    asked = []
    for order in (data, data[::-1]):
        with ProvedAnswers(everything) as answers:
            for one in order:
                attsvm.solve_svm(one, [0, 1, 2])
        tried = []

        def prove(sol, tried=tried):
            tried.append(sol.margin)
            if len(tried) <= refused:
                raise ValueError(f"no proof {len(tried)}")

        monkeypatch.setattr(proofs, "proved", prove)
        groups, missing = answers.claims()
        (claim,) = groups["Proofs"]
        count = 12 if everything else 10
        assert (claim.measured, claim.low, claim.high) == (count - refused, count, None)
        assert claim.verdict == ("fails" if refused else "holds")
        assert claim.text == f"answers proved exactly, of {count}" + " out of 12" * (not everything)
        assert missing == [f"optimal in the frobenius norm: no proof {k + 1}" for k in range(refused)]
        asked.append(sorted(tried))
    assert asked[0] == asked[1] and len(asked[0]) == count
