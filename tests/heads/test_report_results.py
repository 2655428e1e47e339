"""A head's report as a file, a dictionary, a table and a picture."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import attsvm
import numpy as np
import pytest
from attsvm import heads


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((T, 6)) for T in rng.integers(4, 9, 30)]
    tokens = [["[CLS]", *["a"] * (len(x) - 2), "[SEP]"] for x in X]
    Wq, Wk = 3 * rng.standard_normal((2, 3, 6))
    (head,) = heads.from_arrays(X, Wq, np.zeros(3), Wk, np.zeros(3), tokens=tokens)
    return heads.analyze_head(head)


def test_file_gives_back_an_equal_report(report, tmp_path):
    report.save(tmp_path / "head.npz")
    again = attsvm.load(tmp_path / "head.npz")
    assert again == report and repr(again) == repr(report)
    changed = copy.deepcopy(again)
    changed.head.K[0, 0] += 1e-12
    assert changed != report
    assert again.head.text.words == report.head.text.words


def test_file_is_read_where_heads_were_not_asked_for(report, tmp_path):
    report.save(tmp_path / "head.npz")
    code = f"""import sys, attsvm
assert "attsvm.heads" not in sys.modules
print(attsvm.load({str(tmp_path / "head.npz")!r}))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == f"{report}\n"


def test_reports_go_into_one_file_together(report, tmp_path):
    reports = heads.analyze_model([report.head, report.head], n_jobs=1)
    reports.save(tmp_path / "heads.npz")
    again = attsvm.load(tmp_path / "heads.npz")
    assert type(again) is type(reports) and again == reports and repr(again) == repr(reports)
    changed = copy.deepcopy(again)
    changed[1].head.K[0, 0] += 1e-12
    assert changed != reports
    assert json.loads(json.dumps(reports.to_dict())) == {
        "reports": [json.loads(json.dumps(each.to_dict())) for each in reports]
    }


def test_dictionary_and_table(report):
    found = json.loads(json.dumps(report.to_dict()))
    assert found["hard"] == report.hard and found["curve"][-1]["margin"] == report.fit.margin
    pandas = pytest.importorskip("pandas")
    table = report.to_dataframe()
    pandas.testing.assert_frame_equal(table, heads.to_dataframe([report]))


def test_picture(report):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    ax = report.plot(ax=Figure().subplots())
    assert ax.lines[0].get_xdata().tolist() == [fit.queries for fit in report.curve]
