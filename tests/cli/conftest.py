"""What the commands share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_picture(monkeypatch):
    """Pictures are made and not drawn, which takes most of a short run's time."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "draw", lambda self, renderer: None)
