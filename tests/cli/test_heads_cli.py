"""attsvm heads: what it writes, what it says, and how it fails."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from attsvm import cli, heads
from attsvm.heads import pictures
from bert import CONFIG, tiny_sentences, tiny_weights, write_folder

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("model"), tiny_weights(np.random.default_rng(3)))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(tiny_sentences(np.random.default_rng(4), 150)) + "\nthe cat\n")
    return path


def run(*words):
    """Exit code, output and messages."""
    out, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(messages):
        try:
            code = cli.main(["heads", *map(str, words)])
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), messages.getvalue()


@pytest.fixture(scope="module")
def written(model, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return *run(model, text, "--threshold", 0.6, "--queries", 150, "--nuclear", 30, "--out", out), out


def test_it_prints_the_table_and_what_it_means(written):
    code, said, messages, _ = written
    assert code == 0, messages
    lines = said.splitlines()
    assert re.match(r"6 heads, \d+ of \d+ sentences \(10 to 16 tokens\), \d+ tokens; seed 0\.$", lines[0])
    assert [line.split()[0] for line in lines[3:9]] == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert "best rule  accuracy of the best of five rules" in said
    assert "read: " in messages and "solve: " in messages


def test_it_writes_pictures_numbers_and_a_page(written):
    _, said, _, out = written
    names = {path.name for path in out.iterdir()}
    assert {"index.html", "heads.csv", "heads.png", "curve.png"} < names and len(names) == 4 + 6
    assert all(name in said for name in names)
    for path in out.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
    with open(out / "heads.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["norm"] for row in rows} == {"frobenius", "nuclear"}
    assert all(float(row["margin_bound"]) / float(row["margin"]) - 1 < 1e-8 for row in rows)
    page = (out / "index.html").read_text()
    for name in names - {"index.html", "heads.csv"}:
        assert f'src="{name}"' in page
    assert "best of five rules" in page and "Layer 1 head 0" in page


def test_some_layers_and_heads(model, text, tmp_path):
    code, said, _ = run(model, text, "--layers", "1", "--heads", "0,2", "--nuclear", 0, "--out", tmp_path)
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()[3:5]] == ["L1H0", "L1H2"]
    assert said.splitlines()[0].startswith("2 heads, ")


def test_seed_changes_the_split_and_jobs_nothing(model, text, tmp_path):
    options = ("--layers", "0", "--heads", "1", "--nuclear", 0, "--out")
    tables = [
        run(model, text, *options, tmp_path, "--seed", seed, "--jobs", jobs)[1].splitlines()[1:4]
        for seed, jobs in ((0, 1), (0, 2), (1, 1))
    ]
    assert tables[0] == tables[1] != tables[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layers", "2"), "--layers must lie in 0-1, got 2"),
        (("--heads", "0-3"), "--heads must lie in 0-2, got 3"),
        (("--layers", "1-0"), "must be numbers and ranges such as 0,2-4, got '1-0'"),
        (("--threshold", "1"), "must be a number between 0 and 1, got '1'"),
        (("--queries", "0"), "must be a whole number of at least 1, got '0'"),
    ],
)
def test_options_that_do_not_fit(model, text, words, message):
    code, said, messages = run(model, text, *words)
    assert code == 2 and message in messages and said == ""


def test_files_that_do_not_fit(model, text, tmp_path):
    code, _, messages = run(tmp_path / "nothing", text)
    assert code == 2 and "No such file or directory" in messages and "config.json" in messages
    code, _, messages = run(model, tmp_path / "nothing.txt")
    assert code == 2 and "nothing.txt" in messages
    (tmp_path / "short.txt").write_text("the cat\n")
    code, _, messages = run(model, tmp_path / "short.txt")
    assert code == 2 and "has 0 sentences of 10 to 16 tokens, too few to learn from" in messages
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "gpt2"}))
    code, _, messages = run(tmp_path, text)
    assert code == 2 and "must have model_type 'bert', got 'gpt2'" in messages


# ------------------------------------------------------------------------------------- pictures


@pytest.fixture(scope="module")
def reports(model, text):
    sentences = heads.read_sentences(text)
    return heads.analyze_model(heads.read_bert(model).read(sentences), threshold=0.6, nuclear_queries=0)


def test_grid_labels_every_head(reports):
    figure = heads.plot_grid(reports)
    left, right = figure.axes
    assert len(left.texts) == len(right.texts) == 6
    shown = {tuple(map(round, note.get_position())): note.get_text() for note in right.texts}
    framed = {(round(p.get_x() + 0.46), round(p.get_y() + 0.44)) for p in right.patches}
    for report in reports:
        at = report.head.head, report.head.layer
        assert shown[at].split()[0] == f"{100 * report.fit.accuracy:.0f}"
        assert (at in framed) == (report.fit.accuracy > report.best_baseline[1] + pictures.GAIN)


def test_grid_frames_what_beats_every_rule_by_a_margin(reports):
    report = reports[0]
    right = report.best_baseline[1]
    for ahead, framed in ((0.01, False), (0.03, True)):
        fit = replace(report.fit, accuracy=right + ahead)
        figure = heads.plot_grid([replace(report, curve=[fit])])
        assert bool(figure.axes[1].patches) == framed


def test_grid_of_heads_without_queries(model, text):
    found = heads.read_bert(model).read(heads.read_sentences(text)[:4], layers=[0])
    figure = heads.plot_grid(heads.analyze_model(found, threshold=0.999999, nuclear_queries=0))
    assert {note.get_text() for note in figure.axes[1].texts} <= {"-", "few"}


def test_sentence_has_an_arrow_per_query_and_a_line_per_support_token(reports):
    for report in reports:
        number = pictures.choose_sentence(report)
        assert number in report.train[:, 0]
        ax = heads.plot_sentence(report)
        arrows = [note for note in ax.texts if getattr(note, "arrow_patch", None) is not None]
        assert len(arrows) == (report.train[:, 0] == number).sum()
        drawn = {tuple(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 2}
        rows = report.fit.rows[report.fit.rows[:, 0] == number]
        assert drawn == {(query, rival) for _, query, _, rival in rows}
        total = sum(float(note.get_text().split()[0]) for note in ax.texts if note.get_text().endswith(" %"))
        assert len(rows) == 0 or total == pytest.approx(100, abs=0.5 * len(rows))
