"""``attsvm reproduce``: what it writes, what it says, what it keeps, and its exit code."""

import json
import re
import sys
from contextlib import nullcontext

import attsvm
import numpy as np
import pytest
from attsvm.claims import VERDICTS, exactly, share
from attsvm.cli import main as cli
from attsvm.reproduce import command, measure
from attsvm.reproduce.figures import basin, soft_margins
from attsvm.reproduce.proofs import ProvedAnswers
from marks import slow

FIGURE = "soft-margins"  # the quickest
CORES = pytest.importorskip("joblib").cpu_count()


@pytest.fixture
def reproduce(tmp_path, capsys):
    """`attsvm reproduce` of two runs: exit code, what it said, its folder."""

    def run(*words, out=tmp_path):
        code = cli.main(["reproduce", "--runs", "2", *words, "--out", str(out)])
        return code, capsys.readouterr().out, out

    return run


@pytest.fixture
def quiet(monkeypatch, no_picture):
    """Without the proofs of answers, which have their own test."""
    monkeypatch.setattr(ProvedAnswers, "claims", lambda self: ({}, []))


def judged(monkeypatch, **claims):
    """Claims in the place of those of the two figures."""
    for figure, claim in claims.items():
        module = {"basin": basin, "soft": soft_margins}[figure]
        monkeypatch.setattr(module, "claims", lambda results, claim=claim: {"Moon": [claim]})


CHEESE = exactly("made of cheese", 0, low=1)
ROCK = exactly("made of rock", 1, low=1)


def test_the_report_says_what_was_measured(reproduce):
    code, text, out = reproduce("local-convergence", "--runs", "8", "--jobs", "2", "--verbose")
    assert code == 0, text
    verdicts = re.findall(r"  (holds|undecided|FAILS)$", text, flags=re.MULTILINE)
    held, open_ = verdicts.count("holds"), verdicts.count("undecided")
    assert len(verdicts) == held + open_ > 20
    counts = f"{len(verdicts)} claims: {held} hold, 0 fail, {open_} undecided"
    assert f"\n{counts}\n" in text and f"wrote {out / 'index.html'}, claims.json, pictures and numbers" in text
    assert re.search(rf"^local-convergence  {counts.replace(' 0 fail,', '')}  [\d.]+ s$", text, flags=re.MULTILINE)
    page = (out / "index.html").read_text()
    assert '<img src="local-convergence.png"' in page and '<a href="local-convergence.svg">' in page
    assert page.count('<td class="holds">holds</td>') == held
    shown = (counts, attsvm.__version__, np.__version__, "seed 0", "8 random instances", "learning rate 0.1")
    assert all(words in page for words in shown)
    picture = (out / "local-convergence.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000
    entries = json.loads((out / "claims.json").read_text())
    assert len({entry["claim"] for entry in entries}) == len(entries) == len(verdicts)
    for entry in entries:
        assert entry["figure"] == "local-convergence" and entry["verdict"] in VERDICTS
        low, high = (-np.inf if entry["low"] is None else entry["low"], entry["high"])
        high = np.inf if high is None else high
        assert -np.inf < low or high < np.inf
        if entry["verdict"] == "holds":
            assert low <= entry["measured_low"] <= entry["measured"] <= entry["measured_high"] <= high


def test_jobs_change_nothing_and_all_numbers_are_stored(tmp_path, capfd):
    """Two figures: one after the other, on two processes, on two threads of each process; one bar at a time."""
    said, names = [], [FIGURE, "positional-encoding", FIGURE]
    for jobs in ("1", "2", "4"):
        cli.main(["reproduce", *names, "--runs", "3", "--seed", "7", "--jobs", jobs, "--out", str(tmp_path / jobs)])
        text, shown = capfd.readouterr()
        said.append(
            sorted(re.sub(r"[\d.]+ s$|wrote .*", "", text, flags=re.MULTILINE).splitlines())
        )  # lines come as they are done
        assert len(re.findall(r"^[a-z-]+ +\d+ claims: ", text, flags=re.MULTILINE)) == 2
        assert ("reproduce:" in shown, f"{FIGURE}:" in shown) == (jobs != "1", jobs == "1"), shown
        assert jobs == "1" or re.search(r"\d(/| of )2\b", shown)  # figures, though one is named twice
    assert said[0] == said[1] == said[2]
    for file in (f"{FIGURE}.npz", "positional-encoding.npz", "claims.json", f"{FIGURE}.png"):
        assert len({(tmp_path / jobs / file).read_bytes() for jobs in ("1", "2", "4")}) == 1
    stored, found = np.load(tmp_path / "1" / f"{FIGURE}.npz"), measure(FIGURE, 3, 7, 1)
    assert [*stored] == [*found]
    np.testing.assert_equal(dict(stored), found)


@pytest.mark.parametrize(
    ("claim", "code", "line", "more"),
    [
        (CHEESE, 1, "2 claims: 1 hold, 1 fail", r"made of cheese +at least 1 +0 +FAILS\n"),
        (share("round", [True], low=0.5), 0, "2 claims: 1 hold, 1 undecided", "^soft"),
        (ROCK, 0, "2 claims: 2 hold", "^soft"),
    ],
)
def test_a_line_a_figure_and_what_fails(reproduce, monkeypatch, no_picture, claim, code, line, more):
    """The second claim: answers are proved."""
    judged(monkeypatch, soft=claim)
    ended, text, _ = reproduce(FIGURE)
    assert ended == code and re.search(more, text)
    assert re.search(rf"^{FIGURE}  {line}  [\d.]+ s$", text, flags=re.MULTILINE)
    assert text.endswith("s\n") and (": exit code 1\n" in text) == (code == 1)
    assert ("made of" in text) == (code == 1)  # what does not fail is on the page, and with --verbose
    assert claim.text in reproduce(FIGURE, "--verbose")[1]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], (soft_margins.RUNS, 0, CORES)),
        (["--quick"], (soft_margins.QUICK, 0, CORES)),
        (["--quick", "--runs", "3"], (3, 0, CORES)),
        (["--seed", "7", "--jobs", "2"], (soft_margins.RUNS, 7, 2)),
    ],
)
def test_runs_seed_and_jobs_are_those_asked_for(tmp_path, monkeypatch, quiet, options, asked):
    seen = []
    monkeypatch.setattr(command, "measure", lambda name, *how: seen.append(how) or measure(name, 2))
    cli.main(["reproduce", FIGURE, "--out", str(tmp_path), *options])
    assert seen == [asked] and soft_margins.QUICK != soft_margins.RUNS
    assert f"{asked[0]} random instances, seed {asked[1]}" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(("first", "second"), [(ROCK, CHEESE), (CHEESE, ROCK)])
def test_any_figure_that_fails_makes_the_exit_code(reproduce, monkeypatch, quiet, first, second):
    judged(monkeypatch, basin=first, soft=second)
    code, text, _ = reproduce("basin", FIGURE, "--jobs", "1")
    assert code == 1 and "2 claims: 1 hold, 1 fail, 0 undecided: exit code 1" in text


def test_other_figures_stay_also_those_that_must_be_named(reproduce, monkeypatch, quiet):
    judged(monkeypatch, basin=ROCK, soft=ROCK)
    monkeypatch.setattr(command, "FIGURES", (FIGURE,))
    monkeypatch.setattr(command, "NAMED", ("basin",))
    for names in (["basin"], [], []):  # without a name: all of FIGURES
        _, _, out = reproduce(*names)
    entries = [(entry["figure"], entry["claim"]) for entry in json.loads((out / "claims.json").read_text())]
    assert entries == [("basin", "Moon: made of rock"), (FIGURE, "Moon: made of rock")]
    page = (out / "index.html").read_text()
    assert page.index(f'<section id="{FIGURE}"') < page.index('<section id="basin"') and page.count("<section") == 2
    assert "2 claims: 2 hold" in page  # those of the report, not of the last command


def test_what_is_done_is_kept(reproduce, tmp_path, monkeypatch, quiet):
    """An error in the second figure, and Ctrl-C there: the first is on the page, with all its files."""

    def fails(results):
        raise error

    monkeypatch.setattr(basin, "claims", fails)
    for error, ends in ((ZeroDivisionError, pytest.raises(ZeroDivisionError)), (KeyboardInterrupt, nullcontext())):
        out = tmp_path / error.__name__
        with ends:
            assert reproduce(FIGURE, "basin", "--jobs", "1", out=out)[0] == 130
        assert f'<section id="{FIGURE}"' in (out / "index.html").read_text()
        names = {"index.html", "claims.json", *(f"{FIGURE}.{kind}" for kind in ("npz", "png", "svg"))}
        assert {path.name for path in out.iterdir()} == names


def test_a_quick_report_has_no_svg_not_even_an_old_one(reproduce, tmp_path, monkeypatch, quiet):
    monkeypatch.setattr(command, "picture_bytes", lambda figure, suffix: b"")
    drawn, link = tmp_path / f"{FIGURE}.svg", f'<a href="{FIGURE}.svg">SVG</a>'
    for options, there in (([], True), (["--quick"], False)):
        reproduce(FIGURE, *options)
        assert drawn.exists() == there == (link in (tmp_path / "index.html").read_text())
        assert drawn.with_suffix(".png").exists()


def test_answers_are_proved(reproduce, no_picture):
    for option, words in (([], "answers proved exactly, of 10 out of"), (["--prove"], "answers proved exactly, of")):
        code, text, _ = reproduce(FIGURE, "--verbose", *option)
        line = next(line for line in text.splitlines() if "proved exactly" in line)
        assert code in (0, 1) and words in line and line.endswith("holds") and ("out of" in line) == (not option)


@pytest.mark.parametrize("module", ["matplotlib", "joblib", "jinja2", "scipy"])
def test_a_missing_extra_is_named_before_the_work(tmp_path, capsys, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["reproduce", "gd-paths", "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    expected = f"attsvm reproduce: {module} is not installed: in a clone, pip install '.[reproduce]'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("options", [slow(["--quick"]), pytest.param([], marks=pytest.mark.long)])
def test_no_claim_of_the_whole_report_fails(tmp_path, capsys, options):
    assert cli.main(["reproduce", *options, "--out", str(tmp_path)]) == 0, capsys.readouterr().out
