"""What the commands share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def no_picture(monkeypatch):
    """Pictures are drawn and not rendered, which takes most of a short run's time."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, file, **how: Path(file).write_bytes(b"not rendered"))
