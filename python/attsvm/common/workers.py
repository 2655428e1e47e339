"""Communication between processes that hold shards of the data, by one operation: a sum over all processes."""

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
    import secrets  # imported here because secrets loads hashlib, which is slow

    return secrets.randbelow(below)


def _name() -> str:
    """This worker's rank as its launcher counts it, with process and machine.  (The ranks of :class:`Workers` are
    random.)"""
    ranks = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    rank = next((f"rank {os.environ[name]}, " for name in ranks if name in os.environ), "")
    return f"{rank}process {os.getpid()} on {platform.node()}"


def _checksum(value: Any) -> int:
    parts = [_checksum(part) for part in value] if isinstance(value, list) else value
    array = np.asarray([] if parts is None else parts)  # of None, NumPy would store the address
    return zlib.crc32(array.tobytes(), zlib.crc32(repr(array.shape).encode()))


class Workers:
    """Operations built from a sum over all workers: ranks, tables with one row per worker, and means of gradients.

    Every method must be called by all workers in the same order.  Therefore the workers are constructed before any of
    them checks its own data.  The checks run inside :meth:`together`: if one worker refuses its data, the others learn
    of it instead of waiting.
    """

    def __init__(self, reduce: Callable[[np.ndarray], Any]):
        if not callable(reduce):
            raise TypeError(f"reduce must be a function, got {type(reduce).__name__}")
        self._reduce = reduce
        self._over = False  # an error has ended the exchange: no other worker waits for this one
        self.rank, self._count = self._meet()
        # A `reduce` that is a mean or a maximum instead of a sum is refused here.
        # Under a mean or a maximum, workers that drew the same slot in _meet count as one, with one row in tables.
        # Each worker puts a random number and its negative into its own row of a table, and zeros into all other rows.
        # After the sum over all workers, each worker's row must still hold its random number and the negative.
        # The negative is needed: under a maximum, the worker with the largest number would get this number back.
        drawn = 1.0 + _draw(2**53 - 1)
        if (self.table([drawn, -drawn])[self.rank] != (drawn, -drawn)).any():
            raise ValueError(MUST_ADD)

    def weigh(self, queries: int) -> None:
        """Sets the weights of means: a worker's weight is its number of queries over the number of all queries."""
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
        """Returns the rank of this worker; and the number of workers. Each worker draws a random slot until all slots
        differ, and the ranks follow the order of the slots."""
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
        """A table (workers, len(numbers)) with the numbers of each worker.  It is an exact sum, since each worker
        leaves the rows of the other workers zero."""
        row = list(numbers)
        table = np.zeros((self._count, len(row)))
        table[self.rank] = row
        self._sum(table.reshape(-1))
        return table

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all workers, which may differ in length, each flat and in double precision."""
        ends = np.cumsum(self.table([array.size])[:, 0].astype(np.intp))
        all_of_them = np.zeros(ends[-1])
        parts = np.split(all_of_them, ends[:-1])
        parts[self.rank][:] = array.reshape(-1)
        self._sum(all_of_them)
        return parts

    def first(self, array: np.ndarray) -> np.ndarray:
        """Returns the array of the first worker (rank 0) on every worker."""
        array = array if self.rank == 0 else np.zeros_like(array)
        self._sum(array.reshape(-1))
        return array

    def agree(self, **settings: Any) -> None:
        """Raises, naming the settings that differ, unless all workers have the same value under every name.  Values are
        arrays, numbers, words, and lists of these."""
        table = self.table([_checksum(value) for value in settings.values()])
        differ = [name for name, column in zip(settings, table.T, strict=True) if np.ptp(column) != 0]
        if differ:
            raise ValueError(
                f"reduce needs the same start and the same settings on every worker, got others of {', '.join(differ)}"
            )

    def together(self, call: Callable[[], Any]) -> Any:
        """Calls ``call`` on every worker and returns its result.  If it raises on one worker, all workers raise.

        KeyboardInterrupt is not passed on: Ctrl-C may have reached the other workers too, which then no longer wait.
        """
        answer, error = None, None
        try:
            answer = call()
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            error = raised
        self._part(self.table([error is not None]), error)
        if error is not None:
            raise error
        return answer

    def fail(self, error: Exception, numbers: int) -> None:
        """Tells the other workers that this worker has failed.  The others wait in :meth:`combine` for the losses and
        scales of this worker, of which there are ``numbers``."""
        if not self._over:
            # an error of `reduce` is dropped, since the caller raises `error`
            with contextlib.suppress(Exception):
                self._part(self.table([1.0, *np.zeros(numbers)])[:, 0], error)

    def _part(self, failed: np.ndarray, error: BaseException | None = None) -> None:
        """Ends the exchange if any worker has failed: all workers that have not failed raise the text of the first
        failure."""
        if not failed.any():
            return
        said = filter(None, (type(error).__name__, str(error), *getattr(error, "__notes__", ())))
        text = "" if error is None else f"{_name()} failed, so all stop: {': '.join(said)}"
        told = self.gather(np.frombuffer(text.encode(errors="replace"), dtype=np.uint8))
        self._over = True
        if error is None:
            words = told[failed.argmax()].astype(np.uint8).tobytes().decode(errors="replace")
            raise RuntimeError(f"of {self._count} workers {words}")

    def any(self, flag: bool) -> bool:
        return bool(self.table([flag]).any())

    def mean(self, numbers: Iterable[float]) -> np.ndarray:
        """The mean of each number over workers, weighted by their numbers of queries; the order does not matter."""
        return self._means(self.table(numbers))

    def _means(self, table: np.ndarray) -> np.ndarray:
        return np.array([math.fsum(self._fractions * column) for column in table.T])

    def combine(
        self, gradient: np.ndarray, losses: np.ndarray, scales: np.ndarray, blocks: list[tuple[np.ndarray, slice]]
    ) -> None:
        """Replaces losses, gradients and their log scales, in place, by the means over the queries of all workers.

        ``blocks`` are parts (k, size) of ``gradient``, each with the slice of the k ``scales`` (logarithms) of its
        rows.  The workers first agree on the largest scale of each row, so that nothing underflows that would not have
        underflowed in one process.
        """
        moving = np.zeros(len(scales), dtype=bool)
        for rows, on in blocks:
            moving[on] |= rows.any(axis=1)
        own = np.where(moving, scales, -np.inf)  # a gradient of zero has no scale
        # The first column of the table is 1 in the row of a worker that has failed (see fail), else 0.
        table = self.table([0.0, *losses, *own])
        failed, lost, logs = np.split(table, (1, 1 + len(losses)), axis=1)
        self._part(failed)
        if not np.isfinite(lost).all():
            losses[:] = math.nan
            return
        losses[:] = self._means(lost)
        scales[:] = logs.max(axis=0)
        scales[scales == -np.inf] = 0.0
        factor = self._fractions[self.rank] * np.exp(own - scales)
        for rows, on in blocks:
            rows *= factor[on, None]
        self._sum(gradient)
