"""Every C file compiles without a warning: nothing shadowed, no lossy conversion, no member of a table left out."""

import pytest
from places import CSRC

C_FILES = sorted(CSRC.rglob("*.c"))


@pytest.mark.parametrize("path", C_FILES, ids=[path.relative_to(CSRC).as_posix() for path in C_FILES])
def test_no_warnings(compiled, path):
    said, _ = compiled(path)
    assert not said
