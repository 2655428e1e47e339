"""The C extension.  Private: arguments are positional, already checked, C-contiguous."""

from collections.abc import Callable
from typing import Any

import numpy as np

STATUS: dict[int, str]
_Floats = np.ndarray[Any, np.dtype[np.float64]]
_Indices = np.ndarray[Any, np.dtype[np.intp]]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]
_Report = Callable[[int, float], None]
_Answer = tuple[int, _Floats, _Floats, float, float, int, int, BaseException | None]

def set_num_threads(k: int, /) -> None: ...
def config() -> dict[str, Any]: ...
def windows(keys: np.ndarray, queries: _Floats, start: _Indices, stop: _Indices, indptr: _Indices, /) -> Any: ...
def is_reference(windows: Any, object: Any, /) -> bool: ...
def logits(windows: Any, W: _Floats, /) -> _Floats: ...
def probabilities(windows: Any, W: _Floats, /) -> _Floats: ...
def top(windows: Any, entries: _Floats, /) -> _Indices: ...
def attended(windows: Any, values: _Floats, probabilities: _Floats, /) -> _Floats: ...
def scores(windows: Any, values: _Floats, y: _Floats, v: _Floats, /) -> _Floats: ...
def loss(
    windows: Any,
    scores: _Floats | tuple[Any, ...],
    loss: int,
    W: _Floats | None,
    K: _Floats | None,
    Q: _Floats | None,
    /,
) -> float: ...
def loss_and_grad(
    windows: Any,
    scores: _Floats | tuple[Any, ...],
    loss: int,
    W: _Floats | None,
    K: _Floats | None,
    Q: _Floats | None,
    /,
) -> tuple[float, _Floats, _Floats | None, _Floats]: ...
def head(kind: int, v: _Floats, a: _Floats | None, lam: float, o: _Floats, /) -> tuple[_Floats, _Floats]: ...
def head_parameters(
    kind: int, v: _Floats, a: _Floats | None, lam: float, o: _Floats, c: _Floats, /
) -> tuple[_Floats, _Floats, float]: ...
def train(
    windows: Any,
    scores: _Floats | tuple[Any, ...],
    values: _Floats | None,
    y: _Floats | None,
    loss: int,
    ridge: float,
    rule: int,
    lr: _Floats,
    target: float,
    p: float,
    radius: float,
    ball: int,
    first: int,
    last: int,
    record: _Indices,
    W: _Floats | None,
    K: _Floats | None,
    Q: _Floats | None,
    span: _Floats | None,
    v: _Floats | None,
    weights: _Floats,
    heads: _Floats | None,
    losses: _Floats,
    norm: _Floats,
    log_grad_norm: _Floats,
    reached: _Indices,
    recorded: Callable[[], bool] | None,
    combine: Callable[[_Floats, _Floats], None] | None,
    /,
) -> tuple[int, BaseException | None]: ...
def svm_gradient(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_active(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_block(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_soft(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_interior_frobenius(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_interior(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_factored(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def svm_capped(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    rank: int,
    /,
) -> _Answer: ...
def svm_barrier(
    windows: Any,
    reference: _Indices,
    kept: _Bools | None,
    rhs: _Floats | None,
    tol: float,
    max_iter: int,
    soft: float,
    p: float,
    start: _Floats | None,
    start_W: _Floats | None,
    report: _Report | None,
    /,
) -> _Answer: ...
def project_simplex(x: _Floats, total: float, /) -> _Floats: ...
def project_ball(W: _Floats, ball: int, radius: float, /) -> _Floats: ...
def path_point(
    windows: Any, scores: _Floats, loss: int, W: _Floats, ball: int, radius: float, tol: float, max_iter: int, /
) -> tuple[int, float, float, float, int, BaseException | None]: ...
