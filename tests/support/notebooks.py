"""Notebooks with their outputs: run one, compare what it prints with what is stored, or store it.

python tests/support/notebooks.py [NAME ...]     runs notebooks/NAME.ipynb (all by default) and stores the outputs
"""

import re
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
RELATIVE = 2e-2  # of a printed number: ends of long runs differ by rounding from machine to machine
NOTHING = 1e-7  # gaps and distances below are rounding, whatever their digits


def executed(path, timeout=300):
    """The notebook with fresh outputs, run in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=timeout, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":  # bars and warnings of libraries name folders of the machine
            widget = "application/vnd.jupyter.widget-view+json"
            shown = (one for one in cell.outputs if one.get("name") != "stderr")
            cell.outputs = [one for one in shown if widget not in one.get("data", {})]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def texts(cell):
    """What a cell prints and returns as text; progress and warnings on stderr are nobody's answer."""
    parts = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and output.name == "stdout":
            parts.append(output.text)
        elif "data" in output:
            parts.append(output.data.get("text/plain", ""))
    return "".join(parts)


def pictures(notebook):
    data = [o.data for cell in notebook.cells for o in cell.get("outputs", []) if "data" in o]
    return sum("image/png" in one or "data:image/png" in one.get("text/html", "") for one in data)


def difference(stored, fresh):
    """Where two texts differ by more than rounding; None where they do not."""
    if NUMBER.sub("#", stored).split() != NUMBER.sub("#", fresh).split():
        return f"stored:\n{stored}\nfresh:\n{fresh}"
    for a, b in zip(NUMBER.findall(stored), NUMBER.findall(fresh), strict=True):
        x, y = float(a), float(b)
        if abs(x - y) > max(RELATIVE * max(abs(x), abs(y)), NOTHING):
            return f"stored {a}, fresh {b} in:\n{stored}"
    return None


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent.parent.parent / "notebooks"
    for path in sorted(folder.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            nbformat.write(executed(path), path)
            print(path.stem, f"{path.stat().st_size / 1024:.0f} KB", flush=True)
