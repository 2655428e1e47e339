"""What is given on the command line reaches what it is for: training, the solver, the figures, the exit code."""

from __future__ import annotations

from contextlib import nullcontext

import attsvm
import numpy as np
import pytest
from attsvm.cli import main as cli
from attsvm.cli import reproduce
from attsvm.cli import run as cli_run
from attsvm.figures import basin, measure, soft_margins
from attsvm.report.claims import exactly
from attsvm.report.proofs import ProvedAnswers

FIGURE = "soft-margins"  # the quickest
CORES = pytest.importorskip("joblib").cpu_count()


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ([], {"steps": 2000, "lr": None, "record": 20}),
        (["--steps", "30", "--lr", "0.03", "--seed", "5"], {"steps": 30, "lr": 0.03, "record": 1}),
    ],
)
def test_run_trains_as_asked(tmp_path, monkeypatch, no_picture, options, how):
    """From uniform weights within 1 / sqrt(inputs) of each linear layer: W of dz, K of dk, Q of dz."""
    X, Z, y, v = attsvm.sample.unit_sphere(6, 5, 4, rng=1)
    np.savez(tmp_path / "data.npz", X=X, Z=Z[:, :3], y=y, v=v)
    records = []
    monkeypatch.setattr(
        cli_run, "train", lambda *given, **how: records.append(how["record"]) or attsvm.train(*given, **how)
    )
    assert cli.main(["run", str(tmp_path / "data.npz"), "--out", str(tmp_path), *options]) == 0
    assert records == [how["record"]] * 2
    rng = np.random.default_rng(5 if options else 0)
    W, K, Q = (
        rng.uniform(-1 / np.sqrt(inputs), 1 / np.sqrt(inputs), shape)
        for inputs, shape in ((3, (4, 3)), (4, (4, 3)), (3, (3, 3)))
    )
    data = attsvm.cross_attention(X, Z[:, :3])
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    one, both = attsvm.train(problem, W, **how), attsvm.train(problem, K=K, Q=Q, **how)
    saved = np.load(tmp_path / "weights.npz")
    for name, expected in {"W": one.W, "K": both.K, "Q": both.Q}.items():
        np.testing.assert_allclose(saved[name], expected, rtol=1e-6, atol=1e-9)
    for name, found in {"W": one, "KQ": both}.items():
        for norm in ("frobenius", "nuclear"):
            sol = attsvm.solve_svm(data, found.selected, norm)
            np.testing.assert_allclose(saved[f"{norm}_{name}"], sol.W, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(saved[f"dual_{norm}_{name}"], sol.dual, rtol=1e-6, atol=1e-9)


@pytest.fixture
def quiet(monkeypatch, no_picture):
    """Without the proofs of answers, which have their own test."""
    monkeypatch.setattr(ProvedAnswers, "claims", lambda self: ({}, []))


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], (soft_margins.RUNS, 0, CORES)),
        (["--quick"], (soft_margins.QUICK, 0, CORES)),
        (["--quick", "--runs", "3"], (3, 0, CORES)),
        (["--seed", "7", "--jobs", "2"], (soft_margins.RUNS, 7, 2)),
    ],
)
def test_reproduce_measures_as_asked(tmp_path, monkeypatch, quiet, capsys, options, asked):
    seen = []
    monkeypatch.setattr(reproduce, "measure", lambda figure, *how: seen.append(how) or measure(figure, 2))
    cli.main(["reproduce", FIGURE, "--out", str(tmp_path), *options])
    assert seen == [asked] and soft_margins.QUICK != soft_margins.RUNS
    assert f"{FIGURE}: {asked[0]} runs in" in capsys.readouterr().out


def judged(monkeypatch, **holds):
    for figure, value in holds.items():
        claims = {figure: [exactly("made of cheese", float(value), low=1)]}
        monkeypatch.setattr({"basin": basin, "soft": soft_margins}[figure], "claims", lambda results, c=claims: c)


@pytest.mark.parametrize("basin_holds", [True, False])
@pytest.mark.parametrize("soft_holds", [True, False])
def test_any_figure_that_fails_makes_the_exit_code(tmp_path, monkeypatch, quiet, capsys, basin_holds, soft_holds):
    judged(monkeypatch, basin=basin_holds, soft=soft_holds)
    code = cli.main(["reproduce", "basin", FIGURE, "--runs", "2", "--jobs", "1", "--out", str(tmp_path)])
    hold = basin_holds + soft_holds
    assert code == int(hold < 2)
    assert f"2 claims: {hold} hold, {2 - hold} fail, 0 undecided" in capsys.readouterr().out


def test_figures_that_must_be_named_stay_on_the_page(tmp_path, monkeypatch, quiet):
    judged(monkeypatch, basin=True, soft=True)
    monkeypatch.setattr(reproduce, "FIGURES", (FIGURE,))
    monkeypatch.setattr(reproduce, "NAMED", ("basin",))
    for names in (["basin"], []):  # without a name: all of FIGURES
        assert cli.main(["reproduce", *names, "--runs", "2", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text()
    assert '<section id="basin"' in page and f'<section id="{FIGURE}"' in page
    assert "2 claims: 2 hold" in page  # those of the report, not of the last command


def test_what_is_done_is_kept(tmp_path, monkeypatch, quiet):
    """An error in the second figure, and Ctrl-C there: the first is on the page, with all its files."""

    def fails(results):
        raise error

    monkeypatch.setattr(basin, "claims", fails)
    for error, ends in ((ZeroDivisionError, pytest.raises(ZeroDivisionError)), (KeyboardInterrupt, nullcontext())):
        out = tmp_path / error.__name__
        with ends:
            assert cli.main(["reproduce", FIGURE, "basin", "--runs", "2", "--jobs", "1", "--out", str(out)]) == 130
        assert f'<section id="{FIGURE}"' in (out / "index.html").read_text()
        names = {"index.html", "claims.json", *(f"{FIGURE}.{kind}" for kind in ("csv", "png", "svg"))}
        assert {path.name for path in out.iterdir()} == names


def test_a_quick_report_has_no_svg_not_even_an_old_one(tmp_path, monkeypatch, quiet):
    monkeypatch.setattr(reproduce, "picture_bytes", lambda figure, suffix: b"")
    drawn, link = tmp_path / f"{FIGURE}.svg", f'<a href="{FIGURE}.svg">SVG</a>'
    for options, there in (([], True), (["--quick"], False)):
        cli.main(["reproduce", FIGURE, "--runs", "2", "--out", str(tmp_path), *options])
        assert drawn.exists() == there == (link in (tmp_path / "index.html").read_text())
        assert drawn.with_suffix(".png").exists()
