"""What a run prints: how it ended, and what its last weights prove."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np

from ..attention.selection import number_undecided
from ..common.norms import norm_name
from .margins import proved_by

MESSAGES = {
    "completed": "made all its steps, to {}",
    "stationary": "ended at {}: the gradient is exactly zero",
    "target reached": "ended at {}: the loss has come down to the target of the Polyak step",
    "limit proved": "ended at {}: its limit is proved, as run.limit() says",
    "stopped": "ended at {}: the callback returned True",
    "running": "has come to {}",
    "interrupted": "was interrupted after {}",
    "overflow": "ended after {}: weights or logits left the range of double precision",
    "gradient not finite": "ended after {}: the gradient left the range of double precision",
}

RUNS_SHOWN = 8  # of several side by side, when printed
DIGITS = 4  # of the ends of an interval, when printed


def message_of(run: Any) -> str:
    """What the status means, and the step at which the run ended."""
    said = MESSAGES[run.status].format(f"step {run.steps[-1]}" if len(run.steps) else "its first record")
    own = run.problem._own_loss
    if run.status != "stationary" or own is None or len(own.functions) == 3:
        return said
    return f"{said}, as it is where the derivative of the loss underflows: give the log of its size as loss[2]"


def title_of(run: Any) -> str:
    trained = "W" if run.K is None else f"K, Q (m={run.K.shape[-1]})"
    trained += "" if run.start is None else f" and {', '.join(run.start.names)}"
    if len(run.steps) == 0:
        return f"Run on {trained}: {run.status} before the first record"
    if run.stacked:
        return f"{len(run.W)} runs of {run.steps[-1]} steps on {trained}: {run.status}"
    return f"Run of {run.steps[-1]} steps on {trained}: {run.status}"


def lines_of(run: Any) -> list[tuple[str, str]]:
    if len(run.steps) == 0:
        return []
    if run.stacked:
        ends = zip(run.loss[:RUNS_SHOWN, -1], run.norm[:RUNS_SHOWN, -1], strict=True)
        lines = [("run", "loss      norm of W")]
        lines += [(str(r), f"{loss:<9.6g} {norm:.6g}") for r, (loss, norm) in enumerate(ends)]
        return lines + [("...", "")] * (len(run.W) > RUNS_SHOWN) + _limit(run)
    ended = [("", run.message)] if run.status not in ("completed", "running") else []
    curves = {"loss": run.loss, "norm of W": run.norm, "log grad norm": run.log_grad_norm}
    count, queries = number_undecided(run)
    left = f"{count} of {queries} queries: their attention has not chosen yet"
    return [
        *ended,
        *((name, f"{a[0]:.6g} -> {a[-1]:.6g}") for name, a in curves.items()),
        *_proved(run),
        *([("undecided", left)] if count else []),
        *_limit(run),
        ("records", f"{len(run.steps)}"),
    ]


def _limit(run: Any) -> list[tuple[str, str]]:
    """Where training goes, if that was asked."""
    found = vars(run).get("limit_found")
    return [] if found is None else [("limit", found.summary)]


def _proved(run: Any) -> list[tuple[str, str]]:
    """What the last weights prove, where there is one margin."""
    if run.problem.heads is not None or run.data._none or not np.isfinite(run.W).all():
        return []
    kind = run.own_norm
    try:
        low, high = (float(end[-1]) for end in proved_by(run, kind, None, run.weights[-1:]))
    except FloatingPointError:  # the logits overflow
        return []
    norm = "" if kind == "frobenius" else f", {norm_name(kind)} norm"
    return [("margin", f"{_rounded(low, ROUND_FLOOR)} .. {_rounded(high, ROUND_CEILING)} (proved){norm}")]


def _rounded(number: float, rounding: str) -> str:
    """A few digits of a number, in one direction: what is proved of it stays true."""
    if not math.isfinite(number) or number == 0:
        return f"{number:g}"
    return f"{float(Context(prec=DIGITS, rounding=rounding).create_decimal(number)):g}"
