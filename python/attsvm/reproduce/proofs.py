"""Proves the SVM answers that a figure uses by exact arithmetic: a sample of them, or all."""

from __future__ import annotations

import threading
import zlib
from bisect import insort

from ..claims import Claim, exactly
from ..svm.proof import proved
from ..svm.separation import Separation
from ..svm.solve import listeners

SAMPLE = 10  # number of answers proved for a figure; proving more would take longer than measuring the figure


class ProvedAnswers:
    """A context manager that collects the answers of :func:`solve_svm` to prove them: all answers, or SAMPLE of them.

    The sample does not depend on the order of the answers, which threads change.
    """

    def __init__(self, everything: bool = False):
        self.everything = everything
        self.answers: list[tuple[int, int, Separation]] = []
        self.seen = 0
        self._lock = threading.Lock()

    def __enter__(self) -> ProvedAnswers:
        listeners.append(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        listeners.remove(self._note)

    def _note(self, sol: Separation) -> None:
        # There is no answer to prove, the SVM has no rows, or it has a metric, which the checker does not support.
        if sol.status == "undecided" or not sol.flat_dual.any() or sol.metric is not None:
            return
        with self._lock:
            self.seen += 1
            insort(self.answers, (zlib.crc32(sol.flat_dual.tobytes()), self.seen, sol))
            if not self.everything:
                del self.answers[SAMPLE:]

    def claims(self) -> tuple[dict[str, list[Claim]], list[str]]:
        """Proves the collected answers.  Returns the claim that all are proved, under a heading, and the reasons why
        proofs failed."""
        missing, count = [], len(self.answers)
        for *_, sol in self.answers:
            try:
                proved(sol)
            except ValueError as error:
                missing.append(f"{sol.status} in the {sol.norm} norm: {error}")
        if not count:
            return {}, missing
        text = f"answers proved exactly, of {count}" + f" out of {self.seen:,}" * (count < self.seen)
        return {"Proofs": [exactly(text, count - len(missing), count)]}, missing
