"""Checks proofs of attsvm: python -S -I check.py FILE... (exit code 0 all proved, 1 some not, 2 damaged or too large)

A query z sees the tokens x_t, start <= t < stop, a of them is selected.  Row e = (q, t) asks <A_e, W> = b_e where t is
kept beside a, and <A_e, W> >= b_e (a margin) for other t: A_e = (x_a - x_t) z^T, b_e = 0 and 1, or `rhs`.  Multipliers
y_e are >= 0 on margins.  Proved are, by integers and fractions alone (doubles are fractions):
  above     every W that meets the rows has ||W|| >= b.y / ||sum y_e A_e||_dual (alone: the claim "excluded")
  one has   some W meets the rows: equations after a step whose size is bounded, for which margins and norm pay
  no W      sum y_e A_e = 0 and b.y > 0, for y after such a step: a W would give 0 = sum y_e <A_e, W> >= b.y > 0
`without`: the same bounds hold without the rows of these queries, whose multipliers are zero.
With C: ||W||_F^2 / 2 + C sum max(0, b_e - <A_e, W>)^2 >= b.y - ||sum y_e A_e||_F^2 / 2 - sum y_e^2 / (4 C)."""

import gzip
import json
import math
import os
import sys
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from operator import mul, sub

MOST_BYTES, UNPACKED = 2**27, 64  # largest file in bytes, and largest ratio of unpacked to packed size
WORK = {"left": 0.0}  # time budget left to the check, in nanoseconds: at first 0.1 s plus 20,000 ns for each byte
FORM = {"format": str, "claim": str, "norm": str, "start": [int], "witness": tuple}  # a JSON object: tuple of its pairs
FORM |= {"keys": [[str]], "queries": [[str]], "stop": [int], "selected": [int], "dual": [(int, int, str)]}
MAYBE = {"statement": str, "C": str, "kept": [[int]], "rhs": [[str]], "W": [[str]]}  # these names may be null
WITNESS = {"lift": bool, "basis": [(int, int)], "dependent": [[(int, int, int)]], "inverse": [[str]]}
WITNESS |= {"W": ([[str]], [[str]]), "dual": ([[str]], [[str]])}
DUAL = {"frobenius": "frobenius", "nuclear": "spectral", "spectral": "nuclear", "max": "sum"}


def need(truth, why, kind=AssertionError):
    if not truth:
        raise kind(why)


def spend(nanoseconds):
    WORK["left"] -= nanoseconds
    need(WORK["left"] >= 0, "too large, or too much work for its size", ValueError)


def fits(x, form):
    if isinstance(form, list):
        return isinstance(x, list) and all(fits(y, form[0]) for y in x)
    if isinstance(form, tuple):
        return isinstance(x, list) and len(x) == len(form) and all(map(fits, x, form))
    return type(x) is form


def table(rows, count=None, columns=None):
    """Returns rows of doubles as rows of integers; and the power of two by which the integers must be divided."""
    need(rows and rows[0], "an array is empty", ValueError)
    spend(2000 * sum(map(len, rows)))
    numbers = [[float.fromhex(x) for x in row] for row in rows]
    need([[x.hex() for x in row] for row in numbers] == rows, "a number is not as float.hex writes it", ValueError)
    shape = len(rows) == (count or len(rows)) and {len(row) for row in rows} == {columns or len(rows[0])}
    need(shape, "an array has another shape", ValueError)
    ratios = [[x.as_integer_ratio() for x in row] for row in numbers]  # as_integer_ratio raises for infinity and NaN
    scale = max(d for row in ratios for _, d in row)
    return [[n * (scale // d) for n, d in row] for row in ratios], scale


def number(text):
    (((n,),), scale) = table([[text]])
    return Fraction(n, scale)


def times(A, B):
    """The product A^T B of integer matrices.  Each row of B is packed into one integer, a field of bits per column."""
    width = sum(max(abs(x) for row in M for x in row).bit_length() for M in (A, B)) + len(B).bit_length() + 2
    size, columns = len(A[0]) * len(B[0]), range(len(B[0]))
    spend(len(A[0]) * (len(A) + len(B[0])) * (200 + len(B[0]) * (width >> 6) * (1 + (width >> 8))) + 200 * size)
    packed, half = [sum(x << width * k for k, x in enumerate(row)) for row in B], 1 << (width - 1)
    halves = sum(half << width * k for k in columns)
    sums = (sum(map(mul, column, packed)) + halves for column in zip(*A, strict=True))
    return [[(s >> width * k & 2 * half - 1) - half for k in columns] for s in sums]


def root(x):
    """The square root of a Fraction, rounded up by at most a relative 2^-100."""
    shift = max(0, 102 - x.numerator.bit_length() // 2)
    square = x.numerator * x.denominator << 2 * shift
    return Fraction(square and math.isqrt(square - 1) + 1, x.denominator << shift)


def squares(A, scale):
    return Fraction(sum(x * x for row in A for x in row), scale * scale)


def bound(A, scale, norm, factors):
    """An upper bound on the norm of A / scale. Nuclear, spectral: `factors` are U^T and V^T, U V^T near A / scale."""
    entries = [abs(x) for row in A for x in row if x]
    if norm == "frobenius" or not entries:
        return root(squares(A, scale))
    if norm in ("max", "sum"):
        return Fraction((max if norm == "max" else sum)(entries), scale)
    if norm not in DUAL:  # the l_p norm; entries are divided by the largest, powers below exp(-10000) rounded up to it
        spend(40000 * len(entries))  # 30 correctly rounded digits give the p-th root of a sum to a relative 1e-24
        with localcontext(Context(prec=30, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            top, p = Decimal(max(entries)), Decimal(norm.numerator) / norm.denominator
            powers = (max((x / top).ln() * p, Decimal(-10000)).exp() for x in map(Decimal, entries))
            return Fraction((sum(powers).ln() / p).exp()) * (1 + Fraction(1, 10**20)) * Fraction(max(entries), scale)
    (U, u), (V, v) = table(factors[0], None, len(A)), table(factors[1], len(factors[0]), len(A[0]))
    rest = [[x * u * v - y * scale for x, y in zip(*rows, strict=True)] for rows in zip(A, times(U, V), strict=True)]
    missed = root(squares(rest, u * v * scale))
    if norm == "nuclear":  # ||U V^T||_* <= (||U||_F^2 + ||V||_F^2) / 2, and ||.||_* <= root(rank) ||.||_F
        return (squares(U, u) + squares(V, v)) / 2 + root(min(len(A), len(A[0]))) * missed
    grams = (times(T, T) for T in ([*zip(*U, strict=True)], [*zip(*V, strict=True)]))  # ||U||^2 <= max row sum |U^T U|
    return root(Fraction(math.prod(max(sum(map(abs, r)) for r in gram) for gram in grams), (u * v) ** 2)) + missed


def step(equations, scale, missed, witness):
    """A bound t: all equations, whose errors are `missed`, hold after some change of each `basis` unknown by at most t.
    An equation is {unknown: factor * scale}.  `dependent` lists sums of equations that read 0 = 0.  The first equation
    of a sum may not be in later sums: it follows from the others.  The equations that stay are B x = r.  R is close to
    the inverse of B: if each row of |I - R B| adds up to < 1, R B and thus B is invertible."""
    if not any(missed.values()):
        return Fraction(0)
    gone, basis = set(), [*map(tuple, witness["basis"])]
    bits = sum(500 + integer.bit_length() for vector in witness["dependent"] for *_, integer in vector)
    spend(2 * bits * max(map(len, equations.values())))
    for vector in witness["dependent"]:
        factors = {(i, j): integer for i, j, integer in vector}
        need(vector and factors.keys() <= equations.keys(), "a sum of equations that are none", ValueError)
        first = tuple(vector[0][:2])
        places = {u for e in factors for u in equations[e]}
        once = len(factors) == len(vector) and not gone & factors.keys()
        fine = once and factors[first] and not sum(x * missed[e] for e, x in factors.items())
        zero = not any(sum(x * equations[e].get(u, 0) for e, x in factors.items()) for u in places)
        need(fine and zero, "equations do not depend on others as said")
        gone.add(first)
    free, part = [name for name in sorted(equations) if name not in gone], max(x.denominator for x in missed.values())
    B, r = [[equations[e].get(x, 0) for x in basis] for e in free], [[int(missed[e] * part)] for e in free]
    (R, unit), square = table(witness["inverse"], len(free), len(free)), len(basis) == len(free)  # R transposed
    off = [sum(abs(x - unit * scale * (i == j)) for j, x in enumerate(row)) for i, row in enumerate(times(R, B))]
    need(square and max(off) < unit * scale, "the inverse of a basis is not close enough")
    return Fraction(max(abs(x) for (x,) in times(R, r)), unit * part) / (1 - Fraction(max(off), unit * scale))


def theorem(data):
    """Returns the theorem, in words, that the bytes of a file prove; and the gap of its bounds (None without a W)."""
    need(len(data) <= MOST_BYTES, "too large", ValueError)
    WORK["left"] = 1e8 + 2e4 * len(data)
    pairs = json.loads(data, object_pairs_hook=tuple, parse_float=str, parse_constant=str)
    need(type(pairs) is tuple, "this is no attsvm-proof-1", ValueError)
    proof = dict(pairs)
    for name, form in (FORM | MAYBE).items():
        right = fits(proof.get(name), form) or name in MAYBE and proof.get(name, 0) is None
        need(right, f"{name} is missing, or of another type", ValueError)
    given = dict(proof["witness"])
    witness = {"lift": False, "basis": [], "dependent": [], "inverse": []} | given
    for name, form in WITNESS.items():
        need(name not in witness or fits(witness[name], form), f"{name} of the witness is of another type", ValueError)
    twice = len(proof) < len(pairs) or len(given) < len(proof["witness"])
    known = proof["format"] == "attsvm-proof-1" and proof["claim"] in ("optimal", "feasible", "infeasible", "excluded")
    need(known and not twice, "this is no attsvm-proof-1, or a name in it stands twice", ValueError)
    text, gap = statement(proof, witness)
    need(proof["statement"] in (None, text), "the statement is another")
    return text, gap


def statement(proof, witness):
    """Returns the theorem that a proof, whose parts have the right types, proves; and the gap of its bounds."""
    infeasible = proof["claim"] == "infeasible"
    (keys, kd), (queries, qd) = table(proof["keys"]), table(proof["queries"])
    norm = proof["norm"] if proof["norm"] in DUAL else number(proof["norm"])
    C, dk, dz, scale = None if proof["C"] is None else number(proof["C"]), len(keys[0]), len(queries[0]), kd * qd
    start, stop, selected, kept, rhs = (proof[x] for x in ("start", "stop", "selected", "kept", "rhs"))
    kept, rhs = [[a] for a in selected] if kept is None else kept, [None] * len(selected) if rhs is None else rhs
    gone, rows, b, equal = proof.get("without", []), {}, {}, []
    lists = zip(queries, start, stop, selected, kept, rhs, strict=True)
    for q, (z, i, j, a, beside, asked) in enumerate(lists):
        inside = i in range(j) and j in range(len(keys) + 1) and a in beside and all(t in range(j - i) for t in beside)
        inside = inside and (asked is None or len(asked) == j - i)
        need(inside, "an index out of range, or a list too short", ValueError)
        spend((j - i) * (15000 + 150 * dk + 100 * len(beside)))
        for t in (t for t in range(j - i) if t != a and (asked is None or asked[t] != "-inf")):  # -inf: no row
            rows[q, t] = [*map(sub, keys[i + a], keys[i + t])], z, (i + a, i + t)  # x_a - x_t, z, indices of keys
            b[q, t] = Fraction(t not in beside) if asked is None else number(asked[t])
            equal += [(q, t)] * (t in beside)
    need(fits(gone, [int]) and {*gone} <= {*range(len(queries))}, "without names a query that is none", ValueError)
    need((norm in DUAL or norm > 1) and (C is None or C > 0 and norm == "frobenius"), "norm or C is none", ValueError)
    numbers, units = table([[x] for *_, x in proof["dual"]])
    y = {(q, t): n for (q, t, _), (n,) in zip(proof["dual"], numbers, strict=True)}
    margins = rows.keys() - equal
    need(len(y) == len(proof["dual"]) and y.keys() <= rows.keys(), "a multiplier has no row of its own", ValueError)
    need(all(y.get(e, 0) >= 0 for e in margins), "a multiplier is negative")
    need(not gone or proof["claim"] == "optimal" and not {q for q, _ in y} & {*gone}, "a query without part has one")
    total = sum(x * b[e] for e, x in y.items()) / units
    spend(1000 * len(y if infeasible else equal) * dk * dz)
    # entries: those of A_e times `scale`; `lift` treats distinct tokens as orthogonal
    place, entries = {tuple(key): k for k, key in enumerate(keys)}, {}
    for e in y if infeasible else equal:
        difference, z, pair = rows[e]
        a, t = (place[tuple(keys[k])] for k in pair)
        lifted = {a: kd * (a != t), t: -kd * (a != t)} if witness["lift"] and infeasible else enumerate(difference)
        entries[e] = {(i, j): d * x for i, d in dict(lifted).items() for j, x in enumerate(z) if d * x}
    if infeasible:  # equations: the rows, times the multipliers (the unknowns), sum to zero
        need(C is None or not any(y.get(e) for e in margins), "soft margins exclude no W")
        equations = {}
        for e, row in entries.items():
            for i, x in row.items():
                equations.setdefault(i, {})[e] = x
        missed = {i: Fraction(-sum(y[e] * x for e, x in row.items()), scale * units) for i, row in equations.items()}
        change = step(equations, scale, missed, witness)
        steady = all(e not in margins or y[e] >= change * units for e in map(tuple, witness["basis"]))
        room = total - change * sum(abs(b[q, t]) for q, t in witness["basis"])
        need(steady and room > 0, "the multipliers do not exclude every W")
        return "no W exists", None
    M = times([[x * d for d in rows[e][0]] for e, x in y.items()], [rows[e][1] for e in y])
    name = f"{norm} norm".replace("fr", "Fr") if norm in DUAL else f"entrywise l_{float(norm):g} norm"
    if C is None:
        most = bound(M, units * scale, DUAL[norm] if norm in DUAL else norm / (norm - 1), witness.get("dual"))
        lower = total / most if most else 0
    if proof["claim"] == "excluded":
        need(C is None and lower > 0, "the multipliers exclude no W")
        return f"every W with these margins has {name} above {shown(lower, down=True)}", None
    W, w = table(proof["W"], dk, dz)
    U = times([*zip(*queries, strict=True)], [*zip(*W, strict=True)])
    reached = {e: Fraction(sum(map(mul, row[0], U[e[0]])), scale * w) for e, row in rows.items()}
    moved = root(len(entries)) * step(entries, scale, {e: b[e] - reached[e] for e in entries}, witness)
    for e in margins if moved else []:
        reached[e] -= moved * root(squares([rows[e][0]], kd) * squares([rows[e][1]], qd))
    if C is not None:
        name, short = f"soft-margin objective (C = {float(C):g})", (max(0, b[e] - reached[e]) for e in margins)
        upper = (root(squares(W, w)) + moved) ** 2 / 2 + C * sum(x * x for x in short)
        lower = total - squares(M, units * scale) / 2 - sum(y.get(e, 0) ** 2 for e in margins) / (4 * C * units**2)
    else:
        asked = [] if any(b[e] for e in entries) else [e for e in margins if b[e] > 0]
        stretch = max((b[e] / reached[e] for e in asked if reached[e] > 0), default=1)  # keeps equations = 0
        need(all(stretch * reached[e] >= b[e] for e in margins), "W misses a margin")
        growth = min(dk, dz) if norm == "nuclear" else 1 if norm in DUAL else dk * dz  # over Frobenius
        upper = stretch * (bound(W, w, norm, witness.get("W")) + moved * root(growth))
    need(lower > 0, "the multipliers prove no bound")
    gap, more = upper / lower - 1, f"; so it is without queries {gone}" if gone else ""
    bounds = f"above {shown(lower, down=True)}; one has {shown(upper)} (gap {shown(gap, digits=2)})"
    return f"every W with these margins has {name} {bounds}{more}", gap


def shown(x, down=False, digits=9):
    context = Context(prec=digits, rounding="ROUND_FLOOR" if down else "ROUND_CEILING")
    return str(context.divide(*map(Decimal, (x * (1 - Fraction(down, 10**15))).as_integer_ratio()))).lower()


def main(paths):
    worst = 0 if paths else 2
    for path in paths:
        try:
            with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
                need(len(data) <= 2**14 + UNPACKED * os.path.getsize(path), "packed too tightly: unpack it", ValueError)
                code, line = 0, f"PROVED: {theorem(data)[0]}"
        except Exception as error:  # a damaged file can raise any error; an AssertionError says what is not proved
            code, line = 2 - (type(error) is AssertionError), f"NOT PROVED: {str(error)[:99] or type(error).__name__}"
        worst = max(worst, code)
        print(line if len(paths) == 1 else f"{path}: {line}")
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
