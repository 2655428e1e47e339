"""A network of threads: what `reduce=` is given in tests."""

import functools
import secrets
import threading

import numpy as np


class Network:
    """reduce() for threads: everybody's array becomes the sum (or what `add` makes) of all, in one order."""

    def __init__(self, workers, add=np.add):
        self.add = add
        self.barrier, self.arrays, self.lock, self.calls = threading.Barrier(workers), [], threading.Lock(), 0

    def reduce(self, array):
        assert array.dtype == np.float64 and array.ndim == 1 and array.flags.c_contiguous
        with self.lock:
            self.arrays.append(array.copy())
        self.barrier.wait(timeout=60)
        array[:] = functools.reduce(self.add, sorted(self.arrays, key=lambda a: a.tobytes()))
        if self.barrier.wait(timeout=60) == 0:
            self.arrays, self.calls = [], self.calls + 1
        self.barrier.wait(timeout=60)

    @staticmethod
    def in_order(monkeypatch):
        """The works of a network become the workers 0, 1, ... in this order, which is drawn otherwise."""
        draw = secrets.randbelow
        monkeypatch.setattr(
            secrets, "randbelow", lambda n: int(threading.current_thread().name) if n < 2**25 else draw(n)
        )

    def apart(self, call, each, **options):
        """What the call of each worker, with arguments of its own, returns or raises."""
        return self.run([lambda own=own: call(reduce=self.reduce, **options | own) for own in each])

    def run(self, works):
        """What each of the functions returns or raises, each in a thread of its own."""
        answers = [None] * len(works)

        def work(i):
            try:
                answers[i] = works[i]()
            except BaseException as error:
                answers[i] = error

        threads = [threading.Thread(target=work, args=(i,), name=str(i)) for i in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers
