"""Every file the package writes is whole: one that fails leaves the older file, and nothing beside it."""

import ast
import os
import re
import stat
from pathlib import Path

import attsvm
import numpy as np
import pytest
from attsvm.common.storage import replacing
from processes import python

PACKAGE = Path(attsvm.__file__).parent

# Every writer, in a process whose files may hold no more than 2,000 bytes, as on a disk that is full.
FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
import attsvm
from attsvm.cli import run
from attsvm.common.storage import write_table
from attsvm.heads.steps import COLUMNS, write_rows
from attsvm.heads.view import View
from attsvm.claims import Claim
from attsvm.reproduce.page import Section, write_claims, write_page
from attsvm.common.render import write_picture
from matplotlib.figure import Figure

folder = Path(sys.argv[1])
data = attsvm.cross_attention(np.eye(400).reshape(20, 20, 400)[:, :, :9], np.ones((20, 1)))
solution = attsvm.feasible(data, [0] * 20)

picture = Figure()
picture.subplots()
claim = Claim("x" * 3000, 0.0, 1.0, 0.5, 0.4, 0.6, 9, "holds", "")
WRITERS = {
    "solution.npz": solution.save,
    "sheet.csv": lambda path: write_table(path, ["run", "x"], [[k, "x" * 400] for k in range(9)]),
    "training.csv": lambda path: write_rows(path, [dict.fromkeys(COLUMNS, 1)] * 300),
    "view.html": View("x" * 5000).save,
    "picture.png": lambda path: write_picture(path, picture),
    "page.html": lambda path: write_page(path, "x" * 5000, "", Section(*"abcd", {}, ""), "", ""),
    "claims.json": lambda path: write_claims(path, "figure", {"heading": [claim]}),
}
failed = []
for name, write in WRITERS.items():
    (folder / name).write_text("[]")
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
for name, write in WRITERS.items():
    try:
        write(folder / name)
    except OSError:
        failed.append(name)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert failed == list(WRITERS), failed
assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(WRITERS, "[]")
for name, write in WRITERS.items():
    write(folder / name)
assert {path.name for path in folder.iterdir()} == set(WRITERS)
assert all(path.stat().st_size > 2000 for path in folder.iterdir())
"""


def test_a_full_disk_leaves_the_older_files(tmp_path):
    done = python("-c", FULL_DISK, tmp_path)
    assert done.returncode == 0, done.stderr


def writes(call):
    """Whether a call writes to a file that it opens by its name."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name == "open":
        return any(
            isinstance(a, ast.Constant) and re.fullmatch("[rwxabt+]*[wxa+][rwxabt+]*", str(a.value)) for a in call.args
        )
    opened = bool(call.args) and getattr(call.args[0], "id", "") in ("file", "handle")
    return name in ("write_text", "write_bytes", "savez", "savez_compressed", "savefig", "tofile") and not opened


def test_no_other_way_to_write():
    """Beside the one function, files are opened for appending alone, and only it gets paths."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        if lines := [ast.unparse(call) for call in calls if writes(call)]:
            found[path.relative_to(PACKAGE).as_posix()] = lines
    assert found == {
        "common/replication.py": ["open(path, 'ab+')"],  # runs as they finish
        "common/storage.py": ["open(target, 'wb')", "open(beside, 'xb')"],  # the one function
        "heads/kept.py": ["open(path, 'r+b')", "open(self.path, 'ab')"],  # heads as they finish, or what is cut short
        "heads/steps.py": ["open(path, 'ab')"],  # rows as checks finish
        "torch/monitor.py": ["open(self.file, 'rb+')"],  # a line cut short is cut off
    }


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_leaves_the_older_file(tmp_path, error):
    (tmp_path / "file").write_text("older")
    with pytest.raises(error), replacing(tmp_path / "file") as file:
        file.write(b"new")
        raise error
    with pytest.raises(error), replacing(tmp_path / "none") as file:
        raise error
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "older")]


def test_the_older_file_is_there_until_the_end(tmp_path):
    (tmp_path / "file").write_text("older")
    with open(tmp_path / "file") as open_before, replacing(tmp_path / "file") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "file").read_text() == "older"
    assert (tmp_path / "file").read_text() == "new" and [path.name for path in tmp_path.iterdir()] == ["file"]
    assert open_before.closed


def test_permissions_are_those_of_the_older_file_or_of_a_new_one(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "new"):
            pass
        (tmp_path / "older").touch()
        (tmp_path / "older").chmod(0o604)
        with replacing(tmp_path / "older"):
            pass
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "older": 0o604}


def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    for text in ("first", "second"):  # a link to nothing yet, then to a file
        with replacing(tmp_path / "link") as file:
            file.write(text.encode())
        assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "file").read_text() == text
    assert len(list((tmp_path / "there").iterdir())) == 1


def test_what_is_no_file_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with replacing(tmp_path / "pipe") as file:
        file.write(b"through")
    assert os.read(reader, 99) == b"through" and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    os.close(reader)
    for path in (tmp_path, tmp_path / "none" / "file"):
        with pytest.raises(OSError), replacing(path):
            pass
    with pytest.raises(TypeError), replacing(3):  # type: ignore[arg-type]
        pass


def test_a_result_loads_while_it_is_replaced(tmp_path):
    data = attsvm.cross_attention(np.eye(3)[None], [[1.0]])
    one, two = attsvm.feasible(data, [0]), attsvm.feasible(data, [1])
    one.save(tmp_path / "a")
    with open(tmp_path / "a", "rb") as older:
        two.save(tmp_path / "a")
        assert attsvm.load(older) == one and attsvm.load(tmp_path / "a") == two
