"""What each fast path of the C core is replaced by when it is left out, as texts like those of mutations.py.

A path may have several replacements, since what remains without it can be arranged in several ways; the best of them
counts.  `kind`: the rows of the speed tables that the path can reach.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ABLATIONS", "Ablation"]


class Ablation(NamedTuple):
    path: str
    without: str
    kind: str
    changes: tuple[tuple[str, str, str], ...]


ACTIVE, AUTO = "csrc/svm/frobenius/active.c", "csrc/svm/policy.c"
SET, SYSTEM = "csrc/svm/frobenius/primal_dual_active_set.c", "csrc/svm/systems/support_system.c"
GEMM, SPAN = "csrc/linalg/gemm.c", "python/attsvm/training/query_span.py"

NO_START = ((ACTIVE, "#define START_ROWS 800", "#define START_ROWS (-1)"),)
EARLIER_BLOCK = (
    (AUTO, "#define ACTIVE_ROWS 400", "#define ACTIVE_ROWS 100"),
    (AUTO, "#define ACTIVE_ROWS_LONG 800", "#define ACTIVE_ROWS_LONG 200"),
)
SCRATCH = """\
        s->W = arena_doubles(arena, rows->w->dk, rows->w->dz);
        s->U = arena_doubles(arena, rows->w->n_queries, rows->w->dk);
        if (arena->failed)
            return STATUS_NO_MEMORY;
"""
FROM_TOKENS = (
    (SYSTEM, "        compact_rows_copy(compact, &s->rows, s->ridge);\n", SCRATCH),
    (SYSTEM, "        compact_rows_apply(s->compact, out, x);\n        return;\n", ""),
    (
        SYSTEM,
        "compact_rows_precondition(s->compact, out, r);",
        "memcpy(out, r, (size_t)s->rows.count * sizeof(double));",
    ),
    (
        SET,
        "if (compact_rows_make_room(&s->compact, s->rows, s->member, s->size) != STATUS_DONE)\n"
        "        return STATUS_NO_MEMORY;",
        "",
    ),
)
ALWAYS_DENSE = (
    (
        SET,
        "return s->size <= DENSE_MOST && (s->dense || factor <= AS_CHEAP * iteration);",
        "return s->size <= DENSE_MOST || factor <= 0 * iteration;",
    ),
)
# Products of a factor that is packed once, by OpenBLAS: B^T as it is, with rows of zeros up to whole panels.
SIGNATURE = "(double *restrict packed, const double *restrict B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k)\n{"
PREFIX = """\
#include <cblas.h>
#ifdef BLAS_SYMBOL_PREFIX
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define BLAS(name) CAT(BLAS_SYMBOL_PREFIX, name)
#else
#define BLAS(name) name
#endif
"""
PACK = """
    memset(packed, 0, (size_t)gemm_packed(n, k) * sizeof(double));
    for (ptrdiff_t l = 0; l < k; ++l)
        for (ptrdiff_t j = 0; j < n; ++j)
            packed[j * k + l] = B[l * ldb + j];
    return;"""
PACK_TRANSPOSED = """
    memset(packed + n * k, 0, (size_t)(gemm_packed(n, k) - n * k) * sizeof(double));
    for (ptrdiff_t j = 0; j < n; ++j)
        memcpy(packed + j * k, B + j * ldb, (size_t)k * sizeof(double));
    return;"""
ROWS_SIGNATURE, COLUMNS_SIGNATURE = (
    f"void gemm_{name}(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,\n"
    f"{' ' * len(f'void gemm_{name}(')}"
    "const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add)\n{"
    for name in ("rows", "columns")
)
CALL = """
    BLAS(cblas_dgemm)(CblasRowMajor, {}, CblasTrans, (int)m, (int)n, (int)k, 1.0, A, (int)lda, packed, (int){}, {},
                      C, (int)ldc);
    return;"""
BY_OPENBLAS = (
    (GEMM, "#define TALL 8", PREFIX + "#define TALL 8"),
    (GEMM, "void gemm_pack" + SIGNATURE, "void gemm_pack" + SIGNATURE + PACK),
    (GEMM, "void gemm_pack_transposed" + SIGNATURE, "void gemm_pack_transposed" + SIGNATURE + PACK_TRANSPOSED),
    (GEMM, ROWS_SIGNATURE, ROWS_SIGNATURE + CALL.format("CblasNoTrans", "deep", "add ? 1.0 : 0.0")),
    (GEMM, COLUMNS_SIGNATURE, COLUMNS_SIGNATURE + CALL.format("CblasTrans", "deep", "add ? 1.0 : 0.0")),
    ("csrc/training/linear.c", "interleaved->queries + first * GEMM_PANEL", "interleaved->queries + first"),
)
ONE_BY_ONE = (
    ("csrc/attention/interleaved.c", "if (w->longest * WIDE * w->dk > SMALL)", "if (1)"),
    (SPAN, "SIDE_BY_SIDE = 1024", "SIDE_BY_SIDE = 0"),
)

ON_W = (ONE_BY_ONE[0],)

ABLATIONS = {
    "no-start": Ablation("initial_support, coordinate_ascent", "rows join one by one", "solve", NO_START),
    "no-start-block": Ablation(
        "initial_support, coordinate_ascent",
        "the same, and block ascent from 100 rows on",
        "solve",
        NO_START + EARLIER_BLOCK,
    ),
    "no-rounds": Ablation(
        "rounds of the initial support",
        "coordinate ascent alone",
        "solve",
        (("csrc/svm/frobenius/initial_support.c", "#define ROUNDS 8", "#define ROUNDS 0"),),
    ),
    "cg-on-tokens": Ablation(
        "compact_rows", "conjugate gradients on the tokens, not preconditioned", "solve", FROM_TOKENS
    ),
    "dense": Ablation("compact_rows", "a Cholesky factor, always", "solve", ALWAYS_DENSE),
    "no-span": Ablation(
        "query_span", "steps on W", "few queries", ((SPAN, "linear = problem", "linear = False and problem"),)
    ),
    "openblas": Ablation("gemm", "OpenBLAS in every product", "both", BY_OPENBLAS),
    "one-by-one": Ablation(
        "interleaved", "windows one by one, in the span of the queries where that is shorter", "few queries", ONE_BY_ONE
    ),
    "one-by-one-on-W": Ablation("interleaved", "windows one by one, on W", "few queries", ON_W),
}
