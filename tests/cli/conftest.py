"""What the commands share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_picture(monkeypatch):
    """Pictures are drawn and not rendered, which takes most of a short run's time."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, file, **how: file.write(b"not rendered"))
