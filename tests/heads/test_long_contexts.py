"""Heads of long contexts: in memory that the logits set, not the tokens."""

import os
import sys

import attsvm
import numpy as np
import pytest
from attsvm.heads.choices import hard_queries
from attsvm.heads.controls import gaussian_factors, null_head
from attsvm.heads.head import Choices, Head, Logits
from attsvm.heads.sequences import Text
from made import check_own_choices
from marks import needs_linux
from processes import python


def long_head(keys, queries, T, each, seed=0):
    """Causal contexts of T tokens, of which ``each`` queries of the later half are hard; own W = I."""
    rng = np.random.default_rng(seed)
    N, m = keys.shape
    selected, top = np.zeros(N, dtype=np.intp), np.full(N, 0.1)
    for begin in range(0, N, T):
        for q in begin + rng.choice(np.arange(T // 2, T), each, replace=False):
            selected[q], top[q] = (keys[begin : q + 1] @ queries[q].astype(np.float64)).argmax(), 0.95
    text = Text(keys, np.full(N // T, T), stop=np.arange(N) % T + 1)
    given, known = Logits(queries, keys, 1.0), Choices(selected, top, np.ones(N))
    return Head(0, 0, text, np.eye(m), np.eye(m), queries, space="head", given=given, known=known)


def arrays(N, m, seed=0):
    rng = np.random.default_rng(seed)
    spectrum = (1 / np.sqrt(1 + np.arange(m))).astype(np.float32)
    keys = rng.standard_normal((N, m), dtype=np.float32) * spectrum
    return keys, rng.standard_normal((N, m), dtype=np.float32) * spectrum * 6


def test_a_random_head_of_many_logits_has_as_many_hard_queries(monkeypatch):
    """Whether all logits are held at one time, or only those of queries that may be hard."""
    head = long_head(*arrays(4 * 300, 8), 300, 30)

    def random_head():
        return null_head(head, gaussian_factors, 120, 0.9, False, np.random.default_rng(1))

    whole = random_head()
    monkeypatch.setattr(attsvm.heads.controls, "ENTRIES", 20_000)
    monkeypatch.setattr(attsvm.heads.controls, "BLOCK", 5_000)
    parts = random_head()
    for other in (whole, parts):
        assert abs(len(hard_queries(other, 0.9)) - 120) <= 3  # 2 % of them
        check_own_choices(other)
    np.testing.assert_array_equal(whole.K, parts.K)
    assert whole.Q == pytest.approx(parts.Q, rel=0.05)  # scales at which 118 to 122 queries are hard
    monkeypatch.setattr(attsvm.heads.controls, "MOST", 15_000)
    seen = random_head()
    # Of the queries looked at until these are too many: its scale, but for chance, and the choices of those alone.
    assert (seen.Q != parts.Q).any() and seen.Q == pytest.approx(parts.Q, rel=0.2)
    assert 30 < len(hard_queries(seen, 0.9)) < 90


LIMITED = """
import resource, sys
import attsvm, numpy as np
sys.path[:0] = {path!r}
from test_long_contexts import arrays, long_head
keys, queries = arrays({tokens}, 64)
np.save("k.npy", keys); np.save("q.npy", queries)
del keys, queries
head = long_head(np.load("k.npy", mmap_mode="r"), np.load("q.npy", mmap_mode="r"), 4000, {each})
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (held * 1024 + {room} * 2**20,) * 2)
report = attsvm.heads.analyze_head(head, nuclear_queries=0, splits=1)
assert report.fit.status == "optimal" and report.null.hard.all() and report.random.margin_bound < report.fit.margin
"""


@pytest.mark.slow
@needs_linux
def test_memory_is_that_of_the_rows(tmp_path):
    """Twenty contexts of 4,000 tokens, 400 hard queries: 0.8 million rows and their bookkeeping fit into 250 MB (block
    ascent on them takes 3 GB, one array of all logits 1.3 GB)."""
    script = LIMITED.format(path=sys.path, tokens=80_000, each=20, room=250)
    one = os.environ | {"OMP_NUM_THREADS": "1"}  # a thread's stack counts as memory
    done = python("-c", script, cwd=tmp_path, env=one)
    assert done.returncode == 0, done.stderr[-2000:]
