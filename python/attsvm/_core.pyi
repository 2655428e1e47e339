"""The C extension.  Private: arguments are positional (a record is its fields), already checked, C-contiguous."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

STATUS: dict[int, str]
# Of svm/methods.h, in its order: what Python calls a method, and the problems that it solves, apart by spaces.
METHOD: dict[str, tuple[str, str]]
# Of svm/norms.h: whether it is of the singular values or of the entries, and its exponent (0: the number given).
NORM: dict[str, tuple[bool, float]]
# Tables of choices, words to codes in the order of the C lists (csrc/base/table.h).
LOSS: dict[str, int]
HEAD: dict[str, int]
UPDATE_RULE: dict[str, int]
BALL: dict[str, int]
_Floats = np.ndarray[Any, np.dtype[np.float64]]
_Indices = np.ndarray[Any, np.dtype[np.intp]]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]
_Function = Callable[[_Floats], tuple[_Floats, _Floats]]
_Report = Callable[[int, float], None]

# The fields of attsvm.svm.request.Answer.
_Answer = tuple[int, _Floats, _Floats, float, float, int, int, str | None, BaseException | None]

class _Method(Protocol):
    """The arguments of every solver; one that a solver does not use is None or 0."""

    def __call__(
        self,
        windows: Any,
        reference: _Indices,
        kept: _Bools | None,
        rhs: _Floats | None,
        tol: float,
        max_iter: int,
        soft: float,
        p: float,
        rank: int,
        start: _Floats | None,
        start_W: _Floats | None,
        report: _Report | None,
        /,
    ) -> _Answer: ...

def set_num_threads(k: int, /) -> None: ...
def config() -> dict[str, Any]: ...
def windows(keys: np.ndarray | None, queries: _Floats, start: _Indices, stop: _Indices, /) -> Any: ...
def plain_windows(X: Any, Z: Any, causal: bool, /) -> tuple[Any, np.ndarray, _Floats, float, float, int] | None: ...
def index(windows: Any, /) -> tuple[_Indices, _Indices, _Indices]: ...
def largest(array: Any, /) -> float | None: ...
def reference(windows: Any, object: Any, /) -> _Indices | None: ...
def logits(windows: Any, W: _Floats, /) -> _Floats: ...
def probabilities(windows: Any, W: _Floats, /) -> _Floats: ...
def margins(windows: Any, W: _Floats, reference: _Indices, /) -> _Floats: ...
def top(windows: Any, entries: _Floats, /) -> _Indices: ...
def attended(windows: Any, values: _Floats, probabilities: _Floats, /) -> _Floats: ...
def scores(windows: Any, values: np.ndarray, y: _Floats, v: _Floats, /) -> _Floats: ...
def objective(
    windows: Any,
    loss: int | None,
    scores: _Floats | None,
    values: _Floats | None,
    y: _Floats | None,
    kind: int | None,
    v: _Floats | None,
    a: _Floats | None,
    lam: float,
    H: int,
    concatenate: bool,
    /,
) -> Any: ...
def loss(
    objective: Any,
    head: _Function | None,
    loss: _Function | None,
    W: _Floats | None,
    K: _Floats | None,
    Q: _Floats | None,
    /,
) -> float: ...
def loss_and_grad(
    objective: Any,
    head: _Function | None,
    loss: _Function | None,
    W: _Floats | None,
    K: _Floats | None,
    Q: _Floats | None,
    scaled: bool,
    /,
) -> tuple[float, _Floats | None, _Floats | None, _Floats | None, _Floats]: ...
def multipliers(
    objective: Any,
    head: _Function | None,
    loss: _Function | None,
    W: _Floats | None,
    K: _Floats | None,
    Q: _Floats | None,
    /,
) -> tuple[_Floats, _Floats, _Indices]: ...
def loss_values(loss: int, u: _Floats, /) -> _Floats: ...
def loss_bounds(loss: int, least: float, /) -> tuple[float, float]: ...
def head(kind: int, v: _Floats, a: _Floats | None, lam: float, o: _Floats, /) -> tuple[_Floats, _Floats]: ...
def train(  # run: attsvm.training.session.Descent
    run: Any, first: int, last: int, recorded: Callable[[], bool] | None, combine: Callable[[_Floats], None] | None, /
) -> tuple[int, BaseException | None]: ...

check: _Method  # and every other name of METHOD

def interval(
    windows: Any, reference: _Indices, kept: _Bools | None, W: _Floats, dual: _Floats, /
) -> tuple[_Floats, _Floats, _Floats, _Floats]: ...
def projection_ball(W: _Floats, ball: int, radius: float, /) -> _Floats: ...
def regularization_path_point(
    objective: Any, W: _Floats, ball: int, radius: float, tol: float, max_iter: int, /
) -> tuple[int, float, float, float, int, BaseException | None]: ...
