"""Shards of the tokens that several processes hold: the one reduction between them."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

MUST_ADD = "reduce must add its argument up over all workers, exactly once each"


def _draw(below: int) -> int:
    import secrets  # which loads hashlib: only shards pay for it

    return secrets.randbelow(below)


def _name() -> str:
    """This worker as its launcher counts it, and where it is found: the slots of :class:`Workers` are random."""
    ranks = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    rank = next((f"rank {os.environ[name]}, " for name in ranks if name in os.environ), "")
    return f"{rank}process {os.getpid()} on {platform.node()}"


def _checksum(value: Any) -> int:
    if value is None or isinstance(value, (str, list)):
        parts = [_checksum(part) for part in value] if isinstance(value, list) else value
        return zlib.crc32(repr(parts).encode())
    array = np.asarray(value)
    return zlib.crc32(array.tobytes(), zlib.crc32(repr(array.shape).encode()))


class Workers:
    """What can be built from a sum over all workers: ranks, tables with a row for each, and means of gradients.

    Every method must be called by all workers in the same order.  So the workers meet before any of them looks at its
    own data, which it then does by :meth:`together`: one that refuses its data leaves no other waiting.
    """

    def __init__(self, reduce: Callable[[np.ndarray], Any]):
        if not callable(reduce):
            raise TypeError(f"reduce must be a function, got {type(reduce).__name__}")
        self._reduce = reduce
        self._over = False  # the workers have parted: nobody waits for an exchange any more
        self.rank, self._count = self._meet()
        # A mean or a maximum over workers that drew the same slot looks like one worker alone.  With both signs of a
        # number drawn anew, each of them sees it: of a maximum alone, the worker with the larger number would not.
        drawn = 1.0 + _draw(2**53 - 1)
        if (self.table([drawn, -drawn])[self.rank] != (drawn, -drawn)).any():
            raise ValueError(MUST_ADD)

    def weigh(self, queries: int) -> None:
        """Means are over the queries of all workers; ``queries`` of them are here."""
        counts = self.table([queries])[:, 0]
        if not counts.any():
            raise ValueError("reduce needs queries on one worker at least, got none on any")
        self._fractions = counts / counts.sum()

    def _sum(self, array: np.ndarray) -> None:
        try:
            answer = self._reduce(array)
            if isinstance(answer, np.ndarray) and answer is not array:
                raise ValueError("reduce must add its argument up in place, got a new array from it")
        except BaseException:
            self._over = True
            raise

    def _meet(self) -> tuple[int, int]:
        """Each worker draws a random slot until all slots differ; ranks are the order of the slots."""
        for slots in (2**k for k in range(6, 25, 3)):
            mine = _draw(slots)
            taken = np.zeros(slots)
            taken[mine] = 1
            self._sum(taken)
            if taken[mine] < 1 or (taken != np.round(taken)).any():
                break
            if taken.max() == 1:
                return int(taken[:mine].sum()), int(taken.sum())
        raise ValueError(MUST_ADD)

    def table(self, numbers: Iterable[float]) -> np.ndarray:
        """(workers, len(numbers)): what each gave.  The rows of the others are zero, so their sum is exact."""
        row = np.asarray(list(numbers), dtype=np.float64)
        table = np.zeros((self._count, len(row)))
        table[self.rank] = row
        self._sum(table.reshape(-1))
        return table

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The array of each worker, of any length, flat and in double precision."""
        ends = np.cumsum(self.table([array.size])[:, 0].astype(np.intp))
        all_of_them = np.zeros(ends[-1])
        parts = np.split(all_of_them, ends[:-1])
        parts[self.rank][:] = array.reshape(-1)
        self._sum(all_of_them)
        return parts

    def first(self, array: np.ndarray) -> np.ndarray:
        """The array of the first worker, for all."""
        array = array if self.rank == 0 else np.zeros_like(array)
        self._sum(array.reshape(-1))
        return array

    def agree(self, **settings: Any) -> None:
        """Raises, naming those that differ, unless all workers hold the same under every name: arrays, numbers, words,
        and lists of these."""
        table = self.table([_checksum(value) for value in settings.values()])
        differ = [name for name, column in zip(settings, table.T, strict=True) if np.ptp(column) != 0]
        if differ:
            raise ValueError(
                f"reduce needs the same start and the same settings on every worker, got others of {', '.join(differ)}"
            )

    def together(self, call: Callable[[], Any]) -> Any:
        """What ``call`` returns, once it has returned on every worker; where it raised on one, all raise.

        Ctrl-C is not told: it may have reached the others too, inside an exchange that they have then left.
        """
        answer, error = None, None
        try:
            answer = call()
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            error = raised
        self._part(self.table([error is not None])[:, 0], error)
        if error is not None:
            raise error
        return answer

    def fail(self, error: Exception, numbers: int) -> None:
        """Tells the others, who wait in :meth:`combine` for ``numbers`` losses and scales, that this worker failed."""
        if not self._over:
            with contextlib.suppress(Exception):  # of reduce: the error told here is the one to be raised
                self._part(self.table([1.0, *np.zeros(numbers)])[:, 0], error)

    def _part(self, failed: np.ndarray, error: BaseException | None = None) -> None:
        """Raises, where any worker has failed, what the first of them says on those that have not."""
        if not failed.any():
            return
        import traceback  # which an answer never needs

        said = "" if error is None else "".join(traceback.format_exception_only(error)).strip()
        text = said and f"{_name()} failed, so all stop: {said}"
        told = self.gather(np.frombuffer(text.encode(errors="replace"), dtype=np.uint8))
        self._over = True
        if error is None:
            first = int(failed.argmax())
            words = told[first].astype(np.uint8).tobytes().decode(errors="replace")
            raise RuntimeError(f"of {self._count} workers {words}")

    def any(self, flag: bool) -> bool:
        return bool(self.table([flag]).any())

    def mean(self, numbers: Iterable[float]) -> np.ndarray:
        """Means over the queries of all workers, independent of the order of the workers."""
        return self._means(self.table(numbers))

    def _means(self, table: np.ndarray) -> np.ndarray:
        return np.array([math.fsum(self._fractions * column) for column in table.T])

    def combine(
        self, gradient: np.ndarray, losses: np.ndarray, scales: np.ndarray, blocks: list[tuple[np.ndarray, slice]]
    ) -> None:
        """Replaces losses, gradients and their scales by the means over the queries of all workers, in place.

        ``blocks``: parts (k, size) of ``gradient``, and which k of the ``scales`` their rows are on.  The largest scale
        of each row is agreed on first, so that nothing underflows that one process would have kept.
        """
        moving = np.zeros(len(scales), dtype=bool)
        for rows, on in blocks:
            moving[on] |= rows.any(axis=1)
        own, R = np.where(moving, scales, -np.inf), len(losses)  # a gradient of zero has no scale
        table = self.table([0.0, *losses, *own])  # 1 first: the worker has failed
        self._part(table[:, 0])
        table = table[:, 1:]
        if not np.isfinite(table[:, :R]).all():
            losses[:] = math.nan
            return
        losses[:] = self._means(table[:, :R])
        scales[:] = table[:, R:].max(axis=0)
        scales[scales == -np.inf] = 0.0
        factor = self._fractions[self.rank] * np.exp(own - scales)
        for rows, on in blocks:
            rows *= factor[on, None]
        self._sum(gradient)
