"""What every picture owes its reader."""

import re

__all__ = ["assert_readable"]


def assert_readable(picture):
    """A title and axis labels in every panel (shared axes have one), no axis of shares or probabilities beyond 1, and
    correlations as their distance from 1."""
    assert picture.axes
    for ax in picture.axes:
        assert ax.get_title(loc="left") or ax.get_title() or ax.get_gridspec().nrows > 1
        for name in "xy":
            axes = getattr(ax, f"get_shared_{name}_axes")().get_siblings(ax)
            labels = [getattr(one, f"get_{name}label")() for one in axes]
            ticks = getattr(ax, f"get_{name}ticks")()
            words = any(re.search("[a-z]", tick.get_text()) for tick in getattr(ax, f"get_{name}ticklabels")())
            assert any(labels) or words or not len(ticks), f"no {name} label: {ax.get_title(loc='left')!r}"
            label = next(filter(None, labels), "")
            if re.match("1 - ", label):
                assert getattr(ax, f"get_{name}scale")() == "log", label
            elif re.search(r"\b(share|probability|correlation|cosine)\b", label):
                low, high = getattr(ax, f"get_{name}lim")()
                assert high <= 1, f"{label!r} goes to {high:g}"
                assert "correlation" not in label, f"{label!r} hides how far it is from 1"
