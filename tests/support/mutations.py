"""Deliberate faults, one at a time, and where each should be noticed.

A row: name, file, its text, the fault in its place, what kind of fault it is, the fast tests that should notice (names
of test files without the prefix "test_"), and the figures whose quick report should give a claim "fails"; none where no
figure reaches the fault.  The text must occur once in the file.  `tests/house/test_mutations.py` runs the table.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTATIONS", "Mutation"]


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    kind: str
    tests: str
    figures: str = ""


SOFTMAX, LOSS, DESCENT = "csrc/attention/softmax.c", "csrc/training/loss.c", "csrc/training/descent.c"
OBJECTIVE, LINEAR, PROJECTION = "csrc/training/objective.c", "csrc/training/linear.c", "csrc/training/projection.c"
HEAD, GENERAL, CERTIFICATE = "csrc/training/head.c", "csrc/training/general.c", "csrc/svm/certificate.c"
ROWS, SOLVE, SEPARATION = "csrc/svm/rows.c", "python/attsvm/svm/solve.py", "python/attsvm/svm/separation.py"
CONDITIONS, TOKEN_SETS = "python/attsvm/theory/conditions.py", "python/attsvm/theory/token_sets.py"
DIAGNOSE, PROBLEM = "python/attsvm/theory/diagnose.py", "python/attsvm/training/problem.py"
DATA, SAMPLE, PLOT = "python/attsvm/attention/data.py", "python/attsvm/sample.py", "python/attsvm/plot.py"
UPDATE, ARGUMENTS = "csrc/training/update.c", "python/attsvm/training/arguments.py"

MUTATIONS = [
    Mutation(*row)
    for row in (
        # gradients
        ("jacobian-sign", SOFTMAX, "c[t] = prob[t] * ((score[t] - g_a) - lift);",
         "c[t] = prob[t] * ((score[t] - g_a) + lift);", "gradient", "softmax output_head", "several-tokens"),
        ("jacobian-sign-interleaved", SOFTMAX, "? difference - mean[i] : -lift[i]",
         "? difference + mean[i] : -lift[i]",
         "gradient", "steps problem", "local-convergence"),
        ("jacobian-tied-tokens", SOFTMAX, "? difference - mean[i] : -lift[i]", "? difference - mean[i] : 0",
         "gradient", "steps problem", "equal-scores"),
        ("jacobian-tied-tokens-alone", SOFTMAX, ": -prob[t] * lift;", ": 0;", "gradient", "softmax"),
        ("textbook-gradient", SOFTMAX, "#define NEAR_UNDERFLOW (-300.0)", "#define NEAR_UNDERFLOW (-1e308)",
         "gradient", "softmax steps"),
        ("logistic-slope", LOSS, "log_slope[i] = -s - (u > 0 ? u : 0);", "log_slope[i] = -s;", "gradient",
         "problem steps", "local-convergence plain-descent"),
        ("logistic-value", LOSS, "value[i] = s + (u < 0 ? -u : 0);", "value[i] = s;", "gradient", "problem steps",
         "plain-descent"),
        ("exponential-slope", LOSS, "*log_slope = -u;", "*log_slope = u;", "gradient", "problem steps"),
        ("slope-dropped", LINEAR, "part->rows.shift[row] + part->log_slope[row]", "part->rows.shift[row]", "gradient",
         "problem steps", "local-convergence plain-descent"),
        ("ascent", LINEAR, "-1.0 / M", "1.0 / M", "gradient", "problem steps", "local-convergence equal-scores"),
        ("ridge-halved", OBJECTIVE, "double ridge = 2 * objective->ridge", "double ridge = objective->ridge",
         "gradient", "steps problem", "local-convergence"),
        ("relu-leaks", HEAD, "row[j] > 0 ? a[j] : 0", "row[j] > 0 ? a[j] : 0.1 * a[j]", "gradient", "output_head",
         "several-tokens"),
        ("quadratic-slope", HEAD, "v[i] - 2 * head->lam * o[i]", "v[i] - head->lam * o[i]", "gradient",
         "output_head", "quadratic-head"),
        ("heads-not-summed", GENERAL, "o[i] += scratch->one[i];", "o[i] = scratch->one[i];", "gradient",
         "output_head",
         "attention-heads"),
        # rules
        ("joint-norm", UPDATE, "move_by(part->W, D, part->n, length, part->step.norm);\n        break;",
         "move_by(part->W, D, part->n, length * exp(part->step.scale - scale), joint);\n        break;", "rule",
         "rules train", "local-convergence"),
        ("constant-without-scale", UPDATE, "length * exp(part->step.scale), part->n", "length, part->n", "rule",
         "rules train", "plain-descent"),
        ("mirror-exponent", UPDATE, "q = p / (p - 1)", "q = p", "rule", "steps rules", "mirror-descent"),
        ("polyak-twice", DESCENT, "log_excess - log(2 * norm)", "log_excess - log(norm)", "rule", "steps rules",
         "plain-descent"),
        ("polyak-status", DESCENT, "? STATUS_TARGET_REACHED : status", "? STATUS_STATIONARY : status", "rule",
         "rules"),
        ("factor-radius", DESCENT, "sqrt(2 * descent->radius)", "sqrt(descent->radius)", "rule", "rules projection"),
        ("simplex-threshold", PROJECTION, "/ (double)(k + 1)", "/ (double)(k + 2)", "rule", "projection",
         "regularization-path"),
        ("frobenius-radius", PROJECTION, "radius / norm, m * n", "0.9 * radius / norm, m * n", "rule", "projection",
         "regularization-path"),
        ("excess-slope", LOSS, "expm1(e) * exp(log_slope)", "expm1(e)", "rule", "regularization_path rules",
         "plain-descent"),
        ("infimum", PROBLEM, "u = np.maximum.reduceat(self.flat_scores, self.data.indptr[:-1])\n        return",
         "u = np.minimum.reduceat(self.flat_scores, self.data.indptr[:-1])\n        return", "rule", "rules reduce"),
        ("target-ignored", ARGUMENTS, 'as_number("target_loss", target_loss)',
         '0 * as_number("target_loss", target_loss)',
         "rule", "steps rules callback"),
        # SVM
        ("gap-zero", CERTIFICATE, "? bound->upper / bound->lower - 1 : INFINITY;\n    if (s > 0 && norm",
         "? 0 : INFINITY;\n    if (s > 0 && norm", "svm",
         "solve certificates nuclear", "rank"),
        ("bound-halved", CERTIFICATE, "(of_m > 0 ? of_m + doubt.combination : 0) / product",
         "0.5 * (of_m > 0 ? of_m + doubt.combination : 0) / product", "svm", "answers", "rank"),
        ("farkas-always", CERTIFICATE, "return residual == 0 ? 0 : weight > 0 ? residual / weight : INFINITY;",
         "return 0;",
         "svm", "answers", "rank"),
        ("nuclear-is-frobenius", SOLVE, "RANK_METHODS if rank is not None else METHODS[norm if isinstance(norm, str)",
         'RANK_METHODS if rank is not None else METHODS["frobenius" if isinstance(norm, str)', "svm", "nuclear",
         "local-convergence rank"),
        ("adjoint-sign", ROWS, "p[i] += weight * (number(a,", "p[i] -= weight * (number(a,", "svm", "solve", "rank"),
        ("row-delta-sign", ROWS, "delta[i] = scale * (w->keys[a + i] - w->keys[x + i]);",
         "delta[i] = scale * (w->keys[x + i] - w->keys[a + i]);",
         "svm", "solve", "local-convergence"),
        ("rows-do-not-join", "csrc/svm/row_generation.c", "g->chosen[from + worst] = 1;",
         "g->chosen[from + worst] = 0;", "svm", "row_generation"),
        ("soft-doubles-c", SOLVE, "scaled_number(C, 2 * power,", "scaled_number(2 * C, 2 * power,", "svm", "soft",
         "soft-margins"),
        ("margins-ignored", "python/attsvm/attention/selection.py",
         "        if margins is not None:\n            self._ask",
         "        if margins is ...:\n            self._ask", "svm", "margins", "soft-margins"),
        ("rank-tolerance", SEPARATION, "RANK_TOLERANCE = 1e-4", "RANK_TOLERANCE = 1e-13", "svm",
         "nuclear solve", "rank"),
        ("loose-answers", SOLVE, "    tol = as_number(\"tol\", tol, above=0.0)\n    if C",
         "    tol = 1e-3 + as_number(\"tol\", tol, above=0.0)\n    if C", "svm", "nuclear solve certificates",
         "rank local-convergence"),
        ("feasible-is-infeasible", SOLVE, 'sol.status = "feasible"', 'sol.status = "infeasible"', "svm", "solve",
         "soft-margins"),
        # theory
        ("support-tolerance", CONDITIONS, "TIGHT = 1e-4", "TIGHT = 0.1", "theory", "diagnosis conditions",
         "global-local basin"),
        ("locally-optimal-inverted", CONDITIONS, "return not rivals.any()", "return bool(rivals.any())", "theory",
         "conditions diagnosis", "global-local"),
        ("rivals-not-tied", CONDITIONS, "(problem.flat_scores >= at_reference(problem, reference))",
         "(problem.flat_scores > at_reference(problem, reference) + 0.1)", "theory", "conditions diagnosis",
         "global-local"),
        ("local-cone-mu", CONDITIONS, "return 0.5 * (eps / (longest * size)) ** 2",
         "return 50 * (eps / (longest * size)) ** 2",
         "theory", "diagnosis theory_figures", "basin"),
        ("local-cone-radius", CONDITIONS, "radius * size", "0.1 * radius * size", "theory",
         "diagnosis theory_figures", "basin"),
        ("separating-cone-mu", CONDITIONS, "mu = min(iota * norm / size, 1.0)",
         "mu = min(100 * iota * norm / size, 1.0)",
         "theory", "diagnosis"),
        ("separating-cone-radius", CONDITIONS, "float(np.log(max(worst, 1e-300))))",
         "0.1 * float(np.log(max(worst, 1e-300))))",
         "theory", "diagnosis"),
        ("smoothness", CONDITIONS, "3 * M1", "M1", "theory", "conditions diagnosis", "plain-descent"),
        ("first-step-sign", CONDITIONS, "data.flat_margins(-G, reference)", "data.flat_margins(G, reference)", "theory",
         "diagnosis", "soft-margins"),
        ("equal-scores-untold", DIAGNOSE, '"equal scores" if equal else None', "None", "theory", "diagnosis",
         "equal-scores"),
        ("selected-sets-threshold", TOKEN_SETS, "return array >= high,", "return array > low,", "theory",
         "token_sets"),  # figures use the sets where no probability is between the thresholds
        ("undecided-untold", TOKEN_SETS, "((array > low) & (array < high))", "((array < low) & (array > high))",
         "theory", "token_sets", "quadratic-head"),
        ("w-fin-sign", TOKEN_SETS, "lengths) - logs\n", "lengths) * -1 + logs\n", "theory", "token_sets",
         "several-tokens"),
        ("r-without-w-fin", TOKEN_SETS, "np.vdot(direction, W - W_fin)", "np.vdot(direction, W + W_fin)", "theory",
         "token_sets"),
        ("r-doubled", TOKEN_SETS, "np.vdot(direction, W - W_fin)", "2 * np.vdot(direction, W - W_fin)", "theory",
         "token_sets", "several-tokens"),
        ("tokens-kept", TOKEN_SETS, "axis=-1) < 2 * lam", "axis=-1) < lam", "theory", "token_sets", "quadratic-head"),
        # data
        ("last-tie", SOFTMAX, "#pragma omp simd reduction(min : first)\n    for (ptrdiff_t t = 0; t < T; ++t) {\n"
         "        ptrdiff_t candidate = logit[t] == value ? t : T;\n"
         "        first = candidate < first ? candidate : first;",
         "    for (ptrdiff_t t = 0; t < T; ++t) {\n        first = logit[t] == value ? t : first;",
         "data", "softmax data"),
        ("scores-without-labels", PROBLEM, "np.maximum(scores, 0, out=scores)", "scores[:] = 1", "data", "problem"),
        ("tokens-not-normalised", SAMPLE, "X = _normalized(rng.standard_normal((n, T, d)))",
         "X = rng.standard_normal((n, T, d))", "data", "data figures", "local-convergence"),
        ("hard-attention-off-by-one", DATA, "self.values[self.start + top]",
         "self.values[self.start + 0 * top]", "data",
         "data", "soft-and-hard"),
        ("correlation-squared", PLOT, "np.linalg.norm(flat, axis=1) * np.linalg.norm(W)",
         "np.linalg.norm(flat, axis=1) ** 2 * np.linalg.norm(W)", "data", "figures", "local-convergence"),
        ("one-seed-for-all", "python/attsvm/common/replication.py", "SeedSequence(seed, spawn_key=(run,))  # the",
         "SeedSequence(seed)  # the", "data", "replicate"),
    )
]  # fmt: skip
